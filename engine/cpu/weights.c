/* weights.c - weights of linear layers and convolutions, packed once for the products. */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>

static void *new_bytes(struct cpu_backend *cpu, size_t n)
{
    const size_t bytes = (n + 63) / 64 * 64 + 64;
    void *p = aligned_alloc(64, bytes);
    if (!p)
        cpu_no_memory(cpu, "weights", bytes);
    else
        memset(p, 0, bytes);
    return p;
}

void cpu_matrix_free(struct cpu_matrix *m)
{
    if (!m) return;
    free(m->packed);
    free(m->bias);
    free(m);
}

struct cpu_matrix *cpu_matrix_new(struct cpu_backend *cpu, const float *w, const float *b, int in, int out)
{
    struct cpu_matrix *m = calloc(1, sizeof *m);
    if (!m) {
        cpu_no_memory(cpu, "weights", sizeof *m);
        return NULL;
    }
    const struct cpu_kern *kern = cpu->kern;
    const int columns = cpu_round_up(out, kern->panel);
    m->in = in;
    m->out = out;
    m->packed = new_bytes(cpu, kern->matrix_size(in, out));
    m->bias = new_bytes(cpu, (size_t)columns * sizeof(float));
    if (!m->packed || !m->bias) {
        cpu_matrix_free(m);
        return NULL;
    }
    CPU_PARALLEL_FOR(cpu, (int64_t)in * out / 16)
    for (int first = 0; first < out; first += kern->panel)
        kern->matrix_pack(m, w, first, cpu_min(out - first, kern->panel));
    if (b) memcpy(m->bias, b, (size_t)out * sizeof *b);
    return m;
}

void cpu_linear_create(struct s2_backend *be, struct s2_linear *lin, const float *w, const float *b, int in, int out)
{
    *lin = (struct s2_linear){.in = in, .out = out};
    if (!be->skip) lin->impl = cpu_matrix_new(cpu_of(be), w, b, in, out);
}

void cpu_linear_destroy(struct s2_backend *be, struct s2_linear *lin)
{
    (void)be;
    cpu_matrix_free(lin->impl);
    lin->impl = NULL;
}

static void depthwise_free(struct cpu_depthwise *d)
{
    if (!d) return;
    free(d->weight);
    free(d->bias);
    free(d);
}

static void depthwise_create(struct cpu_backend *cpu, struct s2_conv *conv, const float *w, const float *b)
{
    const int taps = conv->k * conv->k;
    struct cpu_depthwise *d = calloc(1, sizeof *d);
    if (!d) {
        cpu_no_memory(cpu, "weights", sizeof *d);
        return;
    }
    d->weight = new_bytes(cpu, (size_t)conv->out * (size_t)taps * sizeof(float));
    d->bias = new_bytes(cpu, (size_t)conv->out * sizeof(float));
    if (!d->weight || !d->bias) {
        depthwise_free(d);
        return;
    }
    for (int c = 0; c < conv->out; c++)
        for (int t = 0; t < taps; t++) d->weight[t * conv->out + c] = w[c * taps + t];
    if (b) memcpy(d->bias, b, (size_t)conv->out * sizeof *b);
    conv->impl = d;
}

static void dense_create(struct cpu_backend *cpu, struct s2_conv *conv, const float *w, const float *b)
{
    const int taps = conv->k * conv->k, in = taps * conv->in;
    float *turned = new_bytes(cpu, (size_t)in * (size_t)conv->out * sizeof(float));
    if (!turned) return;
    for (int o = 0; o < conv->out; o++)
        for (int c = 0; c < conv->in; c++)
            for (int t = 0; t < taps; t++)
                turned[(ptrdiff_t)o * in + t * conv->in + c] = w[((ptrdiff_t)o * conv->in + c) * taps + t];
    conv->impl = cpu_matrix_new(cpu, turned, b, in, conv->out);
    free(turned);
}

void cpu_conv_create(struct s2_backend *be, struct s2_conv *conv, const float *w, const float *b)
{
    conv->impl = NULL;
    if (be->skip) return;
    if (conv->groups == 1)
        dense_create(cpu_of(be), conv, w, b);
    else
        depthwise_create(cpu_of(be), conv, w, b);
}

void cpu_conv_destroy(struct s2_backend *be, struct s2_conv *conv)
{
    (void)be;
    if (conv->groups == 1)
        cpu_matrix_free(conv->impl);
    else
        depthwise_free(conv->impl);
    conv->impl = NULL;
}

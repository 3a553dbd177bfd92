/* weights.c - weights of linear layers and convolutions as doubles, biases as given */
#include "plain.h"

#include <stdlib.h>
#include <string.h>

/* src == NULL: zeros */
static float *copy_floats(struct s2_backend *be, const float *src, size_t n)
{
    float *p = calloc(n + 1, sizeof *p);
    if (!p) {
        be->skip = true;
        s2_no_memory(&be->err, "weights", n * sizeof *p);
    } else if (src) {
        memcpy(p, src, n * sizeof *p);
    }
    return p;
}

static void matrix_free(struct plain_matrix *m)
{
    if (!m) return;
    free(m->packed);
    free(m->bias);
    free(m);
}

static struct plain_matrix *matrix_new(struct s2_backend *be, int in, int out, const float *bias)
{
    struct plain_matrix *m = calloc(1, sizeof *m);
    if (!m) {
        be->skip = true;
        s2_no_memory(&be->err, "weights", sizeof *m);
        return NULL;
    }
    m->in = in;
    m->out = out;
    m->packed = plain_doubles(be, plain_packed_size(in, out), 1);
    m->bias = copy_floats(be, bias, (size_t)out);
    if (!m->packed || !m->bias) {
        matrix_free(m);
        return NULL;
    }
    return m;
}

void plain_linear_create(struct s2_backend *be, struct s2_linear *lin, const float *w, const float *b, int in, int out)
{
    lin->in = in;
    lin->out = out;
    lin->impl = NULL;
    if (be->skip) return;
    struct plain_matrix *m = matrix_new(be, in, out, b);
    if (!m) return;
    for (int o = 0; o < out; o++) {
        for (int i = 0; i < in; i++) m->packed[plain_at(in, i, o)] = w[(size_t)o * (size_t)in + (size_t)i];
    }
    lin->impl = m;
}

void plain_linear_destroy(struct s2_backend *be, struct s2_linear *lin)
{
    (void)be;
    matrix_free(lin->impl);
    lin->impl = NULL;
}

static void depthwise_create(struct s2_backend *be, struct s2_conv *conv, const float *w, const float *b)
{
    struct plain_depthwise *d = calloc(1, sizeof *d);
    if (!d) {
        be->skip = true;
        s2_no_memory(&be->err, "weights", sizeof *d);
        return;
    }
    d->weight = copy_floats(be, w, (size_t)conv->out * (size_t)conv->k * (size_t)conv->k);
    d->bias = copy_floats(be, b, (size_t)conv->out);
    conv->impl = d;
}

static void dense_create(struct s2_backend *be, struct s2_conv *conv, const float *w, const float *b)
{
    const int area = conv->k * conv->k, in = area * conv->in;
    struct plain_matrix *m = matrix_new(be, in, conv->out, b);
    if (!m) return;
    for (int o = 0; o < conv->out; o++) {
        for (int c = 0; c < conv->in; c++) {
            for (int t = 0; t < area; t++) m->packed[plain_at(in, t * conv->in + c, o)] = *w++;
        }
    }
    conv->impl = m;
}

void plain_conv_create(struct s2_backend *be, struct s2_conv *conv, const float *w, const float *b)
{
    conv->impl = NULL;
    if (be->skip) return;
    if (conv->groups == 1) {
        dense_create(be, conv, w, b);
    } else {
        depthwise_create(be, conv, w, b);
    }
}

void plain_conv_destroy(struct s2_backend *be, struct s2_conv *conv)
{
    (void)be;
    if (conv->groups == 1) {
        matrix_free(conv->impl);
    } else if (conv->impl) {
        struct plain_depthwise *d = conv->impl;
        free(d->weight);
        free(d->bias);
        free(d);
    }
    conv->impl = NULL;
}

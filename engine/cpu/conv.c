/* conv.c - convolutions: dense ones as products over gathered neighbourhoods, depthwise ones directly. */
#include "cpu.h"

#include <string.h>

/* Output pixels of one row that are gathered at a time. */
enum { PIXELS = 112 };

/* A few floats: shorter than the way to memcpy. */
static inline void copy(float *to, const float *from, int n)
{
    int i = 0;
    for (; i + 4 <= n; i += 4) memcpy(to + i, from + i, 4 * sizeof *to);
    for (; i < n; i++) to[i] = from[i];
}

/* to [k*k*c] = the neighbourhood of x whose top left tap is (top, left), zeros outside */
static void gather(float *to, struct s2_tensor x, int image, int top, int left, int k)
{
    const int from = left < 0 ? -left : 0, until = x.w - left < k ? x.w - left : k;
    for (int ky = 0; ky < k; ky++, to += k * x.c) {
        const int row = top + ky;
        if (row < 0 || row >= x.h || until <= from) {
            memset(to, 0, (size_t)k * (size_t)x.c * sizeof *to);
            continue;
        }
        const float *src = cpu_token(x, ((int64_t)image * x.h + row) * x.w + left + from);
        for (int i = 0; i < from * x.c; i++) to[i] = 0;
        copy(to + from * x.c, src, (until - from) * x.c);
        for (int i = until * x.c; i < k * x.c; i++) to[i] = 0;
    }
}

static void conv_dense(struct cpu_backend *cpu, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv,
                       enum s2_act act)
{
    const struct cpu_matrix *w = conv->impl;
    const int step = cpu_min(y.w, PIXELS), pieces = (y.w + step - 1) / step;
    if (!cpu_scratch(cpu, 0, (size_t)step * (size_t)w->in * sizeof(float))) return;
    CPU_PARALLEL_FOR(cpu, s2_tokens(y) * w->in * w->out / 256)
    for (int piece = 0; piece < y.n * y.h * pieces; piece++) {
        const int row = piece / pieces, first = piece % pieces * step, count = cpu_min(y.w - first, step);
        const int top = row % y.h * conv->stride - conv->pad;
        float *in = cpu_local(cpu);
        for (int i = 0; i < count; i++)
            gather(in + (ptrdiff_t)i * w->in, x, row / y.h, top, (first + i) * conv->stride - conv->pad, conv->k);
        cpu_affine(cpu, cpu_token(y, (int64_t)row * y.w + first), y.ld, in, w->in, count, w, 0, w->out, act, false);
    }
}

/* One output row: whole where the kernel row lies inside, one pixel at a time at the borders. */
static void depthwise_row(const struct cpu_backend *cpu, float *to, struct s2_tensor x, int image, int row, int width,
                          const struct s2_conv *conv, const struct cpu_depthwise *d)
{
    const int c = x.c, k = conv->k;
    for (int i = 0; i < width; i++) memcpy(to + i * c, d->bias, (size_t)c * sizeof *to);
    for (int ky = 0; ky < k; ky++) {
        const int source = row * conv->stride - conv->pad + ky;
        if (source < 0 || source >= x.h) continue;
        const float *line = cpu_token(x, ((int64_t)image * x.h + source) * x.w), *w = d->weight + ky * k * c;
        for (int i = 0; i < width; i++) {
            const int left = i * conv->stride - conv->pad;
            const int from = left < 0 ? -left : 0, until = x.w - left < k ? x.w - left : k;
            int run = 1;
            if (from == 0 && until == k && conv->stride == 1) run = cpu_min(width - i, x.w - k - left + 1);
            if (until > from)
                cpu->kern->depthwise(to + i * c, line + (ptrdiff_t)(left + from) * c, w + from * c, run, until - from,
                                     c);
            i += run - 1;
        }
    }
}

static void conv_depthwise(struct cpu_backend *cpu, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv,
                           enum s2_act act)
{
    CPU_PARALLEL_FOR(cpu, s2_elements(y) * conv->k * conv->k / 16)
    for (int row = 0; row < y.n * y.h; row++) {
        float *to = cpu_token(y, (int64_t)row * y.w);
        depthwise_row(cpu, to, x, row / y.h, row % y.h, y.w, conv, conv->impl);
        cpu->kern->activate(to, (size_t)y.w * (size_t)y.c, act);
    }
}

void cpu_conv(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv,
              enum s2_act act)
{
    if (be->skip) return;
    if (conv->groups == 1)
        conv_dense(cpu_of(be), y, x, conv, act);
    else
        conv_depthwise(cpu_of(be), y, x, conv, act);
}

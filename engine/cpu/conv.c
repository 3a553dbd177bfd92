/* conv.c - convolutions: dense ones as products over gathered neighbourhoods, depthwise ones directly. */
#include "cpu.h"

#include <string.h>

/* A few floats: shorter than the way to memcpy. */
static inline void copy(float *to, const float *from, int n)
{
    int i = 0;
    for (; i + 4 <= n; i += 4) memcpy(to + i, from + i, 4 * sizeof *to);
    for (; i < n; i++) to[i] = from[i];
}

/* One kernel row of `count` neighbourhoods, `pitch` floats apart: k pixels of c channels from pixel `left` on, the next
 * neighbourhood `stride` pixels further; zeros outside of the line of `width` pixels. */
static void gather_line(float *to, ptrdiff_t pitch, const float *line, int width, int c, int left, int count,
                        const struct s2_conv *conv)
{
    const int k = conv->k, n = k * c;
    for (int i = 0; i < count; i++, left += conv->stride, to += pitch) {
        if (left >= 0 && left + k <= width) {
            copy(to, line + (ptrdiff_t)left * c, n);
            continue;
        }
        for (int kx = 0; kx < k; kx++)
            for (int j = 0; j < c; j++) {
                const bool inside = left + kx >= 0 && left + kx < width;
                to[kx * c + j] = inside ? line[(ptrdiff_t)(left + kx) * c + j] : 0;
            }
    }
}

/* to [count][k*k*c] = the neighbourhoods of output pixels first .. first+count-1 of one row */
static void gather(float *to, struct s2_tensor x, int image, int row, int first, int count, const struct s2_conv *conv)
{
    const int n = conv->k * x.c;
    const ptrdiff_t pitch = (ptrdiff_t)conv->k * n;
    for (int ky = 0; ky < conv->k; ky++, to += n) {
        const int source = row * conv->stride - conv->pad + ky;
        if (source >= 0 && source < x.h) {
            const float *line = cpu_token(x, ((int64_t)image * x.h + source) * x.w);
            gather_line(to, pitch, line, x.w, x.c, first * conv->stride - conv->pad, count, conv);
        } else {
            for (int i = 0; i < count; i++) memset(to + i * pitch, 0, (size_t)n * sizeof *to);
        }
    }
}

static void conv_dense(struct cpu_backend *cpu, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv,
                       enum s2_act act)
{
    const struct cpu_matrix *w = conv->impl;
    const int step = cpu_min(y.w, cpu->kern->block), pieces = (y.w + step - 1) / step;
    if (!cpu_scratch(cpu, 0, (size_t)step * (size_t)w->in * sizeof(float))) return;
    CPU_PARALLEL_FOR(cpu, s2_tokens(y) * w->in * w->out / 256)
    for (int piece = 0; piece < y.n * y.h * pieces; piece++) {
        const int row = piece / pieces, first = piece % pieces * step, count = cpu_min(y.w - first, step);
        float *in = cpu_local(cpu);
        gather(in, x, row / y.h, row % y.h, first, count, conv);
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

/* image.c - frames into the network, convolutions, pooling */
#include "plain.h"

#include <stdlib.h>
#include <string.h>

#include "../common.h"

/* An RGB picture of 8-bit samples, rows contiguous. */
struct picture {
    int width, height;
    uint8_t *rgb;
};

/* One axis of Pillow's resampling: `lines` rows (or columns) of `in` pixels to `out`; `step` and `pitch`
 * are the bytes from one pixel, and from one line, to the next. */
struct axis {
    int in, out, lines;
    size_t src_step, src_pitch, dst_step, dst_pitch;
};

static bool resample(uint8_t *dst, const uint8_t *src, struct axis a)
{
    const int taps = s2i_bicubic_taps(a.in, a.out);
    int32_t *first = malloc((size_t)a.out * sizeof *first), *count = malloc((size_t)a.out * sizeof *count);
    int32_t *coef = calloc((size_t)a.out * (size_t)taps, sizeof *coef);
    const bool ok = first && count && coef;
    if (ok) s2i_bicubic_table(a.in, a.out, first, count, coef);
    for (int line = 0; ok && line < a.lines; line++) {
        for (int i = 0; i < a.out; i++) {
            const uint8_t *from = src + (size_t)line * a.src_pitch + (size_t)first[i] * a.src_step;
            for (int c = 0; c < 3; c++) {
                int32_t sum = 1 << (S2I_BICUBIC_BITS - 1);
                for (int j = 0; j < count[i]; j++) {
                    sum += from[(size_t)j * a.src_step + (size_t)c] * coef[(size_t)i * (size_t)taps + (size_t)j];
                }
                dst[(size_t)line * a.dst_pitch + (size_t)i * a.dst_step + (size_t)c] = s2i_bicubic_clip(sum);
            }
        }
    }
    free(first);
    free(count);
    free(coef);
    return ok;
}

static bool picture_alloc(struct picture *p, int width, int height)
{
    *p = (struct picture){width, height, malloc((size_t)width * (size_t)height * 3)};
    return p->rgb != NULL;
}

/* Replaces *p by itself resized along one axis; an axis of equal size stays. */
static bool resize_axis(struct picture *p, int size, bool vertical)
{
    const int in = vertical ? p->height : p->width;
    if (in == size) return true;
    struct picture out;
    if (!picture_alloc(&out, vertical ? p->width : size, vertical ? size : p->height)) return false;
    const size_t src_row = (size_t)p->width * 3, dst_row = (size_t)out.width * 3;
    const struct axis a = vertical ? (struct axis){in, size, p->width, src_row, 3, dst_row, 3}
                                   : (struct axis){in, size, p->height, 3, src_row, 3, dst_row};
    const bool ok = resample(out.rgb, p->rgb, a);
    free(p->rgb);
    *p = out;
    return ok;
}

static void preprocess(struct s2_backend *be, struct s2_tensor y, const struct s2_image *frame)
{
    const int size = y.w;
    struct picture p;
    bool ok = picture_alloc(&p, frame->width, frame->height);
    for (int r = 0; ok && r < p.height; r++) {
        uint8_t *to = p.rgb + (size_t)r * (size_t)p.width * 3;
        if (frame->yuv) {
            s2_yuv_row(frame->yuv, p.width, p.height, r, to);
        } else {
            memcpy(to, frame->rgb + (size_t)r * frame->stride, (size_t)p.width * 3);
        }
    }
    const bool vertical_first = s2i_bicubic_vertical_first(frame->width, frame->height, size);
    ok = ok && resize_axis(&p, size, vertical_first) && resize_axis(&p, size, !vertical_first);
    if (ok) {
        float level[3][256];
        s2i_normalised_levels(level);
        for (int64_t i = 0; i < s2_tokens(y); i++) {
            for (int c = 0; c < 3; c++) plain_token(y, i)[c] = level[c][p.rgb[i * 3 + c]];
        }
    } else {
        be->skip = true;
        s2_no_memory(&be->err, "a frame", (size_t)frame->width * (size_t)frame->height * 3);
    }
    free(p.rgb);
}

void plain_preprocess(struct s2_backend *be, struct s2_tensor y, const struct s2_image *frame)
{
    for (int i = 0; !be->skip && i < y.n; i++) preprocess(be, s2_batch(y, i, 1), frame + i);
}

/* Where the kernel lies for an output pixel: the image and the input coordinates of the top left tap. */
struct place {
    int image, y, x;
};

static struct place place_of(struct s2_tensor y, const struct s2_conv *conv, int64_t i)
{
    const int64_t area = (int64_t)y.h * y.w, p = i % area;
    return (struct place){(int)(i / area), (int)(p / y.w) * conv->stride - conv->pad,
                          (int)(p % y.w) * conv->stride - conv->pad};
}

/* NULL in the zero padding. */
static const float *tap_of(struct s2_tensor x, struct place at, int ky, int kx)
{
    const int row = at.y + ky, column = at.x + kx;
    if (row < 0 || row >= x.h || column < 0 || column >= x.w) return NULL;
    return plain_token(x, ((int64_t)at.image * x.h + row) * x.w + column);
}

static void conv_depthwise(struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv, enum s2_act act)
{
    const struct plain_depthwise *d = conv->impl;
    const int k = conv->k;
    for (int64_t i = 0; i < s2_tokens(y); i++) {
        const struct place at = place_of(y, conv, i);
        for (int c = 0; c < y.c; c++) {
            double sum = d->bias[c];
            for (int ky = 0; ky < k; ky++) {
                for (int kx = 0; kx < k; kx++) {
                    const float *tap = tap_of(x, at, ky, kx);
                    if (tap) sum += (double)tap[c] * d->weight[(c * k + ky) * k + kx];
                }
            }
            plain_token(y, i)[c] = (float)plain_activate(sum, act);
        }
    }
}

static void conv_dense(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv,
                       enum s2_act act)
{
    const struct plain_matrix *m = conv->impl;
    double *in = plain_doubles(be, PLAIN_ROWS, (size_t)m->in), *out = plain_doubles(be, PLAIN_ROWS, (size_t)m->out);
    const int64_t tokens = in && out ? s2_tokens(y) : 0;
    for (int64_t first = 0; first < tokens; first += PLAIN_ROWS) {
        const int rows = (int)(tokens - first < PLAIN_ROWS ? tokens - first : PLAIN_ROWS);
        double *v = in;
        for (int r = 0; r < rows; r++) {
            const struct place at = place_of(y, conv, first + r);
            for (int ky = 0; ky < conv->k; ky++) {
                for (int kx = 0; kx < conv->k; kx++) {
                    const float *tap = tap_of(x, at, ky, kx);
                    for (int c = 0; c < conv->in; c++) *v++ = tap ? tap[c] : 0;
                }
            }
        }
        plain_affine(out, in, m, rows);
        for (int r = 0; r < rows; r++) {
            float *to = plain_token(y, first + r);
            for (int o = 0; o < m->out; o++) to[o] = (float)plain_activate(out[r * m->out + o], act);
        }
    }
    free(in);
    free(out);
}

void plain_conv(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv,
                enum s2_act act)
{
    if (be->skip) return;
    if (conv->groups == 1) {
        conv_dense(be, y, x, conv, act);
    } else {
        conv_depthwise(y, x, conv, act);
    }
}

void plain_max_pool2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    if (be->skip) return;
    for (int64_t i = 0; i < s2_tokens(y); i++) {
        const int64_t row = i / y.w, column = i % y.w; /* rows of all images: x has twice as many */
        const int64_t corner = 2 * row * x.w + 2 * column;
        const float *a = plain_token(x, corner), *b = plain_token(x, corner + 1);
        const float *c = plain_token(x, corner + x.w), *d = plain_token(x, corner + x.w + 1);
        float *to = plain_token(y, i);
        for (int j = 0; j < y.c; j++) {
            const float top = a[j] > b[j] ? a[j] : b[j], bottom = c[j] > d[j] ? c[j] : d[j];
            to[j] = top > bottom ? top : bottom;
        }
    }
}

void plain_upsample2_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    if (be->skip) return;
    for (int64_t i = 0; i < s2_tokens(y); i++) {
        const int64_t row = i / y.w, column = i % y.w;
        const float *from = plain_token(x, row / 2 * x.w + column / 2);
        float *to = plain_token(y, i);
        for (int c = 0; c < y.c; c++) to[c] += from[c];
    }
}

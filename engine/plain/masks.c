/* masks.c - prompts in, masks out */
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common.h"

/* Coordinates are f32 step by step, as in the reference: far outside the frame the rounding shows. */
void plain_point_tokens(struct s2_backend *be, struct s2_tensor y, const float *points, const float *gauss,
                        const float *embed, int size)
{
    if (be->skip) return;
    const int half = y.c / 2;
    for (int64_t i = 0; i < s2_tokens(y); i++) {
        const float *p = points + i * 3;
        const int label = (int)p[2];
        float *to = plain_token(y, i);
        if (label == -1) {
            memcpy(to, embed + 4 * y.c, (size_t)y.c * sizeof *to);
            continue;
        }
        const float u = 2 * ((p[0] + 0.5f) / (float)size) - 1, v = 2 * ((p[1] + 0.5f) / (float)size) - 1;
        for (int c = 0; c < half; c++) {
            const float z = (float)(2 * M_PI) * (u * gauss[c] + v * gauss[half + c]);
            to[c] = (float)(sin(z) + embed[label * y.c + c]);
            to[half + c] = (float)(cos(z) + embed[label * y.c + half + c]);
        }
    }
}

void plain_deconv2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *lin,
                   struct s2_tensor skip, enum s2_act act)
{
    if (be->skip) return;
    const struct plain_matrix *m = lin->impl;
    double *in = plain_doubles(be, (size_t)m->in, 1), *out = plain_doubles(be, (size_t)m->out, 1);
    const int64_t tokens = in && out ? s2_tokens(x) : 0, map = (int64_t)y.h * y.w;
    for (int64_t i = 0; i < tokens; i++) {
        const int64_t row = i / x.w, column = i % x.w; /* rows of all images */
        plain_load(in, x, i, 1);
        plain_affine(out, in, m, 1);
        for (int part = 0; part < 4; part++) {
            const int64_t at = (2 * row + part / 2) * y.w + 2 * column + part % 2;
            const float *more = skip.data ? plain_token(skip, skip.n == 1 ? at % map : at) : NULL;
            for (int c = 0; c < y.c; c++) {
                const double v = out[part * y.c + c] + (more ? more[c] : 0);
                plain_token(y, at)[c] = (float)plain_activate(v, act);
            }
        }
    }
    free(in);
    free(out);
}

void plain_mask_logits(struct s2_backend *be, struct s2_tensor y, struct s2_tensor hyper, struct s2_tensor u)
{
    if (be->skip) return;
    const int64_t map = (int64_t)u.h * u.w;
    for (int n = 0; n < u.n; n++) {
        for (int k = 0; k < hyper.w; k++) {
            const float *h = plain_token(hyper, (int64_t)n * hyper.w + k);
            float *to = (float *)y.data + ((int64_t)n * hyper.w + k) * map;
            for (int64_t p = 0; p < map; p++) {
                const float *v = plain_token(u, n * map + p);
                double sum = 0;
                for (int c = 0; c < u.c; c++) sum += (double)h[c] * v[c];
                to[p] = (float)sum;
            }
        }
    }
}

static int best_of_three(const float *iou)
{
    int best = 1;
    for (int i = 2; i < 4; i++) {
        if (iou[i] > iou[best]) best = i;
    }
    return best;
}

static bool is_stable(const float *mask, int count)
{
    int inner = 0, outer = 0;
    for (int i = 0; i < count; i++) {
        inner += mask[i] > 0.05f;
        outer += mask[i] > -0.05f;
    }
    return outer == 0 || (float)inner / (float)outer >= 0.98f;
}

void plain_choose(struct s2_backend *be, struct s2_tensor low, struct s2_tensor token, struct s2_tensor best_iou,
                  struct s2_tensor masks, struct s2_tensor iou, struct s2_tensor score, struct s2_tensor tokens,
                  int first, bool multimask)
{
    if (be->skip) return;
    const int pixels = masks.w;
    for (int n = 0; n < masks.n; n++) {
        const float *mask = (const float *)masks.data + (int64_t)n * 4 * pixels,
                    *quality = (const float *)iou.data + n * 4;
        const int best = !multimask && is_stable(mask, pixels) ? 0 : best_of_three(quality);
        float *to = (float *)low.data + (int64_t)n * pixels;
        const bool absent = ((const float *)score.data)[n] <= 0;
        for (int i = 0; i < pixels; i++) to[i] = absent ? -1024 : mask[(int64_t)best * pixels + i];
        /* the reference takes the pointer from token 0 even when another mask replaces mask 0 */
        memcpy(plain_token(token, n), plain_token(tokens, (int64_t)n * tokens.w + first + (multimask ? best : 0)),
               (size_t)token.c * sizeof(float));
        ((float *)best_iou.data)[n] = quality[best];
    }
}

void plain_where_absent(struct s2_backend *be, struct s2_tensor x, struct s2_tensor score, const float *vec,
                        bool replace)
{
    if (be->skip) return;
    const int64_t map = (int64_t)x.h * x.w;
    for (int64_t i = 0; i < s2_tokens(x); i++) {
        if (!(((const float *)score.data)[i / map] <= 0)) continue;
        float *v = plain_token(x, i);
        for (int c = 0; c < x.c; c++) v[c] = replace ? vec[c] : v[c] + vec[c];
    }
}

void plain_clamp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, float lo, float hi)
{
    if (be->skip) return;
    const float *from = x.data;
    float *to = y.data;
    for (int64_t i = 0; i < s2_elements(x); i++) {
        const float above = from[i] > lo ? from[i] : lo;
        to[i] = above < hi ? above : hi;
    }
}

void plain_fill_holes(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int area)
{
    if (be->skip) return;
    const size_t pixels = (size_t)x.h * (size_t)x.w;
    int32_t *scratch = malloc(pixels * sizeof *scratch);
    if (!scratch) {
        be->skip = true;
        s2_no_memory(&be->err, "hole filling", pixels * sizeof *scratch);
        return;
    }
    for (int n = 0; n < x.n; n++) {
        const size_t at = (size_t)n * pixels;
        s2i_fill_holes((float *)y.data + at, (const float *)x.data + at, x.w, x.h, area, scratch);
    }
    free(scratch);
}

void plain_video_masks(struct s2_backend *be, const struct s2_video_masks *out, struct s2_tensor low)
{
    if (be->skip) return;
    const size_t map = (size_t)low.h * (size_t)low.w;
    for (int y = 0; y < out->height; y++) {
        const struct s2i_tap ty = s2i_bilinear_tap(low.h, out->height, y);
        for (int n = 0; out->bits && n < low.n; n++) {
            if (out->bits[n]) memset(out->bits[n] + (size_t)y * out->bit_stride, 0, out->bit_stride);
        }
        for (int x = 0; x < out->width; x++) {
            const struct s2i_tap tx = s2i_bilinear_tap(low.w, out->width, x);
            int owner = 0;
            float largest = 0;
            for (int n = 0; n < low.n; n++) {
                const float v = s2i_bilinear_at((const float *)low.data + (size_t)n * map, low.w, ty, tx);
                if (v > largest) {
                    largest = v;
                    owner = n + 1;
                }
                if (out->bits && out->bits[n] && v > 0 && !out->exclusive) {
                    out->bits[n][(size_t)y * out->bit_stride + (size_t)(x / 8)] |= (uint8_t)(0x80 >> x % 8);
                }
            }
            if (out->bits && out->exclusive && owner && out->bits[owner - 1]) {
                out->bits[owner - 1][(size_t)y * out->bit_stride + (size_t)(x / 8)] |= (uint8_t)(0x80 >> x % 8);
            }
            if (out->owner) out->owner[(size_t)y * (size_t)out->width + (size_t)x] = (uint16_t)owner;
        }
    }
}

/* masks.c - cases of point_tokens, deconv2, mask_logits, choose, where_absent, clamp */
#include "kcheck.h"

#include <math.h>

static void point_tokens(int n, int k, int size, double spread)
{
    kc_begin("%d x %d points, size %d, spread %g", n, k, size, spread);
    const int c = 256, half = c / 2;
    const float *gauss = kc_random((size_t)c, 2), *embed = kc_random((size_t)(5 * c), 1);
    float *points = kc_scratch((size_t)(n * k * 3), sizeof *points);
    double *bound = kc_scratch((size_t)(n * k * c), sizeof *bound);
    for (int i = 0; i < n * k; i++) {
        float *p = points + 3 * i;
        p[0] = (float)(spread * size * kc_uniform());
        p[1] = (float)(spread * size * kc_uniform());
        const int label = i % 5 - 1;
        p[2] = (float)label;
        for (int j = 0; j < c; j++) {
            /* the angle is 2 pi (u g0 + v g1), u = 2 (x + 0.5) / size - 1, rounded at each step on both sides */
            const double u = 1 + 2 * fabs(p[0] + 0.5) / size, v = 1 + 2 * fabs(p[1] + 0.5) / size;
            const double angle =
                2 * M_PI * (u * fabs((double)gauss[j % half]) + v * fabs((double)gauss[half + j % half]));
            bound[i * c + j] = label < 0 ? 0 : kc.eps * (16 * angle + 8);
        }
    }
    const struct kc_buffer *at = kc_floats(points, (size_t)(n * k * 3));
    const struct kc_buffer *g = kc_floats(gauss, (size_t)c), *e = kc_floats(embed, (size_t)(5 * c));
    struct kc_tensor y = kc_poison(n, 1, k, c);
    KC_EACH(s) KC_RUN(s, point_tokens, y.on[s], kc_at(at, s), kc_at(g, s), kc_at(e, s), size);
    kc_close(y, bound);
    kc_end();
}

void check_point_tokens(void)
{
    point_tokens(1, 1, 1024, 1);
    point_tokens(1, 5, 1024, 1);
    point_tokens(3, 2, 512, 1);
    point_tokens(4, 7, 1024, 20);
}

static void deconv2(int n, int h, int w, int in, int out, int skip_n, enum s2_act act)
{
    kc_begin("%dx[%d,%d,%d] -> %d, skip.n %d, activation %d", n, h, w, in, out, skip_n, act);
    struct kc_linear lin = kc_linear(in, 4 * out);
    struct kc_tensor x = kc_noise(n, h, w, in, 1), y = kc_poison(n, 2 * h, 2 * w, out);
    struct kc_tensor skip = skip_n ? kc_noise(skip_n, 2 * h, 2 * w, out, 1) : kc_none(1, 2 * h, 2 * w, out);
    const double *product = kc_product_bound(x, &lin, S2_ACT_NONE, true);
    double *bound = kc_scratch((size_t)s2_elements(y.on[KC_ORACLE]), sizeof *bound);
    for (int64_t i = 0; i < s2_tokens(y.on[KC_ORACLE]); i++) {
        const int64_t row = i / (2 * w), column = i % (2 * w), part = row % 2 * 2 + column % 2;
        const int64_t from = row / 2 * w + column / 2;
        for (int c = 0; c < out; c++) {
            const double more = skip_n ? kc_value(skip, skip_n == 1 ? i % (4 * h * w) : i, c) : 0;
            const double sum = product[(from * 4 + part) * out + c] + 4 * kc.eps * fabs(more);
            bound[i * out + c] = kc_act_bound(sum, act);
        }
    }
    KC_EACH(s) KC_RUN(s, deconv2, y.on[s], x.on[s], &lin.on[s], skip.on[s], act);
    kc_close(y, bound);
    kc_linear_free(&lin);
    kc_end();
}

void check_deconv2(void)
{
    deconv2(1, 1, 1, 1, 1, 0, S2_ACT_NONE);
    deconv2(1, 8, 8, 256, 64, 1, S2_ACT_NONE);
    deconv2(3, 8, 8, 64, 32, 1, S2_ACT_GELU);
    deconv2(3, 5, 7, 37, 19, 3, S2_ACT_GELU);
    deconv2(2, 5, 7, 37, 19, 0, S2_ACT_RELU);
    deconv2(4, 3, 9, 64, 8, 1, S2_ACT_NONE);
}

static void mask_logits(int n, int k, int h, int w, int c)
{
    kc_begin("%d x %d masks of [%d,%d], %d channels", n, k, h, w, c);
    struct kc_tensor hyper = kc_noise(n, 1, k, c, 1), u = kc_noise(n, h, w, c, 1), y = kc_poison_f32(n, k, h * w, 1);
    double *bound = kc_scratch((size_t)(n * k * h * w), sizeof *bound);
    for (int i = 0; i < n * k * h * w; i++) {
        const int p = i % (h * w), mask = i / (h * w), image = mask / k;
        for (int j = 0; j < c; j++) {
            bound[i] += kc_sum_bound(c) * fabs((double)kc_value(hyper, mask, j) * kc_value(u, image * h * w + p, j));
        }
    }
    KC_EACH(s) KC_RUN(s, mask_logits, y.on[s], hyper.on[s], u.on[s]);
    kc_close(y, bound);
    kc_end();
}

void check_mask_logits(void)
{
    mask_logits(1, 4, 1, 1, 32);
    mask_logits(1, 4, 32, 32, 32);
    mask_logits(3, 4, 9, 11, 32);
    mask_logits(2, 1, 5, 7, 19);
    mask_logits(4, 3, 4, 3, 8);
}

/* Mask 0 of each entry has `edge` of `pixels` between the two thresholds, `inner` above both. */
static void choose(int n, int pixels, int inner, int edge, bool ties, bool multimask)
{
    kc_begin("%d x %d pixels, %d above, %d between, ties %d, multimask %d", n, pixels, inner, edge, ties, multimask);
    float *masks = kc_random((size_t)(n * 4 * pixels), 8), *quality = kc_random((size_t)(n * 4), 1);
    float *present = kc_random((size_t)n, 5);
    for (int b = 0; b < n; b++) {
        for (int i = 0; i < pixels; i++) {
            float *v = masks + b * 4 * pixels + i;
            /* 0.05 itself is not above 0.05, nor is -0.05 above -0.05 */
            *v = i < inner ? 0.051f + (float)i : i < inner + edge ? (i % 2 ? 0.05f : -0.0499f) : i % 2 ? -0.05f : -3;
        }
        for (int i = 1; ties && i < 4; i++) quality[b * 4 + i] = i == 1 ? 0.25f : 0.5f;
    }
    present[n - 1] = 0;
    struct kc_tensor m = kc_f32_of(masks, n, 4, pixels, 1), iou = kc_f32_of(quality, n, 1, 1, 4);
    struct kc_tensor score = kc_f32_of(present, n, 1, 1, 1), tokens = kc_noise(n, 1, 4 + n, 256, 1);
    struct kc_tensor low = kc_poison_f32(n, 1, pixels, 1), best = kc_poison_f32(n, 1, 1, 1);
    struct kc_tensor token = kc_poison(n, 1, 1, 256);
    KC_EACH(s)
    KC_RUN(s, choose, low.on[s], token.on[s], best.on[s], m.on[s], iou.on[s], score.on[s], tokens.on[s], n / 2,
           multimask);
    kc_equal(low);
    kc_equal(token);
    kc_equal(best);
    kc_end();
}

void check_choose(void)
{
    for (int multimask = 0; multimask < 2; multimask++) {
        choose(1, 1, 1, 0, false, multimask);
        choose(2, 64, 0, 0, false, multimask); /* 0/0: stable */
        choose(2, 64, 0, 1, false, multimask);
        choose(3, 100, 98, 2, false, multimask); /* exactly .98: stable */
        choose(3, 100, 97, 2, true, multimask);
        choose(4, 1000, 490, 10, true, multimask);
        choose(4, 1000, 489, 11, true, multimask);
        choose(4, 37 * 41, 1000, 20, false, multimask);
        choose(2, 64 * 64, 4096, 0, true, multimask);
    }
}

/* f32: the tensor is of f32 whatever the backend, as pointers are */
static void where_absent(int n, int h, int w, int c, bool replace, bool f32)
{
    kc_begin("%dx[%d,%d,%d], replace %d%s", n, h, w, c, replace, f32 ? ", float32" : "");
    float *present = kc_random((size_t)n, 5);
    present[0] = 0;
    if (n > 1) present[1] = 1e-30f;
    struct kc_tensor x = f32 ? kc_noise_f32(n, h, w, c, 1) : kc_noise(n, h, w, c, 1);
    struct kc_tensor score = kc_f32_of(present, n, 1, 1, 1);
    const struct kc_buffer *vec = kc_floats(kc_random((size_t)c, 1), (size_t)c);
    KC_EACH(s) KC_RUN(s, where_absent, x.on[s], score.on[s], kc_at(vec, s), replace);
    kc_equal(x);
    kc_end();
}

void check_where_absent(void)
{
    for (int replace = 0; replace < 2; replace++) {
        where_absent(1, 1, 1, 1, replace, false);
        where_absent(4, 1, 1, 256, replace, false);
        where_absent(4, 5, 7, 64, replace, false);
        where_absent(3, 3, 3, 37, replace, false);
        if (kc.act != S2_F32) where_absent(4, 1, 1, 256, replace, true);
    }
}

enum clamped { IN_PLACE, TO_F32, TO_ACT };

static void clamp(int n, int tokens, double scale, enum clamped to)
{
    static const char *const names[] = {", in place", "", ", to the activation type"};
    kc_begin("%d x %d, size %g%s", n, tokens, scale, names[to]);
    float *v = kc_random((size_t)(n * tokens), scale);
    v[0] = -32;
    v[n * tokens - 1] = 32;
    struct kc_tensor x = kc_f32_of(v, n, 1, tokens, 1), y = x;
    if (to != IN_PLACE) y = to == TO_F32 ? kc_poison_f32(n, 1, tokens, 1) : kc_poison(n, 1, tokens, 1);
    KC_EACH(s) KC_RUN(s, clamp, y.on[s], x.on[s], -32, 32);
    kc_equal(y);
    kc_end();
}

void check_clamp(void)
{
    clamp(1, 1, 1, TO_F32);
    clamp(3, 37, 100, TO_F32);
    clamp(2, 4096, 40, IN_PLACE);
    clamp(1, 19, 1e30, IN_PLACE);
    if (kc.act == S2_F32) return;
    clamp(1, 1, 1, TO_ACT);
    clamp(3, 37, 100, TO_ACT);
    clamp(1, 4099, 1e30, TO_ACT);
}

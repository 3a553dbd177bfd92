/* image.c - cases of preprocess, conv, max_pool2, upsample2_add */
#include "kcheck.h"

#include <math.h>
#include <stdlib.h>

enum picture { NOISE, EDGES, WHITE };

static void preprocess_images(int size, int n, const struct s2_image *frame)
{
    struct kc_tensor y = kc_poison(n, size, size, 3);
    KC_EACH(s)
    {
        if (kc.be[s]->ops->stage_images) KC_CALL(s, stage_images, n, frame);
        KC_RUN(s, preprocess, y.on[s], frame);
    }
    kc_equal(y);
    kc_end();
}

static void preprocess(int width, int height, int size, enum picture kind, size_t gap)
{
    static const char *const names[] = {"noise", "edges", "white"};
    kc_begin("%dx%d -> %d, %s, %zu bytes between rows", width, height, size, names[kind], gap);
    const size_t stride = (size_t)width * 3 + gap, bytes = stride * (size_t)(height - 1) + (size_t)width * 3;
    uint8_t *rgb = malloc(bytes); /* its exact size, so that a sanitizer sees an access behind the last pixel */
    if (!rgb) exit(7);
    for (size_t i = 0; i < bytes; i++) {
        const int v = kc_below(256);
        rgb[i] = (uint8_t)(kind == NOISE ? v : kind == EDGES ? (v < 128 ? 0 : 255) : 255);
    }
    preprocess_images(size, 1, &(struct s2_image){.width = width, .height = height, .stride = stride, .rgb = rgb});
    free(rgb);
}

/* side: of a device, in whose own memory the plane is to lie; -1: on the heap */
static uint8_t *noise_plane(int side, int width, int height, size_t stride)
{
    const size_t bytes = stride * (size_t)(height - 1) + (size_t)width;
    uint8_t *plane = side < 0 ? malloc(bytes) : kc.be[side]->ops->alloc_host(kc.be[side], bytes);
    if (!plane) exit(7);
    for (size_t i = 0; i < bytes; i++) {
        const int v = kc_below(1024);
        plane[i] = (uint8_t)(v < 896 ? v : v & 1 ? 255 : 0); /* some far outside of RGB */
    }
    return plane;
}

static void free_plane(int side, uint8_t *plane)
{
    if (side < 0)
        free(plane);
    else
        kc.be[side]->ops->free_host(kc.be[side], plane);
}

/* Chroma in planes of its own (step 1) or in one (2), at (cx, cy) halves of a pixel. */
static void preprocess_planes(int width, int height, int size, int step, int cx, int cy, size_t gap)
{
    kc_begin("%dx%d -> %d, planes, chroma step %d at %d,%d, %zu bytes between rows", width, height, size, step, cx, cy,
             gap);
    struct s2_yuv p = {.y_stride = (size_t)width + gap,
                       .chroma_stride = (size_t)(step * width / 2) + gap,
                       .chroma_step = step,
                       .chroma_x = cx,
                       .chroma_y = cy,
                       .black = cx ? 16 * 512 : 0, /* BT.709 in limited range, BT.2020 in full */
                       .gain = cx ? 9539 : 8192,
                       .v_to_r = cx ? 14686 : 12080,
                       .v_to_g = cx ? -4366 : -4681,
                       .u_to_g = cx ? -1747 : -1348,
                       .u_to_b = cx ? 17304 : 15413};
    int side = -1; /* the device reaches pictures of every second width */
    KC_EACH(s) if (width / 2 % 2 && kc_reachable(s)) side = s;
    uint8_t *luma = noise_plane(side, width, height, p.y_stride);
    uint8_t *u = noise_plane(side, step * width / 2, height / 2, p.chroma_stride);
    uint8_t *v = noise_plane(side, step * width / 2, height / 2, p.chroma_stride);
    p.y = luma, p.u = u, p.v = step == 2 ? u + 1 : v;
    const struct s2_image planes = {.width = width, .height = height, .yuv = &p};
    preprocess_images(size, 1, &planes);
    kc_begin("%dx%d -> %d, planes, then the luma three times as RGB", width, height, size);
    uint8_t *grey = noise_plane(side, 3 * width, height, 3 * (size_t)width);
    preprocess_images(
        size, 2,
        (struct s2_image[]){planes, {.width = width, .height = height, .stride = 3 * (size_t)width, .rgb = grey}});
    free_plane(side, grey);
    free_plane(side, luma);
    free_plane(side, u);
    free_plane(side, v);
}

void check_preprocess(void)
{
    preprocess(1, 1, 64, NOISE, 0);
    preprocess(37, 41, 64, NOISE, 5);
    preprocess(37, 41, 32, EDGES, 0);
    preprocess(3, 5000, 64, NOISE, 0);
    preprocess(5000, 3, 64, EDGES, 1);
    preprocess(13, 1400, 64, EDGES, 0); /* vertical pass first */
    preprocess(2, 201, 64, NOISE, 3);
    preprocess(2, 200, 64, NOISE, 0);
    preprocess(1, 101, 128, NOISE, 0); /* tall, but it grows */
    preprocess(64, 64, 64, NOISE, 0);
    preprocess(64, 301, 64, EDGES, 0);
    preprocess(301, 64, 64, EDGES, 7);
    preprocess(256, 256, 64, EDGES, 0);
    preprocess(129, 127, 128, WHITE, 0);
    preprocess_planes(2, 2, 64, 1, 0, 1, 0);
    preprocess_planes(6, 4, 64, 2, 1, 0, 3);
    preprocess_planes(8, 202, 64, 1, 1, 2, 1);
    preprocess_planes(64, 64, 64, 1, 0, 1, 0); /* the pixels themselves */
    preprocess_planes(64, 64, 64, 2, 1, 1, 5);
    preprocess_planes(38, 42, 32, 2, 0, 1, 0);
    preprocess_planes(130, 46, 64, 1, 1, 0, 7);
    preprocess(130, 46, 64, NOISE, 0); /* and RGB after that */
    if (kc.quick) return;
    preprocess_planes(1920, 1080, 1024, 1, 0, 1, 32);
    preprocess_planes(1280, 720, 512, 2, 0, 1, 0);
    preprocess(1280, 720, 512, NOISE, 0);
    preprocess(333, 1001, 1024, EDGES, 0);
}

/* What the convolution gives before anything follows, and how far off a backend may be. */
static void conv_sums(struct kc_tensor x, struct s2_tensor y, const struct kc_conv *conv, double *value, double *error)
{
    const struct s2_conv *d = &conv->on[KC_ORACLE];
    const struct s2_tensor *v = &x.on[KC_ORACLE];
    const int fan = d->in / d->groups;
    for (int64_t i = 0; i < s2_elements(y); i++) {
        const int o = (int)(i % y.c), column = (int)(i / y.c % y.w), row = (int)(i / y.c / y.w % y.h);
        const int n = (int)(i / y.c / y.w / y.h);
        double sum = conv->b[o], size = fabs(sum);
        int taps = 0; /* fewer at the edges, where roundings even out less */
        for (int t = 0; t < d->k * d->k; t++) {
            const int ix = column * d->stride - d->pad + t % d->k, iy = row * d->stride - d->pad + t / d->k;
            if (ix < 0 || ix >= v->w || iy < 0 || iy >= v->h) continue;
            taps++;
            for (int c = 0; c < fan; c++) {
                const double w = conv->w[(o * fan + c) * d->k * d->k + t];
                const double term = w * kc_value(x, ((int64_t)n * v->h + iy) * v->w + ix, d->groups == 1 ? c : o);
                sum += term;
                size += fabs(term);
            }
        }
        value[i] = sum, error[i] = kc_dot_bound(fan * taps) * size;
    }
}

static void conv(int n, int h, int w, int in, int out, int k, int stride, int pad, int groups, enum s2_act act)
{
    kc_begin("%dx[%d,%d,%d] -> %d, %dx%d stride %d pad %d groups %d, activation %d", n, h, w, in, out, k, k, stride,
             pad, groups, act);
    struct kc_conv c = kc_conv(in, out, k, stride, pad, groups);
    struct kc_tensor x = kc_noise(n, h, w, in, 1);
    struct kc_tensor y = kc_poison(n, (h + 2 * pad - k) / stride + 1, (w + 2 * pad - k) / stride + 1, out);
    const int64_t cells = s2_elements(y.on[KC_ORACLE]);
    double *sum = kc_scratch((size_t)cells, sizeof *sum), *bound = kc_scratch((size_t)cells, sizeof *bound);
    conv_sums(x, y.on[KC_ORACLE], &c, sum, bound);
    for (int64_t i = 0; i < cells; i++) bound[i] = kc_act_pass_bound(sum[i], bound[i], act);
    KC_EACH(s) KC_RUN(s, conv, y.on[s], x.on[s], &c.on[s], act);
    kc_close(y, bound);
    kc_conv_free(&c);
    kc_end();
}

void check_conv(void)
{
    conv(1, 33, 29, 3, 24, 7, 4, 3, 1, S2_ACT_NONE);
    conv(1, 64, 64, 3, 96, 7, 4, 3, 1, S2_ACT_NONE);
    conv(1, 36, 40, 3, 112, 7, 4, 3, 1, S2_ACT_NONE);
    conv(2, 32, 32, 1, 4, 3, 2, 1, 1, S2_ACT_NONE);
    conv(1, 7, 5, 1, 4, 3, 2, 1, 1, S2_ACT_NONE);
    conv(3, 16, 16, 4, 16, 3, 2, 1, 1, S2_ACT_NONE);
    conv(2, 18, 14, 16, 64, 3, 2, 1, 1, S2_ACT_NONE);
    conv(1, 9, 11, 64, 256, 3, 2, 1, 1, S2_ACT_GELU);
    conv(2, 8, 8, 256, 256, 1, 1, 0, 1, S2_ACT_NONE);
    conv(1, 7, 9, 96, 32, 1, 1, 0, 1, S2_ACT_RELU);
    conv(1, 5, 3, 37, 21, 1, 1, 0, 1, S2_ACT_SIGMOID);
    conv(2, 16, 16, 1, 4, 2, 2, 0, 1, S2_ACT_NONE);
    conv(2, 8, 8, 4, 16, 2, 2, 0, 1, S2_ACT_NONE);
    conv(1, 32, 32, 1, 1, 4, 4, 0, 1, S2_ACT_NONE);
    conv(1, 9, 7, 256, 256, 7, 1, 3, 256, S2_ACT_NONE);
    conv(3, 16, 16, 19, 19, 7, 1, 3, 19, S2_ACT_NONE);
    conv(2, 2, 3, 8, 8, 7, 1, 3, 8, S2_ACT_GELU);
    conv(1, 1, 1, 8, 8, 3, 1, 1, 1, S2_ACT_NONE);
    conv(1, 1, 1, 64, 64, 7, 1, 3, 64, S2_ACT_NONE);
    if (!kc.quick) conv(1, 128, 128, 16, 64, 3, 2, 1, 1, S2_ACT_NONE);
}

/* The convolution's result may be rounded before the positions are added. */
static void patch_embed(int n, int h, int w, int in, int out, int k, int stride, int pad)
{
    kc_begin("%d x [%d,%d,%d] -> %d, %dx%d stride %d pad %d", n, h, w, in, out, k, k, stride, pad);
    struct kc_conv c = kc_conv(in, out, k, stride, pad, 1);
    const int H = (h + 2 * pad - k) / stride + 1, W = (w + 2 * pad - k) / stride + 1;
    struct kc_tensor x = kc_noise(n, h, w, in, 1), pos = kc_noise(1, H, W, out, 1), y = kc_poison(n, H, W, out);
    const int cells = n * H * W * out;
    double *sum = kc_scratch((size_t)cells, sizeof *sum), *bound = kc_scratch((size_t)cells, sizeof *bound);
    conv_sums(x, y.on[KC_ORACLE], &c, sum, bound);
    for (int i = 0; i < cells; i++) bound[i] += kc_store_bound(sum[i]);
    KC_EACH(s) KC_RUN(s, patch_embed, y.on[s], x.on[s], &c.on[s], pos.on[s]);
    kc_close(y, bound);
    kc_conv_free(&c);
    kc_end();
}

void check_patch_embed(void)
{
    patch_embed(1, 4, 4, 3, 96, 7, 4, 3);
    patch_embed(1, 64, 64, 3, 96, 7, 4, 3);
    patch_embed(1, 64, 128, 3, 112, 7, 4, 3);
    patch_embed(1, 72, 60, 3, 144, 7, 4, 3);
    patch_embed(1, 132, 68, 3, 96, 7, 4, 3);
    patch_embed(2, 72, 60, 3, 112, 7, 4, 3);
    patch_embed(2, 36, 20, 3, 96, 7, 4, 3);
    patch_embed(3, 64, 64, 3, 144, 7, 4, 3);
    patch_embed(2, 33, 29, 3, 24, 7, 4, 3);
    patch_embed(1, 64, 64, 3, 48, 7, 4, 3);
    patch_embed(1, 33, 29, 3, 24, 7, 4, 3);
    patch_embed(1, 20, 20, 5, 16, 3, 2, 1);
}

/* The convolution's result may be rounded before its norm. z, the normed values, move by the errors of all channels. */
static void conv_norm(int n, int h, int w, int in, int out, int k, int stride, int pad, enum s2_act act)
{
    kc_begin("%dx[%d,%d,%d] -> %d, %dx%d stride %d pad %d, activation %d", n, h, w, in, out, k, k, stride, pad, act);
    struct kc_conv c = kc_conv(in, out, k, stride, pad, 1);
    struct kc_norm norm = kc_norm(out, 1e-6f);
    struct kc_tensor x = kc_noise(n, h, w, in, 1);
    struct kc_tensor y = kc_poison(n, (h + 2 * pad - k) / stride + 1, (w + 2 * pad - k) / stride + 1, out);
    const int64_t cells = s2_elements(y.on[KC_ORACLE]);
    double *sum = kc_scratch((size_t)cells, sizeof *sum), *error = kc_scratch((size_t)cells, sizeof *error);
    double *bound = kc_scratch((size_t)cells, sizeof *bound);
    conv_sums(x, y.on[KC_ORACLE], &c, sum, error);
    for (int64_t first = 0; first < cells; first += out) {
        const double *v = sum + first;
        double *e = error + first, mean = 0, size = 0, square = 0, shift = 0, stretch = 0;
        for (int i = 0; i < out; i++) e[i] += kc_store_bound(v[i]), mean += v[i] / out, size += fabs(v[i]) / out;
        for (int i = 0; i < out; i++) square += (v[i] - mean) * (v[i] - mean) / out;
        const double scale = 1 / sqrt(square + 1e-6);
        for (int i = 0; i < out; i++) shift += e[i] / out, stretch += fabs(v[i] - mean) * scale * e[i] / out;
        for (int i = 0; i < out; i++) {
            const double weight = fabs((double)norm.weight[i]), z = fabs(v[i] - mean) * scale;
            const double own = kc_sum_bound(out) * ((fabs(v[i]) + size) * scale * weight + fabs((double)norm.bias[i]));
            bound[first + i] = kc_act_bound(1.1 * weight * scale * (e[i] + shift + z * stretch) + own, act);
        }
    }
    KC_EACH(s) KC_RUN(s, conv_norm, y.on[s], x.on[s], &c.on[s], &norm.on[s], act);
    kc_close(y, bound);
    kc_conv_free(&c);
    kc_end();
}

void check_conv_norm(void)
{
    conv_norm(1, 64, 64, 1, 4, 3, 2, 1, S2_ACT_GELU);
    conv_norm(3, 18, 10, 1, 4, 3, 2, 1, S2_ACT_GELU);
    conv_norm(2, 32, 32, 4, 16, 3, 2, 1, S2_ACT_GELU);
    conv_norm(1, 9, 7, 4, 16, 3, 1, 1, S2_ACT_NONE);
    conv_norm(2, 16, 16, 16, 64, 3, 2, 1, S2_ACT_GELU);
    conv_norm(1, 8, 8, 64, 256, 3, 2, 1, S2_ACT_RELU);
    conv_norm(1, 12, 12, 4, 8, 3, 2, 1, S2_ACT_GELU);
}

static void max_pool2(int n, int h, int w, int c)
{
    kc_begin("%dx[%d,%d,%d]", n, h, w, c);
    struct kc_tensor x = kc_noise(n, h, w, c, 1), y = kc_poison(n, h / 2, w / 2, c);
    KC_EACH(s) KC_RUN(s, max_pool2, y.on[s], x.on[s]);
    kc_equal(y);
    kc_end();
}

void check_max_pool2(void)
{
    max_pool2(1, 2, 2, 1);
    max_pool2(1, 16, 12, 96);
    max_pool2(2, 6, 10, 37);
    max_pool2(3, 2, 8, 16);
}

static void upsample2_add(int n, int h, int w, int c)
{
    kc_begin("%dx[%d,%d,%d]", n, h, w, c);
    struct kc_tensor x = kc_noise(n, h, w, c, 1), y = kc_noise(n, 2 * h, 2 * w, c, 1);
    KC_EACH(s) KC_RUN(s, upsample2_add, y.on[s], x.on[s]);
    kc_equal(y);
    kc_end();
}

void check_upsample2_add(void)
{
    upsample2_add(1, 1, 1, 1);
    upsample2_add(1, 8, 8, 256);
    upsample2_add(2, 3, 5, 37);
}

/* video.c - cases of fill_holes, video_masks, memory_mask: logit maps in, masks out */
#include "kcheck.h"

#include <math.h>

enum pattern {
    NOISE,
    SPARSE,
    DENSE,
    STEPS,
    CHECKER,
    COMB,
    RINGS,
    ALL_ZERO,
    ALL_HOLE,
    ALL_MASK,
    ONE_HOLE,
    ONE_PIXEL,
    PATTERNS
};

static const char *const names[PATTERNS] = {"noise",        "sparse holes", "dense holes", "small integers",
                                            "checkerboard", "comb",         "rings",       "zeros",
                                            "nothing",      "everything",   "one hole",    "one pixel"};

static float pattern_value(enum pattern kind, int x, int y, int w, int h)
{
    const double u = kc_uniform();
    const int ring = x < y ? (x < h - 1 - y ? x : h - 1 - y) : (y < w - 1 - x ? y : w - 1 - x);
    const bool middle = x == w / 2 && y == h / 2;
    switch (kind) {
    case NOISE: return (float)(5 * u);
    case SPARSE: return (float)(u + 0.8);
    case DENSE: return (float)(u - 0.3);
    case STEPS: return (float)lrint(1.4 * u);
    case CHECKER: return (x + y) % 2 ? 3 : -3;
    case COMB: return x % 2 || y == h - 1 ? -1.5f : 2;
    case RINGS: return ring % 3 ? 1 : -1;
    case ALL_ZERO: return 0;
    case ALL_HOLE: return -1024;
    case ALL_MASK: return 7;
    case ONE_HOLE: return middle ? -1 : 1;
    case ONE_PIXEL: return middle ? 1 : -1;
    case PATTERNS: break;
    }
    return 0;
}

static struct kc_tensor map_of(enum pattern kind, int n, int h, int w)
{
    float *v = kc_scratch((size_t)n * (size_t)h * (size_t)w, sizeof *v);
    for (int i = 0; i < n * h * w; i++) v[i] = pattern_value(kind, i % w, i / w % h, w, h);
    return kc_f32_of(v, n, h, w, 1);
}

static void fill_holes(enum pattern kind, int n, int h, int w, int area, bool in_place)
{
    kc_begin("%s, %dx[%d,%d], area %d%s", names[kind], n, h, w, area, in_place ? ", in place" : "");
    struct kc_tensor x = map_of(kind, n, h, w), y = in_place ? x : kc_poison_f32(n, h, w, 1);
    KC_EACH(s) KC_RUN(s, fill_holes, y.on[s], x.on[s], area);
    kc_equal(y);
    kc_end();
}

void check_fill_holes(void)
{
    for (int kind = 0; kind < PATTERNS; kind++) {
        fill_holes(kind, 1, 32, 32, 8, false);
        fill_holes(kind, 3, 37, 41, 8, true);
        fill_holes(kind, 1, 37, 41, 0, false);
        fill_holes(kind, 1, 41, 37, 1, true);
        fill_holes(kind, 2, 16, 48, 1000000, false);
        fill_holes(kind, 1, 1, 37, 3, false);
        fill_holes(kind, 1, 37, 1, 3, false);
        fill_holes(kind, 1, 1, 1, 1, true);
        fill_holes(kind, 4, 128, 128, 8, true);
    }
    if (!kc.quick) fill_holes(DENSE, 1, 256, 256, 200, false);
}

struct video {
    enum pattern kind;
    int n, h, w, height, width;
    bool bits, owner, exclusive;
    int gap;     /* bytes behind a row of bits */
    int unasked; /* object whose bits are not wanted, or -1 */
};

/* Bytes behind the packed pixels of a row belong to nobody: they may be cleared or left. */
static void clear_gaps(const struct kc_buffer *bits, size_t row, size_t stride, int side)
{
    uint8_t *v = kc_at(bits, side);
    for (size_t i = 0; i < bits->on[side].bytes; i++) {
        if (i % stride >= row) v[i] = 0;
    }
}

static void video_masks(struct video v)
{
    kc_begin("%s, %dx[%d,%d] -> %dx%d,%s%s%s gap %d, without object %d", names[v.kind], v.n, v.h, v.w, v.width,
             v.height, v.bits ? " bits" : "", v.owner ? " owner" : "", v.exclusive ? " exclusive" : "", v.gap,
             v.unasked);
    const size_t row = ((size_t)v.width + 7) / 8, stride = row + (size_t)v.gap, area = (size_t)v.height * stride;
    struct kc_tensor low = map_of(v.kind, v.n, v.h, v.w);
    uint8_t *poison = kc_scratch((size_t)v.n * area, 1), **bits[KC_SIDES];
    for (size_t i = 0; i < (size_t)v.n * area; i++) poison[i] = 0xaa;
    struct kc_buffer *all = kc_buffer(poison, (size_t)v.n * area);
    struct kc_buffer *owner =
        kc_buffer(kc_random((size_t)v.width * (size_t)v.height, 1), (size_t)v.width * (size_t)v.height * 2);
    KC_EACH(s)
    {
        bits[s] = kc_scratch((size_t)v.n, sizeof **bits);
        for (int i = 0; i < v.n; i++) bits[s][i] = i == v.unasked ? NULL : (uint8_t *)kc_at(all, s) + (size_t)i * area;
        const struct s2_video_masks out = {
            v.width, v.height, stride, v.exclusive, v.bits ? bits[s] : NULL, v.owner ? kc_at(owner, s) : NULL};
        KC_RUN(s, video_masks, &out, low.on[s]);
        clear_gaps(all, row, stride, s);
    }
    kc_equal_bytes(all);
    kc_equal_bytes(owner);
    kc_end();
}

void check_video_masks(void)
{
    static const int sizes[][2] = {{1, 1},   {37, 41},  {41, 37}, {64, 64},  {3, 500},
                                   {500, 3}, {128, 96}, {8, 9},   {257, 130}};
    for (int kind = 0; kind < PATTERNS; kind++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const int h = sizes[i][0], w = sizes[i][1];
            video_masks((struct video){kind, 1, 64, 64, h, w, true, false, false, 0, -1});
            video_masks((struct video){kind, 3, 32, 32, h, w, true, true, false, 3, 1});
            video_masks((struct video){kind, 4, 32, 32, h, w, true, true, true, 0, 2});
        }
    }
    video_masks((struct video){NOISE, 2, 16, 16, 45, 67, true, false, true, 1, -1});
    video_masks((struct video){NOISE, 2, 16, 16, 45, 67, false, true, false, 0, -1});
    video_masks((struct video){STEPS, 4, 16, 20, 31, 67, false, true, true, 0, -1});
    if (!kc.quick) video_masks((struct video){NOISE, 2, 256, 256, 720, 1280, true, true, false, 0, -1});
}

static void memory_mask(enum pattern kind, int n, int side, bool binarize)
{
    kc_begin("%s, %d x %d -> %d%s", names[kind], n, side, 4 * side, binarize ? ", binarize" : "");
    struct kc_tensor low = map_of(kind, n, side, side), y = kc_poison(n, 4 * side, 4 * side, 1);
    double *bound = kc_scratch((size_t)s2_elements(y.on[KC_ORACLE]), sizeof *bound), largest = 0;
    for (int i = 0; i < n * side * side; i++) largest = fmax(largest, fabs((double)kc_value(low, i, 0)));
    /* four taps of at most `largest`; far from 0 the sigmoid is flat: its slope is below exp(-|x|) */
    const double error = 8 * kc.eps * (largest > 16 ? 16 : largest);
    for (int64_t i = 0; i < s2_elements(y.on[KC_ORACLE]); i++) bound[i] = binarize ? 0 : 20 * (error / 4 + 8 * kc.eps);
    KC_EACH(s) KC_RUN(s, memory_mask, y.on[s], low.on[s], binarize);
    kc_close(y, bound);
    kc_end();
}

void check_memory_mask(void)
{
    for (int kind = 0; kind < PATTERNS; kind++) {
        for (int binarize = 0; binarize < 2; binarize++) {
            memory_mask(kind, 1, 16, binarize);
            memory_mask(kind, 3, 9, binarize);
            memory_mask(kind, 2, 1, binarize);
        }
    }
    if (!kc.quick) memory_mask(NOISE, 2, 128, false);
}

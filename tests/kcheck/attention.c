/* attention.c - cases of attention and window_attention */
#include "kcheck.h"

#include <math.h>

/* Channels channel .. channel+d-1 of `count` tokens in double. */
static double *head_of(struct kc_tensor t, int64_t first, int count, int channel, int d)
{
    double *v = kc_scratch((size_t)count * (size_t)d, sizeof *v);
    for (int i = 0; i < count; i++) {
        for (int c = 0; c < d; c++) v[i * d + c] = kc_value(t, first + i, channel + c);
    }
    return v;
}

/* q_scale: large values make the softmax one-hot. shared: q, k and v are columns of one tensor */
static void attention(int n, int queries, int keys, int heads, int d, double q_scale, bool shared)
{
    kc_begin("%d x %d queries, %d keys, %d heads of %d, query size %g%s", n, queries, keys, heads, d, q_scale,
             shared ? ", columns of one tensor" : "");
    const int c = heads * d;
    struct kc_tensor q, k, v, y = kc_poison(n, 1, queries, c);
    if (shared) {
        const struct kc_tensor all = kc_noise(n, 1, keys, 3 * c + 5, q_scale);
        q = kc_columns(all, 0, c), k = kc_columns(all, c, c), v = kc_columns(all, 2 * c + 5, c);
    } else {
        q = kc_noise(n, 1, queries, c, q_scale), k = kc_noise(n, 1, keys, c, 1), v = kc_noise(n, 1, keys, c, 1);
    }
    double *bound = kc_scratch((size_t)n * (size_t)queries * (size_t)c, sizeof *bound);
    struct kc_attended seen = {.n = keys, .d = d, .dv = d, .scratch = kc_scratch((size_t)keys * 3, sizeof(double))};
    for (int i = 0; i < n * heads; i++) {
        const int image = i / heads, head = i % heads;
        const double *hq = head_of(q, (int64_t)image * queries, queries, head * d, d);
        seen.keys = head_of(k, (int64_t)image * keys, keys, head * d, d);
        seen.values = head_of(v, (int64_t)image * keys, keys, head * d, d);
        for (int r = 0; r < queries; r++) {
            kc_attention_bound(bound + ((size_t)image * (size_t)queries + (size_t)r) * (size_t)c + head * d, hq + r * d,
                               &seen);
        }
    }
    KC_EACH(s) KC_RUN(s, attention, y.on[s], q.on[s], k.on[s], v.on[s], heads);
    kc_close(y, bound);
    kc_end();
}

/* Each blocking with its last block full, nearly empty and absent; keys enough to be split. */
static void attention_of_gpus(void)
{
    attention(1, 1, 4096, 4, 16, 2, false);
    attention(4, 8, 4096, 8, 16, 2, false);
    attention(1, 64, 4096, 2, 32, 2, false);
    attention(2, 1024, 1, 4, 16, 1, false);
    attention(1, 1024, 7, 8, 16, 2, false);
    attention(1, 1024, 64, 2, 32, 1, false);
    attention(1, 129, 4096, 1, 72, 2, false);
    attention(2, 128, 1000, 2, 56, 2, false);
    attention(1, 1024, 1000, 2, 64, 2, false);
    attention(1, 1024, 257, 2, 80, 20, false);
    attention(1, 1024, 65, 3, 96, 2, false);
    attention(1, 200, 1000, 2, 96, 40, false);
    attention(3, 127, 127, 4, 96, 2, true);
    attention(1, 63, 1000, 1, 256, 2, false);
    attention(2, 200, 1000, 1, 256, 2, false);
    attention(1, 1024, 1024, 1, 256, 3, true);
    attention(1, 1, 257, 1, 256, 1, false);
}

void check_attention(void)
{
    attention(1, 1, 1, 1, 16, 1, false);
    attention(1, 8, 8, 8, 32, 1, false);
    attention(4, 9, 9, 8, 32, 3, false);
    attention(3, 8, 256, 8, 16, 2, false);
    attention(3, 256, 8, 8, 16, 2, false);
    attention(1, 257, 1, 8, 16, 1, false);
    attention(1, 7, 1031, 2, 96, 1, false);
    attention(2, 129, 65, 3, 56, 4, false);
    attention(1, 33, 130, 2, 72, 4, false);
    attention(1, 100, 100, 1, 256, 1, false);
    attention(2, 49, 49, 1, 256, 3, true);
    attention(1, 37, 37, 4, 96, 2, true);
    attention(1, 19, 77, 2, 32, 300, false);
    attention(1, 5, 300, 1, 256, 40, false);
    /* around the blocks of tensor cores: 64 or 128 queries, 16 to 128 keys, channels in sixteens */
    attention(2, 1, 63, 3, 16, 1, false);
    attention(1, 7, 64, 2, 32, 2, false);
    attention(1, 63, 65, 2, 56, 1, false);
    attention(1, 64, 127, 1, 64, 2, false);
    attention(1, 65, 128, 2, 72, 1, false);
    attention(1, 127, 129, 1, 80, 1, false);
    attention(1, 128, 63, 2, 96, 2, false);
    attention(1, 129, 64, 1, 256, 1, false);
    if (kc.quick) return;
    attention(1, 64, 2500, 2, 96, 2, false);
    attention(1, 1100, 1100, 1, 64, 2, true);
    attention(2, 200, 257, 1, 64, 1, false);
    attention(1, 65, 1000, 2, 32, 1, false);
    attention(1, 128, 257, 1, 80, 3, false);
    attention(2, 65, 129, 1, 256, 2, false);
    if (kc.gpu) attention_of_gpus();
}

/* The four queries of a pooling cell, or the one of a token: the largest. */
static double query_value(struct kc_tensor qkv, int row, int column, int channel, bool pool)
{
    const int w = qkv.on[KC_ORACLE].w;
    if (!pool) return kc_value(qkv, (int64_t)row * w + column, channel);
    const int64_t corner = (int64_t)2 * row * w + 2 * column;
    return fmax(fmax(kc_value(qkv, corner, channel), kc_value(qkv, corner + 1, channel)),
                fmax(kc_value(qkv, corner + w, channel), kc_value(qkv, corner + w + 1, channel)));
}

/* The keys and values of one head of a window of the padded map: tokens of the map, then those behind its edges, all of
 * which are the bias. */
static struct kc_attended keys_of_window(struct kc_tensor qkv, const struct kc_linear *lin, int top, int left, int wh,
                                         int ww, int o, int channel, int d)
{
    const struct s2_tensor *t = &qkv.on[KC_ORACLE];
    const size_t n = (size_t)wh * (size_t)ww;
    double *k = kc_scratch(n * (size_t)d, sizeof *k), *v = kc_scratch(n * (size_t)d, sizeof *v);
    struct kc_attended seen = {.d = d, .dv = d, .keys = k, .values = v};
    for (int row = top; row < top + wh && row < t->h; row++) {
        for (int column = left; column < left + ww && column < t->w; column++, seen.n++) {
            const int64_t token = (int64_t)row * t->w + column;
            for (int c = 0; c < d; c++, k++, v++) {
                *k = kc_value(qkv, token, o + channel + c);
                *v = kc_value(qkv, token, 2 * o + channel + c);
            }
        }
    }
    for (seen.alike = wh * ww - seen.n; seen.n < wh * ww; seen.n++) {
        for (int c = 0; c < d; c++, k++, v++) *k = lin->b[o + channel + c], *v = lin->b[2 * o + channel + c];
    }
    seen.scratch = kc_scratch(n * 3, sizeof *seen.scratch);
    return seen;
}

/* Bounds of one head of the window whose top left token is (top, left). */
static void one_window_bound(double *bound, struct kc_tensor qkv, const struct kc_linear *lin, struct s2_tensor y,
                             int top, int left, int wh, int ww, int channel, int d, bool pool)
{
    const int cell = pool ? 2 : 1;
    double *q = kc_scratch((size_t)d, sizeof *q);
    const struct kc_attended seen = keys_of_window(qkv, lin, top, left, wh, ww, y.c, channel, d);
    for (int i = 0; i < wh * ww / cell / cell; i++) {
        const int row = top / cell + i / (ww / cell), column = left / cell + i % (ww / cell);
        if (row >= y.h || column >= y.w) continue;
        for (int c = 0; c < d; c++) q[c] = query_value(qkv, row, column, channel + c, pool);
        kc_attention_bound(bound + (size_t)(row * y.w + column) * (size_t)y.c + channel, q, &seen);
    }
}

/* n maps */
static void windows(int n, int h, int w, int heads, int d, int window, bool pool, double size)
{
    kc_begin("%d x [%d,%d] in windows of %d, %d heads of %d, size %g%s", n, h, w, window, heads, d, size,
             pool ? ", pooled" : "");
    const int o = heads * d;
    struct kc_linear lin = kc_linear(5, 3 * o); /* only its bias counts */
    struct kc_tensor qkv = kc_noise(n, h, w, 3 * o, size), y = kc_poison(n, pool ? h / 2 : h, pool ? w / 2 : w, o);
    double *bound = kc_scratch((size_t)s2_elements(y.on[KC_ORACLE]), sizeof *bound);
    const int wh = window ? window : h, ww = window ? window : w;
    for (int i = 0; i < n; i++) {
        const struct s2_tensor to = s2_batch(y.on[KC_ORACLE], i, 1);
        const struct kc_tensor from = kc_batch(qkv, i, 1);
        for (int top = 0; top < h; top += wh)
            for (int left = 0; left < w; left += ww)
                for (int c = 0; c < o; c += d)
                    one_window_bound(bound + i * s2_elements(to), from, &lin, to, top, left, wh, ww, c, d, pool);
    }
    KC_EACH(s) KC_RUN(s, window_attention, y.on[s], qkv.on[s], &lin.on[s], heads, window, pool);
    kc_close(y, bound);
    kc_linear_free(&lin);
    kc_end();
}

static void window_attention(int h, int w, int heads, int d, int window, bool pool, double size)
{
    windows(1, h, w, heads, d, window, pool, size);
}

static void window_attention_of_gpus(void)
{
    static const int channels[] = {16, 32, 56, 64, 72, 80, 96};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        const int d = channels[i];
        window_attention(26, 18, 3, d, 8, false, 2);
        window_attention(18, 26, 2, d, 8, true, 2);
        window_attention(16, 30, 3, d, 14, false, 1);
        window_attention(30, 16, 2, d, 14, true, 1);
        window_attention(15, 29, 2, d, 14, false, 30);
        window_attention(20, 34, 2, d, 16, false, 2);
        window_attention(34, 18, 3, d, 16, true, 2);
        windows(2, 30, 18, 3, d, 8, false, 2);
        windows(2, 10, 6, 3, d, 4, false, 2);
        windows(2, 30, 16, 3, d, 14, false, 2);
        windows(2, 16, 34, 2, d, 16, true, 2);
    }
    windows(2, 20, 16, 2, 96, 0, false, 1);
    window_attention(64, 64, 2, 96, 8, false, 1);
    window_attention(32, 30, 2, 96, 0, true, 2);
}

void check_window_attention(void)
{
    window_attention(16, 16, 1, 96, 8, false, 1);
    window_attention(16, 24, 2, 96, 8, true, 2);
    window_attention(8, 12, 2, 96, 4, false, 2);
    window_attention(8, 8, 4, 96, 4, true, 1);
    window_attention(16, 18, 1, 96, 14, false, 2);
    window_attention(28, 14, 2, 32, 14, false, 1);
    window_attention(16, 16, 2, 56, 14, true, 1);
    window_attention(15, 9, 2, 56, 7, false, 3);
    window_attention(14, 7, 1, 56, 7, false, 1);
    window_attention(3, 2, 2, 96, 7, false, 1);
    window_attention(2, 2, 2, 96, 14, true, 1);
    window_attention(16, 20, 2, 72, 16, false, 1);
    window_attention(32, 16, 2, 72, 16, true, 1);
    window_attention(8, 8, 8, 72, 8, false, 1);
    window_attention(12, 10, 3, 32, 8, true, 3);
    window_attention(9, 11, 4, 96, 0, false, 2);
    window_attention(1, 1, 2, 56, 0, false, 1);
    window_attention(10, 10, 1, 72, 0, false, 40);
    /* edges of the map inside the last windows, to the right and below */
    window_attention(12, 20, 3, 64, 8, false, 1);
    window_attention(20, 12, 2, 80, 8, true, 1);
    window_attention(10, 30, 2, 16, 8, false, 2);
    window_attention(16, 18, 2, 56, 14, true, 2);
    window_attention(18, 17, 1, 80, 16, false, 1);
    window_attention(18, 20, 2, 32, 16, true, 1);
    if (kc.quick) return;
    window_attention(32, 32, 2, 96, 0, false, 2);
    window_attention(17, 15, 2, 72, 14, false, 2);
    windows(2, 18, 20, 2, 32, 8, false, 2);
    windows(3, 18, 20, 2, 56, 8, true, 2);
    windows(2, 9, 11, 2, 72, 0, false, 2);
    windows(2, 6, 10, 2, 96, 4, false, 2);
    if (kc.gpu) window_attention_of_gpus();
}

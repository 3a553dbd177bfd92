/* bench_ops.c - every operator at the shapes of SAM 2.1 tiny at 1024: G = 64, four objects in the decoder */
#include "kcheck.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define T       KC_TESTED
#define OBJECTS 4

static double bytes_of(struct kc_tensor t)
{
    return (double)s2_dtype_size(t.on[T].dtype) * (double)s2_elements(t.on[T]);
}

static void bench_preprocess(int width, int height, int size)
{
    const size_t stride = (size_t)width * 3;
    struct s2_image frame = {.width = width, .height = height, .stride = stride, .rgb = calloc((size_t)height, stride)};
    struct kc_tensor y = kc_poison(1, size, size, 3);
    for (size_t i = 0; frame.rgb && i < stride * (size_t)height; i++) frame.rgb[i] = (uint8_t)kc_below(256);
    if (frame.rgb) {
        if (kc.be[T]->ops->stage_images) KC_CALL(T, stage_images, 1, &frame);
        KC_BENCH("preprocess", 0, bytes_of(y) + (double)stride * height, KC_CALL(T, preprocess, y.on[T], &frame),
                 "%dx%d -> %d", width, height, size);
    }
    free(frame.rgb);
    kc_end();
}

static void bench_conv(int n, int side, int in, int out, int k, int stride, int pad, int groups)
{
    struct kc_conv c = kc_conv(in, out, k, stride, pad, groups);
    struct kc_tensor x = kc_noise(n, side, side, in, 1);
    struct kc_tensor y = kc_poison(n, (side + 2 * pad - k) / stride + 1, (side + 2 * pad - k) / stride + 1, out);
    const double flops = 2.0 * (double)s2_elements(y.on[T]) * k * k * in / groups;
    KC_BENCH("conv", flops, bytes_of(x) + bytes_of(y), KC_CALL(T, conv, y.on[T], x.on[T], &c.on[T], S2_ACT_NONE),
             "%dx%d^2 %d -> %d, %dx%d/%d%s", n, side, in, out, k, k, stride, groups > 1 ? " depthwise" : "");
    kc_conv_free(&c);
    kc_end();
}

static void bench_pool(int side, int c)
{
    struct kc_tensor x = kc_noise(1, side, side, c, 1), y = kc_poison(1, side / 2, side / 2, c);
    if (kc_bench_wants("max_pool2")) {
        KC_BENCH("max_pool2", 0, bytes_of(x) + bytes_of(y), KC_CALL(T, max_pool2, y.on[T], x.on[T]), "%d^2 x %d", side,
                 c);
    }
    if (kc_bench_wants("upsample2_add")) {
        KC_BENCH("upsample2_add", 0, 2 * bytes_of(x) + bytes_of(y), KC_CALL(T, upsample2_add, x.on[T], y.on[T]),
                 "%d^2 -> %d^2 x %d", side / 2, side, c);
    }
    kc_end();
}

static void bench_linear(int tokens, int in, int out, enum s2_act act, bool accumulate)
{
    struct kc_linear l = kc_linear(in, out);
    struct kc_tensor x = kc_noise(1, 1, tokens, in, 1), y = kc_noise(1, 1, tokens, out, 1);
    KC_BENCH("linear", 2.0 * tokens * in * out, bytes_of(x) + bytes_of(y) * (accumulate ? 2 : 1),
             KC_CALL(T, linear, y.on[T], x.on[T], &l.on[T], act, accumulate), "%d x %d -> %d%s", tokens, in, out,
             accumulate ? ", accumulate"
             : act      ? ", activation"
                        : "");
    kc_linear_free(&l);
    kc_end();
}

static void bench_mlp(int tokens, int c, int hidden, enum s2_act act)
{
    struct kc_linear fc1 = kc_linear(c, hidden), fc2 = kc_linear(hidden, c);
    struct kc_norm norm = kc_norm(c, 1e-6f);
    struct kc_tensor x = kc_noise(1, 1, tokens, c, 1), y = kc_noise(1, 1, tokens, c, 1);
    KC_BENCH("mlp", 4.0 * tokens * c * hidden, bytes_of(x) + 2 * bytes_of(y),
             KC_CALL(T, mlp, y.on[T], x.on[T], &norm.on[T], &fc1.on[T], act, &fc2.on[T]), "%d x %d -> %d -> %d, %s",
             tokens, c, hidden, c, act == S2_ACT_GELU ? "GELU" : "ReLU");
    kc_linear_free(&fc1);
    kc_linear_free(&fc2);
    kc_end();
}

static void bench_rows(int tokens, int c)
{
    struct kc_norm norm = kc_norm(c, 1e-6f);
    struct kc_tensor x = kc_noise(1, 1, tokens, c, 1), y = kc_noise(1, 1, tokens, c, 1),
                     z = kc_noise(1, 1, tokens, c, 1), wide = kc_noise_f32(1, 1, tokens, c, 1);
    const struct kc_buffer *table = kc_floats(kc_random((size_t)tokens * (size_t)c, 1), (size_t)tokens * (size_t)c);
    if (kc_bench_wants("layer_norm")) {
        KC_BENCH("layer_norm", 0, 2 * bytes_of(x), KC_CALL(T, layer_norm, y.on[T], x.on[T], &norm.on[T], S2_ACT_NONE),
                 "%d x %d", tokens, c);
    }
    if (kc_bench_wants("add")) {
        KC_BENCH("add", 0, 3 * bytes_of(x), KC_CALL(T, add, y.on[T], x.on[T], z.on[T], 0.1f), "%d x %d", tokens, c);
    }
    if (kc_bench_wants("rope")) {
        KC_BENCH("rope", 0, 3 * bytes_of(x), KC_CALL(T, rope, x.on[T], kc_at(table, T), c), "%d x %d", tokens, c);
    }
    if (kc_bench_wants("clamp")) {
        KC_BENCH("clamp", 0, bytes_of(wide) + bytes_of(y), KC_CALL(T, clamp, y.on[T], wide.on[T], -32, 32), "%d x %d",
                 tokens, c);
    }
    kc_end();
}

static void bench_attention(int n, int queries, int keys, int heads, int d)
{
    const int c = heads * d;
    struct kc_tensor q = kc_noise(n, 1, queries, c, 1), k = kc_noise(n, 1, keys, c, 1), v = kc_noise(n, 1, keys, c, 1);
    struct kc_tensor y = kc_poison(n, 1, queries, c);
    KC_BENCH("attention", 4.0 * n * queries * keys * c, bytes_of(q) + bytes_of(k) + bytes_of(v) + bytes_of(y),
             KC_CALL(T, attention, y.on[T], q.on[T], k.on[T], v.on[T], heads), "%d x %d queries, %d keys, %d x %d", n,
             queries, keys, heads, d);
    kc_end();
}

static void bench_window(int side, int heads, int d, int window, bool pool)
{
    const int o = heads * d, padded = window ? (side + window - 1) / window * window : side;
    const double keys = window ? window * window : side * side, queries = (double)padded * padded / (pool ? 4 : 1);
    struct kc_linear lin = kc_linear(1, 3 * o);
    struct kc_tensor qkv = kc_noise(1, side, side, 3 * o, 1),
                     y = kc_poison(1, pool ? side / 2 : side, pool ? side / 2 : side, o);
    KC_BENCH("window_attention", 4 * queries * keys * o, bytes_of(qkv) + bytes_of(y),
             KC_CALL(T, window_attention, y.on[T], qkv.on[T], &lin.on[T], heads, window, pool), "%d^2 in %d, %d x %d%s",
             side, window, heads, d, pool ? ", pooled" : "");
    kc_linear_free(&lin);
    kc_end();
}

static void bench_deconv(int n, int side, int in, int out, enum s2_act act)
{
    struct kc_linear lin = kc_linear(in, 4 * out);
    struct kc_tensor x = kc_noise(n, side, side, in, 1), y = kc_poison(n, 2 * side, 2 * side, out);
    struct kc_tensor skip = kc_noise(1, 2 * side, 2 * side, out, 1);
    KC_BENCH("deconv2", 8.0 * n * side * side * in * out, bytes_of(x) + bytes_of(y) + bytes_of(skip),
             KC_CALL(T, deconv2, y.on[T], x.on[T], &lin.on[T], skip.on[T], act), "%dx%d^2 %d -> %d", n, side, in, out);
    kc_linear_free(&lin);
    kc_end();
}

static void bench_decoder_masks(int n, int side)
{
    struct kc_tensor hyper = kc_noise(n, 1, 4, 32, 1), u = kc_noise(n, side, side, 32, 1),
                     masks = kc_noise_f32(n, 4, side * side, 1, 1);
    struct kc_tensor iou = kc_noise_f32(n, 1, 1, 4, 1), score = kc_noise_f32(n, 1, 1, 1, 1),
                     tokens = kc_noise(n, 1, 4, 256, 1);
    struct kc_tensor low = kc_poison_f32(n, 1, side * side, 1), token = kc_poison(n, 1, 1, 256),
                     best = kc_poison_f32(n, 1, 1, 1);
    if (kc_bench_wants("mask_logits")) {
        KC_BENCH("mask_logits", 8.0 * n * side * side * 32, bytes_of(u) + bytes_of(masks),
                 KC_CALL(T, mask_logits, masks.on[T], hyper.on[T], u.on[T]), "%d x 4 x %d^2", n, side);
    }
    if (kc_bench_wants("choose")) {
        KC_BENCH("choose", 0, 2 * bytes_of(low),
                 KC_CALL(T, choose, low.on[T], token.on[T], best.on[T], masks.on[T], iou.on[T], score.on[T],
                         tokens.on[T], 0, false),
                 "%d x %d^2", n, side);
    }
    kc_end();
}

/* Smooth blobs, as masks are: a wave in x and y with some noise. */
static struct kc_tensor blobs(int n, int side)
{
    float *v = kc_scratch((size_t)(n * side * side), sizeof *v);
    for (int i = 0; i < n * side * side; i++) {
        v[i] = (float)(6 * sin(0.05 * (i % side)) * sin(0.07 * (i / side)) + 0.5 * kc_uniform());
    }
    return kc_f32_of(v, n, side, side, 1);
}

static void bench_masks(int n, int width, int height)
{
    const size_t stride = ((size_t)width + 7) / 8;
    struct kc_tensor low = blobs(n, 256), filled = kc_poison_f32(n, 256, 256, 1), mask = kc_poison(n, 1024, 1024, 1);
    const int32_t order[OBJECTS] = {0, 1, 2, 3};
    const struct kc_buffer *index = kc_buffer(order, sizeof order);
    uint8_t *bits[OBJECTS];
    for (int i = 0; i < n; i++) bits[i] = kc_scratch(stride, (size_t)height);
    uint16_t *owner = kc_scratch((size_t)width * (size_t)height, sizeof *owner);
    const struct s2_video_masks out = {width, height, stride, false, bits, n > 1 ? owner : NULL};
    if (kc_bench_wants("fill_holes")) {
        KC_BENCH("fill_holes", 0, 2 * bytes_of(low), KC_CALL(T, fill_holes, filled.on[T], low.on[T], 8), "%d x 256^2",
                 n);
    }
    if (kc_bench_wants("scatter")) {
        KC_BENCH("scatter", 0, 2 * bytes_of(low), KC_CALL(T, scatter, filled.on[T], low.on[T], kc_at(index, T)),
                 "%d x 256^2", n);
    }
    if (kc_bench_wants("video_masks")) {
        KC_BENCH("video_masks", 0, bytes_of(low) + (double)(n * height) * (double)stride,
                 KC_CALL(T, video_masks, &out, low.on[T]), "%d x 256^2 -> %dx%d%s", n, width, height,
                 n > 1 ? ", owner" : "");
    }
    if (kc_bench_wants("memory_mask")) {
        KC_BENCH("memory_mask", 0, bytes_of(low) + bytes_of(mask),
                 KC_CALL(T, memory_mask, mask.on[T], low.on[T], false), "%d x 256^2 -> 1024^2", n);
    }
    kc_end();
}

static void bench_small(int n)
{
    struct kc_tensor x = kc_noise(n, 1, 8, 256, 1), four = kc_poison(n, 1, 4, 256), two = kc_noise(n, 1, 2, 256, 1);
    struct kc_tensor six = kc_noise(1, 1, 6, 256, 1), map = kc_noise(n, 64, 64, 64, 1),
                     score = kc_noise_f32(n, 1, 1, 1, 1);
    const struct kc_buffer *points = kc_floats(kc_random((size_t)(n * 6), 1), (size_t)(n * 6));
    const struct kc_buffer *vec = kc_floats(kc_random(1280, 1), 1280);
    if (kc_bench_wants("take")) {
        KC_BENCH("take", 0, 2 * bytes_of(four), KC_CALL(T, take, four.on[T], x.on[T], 2), "%d x 4 of 8 x 256", n);
    }
    if (kc_bench_wants("concat")) {
        KC_BENCH("concat", 0, 2 * bytes_of(x), KC_CALL(T, concat, x.on[T], six.on[T], two.on[T]), "%d x (6 + 2) x 256",
                 n);
    }
    if (kc_bench_wants("point_tokens")) {
        KC_BENCH("point_tokens", 0, bytes_of(two),
                 KC_CALL(T, point_tokens, two.on[T], kc_at(points, T), kc_at(vec, T), kc_at(vec, T), 1024), "%d x 2",
                 n);
    }
    if (kc_bench_wants("where_absent")) {
        KC_BENCH("where_absent", 0, bytes_of(map),
                 KC_CALL(T, where_absent, map.on[T], score.on[T], kc_at(vec, T), false), "%d x 64^2 x 64", n);
    }
    kc_end();
}

static void bench_memory(int n, int memories, int pointers)
{
    enum { TOKENS = 4096, DIM = 64, CAP = 8, PTR_CAP = 16 };
    const int slots = n * CAP, ptr_slots = n * PTR_CAP;
    const size_t size = (size_t)slots * TOKENS * DIM;
    uint16_t *memory = kc_scratch(size, sizeof *memory);
    for (size_t i = 0; i < size; i++) memory[i] = s2_bf16((float)kc_uniform());
    int32_t counts[2 * OBJECTS], slot[OBJECTS * CAP], row[OBJECTS * CAP], ptr_slot[OBJECTS * PTR_CAP];
    for (int i = 0; i < n; i++) counts[2 * i] = memories, counts[2 * i + 1] = pointers;
    for (int i = 0; i < n * CAP; i++) slot[i] = i, row[i] = i % 7;
    for (int i = 0; i < n * PTR_CAP; i++) ptr_slot[i] = i;
    const float *dist = kc_random((size_t)ptr_slots, 1);
    const struct kc_buffer *spatial = kc_buffer(memory, size * 2);
    const struct kc_buffer *ptrs = kc_floats(kc_random((size_t)ptr_slots * 256, 1), (size_t)ptr_slots * 256);
    struct s2_bank bank = {TOKENS, DIM, slots, ptr_slots, 256, kc_at(spatial, T), kc_at(ptrs, T)};
    const struct kc_buffer *c = kc_buffer(counts, sizeof counts), *s = kc_buffer(slot, sizeof slot),
                           *r = kc_buffer(row, sizeof row);
    const struct kc_buffer *p = kc_buffer(ptr_slot, sizeof ptr_slot), *d = kc_floats(dist, (size_t)ptr_slots);
    struct s2_bank_table table = {CAP, PTR_CAP, kc_at(c, T), kc_at(s, T), kc_at(r, T), kc_at(p, T), kc_at(d, T)};
    struct kc_linear tproj = kc_linear(256, DIM), kproj = kc_linear(DIM, 256);
    const struct kc_buffer *pe = kc_floats(kc_random(TOKENS * DIM, 1), TOKENS * DIM),
                           *tpos = kc_floats(kc_random(7 * DIM, 1), 7 * DIM);
    const struct kc_buffer *turn = kc_floats(kc_random(TOKENS * 256, 1), TOKENS * 256);
    struct kc_tensor at = kc_noise_f32(n, 1, PTR_CAP, DIM, 1), q = kc_noise(n, 1, TOKENS, 256, 1),
                     y = kc_poison(n, 1, TOKENS, DIM);
    struct kc_tensor mem = kc_noise(n, 64, 64, DIM, 1), ptr = kc_noise_f32(n, 1, 1, 256, 1);
    if (kc_bench_wants("bank_store")) {
        KC_BENCH("bank_store", 0, bytes_of(mem) + 2.0 * (double)s2_elements(mem.on[T]),
                 KC_CALL(T, bank_store, &bank, kc_at(s, T), kc_at(p, T), mem.on[T], ptr.on[T]), "%d x 4096 x 64", n);
    }
    if (kc_bench_wants("pointer_positions")) {
        KC_BENCH("pointer_positions", 2.0 * n * pointers * 256 * DIM, bytes_of(at),
                 KC_CALL(T, pointer_positions, at.on[T], &table, &tproj.on[T]), "%d x %d", n, pointers);
    }
    if (kc_bench_wants("memory_attention")) {
        const double keys = (double)memories * TOKENS + 4.0 * pointers;
        KC_BENCH("memory_attention", 2.0 * n * keys * (TOKENS * (256.0 + DIM) + 256.0 * DIM),
                 n * keys * DIM * 2 + bytes_of(q) + bytes_of(y),
                 KC_CALL(T, memory_attention, y.on[T], q.on[T], &bank, &table, &kproj.on[T], kc_at(pe, T),
                         kc_at(tpos, T), at.on[T], kc_at(turn, T)),
                 "%d x 4096 queries, %.0f keys", n, keys);
    }
    kc_linear_free(&tproj);
    kc_linear_free(&kproj);
    kc_end();
}

static void bench_convs(void)
{
    bench_conv(1, 1024, 3, 96, 7, 4, 3, 1);
    bench_conv(1, 64, 384, 256, 1, 1, 0, 1);
    bench_conv(1, 256, 96, 32, 1, 1, 0, 1);
    bench_conv(1, 1024, 1, 4, 3, 2, 1, 1);
    bench_conv(1, 512, 4, 16, 3, 2, 1, 1);
    bench_conv(1, 256, 16, 64, 3, 2, 1, 1);
    bench_conv(1, 128, 64, 256, 3, 2, 1, 1);
    bench_conv(1, 64, 256, 256, 7, 1, 3, 256);
}

static void bench_linears(void)
{
    static const int shapes[][3] = {{65536, 96, 288},  {65536, 96, 576},  {16384, 192, 576},
                                    {4096, 384, 1152}, {1024, 768, 2304}, {65536, 96, 96},
                                    {4096, 384, 384},  {4096, 256, 256},  {8, 256, 256}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        bench_linear(shapes[i][0], shapes[i][1], shapes[i][2], S2_ACT_NONE, false);
    }
    bench_linear(4096, 384, 384, S2_ACT_NONE, true);
}

static void bench_mlps(void)
{
    static const int widths[] = {96, 112, 144}; /* of tiny, base_plus, large */
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        for (int i = 0; i < 4; i++) bench_mlp(65536 >> 2 * i, widths[w] << i, 4 * widths[w] << i, S2_ACT_GELU);
    }
    for (int i = 0; i < 4; i++) bench_mlp(16384 >> 2 * i, 96 << i, 384 << i, S2_ACT_GELU); /* at 512 */
    bench_mlp(4096, 256, 2048, S2_ACT_RELU);
    bench_mlp(1024, 256, 2048, S2_ACT_RELU);
    bench_mlp(4096, 256, 1024, S2_ACT_GELU);
    bench_mlp(8 * OBJECTS, 256, 2048, S2_ACT_RELU);
}

static void bench_attentions(void)
{
    bench_attention(1, 4096, 4096, 1, 256);
    bench_attention(OBJECTS, 8, 8, 8, 32);
    bench_attention(OBJECTS, 8, 4096, 8, 16);
    bench_attention(OBJECTS, 4096, 8, 8, 16);
}

static void bench_windows(void)
{
    bench_window(256, 1, 96, 8, false);
    bench_window(256, 2, 96, 8, true);
    bench_window(128, 2, 96, 4, false);
    bench_window(128, 4, 96, 4, true);
    bench_window(64, 4, 96, 14, false);
    bench_window(64, 4, 96, 0, false);
    bench_window(64, 8, 96, 14, true);
    bench_window(32, 8, 96, 7, false);
}

void bench_operators(void)
{
    kc_begin("bench");
    if (kc_bench_wants("preprocess")) bench_preprocess(1280, 720, 1024), bench_preprocess(1920, 1080, 1024);
    if (kc_bench_wants("conv")) bench_convs();
    bench_pool(256, 96);
    if (kc_bench_wants("linear")) bench_linears();
    if (kc_bench_wants("mlp")) bench_mlps();
    bench_rows(65536, 96);
    bench_rows(4096, 256);
    if (kc_bench_wants("attention")) bench_attentions();
    if (kc_bench_wants("window_attention")) bench_windows();
    bench_small(OBJECTS);
    if (kc_bench_wants("deconv2"))
        bench_deconv(OBJECTS, 64, 256, 64, S2_ACT_NONE), bench_deconv(OBJECTS, 128, 64, 32, S2_ACT_GELU);
    bench_decoder();
    bench_decoder_masks(OBJECTS, 256);
    bench_masks(1, 1280, 720);
    bench_masks(OBJECTS, 1920, 1080);
    if (kc_bench_wants("bank_store") || kc_bench_wants("pointer_positions") || kc_bench_wants("memory_attention")) {
        bench_memory(1, 1, 1);
        bench_memory(1, 7, 16);
    }
}

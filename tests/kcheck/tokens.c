/* tokens.c - cases of linear, layer_norm, mlp, add, rope, take, concat,
 * scatter */
#include "kcheck.h"

#include <math.h>

/* gap > 0: input and output are columns of wider tensors, first column gap */
static void linear(int n, int tokens, int in, int out, enum s2_act act, bool accumulate, int gap)
{
    kc_begin("%dx%d tokens, %d -> %d, activation %d%s, gap %d", n, tokens, in, out, act,
             accumulate ? ", accumulate" : "", gap);
    /* without a fused way the product is kept, then activated, then added */
    const bool kept = act == S2_ACT_GELU || act == S2_ACT_SIGMOID || accumulate;
    struct kc_linear l = kc_linear(in, out);
    struct kc_tensor x = kc_columns(kc_noise(n, 1, tokens, in + 2 * gap, 1), gap, in);
    struct kc_tensor y = accumulate ? kc_noise(n, 1, tokens, out + 2 * gap, 1) : kc_poison(n, 1, tokens, out + 2 * gap);
    y = kc_columns(y, gap, out);
    KC_EACH(s) KC_RUN(s, linear, y.on[s], x.on[s], &l.on[s], act, accumulate);
    double *bound = kc_product_bound(x, &l, act, kept);
    for (int64_t r = 0; accumulate && r < s2_tokens(x.on[KC_ORACLE]); r++) {
        for (int o = 0; o < out; o++) bound[r * out + o] += 2 * kc.eps * fabs((double)kc_value(y, r, o));
    }
    kc_close(y, bound);
    kc_linear_free(&l);
    kc_end();
}

/* To f32 whatever the backend, as scores and pointers are. */
static void linear_to_f32(int tokens, int in, int out, enum s2_act act)
{
    kc_begin("%d tokens, %d -> %d in float32, activation %d", tokens, in, out, act);
    struct kc_linear l = kc_linear(in, out);
    struct kc_tensor x = kc_noise(1, 1, tokens, in, 1), y = kc_poison_f32(1, 1, tokens, out);
    KC_EACH(s) KC_RUN(s, linear, y.on[s], x.on[s], &l.on[s], act, false);
    kc_close(y, kc_product_bound(x, &l, act, false));
    kc_linear_free(&l);
    kc_end();
}

void check_linear(void)
{
    for (int act = S2_ACT_NONE; act <= S2_ACT_SIGMOID; act++) {
        linear(1, 1, 1, 1, act, false, 0);
        linear(2, 19, 37, 21, act, false, 0);
        linear(2, 19, 37, 21, act, true, 3);
        linear(1, 70, 96, 288, act, false, 0);
    }
    linear(1, 1, 256, 4, S2_ACT_SIGMOID, false, 0);
    linear(4, 1, 256, 256, S2_ACT_RELU, false, 0);
    linear(3, 8, 256, 128, S2_ACT_NONE, false, 0);
    linear(1, 257, 112, 224, S2_ACT_NONE, true, 0);
    linear(1, 100, 64, 256, S2_ACT_NONE, false, 8);
    linear(1, 33, 576, 144, S2_ACT_NONE, true, 16);
    linear(1, 4, 1024, 31, S2_ACT_NONE, false, 1);
    linear(1, 65, 33, 65, S2_ACT_GELU, false, 0);
    if (kc.gpu) {
        linear(1, 77, 384, 1536, S2_ACT_GELU, false, 8);
        linear(1, 67, 448, 1792, S2_ACT_GELU, true, 0);
    }
    linear(1, 511, 17, 3, S2_ACT_NONE, false, 0);
    for (int act = S2_ACT_NONE; kc.act != S2_F32 && act <= S2_ACT_SIGMOID; act++) {
        linear_to_f32(3, 256, 4, act);
        linear_to_f32(4, 256, 256, act);
    }
    if (!kc.quick) linear(1, 1537, 200, 520, S2_ACT_GELU, false, 0);
}

/* offset: added to all values, which a variance taken as E x^2 - (E x)^2 does not survive */
static void layer_norm(int n, int tokens, int c, float eps, enum s2_act act, double offset, bool in_place)
{
    kc_begin("%dx%d tokens of %d, eps %g, activation %d, offset %g%s", n, tokens, c, (double)eps, act, offset,
             in_place ? ", in place" : "");
    const size_t count = (size_t)n * (size_t)tokens * (size_t)c;
    float *v = kc_random(count, 2);
    for (size_t i = 0; i < count; i++) v[i] += (float)offset;
    for (int i = 0; i < c; i++) v[i] = 3; /* one token without variance */
    struct kc_norm norm = kc_norm(c, eps);
    struct kc_tensor x = kc_tensor_of(v, n, 1, tokens, c), y = in_place ? x : kc_poison(n, 1, tokens, c);
    double *value = kc_scratch(count, sizeof *value), *bound = kc_scratch(count, sizeof *bound);
    kc_norm_bound(x, &norm, value, bound);
    for (size_t i = 0; i < count; i++) bound[i] = kc_act_bound(bound[i], act);
    KC_EACH(s) KC_RUN(s, layer_norm, y.on[s], x.on[s], &norm.on[s], act);
    kc_close(y, bound);
    kc_end();
}

void check_layer_norm(void)
{
    layer_norm(1, 1, 1, 1e-6f, S2_ACT_NONE, 0, false);
    layer_norm(2, 19, 37, 1e-5f, S2_ACT_NONE, 0, false);
    layer_norm(1, 65, 96, 1e-6f, S2_ACT_NONE, 0, true);
    layer_norm(1, 65, 112, 1e-6f, S2_ACT_NONE, 30, false);
    layer_norm(1, 33, 144, 1e-6f, S2_ACT_NONE, -3000, false);
    layer_norm(2, 300, 4, 1e-6f, S2_ACT_GELU, 0, true);
    layer_norm(2, 77, 16, 1e-6f, S2_ACT_GELU, 1, false);
    layer_norm(1, 50, 64, 1e-6f, S2_ACT_GELU, 0, false);
    layer_norm(1, 50, 256, 1e-6f, S2_ACT_RELU, 0, true);
    layer_norm(3, 8, 256, 1e-5f, S2_ACT_SIGMOID, 0, false);
    layer_norm(1, 7, 1152, 1e-6f, S2_ACT_NONE, 0, false);
}

/* Values as the norm gives them, rounded where a backend keeps them, and how far off they may be. */
static void normed(struct kc_tensor x, const struct kc_norm *norm, double *value, double *error)
{
    kc_norm_bound(x, norm, value, error);
    for (int64_t i = 0; i < s2_elements(x.on[KC_ORACLE]); i++) error[i] += kc_store_bound(value[i]);
}

/* How far off the layer's sum number o of a token may be, whose values are off by `error`, `spread` times what their
 * errors come to; *sum */
static double layer_bound(const struct kc_linear *l, int o, const double *value, const double *error, double spread,
                          double *sum)
{
    double terms = fabs((double)l->b[o]), given = 0;
    *sum = l->b[o];
    for (int i = 0; i < l->in; i++) {
        const double w = l->w[(size_t)o * (size_t)l->in + (size_t)i], v = value[i];
        *sum += w * v;
        terms += fabs(w * v);
        given += pow(w * error[i], 2);
    }
    return kc_dot_bound(l->in) * terms + spread * sqrt(given);
}

/* The normed values may be rounded; of millions of sums some are off by more than five deviations. */
static void norm_linear(int n, int tokens, int c, int out)
{
    kc_begin("%dx%d tokens, %d -> %d", n, tokens, c, out);
    struct kc_linear lin = kc_linear(c, out);
    struct kc_norm norm = kc_norm(c, 1e-6f);
    struct kc_tensor x = kc_noise(n, 1, tokens, c, 1), y = kc_poison(n, 1, tokens, out),
                     room = kc_poison(n, 1, tokens, c);
    const size_t rows = (size_t)n * (size_t)tokens, size = rows * (size_t)c;
    double *value = kc_scratch(size, sizeof *value), *error = kc_scratch(size, sizeof *error);
    double *bound = kc_scratch(rows * (size_t)out, sizeof *bound);
    normed(x, &norm, value, error);
    for (size_t r = 0; r < rows; r++) {
        for (int o = 0; o < out; o++) {
            double sum;
            bound[r * (size_t)out + (size_t)o] =
                layer_bound(&lin, o, value + r * (size_t)c, error + r * (size_t)c, 2.5, &sum);
        }
    }
    room.buffer->checked = true; /* whatever is left in it */
    KC_EACH(s) KC_RUN(s, norm_linear, y.on[s], x.on[s], &norm.on[s], &lin.on[s], room.on[s]);
    kc_close(y, bound);
    kc_linear_free(&lin);
    kc_end();
}

void check_norm_linear(void)
{
    norm_linear(1, 1, 96, 288);
    norm_linear(2, 19, 37, 51);
    norm_linear(1, 130, 112, 336);
    if (!kc.gpu) return;
    static const int widths[] = {96, 112, 144, 192, 224, 288, 384, 448, 576};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        norm_linear(1, 77, widths[i], 3 * widths[i]); /* one block */
        if (!kc.quick) norm_linear(2, 1027, widths[i], 3 * widths[i]);
    }
    /* more blocks than a device has multiprocessors */
    if (!kc.quick) norm_linear(1, 17101, 96, 288), norm_linear(1, 17101, 112, 336);
}

static double activated(double v, enum s2_act act)
{
    return act == S2_ACT_GELU ? v * 0.5 * erfc(-v / sqrt(2)) : act == S2_ACT_RELU ? fmax(v, 0) : v;
}

/* The perceptron's result may be rounded before it is added. */
static void mlp(int n, int tokens, int c, int hidden, enum s2_act act, bool with_norm, bool in_place)
{
    kc_begin("%dx%d tokens, %d -> %d -> %d, activation %d%s%s", n, tokens, c, hidden, c, act,
             with_norm ? ", with norm" : "", in_place ? ", in place" : "");
    struct kc_linear fc1 = kc_linear(c, hidden), fc2 = kc_linear(hidden, c);
    struct kc_norm norm = kc_norm(c, 1e-6f);
    struct kc_tensor x = kc_noise(n, 1, tokens, c, 1), y = in_place ? x : kc_noise(n, 1, tokens, c, 1);
    const size_t rows = (size_t)n * (size_t)tokens, size = rows * (size_t)c;
    double *value = kc_scratch(size, sizeof *value), *error = kc_scratch(size, sizeof *error);
    double *bound = kc_scratch(size, sizeof *bound), *inner = kc_scratch((size_t)hidden, sizeof *inner);
    double *size_of = kc_scratch((size_t)hidden, sizeof *size_of),
           *given_on = kc_scratch((size_t)hidden, sizeof *given_on);
    if (with_norm) normed(x, &norm, value, error);
    for (size_t i = 0; !with_norm && i < size; i++) value[i] = kc_value(x, (int64_t)i / c, (int)(i % (size_t)c));
    for (size_t r = 0; r < rows; r++) {
        for (int h = 0; h < hidden; h++) {
            double sum;
            const double off = layer_bound(&fc1, h, value + r * (size_t)c, error + r * (size_t)c, 2, &sum);
            size_of[h] = fabs(sum); /* at least |act(sum)| */
            given_on[h] = activated(sum, act);
            inner[h] = kc_act_pass_bound(sum, off, act) + kc_store_bound(sum);
        }
        for (int o = 0; o < c; o++) {
            double terms = fabs((double)fc2.b[o]) + fabs((double)kc_value(y, (int64_t)r, o)), given = 0, sum = fc2.b[o];
            for (int h = 0; h < hidden; h++) {
                const double w = fc2.w[(size_t)o * (size_t)hidden + (size_t)h];
                sum += w * given_on[h];
                terms += fabs(w) * size_of[h];
                given += pow(w * inner[h], 2);
            }
            bound[r * (size_t)c + (size_t)o] = kc_dot_bound(hidden) * terms + 2 * sqrt(given) + kc_store_bound(sum);
        }
    }
    KC_EACH(s) KC_RUN(s, mlp, y.on[s], x.on[s], with_norm ? &norm.on[s] : NULL, &fc1.on[s], act, &fc2.on[s]);
    kc_close(y, bound);
    kc_linear_free(&fc1);
    kc_linear_free(&fc2);
    kc_end();
}

void check_mlp(void)
{
    mlp(1, 1, 1, 1, S2_ACT_GELU, true, true);
    mlp(1, 67, 96, 384, S2_ACT_GELU, true, true);
    mlp(2, 19, 37, 51, S2_ACT_GELU, true, false);
    mlp(2, 19, 37, 51, S2_ACT_RELU, false, true);
    mlp(3, 8, 256, 2048, S2_ACT_RELU, false, false);
    mlp(1, 130, 112, 448, S2_ACT_GELU, true, true);
    mlp(1, 33, 256, 1024, S2_ACT_GELU, false, true);
    if (kc.gpu) {
        static const int widths[] = {96, 112, 256, 288, 384, 448, 576};
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            mlp(1, 77, widths[i], 4 * widths[i], S2_ACT_GELU, true, true);
            mlp(1, 193, widths[i], 4 * widths[i], i % 2 ? S2_ACT_RELU : S2_ACT_GELU, false, false);
        }
    }
    if (kc.gpu && !kc.quick) {
        /* so many tokens as make one kernel worthwhile */
        mlp(1, 2049, 256, 1024, S2_ACT_GELU, true, false);
        mlp(1, 8449, 144, 576, S2_ACT_GELU, true, true);
        mlp(1, 8449, 192, 768, S2_ACT_GELU, true, true);
        mlp(1, 8449, 224, 896, S2_ACT_RELU, false, false);
    }
    if (!kc.quick) mlp(1, 1025, 48, 192, S2_ACT_GELU, true, true);
}

enum alias { NONE, A, B };

static void add(int n, int h, int w, int c, int a_n, int b_n, bool one_token, enum alias alias, float scale)
{
    kc_begin("%dx[%d,%d,%d] + %g b, a.n %d, b.n %d%s, in place %d", n, h, w, c, (double)scale, a_n, b_n,
             one_token ? ", one token" : "", alias);
    struct kc_tensor a = kc_noise(a_n, h, w, c, 1), b = kc_noise(b_n, one_token ? 1 : h, one_token ? 1 : w, c, 1);
    struct kc_tensor y = alias == A ? a : alias == B ? b : kc_poison(n, h, w, c);
    const int64_t map = (int64_t)h * w;
    double *bound = kc_scratch((size_t)(n * map * c), sizeof *bound);
    for (int64_t i = 0; i < n * map; i++) {
        const int64_t image = i / map, token = i % map;
        for (int j = 0; j < c; j++) {
            const double va = kc_value(a, (a_n == 1 ? 0 : image * map) + token, j);
            const double vb = kc_value(b, one_token ? (b_n == 1 ? 0 : image) : (b_n == 1 ? 0 : image * map) + token, j);
            bound[i * c + j] = 2 * kc.eps * (fabs(va) + 2 * fabs((double)scale * vb));
        }
    }
    KC_EACH(s) KC_RUN(s, add, y.on[s], a.on[s], b.on[s], scale);
    kc_close(y, bound);
    kc_end();
}

void check_add(void)
{
    add(1, 1, 1, 1, 1, 1, false, NONE, 1);
    add(1, 16, 16, 256, 1, 1, false, NONE, 0.1f);
    add(1, 16, 16, 256, 1, 1, false, A, 1);
    add(3, 5, 7, 37, 3, 3, false, B, -0.5f);
    add(3, 5, 7, 37, 3, 1, false, A, 1);
    add(3, 5, 7, 37, 1, 3, false, NONE, 1);
    add(3, 5, 7, 37, 1, 3, false, B, 2);
    add(3, 5, 7, 37, 1, 1, false, NONE, 1);
    add(4, 3, 5, 64, 4, 1, true, A, 1);
    add(4, 3, 5, 64, 1, 1, true, NONE, 1);
    add(4, 3, 5, 64, 4, 4, true, NONE, 1);
    add(4, 3, 5, 19, 1, 4, true, NONE, 1);
    add(4, 1, 1, 19, 1, 4, true, NONE, 1);
    add(2, 1, 8, 256, 2, 2, false, A, 1);
}

static void rope(int n, int tokens, int width, int parts, int gap)
{
    kc_begin("%dx%d tokens of %d x %d, gap %d", n, tokens, parts, width, gap);
    const int c = parts * width;
    float *table = kc_scratch((size_t)tokens * (size_t)width, sizeof *table);
    for (int i = 0; i < tokens * width / 2; i++) {
        const double angle = 10 * kc_uniform();
        table[2 * i] = (float)cos(angle);
        table[2 * i + 1] = (float)sin(angle);
    }
    const struct kc_buffer *turn = kc_floats(table, (size_t)tokens * (size_t)width);
    struct kc_tensor x = kc_columns(kc_noise(n, 1, tokens, c + 2 * gap, 1), gap, c);
    double *bound = kc_scratch((size_t)n * (size_t)tokens * (size_t)c, sizeof *bound);
    for (int r = 0; r < n * tokens; r++) {
        for (int i = 0; i < c; i++) {
            bound[r * c + i] = 4 * kc.eps * (fabs((double)kc_value(x, r, i)) + fabs((double)kc_value(x, r, i ^ 1)));
        }
    }
    KC_EACH(s) KC_RUN(s, rope, x.on[s], kc_at(turn, s), width);
    kc_close(x, bound);
    kc_end();
}

void check_rope(void)
{
    rope(1, 1, 2, 1, 0);
    rope(1, 64, 256, 1, 0);
    rope(3, 49, 256, 2, 0);
    rope(2, 37, 256, 2, 256);
    rope(2, 5, 14, 1, 3);
    rope(2, 5, 6, 3, 0);
    rope(1, 9, 4, 6, 4);
}

static void take(int n, int tokens, int c, int first, int count)
{
    kc_begin("%dx%d tokens of %d, %d from %d", n, tokens, c, count, first);
    struct kc_tensor x = kc_noise(n, 1, tokens, c, 1), y = kc_poison(n, 1, count, c);
    KC_EACH(s) KC_RUN(s, take, y.on[s], x.on[s], first);
    kc_equal(y);
    kc_end();
}

void check_take(void)
{
    take(1, 1, 1, 0, 1);
    take(3, 9, 256, 2, 4);
    take(2, 9, 37, 8, 1);
    take(4, 5, 19, 0, 5);
}

static void concat(int n, int a_n, int a_tokens, int b_tokens, int c)
{
    kc_begin("%d x (%d of %d tokens + %d) of %d", n, a_n, a_tokens, b_tokens, c);
    struct kc_tensor a = kc_noise(a_n, 1, a_tokens, c, 1), y = kc_poison(n, 1, a_tokens + b_tokens, c);
    struct kc_tensor b = b_tokens ? kc_noise(n, 1, b_tokens, c, 1) : kc_none(n, 1, 0, c);
    KC_EACH(s) KC_RUN(s, concat, y.on[s], a.on[s], b.on[s]);
    kc_equal(y);
    kc_end();
}

void check_concat(void)
{
    concat(1, 1, 1, 1, 1);
    concat(4, 1, 6, 2, 256);
    concat(3, 3, 6, 5, 256);
    concat(3, 1, 6, 0, 256);
    concat(2, 2, 3, 0, 37);
}

/* index[b] < 0 is not written; every second entry of y stays as it was */
static void scatter(int n, int h, int w, int c, int rows)
{
    kc_begin("%d x [%d,%d,%d] to %d", n, h, w, c, rows);
    int32_t *index = kc_scratch((size_t)n, sizeof *index);
    for (int i = 0; i < n; i++) index[i] = i % 3 == 1 ? -1 : rows - 1 - 2 * i;
    const struct kc_buffer *at = kc_buffer(index, (size_t)n * sizeof *index);
    struct kc_tensor x = kc_noise_f32(n, h, w, c, 1), y = kc_noise_f32(rows, h, w, c, 1);
    KC_EACH(s) KC_RUN(s, scatter, y.on[s], x.on[s], kc_at(at, s));
    kc_equal(y);
    kc_end();
}

void check_scatter(void)
{
    scatter(1, 1, 1, 1, 1);
    scatter(4, 37, 41, 1, 9);
    scatter(3, 1, 1, 256, 6);
    scatter(2, 64, 64, 1, 4);
}

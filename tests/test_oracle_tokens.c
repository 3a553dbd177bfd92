/* test_oracle_tokens.c - the oracle backend against known answers: tokens, attention, memory. Attention is
 * compared with a direct evaluation of its definition on explicitly padded or concatenated arrays. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"

TestSuite(oracle_tokens, .timeout = 60);

static struct s2_backend *open_plain(void)
{
    struct s2_backend *be = s2_plain_open(NULL);
    cr_assert_not_null(be);
    return be;
}

static void close_plain(struct s2_backend *be)
{
    struct s2_err err = {0};
    cr_expect_eq(s2_backend_check(be, &err), S2_OK, "%s", err.text);
    be->ops->close(be);
}

static struct s2_tensor view(float *data, int n, int h, int w, int c)
{
    return (struct s2_tensor){data, S2_F32, n, h, w, c, c};
}

static void expect_floats(const char *what, const float *got, const double *want, int n, double tolerance)
{
    for (int i = 0; i < n; i++) {
        cr_expect(fabs((double)got[i] - want[i]) <= tolerance, "%s: element %d is %.9g, not %.9g", what, i,
                  (double)got[i], want[i]);
    }
}

/* A fixed sequence in [-1, 1). */
static uint32_t state;
static float next_float(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)(state & 0xffffff00u) / 2147483648.0f;
}
static void fill(float *v, int n)
{
    for (int i = 0; i < n; i++) v[i] = next_float();
}

/* softmax(q k^T / sqrt(d)) v by its definition; rows of d and dv doubles */
static void attend(double *y, const double *q, const double *k, const double *v, int keys, int d, int dv)
{
    double sum = 0;
    for (int c = 0; c < dv; c++) y[c] = 0;
    for (int j = 0; j < keys; j++) {
        double s = 0;
        for (int c = 0; c < d; c++) s += q[c] * k[j * d + c];
        const double e = exp(s / sqrt(d));
        sum += e;
        for (int c = 0; c < dv; c++) y[c] += e * v[j * dv + c];
    }
    for (int c = 0; c < dv; c++) y[c] /= sum;
}

/* ------------------------------------------------------------------ rows */

Test(oracle_tokens, linear_reads_and_writes_columns)
{
    struct s2_backend *be = open_plain();
    const float w[] = {1, 2, 3, -1, 0, 1}, b[] = {10, 0};
    struct s2_linear lin;
    be->ops->linear_create(be, &lin, w, b, 3, 2);
    float x[] = {7, 1, 2, 3, 7, 4, 5, 6}, y[] = {9, 9, 9, 9, 9, 9};
    const struct s2_tensor from = {x + 1, S2_F32, 1, 1, 2, 3, 4}, to = {y + 1, S2_F32, 1, 1, 2, 2, 3};
    be->ops->linear(be, to, from, &lin, S2_ACT_NONE, false);
    expect_floats("linear", y, (const double[]){9, 24, 2, 9, 42, 2}, 6, 0);
    be->ops->linear(be, to, from, &lin, S2_ACT_NONE, true);
    expect_floats("accumulated", y, (const double[]){9, 48, 4, 9, 84, 4}, 6, 0);
    be->ops->linear_destroy(be, &lin);
    close_plain(be);
}

Test(oracle_tokens, activations)
{
    struct s2_backend *be = open_plain();
    const float w[] = {1}, b[] = {0};
    struct s2_linear lin;
    be->ops->linear_create(be, &lin, w, b, 1, 1);
    float x[] = {-3, -1, 0, 0.5f, 2}, y[5];
    be->ops->linear(be, view(y, 1, 1, 5, 1), view(x, 1, 1, 5, 1), &lin, S2_ACT_GELU, false);
    /* x times the normal distribution function: Phi(-3) = 0.0013498980, Phi(1) = 0.8413447461 ... */
    const double gelu[] = {-0.00404969409, -0.15865525393, 0, 0.34573123063, 1.95449973610};
    expect_floats("GELU", y, gelu, 5, 2e-7);
    be->ops->linear(be, view(y, 1, 1, 5, 1), view(x, 1, 1, 5, 1), &lin, S2_ACT_SIGMOID, false);
    const double sigmoid[] = {0.04742587318, 0.26894142137, 0.5, 0.62245933120, 0.88079707798};
    expect_floats("sigmoid", y, sigmoid, 5, 1e-7);
    be->ops->linear_destroy(be, &lin);
    close_plain(be);
}

Test(oracle_tokens, layer_norm_has_the_biased_variance)
{
    struct s2_backend *be = open_plain();
    float weight[] = {1, 2, 1, 1}, bias[] = {0, 0, 0, 5};
    const struct s2_norm norm = {4, 0, weight, bias}, soft = {4, 3.75f, weight, bias};
    float x[] = {1, 2, 3, 4}, y[4];
    be->ops->layer_norm(be, view(y, 1, 1, 1, 4), view(x, 1, 1, 1, 4), &norm, S2_ACT_NONE);
    const double r = 1 / sqrt(1.25);
    expect_floats("norm", y, (const double[]){-1.5 * r, -r, 0.5 * r, 1.5 * r + 5}, 4, 1e-6);
    be->ops->layer_norm(be, view(x, 1, 1, 1, 4), view(x, 1, 1, 1, 4), &soft, S2_ACT_RELU);
    const double s = 1 / sqrt(5);
    expect_floats("eps inside the root, in place", x, (const double[]){0, 0, 0.5 * s, 1.5 * s + 5}, 4, 1e-6);
    close_plain(be);
}

Test(oracle_tokens, mlp_adds_to_its_output)
{
    struct s2_backend *be = open_plain();
    const float w1[] = {1, -1, 0, 2}, b1[] = {0, -3}, w2[] = {1, 1, 2, 0}, b2[] = {0.5f, 0};
    struct s2_linear fc1, fc2;
    be->ops->linear_create(be, &fc1, w1, b1, 2, 2);
    be->ops->linear_create(be, &fc2, w2, b2, 2, 2);
    float x[] = {5, 2, 1, 4};
    be->ops->mlp(be, view(x, 1, 1, 2, 2), view(x, 1, 1, 2, 2), NULL, &fc1, S2_ACT_RELU, &fc2);
    /* hidden: (3, 1) and (0, 5) */
    expect_floats("mlp", x, (const double[]){5 + 4.5, 2 + 6, 1 + 5.5, 4}, 4, 0);
    float weight[] = {2, 2}, bias[] = {1, 1}, y[] = {100, 200, 300, 400}, z[] = {-1, 1, 3, 1};
    const struct s2_norm norm = {2, 0, weight, bias};
    be->ops->mlp(be, view(y, 1, 1, 2, 2), view(z, 1, 1, 2, 2), &norm, &fc1, S2_ACT_RELU, &fc2);
    /* normalised: (-1, 3) and (3, -1); hidden: (0, 3) and (4, 0) */
    expect_floats("mlp of the norm", y, (const double[]){103.5, 200, 304.5, 408}, 4, 1e-5);
    be->ops->linear_destroy(be, &fc1);
    be->ops->linear_destroy(be, &fc2);
    close_plain(be);
}

Test(oracle_tokens, add_broadcasts)
{
    struct s2_backend *be = open_plain();
    float a[] = {1, 2}, b[] = {10, 20}, y[4];
    be->ops->add(be, view(y, 2, 1, 2, 1), view(a, 1, 1, 2, 1), view(b, 1, 1, 2, 1), 2);
    expect_floats("both over n", y, (const double[]){21, 42, 21, 42}, 4, 0);
    be->ops->add(be, view(y, 2, 1, 2, 1), view(y, 2, 1, 2, 1), view(b, 2, 1, 1, 1), -1);
    expect_floats("b over tokens", y, (const double[]){11, 32, 1, 22}, 4, 0);
    close_plain(be);
}

Test(oracle_tokens, take_concat_and_scatter)
{
    struct s2_backend *be = open_plain();
    float x[] = {1, 2, 3, 4, 5, 6}, two[] = {8, 9}, y[6];
    be->ops->take(be, view(y, 2, 1, 2, 1), view(x, 2, 1, 3, 1), 1);
    expect_floats("take", y, (const double[]){2, 3, 5, 6}, 4, 0);
    be->ops->concat(be, view(y, 2, 1, 3, 1), view(two, 1, 1, 2, 1), view(x, 2, 1, 1, 1));
    expect_floats("concat", y, (const double[]){8, 9, 1, 8, 9, 2}, 6, 0);
    be->ops->concat(be, view(y, 2, 1, 2, 1), view(two, 2, 1, 1, 1), view(x, 2, 1, 1, 1));
    expect_floats("concat, a of each", y, (const double[]){8, 1, 9, 2}, 4, 0);
    be->ops->concat(be, view(y, 3, 1, 2, 1), view(two, 1, 1, 2, 1), view(NULL, 3, 1, 0, 1));
    expect_floats("concat with nothing", y, (const double[]){8, 9, 8, 9, 8, 9}, 6, 0);
    const int32_t index[] = {-1, 2};
    float map[] = {0, 0, 0};
    be->ops->scatter(be, view(map, 3, 1, 1, 1), view(two, 2, 1, 1, 1), index);
    expect_floats("scatter", map, (const double[]){0, 0, 9}, 3, 0);
    close_plain(be);
}

Test(oracle_tokens, rope_turns_pairs_of_neighbours)
{
    struct s2_backend *be = open_plain();
    /* token 0: no turn, a quarter turn; token 1: half a turn, an eighth of one */
    const float h = (float)M_SQRT1_2, table[] = {1, 0, 0, 1, -1, 0, h, h};
    float x[2][2][6] = {{{1, 2, 3, 4, 7, 7}, {1, 2, 3, 4, 7, 7}}, {{5, 6, 7, 8, 7, 7}, {5, 6, 7, 8, 7, 7}}};
    struct s2_tensor t = {x, S2_F32, 2, 1, 2, 4, 6};
    be->ops->rope(be, t, table, 4);
    const double want[] = {1, 2, -4, 3, 7, 7, -1, -2, -h, 7 * h, 7, 7, 5, 6, -8, 7, 7, 7, -5, -6, -h, 15 * h, 7, 7};
    expect_floats("rope", &x[0][0][0], want, 24, 1e-6);
    float twice[] = {1, 2, 3, 4};
    const float quarter[] = {0, 1};
    be->ops->rope(be, view(twice, 1, 1, 1, 4), quarter, 2);
    expect_floats("rope of two parts", twice, (const double[]){-2, 1, -4, 3}, 4, 1e-6);
    close_plain(be);
}

/* ------------------------------------------------------------------ attention */

Test(oracle_tokens, attention_weighs_values)
{
    struct s2_backend *be = open_plain();
    /* two heads of one channel: the first sees scores 0 and ln 3, the second equal scores */
    float q[] = {1, 0}, k[] = {0, 5, (float)log(3), -5}, v[] = {8, 1, 4, 3}, y[2];
    be->ops->attention(be, view(y, 1, 1, 1, 2), view(q, 1, 1, 1, 2), view(k, 1, 1, 2, 2), view(v, 1, 1, 2, 2), 2);
    expect_floats("attention", y, (const double[]){0.25 * 8 + 0.75 * 4, 2}, 2, 1e-6);
    close_plain(be);
}

Test(oracle_tokens, attention_is_its_definition)
{
    enum { N = 2, TQ = 3, TK = 37, HEADS = 2, D = 8, C = HEADS * D };
    struct s2_backend *be = open_plain();
    static float q[N * TQ * C], kv[N * TK * 2 * C], y[N * TQ * C];
    state = 1;
    fill(q, N * TQ * C);
    fill(kv, N * TK * 2 * C);
    const struct s2_tensor both = view(kv, N, 1, TK, 2 * C);
    be->ops->attention(be, view(y, N, 1, TQ, C), view(q, N, 1, TQ, C), s2_columns(both, 0, C), s2_columns(both, C, C),
                       HEADS);
    for (int i = 0; i < N * TQ * HEADS; i++) {
        const int head = i % HEADS, row = i / HEADS, n = row / TQ;
        double one[D], k[TK * D], v[TK * D], want[D];
        for (int c = 0; c < D; c++) one[c] = q[row * C + head * D + c];
        for (int j = 0; j < TK * D; j++) {
            k[j] = kv[(n * TK + j / D) * 2 * C + head * D + j % D];
            v[j] = kv[(n * TK + j / D) * 2 * C + C + head * D + j % D];
        }
        attend(want, one, k, v, TK, D, D);
        expect_floats("attention", y + row * C + head * D, want, D, 1e-6);
    }
    close_plain(be);
}

/* The map is padded with the bias to whole windows, cut, attended to without a mask, and cropped. */
static void expect_windows(int h, int w, int window, bool pool)
{
    enum { HEADS = 2, D = 3, O = HEADS * D };
    struct s2_backend *be = open_plain();
    const int wh = window ? window : h, ww = window ? window : w;
    const int ph = (h + wh - 1) / wh * wh, pw = (w + ww - 1) / ww * ww, cell = pool ? 2 : 1, yw = w / cell;
    float *padded = malloc((size_t)(ph * pw * 3 * O) * sizeof *padded),
          *qkv = malloc((size_t)(h * w * 3 * O) * sizeof *qkv);
    float *y = malloc((size_t)(h * w * O) * sizeof *y), weight[3 * O] = {0}, bias[3 * O];
    cr_assert(padded && qkv && y);
    state = 7;
    fill(bias, 3 * O);
    for (int i = 0; i < ph * pw; i++) {
        float *token = padded + i * 3 * O;
        memcpy(token, bias, sizeof bias);
        if (i / pw >= h || i % pw >= w) continue;
        fill(token, 3 * O);
        memcpy(qkv + (i / pw * w + i % pw) * 3 * O, token, sizeof bias);
    }
    struct s2_linear lin;
    be->ops->linear_create(be, &lin, weight, bias, 1, 3 * O);
    be->ops->window_attention(be, view(y, 1, h / cell, yw, O), view(qkv, 1, h, w, 3 * O), &lin, HEADS, window, pool);
    double *k = malloc((size_t)(wh * ww * D) * sizeof *k), *v = malloc((size_t)(wh * ww * D) * sizeof *v);
    cr_assert(k && v);
    for (int i = 0; i < h / cell * yw * HEADS; i++) {
        const int head = i % HEADS, row = i / HEADS / yw, column = i / HEADS % yw;
        const int top = row * cell / wh * wh, left = column * cell / ww * ww;
        for (int j = 0; j < wh * ww * D; j++) {
            const float *token = padded + ((top + j / D / ww) * pw + left + j / D % ww) * 3 * O;
            k[j] = token[O + head * D + j % D];
            v[j] = token[2 * O + head * D + j % D];
        }
        double q[D], want[D];
        for (int c = 0; c < D; c++) {
            q[c] = -INFINITY;
            for (int p = 0; p < cell * cell; p++) {
                const int at = (row * cell + p / cell) * pw + column * cell + p % cell;
                q[c] = fmax(q[c], padded[at * 3 * O + head * D + c]);
            }
        }
        attend(want, q, k, v, wh * ww, D, D);
        expect_floats("window", y + (row * yw + column) * O + head * D, want, D, 1e-6);
    }
    free(padded), free(qkv), free(y), free(k), free(v);
    be->ops->linear_destroy(be, &lin);
    close_plain(be);
}

Test(oracle_tokens, windows_without_padding)
{
    expect_windows(8, 12, 4, false);
    expect_windows(8, 12, 4, true);
}

Test(oracle_tokens, padding_tokens_are_keys)
{
    expect_windows(5, 9, 7, false);
    expect_windows(6, 10, 4, true);
    expect_windows(2, 2, 14, true);
}

Test(oracle_tokens, window_zero_is_the_whole_map)
{
    expect_windows(3, 5, 0, false);
    expect_windows(4, 6, 0, true);
}

/* ------------------------------------------------------------------ memory */

Test(oracle_tokens, memories_are_stored_as_bf16)
{
    enum { TOKENS = 2, DIM = 64, SIZE = TOKENS * DIM };
    struct s2_backend *be = open_plain();
    uint16_t store[4 * SIZE] = {0}, *spatial = store + 2 * SIZE; /* so that a slot of -1 would show */
    float ptr_store[4 * 256] = {0}, *pointers = ptr_store + 2 * 256,
                        mem[2 * SIZE] = {1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -3.14159f}, ptr[2 * 256] = {0.1f};
    const struct s2_bank bank = {TOKENS, DIM, 2, 2, 256, spatial, pointers};
    const int32_t slot[] = {1, -1}, ptr_slot[] = {-1, 0};
    mem[SIZE] = 5;
    ptr[256] = 0.3f;
    be->ops->bank_store(be, &bank, slot, ptr_slot, view(mem, 2, 1, TOKENS, DIM), view(ptr, 2, 1, 1, 256));
    cr_expect_eq(spatial[0], 0);
    cr_expect_eq(spatial[SIZE], 0x3f80, "a tie rounds to even");
    cr_expect_eq(spatial[SIZE + 1], 0x3f82);
    cr_expect_eq(spatial[SIZE + 2], 0xc049);
    cr_expect_eq(pointers[0], 0.3f);
    cr_expect_eq(pointers[256], 0);
    cr_expect(store[SIZE] == 0 && ptr_store[256] == 0);
    close_plain(be);
}

Test(oracle_tokens, pointer_positions_repeat_each_frequency)
{
    struct s2_backend *be = open_plain();
    /* the projection picks channels: sine 0, 1, 2, 127 and cosine 0, 1, 2, 127 */
    static float w[64 * 256];
    static const int channel[8] = {0, 1, 2, 127, 128, 129, 130, 255};
    float b[64] = {0}, y[3 * 64];
    for (int i = 0; i < 8; i++) w[i * 256 + channel[i]] = 1;
    b[8] = 0.5f;
    struct s2_linear lin;
    be->ops->linear_create(be, &lin, w, b, 256, 64);
    const int32_t counts[] = {0, 2};
    const float dist[] = {0.2f, -3, NAN};
    const struct s2_bank_table table = {.ptr_cap = 3, .counts = counts, .ptr_dist = dist};
    be->ops->pointer_positions(be, view(y, 1, 1, 3, 64), &table, &lin);
    for (int j = 0; j < 2; j++) {
        const double p = dist[j], slow = pow(10000, -2.0 / 128), slowest = pow(10000, -126.0 / 128);
        const double want[9] = {
            sin(p), sin(p), sin(p * slow), sin(p * slowest), cos(p), cos(p), cos(p * slow), cos(p * slowest), 0.5};
        expect_floats("position", y + 64 * j, want, 9, 5e-7);
    }
    be->ops->pointer_positions(be, view(y, 1, 1, 3, 64), &table, NULL);
    for (int i = 0; i < 2 * 64; i++) cr_expect_eq(y[i], 0);
    be->ops->linear_destroy(be, &lin);
    close_plain(be);
}

/* Three entries: two memories and a pointer, two pointers alone, nothing. */
Test(oracle_tokens, memory_attention_is_its_definition)
{
    enum { N = 3, TOKENS = 4, DIM = 64, D = 256, SLOTS = 3, PTRS = 3, KEYS = 2 * TOKENS + 4 };
    struct s2_backend *be = open_plain();
    static uint16_t spatial[SLOTS * TOKENS * DIM];
    static float pointers[PTRS * D], w[D * DIM], b[D], pe[TOKENS * DIM], tpos[7 * DIM], turn[TOKENS * D];
    static float ptr_pos[N * 2 * DIM], q[N * TOKENS * D], y[N * TOKENS * DIM];
    state = 3;
    for (int i = 0; i < SLOTS * TOKENS * DIM; i++) spatial[i] = s2_bf16(next_float());
    fill(pointers, PTRS * D), fill(w, D * DIM), fill(b, D), fill(pe, TOKENS * DIM), fill(tpos, 7 * DIM);
    fill(ptr_pos, N * 2 * DIM), fill(q, N * TOKENS * D);
    for (int i = 0; i < TOKENS * D; i += 2) {
        const double angle = 3 * next_float();
        turn[i] = (float)cos(angle), turn[i + 1] = (float)sin(angle);
    }
    const int32_t counts[] = {2, 1, 0, 2, 0, 0}, slot[6] = {2, 0}, row[6] = {6, 1}, ptr_slot[6] = {1, 0, 2, 0};
    const struct s2_bank bank = {TOKENS, DIM, SLOTS, PTRS, D, spatial, pointers};
    const struct s2_bank_table table = {2, 2, counts, slot, row, ptr_slot, NULL};
    struct s2_linear kproj;
    be->ops->linear_create(be, &kproj, w, b, DIM, D);
    be->ops->memory_attention(be, view(y, N, 1, TOKENS, DIM), view(q, N, 1, TOKENS, D), &bank, &table, &kproj, pe, tpos,
                              view(ptr_pos, N, 1, 2, DIM), turn);
    for (int n = 0; n < N; n++) {
        static double k[KEYS * D], v[KEYS * DIM];
        const int of_maps = counts[2 * n] * TOKENS, keys = of_maps + 4 * counts[2 * n + 1];
        for (int i = 0; i < keys; i++) {
            double in[DIM], *key = k + i * D;
            for (int c = 0; c < DIM; c++) {
                const int map = n * 2 + i / TOKENS, token = i % TOKENS, j = (i - of_maps) / 4;
                if (i < of_maps) {
                    v[i * DIM + c] = s2_from_bf16(spatial[(slot[map] * TOKENS + token) * DIM + c]);
                    in[c] = v[i * DIM + c] + pe[token * DIM + c] + tpos[row[map] * DIM + c];
                } else {
                    v[i * DIM + c] = pointers[ptr_slot[n * 2 + j] * D + (i - of_maps) % 4 * DIM + c];
                    in[c] = v[i * DIM + c] + ptr_pos[(n * 2 + j) * DIM + c];
                }
            }
            for (int o = 0; o < D; o++) {
                key[o] = b[o];
                for (int c = 0; c < DIM; c++) key[o] += w[o * DIM + c] * in[c];
            }
            for (int o = 0; i < of_maps && o < D; o += 2) {
                const double re = key[o], im = key[o + 1], c = turn[i % TOKENS * D + o],
                             s = turn[i % TOKENS * D + o + 1];
                key[o] = re * c - im * s;
                key[o + 1] = re * s + im * c;
            }
        }
        for (int t = 0; t < TOKENS; t++) {
            double query[D], want[DIM];
            for (int c = 0; c < D; c++) query[c] = q[(n * TOKENS + t) * D + c];
            attend(want, query, k, v, keys, D, DIM);
            for (int c = 0; keys == 0 && c < DIM; c++) want[c] = 0;
            expect_floats("memory attention", y + (n * TOKENS + t) * DIM, want, DIM, 2e-6);
        }
    }
    be->ops->linear_destroy(be, &kproj);
    close_plain(be);
}

/* ------------------------------------------------------------------ failures */

Test(oracle_tokens, a_failure_stops_everything_behind_it)
{
    struct s2_backend *be = open_plain();
    float x[] = {1, 2}, y[] = {7, 7};
    s2_backend_fail(be, S2_E_DEVICE, "The first of %d failures.", 2);
    s2_backend_fail(be, S2_E_INTERNAL, "The second.");
    be->ops->clamp(be, view(y, 1, 1, 2, 1), view(x, 1, 1, 2, 1), 0, 1);
    cr_expect(y[0] == 7 && y[1] == 7);
    struct s2_err err = {0};
    cr_expect_eq(s2_backend_check(be, &err), S2_E_DEVICE);
    cr_expect_str_eq(err.text, "The first of 2 failures.");
    be->ops->close(be);
}

/* kern_rows.c - passes over rows of channels that do no product: norms, activations, sums, rotations. */
#include "kern.h"
#include "vec.h"

#include <math.h>

static inline vf apply(vf v, enum s2_act act)
{
    switch (act) {
    case S2_ACT_RELU: return v_max(v, v_set(0));
    case S2_ACT_GELU: return v_gelu(v);
    case S2_ACT_SIGMOID: return v_sigmoid(v);
    case S2_ACT_NONE: break;
    }
    return v;
}

/* A row of less than one vector, or the part behind the last whole one, is the head of a vector. */
static inline vf load_head(const float *p, int n)
{
    return n >= VW ? v_load(p) : v_load_part(p, (size_t)n);
}

static inline void store_head(float *p, vf v, int n)
{
    if (n >= VW)
        v_store(p, v);
    else
        v_store_part(p, v, (size_t)n);
}

static void norm_row(float *y, const float *x, const struct s2_norm *norm, enum s2_act act)
{
    const int c = norm->c;
    vf sum = {0}, square = {0};
    for (int j = 0; j < c; j += VW) sum += load_head(x + j, c - j);
    const float mean = v_sum(sum) / (float)c;
    int j = 0;
    for (; j + VW <= c; j += VW) {
        vf d = v_load(x + j) - mean;
        square += d * d;
    }
    float rest = 0;
    for (; j < c; j++) rest += (x[j] - mean) * (x[j] - mean);
    const float inverse = 1.0f / sqrtf((v_sum(square) + rest) / (float)c + norm->eps);
    for (j = 0; j < c; j += VW) {
        vf v = (load_head(x + j, c - j) - mean) * inverse;
        v = v * load_head(norm->weight + j, c - j) + load_head(norm->bias + j, c - j);
        store_head(y + j, apply(v, act), c - j);
    }
}

/* VW rows of fewer channels than a vector has lanes: lane i is row i. */
static void norm_narrow(float *y, const float *x, const struct s2_norm *norm, enum s2_act act)
{
    const int c = norm->c;
    vf v[VW], mean = {0}, square = {0};
    for (int j = 0; j < c; j++) {
        for (int i = 0; i < VW; i++) v[j][i] = x[i * c + j];
        mean += v[j];
    }
    mean /= (float)c;
    for (int j = 0; j < c; j++) square += (v[j] - mean) * (v[j] - mean);
    square = square / (float)c + norm->eps;
    vf inverse;
    for (int i = 0; i < VW; i++) inverse[i] = 1.0f / sqrtf(square[i]);
    for (int j = 0; j < c; j++) {
        v[j] = apply((v[j] - mean) * inverse * norm->weight[j] + norm->bias[j], act);
        for (int i = 0; i < VW; i++) y[i * c + j] = v[j][i];
    }
}

void K(cpu_layer_norm)(float *y, const float *x, const struct s2_norm *norm, size_t rows, enum s2_act act)
{
    const size_t c = (size_t)norm->c;
    if (c >= VW) {
        for (size_t i = 0; i < rows; i++, x += c, y += c) norm_row(y, x, norm, act);
        return;
    }
    for (; rows >= VW; rows -= VW, x += VW * c, y += VW * c) norm_narrow(y, x, norm, act);
    float last[VW * VW] = {0};
    memcpy(last, x, rows * c * sizeof *x);
    norm_narrow(last, last, norm, act);
    memcpy(y, last, rows * c * sizeof *y);
}

void K(cpu_activate)(float *x, size_t n, enum s2_act act)
{
    size_t i = 0;
    for (; i + VW <= n; i += VW) v_store(x + i, apply(v_load(x + i), act));
    if (i < n) v_store_part(x + i, apply(v_load_part(x + i, n - i), act), n - i);
}

void K(cpu_axpy)(float *y, const float *a, const float *b, float s, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = a[i] + s * b[i];
}

#if VW == 16
#define LANES(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#elif VW == 8
#define LANES(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)
#else
#define LANES(f) f(0), f(1), f(2), f(3)
#endif
#define EVEN(i)    ((i) & ~1)
#define ODD(i)     ((i) | 1)
#define PARTNER(i) ((i) ^ 1)
#define SIGN(i)    ((i)&1 ? 1.0f : -1.0f)

void K(cpu_rope)(float *x, const float *table, int c)
{
    const vf sign = {LANES(SIGN)};
    int i = 0;
    for (; i + VW <= c; i += VW) {
        const vf v = v_load(x + i), turn = v_load(table + i);
        const vf cosine = __builtin_shufflevector(turn, turn, LANES(EVEN));
        const vf sine = __builtin_shufflevector(turn, turn, LANES(ODD));
        const vf partner = __builtin_shufflevector(v, v, LANES(PARTNER));
        v_store(x + i, v * cosine + partner * (sine * sign));
    }
    for (; i < c; i += 2) {
        const float a = x[i], b = x[i + 1], cosine = table[i], sine = table[i + 1];
        x[i] = a * cosine - b * sine;
        x[i + 1] = a * sine + b * cosine;
    }
}

static inline float larger(float a, float b)
{
    return a > b ? a : b;
}

void K(cpu_max4)(float *y, const float *a, const float *b, const float *c, const float *d, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = larger(larger(a[i], b[i]), larger(c[i], d[i]));
}

void K(cpu_clamp)(float *y, const float *x, float lo, float hi, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i] > lo ? x[i] : lo;
        y[i] = v < hi ? v : hi;
    }
}

static inline float wide(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

void K(cpu_memory_token)(float *y, const uint16_t *mem, const float *pe, const float *tpos, int n)
{
    for (int i = 0; i < n; i++) y[i] = wide(mem[i]) + (pe[i] + tpos[i]);
}

void K(cpu_widen)(float *y, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = wide(x[i]);
}

void K(cpu_narrow)(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        y[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
    }
}

void K(cpu_sigmoid20)(float *y, size_t n)
{
    size_t i = 0;
    for (; i + VW <= n; i += VW) v_store(y + i, v_sigmoid(v_load(y + i)) * 20.0f - 10.0f);
    if (i < n) v_store_part(y + i, v_sigmoid(v_load_part(y + i, n - i)) * 20.0f - 10.0f, n - i);
}

/* Four outputs at a time share their inputs; n channels from c on, at most a vector. */
static void depthwise_lane(float *y, const float *x, const float *w, int width, int taps, int n, int c)
{
    enum { OUTPUTS = 4 };
    const int left = n - c;
    for (int i = 0; i < width; i += OUTPUTS) {
        const int outputs = width - i < OUTPUTS ? width - i : OUTPUTS;
        vf sum[OUTPUTS];
        for (int o = 0; o < outputs; o++) sum[o] = load_head(y + (i + o) * n + c, left);
        for (int t = 0; t < outputs + taps - 1; t++) {
            const vf v = load_head(x + (i + t) * n + c, left);
            for (int o = 0; o < outputs; o++)
                if (t >= o && t - o < taps) sum[o] += v * load_head(w + (t - o) * n + c, left);
        }
        for (int o = 0; o < outputs; o++) store_head(y + (i + o) * n + c, sum[o], left);
    }
}

/* The same for seven taps, a whole vector and a multiple of four outputs, with everything in registers. */
static void depthwise_seven(float *y, const float *x, const float *w, int width, int n)
{
    vf tap[7];
    UNROLL
    for (int t = 0; t < 7; t++) tap[t] = v_load(w + t * n);
    for (int i = 0; i < width; i += 4, y += 4 * n, x += 4 * n) {
        vf sum[4];
        UNROLL
        for (int o = 0; o < 4; o++) sum[o] = v_load(y + o * n);
        UNROLL
        for (int t = 0; t < 10; t++) {
            const vf v = v_load(x + t * n);
            UNROLL
            for (int o = 0; o < 4; o++)
                if (t >= o && t - o < 7) sum[o] += v * tap[t - o];
        }
        UNROLL
        for (int o = 0; o < 4; o++) v_store(y + o * n, sum[o]);
    }
}

void K(cpu_depthwise)(float *y, const float *x, const float *w, int width, int taps, int n)
{
    const int fast = taps == 7 ? width / 4 * 4 : 0;
    for (int c = 0; c < n; c += VW) {
        const int done = n - c >= VW ? fast : 0;
        if (done) depthwise_seven(y + c, x + c, w + c, done, n);
        depthwise_lane(y + done * n, x + done * n, w, width - done, taps, n, c);
    }
}

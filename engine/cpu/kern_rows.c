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

void K(cpu_layer_norm)(float *y, const float *x, const struct s2_norm *norm, size_t rows, enum s2_act act)
{
    for (size_t i = 0; i < rows; i++, x += norm->c, y += norm->c) norm_row(y, x, norm, act);
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

void K(cpu_rope)(float *x, const float *table, int c)
{
    for (int i = 0; i < c; i += 2) {
        float a = x[i], b = x[i + 1], cosine = table[i], sine = table[i + 1];
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

float K(cpu_dot)(const float *a, const float *b, int n)
{
    vf sum = {0};
    for (int i = 0; i < n; i += VW) sum += load_head(a + i, n - i) * load_head(b + i, n - i);
    return v_sum(sum);
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

void K(cpu_depthwise)(float *y, const float *x, const float *w, int width, int taps, int n)
{
    for (int i = 0; i < width; i++, x += n, y += n)
        for (int t = 0; t < taps; t++)
            for (int c = 0; c < n; c++) y[c] += x[t * n + c] * w[t * n + c];
}

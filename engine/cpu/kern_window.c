/* kern_window.c - Hiera's attention in one window and head, read from and written to the un-windowed map
 * (hieradet.py MultiScaleAttention).
 *
 * Scores are computed keys by queries, so that a vector holds the same key of neighbouring queries: softmax needs no
 * sum across lanes, and the keys are read where they lie. Padding tokens have one key and value in common, so they are
 * one key whose logit is raised by the logarithm of their number. */
#include "kern.h"
#include "vec.h"

#include <math.h>

static inline int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Memory of one window: queries in rows and packed, values in panels of channels, scores [keys][queries], outputs. */
struct memory {
    float *rows, *queries, *values, *s, *o;
    ptrdiff_t lds, ldo;
};

static struct memory memory_in(float *local, int keys, int d)
{
    int n = round_up(keys, PANEL), wide = round_up(d, PANEL);
    struct memory m = {.lds = n + VW, .ldo = wide + VW};
    m.rows = local;
    m.queries = m.rows + (ptrdiff_t)n * d;
    m.values = m.queries + (ptrdiff_t)n * d;
    m.s = m.values + (ptrdiff_t)n * wide;
    m.o = m.s + (ptrdiff_t)n * m.lds;
    return m;
}

size_t K(cpu_window_size)(int keys, int d)
{
    struct memory m = memory_in(NULL, keys, d);
    size_t n = (size_t)round_up(keys, PANEL);
    return n * (size_t)(2 * d + round_up(d, PANEL) + m.lds + m.ldo) * sizeof(float);
}

static inline float larger(float a, float b)
{
    return a > b ? a : b;
}

/* The queries times the scale, maxima of 2x2 with pool. Returns their number. */
static int put_queries(const struct cpu_window *p, float *dst)
{
    const float scale = 1.44269504f / sqrtf((float)p->d); /* weights are powers of two */
    const int step = p->pool ? 2 : 1;
    int n = 0;
    for (int y = 0; y < p->h; y += step)
        for (int x = 0; x < p->w; x += step, n++, dst += p->d) {
            const float *q = p->qkv + y * p->row + x * p->token;
            if (!p->pool) {
                for (int c = 0; c < p->d; c++) dst[c] = scale * q[c];
                continue;
            }
            const float *right = q + p->token, *down = q + p->row, *across = down + p->token;
            for (int c = 0; c < p->d; c++) dst[c] = scale * larger(larger(q[c], right[c]), larger(down[c], across[c]));
        }
    return n;
}

static void put_value(float *values, int n, int i, const float *v, int d)
{
    for (int c = 0; c < d; c += PANEL) {
        float *dst = values + (ptrdiff_t)c * n + i * PANEL;
        if (d - c >= PANEL) {
            v_store(dst, v_load(v + c));
            v_store(dst + VW, v_load(v + c + VW));
        } else {
            for (int j = 0; j < d - c; j++) dst[j] = v[c + j];
            for (int j = d - c; j < PANEL; j++) dst[j] = 0;
        }
    }
}

/* Scores [n][queries] become weights; inverse [queries] takes one over their sums. */
static void weigh(float *s, ptrdiff_t lds, int n, int queries, float *inverse)
{
    for (int q = 0; q < queries; q += VW) {
        vf top = v_load(s + q), total = {0};
        for (int i = 1; i < n; i++) top = v_max(top, v_load(s + i * lds + q));
        for (int i = 0; i < n; i++) {
            vf w = v_exp2(v_load(s + i * lds + q) - top);
            total += w;
            v_store(s + i * lds + q, w);
        }
        v_store(inverse + q, 1.0f / total);
    }
}

static void score(const struct cpu_window *p, const struct memory *m, const float *keys, int rows, int queries,
                  float *s)
{
    const struct cpu_product product = {.m = rows,
                                        .n = queries,
                                        .k = p->d,
                                        .a = keys,
                                        .lda = p->token,
                                        .b = m->queries,
                                        .panel_stride = (ptrdiff_t)p->d * PANEL,
                                        .c = s,
                                        .ldc = m->lds};
    K(cpu_product)(&product);
}

void K(cpu_window)(const struct cpu_window *p, void *local)
{
    const int n = p->h * p->w + (p->n_pad > 0);
    struct memory m = memory_in(local, n, p->d);
    const int queries = put_queries(p, m.rows), padded = round_up(queries, VW);
    K(cpu_pack)(m.queries, m.rows, p->d, queries, 1, p->d);
    for (int y = 0; y < p->h; y++) {
        const float *token = p->qkv + y * p->row;
        score(p, &m, token + p->o, p->w, padded, m.s + y * p->w * m.lds);
        for (int x = 0; x < p->w; x++) put_value(m.values, n, y * p->w + x, token + x * p->token + 2 * p->o, p->d);
    }
    if (p->n_pad > 0) {
        float *s = m.s + (n - 1) * m.lds, raise = log2f((float)p->n_pad);
        score(p, &m, p->pad + p->o, 1, padded, s);
        for (int i = 0; i < padded; i++) s[i] += raise;
        put_value(m.values, n, n - 1, p->pad + 2 * p->o, p->d);
    }
    float *inverse = m.rows; /* the rows are done with */
    weigh(m.s, m.lds, n, padded, inverse);
    const struct cpu_product outputs = {.m = queries,
                                        .n = round_up(p->d, VW),
                                        .k = n,
                                        .a = m.s,
                                        .lda = 1,
                                        .step = m.lds,
                                        .b = m.values,
                                        .panel_stride = (ptrdiff_t)n * PANEL,
                                        .c = m.o,
                                        .ldc = m.ldo};
    K(cpu_product)(&outputs);
    const int out_w = p->pool ? p->w / 2 : p->w;
    for (int i = 0; i < queries; i++) {
        float *y = p->y + i / out_w * p->y_row + i % out_w * p->y_token;
        for (int c = 0; c < p->d; c++) y[c] = m.o[i * m.ldo + c] * inverse[i];
    }
}

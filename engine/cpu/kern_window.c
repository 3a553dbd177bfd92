/* kern_window.c - Hiera's attention in one window and head, read from and written to the un-windowed map
 * (hieradet.py MultiScaleAttention). Padding tokens have one key and value in common, so they are one key
 * whose logit is raised by the logarithm of their number. */
#include "kern.h"
#include "vec.h"

#include <math.h>

static const float log2e = 1.44269504f;

static inline int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The packed keys and values, the queries and the scores of one window. */
struct memory {
    float *keys, *values, *q, *s, *o;
    ptrdiff_t ldq, lds, ldo;
};

static struct memory memory_in(float *local, int keys, int d)
{
    int n = round_up(keys, PANEL), wide = round_up(d, PANEL);
    struct memory m = {.ldq = round_up(d, VW) + VW, .lds = n + VW, .ldo = wide + VW};
    m.keys = local;
    m.values = m.keys + (ptrdiff_t)n * d;
    m.q = m.values + (ptrdiff_t)n * wide;
    m.s = m.q + (ptrdiff_t)n * m.ldq;
    m.o = m.s + (ptrdiff_t)n * m.lds;
    return m;
}

size_t K(cpu_window_size)(int keys, int d)
{
    struct memory m = memory_in(NULL, keys, d);
    size_t n = (size_t)round_up(keys, PANEL);
    return n * (size_t)(d + round_up(d, PANEL) + m.ldq + m.lds + m.ldo);
}

static void put_key(struct memory *m, int d, int n, int i, const float *k, const float *v)
{
    float *key = m->keys + (ptrdiff_t)(i / PANEL) * d * PANEL + i % PANEL;
    for (int c = 0; c < d; c++) key[c * PANEL] = k[c];
    for (int c = 0; c < d; c += PANEL) {
        int cols = d - c < PANEL ? d - c : PANEL;
        float *value = m->values + (ptrdiff_t)c * n + i * PANEL;
        memcpy(value, v + c, (size_t)cols * sizeof *value);
        memset(value + cols, 0, (size_t)(PANEL - cols) * sizeof *value);
    }
}

static int put_queries(const struct cpu_window *p, struct memory *m)
{
    const float scale = log2e / sqrtf((float)p->d);
    const int step = p->pool ? 2 : 1;
    int i = 0;
    for (int y = 0; y < p->h; y += step)
        for (int x = 0; x < p->w; x += step, i++) {
            const float *q = p->qkv + y * p->row + x * p->token;
            float *dst = m->q + i * m->ldq;
            for (int c = 0; c < p->d; c++) {
                float v = q[c];
                if (p->pool) {
                    float right = q[p->token + c], down = q[p->row + c], across = q[p->row + p->token + c];
                    v = v > right ? v : right;
                    down = down > across ? down : across;
                    v = v > down ? v : down;
                }
                dst[c] = v * scale;
            }
        }
    return i;
}

/* Scores become weights; returns one over their sum. */
static float weigh_row(float *s, int n, int padded, float log2_pad)
{
    if (log2_pad >= 0) s[n - 1] += log2_pad;
    for (int j = n; j < padded; j++) s[j] = -INFINITY;
    vf top = v_load(s), sum = {0};
    for (int j = VW; j < padded; j += VW) top = v_max(top, v_load(s + j));
    vf shift = v_set(v_largest(top));
    for (int j = 0; j < padded; j += VW) {
        vf w = v_exp2(v_load(s + j) - shift);
        sum += w;
        v_store(s + j, w);
    }
    return 1.0f / v_sum(sum);
}

void K(cpu_window)(const struct cpu_window *p, float *local)
{
    const int n = p->h * p->w + (p->n_pad > 0);
    struct memory m = memory_in(local, n, p->d);
    const int padded = round_up(n, VW), width = round_up(p->d, VW);
    const int step = p->pool ? 2 : 1;
    int i = 0;
    for (int c = round_up(n, PANEL) - PANEL; c < n; c += PANEL)
        memset(m.keys + (ptrdiff_t)c * p->d, 0, (size_t)(PANEL * p->d) * sizeof *m.keys);
    for (int y = 0; y < p->h; y++)
        for (int x = 0; x < p->w; x++, i++) {
            const float *t = p->qkv + y * p->row + x * p->token;
            put_key(&m, p->d, n, i, t + p->o, t + 2 * p->o);
        }
    if (p->n_pad > 0) put_key(&m, p->d, n, i, p->pad + p->o, p->pad + 2 * p->o);
    int queries = put_queries(p, &m);
    K(cpu_product)
    (&(struct cpu_product){.m = queries,
                           .n = padded,
                           .k = p->d,
                           .a = m.q,
                           .lda = m.ldq,
                           .b = m.keys,
                           .panel_stride = (ptrdiff_t)p->d * PANEL,
                           .c = m.s,
                           .ldc = m.lds});
    /* the queries are done with: their memory takes the inverse sums */
    for (int r = 0; r < queries; r++)
        m.q[r] = weigh_row(m.s + r * m.lds, n, padded, p->n_pad > 0 ? log2f((float)p->n_pad) : -1);
    K(cpu_product)
    (&(struct cpu_product){.m = queries,
                           .n = width,
                           .k = n,
                           .a = m.s,
                           .lda = m.lds,
                           .b = m.values,
                           .panel_stride = (ptrdiff_t)n * PANEL,
                           .c = m.o,
                           .ldc = m.ldo});
    int out_w = p->w / step;
    for (int r = 0; r < queries; r++) {
        float *y = p->y + r / out_w * p->y_row + r % out_w * p->y_token;
        for (int c = 0; c < p->d; c++) y[c] = m.o[r * m.ldo + c] * m.q[r];
    }
}

/* kern_attention.c - one-head attention that never writes the score matrix: blocks of queries over blocks of
 * keys with a running maximum and sum (Dao et al., "FlashAttention", 2022), products on register tiles.
 *
 * Packed keys: panels of PANEL keys, each [d][PANEL]. Packed values: per block of CPU_KEYS keys, panels of PANEL
 * channels, each [CPU_KEYS][PANEL]. What is behind the last key or channel is 0. */
#include "kern.h"
#include "vec.h"

#include <math.h>

#define PAD 16 /* floats added to row strides, so that rows do not meet in the same cache set */

static inline int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

size_t K(cpu_keys_size)(int n_keys, int d)
{
    return (size_t)round_up(n_keys, PANEL) * (size_t)d * sizeof(float);
}

size_t K(cpu_values_size)(int n_keys, int dv)
{
    return (size_t)round_up(n_keys, CPU_KEYS) * (size_t)round_up(dv, PANEL) * sizeof(float);
}

void K(cpu_keys_pack)(void *keys, const float *k, ptrdiff_t ldk, int first, int count, int d)
{
    K(cpu_pack)((float *)keys + (ptrdiff_t)first * d, k, d, count, 1, ldk);
}

void K(cpu_values_pack)(void *values, const float *v, ptrdiff_t ldv, int first, int count, int dv)
{
    float *dst = (float *)values + (ptrdiff_t)first * round_up(dv, PANEL);
    int used = round_up(count, PANEL);
    for (int c = 0; c < dv; c += PANEL, dst += CPU_KEYS * PANEL) {
        int cols = dv - c < PANEL ? dv - c : PANEL;
        for (int i = 0; i < used; i++) {
            if (i < count) memcpy(dst + i * PANEL, v + i * ldv + c, (size_t)cols * sizeof *dst);
            int filled = i < count ? cols : 0;
            memset(dst + i * PANEL + filled, 0, (size_t)(PANEL - filled) * sizeof *dst);
        }
    }
}

/* What a block of queries keeps: the queries times the scale, their rows grouped, a block of scores, the outputs so
 * far, and per row the largest score and the sum of weights (lane by lane). */
struct state {
    float *q, *s, *o, *m, *l;
    ptrdiff_t lds, ldo;
};

static struct state state_in(float *local, int count, int d, int dv)
{
    struct state t = {.lds = CPU_KEYS + PAD, .ldo = round_up(dv, PANEL) + PAD};
    t.q = local;
    t.s = t.q + round_up(count * d, VW);
    t.o = t.s + count * t.lds;
    t.l = t.o + count * t.ldo;
    t.m = t.l + count * VW;
    return t;
}

size_t K(cpu_attend_size)(int count, int d, int dv)
{
    struct state t = state_in(NULL, count, d, dv);
    return ((size_t)round_up(count * d, VW) + (size_t)count * (size_t)(t.lds + t.ldo + VW + 1)) * sizeof(float);
}

/* Scores become weights 2^(s - max); the maximum, sum and outputs of the row follow. */
static void weigh_row(struct state *t, int row, int n, int padded, int width)
{
    float *s = t->s + row * t->lds;
    for (int j = n; j < padded; j++) s[j] = -INFINITY;
    vf top = v_load(s);
    for (int j = VW; j < padded; j += VW) top = v_max(top, v_load(s + j));
    float m = v_largest(top);
    vf l = v_load(t->l + row * VW);
    if (m > t->m[row]) {
        vf shrink = v_exp2(v_set(t->m[row] - m));
        float *o = t->o + row * t->ldo;
        for (int j = 0; j < width; j += VW) v_store(o + j, v_load(o + j) * shrink);
        l *= shrink;
        t->m[row] = m;
    }
    vf shift = v_set(t->m[row]);
    for (int j = 0; j < padded; j += VW) {
        vf p = v_exp2(v_load(s + j) - shift);
        l += p;
        v_store(s + j, p);
    }
    v_store(t->l + row * VW, l);
}

void K(cpu_attend)(const struct cpu_attend *p, int first, int count, void *local)
{
    struct state t = state_in(local, count, p->d, p->dv);
    const int width = round_up(p->dv, VW), panels = round_up(p->dv, PANEL);
    const float scale = 1.44269504f / sqrtf((float)p->d);
    K(cpu_group_rows)(t.q, p->q + first * p->ldq, p->ldq, count, p->d, scale);
    for (int i = 0; i < count; i++) t.m[i] = -INFINITY;
    memset(t.o, 0, (size_t)(count * t.ldo) * sizeof *t.o);
    memset(t.l, 0, (size_t)(count * VW) * sizeof *t.l);
    for (int key = 0; key < p->n_keys; key += CPU_KEYS) {
        int n = p->n_keys - key < CPU_KEYS ? p->n_keys - key : CPU_KEYS, padded = round_up(n, VW);
        const struct cpu_product scores = {.m = count,
                                           .n = padded,
                                           .k = p->d,
                                           .a = t.q,
                                           .grouped = true,
                                           .b = (const float *)p->keys + (ptrdiff_t)key * p->d,
                                           .panel_stride = (ptrdiff_t)p->d * PANEL,
                                           .c = t.s,
                                           .ldc = t.lds};
        const struct cpu_product outputs = {.m = count,
                                            .n = width,
                                            .k = n,
                                            .a = t.s,
                                            .lda = t.lds,
                                            .b = (const float *)p->values + (ptrdiff_t)key * panels,
                                            .panel_stride = CPU_KEYS * PANEL,
                                            .c = t.o,
                                            .ldc = t.ldo,
                                            .accumulate = true};
        K(cpu_product)(&scores);
        for (int i = 0; i < count; i++) weigh_row(&t, i, n, padded, width);
        K(cpu_product)(&outputs);
    }
    for (int i = 0; i < count; i++) {
        float inverse = 1.0f / v_sum(v_load(t.l + i * VW));
        for (int j = 0; j < p->dv; j++) p->y[(first + i) * p->ldy + j] = t.o[i * t.ldo + j] * inverse;
    }
}

/* amx_attention.c - the attention of kern_attention.c on AMX tiles.
 *
 * Packed keys: a right operand of d by all keys. Packed values: per block of CPU_KEYS keys a right operand of those
 * keys by dv. Scores, weights and outputs are made for 32 queries at a time, so that they stay in the first-level
 * cache. */
#include "amx.h"

#include <math.h>

enum { GROUP = 32, BLOCK_STEPS = CPU_KEYS / AMX_K };

size_t K(cpu_keys_size)(int n_keys, int d)
{
    return amx_right_size(n_keys, d);
}

size_t K(cpu_values_size)(int n_keys, int dv)
{
    return amx_right_size(dv, amx_up(n_keys, CPU_KEYS));
}

void K(cpu_keys_pack)(void *keys, const float *k, ptrdiff_t ldk, int first, int count, int d)
{
    amx_pack_right((char *)keys + K(cpu_keys_size)(first, d), k, ldk, count, d);
}

void K(cpu_values_pack)(void *values, const float *v, ptrdiff_t ldv, int first, int count, int dv)
{
    char *to = (char *)values + K(cpu_values_size)(first, dv);
    for (int c = 0; c < dv; c += AMX_PANEL, to += BLOCK_STEPS * 2 * AMX_PARTS * AMX_TILE)
        for (int i = 0; i < count; i += AMX_K)
            amx_pack_rows(to + i / AMX_K * 2 * AMX_PARTS * AMX_TILE, v + i * ldv + c, ldv, count - i, dv - c);
}

/* What a block of queries keeps: the queries times the scale, packed; outputs so far, and per row the largest score
 * and the sum of weights (lane by lane). Of a group: its scores, its weights packed. */
struct state {
    char *q, *p;
    float *s, *o, *l, *m;
    ptrdiff_t lds, ldo;
    int count, steps; /* queries; steps of k of a score */
};

static inline struct state state_in(char *local, int count, int d, int dv)
{
    const int rows = amx_up(count, GROUP);
    struct state t = {.lds = CPU_KEYS + 16, .ldo = amx_up(dv, AMX_PANEL) + 16, .count = count};
    t.steps = amx_up(d, AMX_K) / AMX_K;
    t.q = local;
    t.p = t.q + amx_left_size(rows, d);
    t.s = (float *)(t.p + amx_left_size(GROUP, CPU_KEYS));
    t.o = t.s + GROUP * t.lds;
    t.l = t.o + rows * t.ldo;
    t.m = t.l + rows * VW;
    return t;
}

size_t K(cpu_attend_size)(int count, int d, int dv)
{
    const struct state t = state_in(NULL, count, d, dv);
    return (size_t)((char *)(t.m + amx_up(count, GROUP)) - (char *)NULL);
}

AMX_INLINE void scores(const struct state *t, const char *q, const char *keys, int n, const int tall)
{
    enum { NEAR = 8 / AMX_PARTS };
    const ptrdiff_t a_step = (ptrdiff_t)AMX_PARTS * AMX_TILE, b_step = 2 * a_step;
    for (int first = 0; first < t->steps; first += NEAR) {
        const int until = first + NEAR < t->steps ? first + NEAR : t->steps;
        for (int key = 0; key < n; key += AMX_PANEL) {
            const char *a = q + first * a_step, *b = keys + (key / AMX_PANEL * t->steps + first) * b_step;
            if (first == 0)
                amx_zero(tall);
            else
                amx_load(t->s + key, t->lds, tall);
            for (int k = first; k < until; k++, a += a_step, b += b_step)
                amx_step(a, a + t->steps * a_step, b, tall);
            amx_store(t->s + key, t->lds, tall);
        }
    }
}

AMX_INLINE void outputs(const struct state *t, float *o, const char *values, int n, int dv, const int tall)
{
    const ptrdiff_t a_step = (ptrdiff_t)AMX_PARTS * AMX_TILE, b_step = 2 * a_step;
    for (int c = 0; c < dv; c += AMX_PANEL, values += BLOCK_STEPS * b_step) {
        const char *a = t->p, *b = values;
        amx_load(o + c, t->ldo, tall);
        for (int k = 0; k < n; k += AMX_K, a += a_step, b += b_step) amx_step(a, a + BLOCK_STEPS * a_step, b, tall);
        amx_store(o + c, t->ldo, tall);
    }
}

/* Scores become weights 2^(s - max); the maximum, sum and outputs of the row follow. row: in the block */
AMX_INLINE void weigh_row(const struct state *t, int row, int n, int width)
{
    float *s = t->s + row % GROUP * t->lds;
    const int padded = amx_up(n, AMX_K);
    for (int j = n; j < padded; j++) s[j] = -INFINITY;
    vf top = v_max(v_load(s), v_load(s + VW));
    for (int j = AMX_K; j < padded; j += AMX_K) top = v_max(top, v_max(v_load(s + j), v_load(s + j + VW)));
    const float m = v_largest(top);
    vf l = v_load(t->l + row * VW);
    if (m > t->m[row]) {
        const vf shrink = v_exp2(v_set(t->m[row] - m));
        float *o = t->o + row * t->ldo;
        for (int j = 0; j < width; j += VW) v_store(o + j, v_load(o + j) * shrink);
        l *= shrink;
        t->m[row] = m;
    }
    const vf shift = v_set(t->m[row]);
    char *to = t->p + row % GROUP / AMX_ROWS * BLOCK_STEPS * AMX_PARTS * AMX_TILE + row % AMX_ROWS * 64;
    for (int j = 0; j < padded; j += AMX_K, to += AMX_PARTS * AMX_TILE) {
        const vf a = v_exp2(v_load(s + j) - shift), b = v_exp2(v_load(s + j + VW) - shift);
        l += a + b;
        amx_split(to, a, b);
    }
    v_store(t->l + row * VW, l);
}

/* Queries first .. of the block, at most GROUP, against a block of keys. */
AMX_INLINE void group(const struct state *t, const char *keys, const char *values, int first, int n, int dv,
                      const int tall)
{
    scores(t, t->q + amx_left_size(first, t->steps * AMX_K), keys, n, tall);
    for (int i = first; i < first + AMX_ROWS * tall; i++) weigh_row(t, i, n, amx_up(dv, VW));
    outputs(t, t->o + first * t->ldo, values, n, dv, tall);
}

void K(cpu_attend)(const struct cpu_attend *p, int first, int count, void *local)
{
    const struct state t = state_in(local, count, p->d, p->dv);
    const int rows = amx_up(count, AMX_ROWS);
    amx_pack_left(t.q, p->q + first * p->ldq, p->ldq, 0, count, p->d, 1.44269504f / sqrtf((float)p->d));
    for (int i = 0; i < rows; i++) t.m[i] = -INFINITY;
    memset(t.o, 0, (size_t)(rows * t.ldo) * sizeof *t.o);
    memset(t.l, 0, (size_t)(rows * VW) * sizeof *t.l);
    amx_begin();
    for (int key = 0; key < p->n_keys; key += CPU_KEYS) {
        const int n = p->n_keys - key < CPU_KEYS ? p->n_keys - key : CPU_KEYS;
        const char *keys = (const char *)p->keys + K(cpu_keys_size)(key, p->d);
        const char *values = (const char *)p->values + K(cpu_values_size)(key, p->dv);
        for (int i = 0; i < rows; i += GROUP) {
            if (rows - i > AMX_ROWS)
                group(&t, keys, values, i, n, p->dv, 2);
            else
                group(&t, keys, values, i, n, p->dv, 1);
        }
    }
    amx_end();
    for (int i = 0; i < count; i++) {
        const float inverse = 1.0f / v_sum(v_load(t.l + i * VW));
        for (int j = 0; j < p->dv; j++) p->y[(first + i) * p->ldy + j] = t.o[i * t.ldo + j] * inverse;
    }
}

/* amx_attention.c - the attention of kern_attention.c on AMX tiles.
 *
 * Packed keys: a right operand of d by all keys. Packed values: per block of CPU_KEYS keys a right operand of those
 * keys by dv. Scores, weights and outputs are made for 32 queries at a time, so that they stay in the first-level
 * cache. */
#define AMX_PARTS (AMX_SPLIT ? 2 : 1) /* weighted means over many keys: a third part does not show in the masks */
#include "amx.h"

#include <math.h>

enum { GROUP = 32, BLOCK_STEPS = CPU_KEYS / AMX_K, PIECE = 32 };

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
    for (int i = 0; i < count; i += AMX_K)
        for (int c = 0; c < dv; c += AMX_PANEL)
            amx_pack_rows(to + (c / AMX_PANEL * BLOCK_STEPS + i / AMX_K) * 2 * AMX_PARTS * AMX_TILE, v + i * ldv + c,
                          ldv, count - i, dv - c);
}

/* What a block of queries keeps: the queries times the scale, packed; outputs so far, and per row the largest score
 * and the sum of weights (lane by lane). Of two groups: scores, weights packed. */
struct state {
    char *q, *p[2];
    float *s[2], *o, *l, *m;
    ptrdiff_t lds, ldo;
    int steps, width; /* steps of k of a score; channels of an output, to a whole vector */
};

static inline struct state state_in(char *local, int count, int d, int dv)
{
    const int rows = amx_up(count, GROUP);
    struct state t = {.lds = CPU_KEYS + 16, .ldo = amx_up(dv, AMX_PANEL) + 16, .width = amx_up(dv, VW)};
    t.steps = amx_up(d, AMX_K) / AMX_K;
    t.q = local;
    t.p[0] = t.q + amx_left_size(rows, d);
    t.p[1] = t.p[0] + amx_left_size(GROUP, CPU_KEYS);
    t.s[0] = (float *)(t.p[1] + amx_left_size(GROUP, CPU_KEYS));
    t.s[1] = t.s[0] + GROUP * t.lds;
    t.o = t.s[1] + GROUP * t.lds;
    t.l = t.o + rows * t.ldo;
    t.m = t.l + rows * VW;
    return t;
}

size_t K(cpu_attend_size)(int count, int d, int dv)
{
    const struct state t = state_in(NULL, count, d, dv);
    const int rows = amx_up(count, GROUP);
    return amx_left_size(rows, d) + 2 * amx_left_size(GROUP, CPU_KEYS) +
           (size_t)(2 * GROUP * t.lds + rows * (t.ldo + VW + 1)) * sizeof(float);
}

/* Queries `first` .. `first`+rows-1 of the block against n keys. Weighed so far: the rows before `row`, and of that the
 * keys before `key`. */
struct group {
    const char *keys, *values;
    float *s;
    char *p;
    int first, rows, n;
    int row, key;
};

/* 2^x as v_exp2, as exact as a weight is packed: to 8e-8 relative, to 8e-5 for bf16 (Lawson fits). */
AMX_INLINE vf exp2_of(vf x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23 */
    x = v_max(x, v_set(-126.0f));
    const vf t = x + round, r = x - (t - round);
#if AMX_PARTS > 1
    vf p = 1.32764721e-3f * r + 9.67554145e-3f;
    p = p * r + 5.55071327e-2f;
    p = p * r + 2.40221197e-1f;
    p = p * r + 6.93146967e-1f;
    p = p * r + 1.00000007f;
#else
    vf p = 5.51716703e-2f * r + 2.4261113e-1f;
    p = p * r + 6.93260986e-1f;
    p = p * r + 9.99928073e-1f;
#endif
    return (vf)((vi)p + ((vi)t << 23));
}

/* The scores of a row have come: its maximum, sum and outputs follow. */
AMX_INLINE void begin_row(const struct state *t, const struct group *g, float *s)
{
    const int row = g->first + g->row, padded = amx_up(g->n, PIECE);
    for (int j = g->n; j < padded; j++) s[j] = -INFINITY;
    vf top = v_max(v_load(s), v_load(s + VW));
    for (int j = AMX_K; j < padded; j += AMX_K) top = v_max(top, v_max(v_load(s + j), v_load(s + j + VW)));
    if (_mm512_cmp_ps_mask((__m512)top, (__m512)v_set(t->m[row]), _CMP_GT_OQ) == 0) return;
    const float m = v_largest(top);
    const vf shrink = exp2_of(v_set(t->m[row] - m));
    float *o = t->o + row * t->ldo;
    for (int j = 0; j < t->width; j += VW) v_store(o + j, v_load(o + j) * shrink);
    v_store(t->l + row * VW, v_load(t->l + row * VW) * shrink);
    t->m[row] = m;
}

/* A row's maximum, or the next PIECE scores of it become weights 2^(s - max). */
AMX_INLINE void weigh(const struct state *t, struct group *g)
{
    const int row = g->first + g->row;
    float *s = g->s + g->row * t->lds, *l = t->l + row * VW;
    if (g->key < 0) {
        begin_row(t, g, s);
        g->key = 0;
        return;
    }
    const vf shift = v_set(t->m[row]);
    char *to =
        g->p + (g->row / AMX_ROWS * BLOCK_STEPS + g->key / AMX_K) * AMX_PARTS * AMX_TILE + g->row % AMX_ROWS * 64;
    vf sum = v_load(l);
    UNROLL
    for (int j = 0; j < PIECE; j += AMX_K, to += AMX_PARTS * AMX_TILE) {
        const float *from = s + g->key + j;
        const vf a = exp2_of(v_load(from) - shift), b = exp2_of(v_load(from + VW) - shift);
        sum += a + b;
        amx_split(to, a, b);
    }
    v_store(l, sum);
    g->key += PIECE;
    if (g->key < g->n) return;
    g->key = -1;
    g->row++;
}

/* Weighing spread evenly over the phases of products: `pieces` over `phases`. */
struct pace {
    int pieces, phases, due;
};

AMX_INLINE void step(const struct state *t, const char *a0, const char *a1, const char *b, const int tall,
                     struct group *aside, struct pace *pace)
{
    UNROLL
    for (int phase = 0; phase < AMX_PHASES; phase++) {
        amx_phase(a0, a1, b, tall, phase);
        for (pace->due += pace->pieces; pace->due >= pace->phases; pace->due -= pace->phases) weigh(t, aside);
    }
}

AMX_INLINE void scores(const struct state *t, const struct group *g, const int tall, struct group *aside,
                       struct pace *pace)
{
    const ptrdiff_t a_step = (ptrdiff_t)AMX_PARTS * AMX_TILE, b_step = 2 * a_step;
    const char *keys = g->keys;
    for (int key = 0; key < g->n; key += AMX_PANEL) {
        const char *a = t->q + amx_left_size(g->first, t->steps * AMX_K);
        amx_zero(tall);
        for (int k = 0; k < t->steps; k++, a += a_step, keys += b_step)
            step(t, a, a + t->steps * a_step, keys, tall, aside, pace);
        amx_store(g->s + key, t->lds, tall);
    }
}

AMX_INLINE void outputs(const struct state *t, const struct group *g, const int tall, struct group *aside,
                        struct pace *pace)
{
    const ptrdiff_t a_step = (ptrdiff_t)AMX_PARTS * AMX_TILE, b_step = 2 * a_step;
    const char *values = g->values;
    float *o = t->o + g->first * t->ldo;
    for (int c = 0; c < t->width; c += AMX_PANEL, values += BLOCK_STEPS * b_step) {
        const char *a = g->p, *b = values;
        amx_load(o + c, t->ldo, tall);
        for (int k = 0; k < g->n; k += AMX_K, a += a_step, b += b_step)
            step(t, a, a + BLOCK_STEPS * a_step, b, tall, aside, pace);
        amx_store(o + c, t->ldo, tall);
    }
}

static inline int steps_of(int n)
{
    return amx_up(n, AMX_K) / AMX_K;
}

/* Three groups in a row, each a stage further: the outputs of `last`, the weights of `now`, the scores of `next`. */
static void advance(const struct state *t, const struct group *last, struct group *now, const struct group *next)
{
    struct pace pace = {.pieces = now->rows * (amx_up(now->n, PIECE) / PIECE + 1)};
    const int output_phases = last->rows > 0 ? steps_of(t->width) * steps_of(last->n) * AMX_PHASES : 0;
    const int score_phases = next->rows > 0 ? steps_of(next->n) * t->steps * AMX_PHASES : 0;
    struct pace rest = {.phases = 1};
    pace.phases = output_phases + score_phases;
    if (last->first == now->first) { /* the same queries: their outputs must be there before the maximum moves on */
        if (last->rows > AMX_ROWS)
            outputs(t, last, 2, now, &rest);
        else if (last->rows > 0)
            outputs(t, last, 1, now, &rest);
        pace.phases = score_phases;
    } else if (last->rows > AMX_ROWS) {
        outputs(t, last, 2, now, &pace);
    } else if (last->rows > 0) {
        outputs(t, last, 1, now, &pace);
    }
    if (next->rows > AMX_ROWS)
        scores(t, next, 2, now, &pace);
    else if (next->rows > 0)
        scores(t, next, 1, now, &pace);
    while (now->row < now->rows) weigh(t, now);
}

void K(cpu_attend)(const struct cpu_attend *p, int first, int count, void *local)
{
    const struct state t = state_in(local, count, p->d, p->dv);
    const int rows = amx_up(count, AMX_ROWS);
    amx_pack_left(t.q, p->q + first * p->ldq, p->ldq, 0, count, p->d, 1.44269504f / sqrtf((float)p->d));
    for (int i = 0; i < rows; i++) t.m[i] = -INFINITY;
    memset(t.o, 0, (size_t)(rows * t.ldo) * sizeof *t.o);
    memset(t.l, 0, (size_t)(rows * VW) * sizeof *t.l);
    const struct group none = {.first = -1};
    struct group last = none, now = none;
    int turn = 0;
    amx_begin();
    for (int key = 0; key < p->n_keys; key += CPU_KEYS)
        for (int i = 0; i < rows; i += GROUP, turn ^= 1) {
            const struct group next = {.keys = (const char *)p->keys + K(cpu_keys_size)(key, p->d),
                                       .values = (const char *)p->values + K(cpu_values_size)(key, p->dv),
                                       .s = t.s[turn],
                                       .p = t.p[turn],
                                       .first = i,
                                       .key = -1,
                                       .rows = rows - i < GROUP ? rows - i : GROUP,
                                       .n = p->n_keys - key < CPU_KEYS ? p->n_keys - key : CPU_KEYS};
            advance(&t, &last, &now, &next);
            last = now, now = next;
        }
    advance(&t, &last, &now, &none);
    advance(&t, &now, &(struct group){.first = -2}, &none);
    amx_end();
    for (int i = 0; i < count; i++) {
        const float inverse = 1.0f / v_sum(v_load(t.l + i * VW));
        for (int j = 0; j < p->dv; j++) p->y[(first + i) * p->ldy + j] = t.o[i * t.ldo + j] * inverse;
    }
}

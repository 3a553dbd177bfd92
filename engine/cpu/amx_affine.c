/* amx_affine.c - the linear layer and the two-layer perceptron of a piece of rows on AMX tiles.
 *
 * A block of 32 rows by 32 columns is accumulated in tiles and stored aside; bias, activation and the way to the
 * result follow while the tiles of the next block are multiplied, some rows a step.
 *
 * Weights of one part lie packed as right operands are. Those of three parts lie as floats, 4 bytes instead of 6, in
 * the order [panel][k step][2][16][2 k][16 columns]. While rows go over a panel, the next one is split
 * aside. */
#include "amx.h"

enum { WEIGHT = AMX_PARTS == 1 ? 2 : 4, ROW = AMX_PANEL * WEIGHT /* bytes; a tile row of 16 columns by 2 k */ };

/* A finished block on its way: rows `row` .. `rows`-1 are still to do. Goes to c, or split to a left operand. */
struct block {
    float *sum; /* [32][32] */
    const float *bias;
    float *c;
    ptrdiff_t ldc;
    char *left; /* first step of the block in a left operand, `steps` a row tile; NULL: goes to c */
    int steps;
    int row, rows, columns;
    bool add;
    enum s2_act act;
};

static inline size_t weights_size(int columns, int k)
{
    return (size_t)amx_up(columns, AMX_PANEL) * (size_t)amx_up(k, AMX_K) * WEIGHT;
}

size_t K(cpu_matrix_size)(int in, int out)
{
    return weights_size(out, in);
}

void K(cpu_matrix_pack)(struct cpu_matrix *m, const float *w, int first, int count)
{
    char *to = (char *)m->packed + weights_size(first, m->in);
    w += (ptrdiff_t)first * m->in;
    if (AMX_PARTS == 1) {
        amx_pack_right(to, w, m->in, count, m->in);
        return;
    }
    for (int j = 0; j < count; j++, w += m->in) {
        char *column = to + j / 16 * 16 * ROW + j % 16 * WEIGHT;
        for (int i = 0; i < m->in; i++)
            memcpy(column + i / 2 * ROW + i / AMX_K * 16 * ROW + i % 2 * 64, w + i, sizeof *w);
    }
}

AMX_INLINE __mmask16 mask_of(int n)
{
    return (__mmask16)(n >= VW ? 0xffff : n > 0 ? (1u << n) - 1 : 0);
}

AMX_INLINE void finish_rows(struct block *b, int count, const enum s2_act act)
{
    const __mmask16 first = mask_of(b->columns), second = mask_of(b->columns - VW);
    const vf bias0 = b->bias ? v_load(b->bias) : (vf){0}, bias1 = b->bias ? v_load(b->bias + VW) : (vf){0};
    const int until = b->row + count < b->rows ? b->row + count : b->rows;
    for (int i = b->row; i < until; i++) {
        vf x = v_load(b->sum + i * AMX_PANEL) + bias0, y = v_load(b->sum + i * AMX_PANEL + VW) + bias1;
        float *c = b->c + i * b->ldc;
        if (b->add) {
            x += (vf)_mm512_maskz_loadu_ps(first, c);
            y += (vf)_mm512_maskz_loadu_ps(second, c + VW);
        }
        if (act == S2_ACT_RELU) x = v_max(x, v_set(0)), y = v_max(y, v_set(0));
        if (act == S2_ACT_GELU) x = v_gelu(x), y = v_gelu(y);
        if (act == S2_ACT_SIGMOID) x = v_sigmoid(x), y = v_sigmoid(y);
        if (b->left) {
            amx_split(b->left + i / AMX_ROWS * b->steps * AMX_PARTS * AMX_TILE + i % AMX_ROWS * 64, x, y);
        } else {
            _mm512_mask_storeu_ps(c, first, (__m512)x);
            _mm512_mask_storeu_ps(c + VW, second, (__m512)y);
        }
    }
    b->row = until;
}

AMX_INLINE void finish(struct block *b, int count)
{
    if (b->row >= b->rows) return;
    switch (b->act) {
    case S2_ACT_NONE: finish_rows(b, count, S2_ACT_NONE); break;
    case S2_ACT_RELU: finish_rows(b, count, S2_ACT_RELU); break;
    case S2_ACT_GELU: finish_rows(b, count, S2_ACT_GELU); break;
    case S2_ACT_SIGMOID: finish_rows(b, count, S2_ACT_SIGMOID); break;
    }
}

/* The panel after the present one, on its way: fetched to the second-level cache or, where it has to be split, split,
 * and the one behind it fetched. A step of k is 32 rows. */
struct ahead {
    const char *from;
    char *to;
    int row, rows, pace; /* rows a step */
    ptrdiff_t fetch;     /* bytes from a row that is split to the one that is fetched */
};

/* A row of a tile from 16 columns of an even k and of the odd one behind it. What is left for the last part has no more
 * bits than it. */
AMX_INLINE void split_row(char *to, vf even, vf odd)
{
    UNROLL
    for (int p = 0; p < AMX_PARTS; p++) {
        const bool rest = p + 1 == AMX_PARTS;
        const vf high = rest ? even : amx_high(even), next = rest ? odd : amx_high(odd);
        const vi pairs = (vi)_mm512_srli_epi32((__m512i)high, 16) | (vi)next;
        memcpy(to + 2 * p * AMX_TILE, &pairs, sizeof pairs);
        even -= high, odd -= next;
    }
}

AMX_INLINE void advance(struct ahead *n, int until)
{
    if (until > n->rows) until = n->rows;
    for (; n->row < until; n->row++, n->from += ROW) {
        for (int i = 0; i < ROW; i += 64) __builtin_prefetch(n->from + n->fetch + i, 0, 2);
        if (AMX_PARTS == 1) continue;
        const float *from = (const float *)(const void *)n->from;
        split_row(n->to, v_load(from), v_load(from + VW));
        n->to += n->row % 32 == 31 ? (2 * AMX_PARTS - 2) * AMX_TILE + 64 : 64;
    }
}

AMX_INLINE void multiply(struct block *next, struct block *last, const char *a, ptrdiff_t a_tile, const char *b,
                         int steps, struct ahead *ahead, const int tall)
{
    const ptrdiff_t a_step = AMX_PARTS * AMX_TILE, b_step = 2 * a_step;
    const int pace = (last->rows + steps * AMX_PHASES - 1) / (steps * AMX_PHASES);
    amx_zero(tall);
    int until = ahead->row;
    for (int k = 0; k < steps; k++, a += a_step, b += b_step, until += ahead->pace) {
        UNROLL
        for (int phase = 0; phase < AMX_PHASES; phase++) {
            amx_phase(a, a + a_tile, b, tall, phase);
            advance(ahead, until + ahead->pace * (phase + 1) / AMX_PHASES);
            finish(last, pace);
        }
    }
    amx_store(next->sum, AMX_PANEL, tall);
}

/* Where the products of a packed left operand go. */
struct target {
    const struct cpu_matrix *w;
    int first, columns, k, depth; /* as in struct cpu_affine */
    float *c;
    ptrdiff_t ldc;
    char *left; /* a left operand of `columns` terms */
    bool add, bias;
    enum s2_act act;
};

static inline const char *first_panel(const struct target *t)
{
    return (const char *)t->w->packed + weights_size(t->first, t->w->in) + weights_size(AMX_PANEL, t->k);
}

/* Split panels lie in two halves in turn, of amx_right_size(AMX_PANEL, depth) each. */
struct panels {
    char *half[2];
    const char *split; /* the weights whose parts lie in half[0] */
};

static inline size_t panels_size(int depth)
{
    return AMX_PARTS == 1 ? 0 : 2 * amx_right_size(AMX_PANEL, depth);
}

static inline struct panels panels_at(char *at, int depth)
{
    return (struct panels){.half = {at, at + panels_size(depth) / 2}};
}

/* then: the target of the next call, whose first panel is split at the end of this one; or NULL */
static void products(const char *a, int m, const struct target *t, const struct target *then, struct panels *panels)
{
    float sums[2][2 * AMX_ROWS * AMX_PANEL] __attribute__((aligned(64)));
    struct block last = {.sum = sums[1]};
    const int steps = amx_up(t->depth, AMX_K) / AMX_K, out_steps = amx_up(t->columns, AMX_K) / AMX_K;
    const ptrdiff_t a_tile = (ptrdiff_t)steps * AMX_PARTS * AMX_TILE;
    const int groups = (m + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS);
    const bool large = weights_size(t->columns, t->depth) > 512 << 10; /* not soon in the cache as a whole */
    const ptrdiff_t panel = (ptrdiff_t)weights_size(AMX_PANEL, t->w->in);
    const char *b = first_panel(t);
    if (AMX_PARTS > 1 && panels->split != b) {
        struct ahead all = {.from = b, .to = panels->half[0], .rows = 32 * steps};
        advance(&all, all.rows);
    }
    for (int j = 0; j < t->columns; j += AMX_PANEL) {
        const char *now = AMX_PARTS == 1 ? b : panels->half[0];
        const bool more = j + AMX_PANEL < t->columns;
        struct ahead ahead = {.to = panels->half[1]};
        b = more ? b + panel : then ? first_panel(then) : NULL;
        if (b && (large || AMX_PARTS > 1)) {
            const int next_steps = more ? steps : amx_up(then->depth, AMX_K) / AMX_K;
            ahead.from = b;
            ahead.rows = 32 * next_steps;
            ahead.pace = (ahead.rows + groups * steps - 1) / (groups * steps);
            if (AMX_PARTS > 1 && large && j + 2 * AMX_PANEL < t->columns) ahead.fetch = panel;
        }
        for (int i = 0; i < m; i += 2 * AMX_ROWS) {
            struct block next = {.sum = last.sum == sums[0] ? sums[1] : sums[0],
                                 .bias = t->bias ? t->w->bias + t->first + j : NULL,
                                 .c = t->left ? NULL : t->c + i * t->ldc + j,
                                 .ldc = t->ldc,
                                 .steps = out_steps,
                                 .rows = m - i < 2 * AMX_ROWS ? m - i : 2 * AMX_ROWS,
                                 .columns = t->columns - j,
                                 .add = t->add,
                                 .act = t->act};
            if (t->left) next.left = t->left + ((ptrdiff_t)i / AMX_ROWS * out_steps + j / AMX_K) * AMX_PARTS * AMX_TILE;
            const char *rows = a + i / AMX_ROWS * a_tile;
            if (next.rows > AMX_ROWS)
                multiply(&next, &last, rows, a_tile, now, steps, &ahead, 2);
            else
                multiply(&next, &last, rows, a_tile, now, steps, &ahead, 1);
            finish(&last, last.rows);
            last = next;
        }
        panels->split = b;
        char *done = panels->half[0];
        panels->half[0] = panels->half[1];
        panels->half[1] = done;
    }
    finish(&last, last.rows);
}

void K(cpu_affine)(const struct cpu_affine *p, void *local)
{
    const int deep = p->depth < AMX_DEEP ? amx_up(p->depth, AMX_K) : AMX_DEEP;
    const int fit = AMX_LEFT_SIZE / (deep * 2 * AMX_PARTS) / AMX_ROWS * AMX_ROWS;
    const int step = fit < AMX_BLOCK ? fit : AMX_BLOCK;
    struct panels panels = panels_at((char *)local + AMX_LEFT_SIZE, AMX_DEEP);
    amx_begin();
    for (int i = 0; i < p->m; i += step) {
        const int m = p->m - i < step ? p->m - i : step;
        for (int k = 0; k < p->depth; k += deep) {
            const int depth = p->depth - k < deep ? p->depth - k : deep;
            const bool last = k + depth == p->depth;
            const struct target t = {.w = p->w,
                                     .first = p->first,
                                     .columns = p->columns,
                                     .k = p->k + k,
                                     .depth = depth,
                                     .c = p->c + i * p->ldc,
                                     .ldc = p->ldc,
                                     .add = p->accumulate || k > 0,
                                     .bias = p->k + k == 0,
                                     .act = last ? p->act : S2_ACT_NONE};
            amx_pack_left(local, p->a + i * p->lda + k, p->lda, 0, m, depth, 1);
            products(local, m, &t, NULL, &panels);
        }
    }
    amx_end();
}

/* Rows of the perceptron's input that are normed before they are packed. */
enum { NORMED = AMX_ROWS };

size_t K(cpu_perceptron_size)(int m, int c)
{
    return amx_left_size(m, c) + amx_left_size(m, CPU_DEPTH) + panels_size(c > CPU_DEPTH ? c : CPU_DEPTH) +
           NORMED * (size_t)c * sizeof(float);
}

/* The hidden columns from `first` on: how they are made and used. */
static struct target inner(const struct cpu_perceptron *p, int first, char *h)
{
    const int left = p->fc1->out - first;
    return (struct target){.w = p->fc1,
                           .first = first,
                           .columns = left < CPU_DEPTH ? left : CPU_DEPTH,
                           .depth = p->fc1->in,
                           .left = h,
                           .bias = true,
                           .act = p->act};
}

static struct target outer(const struct cpu_perceptron *p, int first)
{
    const int left = p->fc2->in - first;
    return (struct target){.w = p->fc2,
                           .columns = p->fc2->out,
                           .k = first,
                           .depth = left < CPU_DEPTH ? left : CPU_DEPTH,
                           .c = p->y,
                           .ldc = p->ldy,
                           .add = true,
                           .bias = first == 0};
}

void K(cpu_perceptron)(const struct cpu_perceptron *p, void *local)
{
    const int in = p->fc1->in, hidden = p->fc1->out, deep = in > CPU_DEPTH ? in : CPU_DEPTH;
    char *x = local, *h = x + amx_left_size(p->m, in), *aside = h + amx_left_size(p->m, CPU_DEPTH);
    struct panels panels = panels_at(aside, deep);
    float *normed = (float *)(void *)(aside + panels_size(deep));
    for (int i = 0; i < p->m; i += NORMED) {
        const int rows = p->m - i < NORMED ? p->m - i : NORMED;
        const float *from = p->x + (ptrdiff_t)i * in;
        if (p->norm) cpu_layer_norm_avx512(normed, from, p->norm, (size_t)rows, S2_ACT_NONE);
        amx_pack_left(x, p->norm ? normed : from, in, i, rows, in, 1);
    }
    amx_begin();
    for (int first = 0; first < hidden; first += CPU_DEPTH) {
        const struct target make = inner(p, first, h), use = outer(p, first), next = inner(p, first + CPU_DEPTH, h);
        products(x, p->m, &make, &use, &panels);
        products(h, p->m, &use, first + CPU_DEPTH < hidden ? &next : NULL, &panels);
    }
    amx_end();
}

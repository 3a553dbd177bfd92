/* amx_affine.c - the linear layer and the two-layer perceptron of a piece of rows on AMX tiles.
 *
 * A block of 32 rows by 32 columns is accumulated in tiles and stored aside; bias, activation and the way to the
 * result follow while the tiles of the next block are multiplied, some rows a step. */
#include "amx.h"

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

size_t K(cpu_matrix_size)(int in, int out)
{
    return amx_right_size(out, in);
}

void K(cpu_matrix_pack)(struct cpu_matrix *m, const float *w, int first, int count)
{
    amx_pack_right((char *)m->packed + amx_right_size(first, m->in), w + (ptrdiff_t)first * m->in, m->in, count, m->in);
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

/* Memory that later blocks read, fetched to the second-level cache a few lines a phase. */
struct fetch {
    const char *next;
    int lines;
};

AMX_INLINE void fetch(struct fetch *f)
{
    for (int i = 0; i < f->lines; i++, f->next += 64) __builtin_prefetch(f->next, 0, 2);
}

AMX_INLINE void multiply(struct block *next, struct block *last, const char *a, ptrdiff_t a_tile, const char *b,
                         int steps, struct fetch ahead, const int tall)
{
    const ptrdiff_t a_step = AMX_PARTS * AMX_TILE, b_step = 2 * a_step;
    const int pace = (last->rows + steps * AMX_PHASES - 1) / (steps * AMX_PHASES);
    amx_zero(tall);
    for (int k = 0; k < steps; k++, a += a_step, b += b_step) {
        UNROLL
        for (int phase = 0; phase < AMX_PHASES; phase++) {
            amx_phase(a, a + a_tile, b, tall, phase);
            fetch(&ahead);
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

static void products(const char *a, int m, const struct target *t)
{
    float sums[2][2 * AMX_ROWS * AMX_PANEL] __attribute__((aligned(64)));
    struct block last = {.sum = sums[1]};
    const int steps = amx_up(t->depth, AMX_K) / AMX_K, out_steps = amx_up(t->columns, AMX_K) / AMX_K;
    const ptrdiff_t a_tile = (ptrdiff_t)steps * AMX_PARTS * AMX_TILE;
    const int groups = (m + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS);
    const bool large = amx_right_size(t->columns, t->depth) > 512 << 10; /* not soon in the cache as a whole */
    const int lines = (2 * AMX_PARTS * AMX_TILE / 64 + groups * AMX_PHASES - 1) / (groups * AMX_PHASES);
    for (int j = 0; j < t->columns; j += AMX_PANEL) {
        const char *b =
            (const char *)t->w->packed + amx_right_size(t->first + j, t->w->in) + amx_right_size(AMX_PANEL, t->k);
        const bool more = large && j + AMX_PANEL < t->columns;
        struct fetch ahead = {b + amx_right_size(AMX_PANEL, t->w->in), more ? lines : 0};
        for (int i = 0; i < m; i += 2 * AMX_ROWS, ahead.next += steps * AMX_PHASES * lines * 64) {
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
                multiply(&next, &last, rows, a_tile, b, steps, ahead, 2);
            else
                multiply(&next, &last, rows, a_tile, b, steps, ahead, 1);
            finish(&last, last.rows);
            last = next;
        }
    }
    finish(&last, last.rows);
}

void K(cpu_affine)(const struct cpu_affine *p, void *local)
{
    enum { MOST = AMX_AFFINE_SIZE / (2 * AMX_ROWS * 2 * AMX_PARTS) };
    const int deep = p->depth < MOST ? amx_up(p->depth, AMX_K) : MOST;
    const int fit = AMX_AFFINE_SIZE / (deep * 2 * AMX_PARTS) / AMX_ROWS * AMX_ROWS;
    const int step = fit < AMX_BLOCK ? fit : AMX_BLOCK;
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
            products(local, m, &t);
        }
    }
    amx_end();
}

/* Rows of the perceptron's input that are normed before they are packed. */
enum { NORMED = AMX_ROWS };

size_t K(cpu_perceptron_size)(int m, int c)
{
    return amx_left_size(m, c) + amx_left_size(m, CPU_DEPTH) + NORMED * (size_t)c * sizeof(float);
}

void K(cpu_perceptron)(const struct cpu_perceptron *p, void *local)
{
    const int in = p->fc1->in, hidden = p->fc1->out;
    char *x = local, *h = x + amx_left_size(p->m, in);
    float *normed = (float *)(h + amx_left_size(p->m, CPU_DEPTH));
    for (int i = 0; i < p->m; i += NORMED) {
        const int rows = p->m - i < NORMED ? p->m - i : NORMED;
        const float *from = p->x + (ptrdiff_t)i * in;
        if (p->norm) cpu_layer_norm_avx512(normed, from, p->norm, (size_t)rows, S2_ACT_NONE);
        amx_pack_left(x, p->norm ? normed : from, in, i, rows, in, 1);
    }
    amx_begin();
    for (int first = 0; first < hidden; first += CPU_DEPTH) {
        const int width = hidden - first < CPU_DEPTH ? hidden - first : CPU_DEPTH;
        const struct target inner = {
            .w = p->fc1, .first = first, .columns = width, .depth = in, .left = h, .bias = true, .act = p->act};
        const struct target outer = {.w = p->fc2,
                                     .columns = p->fc2->out,
                                     .k = first,
                                     .depth = width,
                                     .c = p->y,
                                     .ldc = p->ldy,
                                     .add = true,
                                     .bias = first == 0};
        products(x, p->m, &inner);
        products(h, p->m, &outer);
    }
    amx_end();
}

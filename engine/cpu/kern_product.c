/* kern_product.c - packed matrix products: panels of columns that stay in the first-level cache while the rows
 * stream past them (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). */
#include "kern.h"
#include "tile.h"

typedef float quad __attribute__((vector_size(16)));

/* dst[i*PANEL + j] = src[j*col + i] for i, j < 4 */
static inline void turn_4x4(float *dst, const float *src, ptrdiff_t col)
{
    quad a, b, c, d;
    memcpy(&a, src, sizeof a);
    memcpy(&b, src + col, sizeof b);
    memcpy(&c, src + 2 * col, sizeof c);
    memcpy(&d, src + 3 * col, sizeof d);
    const quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const quad ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    b = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    c = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    d = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
    memcpy(dst, &a, sizeof a);
    memcpy(dst + PANEL, &b, sizeof b);
    memcpy(dst + 2 * PANEL, &c, sizeof c);
    memcpy(dst + 3 * PANEL, &d, sizeof d);
}

/* One panel of a B that lies transposed in memory: its columns are contiguous. */
static void pack_turned(float *dst, const float *b, int k, int cols, ptrdiff_t col)
{
    int j = 0;
    for (; j + 4 <= cols; j += 4) {
        const float *src = b + j * col;
        int i = 0;
        for (; i + 4 <= k; i += 4) turn_4x4(dst + (ptrdiff_t)i * PANEL + j, src + i, col);
        for (; i < k; i++)
            for (int c = 0; c < 4; c++) dst[(ptrdiff_t)i * PANEL + j + c] = src[c * col + i];
    }
    for (; j < PANEL; j++)
        for (int i = 0; i < k; i++) dst[(ptrdiff_t)i * PANEL + j] = j < cols ? b[j * col + i] : 0;
}

void K(cpu_pack)(float *dst, const float *b, int k, int n, ptrdiff_t row, ptrdiff_t col)
{
    for (int first = 0; first < n; first += PANEL, dst += (ptrdiff_t)k * PANEL) {
        const int cols = n - first < PANEL ? n - first : PANEL;
        const float *src = b + first * col;
        if (row == 1) {
            pack_turned(dst, src, k, cols, col);
            continue;
        }
        for (int i = 0; i < k; i++)
            for (int j = 0; j < PANEL; j++) dst[(ptrdiff_t)i * PANEL + j] = j < cols ? src[i * row + j * col] : 0;
    }
}

static inline void activate(float *c, int n, enum s2_act act)
{
    for (int j = 0; j < n; j += VW) {
        vf v = v_load(c + j);
        if (act == S2_ACT_RELU) v = v_max(v, v_set(0));
        if (act == S2_ACT_GELU) v = v_gelu(v);
        if (act == S2_ACT_SIGMOID) v = v_sigmoid(v);
        v_store(c + j, v);
    }
}

/* One panel of columns whose width is no whole number of vectors: computed aside, the valid part copied. */
static void edge(struct tile t, int rows, int cols, enum s2_act act)
{
    float aside[TILE_ROWS * PANEL];
    float *c = t.c;
    const ptrdiff_t ldc = t.ldc;
    for (int i = 0; t.add && i < rows; i++)
        for (int j = 0; j < PANEL; j++) aside[i * PANEL + j] = j < cols ? c[i * ldc + j] : 0;
    t.c = aside, t.ldc = PANEL;
    tile_run(&t, rows, cols > VW ? 2 : 1);
    if (act != S2_ACT_NONE)
        for (int i = 0; i < rows; i++) activate(aside + i * PANEL, cols > VW ? PANEL : VW, act);
    for (int i = 0; i < rows; i++) memcpy(c + i * ldc, aside + i * PANEL, (size_t)cols * sizeof *c);
}

/* m rows become tiles of nearly equal height: the height of the tile that starts at row i */
static inline int tile_height(int m, int i)
{
    int left = m - i, tiles = (left + TILE_ROWS - 1) / TILE_ROWS;
    return (left + tiles - 1) / tiles;
}

void K(cpu_group_rows)(float *dst, const float *a, ptrdiff_t lda, int m, int k, float scale)
{
    for (int i = 0, rows; i < m; i += rows, dst += rows * k) {
        rows = tile_height(m, i);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < k; j++) dst[(ptrdiff_t)j * rows + r] = a[(i + r) * lda + j] * scale;
    }
}

/* While a tile is computed, a part of the next panel is fetched to the second-level cache; under the first panel,
 * where they are used for the first time, the next rows of a instead. */
static void product_panel(const struct cpu_product *p, int col)
{
    const int cols = p->n - col < PANEL ? p->n - col : PANEL, tiles = (p->m + TILE_ROWS - 1) / TILE_ROWS;
    const float *panel = p->b + col / PANEL * p->panel_stride, *ahead = panel + p->panel_stride;
    struct tile t = {.a = p->a,
                     .b = panel,
                     .bias = p->bias ? p->bias + col : NULL,
                     .c = p->c + col,
                     .lda = p->grouped ? 1 : p->lda,
                     .step = p->step ? p->step : 1,
                     .ldc = p->ldc,
                     .k = p->k,
                     .add = p->accumulate};
    for (int i = 0, tile = 0, rows; i < p->m; i += rows, tile++) {
        rows = tile_height(p->m, i);
        const ptrdiff_t next_rows = p->grouped ? (ptrdiff_t)rows * p->k : rows * p->lda;
        if (p->grouped) t.step = rows;
        if (col == 0 && !p->step) {
            t.next = (const char *)(t.a + next_rows);
            t.pace = next_rows * (ptrdiff_t)sizeof *t.a / p->k;
        } else {
            t.next = (const char *)(ahead + tile * (ptrdiff_t)p->k * PANEL / tiles);
            t.pace = ((ptrdiff_t)sizeof *ahead * PANEL + tiles - 1) / tiles;
        }
        if (cols % VW) {
            edge(t, rows, cols, p->act);
        } else {
            tile_run(&t, rows, cols / VW);
            for (int r = 0; p->act != S2_ACT_NONE && r < rows; r++) activate(t.c + r * p->ldc, cols, p->act);
        }
        t.a += next_rows;
        t.c += rows * p->ldc;
    }
}

void K(cpu_product)(const struct cpu_product *p)
{
    for (int col = 0; col < p->n; col += PANEL) product_panel(p, col);
}

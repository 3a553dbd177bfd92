/* kern_product.c - packed matrix products: panels of columns that stay in the first-level cache while the rows
 * stream past them (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). */
#include "kern.h"
#include "tile.h"

/* A panel of this depth and the rows of one tile fit 48 KiB of first-level cache with 16 lanes. */
#define DEPTH 256

void K(cpu_pack)(float *dst, const float *b, int k, int n, ptrdiff_t row, ptrdiff_t col)
{
    for (int first = 0; first < n; first += PANEL) {
        int cols = n - first < PANEL ? n - first : PANEL;
        for (int i = 0; i < k; i++, dst += PANEL) {
            const float *src = b + i * row + first * col;
            for (int j = 0; j < cols; j++) dst[j] = src[j * col];
            for (int j = cols; j < PANEL; j++) dst[j] = 0;
        }
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
static void product_edge(const struct cpu_product *p, struct tile t, int rows, int cols, bool last)
{
    float edge[TILE_ROWS * PANEL];
    float *c = t.c;
    ptrdiff_t ldc = t.ldc;
    if (t.add)
        for (int i = 0; i < rows; i++) memcpy(edge + i * PANEL, c + i * ldc, (size_t)cols * sizeof *c);
    for (int i = 0; t.add && i < rows; i++) memset(edge + i * PANEL + cols, 0, (size_t)(PANEL - cols) * sizeof *c);
    t.c = edge, t.ldc = PANEL;
    tile_run(&t, rows, cols > VW ? 2 : 1);
    if (last && p->act != S2_ACT_NONE)
        for (int i = 0; i < rows; i++) activate(edge + i * PANEL, cols > VW ? PANEL : VW, p->act);
    for (int i = 0; i < rows; i++) memcpy(c + i * ldc, edge + i * PANEL, (size_t)cols * sizeof *c);
}

void K(cpu_product)(const struct cpu_product *p)
{
    int blocks = (p->k + DEPTH - 1) / DEPTH, depth = blocks ? (p->k + blocks - 1) / blocks : 0;
    for (int col = 0; col < p->n; col += PANEL) {
        int cols = p->n - col < PANEL ? p->n - col : PANEL;
        const float *panel = p->b + col / PANEL * p->panel_stride;
        for (int k = 0; k < p->k; k += depth) {
            bool last = k + depth >= p->k;
            struct tile t = {.b = panel + (ptrdiff_t)k * PANEL,
                             .bias = last && p->bias ? p->bias + col : NULL,
                             .lda = p->lda,
                             .ldc = p->ldc,
                             .k = last ? p->k - k : depth,
                             .add = k > 0 || p->accumulate};
            for (int i = 0, rows; i < p->m; i += rows) {
                rows = tile_group(p->m, i);
                t.a = p->a + i * p->lda + k;
                t.c = p->c + i * p->ldc + col;
                if (cols % VW) {
                    product_edge(p, t, rows, cols, last);
                    continue;
                }
                tile_run(&t, rows, cols / VW);
                if (last && p->act != S2_ACT_NONE)
                    for (int r = 0; r < rows; r++) activate(t.c + r * p->ldc, cols, p->act);
            }
        }
    }
}

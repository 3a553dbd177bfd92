/* tile.h - the register tile that every product of the CPU backend is made of: up to TILE_ROWS rows times one
 * or two vectors of columns, accumulated over k in registers. */
#ifndef S2_CPU_TILE_H
#define S2_CPU_TILE_H

#include "vec.h"

#include <stdbool.h>
#include <stddef.h>

struct tile {
    const float *a, *b, *bias; /* b: [k][PANEL]; bias NULL: none */
    float *c;
    ptrdiff_t lda, step, ldc; /* of a: from row to row, from k to k+1 */
    int k;
    bool add;         /* c += instead of c = */
    const char *next; /* memory that the next tiles read: fetched on the way, `pace` bytes a step of k */
    ptrdiff_t pace;
};

/* Rows are reached from three pointers by lda times 0 .. REACH - 1, which takes few registers: address modes know the
 * factors 2 and 4. The compiler must not see that the pointers belong together, or it keeps an offset for every row,
 * more than there are registers. */
enum { REACH = 5 };
_Static_assert(TILE_ROWS <= 3 * REACH, "three pointers reach every row of a tile");

static inline __attribute__((always_inline)) void tile_fixed(const struct tile *t, const int rows, const int vecs)
{
    vf acc[TILE_ROWS][2];
    const ptrdiff_t lda = t->lda, step = t->step, ldc = t->ldc;
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j++) acc[i][j] = (vf){0};
    }
    const float *a[3] = {t->a, rows > REACH ? t->a + REACH * lda : t->a,
                         rows > 2 * REACH ? t->a + 2 * REACH * lda : t->a};
    const float *b = t->b;
    __asm__("" : "+r"(a[1]), "+r"(a[2]));
    const char *next = t->next;
    const ptrdiff_t pace = t->pace;
    UNROLL_TWICE
    for (int k = 0; k < t->k; k++, b += PANEL) {
        vf col[2];
        __builtin_prefetch(next, 0, 2);
        next += pace;
        UNROLL
        for (int j = 0; j < vecs; j++) col[j] = v_load(b + j * VW);
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int j = 0; j < vecs; j++) acc[i][j] += a[i / REACH][i % REACH * lda] * col[j];
        }
        a[0] += step, a[1] += step, a[2] += step;
    }
    if (t->bias) {
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int j = 0; j < vecs; j++) acc[i][j] += v_load(t->bias + j * VW);
        }
    }
    if (t->add) {
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int j = 0; j < vecs; j++) acc[i][j] += v_load(t->c + i * ldc + j * VW);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j++) v_store(t->c + i * ldc + j * VW, acc[i][j]);
    }
}

#define TILE_CASE(rows)                                                                                                \
    case rows:                                                                                                         \
        if (vecs == 1)                                                                                                 \
            tile_fixed(t, rows, 1);                                                                                    \
        else                                                                                                           \
            tile_fixed(t, rows, 2);                                                                                    \
        break;

/* rows 1 .. TILE_ROWS, vecs 1 or 2 */
static inline void tile_run(const struct tile *t, int rows, int vecs)
{
    switch (rows) {
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
#if TILE_ROWS > 6
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
        TILE_CASE(12)
#endif
#if TILE_ROWS > 12
        TILE_CASE(13)
        TILE_CASE(14)
#endif
    }
}

#undef TILE_CASE

#endif

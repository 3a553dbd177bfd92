/* amx.h - AMX tiles: sixteen rows of 64 bytes, products of bf16 with sums in f32 (Intel, "Architecture Instruction Set
 * Extensions Programming Reference", chapter 3).
 *
 * The files that use them are compiled twice, AMX_SPLIT 0 for operands rounded to bf16, 1 for float32, with
 * AMX_PARTS, the bf16 numbers that a packed number is: one, its rounding; two, hi = bf16(x) and lo = x - hi, which keep
 * 16 or 17 bits; three, hi, mid and lo, which are all 24 bits of a float. A product takes the tile products that reach
 * as far: of two parts all but lo lo, of three all but mid lo, lo mid and lo lo.
 *
 * Left operands are packed in tiles of 16 rows by 32 k:          [row tile][k step][part], each [16 rows][32 k].
 * Right operands are packed in panels of 32 columns by 32 k:     [panel][k step][part][2], each [16][16 columns][2 k].
 * A tile is 1 KiB; what is behind the last row, column or k is 0. */
#ifndef S2_CPU_AMX_H
#define S2_CPU_AMX_H

#include "kern.h"
#include "vec.h"

/* A file that wants other parts says so before. */
#ifndef AMX_PARTS
#define AMX_PARTS (AMX_SPLIT ? 3 : 1)
#endif

/* The passes over rows are those of AVX-512. */
#pragma push_macro("K")
#undef K
#define K(name) name##_avx512
#include "kern_parts.h"
#pragma pop_macro("K")

enum { AMX_ROWS = 16, AMX_K = 32, AMX_PANEL = 32, AMX_TILE = 1024 /* bytes */ };

/* Rows of a product are packed by blocks of at most so many rows and bytes, which stay in the second-level cache, and
 * at most so many k. */
enum { AMX_BLOCK = 128, AMX_LEFT_SIZE = AMX_BLOCK * 1152 * 2 * AMX_PARTS, AMX_DEEP = 2048 };
/* Local memory of the linear layer: such a block and, if weights are split on the way, two panels. */
enum { AMX_AFFINE_SIZE = AMX_LEFT_SIZE + (AMX_PARTS == 1 ? 0 : 2 * AMX_PANEL * AMX_DEEP * 2 * AMX_PARTS) };

#define AMX_INLINE static inline __attribute__((always_inline))

/* Inline assembler: the compilers' intrinsics do not tell that tiles are read from memory. */
#define AMX_LOAD(tile, p, stride)                                                                                      \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(p), "r"((ptrdiff_t)(stride)) : "memory")
#define AMX_STORE(tile, p, stride)                                                                                     \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(p), "r"((ptrdiff_t)(stride)) : "memory")
#define AMX_ZERO(tile)   __asm__ volatile("tilezero %%tmm" #tile : :)
#define AMX_MUL(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

/* Eight whole tiles; belongs to the thread until amx_end. */
AMX_INLINE void amx_begin(void)
{
    static const struct {
        uint8_t palette, start_row, unused[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = {
        .palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

AMX_INLINE void amx_end(void)
{
    __asm__ volatile("tilerelease" : :);
}

static inline int amx_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

/* bytes of packed operands */
static inline size_t amx_left_size(int rows, int k)
{
    return (size_t)amx_up(rows, AMX_ROWS) * (size_t)amx_up(k, AMX_K) * 2 * (size_t)AMX_PARTS;
}

static inline size_t amx_right_size(int columns, int k)
{
    return (size_t)amx_up(columns, AMX_PANEL) * (size_t)amx_up(k, AMX_K) * 2 * (size_t)AMX_PARTS;
}

/* Accumulators of 32 rows by 32 columns: tiles 0 1 / 2 3. */
AMX_INLINE void amx_zero(const int tall)
{
    AMX_ZERO(0);
    AMX_ZERO(1);
    if (tall == 1) return;
    AMX_ZERO(2);
    AMX_ZERO(3);
}

AMX_INLINE void amx_load(const float *c, ptrdiff_t ldc, const int tall)
{
    const ptrdiff_t stride = ldc * (ptrdiff_t)sizeof *c;
    AMX_LOAD(0, c, stride);
    AMX_LOAD(1, c + 16, stride);
    if (tall == 1) return;
    AMX_LOAD(2, c + 16 * ldc, stride);
    AMX_LOAD(3, c + 16 * ldc + 16, stride);
}

AMX_INLINE void amx_store(float *c, ptrdiff_t ldc, const int tall)
{
    const ptrdiff_t stride = ldc * (ptrdiff_t)sizeof *c;
    AMX_STORE(0, c, stride);
    AMX_STORE(1, c + 16, stride);
    if (tall == 1) return;
    AMX_STORE(2, c + 16 * ldc, stride);
    AMX_STORE(3, c + 16 * ldc + 16, stride);
}

/* Accumulators += a step of k, in AMX_PHASES calls. a0, a1: the step of two row tiles (with tall 1 only a0), b:
 * that of a panel. Callers compute some vectors after each: tiles leave one of the two vector units free, so about 64
 * vector operations a phase cost nothing, but only where they are so finely mixed. */
enum { AMX_PHASES = AMX_PARTS * (AMX_PARTS + 1) / 2 };

AMX_INLINE void amx_multiply(const int tall)
{
    AMX_MUL(0, 4, 6);
    AMX_MUL(1, 4, 7);
    if (tall == 1) return;
    AMX_MUL(2, 5, 6);
    AMX_MUL(3, 5, 7);
}

/* The parts whose product a phase takes, by AMX_PARTS; each is loaded where it follows on another. */
static const int amx_left_part[3][6] = {{0}, {0, 0, 1}, {0, 0, 0, 1, 1, 2}};
static const int amx_right_part[3][6] = {{0}, {1, 0, 0}, {2, 1, 0, 0, 1, 0}};

AMX_INLINE void amx_phase(const char *a0, const char *a1, const char *b, const int tall, const int phase)
{
    const int left = amx_left_part[AMX_PARTS - 1][phase], right = amx_right_part[AMX_PARTS - 1][phase];
    if (phase == 0 || left != amx_left_part[AMX_PARTS - 1][phase - 1]) {
        AMX_LOAD(4, a0 + left * AMX_TILE, 64);
        if (tall == 2) AMX_LOAD(5, a1 + left * AMX_TILE, 64);
    }
    if (phase == 0 || right != amx_right_part[AMX_PARTS - 1][phase - 1]) {
        AMX_LOAD(6, b + 2 * right * AMX_TILE, 64);
        AMX_LOAD(7, b + (2 * right + 1) * AMX_TILE, 64);
    }
    amx_multiply(tall);
}

/* ------------------------------------------------------------------ packing */

typedef uint16_t amx_half __attribute__((vector_size(64))); /* 32 bf16 */

/* bf16 of a's 16 numbers, then of b's. */
AMX_INLINE amx_half amx_narrow(vf a, vf b)
{
    return (amx_half)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
}

/* x to the nearest bf16, halves away from 0, as f32. Not for NaN. */
AMX_INLINE vf amx_high(vf x)
{
    return (vf)(((vi)x + 0x8000) & (int32_t)0xffff0000);
}

/* 32 numbers, a's and b's, in their parts. */
AMX_INLINE void amx_parts(amx_half part[AMX_PARTS], vf a, vf b)
{
    UNROLL
    for (int p = 0; p + 1 < AMX_PARTS; p++) {
        const vf high_a = amx_high(a), high_b = amx_high(b);
        part[p] = amx_narrow(high_a, high_b);
        a -= high_a, b -= high_b;
    }
    part[AMX_PARTS - 1] = amx_narrow(a, b);
}

/* 32 numbers of a left operand to `to`, their further parts a tile behind each. */
AMX_INLINE void amx_split(char *to, vf a, vf b)
{
    amx_half part[AMX_PARTS];
    amx_parts(part, a, b);
    UNROLL
    for (int p = 0; p < AMX_PARTS; p++) memcpy(to + p * AMX_TILE, &part[p], sizeof *part);
}

AMX_INLINE vf amx_load_part(const float *p, int n)
{
    if (n >= VW) return v_load(p);
    return (vf)_mm512_maskz_loadu_ps((__mmask16)(n > 0 ? (1u << n) - 1 : 0), p);
}

/* Left operand: `rows` rows of a from row `first` of the packed matrix on (first a multiple of 16), times s. */
AMX_INLINE void amx_pack_left(char *to, const float *a, ptrdiff_t lda, int first, int rows, int k, float s)
{
    const int steps = amx_up(k, AMX_K) / AMX_K, all = amx_up(rows, AMX_ROWS);
    const ptrdiff_t step_size = (ptrdiff_t)AMX_PARTS * AMX_TILE;
    for (int i = 0; i < all; i++, a += lda) {
        char *row = to + (ptrdiff_t)((first + i) / AMX_ROWS) * steps * step_size + (first + i) % AMX_ROWS * 64;
        int j = 0;
        for (; i < rows && j + AMX_K <= k; j += AMX_K, row += step_size)
            amx_split(row, v_load(a + j) * s, v_load(a + j + VW) * s);
        for (; j < k; j += AMX_K, row += step_size) {
            const int left = i < rows ? k - j : 0;
            amx_split(row, amx_load_part(a + j, left) * s, amx_load_part(a + j + VW, left - VW) * s);
        }
    }
}

/* Turns 16 rows of 16 words. */
AMX_INLINE void amx_turn(__m512i r[16])
{
    __m512i t[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* One step of one half panel from columns that are contiguous in memory, `col` apart: at most 16 columns of 32 k. */
AMX_INLINE void amx_pack_columns(char *to, const float *b, ptrdiff_t col, int columns, int k)
{
    __m512i turned[AMX_PARTS][16];
    UNROLL
    for (int j = 0; j < 16; j++) {
        const int left = j < columns ? k : 0;
        const float *p = j < columns ? b + j * col : b;
        amx_half part[AMX_PARTS];
        amx_parts(part, amx_load_part(p, left), amx_load_part(p + VW, left - VW));
        for (int i = 0; i < AMX_PARTS; i++) turned[i][j] = (__m512i)part[i];
    }
    UNROLL
    for (int i = 0; i < AMX_PARTS; i++) {
        amx_turn(turned[i]);
        memcpy(to + 2 * i * AMX_TILE, turned[i], sizeof *turned);
    }
}

/* Right operand whose columns are contiguous in memory: column j lies at b + j*col. */
AMX_INLINE void amx_pack_right(char *to, const float *b, ptrdiff_t col, int columns, int k)
{
    for (int j = 0; j < columns; j += AMX_PANEL)
        for (int i = 0; i < k; i += AMX_K, to += 2 * AMX_PARTS * AMX_TILE)
            for (int half = 0; half < 2; half++)
                amx_pack_columns(to + half * AMX_TILE, b + (j + 16 * half) * col + i, col, columns - j - 16 * half,
                                 k - i);
}

/* One step of a panel whose rows (values of k) are contiguous in memory, `row` apart: at most 32 rows and columns. */
AMX_INLINE void amx_pack_rows(char *to, const float *b, ptrdiff_t row, int rows, int columns)
{
    const __m512i weave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int i = 0; i < AMX_K; i += 2)
        for (int half = 0; half < 2; half++) {
            const int left = columns - 16 * half, even = i < rows ? left : 0, odd = i + 1 < rows ? left : 0;
            const float *from = b + 16 * half;
            const vf x = amx_load_part(even > 0 ? from + i * row : b, even),
                     y = amx_load_part(odd > 0 ? from + (i + 1) * row : b, odd);
            amx_half part[AMX_PARTS];
            amx_parts(part, x, y);
            for (int p = 0; p < AMX_PARTS; p++) {
                const __m512i pairs = _mm512_permutexvar_epi16(weave, (__m512i)part[p]);
                memcpy(to + (2 * p + half) * AMX_TILE + i / 2 * 64, &pairs, sizeof pairs);
            }
        }
}

#endif

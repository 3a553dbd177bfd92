/* kern_image.c - the two passes of Pillow's 8-bit resampling; integers, so that every instruction set gives the same
 * bytes. */
#include "kern.h"

#include <string.h>

#ifdef __SSE4_1__
#include <immintrin.h>
#endif

typedef int32_t pixel __attribute__((vector_size(16))); /* RGB and unused */

static inline pixel widen(uint32_t rgb)
{
#ifdef __SSE4_1__
    return (pixel)_mm_cvtepu8_epi32(_mm_cvtsi32_si128((int32_t)rgb));
#else
    return (pixel){rgb & 255, rgb >> 8 & 255, rgb >> 16 & 255, 0};
#endif
}

/* A pixel and the first byte of the next. */
static inline pixel load(const uint8_t *from)
{
    uint32_t rgb;
    memcpy(&rgb, from, sizeof rgb);
    return widen(rgb);
}

/* The last pixel of a row may be the last three bytes of the picture. */
static inline pixel load_last(const uint8_t *from)
{
    return widen((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16);
}

static inline void store(uint8_t *to, pixel sum)
{
#ifdef __SSE4_1__
    const __m128i v = (__m128i)(sum >> S2I_BICUBIC_BITS), half = _mm_packs_epi32(v, v);
    const int32_t all = _mm_cvtsi128_si32(_mm_packus_epi16(half, half));
    memcpy(to, &all, 3);
#else
    for (int c = 0; c < 3; c++) to[c] = s2i_bicubic_clip(sum[c]);
#endif
}

/* Four rows side by side: the loops are short, and their lengths change from pixel to pixel. */
void K(cpu_resample_across)(uint8_t *dst, ptrdiff_t dst_pitch, const uint8_t *src, ptrdiff_t src_pitch, int rows,
                            const struct cpu_axis *a)
{
    enum { ROWS = 4 };
    const int32_t half = 1 << (S2I_BICUBIC_BITS - 1);
    const uint8_t *row[ROWS];
    for (int r = 0; r < ROWS; r++) row[r] = src + (r < rows ? r : rows - 1) * src_pitch;
    for (int i = 0; i < a->out; i++) {
        const int32_t *coef = a->coef + (ptrdiff_t)i * a->taps;
        const int last = a->count[i] - 1;
        ptrdiff_t at = (ptrdiff_t)a->first[i] * 3;
        pixel sum[ROWS];
        for (int r = 0; r < ROWS; r++) sum[r] = coef[last] * load_last(row[r] + at + 3 * last) + half;
        for (int j = 0; j < last; j++, at += 3)
            for (int r = 0; r < ROWS; r++) sum[r] += coef[j] * load(row[r] + at);
        for (int r = 0; r < rows; r++) store(dst + r * dst_pitch + 3 * i, sum[r]);
    }
}

void K(cpu_resample_down)(uint8_t *dst, const uint8_t *src, ptrdiff_t pitch, int bytes, const struct cpu_axis *a, int i)
{
    enum { RUN = 64 };
    const int32_t *coef = a->coef + (ptrdiff_t)i * a->taps;
    src += a->first[i] * pitch;
    for (int x = 0; x < bytes; x += RUN) {
        const int run = bytes - x < RUN ? bytes - x : RUN;
        int32_t sum[RUN];
        for (int b = 0; b < RUN; b++) sum[b] = 1 << (S2I_BICUBIC_BITS - 1);
        for (int j = 0; j < a->count[i]; j++) {
            const uint8_t *from = src + j * pitch + x;
            if (run == RUN)
                for (int b = 0; b < RUN; b++) sum[b] += from[b] * coef[j];
            else
                for (int b = 0; b < run; b++) sum[b] += from[b] * coef[j];
        }
        for (int b = 0; b < run; b++) dst[x + b] = s2i_bicubic_clip(sum[b]);
    }
}

/* kern_image.c - the two passes of Pillow's 8-bit resampling; integers, so every instruction set gives the same bytes. */
#include "kern.h"

#include <string.h>

#include "../common.h"

typedef int32_t pixel __attribute__((vector_size(16)));

void K(cpu_resample_across)(uint8_t *dst, const uint8_t *src, const struct cpu_axis *a)
{
    const int32_t half = 1 << (S2I_BICUBIC_BITS - 1);
    for (int i = 0; i < a->out; i++, dst += 3) {
        const uint8_t *from = src + (ptrdiff_t)a->first[i] * 3;
        const int32_t *coef = a->coef + (ptrdiff_t)i * a->taps;
        pixel sum = {half, half, half, 0};
        for (int j = 0; j < a->count[i]; j++, from += 3) sum += coef[j] * (pixel){from[0], from[1], from[2], 0};
        for (int c = 0; c < 3; c++) dst[c] = s2i_bicubic_clip(sum[c]);
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

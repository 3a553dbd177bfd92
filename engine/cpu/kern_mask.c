/* kern_mask.c - logits at the size of the video: torch's bilinear interpolation row by row, its signs as bits.
 *
 * A logit near zero decides a bit, so products and sums are rounded one by one in the order of torch's kernel: no
 * fused multiply-add in this file. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "kern.h"

#include <string.h>

void K(cpu_lerp_across)(float *to, const float *from, const struct s2i_tap *tap, int width)
{
    for (int x = 0; x < width; x++) to[x] = tap[x].lambda0 * from[tap[x].i0] + tap[x].lambda1 * from[tap[x].i1];
}

void K(cpu_lerp_down)(float *to, const float *above, const float *below, float lambda0, float lambda1, int width)
{
    for (int x = 0; x < width; x++) to[x] = lambda0 * above[x] + lambda1 * below[x];
}

/* Eight bytes of 0 or 1 become the bits of one, the first in the highest: the product moves byte i of the
 * little-endian word to bit 63 - i. */
static inline uint8_t bits_of(const uint8_t *set)
{
    uint64_t bytes;
    memcpy(&bytes, set, sizeof bytes);
    return (uint8_t)(bytes * UINT64_C(0x8040201008040201) >> 56);
}

void K(cpu_pack_bits)(uint8_t *bits, size_t stride, const uint8_t *set, int width)
{
    memset(bits, 0, stride);
    int x = 0;
    for (; x + 8 <= width; x += 8) bits[x / 8] = bits_of(set + x);
    for (; x < width; x++) bits[x / 8] |= (uint8_t)(set[x] << (7 - x % 8));
}

void K(cpu_positive)(uint8_t *set, const float *row, int width)
{
    for (int x = 0; x < width; x++) set[x] = row[x] > 0;
}

void K(cpu_owned)(uint8_t *set, const uint16_t *owner, int index, int width)
{
    for (int x = 0; x < width; x++) set[x] = owner[x] == index;
}

void K(cpu_own)(uint16_t *owner, float *largest, const float *row, int index, int width)
{
    for (int x = 0; x < width; x++) owner[x] = row[x] > largest[x] ? (uint16_t)index : owner[x];
    for (int x = 0; x < width; x++) largest[x] = row[x] > largest[x] ? row[x] : largest[x];
}

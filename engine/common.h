/* common.h - small pieces that more than one backend uses: exact resampling tables, hole filling.
 * Nothing here allocates; the caller supplies scratch memory. */
#ifndef S2_COMMON_H
#define S2_COMMON_H

#include "base.h"

/* --- Pillow's 8-bit bicubic (src/libImaging/Resample.c), one axis from `in` to `out` samples. Output i is
 *     clip((2^21 + sum over j < count[i] of src[first[i] + j] * coef[i * taps + j]) >> 22), j ascending. */
#define S2I_BICUBIC_BITS 22

int s2i_bicubic_taps(int in, int out); /* the largest count[i] */
/* first, count: [out]; coef: [out][taps], unused ones 0 */
void s2i_bicubic_table(int in, int out, int32_t *first, int32_t *count, int32_t *coef);
/* Image.resize goes vertically first for very tall frames only (Pillow up to 12.3). */
bool s2i_bicubic_vertical_first(int width, int height, int size);

static inline uint8_t s2i_bicubic_clip(int32_t sum)
{
    const int32_t v = sum >> S2I_BICUBIC_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* What a channel's 8-bit value becomes for the model: ((float)(v / 255.0) - mean) / std in f32, ImageNet's
 * mean and deviation, RGB. */
void s2i_normalised_levels(float table[3][256]);

/* --- torch bilinear, align_corners = False, no antialias (UpSampleKernel.cpp): output i of `out` is
 *     (1 - lambda) * src[i0] + lambda * src[i1]; in f32, as torch has it */
struct s2i_tap {
    int32_t i0, i1;
    float lambda0, lambda1;
};
struct s2i_tap s2i_bilinear_tap(int in, int out, int i);
/* The value of a map at two taps: rows of `width` floats. */
static inline float s2i_bilinear_at(const float *map, int width, struct s2i_tap y, struct s2i_tap x)
{
    const float *r0 = map + (size_t)y.i0 * (size_t)width, *r1 = map + (size_t)y.i1 * (size_t)width;
    return y.lambda0 * (x.lambda0 * r0[x.i0] + x.lambda1 * r0[x.i1]) +
           y.lambda1 * (x.lambda0 * r1[x.i0] + x.lambda1 * r1[x.i1]);
}

/* --- hole filling: 8-connected components of {x <= 0} of at most `area` pixels become 0.1, the rest is
 *     copied. y may be x. scratch: int32 [width * height]. */
void s2i_fill_holes(float *y, const float *x, int width, int height, int area, int32_t *scratch);

/* --- the argument of channel i and half + i of get_1d_sine_pe (sam2_utils.py) for a position, in f32 as
 *     there: channel i is its sine, half + i its cosine; every frequency appears twice. */
float s2i_sine_argument(float position, int i, int half);

#endif

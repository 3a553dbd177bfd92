/* half.c - 16-bit numbers: conversion and spacing */
#include "kcheck.h"

#include <math.h>
#include <string.h>

/* to nearest even; NaN stays NaN */
static uint16_t to_f16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const uint32_t sign = u >> 16 & 0x8000, size = u & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520: a tie between 65504 and what does not exist */
    if (size < 0x38800000) return (uint16_t)(sign | (uint32_t)lrintf(fabsf(x) * 0x1p24f)); /* subnormal */
    return (uint16_t)(sign | (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13);
}

void kc_narrow(void *to, const float *from, size_t n, enum s2_dtype type)
{
    if (type == S2_F32) memcpy(to, from, n * sizeof *from);
    for (size_t i = 0; i < n && type != S2_F32; i++) {
        ((uint16_t *)to)[i] = type == S2_BF16 ? s2_bf16(from[i]) : to_f16(from[i]);
    }
}

float kc_widened(const void *v, size_t i, enum s2_dtype type)
{
    if (type == S2_F32) return ((const float *)v)[i];
    const uint16_t narrow = ((const uint16_t *)v)[i];
    return type == S2_BF16 ? s2_from_bf16(narrow) : s2_from_f16(narrow);
}

float kc_rounded(float x, enum s2_dtype type)
{
    if (type == S2_F32) return x;
    uint16_t narrow;
    kc_narrow(&narrow, &x, 1, type);
    return kc_widened(&narrow, 0, type);
}

double kc_half_ulp(float x, enum s2_dtype type)
{
    int exponent = 0;
    if (type == S2_F32 || isinf(x)) return 0;
    frexp((double)x, &exponent);
    /* 8 bits of significand, and 11 down to the smallest normal number, 2^-14 */
    return type == S2_BF16 ? ldexp(1, exponent - 9) : ldexp(1, (exponent < -13 ? -13 : exponent) - 12);
}

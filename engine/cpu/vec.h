/* vec.h - vectors of the instruction set a kernel file is compiled for, and the functions on them that
 * more than one kernel needs. GCC vector extensions; intrinsics only where the extension has no word. */
#ifndef S2_CPU_VEC_H
#define S2_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#if defined(ISA_avx512)
#include <immintrin.h>
#define VW        16 /* lanes */
#define TILE_ROWS 14 /* rows x 2 vectors of accumulators fill the register file */
#elif defined(ISA_avx2)
#include <immintrin.h>
#define VW        8
#define TILE_ROWS 6
#elif defined(__aarch64__)
#define VW        4
#define TILE_ROWS 12
#else
#define VW        4
#define TILE_ROWS 6
#endif
#define PANEL (2 * VW) /* columns of a packed panel */

/* The following loop of constant length is written out, so that arrays of vectors become registers. */
#ifdef __clang__
#define UNROLL       _Pragma("clang loop unroll(full)")
#define UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#else
#define UNROLL       _Pragma("GCC unroll 16")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#endif

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
typedef uint16_t vh __attribute__((vector_size(VW * 2)));

static inline vf v_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void v_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

static inline vf v_set(float x)
{
    return x - (vf){0};
}

/* the first n < VW floats, zeros behind */
static inline vf v_load_part(const float *p, size_t n)
{
    vf v = {0};
    for (size_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}

static inline void v_store_part(float *p, vf v, size_t n)
{
    for (size_t i = 0; i < n; i++) p[i] = v[i];
}

static inline vf v_select(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

static inline vf v_max(vf a, vf b)
{
#if defined(ISA_avx512)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(ISA_avx2)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return v_select(a > b, a, b);
#endif
}

static inline vf v_min(vf a, vf b)
{
#if defined(ISA_avx512)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(ISA_avx2)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return v_select(a < b, a, b);
#endif
}

static inline vf v_abs(vf a)
{
    return (vf)((vi)a & 0x7fffffff);
}

static inline float v_sum(vf v)
{
#if defined(ISA_avx512)
    return _mm512_reduce_add_ps((__m512)v);
#else
    for (int half = VW / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v[i] += v[i + half];
    return v[0];
#endif
}

static inline float v_largest(vf v)
{
#if defined(ISA_avx512)
    return _mm512_reduce_max_ps((__m512)v);
#else
    for (int half = VW / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
    return v[0];
#endif
}

/* 2^x to 2e-9 relative before rounding, for x <= 127; everything below -126 gives about 2^-126.
 * 2^x = 2^n 2^r, n the nearest integer; the polynomial is a minimax fit of 2^r on [-1/2, 1/2]. */
static inline vf v_exp2(vf x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    x = v_max(x, v_set(-126.0f));
    vf t = x + round;
    vf r = x - (t - round);
    vf p = v_set(1.5353362e-4f);
    p = p * r + 1.3398875e-3f;
    p = p * r + 9.618437e-3f;
    p = p * r + 5.5503324e-2f;
    p = p * r + 2.4022648e-1f;
    p = p * r + 6.9314718e-1f;
    p = p * r + 1.0f;
    return (vf)((vi)p + ((vi)t << 23));
}

/* x Phi(x), Phi the normal distribution function, exact erf form: max(x, 0) - |x|/2 erfc(|x|/sqrt 2), with
 * erfc(a/sqrt 2) = 2^-(a P(a)); P a minimax fit that leaves 9e-9 absolute in the result. */
static inline vf v_gelu(vf x)
{
    vf a = v_min(v_abs(x), v_set(9.0f));
    vf p = v_set(1.9020637e-6f);
    p = p * a - 2.8056918e-5f;
    p = p * a + 1.3147312e-4f;
    p = p * a + 2.7207597e-4f;
    p = p * a - 7.2454214e-3f;
    p = p * a + 5.2627612e-2f;
    p = p * a + 4.5916215e-1f;
    p = p * a + 1.1511110f;
    return v_max(x, v_set(0)) - 0.5f * v_abs(x) * v_exp2(-(a * p));
}

static inline vf v_sigmoid(vf x)
{
    const float log2e = 1.44269504f;
    return 1.0f / (1.0f + v_exp2(v_min(-log2e * x, v_set(126.0f))));
}

#endif

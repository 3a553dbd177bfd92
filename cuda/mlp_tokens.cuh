/* mlp_tokens.cuh - what the kernels of mlp.cuh do with the channels of their tokens, in registers: read, normalise,
 * activate, add, write.
 *
 * Channels come in the order of mlp_channel: that way the channels of a thread, which in wgmma's order are pairs eight
 * apart, are neighbours in device memory, and tokens are read and written in pieces of 16 bytes without a stop in
 * shared memory. */
#ifndef S2_MLP_TOKENS_CUH
#define S2_MLP_TOKENS_CUH

#include "cu.cuh"

/* Of `all` channels, a multiple of 16, the one at place i of an operand. Within 32, or 16 at the end: pair t of the two
 * of lane q in wgmma's order is pair t of the lane's neighbouring ones. */
__device__ __forceinline__ int mlp_channel(int i, int all)
{
    const int width = i < all / 32 * 32 ? 32 : 16, in = i % width;
    return i - in + width / 4 * (in % 8 / 2) + in / 8 * 2 + in % 2;
}

template <class T> struct mlp_pair;
template <> struct mlp_pair<__nv_bfloat16> {
    static __device__ __forceinline__ uint32_t pack(float a, float b)
    {
        const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
        return *(const uint32_t *)&v;
    }
    static __device__ __forceinline__ float2 unpack(uint32_t v)
    {
        return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000));
    }
};
template <> struct mlp_pair<__half> {
    static __device__ __forceinline__ uint32_t pack(float a, float b)
    {
        const __half2 v = __floats2half2_rn(a, b);
        return *(const uint32_t *)&v;
    }
    static __device__ __forceinline__ float2 unpack(uint32_t v) { return __half22float2(*(__half2 *)&v); }
};

/* 1 / Phi(x), Phi the normal distribution, which is the logistic function of x q(x^2): the polynomial misses Phi by
 * 1.5e-6 at most (fitted on 0 .. 6). Below -6 Phi is as at -6, 1e-9. */
__device__ __forceinline__ float mlp_inverse_phi(float x)
{
    const float c = fmaxf(x, -6.0f), s = c * c;
    float q = fmaf(s, -4.093543477602894e-06f, 0.0001056137483540827f), e;
    q = fmaf(s, q, 0.00025450874063642445f), q = fmaf(s, q, -0.10500739343872337f);
    q = fmaf(s, q, -2.3021649294034687f);
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(c * q));
    return 1.0f + e;
}

/* GELU in the erf form, of two numbers with one reciprocal */
__device__ __forceinline__ void mlp_gelu(float &x, float &y)
{
    const float a = mlp_inverse_phi(x), b = mlp_inverse_phi(y);
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a * b));
    x *= b * r, y *= a * r;
}

/* h = act(h + bias), bias of the chunk */
template <int CHUNK>
__device__ __forceinline__ void mlp_activate(float (&h)[CHUNK / 8][4], const float *bias, enum s2_act act, int lane)
{
#pragma unroll
    for (int m = 0; m < CHUNK / 32; m++) {
        const cu_piece<float, 8> b = *(const cu_piece<float, 8> *)(bias + 32 * m + lane % 4 * 8);
#pragma unroll
        for (int i = 0; i < 16; i++) h[4 * m + i / 4][i % 4] += b.v[i / 4 * 2 + i % 2];
    }
    if (CHUNK % 32) {
        const cu_piece<float, 4> b = *(const cu_piece<float, 4> *)(bias + CHUNK / 32 * 32 + lane % 4 * 4);
#pragma unroll
        for (int i = 0; i < 8; i++) h[CHUNK / 32 * 4 + i / 4][i % 4] += b.v[i / 4 * 2 + i % 2];
    }
    if (act == S2_ACT_GELU) {
#pragma unroll
        for (int i = 0; i < CHUNK / 4; i++) mlp_gelu(h[i / 2][i % 2 * 2], h[i / 2][i % 2 * 2 + 1]);
    } else if (act == S2_ACT_RELU) {
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) h[i / 4][i % 4] = fmaxf(h[i / 4][i % 4], 0.0f);
    }
}

/* The channel of the first of pair i of a lane's, which accumulators have in tile i */
template <int C> __device__ __forceinline__ int mlp_at(int i, int lane)
{
    return i < C / 32 * 4 ? i / 4 * 32 + lane % 4 * 8 + i % 4 * 2 : C / 32 * 32 + lane % 4 * 4 + i % 4 * 2;
}

/* C channels of 16 tokens at x, of which `left` are there, as left operand: pair i of token lane / 4 + 8 half is
 * a[i / 2][i % 2 * 2 + half]. */
template <class T, int C>
__device__ __forceinline__ void mlp_read(uint32_t (&a)[C / 16][4], const T *x, int ld, int left, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = lane / 4 + 8 * half;
        const bool there = row < left;
        const T *const from = x + (int64_t)row * ld;
#pragma unroll
        for (int m = 0; m < C / 32; m++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (there) v = *(const uint4 *)(from + 32 * m + lane % 4 * 8);
            a[2 * m][half] = v.x, a[2 * m][2 + half] = v.y, a[2 * m + 1][half] = v.z, a[2 * m + 1][2 + half] = v.w;
        }
        if (C % 32) {
            uint2 v = make_uint2(0, 0);
            if (there) v = *(const uint2 *)(from + C / 32 * 32 + lane % 4 * 4);
            a[C / 16 - 1][half] = v.x, a[C / 16 - 1][2 + half] = v.y;
        }
    }
}

/* 16 bytes at once, which the compiler may take apart to spare moves */
__device__ __forceinline__ void mlp_store(void *to, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

template <class T, int C>
__device__ __forceinline__ void mlp_write(T *y, int ld, int left, const uint32_t (&a)[C / 16][4], int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = lane / 4 + 8 * half;
        T *const to = y + (int64_t)row * ld;
        if (row >= left) continue;
#pragma unroll
        for (int m = 0; m < C / 32; m++) {
            mlp_store(to + 32 * m + lane % 4 * 8, a[2 * m][half], a[2 * m][2 + half], a[2 * m + 1][half],
                      a[2 * m + 1][2 + half]);
        }
        if (C % 32)
            *(uint2 *)(to + C / 32 * 32 + lane % 4 * 4) = make_uint2(a[C / 16 - 1][half], a[C / 16 - 1][2 + half]);
    }
}

/* scale, shift: of all channels, in shared memory */
template <class T, int C>
__device__ __forceinline__ void mlp_normalise(uint32_t (&a)[C / 16][4], const float *scale, const float *shift,
                                              float eps, int lane, uint32_t nothing)
{
    /* nothing is added, which the compiler does not know: it would keep all channels widened from pass to pass */
    const auto packed = [&](int half) {
        if constexpr (C >= 384) {
#pragma unroll
            for (int i = 0; i < C / 8; i++) a[i / 2][i % 2 * 2 + half] += nothing;
        }
    };
    float mean[2], factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float2 sum = {}, square = {};
#pragma unroll
        for (int i = 0; i < C / 8; i++) {
            const float2 v = mlp_pair<T>::unpack(a[i / 2][i % 2 * 2 + half]);
            sum.x += v.x, sum.y += v.y;
        }
        mean[half] = cu_lanes_sum<4>(sum.x + sum.y) * (1.0f / C);
        packed(half);
#pragma unroll
        for (int i = 0; i < C / 8; i++) {
            const float2 v = mlp_pair<T>::unpack(a[i / 2][i % 2 * 2 + half]);
            const float x = v.x - mean[half], y = v.y - mean[half];
            square.x = fmaf(x, x, square.x), square.y = fmaf(y, y, square.y);
        }
        factor[half] = rsqrtf(cu_lanes_sum<4>(square.x + square.y) * (1.0f / C) + eps);
        packed(half);
    }
#pragma unroll
    for (int i = 0; i < C / 8; i++) {
        const float2 w = *(const float2 *)(scale + mlp_at<C>(i, lane)),
                     b = *(const float2 *)(shift + mlp_at<C>(i, lane));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t &to = a[i / 2][i % 2 * 2 + half];
            const float2 v = mlp_pair<T>::unpack(to);
            to = mlp_pair<T>::pack((v.x - mean[half]) * factor[half] * w.x + b.x,
                                   (v.y - mean[half]) * factor[half] * w.y + b.y);
        }
        if (i % 8 == 7) asm volatile("" ::: "memory"); /* so many weights at once */
    }
}

/* a += y + bias */
template <class T, int C>
__device__ __forceinline__ void mlp_add(uint32_t (&a)[C / 16][4], const float (*y)[4], const float *bias, int lane)
{
#pragma unroll
    for (int i = 0; i < C / 8; i++) {
        const float2 b = *(const float2 *)(bias + mlp_at<C>(i, lane));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 v = mlp_pair<T>::unpack(a[i / 2][i % 2 * 2 + half]);
            a[i / 2][i % 2 * 2 + half] =
                mlp_pair<T>::pack(v.x + (y[i][2 * half] + b.x), v.y + (y[i][2 * half + 1] + b.y));
        }
    }
}

/* Accumulators as left operand */
template <class T, int C>
__device__ __forceinline__ void mlp_narrow(uint32_t (&a)[C / 16][4], const float (&h)[C / 8][4])
{
#pragma unroll
    for (int i = 0; i < C / 4; i++) a[i / 4][i % 4] = mlp_pair<T>::pack(h[i / 2][i % 2 * 2], h[i / 2][i % 2 * 2 + 1]);
}

/* y = h + bias, or GELU of it, for CHANNELS of the channels of a chunk. bias in shared memory */
template <class T, int CHANNELS, bool GELU>
__device__ __forceinline__ void mlp_finish_part(T *y, int ld, int left, float (*h)[4], const float *bias, int lane)
{
    float(&part)[CHANNELS / 8][4] = *(float(*)[CHANNELS / 8][4]) h;
    uint32_t r[CHANNELS / 16][4];
    mlp_activate<CHANNELS>(part, bias, GELU ? S2_ACT_GELU : S2_ACT_NONE, lane);
    mlp_narrow<T, CHANNELS>(r, part);
    mlp_write<T, CHANNELS>(y, ld, left, r, lane);
}

/* The same for a chunk, 32 channels at a time so that few registers are in use. */
template <class T, int CHUNK, bool GELU>
__device__ __forceinline__ void mlp_finish(T *y, int ld, int left, float (&h)[CHUNK / 8][4], const float *bias,
                                           int lane)
{
#pragma unroll
    for (int m = 0; m < CHUNK / 32; m++)
        mlp_finish_part<T, 32, GELU>(y + 32 * m, ld, left, h + 4 * m, bias + 32 * m, lane);
    constexpr int whole = CHUNK / 32 * 32;
    if constexpr (CHUNK % 32 > 0)
        mlp_finish_part<T, CHUNK % 32, GELU>(y + whole, ld, left, h + whole / 8, bias + whole, lane);
}

#endif

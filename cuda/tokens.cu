/* tokens.cu - operators on tokens: norms, sums, rotations, copies. */
#include <cmath>

#include "cu.cuh"

/* ------------------------------------------------------------------ layer norm: one warp a token */

__device__ __forceinline__ float warp_sum(float v)
{
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

enum { NORM_WARPS = 8 };

/* Values stay in registers where c <= 32 * KEEP; the variance is taken around the mean, in two passes. */
template <class T, int KEEP>
__global__ void layer_norm(T *y, const T *x, int ldy, int ldx, const float *weight, const float *bias, int c, float eps, int64_t n, enum s2_act act)
{
    int64_t token = (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (token >= n) return;
    const T *from = x + token * ldx;
    T *to = y + token * ldy;
    float v[KEEP], sum = 0;
#pragma unroll
    for (int i = 0; i < KEEP; i++) {
        int ch = lane + 32 * i;
        v[i] = ch < c ? cu_f32(from[ch]) : 0;
        sum += v[i];
    }
    float mean = warp_sum(sum) / (float)c, square = 0;
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (lane + 32 * i < c) square += (v[i] - mean) * (v[i] - mean);
    float scale = rsqrtf(warp_sum(square) / (float)c + eps);
#pragma unroll
    for (int i = 0; i < KEEP; i++) {
        int ch = lane + 32 * i;
        if (ch < c) to[ch] = cu_to<T>(cu_act((v[i] - mean) * scale * weight[ch] + bias[ch], act));
    }
}

void cu_layer_norm(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm, enum s2_act act)
{
    if (be->skip) return;
    int64_t n = s2_tokens(x);
    int keep = (norm->c + 31) / 32, blocks = cu_blocks(n, NORM_WARPS);
    cudaStream_t s = cu_of(be)->stream;
#define NORM(K) layer_norm<T, K><<<blocks, 32 * NORM_WARPS, 0, s>>>((T *)y.data, (const T *)x.data, y.ld, x.ld, norm->weight, norm->bias, norm->c, norm->eps, n, act)
    CU_BY_TYPE(x.dtype, T, {
        if (keep <= 1) NORM(1);
        else if (keep <= 4) NORM(4);
        else if (keep <= 8) NORM(8);
        else if (keep <= 12) NORM(12);
        else if (keep <= 24) NORM(24);
        else if (keep <= 36) NORM(36);
        else s2_backend_fail(be, S2_E_INTERNAL, "a layer norm over %d channels", norm->c);
    });
#undef NORM
    CU_LAUNCHED(be, "layer_norm");
}

/* ------------------------------------------------------------------ element by element */

template <class T> __global__ void max_pool2(T *y, const T *x, int h, int w, int c, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int ch = (int)(i % c), X = (int)(i / c % (w / 2)), Y = (int)(i / c / (w / 2) % (h / 2));
    int64_t b = i / c / (w / 2) / (h / 2), at = ((b * h + 2 * Y) * w + 2 * X) * c + ch;
    float v = fmaxf(fmaxf(cu_f32(x[at]), cu_f32(x[at + c])), fmaxf(cu_f32(x[at + (int64_t)w * c]), cu_f32(x[at + (int64_t)(w + 1) * c])));
    y[i] = cu_to<T>(v);
}

void cu_max_pool2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    if (be->skip) return;
    int64_t n = s2_elements(y);
    CU_BY_TYPE(y.dtype, T, max_pool2<T><<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((T *)y.data, (const T *)x.data, x.h, x.w, x.c, n));
    CU_LAUNCHED(be, "max_pool2");
}

template <class T> __global__ void upsample2_add(T *y, const T *x, int h, int w, int c, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int ch = (int)(i % c), X = (int)(i / c % (2 * w)), Y = (int)(i / c / (2 * w) % (2 * h));
    int64_t b = i / c / (2 * w) / (2 * h);
    y[i] = cu_to<T>(cu_f32(y[i]) + cu_f32(x[((b * h + Y / 2) * w + X / 2) * c + ch]));
}

void cu_upsample2_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    if (be->skip) return;
    int64_t n = s2_elements(y);
    CU_BY_TYPE(y.dtype, T, upsample2_add<T><<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((T *)y.data, (const T *)x.data, x.h, x.w, x.c, n));
    CU_LAUNCHED(be, "upsample2_add");
}

/* one = elements of one batch entry; a and b broadcast as the contract says */
template <class T> __global__ void add(T *y, const T *a, const T *b, float s, int64_t n, int64_t one, int c, bool a_once, bool b_once, bool b_token)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t ib = b_token ? (b_once ? 0 : i / one * c) + i % c : b_once ? i % one : i;
    y[i] = cu_to<T>(cu_f32(a[a_once ? i % one : i]) + s * cu_f32(b[ib]));
}

void cu_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s)
{
    if (be->skip) return;
    int64_t n = s2_elements(y), one = n / y.n;
    bool token = b.h == 1 && b.w == 1 && (y.h > 1 || y.w > 1);
    CU_BY_TYPE(y.dtype, T, add<T><<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((T *)y.data, (const T *)a.data, (const T *)b.data, s, n, one, y.c, a.n == 1, b.n == 1, token));
    CU_LAUNCHED(be, "add");
}

template <class T> __global__ void rope(T *x, int ld, const float2 *table, int tokens, int pairs, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int p = (int)(i % pairs);
    int64_t token = i / pairs;
    T *at = x + token * ld + 2 * p;
    float2 turn = table[token % tokens * pairs + p];
    float a = cu_f32(at[0]), b = cu_f32(at[1]);
    at[0] = cu_to<T>(a * turn.x - b * turn.y);
    at[1] = cu_to<T>(a * turn.y + b * turn.x);
}

void cu_rope(struct s2_backend *be, struct s2_tensor x, const float *table)
{
    if (be->skip) return;
    int64_t n = s2_tokens(x) * (x.c / 2);
    CU_BY_TYPE(x.dtype, T, rope<T><<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((T *)x.data, x.ld, (const float2 *)table, x.h * x.w, x.c / 2, n));
    CU_LAUNCHED(be, "rope");
}

template <class T> __global__ void take(T *y, const T *x, int count, int tokens, int first, int c, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t b = i / c / count;
    y[i] = x[(b * tokens + first + i / c % count) * c + i % c];
}

void cu_take(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int first)
{
    if (be->skip) return;
    int64_t n = s2_elements(y);
    CU_BY_TYPE(y.dtype, T, take<T><<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((T *)y.data, (const T *)x.data, y.w, x.h * x.w, first, y.c, n));
    CU_LAUNCHED(be, "take");
}

template <class T> __global__ void concat(T *y, const T *a, const T *b, int wa, int wb, int c, bool a_once, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int token = (int)(i / c % (wa + wb));
    int64_t e = i / c / (wa + wb), ch = i % c;
    y[i] = token < wa ? a[((a_once ? 0 : e) * wa + token) * c + ch] : b[(e * wb + token - wa) * c + ch];
}

void cu_concat(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b)
{
    if (be->skip) return;
    int64_t n = s2_elements(y);
    CU_BY_TYPE(y.dtype, T, concat<T><<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((T *)y.data, (const T *)a.data, (const T *)b.data, a.w, b.w, y.c, a.n == 1, n));
    CU_LAUNCHED(be, "concat");
}

__global__ void scatter(float *y, const float *x, const int32_t *index, int64_t one, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int to = index[i / one];
    if (to >= 0) y[to * one + i % one] = x[i];
}

void cu_scatter(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const int32_t *index)
{
    if (be->skip) return;
    int64_t n = s2_elements(x);
    scatter<<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((float *)y.data, (const float *)x.data, index, n / x.n, n);
    CU_LAUNCHED(be, "scatter");
}

/* ------------------------------------------------------------------ prompts and absence */

/* One block of 128 threads a point: sine and cosine of one random frequency each */
template <class T> __global__ void point_tokens(T *y, const float *points, const float *gauss, const float *embed, float size)
{
    const float *p = points + 3 * (int64_t)blockIdx.x;
    int c = threadIdx.x, label = (int)p[2];
    T *to = y + 256 * (int64_t)blockIdx.x;
    if (label < 0) {
        to[c] = cu_to<T>(embed[4 * 256 + c]);
        to[128 + c] = cu_to<T>(embed[4 * 256 + 128 + c]);
        return;
    }
    float u = 2.0f * ((p[0] + 0.5f) / size) - 1.0f, v = 2.0f * ((p[1] + 0.5f) / size) - 1.0f;
    float z = 6.283185307179586f * (u * gauss[c] + v * gauss[128 + c]);
    const float *e = label <= 3 ? embed + 256 * label : NULL;
    to[c] = cu_to<T>(sinf(z) + (e ? e[c] : 0));
    to[128 + c] = cu_to<T>(cosf(z) + (e ? e[128 + c] : 0));
}

void cu_point_tokens(struct s2_backend *be, struct s2_tensor y, const float *points, const float *gauss, const float *embed, int size)
{
    if (be->skip || s2_tokens(y) == 0) return;
    CU_BY_TYPE(y.dtype, T, point_tokens<T><<<(int)s2_tokens(y), 128, 0, cu_of(be)->stream>>>((T *)y.data, points, gauss, embed, (float)size));
    CU_LAUNCHED(be, "point_tokens");
}

template <class T> __global__ void where_absent(T *x, const float *score, const float *vec, bool replace, int c, int64_t one, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && score[i / one] <= 0) x[i] = cu_to<T>((replace ? 0.0f : cu_f32(x[i])) + vec[i % c]);
}

void cu_where_absent(struct s2_backend *be, struct s2_tensor x, struct s2_tensor score, const float *vec, bool replace)
{
    if (be->skip) return;
    int64_t n = s2_elements(x);
    CU_BY_TYPE(x.dtype, T, where_absent<T><<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((T *)x.data, (const float *)score.data, vec, replace, x.c, n / x.n, n));
    CU_LAUNCHED(be, "where_absent");
}

template <class T> __global__ void clamp(T *y, const float *x, float lo, float hi, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = cu_to<T>(fminf(fmaxf(x[i], lo), hi));
}

void cu_clamp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, float lo, float hi)
{
    if (be->skip) return;
    int64_t n = s2_elements(y);
    CU_BY_TYPE(y.dtype, T, clamp<T><<<cu_blocks(n, 256), 256, 0, cu_of(be)->stream>>>((T *)y.data, (const float *)x.data, lo, hi, n));
    CU_LAUNCHED(be, "clamp");
}

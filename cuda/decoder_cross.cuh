/* decoder_cross.cuh - what the two kernels of attention between tokens and the image share; see decoder.cuh.
 *
 * There are 8 tokens and thousands of pixels, so pixels are not multiplied by a layer: of scores q (W x + b), q W is
 * taken first, and b, the same for all pixels, has no effect on the softmax; of results sum p (W x + b), the sum of
 * p x. Each head of each token becomes a row of 256 channels, 64 rows in all, which meet tiles of pixels on tensor
 * cores. The other way, tokens are the keys and values, and the layers of queries and output are taken to them
 * likewise. */
#ifndef S2_DECODER_CROSS_CUH
#define S2_DECODER_CROSS_CUH

#include "decoder.cuh"

enum {
    HEAD_D = DEC_INNER / S2_DECODER_HEADS,
    ROWS = S2_DECODER_HEADS * DEC_TOKENS, /* row head * 8 + token */
    NARROW_PITCH = DEC_INNER + 32,        /* of tokens times a layer */
    SHARE_PITCH = ROWS + 8                /* of probabilities */
};
static_assert(HEAD_D == 16 && DEC_THREADS / 32 == S2_DECODER_HEADS, "a warp a head, of one step of a product");

#ifdef DECODER_HERE

/* ------------------------------------------------------------------ a layer on the tokens' side */

/* A thread's part of 64 channels from w on of rows first .. first + 15 of w [rows][256]: of rows first + 4t ..
 * first + 4t + 3, t = lane % 4, the channels 8g .. 8g + 7, g = lane / 4. */
struct fold_rows {
    uint4 v[4];
};
template <class T> __device__ __forceinline__ void fold_fetch(fold_rows &r, const T *w, int first, int lane)
{
#pragma unroll
    for (int e = 0; e < 4; e++) r.v[e] = __ldg((const uint4 *)(w + (first + lane % 4 * 4 + e) * DEC_C) + lane / 4);
}

/* to [8][DEC_MAP_PITCH] = x W, 16 numbers a token to 64 channels; x [8][pitch] */
template <class T>
__device__ __forceinline__ void fold_product(T *to, const fold_rows &r, const T *x, int pitch, int lane)
{
    const uint2 b = *(const uint2 *)(x + lane / 4 * pitch + lane % 4 * 4);
    const uint32_t *v0 = &r.v[0].x, *v1 = &r.v[1].x, *v2 = &r.v[2].x, *v3 = &r.v[3].x;
    uint32_t even[4], odd[4]; /* channels of tokens 2t and 2t + 1 */
#pragma unroll
    for (int e = 0; e < 4; e++) { /* channels 2e and 2e + 1 of eight */
        const uint32_t a[4] = {__byte_perm(v0[e], v1[e], 0x5410), __byte_perm(v0[e], v1[e], 0x7632),
                               __byte_perm(v2[e], v3[e], 0x5410), __byte_perm(v2[e], v3[e], 0x7632)};
        float d[4] = {};
        flash_mma<T>(d, a, b.x, b.y);
        even[e] = flash_pack<T>(d[0], d[2]), odd[e] = flash_pack<T>(d[1], d[3]);
    }
    T *at = to + lane % 4 * 2 * DEC_MAP_PITCH + lane / 4 * 8;
    *(uint4 *)at = make_uint4(even[0], even[1], even[2], even[3]);
    *(uint4 *)(at + DEC_MAP_PITCH) = make_uint4(odd[0], odd[1], odd[2], odd[3]);
}

/* A thread's part of outputs first .. first + 15 of w [rows][DEC_INNER], 16 channels from w on */
struct narrow_rows {
    uint2 even, odd;
};
template <class T> __device__ __forceinline__ void narrow_fetch(narrow_rows &r, const T *w, int first, int lane)
{
    const T *at = w + (first + lane / 4 * 2) * DEC_INNER + lane % 4 * 4;
    r.even = __ldg((const uint2 *)at), r.odd = __ldg((const uint2 *)(at + DEC_INNER));
}
template <class T>
__device__ __forceinline__ dec_sums narrow_product(const narrow_rows &r, const T *x, int pitch, int lane)
{
    const uint2 b = *(const uint2 *)(x + lane / 4 * pitch + lane % 4 * 4);
    const uint32_t a[4] = {r.even.x, r.odd.x, r.even.y, r.odd.y};
    float d[4] = {};
    flash_mma<T>(d, a, b.x, b.y);
    return dec_sums{{d[0], d[1]}, {d[2], d[3]}};
}

/* ------------------------------------------------------------------ tiles of pixels */

/* Brings pixels first .. first + TALL - 1 of `pixels` and their positions to [TALL][DEC_MAP_PITCH], in the background;
 * zeros behind the last. */
template <int TALL, class T>
__device__ __forceinline__ void tile_fetch(T *raw, T *key, const T *image, const T *pe, int first, int pixels)
{
#pragma unroll
    for (int i = 0; i < TALL / (DEC_THREADS / 32); i++) {
        const int row = threadIdx.x / 32 + i * (DEC_THREADS / 32), chunk = threadIdx.x % 32 * 8;
        T *r = raw + row * DEC_MAP_PITCH + chunk, *k = key + row * DEC_MAP_PITCH + chunk;
        if (first + row < pixels) {
            flash_copy16(r, image + (int64_t)(first + row) * DEC_C + chunk);
            flash_copy16(k, pe + (int64_t)(first + row) * DEC_C + chunk);
        } else {
            *(uint4 *)r = *(uint4 *)k = make_uint4(0, 0, 0, 0);
        }
    }
}

/* Waits for what this thread has fetched; key becomes the sum of both. */
template <int TALL, class T> __device__ __forceinline__ void tile_add(const T *raw, T *key)
{
    flash_copies_wait();
#pragma unroll
    for (int i = 0; i < TALL / (DEC_THREADS / 32); i++) {
        const int at = (threadIdx.x / 32 + i * (DEC_THREADS / 32)) * DEC_MAP_PITCH + threadIdx.x % 32 * 8;
        const cu_piece<T, 8> r = *(const cu_piece<T, 8> *)(raw + at);
        cu_piece<T, 8> k = *(const cu_piece<T, 8> *)(key + at);
#pragma unroll
        for (int e = 0; e < 8; e++) k.v[e] = cu_to<T>(cu_f32(r.v[e]) + cu_f32(k.v[e]));
        *(cu_piece<T, 8> *)(key + at) = k;
    }
}

/* s[i] = rows a [16][256] times rows 8 i .. 8 i + 7 of b, both of pitch DEC_MAP_PITCH */
template <int N, class T>
__device__ __forceinline__ void cross_scores(float (&s)[N][4], const T *a, const T *b, int lane)
{
    const uint32_t left = flash_shared(a + lane % 16 * DEC_MAP_PITCH + lane / 16 * 8);
    const uint32_t right = flash_shared(b + (lane % 8 + lane / 16 * 8) * DEC_MAP_PITCH + lane / 8 % 2 * 8);
#pragma unroll
    for (int i = 0; i < N; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
    for (int k = 0; k < DEC_C / 16; k++) {
        uint32_t x[4], y[4];
        flash_load4(x, left + k * 32);
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            flash_load4(y, right + (i * 8 * DEC_MAP_PITCH + k * 16) * (int)sizeof(T));
            flash_mma<T>(s[i], x, y[0], y[1]);
            flash_mma<T>(s[i + 1], x, y[2], y[3]);
        }
    }
}

/* o[i] += probabilities p [16][64] times channels 8 i .. 8 i + 7 of v [64][DEC_MAP_PITCH] */
template <int N, class T>
__device__ __forceinline__ void cross_values(float (&o)[N][4], const T *p, const T *v, int lane)
{
    const uint32_t left = flash_shared(p + lane % 16 * SHARE_PITCH + lane / 16 * 8);
    const uint32_t right = flash_shared(v + (lane % 8 + lane / 8 % 2 * 8) * DEC_MAP_PITCH + lane / 16 * 8);
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
        uint32_t x[4], y[4];
        flash_load4(x, left + k * 32);
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            flash_load4_transposed(y, right + (k * 16 * DEC_MAP_PITCH + i * 8) * (int)sizeof(T));
            flash_mma<T>(o[i], x, y[0], y[1]);
            flash_mma<T>(o[i + 1], x, y[2], y[3]);
        }
    }
}

#endif

template <class T> struct cross_args {
    T *tokens;
    const T *prompt;
    T *image;
    const T *pe;
    dec_linear<T> q, k, v, out;
    dec_norm norm;
    int t, pixels;
};

static inline bool cross_takes(struct s2_tensor tokens, struct s2_tensor prompt, struct s2_tensor image,
                               struct s2_tensor pe, const struct s2_projections *p)
{
    return dec_takes(tokens) && dec_takes(prompt) && cu_whole(image) && cu_whole(pe) && image.ld == DEC_C &&
           pe.ld == DEC_C && dec_is(&p->q, DEC_C, DEC_INNER) && dec_is(&p->k, DEC_C, DEC_INNER) &&
           dec_is(&p->v, DEC_C, DEC_INNER) && dec_is(&p->out, DEC_INNER, DEC_C);
}

template <class T>
static cross_args<T> cross_of(struct s2_tensor tokens, struct s2_tensor prompt, struct s2_tensor image,
                              struct s2_tensor pe, const struct s2_projections *p, const struct s2_norm *norm)
{
    return cross_args<T>{(T *)tokens.data,        (const T *)prompt.data,
                         (T *)image.data,         (const T *)pe.data,
                         dec_linear_of<T>(&p->q), dec_linear_of<T>(&p->k),
                         dec_linear_of<T>(&p->v), dec_linear_of<T>(&p->out),
                         dec_norm_of(norm),       tokens.w,
                         image.h * image.w};
}

#endif

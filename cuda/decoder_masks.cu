/* decoder_masks.cu - from the decoder's image to mask logits in one kernel; see decoder.cuh. A token of the image
 * becomes 4 x 4 pixels that depend on no other token, so neither of the two larger maps is ever stored. */
#include "decoder.cuh"

enum {
    UP_THREADS = 512,
    UP_TOKENS = 16,                     /* of a tile, in the order of the map */
    UP_GROUPS = UP_TOKENS / DEC_TOKENS, /* that meet the weights at once */
    UP_C1 = 64,                         /* channels of the 2 x 2 parts of a token */
    UP_C0 = 32,                         /* and of their 2 x 2 parts, the pixels */
    UP_MASKS = 4,
    UP_PITCH1 = UP_C1 + 32,
    UP_PITCH0 = UP_C0 + 8
};

template <class T> struct masks_args {
    float *masks;
    const T *hyper, *image, *s1, *s0;
    dec_linear<T> up1, up2;
    dec_norm norm;
    int h, w;
};

template <class T> struct masks_memory {
    T image[UP_TOKENS * DEC_PITCH], u1[4 * UP_TOKENS * UP_PITCH1], u0[16 * UP_TOKENS * UP_PITCH0];
    float4 out[UP_MASKS][4][UP_TOKENS];
    float sum[4][4][UP_TOKENS], square[4][4][UP_TOKENS];
};

#ifdef DECODER_HERE

/* A token's place in the map */
struct place {
    int y, x;
};
/* k tokens further in a map w wide */
__device__ __forceinline__ place further(place p, int k, int w)
{
    p.x += k;
    while (p.x >= w) p.x -= w, p.y++;
    return p;
}

/* Index of pixel (dy, dx) of a token that is SCALE x SCALE of them; w tokens a row */
template <int SCALE> __device__ __forceinline__ int pixel_of(place p, int w, int dy, int dx)
{
    return (p.y * SCALE + dy) * (w * SCALE) + p.x * SCALE + dx;
}

/* Two neighbouring channels of two tokens' pixels, 0 where a token is none of the map */
template <int SCALE, class T>
__device__ __forceinline__ void fetch_pixels(uint32_t (&to)[2], const T *map, int c, const place (&token)[2], int h,
                                             int w, int dy, int dx)
{
#pragma unroll
    for (int e = 0; e < 2; e++)
        to[e] = token[e].y < h ? *(const uint32_t *)(map + (int64_t)pixel_of<SCALE>(token[e], w, dy, dx) * c) : 0;
}
template <class T> __device__ __forceinline__ void add_pixels(dec_sums &s, const uint32_t (&pixels)[2])
{
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const T *pair = (const T *)&pixels[e];
        s.even[e] += cu_f32(pair[0]), s.odd[e] += cu_f32(pair[1]);
    }
}

/* Means over the 64 channels of a part, of which a warp has 16. sums: [quarter][part][token] */
__device__ __forceinline__ void mean_of_parts(float (&v)[UP_GROUPS][2], float (*sums)[4][UP_TOKENS], int warp, int lane)
{
    const int first = lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < UP_GROUPS; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int o = 4; o < 32; o *= 2) v[j][e] += __shfl_xor_sync(0xffffffffu, v[j][e], o);
            if (lane < 4) sums[warp % 4][warp / 4][j * DEC_TOKENS + first + e] = v[j][e];
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < UP_GROUPS; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int token = j * DEC_TOKENS + first + e, part = warp / 4;
            v[j][e] =
                (sums[0][part][token] + sums[1][part][token] + sums[2][part][token] + sums[3][part][token]) / UP_C1;
        }
    }
}

#endif

/* Tiles of entry blockIdx.y in turn. First a warp has 16 channels of part (dy, dx) = warp / 4 of all tokens; then 16
 * channels of pixel warp % 8 / 2 of two of the parts; then two pixels. */
template <class T> __global__ void __launch_bounds__(UP_THREADS, 1) masks_kernel(masks_args<T> a)
{
#ifdef DECODER_HERE
    extern __shared__ __align__(16) unsigned char dec_memory[];
    masks_memory<T> &m = *(masks_memory<T> *)dec_memory;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp / 4, c1 = warp % 4 * 16;
    const int below = warp % 8 / 2, c0 = warp % 2 * 16, tokens = a.h * a.w;
    const int pair = lane / 4 * 2, two = lane % 4 * 2; /* a thread's channels, and tokens of eight */
    const int64_t entry = blockIdx.y;

    dec_rows<8> w1;
    dec_rows<2> w2;
    dec_fetch(w1, a.up1.w, DEC_C, warp * 16, 4 * UP_C1, lane);
    dec_fetch(w2, a.up2.w, UP_C1, warp % 8 * 16, 4 * UP_C0, lane);
    const dec_sums bias1 = dec_start(a.up1.b, warp * 16, 4 * UP_C1, lane);
    const dec_sums bias2 = dec_start(a.up2.b, warp % 8 * 16, 4 * UP_C0, lane);
    const float2 weight = *(const float2 *)(a.norm.weight + c1 + pair);
    const float2 shift = *(const float2 *)(a.norm.bias + c1 + pair);
    cu_await();

    for (int tile = blockIdx.x * UP_TOKENS; tile < tokens; tile += gridDim.x * UP_TOKENS) {
        const int mine = threadIdx.x / 32, piece = threadIdx.x % 32 * 8;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (tile + mine < tokens) v = *(const uint4 *)(a.image + (entry * tokens + tile + mine) * DEC_C + piece);
        const place start = {tile / a.w, tile % a.w};
        place at[UP_GROUPS][2];
        uint32_t skip1[UP_GROUPS][2], skip0[4][2];
#pragma unroll
        for (int j = 0; j < UP_GROUPS; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) at[j][e] = further(start, j * DEC_TOKENS + two + e, a.w);
            fetch_pixels<2>(skip1[j], a.s1 + c1 + pair, UP_C1, at[j], a.h, a.w, part / 2, part % 2);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) { /* of eight tokens j % UP_GROUPS the part j / UP_GROUPS */
            const int j = warp / 8 * 4 + k, of = j / UP_GROUPS;
            fetch_pixels<4>(skip0[k], a.s0 + c0 + pair, UP_C0, at[k % UP_GROUPS], a.h, a.w, of / 2 * 2 + below / 2,
                            of % 2 * 2 + below % 2);
        }
        *(uint4 *)(m.image + mine * DEC_PITCH + piece) = v;
        __syncthreads();

        dec_sums s[UP_GROUPS];
        float sum[UP_GROUPS][2];
#pragma unroll
        for (int j = 0; j < UP_GROUPS; j++) {
            s[j] = bias1;
            add_pixels<T>(s[j], skip1[j]);
            dec_product(s[j], w1, m.image + j * DEC_TOKENS * DEC_PITCH, DEC_PITCH, lane);
#pragma unroll
            for (int e = 0; e < 2; e++) sum[j][e] = s[j].even[e] + s[j].odd[e];
        }
        mean_of_parts(sum, m.sum, warp, lane);
#pragma unroll
        for (int j = 0; j < UP_GROUPS; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                s[j].even[e] -= sum[j][e], s[j].odd[e] -= sum[j][e];
                sum[j][e] = s[j].even[e] * s[j].even[e] + s[j].odd[e] * s[j].odd[e];
            }
        }
        mean_of_parts(sum, m.square, warp, lane);
#pragma unroll
        for (int j = 0; j < UP_GROUPS; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float scale = rsqrtf(sum[j][e] + a.norm.eps);
                s[j].even[e] = cu_gelu<T>(s[j].even[e] * scale * weight.x + shift.x);
                s[j].odd[e] = cu_gelu<T>(s[j].odd[e] * scale * weight.y + shift.y);
            }
            dec_store(m.u1 + (part * UP_TOKENS + j * DEC_TOKENS) * UP_PITCH1, UP_PITCH1, c1, s[j], lane);
        }
        __syncthreads();

#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int j = warp / 8 * 4 + k, of = j / UP_GROUPS;
            const int pixel = (of / 2 * 2 + below / 2) * 4 + of % 2 * 2 + below % 2;
            dec_sums u = bias2;
            add_pixels<T>(u, skip0[k]);
            dec_product(u, w2, m.u1 + j * DEC_TOKENS * UP_PITCH1, UP_PITCH1, lane);
#pragma unroll
            for (int e = 0; e < 2; e++) u.even[e] = cu_gelu<T>(u.even[e]), u.odd[e] = cu_gelu<T>(u.odd[e]);
            dec_store(m.u0 + (pixel * UP_TOKENS + j % UP_GROUPS * DEC_TOKENS) * UP_PITCH0, UP_PITCH0, c0, u, lane);
        }
        /* masks 2g and 2g + 1 of four; no constants, so nothing that may be read ahead of the wait */
        const T *mask = a.hyper + (entry * UP_MASKS + pair % UP_MASKS) * UP_C0 + lane % 4 * 8;
        dec_rows<1> hyper;
        hyper.even[0] = *(const uint4 *)mask, hyper.odd[0] = *(const uint4 *)(mask + UP_C0);
        __syncthreads();
#pragma unroll
        for (int j = warp * UP_GROUPS; j < (warp + 1) * UP_GROUPS; j++) {
            dec_sums u = {};
            dec_product(u, hyper, m.u0 + j * DEC_TOKENS * UP_PITCH0, UP_PITCH0, lane);
            if (pair < UP_MASKS) {
                float *to = &m.out[pair][warp / 4][j % UP_GROUPS * DEC_TOKENS + two].x + warp % 4;
#pragma unroll
                for (int e = 0; e < 2; e++) to[4 * e] = u.even[e], to[4 * (4 * UP_TOKENS + e)] = u.odd[e];
            }
        }
        __syncthreads();
        if (threadIdx.x < UP_MASKS * 4 * UP_TOKENS) {
            const int of = threadIdx.x / (4 * UP_TOKENS), dy = threadIdx.x / UP_TOKENS % 4,
                      token = threadIdx.x % UP_TOKENS;
            if (tile + token < tokens)
                *(float4 *)(a.masks + (entry * UP_MASKS + of) * 16 * tokens +
                            pixel_of<4>(further(start, token, a.w), a.w, dy, 0)) = m.out[of][dy][token];
        }
    }
#endif
}

void cu_upscaled_masks(struct s2_backend *be, struct s2_tensor masks, struct s2_tensor hyper, struct s2_tensor image,
                       const struct s2_linear *up1, struct s2_tensor s1, const struct s2_norm *norm,
                       const struct s2_linear *up2, struct s2_tensor s0, struct s2_tensor room)
{
    if (be->skip) return;
    const bool fits = image.dtype != S2_F32 && s1.data && s0.data && cu_whole(image) && cu_whole(hyper) &&
                      cu_whole(s1) && cu_whole(s0) && hyper.w == UP_MASKS && s1.n == 1 && s0.n == 1 &&
                      dec_is(up1, DEC_C, 4 * UP_C1) && dec_is(up2, UP_C1, 4 * UP_C0) && (size_t)masks.data % 16 == 0;
    const int tiles = cu_blocks(image.h * image.w, UP_TOKENS), most = cu_of(be)->sm_count / image.n;
    CU_BY_HALF(image.dtype, T, {
        const masks_args<T> a = {(float *)masks.data,
                                 (const T *)hyper.data,
                                 (const T *)image.data,
                                 (const T *)s1.data,
                                 (const T *)s0.data,
                                 dec_linear_of<T>(up1),
                                 dec_linear_of<T>(up2),
                                 dec_norm_of(norm),
                                 image.h,
                                 image.w};
        const dim3 grid((unsigned)(tiles < most || most < 1 ? tiles : most), (unsigned)image.n);
        if (fits && dec_launch(be, masks_kernel<T>, grid, 1, UP_THREADS, sizeof(masks_memory<T>), a)) return;
    });
    s2_compose_upscaled_masks(be, masks, hyper, image, up1, s1, norm, up2, s0, room);
}

/* decoder.cuh - what the kernels of the mask decoder share. Up to 8 tokens of 256 channels are one side of
 * mma.m16n8k16, 16 outputs of a layer the other: a warp reads its weights from the L2 cache straight into the
 * registers of the product, before it waits for its input. A cluster of blocks has the tokens of one batch entry;
 * partial sums meet in distributed shared memory, in the order of the ranks.
 *
 * The sums of a product run over channels in any order that both sides agree on: a thread's 16 bytes of a row of
 * weights are the elements it has in two steps of the product, and 16 bytes at the same place of the tokens go with
 * them. Of the 16 outputs, a thread has rows g and g + 8 of the product, g = lane / 4; they stand for outputs 2g and
 * 2g + 1, so that its results are neighbours. */
#ifndef S2_DECODER_CUH
#define S2_DECODER_CUH

#include <cooperative_groups.h>

#include "flash.cuh"
#include "launch.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define DECODER_HERE 1
#endif

enum {
    DEC_TOKENS = 8,           /* most tokens of an entry */
    DEC_C = 256,              /* channels of tokens and image */
    DEC_INNER = 128,          /* of the attention between them */
    DEC_THREADS = 256,        /* of a block, one a channel where they normalise */
    DEC_PITCH = DEC_C + 32,   /* elements of a token in shared memory: two rows fill the banks, 16 bytes a thread */
    DEC_MAP_PITCH = DEC_C + 8 /* of a row that ldmatrix reads */
};

namespace cg = cooperative_groups;

struct dec_norm {
    const float *weight, *bias;
    float eps;
};

#ifdef DECODER_HERE

/* ------------------------------------------------------------------ products of 16 outputs and 8 tokens */

/* A thread's weights of 16 outputs, BLOCKS times 32 channels */
template <int BLOCKS> struct dec_rows {
    uint4 even[BLOCKS], odd[BLOCKS];
};

/* Outputs first .. first + 15 of w [rows][ld], channels 0 .. 32 BLOCKS - 1; those behind `rows` are the last one. */
template <class T, int BLOCKS>
__device__ __forceinline__ void dec_fetch(dec_rows<BLOCKS> &r, const T *w, int ld, int first, int rows, int lane)
{
    const int even = min(first + lane / 4 * 2, rows - 1), odd = min(first + lane / 4 * 2 + 1, rows - 1);
    const T *e = w + (int64_t)even * ld + lane % 4 * 8, *o = w + (int64_t)odd * ld + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        r.even[i] = __ldg((const uint4 *)(e + 32 * i));
        r.odd[i] = __ldg((const uint4 *)(o + 32 * i));
    }
}

/* Outputs first + 2g, first + 2g + 1 of tokens 2t, 2t + 1, t = lane % 4 */
struct dec_sums {
    float even[2], odd[2];
};

/* sums += weights times tokens x [8][pitch] in shared memory */
template <class T, int BLOCKS>
__device__ __forceinline__ void dec_product(dec_sums &sums, const dec_rows<BLOCKS> &r, const T *x, int pitch, int lane)
{
    float d[2][4] = {};
    const T *at = x + lane / 4 * pitch + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        const uint4 b = *(const uint4 *)(at + 32 * i), e = r.even[i], o = r.odd[i];
        const uint32_t first[4] = {e.x, o.x, e.y, o.y}, second[4] = {e.z, o.z, e.w, o.w};
        flash_mma<T>(d[0], first, b.x, b.y);
        flash_mma<T>(d[1], second, b.z, b.w);
    }
    sums.even[0] += d[0][0] + d[1][0], sums.even[1] += d[0][1] + d[1][1];
    sums.odd[0] += d[0][2] + d[1][2], sums.odd[1] += d[0][3] + d[1][3];
}

/* What the sums start from: the bias b of outputs first .. */
__device__ __forceinline__ dec_sums dec_start(const float *b, int first, int rows, int lane)
{
    dec_sums s;
    const int even = min(first + lane / 4 * 2, rows - 1), odd = min(first + lane / 4 * 2 + 1, rows - 1);
    s.even[0] = s.even[1] = b[even], s.odd[0] = s.odd[1] = b[odd];
    return s;
}

__device__ __forceinline__ void dec_relu(dec_sums &s)
{
#pragma unroll
    for (int i = 0; i < 2; i++) s.even[i] = fmaxf(s.even[i], 0), s.odd[i] = fmaxf(s.odd[i], 0);
}

/* to [8][pitch], at outputs first .. */
template <class T> __device__ __forceinline__ void dec_store(T *to, int pitch, int first, const dec_sums &s, int lane)
{
    T *at = to + lane % 4 * 2 * pitch + first + lane / 4 * 2;
    *(uint32_t *)at = flash_pack<T>(s.even[0], s.odd[0]);
    *(uint32_t *)(at + pitch) = flash_pack<T>(s.even[1], s.odd[1]);
}
__device__ __forceinline__ void dec_store(float *to, int pitch, int first, const dec_sums &s, int lane)
{
    float *at = to + lane % 4 * 2 * pitch + first + lane / 4 * 2;
    *(float2 *)at = make_float2(s.even[0], s.odd[0]);
    *(float2 *)(at + pitch) = make_float2(s.even[1], s.odd[1]);
}

/* ------------------------------------------------------------------ tokens */

/* One of DEC_THREADS pieces of t tokens of 256 channels, zeros behind them; and what is added to it, if plus */
template <class T> struct dec_tokens {
    cu_piece<T, 8> x, plus;

    __device__ __forceinline__ dec_tokens(const T *from, const T *more, int t)
    {
        x = plus = cu_piece<T, 8>{};
        if (threadIdx.x / 32 >= t) return;
        x = ((const cu_piece<T, 8> *)from)[threadIdx.x];
        if (more) plus = ((const cu_piece<T, 8> *)more)[threadIdx.x];
    }
    __device__ __forceinline__ dec_tokens sum() const
    {
        dec_tokens y = *this;
#pragma unroll
        for (int e = 0; e < 8; e++) y.x.v[e] = cu_to<T>(cu_f32(x.v[e]) + cu_f32(plus.v[e]));
        return y;
    }
    /* to shared memory, [8][DEC_PITCH] */
    __device__ __forceinline__ void put(T *to) const
    {
        *(cu_piece<T, 8> *)(to + threadIdx.x / 32 * DEC_PITCH + threadIdx.x % 32 * 8) = x;
    }
};

/* The sum of v over the DEC_THREADS threads, in all of them. room: 8 floats that no one reads any more */
__device__ __forceinline__ float dec_block_sum(float v, float *room)
{
    v = cu_lanes_sum<32>(v);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < DEC_THREADS / 32; i++) sum += room[i];
    return sum;
}

/* What a thread needs for its channel once the sums are there */
struct dec_channel {
    float plus, weight, bias, eps;
};
__device__ __forceinline__ dec_channel dec_channel_of(const dec_norm &norm, const float *plus)
{
    return dec_channel{plus[threadIdx.x], norm.weight[threadIdx.x], norm.bias[threadIdx.x], norm.eps};
}

/* norm(v + plus), v being a token's channels, one a thread. room: 16 floats */
__device__ __forceinline__ float dec_normalised(float v, const dec_channel &c, float *room)
{
    v += c.plus;
    const float d = v - dec_block_sum(v, room) / DEC_C;
    const float scale = rsqrtf(dec_block_sum(d * d, room + 8) / DEC_C + c.eps);
    return d * scale * c.weight + c.bias;
}

/* ------------------------------------------------------------------ clusters
 *
 * Blocks write into the memory of others, between two barriers: dec_others_run before the first such write, where all
 * have been at dec_here, and cluster.sync, after which each reads what is its own and may end. */
__device__ __forceinline__ void dec_here()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void dec_others_run()
{
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

/* Outputs first .. of this block's share of a sum, to block i for token i: row `slot` of part there */
__device__ __forceinline__ void dec_give(const cg::cluster_group &cluster, float (*part)[DEC_C], int slot, int first,
                                         const dec_sums &s, int lane)
{
    float *at = &part[slot][first + lane / 4 * 2];
#pragma unroll
    for (int e = 0; e < 2; e++)
        *(float2 *)cluster.map_shared_rank(at, lane % 4 * 2 + e) = make_float2(s.even[e], s.odd[e]);
}

/* Channel threadIdx.x of the sum of what SLOTS blocks have given */
template <int SLOTS> __device__ __forceinline__ float dec_given(const float (*part)[DEC_C])
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) sum += part[i][threadIdx.x];
    return sum;
}

#endif

/* ------------------------------------------------------------------ launches */

/* Launches a kernel that calls cu_await before it reads what others have written, and weights before that. false: the
 * device cannot run it, with clusters of `cluster` blocks that have `shared` bytes each, and nothing is done. */
template <class... P>
static bool dec_launch(struct s2_backend *be, void (*kernel)(P...), dim3 grid, int cluster, int threads, size_t shared,
                       P... arguments)
{
    if (cu_of(be)->cc != 90 || !cu_of(be)->awaits) return false;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (e == cudaSuccess && cluster > 8)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (e == cudaSuccess) e = cu_try_launch(be, kernel, grid, cluster, (unsigned)threads, shared, arguments...);
    if (e != cudaSuccess) cudaGetLastError(); /* dealt with */
    return e == cudaSuccess;
}

/* Tokens that the kernels take: 16 bits, no more than DEC_TOKENS an entry, of DEC_C channels, whole pieces. */
static inline bool dec_takes(struct s2_tensor tokens)
{
    return tokens.dtype != S2_F32 && tokens.h == 1 && tokens.w <= DEC_TOKENS && tokens.c == DEC_C &&
           tokens.ld == DEC_C && cu_whole(tokens);
}

static inline bool dec_is(const struct s2_linear *l, int in, int out)
{
    return l->in == in && l->out == out;
}

static inline dec_norm dec_norm_of(const struct s2_norm *n)
{
    return dec_norm{n->weight, n->bias, n->eps};
}

/* A layer's weights in the activation type and its bias */
template <class T> struct dec_linear {
    const T *w;
    const float *b;
};
template <class T> static dec_linear<T> dec_linear_of(const struct s2_linear *l)
{
    return dec_linear<T>{(const T *)cu_linear_weight(l), cu_linear_bias(l)};
}

/* decoder_tokens.cu, decoder_read.cu, decoder_write.cu, decoder_masks.cu: see s2_ops */
void cu_token_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, struct s2_tensor prompt,
                        const struct s2_projections *, const struct s2_norm *, struct s2_tensor room);
void cu_token_to_image(struct s2_backend *, struct s2_tensor tokens, struct s2_tensor prompt, struct s2_tensor image,
                       struct s2_tensor pe, const struct s2_projections *, const struct s2_norm *,
                       struct s2_tensor room);
void cu_token_mlp(struct s2_backend *, struct s2_tensor tokens, const struct s2_linear *fc1,
                  const struct s2_linear *fc2, const struct s2_norm *);
void cu_image_to_token(struct s2_backend *, struct s2_tensor image, struct s2_tensor pe, struct s2_tensor tokens,
                       struct s2_tensor prompt, const struct s2_projections *, const struct s2_norm *,
                       struct s2_tensor room);
void cu_token_heads(struct s2_backend *, int n_heads, const struct s2_head *, struct s2_tensor tokens,
                    struct s2_tensor room);
void cu_upscaled_masks(struct s2_backend *, struct s2_tensor masks, struct s2_tensor hyper, struct s2_tensor image,
                       const struct s2_linear *up1, struct s2_tensor s1, const struct s2_norm *,
                       const struct s2_linear *up2, struct s2_tensor s0, struct s2_tensor room);

#endif

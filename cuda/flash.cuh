/* flash.cuh - attention on tensor cores: softmax(q k^T scale) v in one pass over the keys, scores never stored
 * (Dao et al., FlashAttention-2, 2023).
 *
 * Blocking: a warp owns 16*MT query rows, whose output it keeps in registers in float32; a tile of BN keys and
 * values lies in shared memory and is used by all warps of a group while cp.async brings the next one. Rows in shared
 * memory are 16 bytes longer than their content, so that the eight rows of an ldmatrix fall into different banks.
 * Keys may be split three ways: over the groups of a block (merged in shared memory), and over blocks (float32
 * partial results, merged by flash_merge in the order of the splits). Nothing depends on the order of execution.
 *
 * What is attended to is a Source, copied to the kernel:
 *     using T;                                   element type
 *     static constexpr bool biased;              the last key has a bias (score_bias)
 *     void enter(int problem);                   selects batch entry, head, window
 *     int queries, keys;                         of this problem, after enter
 *     int d, dv;                                 channels of q and k, of v; multiples of 8
 *     void query(void *smem, int row, int chunk), key(...), value(...);  brings 16 bytes, chunk < d / 8
 *     T *out(int row);                           where the dv channels of a result go, 16-byte aligned */
#ifndef S2_FLASH_CUH
#define S2_FLASH_CUH

#include <math.h>

#include "launch.cuh"

#define FLASH_LOG2E 1.4426950408889634f

/* ------------------------------------------------------------------ instructions (PTX ISA, sm_80 and later) */

__device__ __forceinline__ uint32_t flash_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes from device to shared memory, in the background */
__device__ __forceinline__ void flash_copy16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(flash_shared(shared)), "l"(global) : "memory");
}

__device__ __forceinline__ void flash_copies_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Barrier of the `threads` threads of one group; __syncthreads is barrier 0. */
__device__ __forceinline__ void flash_barrier(int group, int threads)
{
    if (threads == 32) {
        __syncwarp();
    } else {
        asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(threads) : "memory");
    }
}

__device__ __forceinline__ void flash_load4(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void flash_load4_transposed(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* c[16][8] += a[16][16] b[16][8] */
template <class T> __device__ __forceinline__ void flash_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void flash_mma<__nv_bfloat16>(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void flash_mma<__half>(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* two floats rounded, the first in the low half */
template <class T> __device__ __forceinline__ uint32_t flash_pack(float low, float high);
template <> __device__ __forceinline__ uint32_t flash_pack<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&v;
}
template <> __device__ __forceinline__ uint32_t flash_pack<__half>(float low, float high)
{
    const __half2 v = __floats2half2_rn(low, high);
    return *(const uint32_t *)&v;
}

__device__ __forceinline__ float flash_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ------------------------------------------------------------------ blocking */

/* T: bf16 or fp16. D, DV: channels, padded to multiples of 16. MT: 16-row tiles a warp. WARPS: warps a group. LATE:
 * the upper half of the warps passes the barrier of a tile between its scores and its softmax instead of before its
 * scores, so that of the two warps on a scheduler one multiplies while the other takes exponentials; values then need
 * a third buffer. BLOCKS: that the registers of a multiprocessor shall hold. */
template <class T_, int D_, int DV_, int MT_, int WARPS_, int GROUPS_, int BN_, bool LATE_, int BLOCKS_ = 1>
struct flash_blocking {
    using T = T_;
    static constexpr int D = D_, DV = DV_, MT = MT_, WARPS = WARPS_, GROUPS = GROUPS_, BN = BN_, BLOCKS = BLOCKS_;
    static constexpr bool LATE = LATE_;
    static constexpr int ROWS = 16 * MT * WARPS;                    /* queries of a block */
    static constexpr int THREADS = 32 * WARPS * GROUPS;             /* of a block */
    static constexpr int PITCH = 2 * D + 16, PITCH_V = 2 * DV + 16; /* bytes of a row in shared memory */
    static constexpr int Q_BYTES = ROWS * PITCH, K_BYTES = BN * PITCH, V_BYTES = BN * PITCH_V;
    static constexpr int V_STAGES = LATE ? 3 : 2;
    static constexpr int GROUP_BYTES = 2 * K_BYTES + V_STAGES * V_BYTES;
    static constexpr int BYTES = Q_BYTES + GROUPS * GROUP_BYTES;
    static constexpr int ONE_TILE_BYTES = Q_BYTES + K_BYTES + V_BYTES; /* enough where keys <= BN and GROUPS == 1 */

    static constexpr int O_TILES = DV / 8, S_TILES = BN / 8;
    static constexpr int KEPT = MT * (O_TILES + 1); /* float4 that a thread hands over when groups merge */
    static_assert(D % 16 == 0 && DV % 16 == 0 && BN % 16 == 0 && DV <= D, "whole mma tiles");
    static_assert((GROUPS - 1) * WARPS * 32 * KEPT * 16 <= GROUPS * GROUP_BYTES, "groups merge in the tiles' memory");
    static_assert(!LATE || (GROUPS == 1 && WARPS % 8 == 0), "early and late warps share schedulers");
};

/* What a warp carries over the keys. A thread has rows lane/4 and lane/4 + 8 of each 16-row tile, and of each 8
 * columns 2*(lane%4) and the next: elements 0, 1 of the first row, 2, 3 of the second. */
template <class B> struct flash_state {
    float o[B::MT][B::O_TILES][4];
    float top[B::MT][2]; /* largest score so far, unscaled */
    float sum[B::MT][2]; /* of this thread's columns until flash_close */
};

template <class B> __device__ __forceinline__ void flash_open(flash_state<B> &w)
{
#pragma unroll
    for (int mt = 0; mt < B::MT; mt++) {
#pragma unroll
        for (int i = 0; i < B::O_TILES; i++) w.o[mt][i][0] = w.o[mt][i][1] = w.o[mt][i][2] = w.o[mt][i][3] = 0;
        w.top[mt][0] = w.top[mt][1] = -INFINITY;
        w.sum[mt][0] = w.sum[mt][1] = 0;
    }
}

template <class B> using flash_scores_of = float[B::MT][B::S_TILES][4];

/* s = q k^T of the warp's rows at q and the tile at k */
template <class B>
__device__ __forceinline__ void flash_scores(flash_scores_of<B> &s, const unsigned char *q, const unsigned char *k,
                                             int lane)
{
    const uint32_t rows = flash_shared(q) + (lane & 15) * B::PITCH + (lane >> 4) * 16;
    const uint32_t keys = flash_shared(k) + ((lane & 7) + ((lane & 16) >> 1)) * B::PITCH + ((lane >> 3) & 1) * 16;
#pragma unroll
    for (int mt = 0; mt < B::MT; mt++) {
#pragma unroll
        for (int i = 0; i < B::S_TILES; i++) s[mt][i][0] = s[mt][i][1] = s[mt][i][2] = s[mt][i][3] = 0;
    }
#pragma unroll
    for (int c = 0; c < B::D / 16; c++) {
        uint32_t a[B::MT][4];
#pragma unroll
        for (int mt = 0; mt < B::MT; mt++) flash_load4(a[mt], rows + mt * 16 * B::PITCH + c * 32);
#pragma unroll
        for (int i = 0; i < B::S_TILES; i += 2) {
            uint32_t b[4];
            flash_load4(b, keys + i * 8 * B::PITCH + c * 32);
#pragma unroll
            for (int mt = 0; mt < B::MT; mt++) {
                flash_mma<typename B::T>(s[mt][i], a[mt], b[0], b[1]);
                flash_mma<typename B::T>(s[mt][i + 1], a[mt], b[2], b[3]);
            }
        }
    }
}

/* Keys of the tile from `count` on do not exist; key `biased`, if in the tile, has its score raised. */
template <class B>
__device__ __forceinline__ void flash_mask(flash_scores_of<B> &s, int count, int biased, float bias, int lane)
{
#pragma unroll
    for (int i = 0; i < B::S_TILES; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int key = i * 8 + (lane & 3) * 2 + (e & 1);
#pragma unroll
            for (int mt = 0; mt < B::MT; mt++) {
                if (key == biased) s[mt][i][e] += bias;
                if (key >= count) s[mt][i][e] = -INFINITY;
            }
        }
    }
}

__device__ __forceinline__ float flash_quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* s becomes exp(scale (s - top)), and shrink what w.o has to be multiplied by for the new top; false: with 1, as for
 * most tiles. scale2 = scale * log2(e) */
template <class B>
__device__ __forceinline__ bool flash_softmax(flash_state<B> &w, flash_scores_of<B> &s, float scale2,
                                              float (&shrink)[B::MT][2])
{
    bool moved = false;
#pragma unroll
    for (int mt = 0; mt < B::MT; mt++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = w.top[mt][r];
#pragma unroll
            for (int i = 0; i < B::S_TILES; i++) top = fmaxf(top, fmaxf(s[mt][i][2 * r], s[mt][i][2 * r + 1]));
            top = flash_quad_max(top);
            shrink[mt][r] = flash_exp2((w.top[mt][r] - top) * scale2);
            moved |= w.top[mt][r] != top;
            w.top[mt][r] = top;
            const float shift = -top * scale2;
            float sum = 0;
#pragma unroll
            for (int i = 0; i < B::S_TILES; i++) {
                s[mt][i][2 * r] = flash_exp2(fmaf(s[mt][i][2 * r], scale2, shift));
                s[mt][i][2 * r + 1] = flash_exp2(fmaf(s[mt][i][2 * r + 1], scale2, shift));
                sum += s[mt][i][2 * r] + s[mt][i][2 * r + 1];
            }
            w.sum[mt][r] = w.sum[mt][r] * shrink[mt][r] + sum;
        }
    }
    return __any_sync(0xffffffffu, moved);
}

template <class B> __device__ __forceinline__ void flash_shrink(flash_state<B> &w, const float (&shrink)[B::MT][2])
{
#pragma unroll
    for (int mt = 0; mt < B::MT; mt++) {
#pragma unroll
        for (int i = 0; i < B::O_TILES; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) w.o[mt][i][e] *= shrink[mt][e >> 1];
        }
    }
}

/* Probabilities of keys 16 k .. 16 k + 15 as the left operand of a product: their layout is that of scores already. */
template <class B>
__device__ __forceinline__ void flash_pack_left(uint32_t a[4], const float (&p)[B::S_TILES][4], int k)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float *pair = &p[2 * k + (e >> 1)][2 * (e & 1)];
        a[e] = flash_pack<typename B::T>(pair[0], pair[1]);
    }
}

/* o += p v with the tile's values at v */
template <class B>
__device__ __forceinline__ void flash_values(flash_state<B> &w, const flash_scores_of<B> &p, const unsigned char *v,
                                             int lane)
{
    const uint32_t values = flash_shared(v) + (lane & 15) * B::PITCH_V + (lane >> 4) * 16;
#pragma unroll
    for (int k = 0; k < B::BN / 16; k++) {
        uint32_t a[B::MT][4];
#pragma unroll
        for (int mt = 0; mt < B::MT; mt++) flash_pack_left<B>(a[mt], p[mt], k);
#pragma unroll
        for (int i = 0; i < B::O_TILES; i += 2) {
            uint32_t b[4];
            flash_load4_transposed(b, values + k * 16 * B::PITCH_V + i * 16);
#pragma unroll
            for (int mt = 0; mt < B::MT; mt++) {
                flash_mma<typename B::T>(w.o[mt][i], a[mt], b[0], b[1]);
                flash_mma<typename B::T>(w.o[mt][i + 1], a[mt], b[2], b[3]);
            }
        }
    }
}

/* The sums of whole rows. */
template <class B> __device__ __forceinline__ void flash_close(flash_state<B> &w)
{
#pragma unroll
    for (int mt = 0; mt < B::MT; mt++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            w.sum[mt][r] += __shfl_xor_sync(0xffffffffu, w.sum[mt][r], 1);
            w.sum[mt][r] += __shfl_xor_sync(0xffffffffu, w.sum[mt][r], 2);
        }
    }
}

/* Results of rows first .. first+16*MT-1, through the warp's own part of shared memory for whole 16-byte stores. */
template <class B, class Source>
__device__ __forceinline__ void flash_store(const flash_state<B> &w, const Source &src, int first, unsigned char *own,
                                            int lane)
{
    __syncwarp();
#pragma unroll
    for (int mt = 0; mt < B::MT; mt++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float part = w.sum[mt][r] > 0 ? 1 / w.sum[mt][r] : w.sum[mt][r]; /* no keys: 0; NaN stays */
            unsigned char *row = own + (mt * 16 + r * 8 + (lane >> 2)) * B::PITCH + (lane & 3) * 4;
#pragma unroll
            for (int i = 0; i < B::O_TILES; i++) {
                *(uint32_t *)(row + i * 16) =
                    flash_pack<typename B::T>(w.o[mt][i][2 * r] * part, w.o[mt][i][2 * r + 1] * part);
            }
        }
    }
    __syncwarp();
    constexpr int chunks = B::DV / 8;
    for (int i = lane; i < 16 * B::MT * chunks; i += 32) {
        const int row = i / chunks, chunk = i % chunks;
        if (first + row < src.queries && chunk < src.dv / 8) {
            *(uint4 *)(src.out(first + row) + chunk * 8) = *(const uint4 *)(own + row * B::PITCH + chunk * 16);
        }
    }
}

/* ------------------------------------------------------------------ results of a part of the keys */

/* o [split][problem][query][dv] not yet divided; top in units of log2, sum: [split][problem][query]. o of a sum of 0
 * is not written. */
struct flash_partial {
    float *o;
    float2 *top_sum; /* NULL: one split, results are final */
};

template <class B, class Source>
__device__ __forceinline__ void flash_store_partial(const flash_state<B> &w, const Source &src, flash_partial part,
                                                    int first, float scale2, int lane)
{
#pragma unroll
    for (int mt = 0; mt < B::MT; mt++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = first + mt * 16 + r * 8 + (lane >> 2);
            if (row >= src.queries) continue;
            const int64_t at = ((int64_t)blockIdx.y * gridDim.z + blockIdx.z) * src.queries + row;
            if ((lane & 3) == 0) part.top_sum[at] = make_float2(w.top[mt][r] * scale2, w.sum[mt][r]);
            if (w.sum[mt][r] == 0) continue;
            float *o = part.o + at * src.dv + (lane & 3) * 2;
#pragma unroll
            for (int i = 0; i < B::O_TILES; i++) {
                if (i * 8 < src.dv) *(float2 *)(o + i * 8) = make_float2(w.o[mt][i][2 * r], w.o[mt][i][2 * r + 1]);
            }
        }
    }
}

/* Group 0's state takes in the other groups', in their order. All threads of the block. */
template <class B>
__device__ __forceinline__ void flash_merge_groups(flash_state<B> &w, float4 *shared, int group, int warp, int lane,
                                                   float scale2)
{
    __syncthreads(); /* the tiles are no longer read */
    if (group > 0) {
        float4 *to = shared + (int64_t)((group - 1) * B::WARPS + warp) * B::KEPT * 32 + lane;
#pragma unroll
        for (int mt = 0; mt < B::MT; mt++) {
#pragma unroll
            for (int i = 0; i < B::O_TILES; i++, to += 32)
                *to = make_float4(w.o[mt][i][0], w.o[mt][i][1], w.o[mt][i][2], w.o[mt][i][3]);
            *to = make_float4(w.top[mt][0], w.top[mt][1], w.sum[mt][0], w.sum[mt][1]);
            to += 32;
        }
    }
    __syncthreads();
    if (group > 0) return;
    for (int g = 1; g < B::GROUPS; g++) {
        const float4 *from = shared + (int64_t)((g - 1) * B::WARPS + warp) * B::KEPT * 32 + lane;
#pragma unroll
        for (int mt = 0; mt < B::MT; mt++, from += (B::O_TILES + 1) * 32) {
            const float4 other = from[B::O_TILES * 32];
            const float top[2] = {other.x, other.y}, sum[2] = {other.z, other.w};
            float mine[2], theirs[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float both = fmaxf(w.top[mt][r], top[r]);
                mine[r] = w.sum[mt][r] == 0 ? 0 : flash_exp2((w.top[mt][r] - both) * scale2);
                theirs[r] = sum[r] == 0 ? 0 : flash_exp2((top[r] - both) * scale2);
                w.top[mt][r] = both;
                w.sum[mt][r] = w.sum[mt][r] * mine[r] + sum[r] * theirs[r];
            }
#pragma unroll
            for (int i = 0; i < B::O_TILES; i++) {
                const float4 o = from[i * 32];
                w.o[mt][i][0] = w.o[mt][i][0] * mine[0] + o.x * theirs[0];
                w.o[mt][i][1] = w.o[mt][i][1] * mine[0] + o.y * theirs[0];
                w.o[mt][i][2] = w.o[mt][i][2] * mine[1] + o.z * theirs[1];
                w.o[mt][i][3] = w.o[mt][i][3] * mine[1] + o.w * theirs[1];
            }
        }
    }
}

#endif

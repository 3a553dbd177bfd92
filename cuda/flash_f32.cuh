/* flash_f32.cuh - the attention of flash.cuh in plain float32 arithmetic, for parity: no tensor cores.
 *
 * Blocking: 64 queries and 64 keys a step, 256 threads of 4 x 4 scores each; the scores are summed over slabs of 32
 * channels of q and k in shared memory, the output over slabs of 16 keys' values. A thread's rows are 4*(t/16) + 0..3,
 * its columns t%16 + 16*i, so that sixteen neighbouring threads hold one row and reduce it by shuffles. */
#ifndef S2_FLASH_F32_CUH
#define S2_FLASH_F32_CUH

#include "flash_block.cuh"

#define F32_TILE   64
#define F32_SLAB   32
#define F32_PITCH  (F32_SLAB + 4) /* floats of a row of a slab; eight rows fall into different banks */
#define F32_VALUES 16
#define F32_CHUNKS (F32_SLAB / 4)

struct flash_f32_memory {
    union {
        struct {
            float q[F32_TILE][F32_PITCH], k[F32_TILE][F32_PITCH];
        };
        float v[F32_VALUES * 256];
    };
    float p[F32_TILE][F32_TILE + 4];
};

/* s += q k^T over all channels; 4 x 4 scores of this thread */
template <class Source>
__device__ __forceinline__ void flash_f32_scores(float s[4][4], flash_f32_memory &m, const Source &src, int query,
                                                 int key, int ty, int tx)
{
    for (int slab = 0; slab < src.d / 4; slab += F32_CHUNKS) {
        __syncthreads();
        flash_fetch<F32_TILE, F32_CHUNKS, F32_PITCH * 4, 256>(
            (unsigned char *)m.q, src.queries - query, src.d / 4 - slab, threadIdx.x,
            [&](unsigned char *to, int row, int chunk) { src.query(to, query + row, slab + chunk); });
        flash_fetch<F32_TILE, F32_CHUNKS, F32_PITCH * 4, 256>(
            (unsigned char *)m.k, src.keys - key, src.d / 4 - slab, threadIdx.x,
            [&](unsigned char *to, int row, int chunk) { src.key(to, key + row, slab + chunk); });
        flash_copies_wait();
        __syncthreads();
#pragma unroll 2
        for (int c = 0; c < F32_SLAB; c += 4) {
            float4 a[4], b[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[i] = *(const float4 *)&m.q[ty * 4 + i][c];
                b[i] = *(const float4 *)&m.k[tx + 16 * i][c];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    s[i][j] = fmaf(a[i].x, b[j].x, s[i][j]);
                    s[i][j] = fmaf(a[i].y, b[j].y, s[i][j]);
                    s[i][j] = fmaf(a[i].z, b[j].z, s[i][j]);
                    s[i][j] = fmaf(a[i].w, b[j].w, s[i][j]);
                }
            }
        }
    }
}

__device__ __forceinline__ float flash_f32_row(float x, bool largest)
{
#pragma unroll
    for (int mask = 1; mask < 16; mask *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, x, mask);
        x = largest ? fmaxf(x, other) : x + other;
    }
    return x;
}

/* DV: channels of v, padded to a multiple of 32; at most 256. Grid as flash_kernel, 64 queries a block. */
template <int DV, class Source>
__global__ void __launch_bounds__(256, 1) flash_f32_kernel(Source src, flash_partial part, float scale2)
{
    __shared__ __align__(16) flash_f32_memory m;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, first = blockIdx.x * F32_TILE;
    src.enter(blockIdx.z);
    if (first >= src.queries) return;
    const int tiles = (src.keys + F32_TILE - 1) / F32_TILE;
    const int begin = tiles * blockIdx.y / gridDim.y, end = tiles * (blockIdx.y + 1) / gridDim.y;

    float o[4][DV / 16] = {}, top[4], sum[4] = {};
    for (int i = 0; i < 4; i++) top[i] = -INFINITY;
    for (int tile = begin; tile < end; tile++) {
        const int key = tile * F32_TILE;
        float s[4][4] = {};
        flash_f32_scores(s, m, src, first, key, ty, tx);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float now = top[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int at = key + tx + 16 * j;
                if (Source::biased && at == src.keys - 1) s[i][j] += src.score_bias();
                if (at >= src.keys) s[i][j] = -INFINITY;
                now = fmaxf(now, s[i][j]);
            }
            now = flash_f32_row(now, true);
            const float shrink = exp2f((top[i] - now) * scale2);
            top[i] = now;
            sum[i] *= shrink;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float p = exp2f((s[i][j] - now) * scale2);
                sum[i] += p;
                m.p[ty * 4 + i][tx + 16 * j] = p;
            }
#pragma unroll
            for (int c = 0; c < DV / 16; c++) o[i][c] *= shrink;
        }
        for (int slab = 0; slab < F32_TILE; slab += F32_VALUES) {
            __syncthreads();
            flash_fetch<F32_VALUES, DV / 4, DV * 4, 256>(
                (unsigned char *)m.v, src.keys - key - slab, src.dv / 4, threadIdx.x,
                [&](unsigned char *to, int row, int chunk) { src.value(to, key + slab + row, chunk); });
            flash_copies_wait();
            __syncthreads();
#pragma unroll 4
            for (int j = 0; j < F32_VALUES; j++) {
                float p[4];
#pragma unroll
                for (int i = 0; i < 4; i++) p[i] = m.p[ty * 4 + i][slab + j];
#pragma unroll
                for (int c = 0; c < DV / 16; c++) {
                    const float v = m.v[j * DV + tx + 16 * c];
#pragma unroll
                    for (int i = 0; i < 4; i++) o[i][c] = fmaf(p[i], v, o[i][c]);
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = first + ty * 4 + i;
        const float total = flash_f32_row(sum[i], false);
        if (row >= src.queries) continue;
        const int64_t at = ((int64_t)blockIdx.y * gridDim.z + blockIdx.z) * src.queries + row;
        if (part.top_sum && tx == 0) part.top_sum[at] = make_float2(top[i] * scale2, total);
        if (part.top_sum && total == 0) continue;
        float *y = part.top_sum ? part.o + at * src.dv : src.out(row);
        const float f = part.top_sum ? 1 : total == 0 ? 0 : 1 / total;
#pragma unroll
        for (int c = 0; c < DV / 16; c++) {
            if (tx + 16 * c < src.dv) y[tx + 16 * c] = o[i][c] * f;
        }
    }
}

template <class Source>
static void flash_f32_launch(struct s2_backend *be, const Source &src, flash_partial part, int splits, int problems,
                             int queries, const char *what)
{
    const dim3 grid(cu_blocks(queries, F32_TILE), splits, problems);
    const float scale2 = FLASH_LOG2E / sqrtf((float)src.d);
    cudaStream_t stream = cu_stream(be);
    if (src.dv <= 32) {
        flash_f32_kernel<32><<<grid, 256, 0, stream>>>(src, part, scale2);
    } else if (src.dv <= 64) {
        flash_f32_kernel<64><<<grid, 256, 0, stream>>>(src, part, scale2);
    } else if (src.dv <= 96) {
        flash_f32_kernel<96><<<grid, 256, 0, stream>>>(src, part, scale2);
    } else {
        flash_f32_kernel<256><<<grid, 256, 0, stream>>>(src, part, scale2);
    }
    if (CU_LAUNCHED(be, what)) flash_launch_merge(be, src, part, splits, problems, queries, what);
}

#endif

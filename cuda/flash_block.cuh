/* flash_block.cuh - the kernels around flash.cuh: one block's share of queries and keys, the merge of splits. */
#ifndef S2_FLASH_BLOCK_CUH
#define S2_FLASH_BLOCK_CUH

#include "flash.cuh"

#define FLASH_MAX_SPLITS 32

/* ROWS rows of CHUNKS 16-byte pieces into shared memory by THREADS threads: load(smem, row, chunk) brings a piece in
 * the background, what lies outside rows x chunks becomes 0. Nearly every tile is whole and needs no look at that. */
template <int ROWS, int CHUNKS, int PITCH, int THREADS, class Load>
__device__ __forceinline__ void flash_fetch(unsigned char *to, int rows, int chunks, int thread, Load load)
{
    constexpr int pieces = ROWS * CHUNKS, steps = (pieces + THREADS - 1) / THREADS;
    if (pieces % THREADS == 0 && rows >= ROWS && chunks >= CHUNKS) {
#pragma unroll 4
        for (int step = 0; step < steps; step++) {
            const int i = thread + step * THREADS, row = i / CHUNKS, chunk = i % CHUNKS;
            load(to + row * PITCH + chunk * 16, row, chunk);
        }
        return;
    }
#pragma unroll 1
    for (int i = thread; i < pieces; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        unsigned char *piece = to + row * PITCH + chunk * 16;
        if (row < rows && chunk < chunks) {
            load(piece, row, chunk);
        } else {
            *(uint4 *)piece = make_uint4(0, 0, 0, 0);
        }
    }
}

/* Tile `first` .. of keys and values. */
template <class B, class Source>
__device__ __forceinline__ void flash_fetch_tile(unsigned char *k, unsigned char *v, const Source &src, int first,
                                                 int thread)
{
    constexpr int threads = B::WARPS * 32;
    flash_fetch<B::BN, B::D / 8, B::PITCH, threads>(
        k, src.keys - first, src.d / 8, thread,
        [&](unsigned char *to, int row, int chunk) { src.key(to, first + row, chunk); });
    flash_fetch<B::BN, B::DV / 8, B::PITCH_V, threads>(
        v, src.keys - first, src.dv / 8, thread,
        [&](unsigned char *to, int row, int chunk) { src.value(to, first + row, chunk); });
}

/* Block (x, y, z): query rows from x * ROWS of problem z, part y of gridDim.y of its keys. Shared memory: the queries,
 * then for each group two buffers of keys and two or three of values, or one of each where all keys fit one tile. */
template <class B, class Source>
__global__ void __launch_bounds__(B::THREADS, B::BLOCKS)
    flash_kernel(Source src, flash_partial part, float scale2, bool one_tile)
{
    cu_await();
    extern __shared__ __align__(16) unsigned char flash_memory[];
    const int lane = threadIdx.x & 31, all_warp = threadIdx.x >> 5;
    const int group = all_warp / B::WARPS, warp = all_warp % B::WARPS, thread = threadIdx.x - group * B::WARPS * 32;
    src.enter(blockIdx.z);
    const int block_first = blockIdx.x * B::ROWS, first = block_first + warp * 16 * B::MT;
    if (block_first >= src.queries) return;

    const int tiles = (src.keys + B::BN - 1) / B::BN, parts = gridDim.y * B::GROUPS;
    const int mine = blockIdx.y * B::GROUPS + group;
    const int begin = tiles * mine / parts, count = tiles * (mine + 1) / parts - begin;
    unsigned char *q = flash_memory + warp * 16 * B::MT * B::PITCH;
    unsigned char *k = flash_memory + B::Q_BYTES + group * B::GROUP_BYTES;
    unsigned char *v = k + (one_tile ? 1 : 2) * B::K_BYTES;
    const auto fetch = [&](int j) {
        flash_fetch_tile<B>(k + (j & 1) * B::K_BYTES, v + j % B::V_STAGES * B::V_BYTES, src, (begin + j) * B::BN,
                            thread);
    };
    /* Tile j has arrived for all warps of the group, and tile j - 1's keys (and the values before it) are used up. */
    const auto advance = [&](int j) {
        flash_copies_wait();
        flash_barrier(group, B::WARPS * 32);
        if (j + 1 < count) fetch(j + 1);
    };

    if (count > 0) fetch(0); /* first, because a source may wait for what its queries are made of */
    flash_fetch<B::ROWS, B::D / 8, B::PITCH, B::THREADS>(
        flash_memory, src.queries - block_first, src.d / 8, threadIdx.x,
        [&](unsigned char *to, int row, int chunk) { src.query(to, block_first + row, chunk); });
    flash_copies_wait();
    __syncthreads();
    if (count > 1) fetch(1);

    flash_state<B> w;
    flash_open(w);
    const bool late = B::LATE && warp >= B::WARPS / 2, idle = first >= src.queries;
    for (int j = 0; j < count; j++) {
        if (j > 0 && !late) advance(j);
        flash_scores_of<B> s;
        if (!idle) flash_scores<B>(s, q, k + (j & 1) * B::K_BYTES, lane);
        if (late && j + 1 < count) advance(j + 1);
        if (idle) continue;
        const int left = src.keys - (begin + j) * B::BN;
        if (left < B::BN || (Source::biased && left == B::BN)) {
            flash_mask<B>(s, left, Source::biased ? left - 1 : -1, src.score_bias(), lane);
        }
        float shrink[B::MT][2];
        if (flash_softmax(w, s, scale2, shrink)) flash_shrink(w, shrink);
        flash_values(w, s, v + j % B::V_STAGES * B::V_BYTES, lane);
    }
    flash_close(w);

    if (B::GROUPS > 1) {
        flash_merge_groups(w, (float4 *)(flash_memory + B::Q_BYTES), group, warp, lane, scale2);
        if (group > 0) return;
    }
    if (part.top_sum) {
        flash_store_partial(w, src, part, first, scale2, lane);
    } else {
        flash_store(w, src, first, q, lane);
    }
}

/* Four channels of one query of all splits, in their order. */
template <class Source>
__global__ void flash_merge(Source src, flash_partial part, int splits, int problems, int queries)
{
    cu_await();
    const int quads = src.dv / 4;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / quads,
                  rows = (int64_t)problems * queries;
    if (row >= rows) return;
    const int channel = (int)(i % quads) * 4;
    float top = -INFINITY;
#pragma unroll 8
    for (int s = 0; s < splits; s++) top = fmaxf(top, part.top_sum[s * rows + row].x);
    float4 o = make_float4(0, 0, 0, 0);
    float total = 0;
#pragma unroll 8
    for (int s = 0; s < splits; s++) {
        const float2 ts = part.top_sum[s * rows + row];
        const float4 p = *(const float4 *)(part.o + (s * rows + row) * src.dv + channel);
        if (ts.y == 0) continue; /* without keys: p was never written */
        const float f = exp2f(ts.x - top);
        total += ts.y * f;
        o.x += p.x * f, o.y += p.y * f, o.z += p.z * f, o.w += p.w * f;
    }
    const float f = total == 0 ? 0 : 1 / total;
    src.enter((int)(row / queries));
    typename Source::T *y = src.out((int)(row % queries)) + channel;
    y[0] = cu_to<typename Source::T>(o.x * f);
    y[1] = cu_to<typename Source::T>(o.y * f);
    y[2] = cu_to<typename Source::T>(o.z * f);
    y[3] = cu_to<typename Source::T>(o.w * f);
}

/* How many parts to split the keys of `blocks` equal blocks into, `slots` of which run at once: the fewest rounds of
 * the device for the work, what a block does besides being worth two tiles, with a little charge for each partial
 * result written and read. tiles: the steps of a block over all keys; a part has at least `least` of them. */
static inline int flash_choose_splits(int64_t blocks, int slots, int tiles, int least, int keys, int dv)
{
    const double charge = 0.2 * dv / keys, besides = 2.0 / tiles;
    int best = 1;
    double cost = (double)((blocks + slots - 1) / slots) * (1 + besides);
    for (int s = 2; s <= FLASH_MAX_SPLITS && s * least <= tiles; s++) {
        const double rounds = (double)((blocks * s + slots - 1) / slots);
        const double this_cost = rounds * (1.0 / s + besides) + charge * (s + 1);
        if (this_cost < cost) best = s, cost = this_cost;
    }
    return best;
}

static inline size_t flash_partial_bytes(int splits, int64_t rows, int dv)
{
    return splits == 1 ? 0 : (size_t)splits * (size_t)rows * ((size_t)dv * sizeof(float) + sizeof(float2));
}
static inline flash_partial flash_partial_at(void *scratch, int splits, int64_t rows, int dv)
{
    if (splits == 1) return flash_partial{NULL, NULL};
    return flash_partial{(float *)scratch, (float2 *)((float *)scratch + (int64_t)splits * rows * dv)};
}

template <class Source>
static void flash_launch_merge(struct s2_backend *be, const Source &src, flash_partial part, int splits, int problems,
                               int queries, const char *what)
{
    if (splits == 1 || be->skip) return;
    const int64_t work = (int64_t)problems * queries * (src.dv / 4);
    const int threads = work < 256 * cu_of(be)->sm_count ? 64 : 256;
    cu_launch(be, flash_merge<Source>, cu_blocks(work, threads), threads, 0, src, part, splits, problems, queries);
    CU_LAUNCHED(be, what);
}

/* As cu_allow_shared */
template <class B, class Source> static bool flash_fits(struct s2_backend *be, const char *what)
{
    return cu_allow_shared(be, flash_kernel<B, Source>, B::BYTES, what);
}

/* Into how many parts flash_launch should split the keys; after flash_fits. */
template <class B, class Source>
static int flash_splits(struct s2_backend *be, int problems, int queries, int keys, int dv, const char *what)
{
    int active = 0;
    if (!cu_ok(be,
               cudaOccupancyMaxActiveBlocksPerMultiprocessor(&active, flash_kernel<B, Source>, B::THREADS, B::BYTES),
               what)) {
        return 1;
    }
    const int tiles = (keys + B::BN * B::GROUPS - 1) / (B::BN * B::GROUPS);
    return flash_choose_splits((int64_t)cu_blocks(queries, B::ROWS) * problems,
                               cu_of(be)->sm_count * (active ? active : 1), tiles, B::ROWS >= 64 ? 2 : 4, keys, dv);
}

/* queries, keys: the most of any problem; after flash_fits */
template <class B, class Source>
static void flash_launch(struct s2_backend *be, const Source &src, flash_partial part, int splits, int problems,
                         int queries, int keys, const char *what)
{
    if (be->skip) return;
    const bool one_tile = B::GROUPS == 1 && keys <= B::BN;
    const int bytes = one_tile ? B::ONE_TILE_BYTES : B::BYTES;
    const float scale2 = FLASH_LOG2E / sqrtf((float)src.d);
    const dim3 grid(cu_blocks(queries, B::ROWS), splits, problems);
    cu_launch(be, flash_kernel<B, Source>, grid, B::THREADS, bytes, src, part, scale2, one_tile);
    if (CU_LAUNCHED(be, what)) flash_launch_merge(be, src, part, splits, problems, queries, what);
}

#endif

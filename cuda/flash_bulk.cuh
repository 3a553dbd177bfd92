/* flash_bulk.cuh - attention on Hopper over keys and values laid out in device memory as the tiles of shared memory:
 * one thread brings whole tiles with the copy engine, while warpgroups of 64 queries each multiply and take
 * exponentials at their own pace (Shah et al., FlashAttention-3, 2024). */
#ifndef S2_FLASH_BULK_CUH
#define S2_FLASH_BULK_CUH

#include "flash_block.cuh"
#include "flash_hopper.cuh"

/* As hopper_blocking, with one warpgroup more, of which a thread issues the copies and which leaves its registers to
 * the others. REGISTERS: what those then have each; the block's whole is fixed by its size at the start. */
template <class T_, int D_, int DV_, int GROUPS_OF_64, int BN_> struct bulk_blocking {
    static_assert(GROUPS_OF_64 == 2 || GROUPS_OF_64 == 3, "registers are shared out for these");
    using T = T_;
    static constexpr int D = D_, DV = DV_, BN = BN_, STAGES = 2, MT = 1, WARPS = 4 * GROUPS_OF_64;
    static constexpr int ROWS = 64 * GROUPS_OF_64, THREADS = 32 * WARPS + 128;
    static constexpr int REGISTERS = GROUPS_OF_64 == 2 ? 240 : 160, REGISTERS_LEFT = 24;
    static constexpr int Q_BYTES = 2 * ROWS * D, K_BYTES = 2 * BN * D, V_BYTES = 2 * BN * DV;
    static constexpr int BYTES = Q_BYTES + 2 * (K_BYTES + V_BYTES);
    static constexpr int PITCH = 2 * DV + 16;
    static constexpr int O_TILES = DV / 8, S_TILES = BN / 8;
    static_assert(ROWS * PITCH <= BYTES, "results lie over the operands");
};

/* Tiles of all problems, each with room for `capacity` tiles: keys [problem][capacity][BN x D], values [..][BN x DV],
 * in core matrices. Values behind the last key are finite. */
template <class T> struct bulk_tiles {
    const T *keys, *values;
    int capacity;
};

/* ------------------------------------------------------------------ barriers and copies (PTX ISA, sm_90) */

__device__ __forceinline__ void bulk_barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(flash_shared(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void bulk_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(flash_shared(barrier)) : "memory");
}
/* Until the phase of the given parity is over. */
__device__ __forceinline__ void bulk_wait(uint64_t *barrier, int parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(flash_shared(barrier)),
                 "r"(parity)
                 : "memory");
}
/* Several copies in one phase of a barrier: first the bytes of all, then each. */
__device__ __forceinline__ void bulk_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(flash_shared(barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void bulk_copy_part(void *shared, const void *global, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     flash_shared(shared)),
                 "l"(global), "r"(bytes), "r"(flash_shared(barrier))
                 : "memory");
}
/* `bytes` into shared memory; the barrier's phase ends when they have arrived. One thread. */
__device__ __forceinline__ void bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *barrier)
{
    bulk_expect(barrier, bytes);
    bulk_copy_part(shared, global, bytes, barrier);
}

/* ------------------------------------------------------------------ the kernel */

#ifdef WGMMA_HERE

/* Two buffers of keys and two of values, each full after a copy and empty when all consumer warps are done with it. */
struct bulk_barriers {
    uint64_t full_k[2], full_v[2], empty_k[2], empty_v[2];
};

/* The tiles of a block: `count` of the problem's, with the operands' places in shared memory. */
struct bulk_block {
    unsigned char *q, *k, *v;
    int begin, count;
};

/* One thread. The values of a tile follow the keys of the next. */
template <class B>
__device__ __forceinline__ void bulk_produce(bulk_barriers &b, const bulk_block &m, bulk_tiles<typename B::T> tiles)
{
    const int64_t at = (int64_t)blockIdx.z * tiles.capacity + m.begin;
    for (int j = 0; j <= m.count; j++) {
        const int one = j & 1, other = one ^ 1;
        if (j < m.count) {
            if (j > 1) bulk_wait(b.empty_k + one, (j / 2 - 1) & 1);
            bulk_copy(m.k + one * B::K_BYTES, tiles.keys + (at + j) * (B::BN * B::D), B::K_BYTES, b.full_k + one);
        }
        if (j == 0) continue;
        if (j > 2) bulk_wait(b.empty_v + other, ((j - 1) / 2 - 1) & 1);
        bulk_copy(m.v + other * B::V_BYTES, tiles.values + (at + j - 1) * (B::BN * B::DV), B::V_BYTES,
                  b.full_v + other);
    }
}

/* The tiles that bulk_produce brings. */
template <class B> struct bulk_feed {
    bulk_barriers &b;
    int begin, all_keys, lane; /* all_keys: of the problem */

    __device__ __forceinline__ void keys(int j) const { bulk_wait(b.full_k + (j & 1), j / 2 & 1); }
    __device__ __forceinline__ void values(int j) const
    {
        bulk_wait(b.full_v + (j & 1), j / 2 & 1);
        wgmma_open();
    }
    __device__ __forceinline__ void running(int) const {}
    __device__ __forceinline__ void keys_used(int j) const
    {
        if (lane == 0) bulk_arrive(b.empty_k + (j & 1));
    }
    __device__ __forceinline__ void values_used(int j) const
    {
        if (lane == 0) bulk_arrive(b.empty_v + (j & 1));
    }
    __device__ __forceinline__ void mask(flash_scores_of<B> &s, int j) const
    {
        const int left = all_keys - (begin + j) * B::BN;
        if (left < B::BN) flash_mask<B>(s, left, -1, 0, lane);
    }
};

#endif

/* Grid as flash_kernel's. src gives queries, the number of keys and where results go. */
template <class B, class Source>
__global__ void __launch_bounds__(B::THREADS, 1)
    bulk_kernel(Source src, bulk_tiles<typename B::T> tiles, flash_partial part, float scale2)
{
    cu_await();
#ifdef WGMMA_HERE
    extern __shared__ __align__(128) unsigned char bulk_memory[];
    __shared__ bulk_barriers barriers;
    src.enter(blockIdx.z);
    const int warp = threadIdx.x >> 5, block_first = blockIdx.x * B::ROWS;
    if (block_first >= src.queries) return;

    const int all = (src.keys + B::BN - 1) / B::BN, begin = all * blockIdx.y / gridDim.y;
    unsigned char *k = bulk_memory + B::Q_BYTES;
    const bulk_block m = {bulk_memory, k, k + 2 * B::K_BYTES, begin, (int)(all * (blockIdx.y + 1) / gridDim.y) - begin};
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            bulk_barrier_init(barriers.full_k + i, 1), bulk_barrier_init(barriers.empty_k + i, B::WARPS);
            bulk_barrier_init(barriers.full_v + i, 1), bulk_barrier_init(barriers.empty_v + i, B::WARPS);
        }
    }
    hopper_fetch<B::ROWS, B::D / 8, B::THREADS>(
        m.q, src.queries - block_first, src.d / 8, threadIdx.x,
        [&](unsigned char *to, int row, int chunk) { src.query(to, block_first + row, chunk); });
    flash_copies_wait();
    wgmma_shared_written();
    __syncthreads();

    if (warp >= B::WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(B::REGISTERS_LEFT));
        if (threadIdx.x == 32 * B::WARPS) bulk_produce<B>(barriers, m, tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(B::REGISTERS));
        const int lane = threadIdx.x & 31;
        flash_state<B> w;
        flash_open(w);
        if (m.count > 0) {
            hopper_tiles(w, flash_shared(m.q) + (warp >> 2) * 8 * 128, flash_shared(m.k), flash_shared(m.v), m.count,
                         scale2, bulk_feed<B>{barriers, m.begin, src.keys, lane});
        }
        flash_close(w);
        flash_barrier(0, 32 * B::WARPS); /* all products are done: results may lie over the operands */
        const int first = block_first + warp * 16;
        if (part.top_sum) {
            flash_store_partial(w, src, part, first, scale2, lane);
        } else {
            flash_store(w, src, first, bulk_memory + warp * 16 * B::PITCH, lane);
        }
    }
#endif
}

/* Rows of keys and values as tiles, one thread a piece of 16 bytes; block (x, tile, problem). Behind the last key:
 * 0. */
template <class B, class Source>
__global__ void bulk_tile_rows(Source src, typename B::T *keys, typename B::T *values, int capacity)
{
    cu_await();
    using T = typename B::T;
    constexpr int k_pieces = B::BN * B::D / 8, v_pieces = B::BN * B::DV / 8;
    src.enter(blockIdx.z);
    const int all = (src.keys + B::BN - 1) / B::BN, tile = blockIdx.y;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (tile >= all || i >= k_pieces + v_pieces) return;
    const bool value = i >= k_pieces;
    if (value) i -= k_pieces;
    const int chunks = value ? B::DV / 8 : B::D / 8, chunk = (i >> 3) % chunks, local = (i >> 3) / chunks * 8 + (i & 7);
    const int row = tile * B::BN + local, width = value ? src.dv : src.d;
    const T *from = value ? src.v + (int64_t)row * src.ldv : src.k + (int64_t)row * src.ldk;
    uint4 piece = make_uint4(0, 0, 0, 0);
    if (row < src.keys && chunk * 8 < width) piece = *(const uint4 *)(from + chunk * 8);
    const int64_t base = ((int64_t)blockIdx.z * capacity + tile) * B::BN * (value ? B::DV : B::D);
    *(uint4 *)wgmma_piece<B::BN>((value ? values : keys) + base, local / 8, local % 8, chunk) = piece;
}

/* ------------------------------------------------------------------ launches */

/* As cu_allow_shared */
template <class B, class Source> static bool bulk_fits(struct s2_backend *be, const char *what)
{
    return cu_of(be)->cc == 90 && cu_allow_shared(be, bulk_kernel<B, Source>, B::BYTES, what);
}

template <class B> static int bulk_splits(struct s2_backend *be, int problems, int queries, int keys, int dv)
{
    return flash_choose_splits((int64_t)cu_blocks(queries, B::ROWS) * problems, cu_of(be)->sm_count,
                               cu_blocks(keys, B::BN), 2, keys, dv);
}

/* Bytes of the tiles of `problems` problems of up to `keys` keys: of keys, of values */
template <class B> static size_t bulk_key_bytes(int problems, int keys)
{
    return (size_t)problems * (size_t)cu_blocks(keys, B::BN) * B::K_BYTES;
}
template <class B> static size_t bulk_value_bytes(int problems, int keys)
{
    return (size_t)problems * (size_t)cu_blocks(keys, B::BN) * B::V_BYTES;
}

template <class B, class Source>
static void bulk_launch(struct s2_backend *be, const Source &src, bulk_tiles<typename B::T> tiles, flash_partial part,
                        int splits, int problems, const char *what)
{
    if (be->skip) return;
    const dim3 grid(cu_blocks(src.queries, B::ROWS), splits, problems);
    cu_launch(be, bulk_kernel<B, Source>, grid, B::THREADS, B::BYTES, src, tiles, part,
              FLASH_LOG2E / sqrtf((float)src.d));
    if (CU_LAUNCHED(be, what)) flash_launch_merge(be, src, part, splits, problems, src.queries, what);
}

#endif

/* flash_hopper.cuh - attention on Hopper: a warpgroup owns 64 queries and multiplies asynchronously (Shah et al.,
 * FlashAttention-3, 2024). The products of one warpgroup fill the tensor cores while another takes exponentials, and
 * each product of probabilities and values runs under the next tile's scores. The kernel here is for problems whose
 * keys all fit into shared memory, flash_bulk.cuh's for many keys. */
#ifndef S2_FLASH_HOPPER_CUH
#define S2_FLASH_HOPPER_CUH

#include "flash.cuh"
#include "wgmma.cuh"

/* T: bf16 or fp16. D, DV: channels, padded to multiples of 16. GROUPS_OF_64: queries a block. BN: keys a tile. BLOCKS:
 * that the registers of a multiprocessor shall hold. STAGES: tiles that lie in shared memory. The rest as in
 * flash_blocking. */
template <class T_, int D_, int DV_, int GROUPS_OF_64, int BN_, int BLOCKS_, int STAGES_> struct hopper_blocking {
    using T = T_;
    static constexpr int D = D_, DV = DV_, BN = BN_, BLOCKS = BLOCKS_, STAGES = STAGES_, MT = 1, GROUPS = 1;
    static constexpr int ROWS = 64 * GROUPS_OF_64, THREADS = 128 * GROUPS_OF_64;
    static constexpr int Q_BYTES = 2 * ROWS * D, K_BYTES = 2 * BN * D, V_BYTES = 2 * BN * DV;
    static constexpr int BYTES = Q_BYTES + STAGES * (K_BYTES + V_BYTES);
    static constexpr int PITCH = 2 * DV + 16; /* of a row of results on its way out, over the operands */
    static constexpr int O_TILES = DV / 8, S_TILES = BN / 8;
    static_assert(ROWS * PITCH <= BYTES, "results lie over the operands");
};

/* flash_fetch into core matrices of ROWS rows: eight lanes bring a core matrix, and a warp 64 bytes of each row. */
template <int ROWS, int CHUNKS, int THREADS, class Load>
__device__ __forceinline__ void hopper_fetch(unsigned char *to, int rows, int chunks, int thread, Load load)
{
    constexpr int pieces = ROWS * CHUNKS;
    const bool whole = rows >= ROWS && chunks >= CHUNKS;
#pragma unroll 4
    for (int i = thread; i < pieces; i += THREADS) {
        const int chunk = (i >> 3) % CHUNKS, high = (i >> 3) / CHUNKS, row = high * 8 + (i & 7);
        unsigned char *piece = wgmma_piece<ROWS>(to, high, i & 7, chunk);
        if (whole || (row < rows && chunk < chunks)) {
            load(piece, row, chunk);
        } else {
            *(uint4 *)piece = make_uint4(0, 0, 0, 0);
        }
    }
}

#ifdef WGMMA_HERE

/* A warpgroup's 64 queries at q over `count` > 0 tiles, which come in turns into the buffers at k and v. The feed:
 *   keys(j)                         returns when they are there
 *   values(j)                       the same, with their product opened; under keys(j + 1) that has been done
 *   running(j)                      while the products with keys j and values j - 1 are under way
 *   keys_used(j), values_used(j)    after those products
 *   mask(s, j)                      of the scores */
template <class B, class Feed>
__device__ __forceinline__ void hopper_tiles(flash_state<B> &w, uint32_t q, uint32_t k, uint32_t v, int count,
                                             float scale2, const Feed &feed)
{
    using T = typename B::T;
    flash_scores_of<B> s;
    uint32_t p[B::BN / 16][4]; /* the probabilities, as left operands */
    float shrink[1][2];
    const auto multiply_keys = [&](int j) {
        feed.keys(j);
        wgmma_open();
#pragma unroll
        for (int i = 0; i < B::D / 16; i++) {
            wgmma<T, B::BN>::ss(s[0], wgmma_operand(q + i * 2 * B::ROWS * 16, B::ROWS * 16, 128),
                                wgmma_operand(k + j % B::STAGES * B::K_BYTES + i * 2 * B::BN * 16, B::BN * 16, 128),
                                i > 0);
        }
        wgmma_commit();
    };
    const auto multiply_values = [&](int j) {
        feed.values(j);
#pragma unroll
        for (int i = 0; i < B::BN / 16; i++) {
            wgmma<T, B::DV>::rs(w.o[0], p[i], wgmma_operand(v + j % B::STAGES * B::V_BYTES + i * 256, 128, B::BN * 16),
                                1);
        }
        wgmma_commit();
    };
    const auto probabilities = [&](int j) {
        wgmma_settle(s[0]);
        feed.keys_used(j);
        feed.mask(s, j);
        return flash_softmax(w, s, scale2, shrink);
    };
    const auto pack = [&]() {
#pragma unroll
        for (int i = 0; i < B::BN / 16; i++) flash_pack_left<B>(p[i], s[0], i);
    };

    multiply_keys(0);
    feed.running(0);
    wgmma_wait<0>();
    probabilities(0);
    pack();
    for (int j = 1; j < count; j++) {
        multiply_keys(j);
        multiply_values(j - 1);
        feed.running(j);
        wgmma_wait<1>();
        const bool moved = probabilities(j);
        wgmma_wait<0>();
        wgmma_settle(w.o[0]);
        feed.values_used(j - 1);
        if (moved) flash_shrink(w, shrink);
        pack();
    }
    multiply_values(count - 1);
    wgmma_wait<0>();
    wgmma_settle(w.o[0]);
}

/* All tiles are brought at once: nothing is waited for after the first. */
template <class B, class Source> struct hopper_feed {
    const Source &src;
    int count, lane;

    __device__ __forceinline__ void keys(int j) const
    {
        if (j > 0) return;
        flash_copies_wait();
        wgmma_shared_written();
        __syncthreads();
    }
    __device__ __forceinline__ void values(int j) const
    {
        if (j + 1 == count) wgmma_open();
    }
    __device__ __forceinline__ void running(int) const {}
    __device__ __forceinline__ void keys_used(int) const {}
    __device__ __forceinline__ void values_used(int) const {}
    __device__ __forceinline__ void mask(flash_scores_of<B> &s, int j) const
    {
        const int left = src.keys - j * B::BN;
        if (left < B::BN || (Source::biased && left == B::BN))
            flash_mask<B>(s, left, Source::biased ? left - 1 : -1, src.score_bias(), lane);
    }
};

#endif

/* Problems of at most STAGES tiles of keys: block (x, 0, z) has query rows from x * ROWS of problem z. Shared memory:
 * the queries, then all keys, then all values. */
template <class B, class Source>
__global__ void __launch_bounds__(B::THREADS, B::BLOCKS) hopper_kernel(Source src, float scale2)
{
    cu_await();
#ifdef WGMMA_HERE
    extern __shared__ __align__(128) unsigned char hopper_memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = threadIdx.x >> 7;
    src.enter(blockIdx.z);
    const int block_first = blockIdx.x * B::ROWS, first = block_first + warp * 16;
    if (block_first >= src.queries) return;

    const int count = (src.keys + B::BN - 1) / B::BN;
    unsigned char *k = hopper_memory + B::Q_BYTES, *v = k + B::STAGES * B::K_BYTES;
    for (int j = 0; j < count; j++) {
        hopper_fetch<B::BN, B::D / 8, B::THREADS>(
            k + j * B::K_BYTES, src.keys - j * B::BN, src.d / 8, threadIdx.x,
            [&](unsigned char *to, int row, int chunk) { src.key(to, j * B::BN + row, chunk); });
        hopper_fetch<B::BN, B::DV / 8, B::THREADS>(
            v + j * B::V_BYTES, src.keys - j * B::BN, src.dv / 8, threadIdx.x,
            [&](unsigned char *to, int row, int chunk) { src.value(to, j * B::BN + row, chunk); });
    }
    hopper_fetch<B::ROWS, B::D / 8, B::THREADS>(
        hopper_memory, src.queries - block_first, src.d / 8, threadIdx.x,
        [&](unsigned char *to, int row, int chunk) { src.query(to, block_first + row, chunk); });
    flash_state<B> w;
    flash_open(w);
    hopper_tiles(w, flash_shared(hopper_memory) + group * 8 * 128, flash_shared(k), flash_shared(v), count, scale2,
                 hopper_feed<B, Source>{src, count, lane});
    flash_close(w);
    __syncthreads(); /* all products are done: results may lie over the operands */
    flash_store(w, src, first, hopper_memory + warp * 16 * B::PITCH, lane);
#endif
}

#endif

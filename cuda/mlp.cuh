/* mlp.cuh - on Hopper, a linear layer with what stands before and behind it in one kernel: layer norm, product, bias
 * and activation; or the two layers of a perceptron, whose hidden channels never leave the registers.
 *
 * A warpgroup has 64 tokens, whose normalised channels it keeps in registers as the left operand. Weights lie in device
 * memory in the order of core matrices (wgmma.cuh), so that any run of channels is one copy of the copy engine into a
 * ring of tiles in shared memory. Accumulators of the first product become the left operand of the second as they are
 * (as probabilities do in FlashAttention). */
#ifndef S2_MLP_CUH
#define S2_MLP_CUH

#include "flash_bulk.cuh"
#include "mlp_tokens.cuh"

template <class T> struct mlp_problem {
    const T *x;
    T *y;
    int ldx, ldy, tokens;
    const float *scale, *shift; /* of the norm; NULL: none */
    float eps;
    const T *w1, *w2; /* packed by cu_mlp_pack */
    const float *b1, *b2;
    int hidden; /* outputs of the first layer */
    enum s2_act act;
};

/* C: channels of a token. CHUNK: hidden channels at a time. GROUPS: warpgroups of 64 tokens; one more brings weights
 * and leaves its registers to them. */
template <class T_, int C_, int CHUNK_, int GROUPS_> struct mlp_blocking {
    static_assert(C_ % 16 == 0 && CHUNK_ % 16 == 0 && (GROUPS_ == 2 || GROUPS_ == 3), "");
    using T = T_;
    static constexpr int C = C_, CHUNK = CHUNK_, GROUPS = GROUPS_, THREADS = 128 * (GROUPS + 1);
    static constexpr int REGISTERS = GROUPS == 2 ? 240 : 160, REGISTERS_LEFT = 24;
    static constexpr int TILE_BYTES = 2 * C * CHUNK; /* of either layer */
};

enum { MLP_MAX_SLOTS = 16 };

/* ------------------------------------------------------------------ weights on their way */

struct mlp_barriers {
    uint64_t full[MLP_MAX_SLOTS], empty[MLP_MAX_SLOTS], vectors;
};

/* Tiles of weights in shared memory. resident: all of them, brought once. */
struct mlp_ring {
    unsigned char *tiles;
    mlp_barriers *barriers;
    int slots, bytes;
    bool resident;
    int slot, parity;

    __device__ __forceinline__ void advance()
    {
        if (++slot < slots) return;
        slot = 0;
        if (!resident) parity ^= 1;
    }
    __device__ __forceinline__ uint32_t await() const
    {
        bulk_wait(barriers->full + slot, parity);
        return flash_shared(tiles + slot * bytes);
    }
    __device__ __forceinline__ void release(int of, int lane) const
    {
        if (!resident && lane == 0) bulk_arrive(barriers->empty + of);
    }
    __device__ __forceinline__ void bring(const void *from)
    {
        if (!resident) bulk_wait(barriers->empty + slot, parity ^ 1);
        bulk_copy(tiles + slot * bytes, from, bytes, barriers->full + slot);
        advance();
    }
};

#ifdef WGMMA_HERE

/* ------------------------------------------------------------------ products */

/* Two warpgroups issue their products in turns, so that those of one run under the activations of the other, where both
 * would else multiply at the same time. (Issuing takes as long as multiplying, but for the last product.) Both take as
 * many turns; group 0 begins. */
enum { MLP_TURNS = 8 }; /* barrier of group 0, the next of group 1 */

template <class B> struct mlp_turn {
    int group;
    bool on;

    __device__ __forceinline__ void begin() const
    {
        if (group == 1) end();
    }
    __device__ __forceinline__ void take() const
    {
        if (B::GROUPS == 2 && on) asm volatile("bar.sync %0, 256;" ::"r"(MLP_TURNS + group) : "memory");
    }
    __device__ __forceinline__ void end() const
    {
        if (B::GROUPS == 2 && on) asm volatile("bar.arrive %0, 256;" ::"r"(MLP_TURNS + 1 - group) : "memory");
    }
};

template <class B>
__device__ __forceinline__ void mlp_first(float (&h)[B::CHUNK / 8][4], const uint32_t (&a)[B::C / 16][4], uint32_t w)
{
    const uint64_t b = wgmma_operand(w, 128, B::C * 16);
    wgmma_open();
#pragma unroll
    for (int i = 0; i < B::C / 16; i++) wgmma<typename B::T, B::CHUNK>::rs(h, a[i], wgmma_behind(b, i * 256), i > 0);
    wgmma_commit();
}

template <class B>
__device__ __forceinline__ void mlp_second(float (&y)[B::C / 8][4], const uint32_t (&p)[B::CHUNK / 16][4], uint32_t w)
{
    const uint64_t b = wgmma_operand(w, B::C * 16, 128);
    wgmma_open();
#pragma unroll
    for (int i = 0; i < B::CHUNK / 16; i++) wgmma<typename B::T, B::C>::rs(y, p[i], wgmma_behind(b, i * B::C * 32), 1);
    wgmma_commit();
}

/* y = the sum over `count` chunks of hidden channels of the 64 tokens. Tiles come in the order of mlp_bring. The last
 * product is under way on return. */
template <class B>
__device__ __forceinline__ void mlp_both(float (&y)[B::C / 8][4], const uint32_t (&a)[B::C / 16][4], mlp_ring &ring,
                                         const float *bias, int count, enum s2_act act, int lane,
                                         const mlp_turn<B> &turn)
{
    float h[B::CHUNK / 8][4];
    uint32_t p[B::CHUNK / 16][4];
    int second = 0; /* the slot of the second layer's tile in use */
    const auto activate = [&](int j) {
        mlp_activate<B::CHUNK>(h, bias + j * B::CHUNK, act, lane);
        if (j > 0) {
            wgmma_wait<0>();
            wgmma_settle(y);
            ring.release(second, lane);
        }
        mlp_narrow<typename B::T, B::CHUNK>(p, h);
    };
#pragma unroll
    for (int i = 0; i < B::C / 2; i++) y[i / 4][i % 4] = 0;
    turn.take();
    mlp_first<B>(h, a, ring.await());
    turn.end();
    wgmma_wait<0>();
    wgmma_settle(h);
    ring.release(ring.slot, lane);
    ring.advance();
    for (int j = 0; j + 1 < count; j++) {
        activate(j);
        turn.take();
        const int first = ring.slot;
        mlp_first<B>(h, a, ring.await());
        ring.advance();
        mlp_second<B>(y, p, ring.await());
        turn.end();
        second = ring.slot;
        ring.advance();
        wgmma_wait<1>();
        wgmma_settle(h);
        ring.release(first, lane);
    }
    activate(count - 1);
    turn.take();
    mlp_second<B>(y, p, ring.await());
    turn.end();
}

/* Then y is there. */
template <class B> __device__ __forceinline__ void mlp_both_end(float (&y)[B::C / 8][4], mlp_ring &ring, int lane)
{
    wgmma_wait<0>();
    wgmma_settle(y);
    ring.release(ring.slot, lane);
    ring.advance();
}

template <class B>
__device__ __forceinline__ void mlp_bring(mlp_ring &ring, const mlp_problem<typename B::T> &p, int count)
{
    ring.bring(p.w1);
    for (int j = 0; j < count; j++) {
        if (j + 1 < count) ring.bring(p.w1 + (int64_t)(j + 1) * B::CHUNK * B::C);
        ring.bring(p.w2 + (int64_t)j * B::CHUNK * B::C);
    }
}

#endif

/* ------------------------------------------------------------------ kernels */

/* Shared memory: `slots` tiles, then vectors of floats: of all channels the norm's scale and shift and, if both layers
 * are there, the second bias, and the first bias of the block's hidden channels. */
template <class B> struct mlp_vectors {
    float *scale, *shift, *b2, *b1;
    __device__ __forceinline__ mlp_vectors(unsigned char *memory, int slots, bool both)
        : scale((float *)(memory + slots * B::TILE_BYTES)), shift(scale + B::C), b2(shift + B::C),
          b1(both ? b2 + B::C : b2)
    {
    }
};

/* One thread. */
template <class B>
__device__ __forceinline__ void mlp_bring_vectors(const mlp_vectors<B> &to, const mlp_problem<typename B::T> &p,
                                                  int begin, int count, uint64_t *barrier)
{
    const auto bring = [&](float *shared, const float *global, int floats) {
        if (global) bulk_copy_part(shared, global, 4 * floats, barrier);
    };
    const int all = (p.scale ? 2 * B::C : 0) + (p.b2 ? B::C : 0) + count * B::CHUNK;
    bulk_expect(barrier, 4 * all);
    bring(to.scale, p.scale, B::C), bring(to.shift, p.shift, B::C), bring(to.b2, p.b2, B::C);
    bring(to.b1, p.b1 + begin * B::CHUNK, count * B::CHUNK);
}

template <class B>
__device__ __forceinline__ mlp_ring mlp_open(unsigned char *memory, mlp_barriers &barriers, int slots, bool resident)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < slots; i++) {
            bulk_barrier_init(barriers.full + i, 1);
            bulk_barrier_init(barriers.empty + i, 4 * B::GROUPS);
        }
        bulk_barrier_init(&barriers.vectors, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    return {memory, &barriers, slots, B::TILE_BYTES, resident, 0, 0};
}

/* y += fc2(act(fc1(norm(x)))), each block on some of the tokens. resident: the ring has room for all tiles, and
 * warpgroups go their own ways. */
template <class B>
__global__ void __launch_bounds__(B::THREADS, 1) mlp_kernel(mlp_problem<typename B::T> p, int slots, bool resident)
{
#ifdef WGMMA_HERE
    using T = typename B::T;
    extern __shared__ __align__(128) unsigned char mlp_memory[];
    __shared__ mlp_barriers barriers;
    constexpr int G = B::GROUPS, C = B::C;
    const int count = p.hidden / B::CHUNK;
    mlp_ring ring = mlp_open<B>(mlp_memory, barriers, slots, resident);
    const int units = (p.tokens + 63) / 64, warp = threadIdx.x >> 5, group = threadIdx.x >> 7, lane = threadIdx.x & 31;
    const int blocks = (units + G - 1) / G;

    if (warp >= 4 * G) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(B::REGISTERS_LEFT));
        if (threadIdx.x == 128 * G) { /* without cu_await: weights do not change */
            mlp_bring_vectors(mlp_vectors<B>(mlp_memory, slots, true), p, 0, count, &barriers.vectors);
            for (int block = blockIdx.x; block < blocks || resident; block += gridDim.x) {
                mlp_bring<B>(ring, p, count);
                if (resident) break;
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(B::REGISTERS));
        cu_await();
        const mlp_vectors<B> vectors(mlp_memory, slots, true);
        const mlp_turn<B> turn = {group, !resident};
        turn.begin();
        const int step = resident ? gridDim.x * G : gridDim.x, end = resident ? units : blocks;
        int at = resident ? blockIdx.x + gridDim.x * group : blockIdx.x;
        const auto first_of = [&](int i) { return (int64_t)(resident ? i : i * G + group) * 64 + warp % 4 * 16; };
        const auto left_of = [&](int i) { return (int)max(min((int64_t)16, p.tokens - first_of(i)), (int64_t)0); };
        uint32_t a[C / 16][4], r[C / 16][4];
        for (; at < end; at += step) {
            float y[C / 8][4];
            mlp_read<T, C>(a, p.x + first_of(at) * p.ldx, p.ldx, left_of(at), lane);
            bulk_wait(&barriers.vectors, 0);
            if (p.scale) mlp_normalise<T, C>(a, vectors.scale, vectors.shift, p.eps, lane, p.tokens < 0);
            mlp_both<B>(y, a, ring, vectors.b1, count, p.act, lane, turn);
            T *const out = p.y + first_of(at) * p.ldy;
            /* where registers allow it, under the last product */
            if (G == 2) mlp_read<T, C>(r, out, p.ldy, left_of(at), lane);
            mlp_both_end<B>(y, ring, lane);
            if (G == 3) mlp_read<T, C>(r, out, p.ldy, left_of(at), lane);
            mlp_add<T, C>(r, y, vectors.b2, lane);
            mlp_write<T, C>(out, p.ldy, left_of(at), r, lane);
        }
    }
#endif
}

/* y = act(fc1(norm(x))). Grid (blocks of 64 GROUPS tokens, parts of the outputs); resident: any number of blocks, which
 * go through the tokens. Where registers allow it the products of a chunk run while the one before is activated and
 * written; otherwise the groups take turns. */
template <class B, bool GELU>
__global__ void __launch_bounds__(B::THREADS, 1)
    mlp_layer_kernel(mlp_problem<typename B::T> p, int slots, bool resident)
{
#ifdef WGMMA_HERE
    using T = typename B::T;
    extern __shared__ __align__(128) unsigned char mlp_memory[];
    __shared__ mlp_barriers barriers;
    const int chunks = p.hidden / B::CHUNK;
    const int begin = chunks * blockIdx.y / gridDim.y, count = chunks * (blockIdx.y + 1) / gridDim.y - begin;
    mlp_ring ring = mlp_open<B>(mlp_memory, barriers, slots, resident);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;

    if (warp >= 4 * B::GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(B::REGISTERS_LEFT));
        if (threadIdx.x == 128 * B::GROUPS) { /* without cu_await: weights do not change */
            mlp_bring_vectors(mlp_vectors<B>(mlp_memory, slots, false), p, begin, count, &barriers.vectors);
            for (int j = 0; j < count; j++) ring.bring(p.w1 + (int64_t)(begin + j) * B::CHUNK * B::C);
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(B::REGISTERS));
    cu_await();
    const mlp_vectors<B> vectors(mlp_memory, slots, false);
    constexpr int TOKENS = 64 * B::GROUPS;
    int done = 0; /* the slot of the chunk to finish */
#pragma unroll 1
    for (int64_t block = blockIdx.x; block * TOKENS < p.tokens; block += gridDim.x) {
        const int64_t first = block * TOKENS + warp * 16;
        const int rows = (int)max(min((int64_t)16, p.tokens - first), (int64_t)0);
        uint32_t a[B::C / 16][4];
        mlp_read<T, B::C>(a, p.x + first * p.ldx, p.ldx, rows, lane);
        bulk_wait(&barriers.vectors, 0);
        if (p.scale) mlp_normalise<T, B::C>(a, vectors.scale, vectors.shift, p.eps, lane, p.tokens < 0);
        T *to = p.y + first * p.ldy + begin * B::CHUNK;
        const float *bias = vectors.b1;
        const auto issue = [&](float(&h)[B::CHUNK / 8][4]) {
            mlp_first<B>(h, a, ring.await());
            ring.advance();
        };
        const auto finish = [&](float(&h)[B::CHUNK / 8][4]) {
            wgmma_settle(h);
            ring.release(done, lane);
            done = done + 1 < slots ? done + 1 : 0;
            mlp_finish<T, B::CHUNK, GELU>(to, p.ldy, rows, h, bias, lane);
            to += B::CHUNK, bias += B::CHUNK;
        };
        if constexpr (B::C <= 448) {
            /* no products depend on a condition, or the compiler would wait for them */
            float h[2][B::CHUNK / 8][4];
            int left = count;
            issue(h[0]);
#pragma unroll 1
            for (; left > 2; left -= 2) {
                issue(h[1]);
                wgmma_wait<1>();
                finish(h[0]);
                issue(h[0]);
                wgmma_wait<1>();
                finish(h[1]);
            }
            if (left == 2) {
                issue(h[1]);
                wgmma_wait<1>();
                finish(h[0]);
                wgmma_wait<0>();
                finish(h[1]);
            } else {
                wgmma_wait<0>();
                finish(h[0]);
            }
        } else {
            float h[B::CHUNK / 8][4];
            const mlp_turn<B> turn = {(int)threadIdx.x >> 7, true};
            turn.begin();
#pragma unroll 1
            for (int j = 0; j < count; j++) {
                turn.take();
                issue(h);
                turn.end();
                wgmma_wait<0>();
                finish(h);
            }
        }
    }
#endif
}

#endif

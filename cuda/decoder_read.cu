/* decoder_read.cu - tokens attend to the image; see decoder_cross.cuh. */
#include "decoder_cross.cuh"

enum {
    READ_RANKS = 16,        /* blocks that share the pixels of an entry */
    READ_TILE = 64,         /* pixels at once */
    MEAN_PITCH = DEC_C + 40 /* written by fours of threads to eight rows without conflict */
};
static_assert((int)READ_TILE == (int)ROWS, "as many probabilities a row as the other way");

template <class T> struct read_tile {
    T raw[READ_TILE * DEC_MAP_PITCH], key[READ_TILE * DEC_MAP_PITCH];
};
template <class T> struct read_memory {
    T share[ROWS * SHARE_PITCH], at[DEC_TOKENS * DEC_PITCH], q[DEC_TOKENS * NARROW_PITCH], merged[DEC_TOKENS * HEAD_D];
    float part[S2_DECODER_HEADS][DEC_C], top[2][ROWS], sum[2][ROWS], room[16];
    struct { /* of a head, from every block */
        float o[DEC_TOKENS * HEAD_D], top[DEC_TOKENS], sum[DEC_TOKENS];
    } from[READ_RANKS];
    T fold[ROWS * DEC_MAP_PITCH];
    read_tile<T> tile[2]; /* the second only where a block has more than one tile */
};
/* In place of the last two in the end: means of pixels in two parts, rounded and what that leaves */
template <class T> struct read_means {
    T high[ROWS * MEAN_PITCH], low[ROWS * MEAN_PITCH];
};

/* A cluster an entry; its blocks take tiles of pixels in turn. A warp has 16 rows, of them 32 pixels of a tile for
 * scores and 128 channels for results. */
template <class T> __global__ void __launch_bounds__(DEC_THREADS, 1) read_kernel(cross_args<T> a, int stages)
{
#ifdef DECODER_HERE
    extern __shared__ __align__(16) unsigned char dec_memory[];
    read_memory<T> &m = *(read_memory<T> *)dec_memory;
    static_assert(sizeof(read_means<T>) <= sizeof m.fold + sizeof m.tile[0], "room for the means");
    const cg::cluster_group cluster = cg::this_cluster();
    const int rank = (int)cluster.block_rank(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int rows = warp % 4 * 16, half = warp / 4, mine = rows + lane / 4; /* and mine + 8 */
    const int64_t entry = blockIdx.x / READ_RANKS;
    T *tokens = a.tokens + entry * a.t * DEC_C;
    const T *image = a.image + entry * a.pixels * DEC_C;
    const float scale2 = FLASH_LOG2E * rsqrtf(HEAD_D);
    dec_here();

    dec_rows<8> wide;
    fold_rows fold[4];
    narrow_rows out[2];
    dec_fetch(wide, a.q.w, DEC_C, warp * HEAD_D, DEC_INNER, lane);
#pragma unroll
    for (int i = 0; i < 4; i++) fold_fetch(fold[i], a.k.w + i * 64, warp * HEAD_D, lane);
#pragma unroll
    for (int i = 0; i < 2; i++)
        narrow_fetch(out[i], a.out.w + rank % S2_DECODER_HEADS * HEAD_D, (2 * warp + i) * 16, lane);
    dec_sums s = dec_start(a.q.b, warp * HEAD_D, DEC_INNER, lane);
    const dec_channel channel = dec_channel_of(a.norm, a.out.b);
    const float value_bias = a.v.b[rank % S2_DECODER_HEADS * HEAD_D + threadIdx.x % HEAD_D];
    cu_await();

    const int tiles = (a.pixels + READ_TILE - 1) / READ_TILE,
              count = rank < tiles ? (tiles - rank - 1) / READ_RANKS + 1 : 0;
    const auto fetch = [&](int j) {
        read_tile<T> &to = m.tile[j % stages];
        tile_fetch<READ_TILE>(to.raw, to.key, image, a.pe, (rank + j * READ_RANKS) * READ_TILE, a.pixels);
    };
    const dec_tokens<T> x(tokens, a.prompt + entry * a.t * DEC_C, a.t); /* soon needed, so asked for first */
    if (count > 0) fetch(0);
    x.sum().put(m.at);
    const float residual = rank < a.t ? cu_f32(tokens[rank * DEC_C + threadIdx.x]) : 0.0f;
    __syncthreads();
    dec_product(s, wide, m.at, DEC_PITCH, lane);
    dec_store(m.q, NARROW_PITCH, warp * HEAD_D, s, lane);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++)
        fold_product(m.fold + warp * DEC_TOKENS * DEC_MAP_PITCH + i * 64, fold[i], m.q + warp * HEAD_D, NARROW_PITCH,
                     lane);
    dec_fetch(wide, a.v.w, DEC_C, warp * HEAD_D, DEC_INNER, lane);

    float o[16][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    for (int j = 0; j < count; j++) {
        read_tile<T> &tile = m.tile[j % stages];
        tile_add<READ_TILE>(tile.raw, tile.key);
        __syncthreads();
        if (j + 1 < count) fetch(j + 1);
        float p[4][4];
        cross_scores(p, m.fold + rows * DEC_MAP_PITCH, tile.key + half * 32 * DEC_MAP_PITCH, lane);
        const int left = a.pixels - (rank + j * READ_RANKS) * READ_TILE - half * 32 - lane % 4 * 2;
        float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                p[i][e] = i * 8 + e % 2 < left ? p[i][e] * scale2 : -INFINITY;
                most[e / 2] = fmaxf(most[e / 2], p[i][e]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            most[r] = flash_quad_max(most[r]);
            if (lane % 4 == 0) m.top[half][mine + 8 * r] = most[r];
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float now = fmaxf(top[r], fmaxf(m.top[0][mine + 8 * r], m.top[1][mine + 8 * r]));
            const float shrink = flash_exp2(top[r] - now);
            top[r] = now, sum[r] *= shrink;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[i][2 * r] = flash_exp2(p[i][2 * r] - now), p[i][2 * r + 1] = flash_exp2(p[i][2 * r + 1] - now);
                sum[r] += p[i][2 * r] + p[i][2 * r + 1];
                *(uint32_t *)(m.share + (mine + 8 * r) * SHARE_PITCH + half * 32 + i * 8 + lane % 4 * 2) =
                    flash_pack<T>(p[i][2 * r], p[i][2 * r + 1]);
            }
#pragma unroll
            for (int i = 0; i < 16; i++) o[i][2 * r] *= shrink, o[i][2 * r + 1] *= shrink;
        }
        __syncthreads();
        cross_values(o, m.share + rows * SHARE_PITCH, tile.raw + half * DEC_C / 2, lane);
    }

    /* the means of the pixels, then the layer of values on them: a head a warp */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] = cu_lanes_sum<4>(sum[r]);
        if (lane % 4 == 0) m.sum[half][mine + 8 * r] = sum[r], m.top[half][mine + 8 * r] = top[r];
    }
    __syncthreads();
    read_means<T> &mean = *(read_means<T> *)m.fold;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = mine + 8 * r;
        const float all = m.sum[0][row] + m.sum[1][row], f = all > 0 ? 1 / all : 0.0f;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int at = row * MEAN_PITCH + half * DEC_C / 2 + i * 8 + lane % 4 * 2;
            const float u = o[i][2 * r] * f, v = o[i][2 * r + 1] * f;
            const uint32_t high = flash_pack<T>(u, v);
            const T *rounded = (const T *)&high;
            *(uint32_t *)(mean.high + at) = high;
            *(uint32_t *)(mean.low + at) = flash_pack<T>(u - cu_f32(rounded[0]), v - cu_f32(rounded[1]));
        }
    }
    __syncthreads();
    s = dec_sums{};
    dec_product(s, wide, mean.high + warp * DEC_TOKENS * MEAN_PITCH, MEAN_PITCH, lane);
    dec_product(s, wide, mean.low + warp * DEC_TOKENS * MEAN_PITCH, MEAN_PITCH, lane);
    dec_others_run();
    auto &mine_there = *cluster.map_shared_rank(&m.from[rank], warp);
    dec_store(mine_there.o, HEAD_D, 0, s, lane);
    if (lane < DEC_TOKENS) {
        const int row = warp * DEC_TOKENS + lane;
        mine_there.top[lane] = m.top[0][row], mine_there.sum[lane] = m.sum[0][row] + m.sum[1][row];
    }
    cluster.sync();

    /* block h has head h of all blocks, and its share of the output layer; block i has token i of all shares */
    if (rank < S2_DECODER_HEADS) {
        if (threadIdx.x < DEC_TOKENS * HEAD_D) {
            const int token = threadIdx.x / HEAD_D;
            float most = -INFINITY, all = 0, v = 0;
#pragma unroll
            for (int r = 0; r < READ_RANKS; r++) most = fmaxf(most, m.from[r].top[token]);
#pragma unroll
            for (int r = 0; r < READ_RANKS; r++) {
                const float share = m.from[r].sum[token] * flash_exp2(m.from[r].top[token] - most);
                all += share, v = fmaf(share, m.from[r].o[threadIdx.x], v);
            }
            m.merged[threadIdx.x] = cu_to<T>(v / all + value_bias);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; i++)
            dec_give(cluster, m.part, rank, (2 * warp + i) * 16, narrow_product(out[i], m.merged, HEAD_D, lane), lane);
    }
    cluster.sync();
    if (rank < a.t) {
        const float v = residual + dec_given<S2_DECODER_HEADS>(m.part);
        tokens[rank * DEC_C + threadIdx.x] = cu_to<T>(dec_normalised(v, channel, m.room));
    }
#endif
}

void cu_token_to_image(struct s2_backend *be, struct s2_tensor tokens, struct s2_tensor prompt, struct s2_tensor image,
                       struct s2_tensor pe, const struct s2_projections *p, const struct s2_norm *norm,
                       struct s2_tensor room)
{
    if (be->skip) return;
    const bool fits = cross_takes(tokens, prompt, image, pe, p);
    const int stages = image.h * image.w > READ_TILE * READ_RANKS ? 2 : 1;
    CU_BY_HALF(tokens.dtype, T, {
        const cross_args<T> a = cross_of<T>(tokens, prompt, image, pe, p, norm);
        const size_t bytes = sizeof(read_memory<T>) - (2 - stages) * sizeof(read_tile<T>);
        const dim3 grid((unsigned)(tokens.n * READ_RANKS));
        if (fits && dec_launch(be, read_kernel<T>, grid, READ_RANKS, DEC_THREADS, bytes, a, stages)) return;
    });
    s2_compose_token_to_image(be, tokens, prompt, image, pe, p, norm, room);
}

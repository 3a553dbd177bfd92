/* decoder_cross.cu - attention between tokens and the image, both ways, each one kernel; see decoder.cuh.
 *
 * There are 8 tokens and thousands of pixels, so pixels are not multiplied by a layer: of scores q (W x + b), W q is taken
 * first, and b, the same for all pixels, has no effect on the softmax; of results sum p (W x + b), the sum of p x. Each
 * head of each token becomes a row of 256 channels, 64 rows in all, which meet tiles of 64 pixels on tensor cores. The
 * other way, tokens are the keys and values, and the layers of queries and output are taken to them likewise. */
#include "decoder.cuh"

enum {
    HEAD_D = DEC_INNER / S2_DECODER_HEADS,
    ROWS = S2_DECODER_HEADS * DEC_TOKENS, /* row head * 8 + token */
    TILE = 64,                            /* pixels */
    NARROW_PITCH = DEC_INNER + 32,        /* of tokens times a layer */
    SHARE_PITCH = ROWS + 8,               /* of probabilities */
    READ_RANKS = 16,                      /* blocks that share the pixels of an entry */
    WRITE_RANKS = S2_DECODER_HEADS
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

/* Brings pixels first .. first + TILE - 1 of `pixels` and their positions to [TILE][DEC_MAP_PITCH], in the background;
 * zeros behind the last. */
template <class T>
__device__ __forceinline__ void tile_fetch(T *raw, T *key, const T *image, const T *pe, int first, int pixels)
{
#pragma unroll
    for (int i = 0; i < TILE * DEC_C / 8 / DEC_THREADS; i++) {
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
template <class T> __device__ __forceinline__ void tile_add(const T *raw, T *key)
{
    flash_copies_wait();
#pragma unroll
    for (int i = 0; i < TILE * DEC_C / 8 / DEC_THREADS; i++) {
        const int at = (threadIdx.x / 32 + i * (DEC_THREADS / 32)) * DEC_MAP_PITCH + threadIdx.x % 32 * 8;
        const cu_piece<T, 8> r = *(const cu_piece<T, 8> *)(raw + at);
        cu_piece<T, 8> k = *(const cu_piece<T, 8> *)(key + at);
#pragma unroll
        for (int e = 0; e < 8; e++) k.v[e] = cu_to<T>(cu_f32(r.v[e]) + cu_f32(k.v[e]));
        *(cu_piece<T, 8> *)(key + at) = k;
    }
}

/* s[i] = rows a [16][256] times columns 8 i .. 8 i + 7 of the 32 rows b, both of pitch DEC_MAP_PITCH */
template <class T> __device__ __forceinline__ void cross_scores(float (&s)[4][4], const T *a, const T *b, int lane)
{
    const uint32_t left = flash_shared(a + lane % 16 * DEC_MAP_PITCH + lane / 16 * 8);
    const uint32_t right = flash_shared(b + (lane % 8 + lane / 16 * 8) * DEC_MAP_PITCH + lane / 8 % 2 * 8);
#pragma unroll
    for (int i = 0; i < 4; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
    for (int k = 0; k < DEC_C / 16; k++) {
        uint32_t x[4], y[4];
        flash_load4(x, left + k * 32);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            flash_load4(y, right + (i * 8 * DEC_MAP_PITCH + k * 16) * (int)sizeof(T));
            flash_mma<T>(s[i], x, y[0], y[1]);
            flash_mma<T>(s[i + 1], x, y[2], y[3]);
        }
    }
}

/* o[i] += probabilities p [16][64] times channels 8 i .. 8 i + 7 of 128 of v [64][DEC_MAP_PITCH] */
template <class T> __device__ __forceinline__ void cross_values(float (&o)[16][4], const T *p, const T *v, int lane)
{
    const uint32_t left = flash_shared(p + lane % 16 * SHARE_PITCH + lane / 16 * 8);
    const uint32_t right = flash_shared(v + (lane % 8 + lane / 8 % 2 * 8) * DEC_MAP_PITCH + lane / 16 * 8);
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
        uint32_t x[4], y[4];
        flash_load4(x, left + k * 32);
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            flash_load4_transposed(y, right + (k * 16 * DEC_MAP_PITCH + i * 8) * (int)sizeof(T));
            flash_mma<T>(o[i], x, y[0], y[1]);
            flash_mma<T>(o[i + 1], x, y[2], y[3]);
        }
    }
}

/* Over the four threads that have a row */
__device__ __forceinline__ float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float quad_sum(float v)
{
    return cu_lanes_sum<4>(v);
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

/* ------------------------------------------------------------------ tokens to image */

template <class T> struct read_tile {
    T raw[TILE * DEC_MAP_PITCH], key[TILE * DEC_MAP_PITCH];
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
    T high[ROWS * DEC_PITCH], low[ROWS * DEC_PITCH];
};

/* A cluster an entry; its blocks take tiles of pixels in turn. A warp has 16 rows, of them 32 pixels of a tile for scores
 * and 128 channels for results. */
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

    const int tiles = (a.pixels + TILE - 1) / TILE, count = rank < tiles ? (tiles - rank - 1) / READ_RANKS + 1 : 0;
    const auto fetch = [&](int j) {
        read_tile<T> &to = m.tile[j % stages];
        tile_fetch(to.raw, to.key, image, a.pe, (rank + j * READ_RANKS) * TILE, a.pixels);
    };
    if (count > 0) fetch(0);
    dec_tokens<T>(m.at, tokens, a.prompt + entry * a.t * DEC_C, a.t);
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
        tile_add(tile.raw, tile.key);
        __syncthreads();
        if (stages == 2 && j + 1 < count) fetch(j + 1);
        float p[4][4];
        cross_scores(p, m.fold + rows * DEC_MAP_PITCH, tile.key + half * 32 * DEC_MAP_PITCH, lane);
        const int left = a.pixels - (rank + j * READ_RANKS) * TILE - half * 32 - lane % 4 * 2;
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
            most[r] = quad_max(most[r]);
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
        if (stages == 1 && j + 1 < count) {
            __syncthreads();
            fetch(j + 1);
        }
    }

    /* the means of the pixels, then the layer of values on them: a head a warp */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] = quad_sum(sum[r]);
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
            const int at = row * DEC_PITCH + half * DEC_C / 2 + i * 8 + lane % 4 * 2;
            const float x = o[i][2 * r] * f, y = o[i][2 * r + 1] * f;
            const float x_high = cu_f32(cu_to<T>(x)), y_high = cu_f32(cu_to<T>(y));
            *(uint32_t *)(mean.high + at) = flash_pack<T>(x_high, y_high);
            *(uint32_t *)(mean.low + at) = flash_pack<T>(x - x_high, y - y_high);
        }
    }
    __syncthreads();
    s = dec_sums{};
    dec_product(s, wide, mean.high + warp * DEC_TOKENS * DEC_PITCH, DEC_PITCH, lane);
    dec_product(s, wide, mean.low + warp * DEC_TOKENS * DEC_PITCH, DEC_PITCH, lane);
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

/* ------------------------------------------------------------------ image to tokens */

template <class T> struct write_memory {
    T keys[ROWS * DEC_MAP_PITCH], values[ROWS * DEC_MAP_PITCH], raw[TILE * DEC_MAP_PITCH], key[TILE * DEC_MAP_PITCH];
    T share[TILE * SHARE_PITCH], at[DEC_TOKENS * DEC_PITCH], value[DEC_TOKENS * DEC_PITCH];
    T k[DEC_TOKENS * HEAD_D], v[DEC_TOKENS * HEAD_D];
    float bias[ROWS], sum[2][TILE], square[2][TILE];
};

/* Each block of a cluster takes the layers to the tokens' keys and values of one head, for all of them. Then they have
 * tiles of the pixels of entry blockIdx.y in turn. A warp has 16 pixels, of them four heads of the scores and 128
 * channels of the results. */
template <class T> __global__ void __launch_bounds__(DEC_THREADS, 1) write_kernel(cross_args<T> a)
{
#ifdef DECODER_HERE
    extern __shared__ __align__(16) unsigned char dec_memory[];
    write_memory<T> &m = *(write_memory<T> *)dec_memory;
    const cg::cluster_group cluster = cg::this_cluster();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = (int)cluster.block_rank();
    const int rows = warp % 4 * 16, half = warp / 4, mine = rows + lane / 4; /* and mine + 8 */
    const int64_t entry = blockIdx.y;
    const T *tokens = a.tokens + entry * a.t * DEC_C;
    T *image = a.image + entry * a.pixels * DEC_C;
    const float scale2 = FLASH_LOG2E * rsqrtf(HEAD_D);
    dec_here();

    { /* warps 0 and 1 make k and v, 0 to 3 then the values, 4 to 7 the keys */
        dec_rows<8> wide;
        narrow_rows out[4];
        fold_rows in;
        dec_sums s = dec_start(warp == 0 ? a.k.b : a.v.b, head * HEAD_D, DEC_INNER, lane);
        if (warp < 2) dec_fetch(wide, warp == 0 ? a.k.w : a.v.w, DEC_C, head * HEAD_D, DEC_INNER, lane);
        if (warp < 4) {
#pragma unroll
            for (int i = 0; i < 4; i++) narrow_fetch(out[i], a.out.w + head * HEAD_D, (4 * warp + i) * 16, lane);
        } else {
            fold_fetch(in, a.q.w + (warp - 4) * 64, head * HEAD_D, lane);
        }
        float bias[HEAD_D];
#pragma unroll
        for (int d = 0; d < HEAD_D; d++) bias[d] = warp == 2 ? a.q.b[head * HEAD_D + d] : 0.0f;
        cu_await();
        tile_fetch(m.raw, m.key, (const T *)image, a.pe, blockIdx.x * TILE, a.pixels);
        dec_tokens<T>(m.at, tokens, a.prompt + entry * a.t * DEC_C, a.t);
        dec_tokens<T>(m.value, tokens, NULL, a.t);
        __syncthreads();
        if (warp < 2) {
            dec_product(s, wide, warp == 0 ? m.at : m.value, DEC_PITCH, lane);
            dec_store(warp == 0 ? m.k : m.v, HEAD_D, 0, s, lane);
        }
        __syncthreads();
        T *keys = m.keys + head * DEC_TOKENS * DEC_MAP_PITCH, *values = m.values + head * DEC_TOKENS * DEC_MAP_PITCH;
        if (warp < 4) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                dec_store(values, DEC_MAP_PITCH, (4 * warp + i) * 16, narrow_product(out[i], m.v, HEAD_D, lane), lane);
        } else {
            fold_product(keys + (warp - 4) * 64, in, m.k, HEAD_D, lane);
        }
        dec_others_run();
        if (warp == 2 && lane < DEC_TOKENS) {
            float b = 0;
#pragma unroll
            for (int d = 0; d < HEAD_D; d++) b = fmaf(bias[d], cu_f32(m.k[lane * HEAD_D + d]), b);
#pragma unroll
            for (int r = 0; r < WRITE_RANKS; r++) cluster.map_shared_rank(m.bias, r)[head * DEC_TOKENS + lane] = b;
        }
        __syncthreads();
        T *k = keys + warp * DEC_MAP_PITCH + lane * 8, *v = values + warp * DEC_MAP_PITCH + lane * 8;
        const uint4 one = *(const uint4 *)k, two = *(const uint4 *)v;
#pragma unroll
        for (int r = 1; r < WRITE_RANKS; r++) {
            const int to = (head + r) % WRITE_RANKS;
            *(uint4 *)cluster.map_shared_rank(k, to) = one, *(uint4 *)cluster.map_shared_rank(v, to) = two;
        }
        cluster.sync();
    }

    for (int first = blockIdx.x * TILE; first < a.pixels; first += gridDim.x * TILE) {
        tile_add(m.raw, m.key);
        __syncthreads();
        float p[4][4];
        cross_scores(p, m.key + rows * DEC_MAP_PITCH, m.keys + half * 32 * DEC_MAP_PITCH, lane);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int token = lane % 4 * 2, row = half * 32 + i * 8 + token;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float x = token < a.t ? (p[i][2 * r] + m.bias[row]) * scale2 : -INFINITY;
                float y = token + 1 < a.t ? (p[i][2 * r + 1] + m.bias[row + 1]) * scale2 : -INFINITY;
                const float top = quad_max(fmaxf(x, y));
                x = flash_exp2(x - top), y = flash_exp2(y - top);
                const float f = 1 / quad_sum(x + y);
                *(uint32_t *)(m.share + (mine + 8 * r) * SHARE_PITCH + row) = flash_pack<T>(x * f, y * f);
            }
        }
        __syncthreads();
        float o[16][4] = {}, sum[2] = {0, 0}, square[2] = {0, 0};
        cross_values(o, m.share + rows * SHARE_PITCH, m.values + half * DEC_C / 2, lane);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int c = half * DEC_C / 2 + i * 8 + lane % 4 * 2;
            const float2 b = *(const float2 *)(a.out.b + c);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const T *x = m.raw + (mine + 8 * r) * DEC_MAP_PITCH + c;
                o[i][2 * r] += b.x + cu_f32(x[0]), o[i][2 * r + 1] += b.y + cu_f32(x[1]);
                sum[r] += o[i][2 * r] + o[i][2 * r + 1];
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            sum[r] = quad_sum(sum[r]);
            if (lane % 4 == 0) m.sum[half][mine + 8 * r] = sum[r];
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float mean = (m.sum[0][mine + 8 * r] + m.sum[1][mine + 8 * r]) / DEC_C;
#pragma unroll
            for (int i = 0; i < 16; i++) {
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++) o[i][e] -= mean, square[r] = fmaf(o[i][e], o[i][e], square[r]);
            }
            square[r] = quad_sum(square[r]);
            if (lane % 4 == 0) m.square[half][mine + 8 * r] = square[r];
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float scale = rsqrtf((m.square[0][mine + 8 * r] + m.square[1][mine + 8 * r]) / DEC_C + a.norm.eps);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const int c = half * DEC_C / 2 + i * 8 + lane % 4 * 2;
                const float2 weight = *(const float2 *)(a.norm.weight + c), b = *(const float2 *)(a.norm.bias + c);
                *(uint32_t *)(m.raw + (mine + 8 * r) * DEC_MAP_PITCH + c) =
                    flash_pack<T>(o[i][2 * r] * scale * weight.x + b.x, o[i][2 * r + 1] * scale * weight.y + b.y);
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE * DEC_C / 8 / DEC_THREADS; i++) {
            const int row = threadIdx.x / 32 + i * (DEC_THREADS / 32), chunk = threadIdx.x % 32 * 8;
            const uint4 v = *(const uint4 *)(m.raw + row * DEC_MAP_PITCH + chunk);
            if (first + row < a.pixels) *(uint4 *)(image + (int64_t)(first + row) * DEC_C + chunk) = v;
        }
        const int next = first + gridDim.x * TILE;
        if (next < a.pixels) tile_fetch(m.raw, m.key, (const T *)image, a.pe, next, a.pixels);
    }
#endif
}

/* ------------------------------------------------------------------ operators */

static bool cross_takes(struct s2_tensor tokens, struct s2_tensor prompt, struct s2_tensor image, struct s2_tensor pe,
                        const struct s2_projections *p)
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

void cu_token_to_image(struct s2_backend *be, struct s2_tensor tokens, struct s2_tensor prompt, struct s2_tensor image,
                       struct s2_tensor pe, const struct s2_projections *p, const struct s2_norm *norm,
                       struct s2_tensor room)
{
    if (be->skip) return;
    const bool fits = cross_takes(tokens, prompt, image, pe, p);
    const int stages = image.h * image.w > TILE * READ_RANKS ? 2 : 1;
    DEC_BY_TYPE(tokens.dtype, T, {
        if (fits && dec_runs(be, read_kernel<T>, READ_RANKS, sizeof(read_memory<T>))) {
            const cross_args<T> a = cross_of<T>(tokens, prompt, image, pe, p, norm);
            dec_launch(be, read_kernel<T>, dim3((unsigned)(tokens.n * READ_RANKS)), READ_RANKS, DEC_THREADS,
                       sizeof(read_memory<T>) - (2 - stages) * sizeof(read_tile<T>), "token_to_image", a, stages);
            return;
        }
    });
    s2_compose_token_to_image(be, tokens, prompt, image, pe, p, norm, room);
}

void cu_image_to_token(struct s2_backend *be, struct s2_tensor image, struct s2_tensor pe, struct s2_tensor tokens,
                       struct s2_tensor prompt, const struct s2_projections *p, const struct s2_norm *norm,
                       struct s2_tensor room)
{
    if (be->skip) return;
    const bool fits = cross_takes(tokens, prompt, image, pe, p);
    const int tiles = cu_blocks(image.h * image.w, TILE), most = cu_of(be)->sm_count / image.n;
    const int clusters = cu_blocks(tiles < most || most < 1 ? tiles : most, WRITE_RANKS);
    DEC_BY_TYPE(tokens.dtype, T, {
        if (fits && dec_runs(be, write_kernel<T>, WRITE_RANKS, sizeof(write_memory<T>))) {
            const cross_args<T> a = cross_of<T>(tokens, prompt, image, pe, p, norm);
            const dim3 grid((unsigned)(clusters * WRITE_RANKS), (unsigned)image.n);
            dec_launch(be, write_kernel<T>, grid, WRITE_RANKS, DEC_THREADS, sizeof(write_memory<T>), "image_to_token",
                       a);
            return;
        }
    });
    s2_compose_image_to_token(be, image, pe, tokens, prompt, p, norm, room);
}

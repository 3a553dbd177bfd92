/* decoder_write.cu - the image attends to tokens; see decoder_cross.cuh. */
#include "decoder_cross.cuh"

enum {
    WRITE_RANKS = S2_DECODER_HEADS, /* blocks that share what is made of the tokens */
    WRITE_TILE = 32                 /* pixels at once */
};

template <class T> struct write_memory {
    T keys[ROWS * DEC_MAP_PITCH], values[ROWS * DEC_MAP_PITCH];
    T raw[WRITE_TILE * DEC_MAP_PITCH], key[WRITE_TILE * DEC_MAP_PITCH];
    T share[WRITE_TILE * SHARE_PITCH], at[DEC_TOKENS * DEC_PITCH], value[DEC_TOKENS * DEC_PITCH];
    T k[DEC_TOKENS * NARROW_PITCH], v[DEC_TOKENS * NARROW_PITCH];
    float plus[DEC_C], weight[DEC_C], shift[DEC_C]; /* of the output layer and of the norm */
    float query[DEC_INNER];                         /* bias of the queries */
    float bias[ROWS], sum[4][WRITE_TILE], square[4][WRITE_TILE];
};

/* Each block of a cluster makes keys and values of one head for all; a warp takes the other layers to them. Then they
 * have tiles of the pixels of entry blockIdx.y in turn. A warp has 16 pixels, of them two heads of the scores and 64
 * channels of the results. */
template <class T> __global__ void __launch_bounds__(DEC_THREADS, 1) write_kernel(cross_args<T> a)
{
#ifdef DECODER_HERE
    extern __shared__ __align__(16) unsigned char dec_memory[];
    write_memory<T> &m = *(write_memory<T> *)dec_memory;
    const cg::cluster_group cluster = cg::this_cluster();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = (int)cluster.block_rank();
    const int rows = warp % 2 * 16, quarter = warp / 2, mine = rows + lane / 4; /* and mine + 8 */
    const int64_t entry = blockIdx.y;
    const T *tokens = a.tokens + entry * a.t * DEC_C;
    T *image = a.image + entry * a.pixels * DEC_C;
    const float scale2 = FLASH_LOG2E * rsqrtf(HEAD_D);
    dec_here();

    {
        dec_rows<8> wide; /* of warp 0 for k, of warp 1 for v */
        fold_rows in[4];
        narrow_rows out[DEC_C / 16];
        if (warp < 2) dec_fetch(wide, warp == 0 ? a.k.w : a.v.w, DEC_C, head * HEAD_D, DEC_INNER, lane);
        dec_sums s = dec_start(warp == 0 ? a.k.b : a.v.b, head * HEAD_D, DEC_INNER, lane);
#pragma unroll
        for (int i = 0; i < 4; i++) fold_fetch(in[i], a.q.w + i * 64, warp * HEAD_D, lane);
#pragma unroll
        for (int i = 0; i < DEC_C / 16; i++) narrow_fetch(out[i], a.out.w + warp * HEAD_D, i * 16, lane);
        m.plus[threadIdx.x] = a.out.b[threadIdx.x];
        m.weight[threadIdx.x] = a.norm.weight[threadIdx.x], m.shift[threadIdx.x] = a.norm.bias[threadIdx.x];
        if (threadIdx.x < DEC_INNER) m.query[threadIdx.x] = a.q.b[threadIdx.x];
        cu_await();

        const dec_tokens<T> x(tokens, a.prompt + entry * a.t * DEC_C, a.t); /* soon needed, so asked for first */
        tile_fetch<WRITE_TILE>(m.raw, m.key, (const T *)image, a.pe, blockIdx.x * WRITE_TILE, a.pixels);
        x.sum().put(m.at), x.put(m.value);
        dec_others_run();
        __syncthreads();
        if (warp < 2) {
            dec_product(s, wide, warp == 0 ? m.at : m.value, DEC_PITCH, lane);
#pragma unroll
            for (int r = 0; r < WRITE_RANKS; r++)
                dec_store(cluster.map_shared_rank(warp == 0 ? m.k : m.v, r), NARROW_PITCH, head * HEAD_D, s, lane);
        }
        cluster.sync();
        const T *k = m.k + warp * HEAD_D, *v = m.v + warp * HEAD_D;
        T *keys = m.keys + warp * DEC_TOKENS * DEC_MAP_PITCH, *values = m.values + warp * DEC_TOKENS * DEC_MAP_PITCH;
#pragma unroll
        for (int i = 0; i < 4; i++) fold_product(keys + i * 64, in[i], k, NARROW_PITCH, lane);
#pragma unroll
        for (int i = 0; i < DEC_C / 16; i++)
            dec_store(values, DEC_MAP_PITCH, i * 16, narrow_product(out[i], v, NARROW_PITCH, lane), lane);
        if (lane < DEC_TOKENS) {
            float b = 0;
#pragma unroll
            for (int d = 0; d < HEAD_D; d++)
                b = fmaf(m.query[warp * HEAD_D + d], cu_f32(k[lane * NARROW_PITCH + d]), b);
            m.bias[warp * DEC_TOKENS + lane] = b;
        }
    }

    for (int first = blockIdx.x * WRITE_TILE; first < a.pixels; first += gridDim.x * WRITE_TILE) {
        tile_add<WRITE_TILE>(m.raw, m.key);
        __syncthreads();
        float p[2][4];
        cross_scores(p, m.key + rows * DEC_MAP_PITCH, m.keys + quarter * 16 * DEC_MAP_PITCH, lane);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int token = lane % 4 * 2, row = quarter * 16 + i * 8 + token;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float x = token < a.t ? (p[i][2 * r] + m.bias[row]) * scale2 : -INFINITY;
                float y = token + 1 < a.t ? (p[i][2 * r + 1] + m.bias[row + 1]) * scale2 : -INFINITY;
                const float top = flash_quad_max(fmaxf(x, y));
                x = flash_exp2(x - top), y = flash_exp2(y - top);
                const float f = 1 / cu_lanes_sum<4>(x + y);
                *(uint32_t *)(m.share + (mine + 8 * r) * SHARE_PITCH + row) = flash_pack<T>(x * f, y * f);
            }
        }
        __syncthreads();
        float o[8][4] = {}, sum[2] = {0, 0}, square[2] = {0, 0};
        const int channel = quarter * DEC_C / 4 + lane % 4 * 2; /* and the next, of each eight of 64 */
        cross_values(o, m.share + rows * SHARE_PITCH, m.values + quarter * DEC_C / 4, lane);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 b = *(const float2 *)(m.plus + channel + i * 8);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const cu_piece<T, 2> x =
                    *(const cu_piece<T, 2> *)(m.raw + (mine + 8 * r) * DEC_MAP_PITCH + channel + i * 8);
                o[i][2 * r] += b.x + cu_f32(x.v[0]), o[i][2 * r + 1] += b.y + cu_f32(x.v[1]);
                sum[r] += o[i][2 * r] + o[i][2 * r + 1];
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            sum[r] = cu_lanes_sum<4>(sum[r]);
            if (lane % 4 == 0) m.sum[quarter][mine + 8 * r] = sum[r];
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = mine + 8 * r;
            const float mean = (m.sum[0][row] + m.sum[1][row] + m.sum[2][row] + m.sum[3][row]) / DEC_C;
#pragma unroll
            for (int i = 0; i < 8; i++) {
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++) o[i][e] -= mean, square[r] = fmaf(o[i][e], o[i][e], square[r]);
            }
            square[r] = cu_lanes_sum<4>(square[r]);
            if (lane % 4 == 0) m.square[quarter][row] = square[r];
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = mine + 8 * r;
            const float all = m.square[0][row] + m.square[1][row] + m.square[2][row] + m.square[3][row];
            const float scale = rsqrtf(all / DEC_C + a.norm.eps);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const int c = channel + i * 8;
                const float2 weight = *(const float2 *)(m.weight + c), b = *(const float2 *)(m.shift + c);
                *(uint32_t *)(m.raw + row * DEC_MAP_PITCH + c) =
                    flash_pack<T>(o[i][2 * r] * scale * weight.x + b.x, o[i][2 * r + 1] * scale * weight.y + b.y);
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WRITE_TILE / (DEC_THREADS / 32); i++) {
            const int row = threadIdx.x / 32 + i * (DEC_THREADS / 32), chunk = threadIdx.x % 32 * 8;
            const uint4 v = *(const uint4 *)(m.raw + row * DEC_MAP_PITCH + chunk);
            if (first + row < a.pixels) *(uint4 *)(image + (int64_t)(first + row) * DEC_C + chunk) = v;
        }
        const int next = first + gridDim.x * WRITE_TILE;
        if (next < a.pixels) tile_fetch<WRITE_TILE>(m.raw, m.key, (const T *)image, a.pe, next, a.pixels);
    }
#endif
}

void cu_image_to_token(struct s2_backend *be, struct s2_tensor image, struct s2_tensor pe, struct s2_tensor tokens,
                       struct s2_tensor prompt, const struct s2_projections *p, const struct s2_norm *norm,
                       struct s2_tensor room)
{
    if (be->skip) return;
    const bool fits = cross_takes(tokens, prompt, image, pe, p);
    const int tiles = cu_blocks(image.h * image.w, WRITE_TILE), most = cu_of(be)->sm_count / image.n;
    const int clusters = cu_blocks(tiles < most || most < 1 ? tiles : most, WRITE_RANKS);
    CU_BY_HALF(tokens.dtype, T, {
        const cross_args<T> a = cross_of<T>(tokens, prompt, image, pe, p, norm);
        const dim3 grid((unsigned)(clusters * WRITE_RANKS), (unsigned)image.n);
        if (fits && dec_launch(be, write_kernel<T>, grid, WRITE_RANKS, DEC_THREADS, sizeof(write_memory<T>), a)) return;
    });
    s2_compose_image_to_token(be, image, pe, tokens, prompt, p, norm, room);
}

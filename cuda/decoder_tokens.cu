/* decoder_tokens.cu - the steps of the mask decoder that see tokens alone, each one kernel; see decoder.cuh. */
#include "decoder.cuh"

/* ------------------------------------------------------------------ attention among tokens */

enum { SELF_D = DEC_C / S2_DECODER_HEADS };

template <class T> struct self_args {
    const T *x, *prompt; /* prompt NULL: x replaced */
    T *y;
    dec_linear<T> q, k, v, out;
    dec_norm norm;
    int t;
};

/* A cluster an entry, a block a head; the first blocks normalise a token each. */
template <class T> __global__ void __launch_bounds__(DEC_THREADS, 1) self_kernel(self_args<T> a)
{
#ifdef DECODER_HERE
    __shared__ __align__(16) T at[DEC_TOKENS * DEC_PITCH], value[DEC_TOKENS * DEC_PITCH], o[DEC_TOKENS * SELF_D];
    __shared__ float qkv[3][DEC_TOKENS][SELF_D + 2], share[DEC_TOKENS][DEC_TOKENS], room[16];
    __shared__ __align__(16) float part[S2_DECODER_HEADS][DEC_C];
    const cg::cluster_group cluster = cg::this_cluster();
    const int head = (int)cluster.block_rank(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t entry = blockIdx.x / S2_DECODER_HEADS * (int64_t)a.t * DEC_C;
    dec_here();

    const int which = warp / 2, first = head * SELF_D + warp % 2 * 16; /* warps 6 and 7 have no part in q, k, v */
    const T *w = which == 0 ? a.q.w : which == 1 ? a.k.w : a.v.w;
    const float *b = which == 0 ? a.q.b : which == 1 ? a.k.b : a.v.b;
    dec_rows<8> in;
    dec_rows<1> out[2];
    if (warp < 6) dec_fetch(in, w, DEC_C, first, DEC_C, lane);
#pragma unroll
    for (int i = 0; i < 2; i++) dec_fetch(out[i], a.out.w + head * SELF_D, DEC_C, (2 * warp + i) * 16, DEC_C, lane);
    const dec_channel channel = dec_channel_of(a.norm, a.out.b);
    dec_sums s = dec_start(b, first, DEC_C, lane);
    cu_await();

    const dec_tokens<T> x(a.x + entry, a.prompt ? a.prompt + entry : NULL, a.t);
    x.sum().put(at), x.put(value);
    const float residual = a.prompt && head < a.t ? cu_f32(a.x[entry + head * DEC_C + threadIdx.x]) : 0.0f;
    __syncthreads();
    if (warp < 6) {
        dec_product(s, in, which == 2 ? value : at, DEC_PITCH, lane);
        dec_store(&qkv[which][0][0], SELF_D + 2, warp % 2 * 16, s, lane);
    }
    __syncthreads();
    if (threadIdx.x < DEC_TOKENS * DEC_TOKENS) {
        const int i = threadIdx.x / DEC_TOKENS, j = threadIdx.x % DEC_TOKENS;
        float s = 0;
#pragma unroll
        for (int d = 0; d < SELF_D; d++) s = fmaf(qkv[0][i][d], qkv[1][j][d], s);
        s = j < a.t ? s * (FLASH_LOG2E * rsqrtf(SELF_D)) : -INFINITY;
        float top = s;
#pragma unroll
        for (int k = DEC_TOKENS / 2; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, k));
        const float p = exp2f(s - top);
        share[i][j] = p / cu_lanes_sum<DEC_TOKENS>(p);
    }
    __syncthreads();
    {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < DEC_TOKENS; j++) sum = fmaf(share[warp][j], qkv[2][j][lane], sum);
        o[warp * SELF_D + lane] = cu_to<T>(sum);
    }
    dec_others_run();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        dec_sums sum = {};
        dec_product(sum, out[i], o, SELF_D, lane);
        dec_give(cluster, part, head, (2 * warp + i) * 16, sum, lane);
    }
    cluster.sync();
    if (head < a.t) {
        const float v = residual + dec_given<S2_DECODER_HEADS>(part);
        a.y[entry + head * DEC_C + threadIdx.x] = cu_to<T>(dec_normalised(v, channel, room));
    }
#endif
}

void cu_token_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, struct s2_tensor prompt,
                        const struct s2_projections *p, const struct s2_norm *norm, struct s2_tensor room)
{
    if (be->skip) return;
    const bool fits = dec_takes(x) && dec_takes(y) && (!prompt.data || dec_takes(prompt)) &&
                      dec_is(&p->q, DEC_C, DEC_C) && dec_is(&p->k, DEC_C, DEC_C) && dec_is(&p->v, DEC_C, DEC_C) &&
                      dec_is(&p->out, DEC_C, DEC_C);
    CU_BY_HALF(x.dtype, T, {
        const self_args<T> a = {(const T *)x.data,         (const T *)prompt.data,  (T *)y.data,
                                dec_linear_of<T>(&p->q),   dec_linear_of<T>(&p->k), dec_linear_of<T>(&p->v),
                                dec_linear_of<T>(&p->out), dec_norm_of(norm),       x.w};
        const dim3 grid((unsigned)(x.n * S2_DECODER_HEADS));
        if (fits && dec_launch(be, self_kernel<T>, grid, S2_DECODER_HEADS, DEC_THREADS, 0, a)) return;
    });
    s2_compose_token_attention(be, y, x, prompt, p, norm, room);
}

/* ------------------------------------------------------------------ perceptron */

enum { MLP_HIDDEN = 2048, MLP_RANKS = 16, MLP_SHARE = MLP_HIDDEN / MLP_RANKS, MLP_PITCH = MLP_SHARE + 32 };

template <class T> struct mlp_args {
    T *tokens;
    dec_linear<T> fc1, fc2;
    dec_norm norm;
    int t;
};

/* A cluster an entry; a block has a share of the hidden numbers, and the first blocks normalise a token each. */
template <class T> __global__ void __launch_bounds__(DEC_THREADS, 1) mlp_kernel(mlp_args<T> a)
{
#ifdef DECODER_HERE
    __shared__ __align__(16) T x[DEC_TOKENS * DEC_PITCH], hidden[DEC_TOKENS * MLP_PITCH];
    __shared__ __align__(16) float part[MLP_RANKS][DEC_C];
    __shared__ float room[16];
    const cg::cluster_group cluster = cg::this_cluster();
    const int rank = (int)cluster.block_rank(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T *tokens = a.tokens + blockIdx.x / MLP_RANKS * (int64_t)a.t * DEC_C;
    dec_here();

    const int first = rank * MLP_SHARE + warp * 16;
    dec_rows<8> in;
    dec_rows<MLP_SHARE / 32> out[2];
    dec_fetch(in, a.fc1.w, DEC_C, first, MLP_HIDDEN, lane);
#pragma unroll
    for (int i = 0; i < 2; i++)
        dec_fetch(out[i], a.fc2.w + rank * MLP_SHARE, MLP_HIDDEN, (2 * warp + i) * 16, DEC_C, lane);
    dec_sums s = dec_start(a.fc1.b, first, MLP_HIDDEN, lane);
    const dec_channel channel = dec_channel_of(a.norm, a.fc2.b);
    cu_await();

    dec_tokens<T>(tokens, NULL, a.t).put(x);
    __syncthreads();
    dec_product(s, in, x, DEC_PITCH, lane);
    dec_relu(s);
    dec_store(hidden, MLP_PITCH, warp * 16, s, lane);
    dec_others_run();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        dec_sums sum = {};
        dec_product(sum, out[i], hidden, MLP_PITCH, lane);
        dec_give(cluster, part, rank, (2 * warp + i) * 16, sum, lane);
    }
    cluster.sync();
    if (rank < a.t) {
        const float v = cu_f32(x[rank * DEC_PITCH + threadIdx.x]) + dec_given<MLP_RANKS>(part);
        tokens[rank * DEC_C + threadIdx.x] = cu_to<T>(dec_normalised(v, channel, room));
    }
#endif
}

void cu_token_mlp(struct s2_backend *be, struct s2_tensor tokens, const struct s2_linear *fc1,
                  const struct s2_linear *fc2, const struct s2_norm *norm)
{
    if (be->skip) return;
    const bool fits = dec_takes(tokens) && dec_is(fc1, DEC_C, MLP_HIDDEN) && dec_is(fc2, MLP_HIDDEN, DEC_C);
    CU_BY_HALF(tokens.dtype, T, {
        const mlp_args<T> a = {(T *)tokens.data, dec_linear_of<T>(fc1), dec_linear_of<T>(fc2), dec_norm_of(norm),
                               tokens.w};
        const dim3 grid((unsigned)(tokens.n * MLP_RANKS));
        if (fits && dec_launch(be, mlp_kernel<T>, grid, MLP_RANKS, DEC_THREADS, 0, a)) return;
    });
    s2_compose_token_mlp(be, tokens, fc1, fc2, norm);
}

/* ------------------------------------------------------------------ heads */

enum {
    HEAD_RANKS = 4,
    HEAD_THREADS = 128,
    HEAD_SHARE = DEC_C / HEAD_RANKS, /* of the hidden numbers of a layer, 16 a warp */
    HEAD_WIDE = HEAD_THREADS / 2,    /* outputs of the last layer at once, 16 a warp */
    HEAD_PITCH = HEAD_SHARE + 32
};

template <class T> struct head_of {
    dec_linear<T> layer[3];
    void *y;
    int token, out, ld;
    bool wide; /* y is float32 */
    enum s2_act last;
};
template <class T> struct head_args {
    head_of<T> head[S2_MAX_HEADS];
    const T *x;
    int n, t;
};

/* A cluster a head and 8 entries, which are what tokens are elsewhere. Each block has a share of the outputs of the
 * hidden layers, and of the terms of the last one. */
template <class T> __global__ void __launch_bounds__(HEAD_THREADS, 1) heads_kernel(head_args<T> a)
{
#ifdef DECODER_HERE
    __shared__ __align__(16) T x[DEC_TOKENS * DEC_PITCH], one[DEC_TOKENS * DEC_PITCH], two[DEC_TOKENS * HEAD_PITCH];
    __shared__ __align__(16) float part[HEAD_RANKS][2][DEC_C]; /* of this block's two entries */
    const cg::cluster_group cluster = cg::this_cluster();
    const int rank = (int)cluster.block_rank(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const head_of<T> h = a.head[blockIdx.x / HEAD_RANKS];
    const int entry = blockIdx.y * DEC_TOKENS, entries = min(DEC_TOKENS, a.n - entry);
    const int first = rank * HEAD_SHARE + warp * 16;
    dec_here();
    dec_rows<8> w0, w1;
    dec_fetch(w0, h.layer[0].w, DEC_C, first, DEC_C, lane);
    dec_fetch(w1, h.layer[1].w, DEC_C, first, DEC_C, lane);
    dec_rows<HEAD_SHARE / 32> w2[DEC_C / HEAD_WIDE];
    const T *last = h.layer[2].w + rank * HEAD_SHARE;
    dec_fetch(w2[0], last, DEC_C, warp * 16, h.out, lane);
    dec_sums s = dec_start(h.layer[0].b, first, DEC_C, lane);
    const dec_sums bias = dec_start(h.layer[1].b, first, DEC_C, lane);
    cu_await();

    for (int i = threadIdx.x; i < DEC_TOKENS * DEC_C / 8; i += HEAD_THREADS) {
        const int e = i / 32, piece = i % 32;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (e < entries) v = ((const uint4 *)(a.x + ((int64_t)(entry + e) * a.t + h.token) * DEC_C))[piece];
        *(uint4 *)(x + e * DEC_PITCH + piece * 8) = v;
    }
    dec_others_run();
    __syncthreads();
    dec_product(s, w0, x, DEC_PITCH, lane);
    dec_relu(s);
#pragma unroll
    for (int i = 1; i < DEC_C / HEAD_WIDE; i++)
        if (i * HEAD_WIDE < h.out) dec_fetch(w2[i], last, DEC_C, i * HEAD_WIDE + warp * 16, h.out, lane);
#pragma unroll
    for (int r = 0; r < HEAD_RANKS; r++) dec_store(cluster.map_shared_rank(one, r), DEC_PITCH, first, s, lane);
    cluster.sync();
    s = bias;
    dec_product(s, w1, one, DEC_PITCH, lane);
    dec_relu(s);
    dec_store(two, HEAD_PITCH, warp * 16, s, lane);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DEC_C / HEAD_WIDE; i++) {
        const int out = i * HEAD_WIDE + warp * 16;
        if (out >= h.out) break;
        s = dec_sums{};
        dec_product(s, w2[i], two, HEAD_PITCH, lane);
#pragma unroll
        for (int e = 0; e < 2; e++)
            *(float2 *)cluster.map_shared_rank(&part[rank][e][out + lane / 4 * 2], lane % 4) =
                make_float2(s.even[e], s.odd[e]);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < 2 * h.out; i += HEAD_THREADS) {
        const int e = i / h.out, out = i % h.out;
        if (2 * rank + e >= entries) break;
        const int64_t to = (int64_t)(entry + 2 * rank + e) * h.ld + out;
        float v = h.layer[2].b[out];
#pragma unroll
        for (int r = 0; r < HEAD_RANKS; r++) v += part[r][e][out];
        if (h.wide) {
            ((float *)h.y)[to] = cu_act<float>(v, h.last);
        } else {
            ((T *)h.y)[to] = cu_to<T>(cu_act<T>(v, h.last));
        }
    }
#endif
}

/* NULL data if there is a head that the kernel does not take. */
template <class T> static head_args<T> heads_of(int n_heads, const struct s2_head *head, struct s2_tensor tokens)
{
    head_args<T> a = {};
    a.n = tokens.n, a.t = tokens.w;
    for (int i = 0; i < n_heads; i++) {
        const struct s2_linear *l = head[i].layer;
        if (!dec_is(&l[0], DEC_C, DEC_C) || !dec_is(&l[1], DEC_C, DEC_C) || l[2].in != DEC_C || l[2].out > DEC_C)
            return a;
        a.head[i] = {{dec_linear_of<T>(&l[0]), dec_linear_of<T>(&l[1]), dec_linear_of<T>(&l[2])},
                     head[i].y.data,
                     head[i].token,
                     l[2].out,
                     head[i].y.ld,
                     head[i].y.dtype == S2_F32,
                     head[i].last};
    }
    a.x = (const T *)tokens.data;
    return a;
}

void cu_token_heads(struct s2_backend *be, int n_heads, const struct s2_head *head, struct s2_tensor tokens,
                    struct s2_tensor room)
{
    if (be->skip) return;
    const bool fits = tokens.dtype != S2_F32 && tokens.c == DEC_C && cu_whole(tokens) && n_heads <= S2_MAX_HEADS;
    CU_BY_HALF(tokens.dtype, T, {
        const head_args<T> a = fits ? heads_of<T>(n_heads, head, tokens) : head_args<T>{};
        const dim3 grid((unsigned)(n_heads * HEAD_RANKS), (unsigned)cu_blocks(tokens.n, DEC_TOKENS));
        if (a.x && dec_launch(be, heads_kernel<T>, grid, HEAD_RANKS, HEAD_THREADS, 0, a)) return;
    });
    s2_compose_token_heads(be, n_heads, head, tokens, room);
}

/* window.cu - Hiera's attention, read from and written to the un-windowed map with computed addresses (hieradet.py
 * MultiScaleAttention, MultiScaleBlock).
 *
 * Tokens behind the edges of the map have one key and one value in common, the bias: they are one more key at the end
 * of a window's own, whose score is raised by the logarithm of their number. Their queries are never computed. */
#include "flash_block.cuh"
#include "flash_f32.cuh"
#include "flash_hopper.cuh"

/* A map and how it is cut. */
struct windows {
    int h, w;     /* the map */
    int wh, ww;   /* a window */
    int across;   /* windows in a row of windows */
    int o, heads; /* channels of one of q, k, v */
    int pool;     /* 1, or 2: one query for 2x2 tokens */
    int problems; /* windows times heads */
};

/* i / n for 0 <= i < 2^20, given 1 / n: the quotient of i + 1/2 is at least 1/(2n) from a whole number, more than the
 * product's rounding. */
__host__ __device__ static inline int quotient(int i, float reciprocal)
{
    return (int)(((float)i + 0.5f) * reciprocal);
}

__device__ __forceinline__ uint32_t max2(uint32_t a, uint32_t b, __nv_bfloat16)
{
    const __nv_bfloat162 m = __hmax2(*(const __nv_bfloat162 *)&a, *(const __nv_bfloat162 *)&b);
    return *(const uint32_t *)&m;
}
__device__ __forceinline__ uint32_t max2(uint32_t a, uint32_t b, __half)
{
    const __half2 m = __hmax2(*(const __half2 *)&a, *(const __half2 *)&b);
    return *(const uint32_t *)&m;
}
__device__ __forceinline__ uint32_t max2(uint32_t a, uint32_t b, float)
{
    return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
template <class T> __device__ __forceinline__ uint4 max4(uint4 a, uint4 b)
{
    return make_uint4(max2(a.x, b.x, T()), max2(a.y, b.y, T()), max2(a.z, b.z, T()), max2(a.w, b.w, T()));
}

/* Problem p is head p % heads of window p / heads, the maps one after another. */
template <class T_> struct window_source {
    using T = T_;
    static constexpr bool biased = true;
    static constexpr int PIECE = 16 / (int)sizeof(T);
    struct windows map;
    const T *qkv;
    const float *bias; /* [3 * o] */
    T *y;
    int d, dv, queries, keys;
    int real;                     /* keys that are tokens of the map; one more stands for the padding */
    float padding;                /* what its score is raised by, unscaled */
    int top, left;                /* of the window, in the map */
    float per_row, per_query_row; /* 1 / (tokens, queries in a row of the window) */
    int columns, query_columns;

    __device__ void enter(int problem)
    {
        const int image = problem / map.problems, of_map = problem - image * map.problems;
        const int head = of_map % map.heads, window = of_map / map.heads;
        top = window / map.across * map.wh, left = window % map.across * map.ww;
        const int rows = min(map.wh, map.h - top);
        columns = min(map.ww, map.w - left), query_columns = columns / map.pool;
        per_row = 1 / (float)columns, per_query_row = 1 / (float)query_columns;
        real = rows * columns;
        queries = rows / map.pool * query_columns;
        const int absent = map.wh * map.ww - real;
        keys = real + (absent > 0);
        padding = absent > 0 ? logf((float)absent) * sqrtf((float)d) : 0;
        qkv += (int64_t)image * map.h * map.w * (3 * map.o) + head * d;
        bias += head * d;
        y += (int64_t)image * (map.h / map.pool) * (map.w / map.pool) * map.o + head * d;
    }
    __device__ const T *token(int row, int column) const
    {
        return qkv + ((int64_t)(top + row) * map.w + left + column) * (3 * map.o);
    }
    __device__ void query(void *to, int i, int chunk) const
    {
        const int row = quotient(i, per_query_row), column = i - row * query_columns;
        const T *from = token(row * map.pool, column * map.pool) + chunk * PIECE;
        if (map.pool == 1) {
            flash_copy16(to, from);
            return;
        }
        const int64_t right = 3 * map.o, below = right * map.w;
        const uint4 upper = max4<T>(*(const uint4 *)from, *(const uint4 *)(from + right));
        const uint4 lower = max4<T>(*(const uint4 *)(from + below), *(const uint4 *)(from + below + right));
        *(uint4 *)to = max4<T>(upper, lower);
    }
    /* part 1: keys, 2: values */
    __device__ void key_or_value(void *to, int i, int chunk, int part) const
    {
        const int row = quotient(i, per_row), channel = part * map.o + chunk * PIECE;
        if (i < real) {
            flash_copy16(to, token(row, i - row * columns) + channel);
            return;
        }
        for (int c = 0; c < PIECE; c++) ((T *)to)[c] = cu_to<T>(bias[channel + c]);
    }
    __device__ void key(void *to, int i, int chunk) const { key_or_value(to, i, chunk, 1); }
    __device__ void value(void *to, int i, int chunk) const { key_or_value(to, i, chunk, 2); }
    __device__ float score_bias() const { return padding; }
    __device__ T *out(int i) const
    {
        const int row = quotient(i, per_query_row), column = i - row * query_columns;
        const int64_t at = (int64_t)(top / map.pool + row) * (map.w / map.pool) + left / map.pool + column;
        return y + at * map.o;
    }
};

/* Windows of at most 16 queries: a warp is a window and head of its own; neighbouring warps are heads of one window, so
 * that a block reads whole tokens. */
template <class B, int WARPS, int BLOCKS, class Source>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) small_windows(Source src, int problems, float scale2)
{
    cu_await();
    extern __shared__ __align__(16) unsigned char small_memory[];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, problem = blockIdx.x * WARPS + warp;
    unsigned char *q = small_memory + warp * B::ONE_TILE_BYTES, *k = q + B::Q_BYTES, *v = k + B::K_BYTES;
    if (problem >= problems) return;
    src.enter(problem);
    flash_fetch_tile<B>(k, v, src, 0, lane);
    flash_fetch<B::ROWS, B::D / 8, B::PITCH, 32>(
        q, src.queries, src.d / 8, lane, [&](unsigned char *to, int row, int chunk) { src.query(to, row, chunk); });
    flash_copies_wait();
    __syncwarp();

    flash_state<B> w;
    flash_scores_of<B> s;
    flash_open(w);
    flash_scores<B>(s, q, k, lane);
    flash_mask<B>(s, src.keys, src.keys - 1, src.score_bias(), lane);
    float unused[B::MT][2];
    flash_softmax(w, s, scale2, unused); /* the only tile: nothing to scale down */
    flash_values(w, s, v, lane);
    flash_close(w);
    flash_store(w, src, 0, q, lane);
}

/* false: the device has too little shared memory */
template <class B, int WARPS, int BLOCKS, class Source>
static bool launch_small(struct s2_backend *be, const Source &src, int problems)
{
    constexpr int bytes = WARPS * B::ONE_TILE_BYTES;
    const char *what = "window_attention";
    auto kernel = small_windows<B, WARPS, BLOCKS, Source>;
    if (!cu_allow_shared(be, kernel, bytes, what)) return be->skip;
    cu_launch(be, kernel, cu_blocks(problems, WARPS), 32 * WARPS, bytes, src, problems,
              FLASH_LOG2E / sqrtf((float)src.d));
    CU_LAUNCHED(be, what);
    return true;
}

/* One window attention, as the launches need it. */
struct layout {
    int problems, queries, keys; /* of the largest window, padding counted as the tokens it is */
};

/* On Hopper with all keys of a window in shared memory. false: not on this device */
template <class B, class Source> static bool attend_whole(struct s2_backend *be, const Source &src, struct layout l)
{
    const char *what = "window_attention";
    auto kernel = hopper_kernel<B, Source>;
    if (cu_of(be)->cc != 90 || l.keys > B::STAGES * B::BN) return false;
    if (!cu_allow_shared(be, kernel, B::BYTES, what)) return be->skip;
    cu_launch(be, kernel, dim3(cu_blocks(l.queries, B::ROWS), 1, l.problems), B::THREADS, B::BYTES, src,
              FLASH_LOG2E / sqrtf((float)src.d));
    CU_LAUNCHED(be, what);
    return true;
}

template <class T, int D>
static void attend_windows(struct s2_backend *be, const window_source<T> &src, struct layout l)
{
    using tile = flash_blocking<T, D, D, 1, 4, 1, 64, false, D <= 64 ? 4 : 3>;
    using small = flash_blocking<T, D, D, 1, 1, 1, 16, false>;
    using pooled = flash_blocking<T, D, D, 1, 1, 1, 64, false>;
    /* windows of 8 x 8; of 14 x 14, and of 16 x 16 in the model with heads of 72; pooled ones too */
    constexpr int keys = D == 80 ? 64 : 80, tiles = D == 80 ? 4 : 3;
    using whole_64 = hopper_blocking<T, D, D, 1, 64, 4, 1>;
    using whole_pooled = hopper_blocking<T, D, D, 1, keys, 2, tiles>;
    using whole = hopper_blocking<T, D, D, 2, keys, D <= 80 ? 2 : 1, tiles>;
    if (l.keys <= 16 && launch_small<small, 4, 5>(be, src, l.problems)) return;
    if (l.queries <= 16 && l.keys <= 64 && launch_small<pooled, 2, 3>(be, src, l.problems)) return;
    if (l.queries > 16 && l.queries <= 64 && attend_whole<whole_64>(be, src, l)) return;
    if (l.queries > 16 && l.queries <= 64 && attend_whole<whole_pooled>(be, src, l)) return;
    if (l.queries > 64 && attend_whole<whole>(be, src, l)) return;
    if (flash_fits<tile, window_source<T>>(be, "window_attention"))
        flash_launch<tile>(be, src, flash_partial{NULL, NULL}, 1, l.problems, l.queries, l.keys, "window_attention");
}

template <class T> static void attend_typed(struct s2_backend *be, const window_source<T> &src, struct layout l)
{
    if (src.d <= 32) {
        attend_windows<T, 32>(be, src, l);
    } else if (src.d <= 64) {
        attend_windows<T, 64>(be, src, l);
    } else if (src.d <= 80) {
        attend_windows<T, 80>(be, src, l);
    } else {
        attend_windows<T, 96>(be, src, l);
    }
}

template <> void attend_typed<float>(struct s2_backend *be, const window_source<float> &src, struct layout l)
{
    flash_f32_launch(be, src, flash_partial{NULL, NULL}, 1, l.problems, l.queries, "window_attention");
}

template <class T>
static void window_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor qkv,
                             const struct s2_linear *lin, const struct windows &map, struct layout l)
{
    window_source<T> src = {};
    src.map = map;
    src.qkv = (const T *)qkv.data, src.y = (T *)y.data, src.bias = cu_linear_bias(lin);
    src.d = src.dv = map.o / map.heads;
    attend_typed<T>(be, src, l);
}

/* The whole map as one window and no pooling: attention of the columns of qkv. */
static void whole_map(struct s2_backend *be, struct s2_tensor y, struct s2_tensor qkv, int heads)
{
    const struct s2_tensor x = s2_shape(qkv, qkv.n, 1, qkv.h * qkv.w, qkv.c);
    cu_attention(be, s2_shape(y, y.n, 1, y.h * y.w, y.c), s2_columns(x, 0, y.c), s2_columns(x, y.c, y.c),
                 s2_columns(x, 2 * y.c, y.c), heads);
}

void cu_window_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor qkv, const struct s2_linear *lin,
                         int heads, int window, bool pool)
{
    if (be->skip) return;
    if (window == 0 && !pool) {
        whole_map(be, y, qkv, heads);
        return;
    }
    struct windows map = {};
    map.h = qkv.h, map.w = qkv.w, map.wh = window ? window : qkv.h, map.ww = window ? window : qkv.w;
    map.o = y.c, map.heads = heads, map.pool = pool ? 2 : 1;
    map.across = cu_blocks(map.w, map.ww);
    map.problems = map.across * cu_blocks(map.h, map.wh) * heads;
    const int d = y.c / heads, keys = map.wh * map.ww;
    const struct layout l = {qkv.n * map.problems, keys / map.pool / map.pool, keys};
    if (d % 8 != 0 || d > 96 || l.problems > 65535 || keys >= 1 << 20) {
        s2_backend_fail(
            be, S2_E_INTERNAL,
            "windows of %d x %d tokens of %d heads of %d channels: the CUDA backend takes up to 65535 windows "
            "and heads, and heads of a multiple of 8 and at most 96 channels",
            map.wh, map.ww, heads, d);
        return;
    }
    CU_BY_TYPE(qkv.dtype, T, window_attention<T>(be, y, qkv, lin, map, l));
}

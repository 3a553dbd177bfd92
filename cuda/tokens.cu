/* tokens.cu - operators on tokens: norms, sums, rotations, copies. */
#include <cmath>

#include "launch.cuh"

/* ------------------------------------------------------------------ layer norm */

enum { NORM_THREADS = 256 };

/* LANES threads a token, each PIECES pieces of N channels, kept in registers; the variance is taken around the mean.
 * c, ldx, ldy in pieces. Weights are read with the values, so that one wait covers both. */
template <class T, int N, int LANES, int PIECES>
__global__ void layer_norm(cu_piece<T, N> *y, const cu_piece<T, N> *x, int ldy, int ldx,
                           const cu_piece<float, N> *weight, const cu_piece<float, N> *bias, int c, float eps,
                           int64_t n, enum s2_act act)
{
    cu_await();
    const int64_t token = ((int64_t)blockIdx.x * NORM_THREADS + threadIdx.x) / LANES;
    const int lane = threadIdx.x % LANES;
    const bool there = token < n; /* every thread takes part in the sums */
    const float count = (float)(c * N);
    cu_piece<T, N> from[PIECES];
    cu_piece<float, N> scale_of[PIECES], shift_of[PIECES];
    float sum = 0, square = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int p = lane + LANES * i;
        if (!there || p >= c) continue;
        from[i] = x[token * ldx + p], scale_of[i] = weight[p], shift_of[i] = bias[p];
    }
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
#pragma unroll
        for (int e = 0; e < N; e++) sum += there && lane + LANES * i < c ? cu_f32(from[i].v[e]) : 0.0f;
    }
    const float mean = cu_lanes_sum<LANES>(sum) / count;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float d = cu_f32(from[i].v[e]) - mean;
            square += there && lane + LANES * i < c ? d * d : 0.0f;
        }
    }
    const float scale = rsqrtf(cu_lanes_sum<LANES>(square) / count + eps);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int p = lane + LANES * i;
        if (!there || p >= c) continue;
        cu_piece<T, N> to;
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float v = (cu_f32(from[i].v[e]) - mean) * scale;
            to.v[e] = cu_to<T>(cu_act<T>(v * scale_of[i].v[e] + shift_of[i].v[e], act));
        }
        y[token * ldy + p] = to;
    }
}

template <class T, int N, int LANES, int PIECES>
static void launch_norm(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                        enum s2_act act)
{
    using piece = cu_piece<T, N>;
    const int64_t n = s2_tokens(x);
    cu_launch(be, layer_norm<T, N, LANES, PIECES>, cu_blocks(n * LANES, NORM_THREADS), NORM_THREADS, 0, (piece *)y.data,
              (const piece *)x.data, y.ld / N, x.ld / N, (const cu_piece<float, N> *)norm->weight,
              (const cu_piece<float, N> *)norm->bias, norm->c / N, norm->eps, n, act);
}

void cu_layer_norm(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                   enum s2_act act)
{
    if (be->skip) return;
    if (norm->c == 4 && x.ld == 4 && y.ld == 4) {
        CU_BY_TYPE(x.dtype, T, launch_norm<T, 4, 1, 1>(be, y, x, norm, act));
    } else {
        CU_BY_TYPE(x.dtype, T, {
            constexpr int N = 16 / (int)sizeof(T);
            const int pieces = norm->c / N;
            if (norm->c > 1152) {
                s2_backend_fail(be, S2_E_INTERNAL, "a layer norm over %d channels", norm->c);
            } else if (!cu_whole(x) || !cu_whole(y)) {
                launch_norm<T, 1, 32, 36>(be, y, x, norm, act);
            } else if (pieces <= 2) {
                launch_norm<T, N, 2, 1>(be, y, x, norm, act);
            } else if (pieces <= 8) {
                launch_norm<T, N, 8, 1>(be, y, x, norm, act);
            } else if (pieces <= 16) {
                launch_norm<T, N, 16, 1>(be, y, x, norm, act);
            } else if (pieces <= 32) {
                launch_norm<T, N, 32, 1>(be, y, x, norm, act);
            } else if (pieces <= 96) {
                launch_norm<T, N, 32, 3>(be, y, x, norm, act);
            } else {
                launch_norm < T, N, 32, 36 / N<5 ? 5 : 36 / N>(be, y, x, norm, act);
            }
        });
    }
    CU_LAUNCHED(be, "layer_norm");
}

/* ------------------------------------------------------------------ element by element */

/* y[n][h/2][w/2][c], c and n in pieces */
template <class T, int N>
__global__ void max_pool2(cu_piece<T, N> *y, const cu_piece<T, N> *x, int h, int w, int c, int64_t n)
{
    cu_await();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int ch = (int)(i % c), X = (int)(i / c % (w / 2)), Y = (int)(i / c / (w / 2) % (h / 2));
    int64_t b = i / c / (w / 2) / (h / 2), at = ((b * h + 2 * Y) * w + 2 * X) * c + ch, below = at + (int64_t)w * c;
    const cu_piece<T, N> p0 = x[at], p1 = x[at + c], p2 = x[below], p3 = x[below + c];
    cu_piece<T, N> to;
#pragma unroll
    for (int e = 0; e < N; e++) {
        float upper = fmaxf(cu_f32(p0.v[e]), cu_f32(p1.v[e])), lower = fmaxf(cu_f32(p2.v[e]), cu_f32(p3.v[e]));
        to.v[e] = cu_to<T>(fmaxf(upper, lower));
    }
    y[i] = to;
}

void cu_max_pool2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    if (be->skip) return;
    CU_BY_PIECE(y.dtype, cu_whole(x) && cu_whole(y), T, N, {
        using piece = cu_piece<T, N>;
        const int64_t n = s2_elements(y) / N;
        cu_launch(be, max_pool2<T, N>, cu_blocks(n, 256), 256, 0, (piece *)y.data, (const piece *)x.data, x.h, x.w,
                  x.c / N, n);
    });
    CU_LAUNCHED(be, "max_pool2");
}

/* y[n][2h][2w][c] += x[n][h][w][c], c and n in pieces */
template <class T, int N>
__global__ void upsample2_add(cu_piece<T, N> *y, const cu_piece<T, N> *x, int h, int w, int c, int64_t n)
{
    cu_await();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int ch = (int)(i % c), X = (int)(i / c % (2 * w)), Y = (int)(i / c / (2 * w) % (2 * h));
    int64_t b = i / c / (2 * w) / (2 * h);
    cu_piece<T, N> to = y[i];
    const cu_piece<T, N> from = x[((b * h + Y / 2) * w + X / 2) * c + ch];
#pragma unroll
    for (int e = 0; e < N; e++) to.v[e] = cu_to<T>(cu_f32(to.v[e]) + cu_f32(from.v[e]));
    y[i] = to;
}

void cu_upsample2_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    if (be->skip) return;
    CU_BY_PIECE(y.dtype, cu_whole(x) && cu_whole(y), T, N, {
        using piece = cu_piece<T, N>;
        const int64_t n = s2_elements(y) / N;
        cu_launch(be, upsample2_add<T, N>, cu_blocks(n, 256), 256, 0, (piece *)y.data, (const piece *)x.data, x.h, x.w,
                  x.c / N, n);
    });
    CU_LAUNCHED(be, "upsample2_add");
}

/* n, one and c in pieces; one = those of a batch entry. a and b broadcast as the contract says */
template <class T, int N>
__global__ void add(cu_piece<T, N> *y, const cu_piece<T, N> *a, const cu_piece<T, N> *b, float s, int64_t n,
                    int64_t one, int c, bool a_once, bool b_once, bool b_token)
{
    cu_await();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t ib = b_token ? (b_once ? 0 : i / one * c) + i % c : b_once ? i % one : i;
    const cu_piece<T, N> pa = a[a_once ? i % one : i], pb = b[ib];
    cu_piece<T, N> to;
#pragma unroll
    for (int e = 0; e < N; e++) to.v[e] = cu_to<T>(cu_f32(pa.v[e]) + s * cu_f32(pb.v[e]));
    y[i] = to;
}

void cu_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s)
{
    if (be->skip) return;
    bool token = b.h == 1 && b.w == 1 && (y.h > 1 || y.w > 1);
    CU_BY_PIECE(y.dtype, cu_whole(y) && cu_whole(a) && cu_whole(b), T, N, {
        using piece = cu_piece<T, N>;
        const int64_t n = s2_elements(y) / N;
        cu_launch(be, add<T, N>, cu_blocks(n, 256), 256, 0, (piece *)y.data, (const piece *)a.data,
                  (const piece *)b.data, s, n, n / y.n, y.c / N, a.n == 1, b.n == 1, token);
    });
    CU_LAUNCHED(be, "add");
}

/* Two channels with the alignment of one */
template <class T> struct loose_pair {
    T v[2];
};

/* N channels (N / 2 pairs), one Piece, a thread; row: pieces of a token, width: those that the table is for */
template <class T, int N, class Piece>
__global__ void rope(T *x, int ld, const float2 *table, int tokens, int row, int width, int64_t n)
{
    cu_await();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, token = i / row;
    if (i >= n) return;
    const int p = (int)(i % row);
    const float2 *turn = table + (token % tokens * width + p % width) * (N / 2);
    Piece *at = (Piece *)(x + token * ld + p * N), v = *at;
#pragma unroll
    for (int e = 0; e < N; e += 2) {
        const float a = cu_f32(v.v[e]), b = cu_f32(v.v[e + 1]);
        v.v[e] = cu_to<T>(a * turn[e / 2].x - b * turn[e / 2].y);
        v.v[e + 1] = cu_to<T>(a * turn[e / 2].y + b * turn[e / 2].x);
    }
    *at = v;
}

template <class T, int N, class Piece>
static void launch_rope(struct s2_backend *be, struct s2_tensor x, const float *table, int width)
{
    const int64_t n = s2_elements(x) / N;
    cu_launch(be, rope<T, N, Piece>, cu_blocks(n, 256), 256, 0, (T *)x.data, x.ld, (const float2 *)table, x.h * x.w,
              x.c / N, width / N, n);
}

void cu_rope(struct s2_backend *be, struct s2_tensor x, const float *table, int width)
{
    if (be->skip) return;
    CU_BY_TYPE(x.dtype, T, {
        constexpr int N = 16 / (int)sizeof(T);
        if (cu_whole(x) && width % N == 0)
            launch_rope<T, N, cu_piece<T, N>>(be, x, table, width);
        else
            launch_rope<T, 2, loose_pair<T>>(be, x, table, width);
    });
    CU_LAUNCHED(be, "rope");
}

template <class T> __global__ void take(T *y, const T *x, int count, int tokens, int first, int c, int64_t n)
{
    cu_await();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t b = i / c / count;
    y[i] = x[(b * tokens + first + i / c % count) * c + i % c];
}

void cu_take(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int first)
{
    if (be->skip) return;
    int64_t n = s2_elements(y);
    CU_BY_TYPE(y.dtype, T,
               cu_launch(be, take<T>, cu_blocks(n, 256), 256, 0, (T *)y.data, (const T *)x.data, y.w, x.h * x.w, first,
                         y.c, n));
    CU_LAUNCHED(be, "take");
}

/* n and c in pieces */
template <class T, int N>
__global__ void concat(cu_piece<T, N> *y, const cu_piece<T, N> *a, const cu_piece<T, N> *b, int wa, int wb, int c,
                       bool a_once, int64_t n)
{
    cu_await();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int token = (int)(i / c % (wa + wb));
    int64_t e = i / c / (wa + wb), ch = i % c;
    y[i] = token < wa ? a[((a_once ? 0 : e) * wa + token) * c + ch] : b[(e * wb + token - wa) * c + ch];
}

void cu_concat(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b)
{
    if (be->skip) return;
    CU_BY_PIECE(y.dtype, cu_whole(y) && cu_whole(a) && cu_whole(b), T, N, {
        using piece = cu_piece<T, N>;
        const int64_t n = s2_elements(y) / N;
        cu_launch(be, concat<T, N>, cu_blocks(n, 256), 256, 0, (piece *)y.data, (const piece *)a.data,
                  (const piece *)b.data, a.w, b.w, y.c / N, a.n == 1, n);
    });
    CU_LAUNCHED(be, "concat");
}

__global__ void scatter(float *y, const float *x, const int32_t *index, int64_t one, int64_t n)
{
    cu_await();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int to = index[i / one];
    if (to >= 0) y[to * one + i % one] = x[i];
}

void cu_scatter(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const int32_t *index)
{
    if (be->skip) return;
    int64_t n = s2_elements(x);
    cu_launch(be, scatter, cu_blocks(n, 256), 256, 0, (float *)y.data, (const float *)x.data, index, n / x.n, n);
    CU_LAUNCHED(be, "scatter");
}

/* ------------------------------------------------------------------ prompts and absence */

/* One block of 128 threads a point: sine and cosine of one random frequency each */
template <class T>
__global__ void point_tokens(T *y, const float *points, const float *gauss, const float *embed, float size)
{
    cu_await();
    const float *p = points + 3 * (int64_t)blockIdx.x;
    int c = threadIdx.x, label = (int)p[2];
    T *to = y + 256 * (int64_t)blockIdx.x;
    if (label < 0) {
        to[c] = cu_to<T>(embed[4 * 256 + c]);
        to[128 + c] = cu_to<T>(embed[4 * 256 + 128 + c]);
        return;
    }
    float u = 2.0f * ((p[0] + 0.5f) / size) - 1.0f, v = 2.0f * ((p[1] + 0.5f) / size) - 1.0f;
    float z = 6.283185307179586f * (u * gauss[c] + v * gauss[128 + c]);
    const float *e = label <= 3 ? embed + 256 * label : NULL;
    to[c] = cu_to<T>(sinf(z) + (e ? e[c] : 0));
    to[128 + c] = cu_to<T>(cosf(z) + (e ? e[128 + c] : 0));
}

void cu_point_tokens(struct s2_backend *be, struct s2_tensor y, const float *points, const float *gauss,
                     const float *embed, int size)
{
    if (be->skip || s2_tokens(y) == 0) return;
    CU_BY_TYPE(
        y.dtype, T,
        cu_launch(be, point_tokens<T>, (int)s2_tokens(y), 128, 0, (T *)y.data, points, gauss, embed, (float)size));
    CU_LAUNCHED(be, "point_tokens");
}

template <class T>
__global__ void where_absent(T *x, const float *score, const float *vec, bool replace, int c, int64_t one, int64_t n)
{
    cu_await();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && score[i / one] <= 0) x[i] = cu_to<T>((replace ? 0.0f : cu_f32(x[i])) + vec[i % c]);
}

void cu_where_absent(struct s2_backend *be, struct s2_tensor x, struct s2_tensor score, const float *vec, bool replace)
{
    if (be->skip) return;
    int64_t n = s2_elements(x);
    CU_BY_TYPE(x.dtype, T,
               cu_launch(be, where_absent<T>, cu_blocks(n, 256), 256, 0, (T *)x.data, (const float *)score.data, vec,
                         replace, x.c, n / x.n, n));
    CU_LAUNCHED(be, "where_absent");
}

template <class T> __global__ void clamp(T *y, const float *x, float lo, float hi, int64_t n)
{
    cu_await();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = cu_to<T>(fminf(fmaxf(x[i], lo), hi));
}

void cu_clamp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, float lo, float hi)
{
    if (be->skip) return;
    int64_t n = s2_elements(y);
    CU_BY_TYPE(y.dtype, T,
               cu_launch(be, clamp<T>, cu_blocks(n, 256), 256, 0, (T *)y.data, (const float *)x.data, lo, hi, n));
    CU_LAUNCHED(be, "clamp");
}

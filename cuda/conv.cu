/* conv.cu - convolutions. Dense ones with enough channels gather their patches and use the matrix product; small and
 * depthwise ones are direct. */
#include <cstdlib>
#include <cstring>

#include "launch.cuh"

struct conv_weights {
    struct s2_linear product; /* rows (ky, kx, in), padded to `patch`; impl NULL: direct */
    int patch;
    float *w;      /* direct: [out][in/groups][k][k] transposed to [k*k*in/groups][out] */
    float *bias;   /* direct, or beside patches */
    void *patches; /* activation type: the weights as patches.cu has them; NULL: it does not take them */
};

static bool by_product(const struct s2_conv *c)
{
    return c->groups == 1 && c->out >= 16 && c->k * c->k * c->in > 64;
}

static void pack_patches(struct s2_backend *be, struct conv_weights *p, const struct s2_conv *c, const float *w,
                         const float *b)
{
    const size_t cells = cu_patches_cells(c);
    float *packed = (float *)malloc(cells * sizeof *packed);
    if (!packed) {
        s2_backend_fail(be, S2_E_DEVICE, "out of memory while loading the model");
        return;
    }
    cu_patches_pack(c, packed, w);
    p->patches = cu_to_device(be, packed, cells);
    p->bias = cu_floats_to_device(be, b, (size_t)c->out);
    free(packed);
}

const void *cu_conv_patches(const struct s2_conv *c)
{
    return ((const struct conv_weights *)c->impl)->patches;
}
const float *cu_conv_bias(const struct s2_conv *c)
{
    return ((const struct conv_weights *)c->impl)->bias;
}

void cu_conv_create(struct s2_backend *be, struct s2_conv *c, const float *w, const float *b)
{
    c->impl = NULL;
    if (be->skip) return;
    int per = c->in / c->groups, taps = c->k * c->k, row = taps * per;
    struct conv_weights *p = (struct conv_weights *)calloc(1, sizeof *p);
    float *packed = p ? (float *)calloc((size_t)c->out * (size_t)(row + 8), sizeof *packed) : NULL;
    if (!packed) {
        s2_backend_fail(be, S2_E_DEVICE, "out of memory while loading the model");
        free(p);
        return;
    }
    c->impl = p;
    p->patch = (row + 7) / 8 * 8;
    bool product = by_product(c);
    for (int o = 0; o < c->out; o++)
        for (int i = 0; i < per; i++)
            for (int t = 0; t < taps; t++)
                packed[product ? o * p->patch + t * per + i : (t * per + i) * c->out + o] = w[(o * per + i) * taps + t];
    if (product) {
        cu_linear_create(be, &p->product, packed, b, p->patch, c->out);
        if (be->act != S2_F32 && cu_patches_take(c)) pack_patches(be, p, c, w, b);
    } else {
        p->w = cu_floats_to_device(be, packed, (size_t)c->out * (size_t)row);
        p->bias = cu_floats_to_device(be, b, (size_t)c->out);
    }
    free(packed);
}

void cu_conv_destroy(struct s2_backend *be, struct s2_conv *c)
{
    struct conv_weights *p = (struct conv_weights *)c->impl;
    if (!p) return;
    if (p->product.impl) cu_linear_destroy(be, &p->product);
    be->ops->free(be, p->w), be->ops->free(be, p->bias), be->ops->free(be, p->patches);
    free(p);
    c->impl = NULL;
}

/* ------------------------------------------------------------------ patches */

/* The patch matrix [n*H*W][row], rows of (ky, kx, channel) padded with zeros; one thread N neighbours of a row. C, K:
 * the channels and the kernel's side where they are known to the compiler, else 0 */
template <class T, int N, int C, int K>
__global__ void gather(cu_piece<T, N> *out, const T *x, int h, int w, int c_any, int H, int W, int k_any, int stride,
                       int pad, int row, int64_t n)
{
    cu_await();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int c = C ? C : c_any, k = K ? K : k_any, first = (int)(i % row) * N, cell = (int)(i / row);
    const int left = cell % W * stride - pad, top = cell / W % H * stride - pad;
    const T *map = x + (int64_t)(cell / W / H) * h * w * c;
    cu_piece<T, N> to;
#pragma unroll
    for (int e = 0; e < N; e++) {
        const int t = (first + e) / c, ch = (first + e) % c, sy = top + t / k, sx = left + t % k;
        const bool inside = t < k * k && sy >= 0 && sy < h && sx >= 0 && sx < w;
        to.v[e] = inside ? map[((int64_t)sy * w + sx) * c + ch] : cu_to<T>(0.0f);
    }
    out[i] = to;
}

/* The same where channels are whole pieces; c and row in pieces */
template <class T, int N>
__global__ void gather_pieces(cu_piece<T, N> *out, const cu_piece<T, N> *x, int h, int w, int c, int H, int W, int k,
                              int stride, int pad, int row, int64_t n)
{
    cu_await();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int e = (int)(i % row), cell = (int)(i / row), t = e / c;
    const int sy = cell / W % H * stride - pad + t / k, sx = cell % W * stride - pad + t % k;
    cu_piece<T, N> to = {};
    if (sy >= 0 && sy < h && sx >= 0 && sx < w) to = x[(((int64_t)(cell / W / H) * h + sy) * w + sx) * c + e % c];
    out[i] = to;
}

static bool launch_gather(struct s2_backend *be, struct s2_tensor patches, struct s2_tensor x, const struct s2_conv *c)
{
    cudaStream_t stream = cu_stream(be);
    CU_BY_TYPE(x.dtype, T, {
        constexpr int N = 16 / (int)sizeof(T);
        using piece = cu_piece<T, N>;
        const int row = patches.c / N;
        const int64_t n = s2_tokens(patches) * row;
        const int blocks = cu_blocks(n, 256);
        if (x.c % N == 0 && patches.c == c->k * c->k * x.c) {
            cu_launch(be, gather_pieces<T, N>, blocks, 256, 0, (piece *)patches.data, (const piece *)x.data, x.h, x.w,
                      x.c / N, patches.h, patches.w, c->k, c->stride, c->pad, row, n);
        } else if (x.c == 3 && c->k == 7) {
            cu_launch(be, gather<T, N, 3, 7>, blocks, 256, 0, (piece *)patches.data, (const T *)x.data, x.h, x.w, 3,
                      patches.h, patches.w, 7, c->stride, c->pad, row, n);
        } else {
            cu_launch(be, gather<T, N, 0, 0>, blocks, 256, 0, (piece *)patches.data, (const T *)x.data, x.h, x.w, x.c,
                      patches.h, patches.w, c->k, c->stride, c->pad, row, n);
        }
    });
    return CU_LAUNCHED(be, "a convolution");
}

/* ------------------------------------------------------------------ direct */

struct geometry {
    int h, w, c, per; /* of x; channels that an output sees */
    int H, W, out;    /* of y */
    int k, stride, pad;
};

/* tap(t, sy, sx) for those of the kernel's places t that lie on the map, at (sy, sx), for output (Y, X). */
template <class Tap> __device__ __forceinline__ void each_tap(const struct geometry &g, int Y, int X, Tap tap)
{
    for (int ky = 0; ky < g.k; ky++) {
        const int sy = Y * g.stride - g.pad + ky;
        if (sy < 0 || sy >= g.h) continue;
        for (int kx = 0; kx < g.k; kx++) {
            const int sx = X * g.stride - g.pad + kx;
            if (sx < 0 || sx >= g.w) continue;
            tap(ky * g.k + kx, sy, sx);
        }
    }
}

/* One thread an output element; neighbouring threads share the pixel's inputs and read weights side by side */
template <class T>
__global__ void direct(T *y, const T *x, const float *wt, const float *bias, struct geometry g, enum s2_act act,
                       int64_t n)
{
    cu_await();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int o = (int)(i % g.out), X = (int)(i / g.out % g.W), Y = (int)(i / g.out / g.W % g.H);
    const int64_t b = i / g.out / g.W / g.H;
    const int first = g.per == g.c ? 0 : o;
    float sum = bias[o];
    each_tap(g, Y, X, [&](int t, int sy, int sx) {
        const T *from = x + ((b * g.h + sy) * g.w + sx) * g.c + first;
        const float *weight = wt + (int64_t)t * g.per * g.out + o;
        for (int ch = 0; ch < g.per; ch++) sum += cu_f32(from[ch]) * weight[(int64_t)ch * g.out];
    });
    y[i] = cu_to<T>(cu_act<T>(sum, act));
}

/* What follows a convolution: a norm over the channels if scale is not NULL, then act. */
struct finish {
    const float *scale, *shift;
    float eps;
    enum s2_act act;
};

template <class T, int OUT>
__device__ __forceinline__ cu_piece<T, OUT> finished(float (&v)[OUT], const struct finish &f)
{
    cu_piece<T, OUT> to;
    if (f.scale) {
        float mean = 0, square = 0;
#pragma unroll
        for (int o = 0; o < OUT; o++) mean += v[o];
        mean /= OUT;
#pragma unroll
        for (int o = 0; o < OUT; o++) square += (v[o] - mean) * (v[o] - mean);
        const float scale = rsqrtf(square / OUT + f.eps);
#pragma unroll
        for (int o = 0; o < OUT; o++) v[o] = (v[o] - mean) * scale * f.scale[o] + f.shift[o];
    }
#pragma unroll
    for (int o = 0; o < OUT; o++) to.v[o] = cu_to<T>(cu_act<T>(v[o], f.act));
    return to;
}

/* Kernels of 3 x 3, on a mask's way to a memory: one thread a pixel and all of its OUT outputs, its inputs on
 * their way at once, the weights in shared memory */
template <class T, int C, int OUT>
__global__ void narrow(cu_piece<T, OUT> *y, const cu_piece<T, C> *x, const float *wt, const float *bias,
                       struct geometry g, struct finish f, int64_t n)
{
    cu_await();
    constexpr int K = 3;
    __shared__ __align__(16) float weight[K * K * C * OUT];
    for (int i = threadIdx.x; i < K * K * C * OUT; i += blockDim.x) weight[i] = wt[i];
    __syncthreads();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int X = (int)(i % g.W), Y = (int)(i / g.W % g.H);
    const cu_piece<T, C> *map = x + i / g.W / g.H * g.h * g.w;
    cu_piece<T, C> from[K * K] = {};
#pragma unroll
    for (int t = 0; t < K * K; t++) {
        const int sy = Y * g.stride - g.pad + t / K, sx = X * g.stride - g.pad + t % K;
        if (sy >= 0 && sy < g.h && sx >= 0 && sx < g.w) from[t] = map[(int64_t)sy * g.w + sx];
    }
    float sum[OUT];
#pragma unroll
    for (int o = 0; o < OUT; o++) sum[o] = bias[o];
#pragma unroll
    for (int t = 0; t < K * K * C; t++) {
        const float v = cu_f32(from[t / C].v[t % C]);
#pragma unroll
        for (int o = 0; o < OUT; o++) sum[o] = fmaf(v, weight[t * OUT + o], sum[o]);
    }
    y[i] = finished<T>(sum, f);
}

/* Depthwise, stride 1: one thread two channels of STRIP neighbouring pixels, whose inputs it reads once a row; a block
 * has STRIP_ROWS rows, so that weights and most inputs come to its multiprocessor once. */
enum { STRIP = 4, STRIP_ROWS = 4 };

template <class T, int K>
__global__ void __launch_bounds__(128 * STRIP_ROWS, 2)
    depthwise(cu_piece<T, 2> *y, const cu_piece<T, 2> *x, const float2 *wt, const float2 *bias, struct geometry g,
              enum s2_act act)
{
    cu_await();
    const int pairs = g.c / 2, pair = blockIdx.x * blockDim.x + threadIdx.x, strips = (g.W + STRIP - 1) / STRIP;
    const int left = (int)(blockIdx.y % strips) * STRIP, Y = (int)(blockIdx.y / strips) * STRIP_ROWS + threadIdx.y;
    if (pair >= pairs || Y >= g.H) return;
    x += (int64_t)blockIdx.z * g.h * g.w * pairs + pair;
    y += ((int64_t)blockIdx.z * g.H + Y) * g.W * pairs + pair;
    float2 sum[STRIP];
#pragma unroll
    for (int s = 0; s < STRIP; s++) sum[s] = bias[pair];
#pragma unroll 1
    for (int ky = 0; ky < K; ky++) {
        const int sy = Y - g.pad + ky;
        if (sy < 0 || sy >= g.h) continue;
        float2 row[STRIP + K - 1];
#pragma unroll
        for (int i = 0; i < STRIP + K - 1; i++) {
            const int sx = left - g.pad + i;
            cu_piece<T, 2> v = {};
            if (sx >= 0 && sx < g.w) v = x[((int64_t)sy * g.w + sx) * pairs];
            row[i] = make_float2(cu_f32(v.v[0]), cu_f32(v.v[1]));
        }
#pragma unroll
        for (int kx = 0; kx < K; kx++) {
            const float2 weight = wt[(ky * K + kx) * pairs + pair];
#pragma unroll
            for (int s = 0; s < STRIP; s++) {
                sum[s].x = fmaf(row[s + kx].x, weight.x, sum[s].x);
                sum[s].y = fmaf(row[s + kx].y, weight.y, sum[s].y);
            }
        }
    }
#pragma unroll
    for (int s = 0; s < STRIP; s++) {
        cu_piece<T, 2> to;
        to.v[0] = cu_to<T>(cu_act<T>(sum[s].x, act)), to.v[1] = cu_to<T>(cu_act<T>(sum[s].y, act));
        if (left + s < g.W) y[(int64_t)(left + s) * pairs] = to;
    }
}

static bool is_narrow(const struct s2_conv *c)
{
    return c->groups == 1 && c->k == 3 && ((c->in == 1 && c->out == 4) || (c->in == 4 && c->out == 16));
}

static struct geometry geometry_of(struct s2_tensor y, struct s2_tensor x, const struct s2_conv *c)
{
    return {x.h, x.w, x.c, c->in / c->groups, y.h, y.w, y.c, c->k, c->stride, c->pad};
}

/* norm NULL: none */
static void launch_narrow(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *c,
                          const struct s2_norm *norm, enum s2_act act)
{
    const struct conv_weights *p = (const struct conv_weights *)c->impl;
    const struct geometry g = geometry_of(y, x, c);
    const struct finish f = {norm ? norm->weight : NULL, norm ? norm->bias : NULL, norm ? norm->eps : 0, act};
    const int64_t pixels = s2_tokens(y);
    const int blocks = cu_blocks(pixels, 128);
    CU_BY_TYPE(y.dtype, T, {
        if (c->out == 4)
            cu_launch(be, narrow<T, 1, 4>, blocks, 128, 0, (cu_piece<T, 4> *)y.data, (const cu_piece<T, 1> *)x.data,
                      p->w, p->bias, g, f, pixels);
        else
            cu_launch(be, narrow<T, 4, 16>, blocks, 128, 0, (cu_piece<T, 16> *)y.data, (const cu_piece<T, 4> *)x.data,
                      p->w, p->bias, g, f, pixels);
    });
    CU_LAUNCHED(be, "a convolution");
}

static void launch_direct(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *c,
                          enum s2_act act)
{
    const struct conv_weights *p = (const struct conv_weights *)c->impl;
    const struct geometry g = geometry_of(y, x, c);
    const int64_t n = s2_elements(y);
    CU_BY_TYPE(y.dtype, T, {
        if (g.per == 1 && g.out == g.c && g.k == 7 && g.stride == 1 && g.c % 2 == 0) {
            const int tiles = cu_blocks(g.W, STRIP) * cu_blocks(g.H, STRIP_ROWS);
            const dim3 grid((unsigned)cu_blocks(g.c / 2, 128), (unsigned)tiles, (unsigned)y.n);
            cu_launch(be, depthwise<T, 7>, grid, dim3(128, STRIP_ROWS), 0, (cu_piece<T, 2> *)y.data,
                      (const cu_piece<T, 2> *)x.data, (const float2 *)p->w, (const float2 *)p->bias, g, act);
        } else {
            cu_launch(be, direct<T>, cu_blocks(n, 256), 256, 0, (T *)y.data, (const T *)x.data, p->w, p->bias, g, act,
                      n);
        }
    });
    CU_LAUNCHED(be, "a convolution");
}

/* ------------------------------------------------------------------ the operators */

void cu_conv(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *c, enum s2_act act)
{
    if (be->skip) return;
    const struct conv_weights *p = (const struct conv_weights *)c->impl;
    if (is_narrow(c)) {
        launch_narrow(be, y, x, c, NULL, act);
        return;
    }
    if (!p->product.impl) {
        launch_direct(be, y, x, c, act);
        return;
    }
    struct s2_tensor patches = y;
    patches.c = patches.ld = p->patch;
    if (!(patches.data = cu_scratch(be, (size_t)s2_elements(patches) * s2_dtype_size(x.dtype)))) return;
    if (launch_gather(be, patches, x, c)) cu_linear(be, y, patches, &p->product, act, false);
}

void cu_conv_norm(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *c,
                  const struct s2_norm *norm, enum s2_act act)
{
    if (be->skip) return;
    if (is_narrow(c)) {
        launch_narrow(be, y, x, c, norm, act);
    } else {
        s2_compose_conv_norm(be, y, x, c, norm, act);
    }
}

/* linear.cu - matrix products through cuBLASLt, loaded at run time so that the program starts without it, and by an own
 * kernel where rows are ragged.
 * Row-major y [M][N] = x [M][K] W^T with W [N][K] is, in the library's column-major view, y^T = W x^T. */
#include <cublasLt.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cu.cuh"

/* ------------------------------------------------------------------ the library */

#define LT_FUNCTIONS(X)                                                                                                \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(MatmulDescCreate)                                                                                                \
    X(MatmulDescSetAttribute)                                                                                          \
    X(MatrixLayoutCreate)                                                                                              \
    X(MatmulPreferenceCreate)                                                                                          \
    X(MatmulPreferenceSetAttribute)                                                                                    \
    X(MatmulPreferenceDestroy)                                                                                         \
    X(MatmulAlgoGetHeuristic)                                                                                          \
    X(Matmul)                                                                                                          \
    X(MatmulDescDestroy)                                                                                               \
    X(MatrixLayoutDestroy)

struct lt {
    void *library;
#define X(name) decltype(&cublasLt##name) name;
    LT_FUNCTIONS(X)
#undef X
};

static bool load(struct lt *lt)
{
    char name[32];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUDART_VERSION / 1000);
    lt->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lt->library) return false;
#define X(f)                                                                                                           \
    if (!(lt->f = (decltype(lt->f))dlsym(lt->library, "cublasLt" #f))) return false;
    LT_FUNCTIONS(X)
#undef X
    return true;
}

/* ------------------------------------------------------------------ plans */

enum { MAX_PLANS = 1024 };
static const size_t workspace_size = 32u << 20;

struct key {
    int m, n, k, ldx, ldy, type_x, type_y, epilogue, accumulate, align_x, align_y;
};

struct plan {
    struct key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
};

struct cu_blas {
    struct lt lt;
    cublasLtHandle_t handle;
    struct plan *plan;
    int n;
};

struct weights {
    void *w;      /* [out][in], activation type */
    float *bias;  /* [out] */
    void *bias_t; /* [out], activation type: the library wants it in the output's type */
    void *packed; /* NULL, or w in the order of mlp.cuh */
};

struct cu_blas *cu_blas_open(struct s2_backend *be)
{
    struct cu_blas *b = (struct cu_blas *)calloc(1, sizeof *b);
    struct plan *plans = (struct plan *)calloc(MAX_PLANS, sizeof *plans);
    if (!b || !plans) {
        s2_backend_fail(be, S2_E_DEVICE, "out of memory while opening the GPU");
        free(b), free(plans);
        return NULL;
    }
    b->plan = plans;
    if (!load(&b->lt)) {
        s2_backend_fail(be, S2_E_DEVICE,
                        "the CUDA library libcublasLt.so.%d was not found (%s); install the CUDA runtime libraries or "
                        "use --device cpu",
                        CUDART_VERSION / 1000, dlerror());
    } else if (b->lt.Create(&b->handle) != CUBLAS_STATUS_SUCCESS) {
        s2_backend_fail(be, S2_E_DEVICE, "cuBLASLt cannot use this GPU; use --device cpu");
    } else {
        for (struct cu_lane &lane : cu_of(be)->lane) lane.workspace = be->ops->alloc(be, workspace_size);
    }
    return b;
}

void cu_blas_close(struct s2_backend *be, struct cu_blas *b)
{
    if (!b) return;
    for (int i = 0; i < b->n; i++) {
        b->lt.MatmulDescDestroy(b->plan[i].desc);
        b->lt.MatrixLayoutDestroy(b->plan[i].w), b->lt.MatrixLayoutDestroy(b->plan[i].x),
            b->lt.MatrixLayoutDestroy(b->plan[i].y);
    }
    if (b->handle) b->lt.Destroy(b->handle);
    if (b->lt.library) dlclose(b->lt.library);
    free(b->plan);
    free(b);
}

static cudaDataType_t type_of(int dtype)
{
    return dtype == S2_BF16 ? CUDA_R_16BF : dtype == S2_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static int alignment(const void *p, int ld, enum s2_dtype t)
{
    size_t bits = (size_t)p | (size_t)ld * s2_dtype_size(t) | 256;
    return (int)(bits & (~bits + 1));
}

static bool make_plan(struct s2_backend *be, struct cu_blas *b, struct plan *p)
{
    const struct lt *lt = &b->lt;
    const struct key *k = &p->key;
    cublasOperation_t transpose = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)k->epilogue;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    /* sums of parts of k are added in float32, never in the output's type */
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t align_w = 256, align_x = (uint32_t)k->align_x, align_y = (uint32_t)k->align_y;
    int found = 0;

    align_w = (uint32_t)alignment(NULL, k->k, (enum s2_dtype)k->type_x);
    lt->MatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    lt->MatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose);
    lt->MatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    lt->MatrixLayoutCreate(&p->w, type_of(k->type_x), (uint64_t)k->k, (uint64_t)k->n, k->k);
    lt->MatrixLayoutCreate(&p->x, type_of(k->type_x), (uint64_t)k->k, (uint64_t)k->m, k->ldx);
    lt->MatrixLayoutCreate(&p->y, type_of(k->type_y), (uint64_t)k->n, (uint64_t)k->m, k->ldy);
    lt->MatmulPreferenceCreate(&preference);
    lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_size,
                                     sizeof workspace_size);
    lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_w, sizeof align_w);
    lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_x, sizeof align_x);
    lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_y, sizeof align_y);
    lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_y, sizeof align_y);
    lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                     sizeof reductions);
    /* the library's first choice, never a timed one: the same machine gives the same bits */
    cublasStatus_t st =
        lt->MatmulAlgoGetHeuristic(b->handle, p->desc, p->w, p->x, p->y, p->y, preference, 1, &result, &found);
    lt->MatmulPreferenceDestroy(preference);
    if (st != CUBLAS_STATUS_SUCCESS || found == 0) {
        s2_backend_fail(be, S2_E_DEVICE, "cuBLASLt has no way to multiply %d x %d by %d", k->m, k->k, k->n);
        return false;
    }
    p->algo = result.algo;
    return true;
}

static const struct plan *find_plan(struct s2_backend *be, const struct key *key)
{
    struct cu_blas *b = cu_of(be)->blas;
    for (int i = 0; i < b->n; i++)
        if (memcmp(&b->plan[i].key, key, sizeof *key) == 0) return &b->plan[i];
    if (b->n == MAX_PLANS) {
        s2_backend_fail(be, S2_E_INTERNAL, "more than %d shapes of matrix products", MAX_PLANS);
        return NULL;
    }
    struct plan *p = &b->plan[b->n];
    p->key = *key;
    if (!make_plan(be, b, p)) return NULL;
    b->n++;
    return p;
}

/* ------------------------------------------------------------------ weights */

template <class T> static void convert(T *out, const float *in, size_t n);
template <> void convert<float>(float *out, const float *in, size_t n)
{
    memcpy(out, in, n * sizeof *in);
}
template <> void convert<__half>(__half *out, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = __float2half_rn(in[i]);
}
template <> void convert<__nv_bfloat16>(__nv_bfloat16 *out, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = __float2bfloat16_rn(in[i]);
}

void *cu_to_device(struct s2_backend *be, const float *host, size_t n)
{
    void *dev = be->ops->alloc(be, n * s2_dtype_size(be->act)), *packed = malloc(n * s2_dtype_size(be->act) + 1);
    if (!packed) s2_backend_fail(be, S2_E_DEVICE, "out of memory while loading the model");
    if (dev && packed) {
        CU_BY_TYPE(be->act, T, convert<T>((T *)packed, host, n));
        be->ops->upload(be, dev, packed, n * s2_dtype_size(be->act));
        be->ops->sync(be);
    }
    free(packed);
    return dev;
}

float *cu_floats_to_device(struct s2_backend *be, const float *host, size_t n)
{
    float *dev = (float *)be->ops->alloc(be, n * sizeof *host);
    if (dev) be->ops->upload(be, dev, host, n * sizeof *host);
    be->ops->sync(be);
    return dev;
}

void cu_linear_create(struct s2_backend *be, struct s2_linear *l, const float *w, const float *b, int in, int out)
{
    l->in = in, l->out = out, l->impl = NULL;
    if (be->skip) return;
    struct weights *p = (struct weights *)calloc(1, sizeof *p);
    if (!p) {
        s2_backend_fail(be, S2_E_DEVICE, "out of memory while loading the model");
        return;
    }
    l->impl = p;
    p->w = cu_to_device(be, w, (size_t)in * (size_t)out);
    p->bias_t = cu_to_device(be, b, (size_t)out);
    p->bias = cu_floats_to_device(be, b, (size_t)out);
    p->packed = cu_mlp_pack(be, p->w, in, out);
    be->ops->sync(be);
}

void cu_linear_destroy(struct s2_backend *be, struct s2_linear *l)
{
    struct weights *p = (struct weights *)l->impl;
    if (!p) return;
    be->ops->free(be, p->w), be->ops->free(be, p->bias), be->ops->free(be, p->bias_t);
    be->ops->free(be, p->packed);
    free(p);
    l->impl = NULL;
}

const void *cu_linear_weight(const struct s2_linear *l)
{
    return ((const struct weights *)l->impl)->w;
}
const float *cu_linear_bias(const struct s2_linear *l)
{
    return ((const struct weights *)l->impl)->bias;
}
const void *cu_linear_packed(const struct s2_linear *l)
{
    return ((const struct weights *)l->impl)->packed;
}

/* ------------------------------------------------------------------ ragged products */

/* Rows of 16-bit numbers that are not whole pieces of 16 bytes, as of the heads with 1 and 4 outputs: the library's
 * kernels for them round sums to 16 bits before they add the bias. Here everything is float32 up to the one rounding at
 * the end. A warp has one output of RAGGED_ROWS tokens, each lane every 32nd term of their sums. */
enum { RAGGED_ROWS = 8, RAGGED_WARPS = 4 };

template <class T, class Y>
__global__ void ragged(Y *y, const T *x, const T *w, const float *bias, int m, int n, int k, int ldx, int ldy,
                       enum s2_act act, bool accumulate)
{
    const int lane = threadIdx.x & 31, out = blockIdx.y * RAGGED_WARPS + (threadIdx.x >> 5);
    const int64_t first = (int64_t)blockIdx.x * RAGGED_ROWS;
    if (out >= n) return;
    const int rows = (int)min((int64_t)RAGGED_ROWS, m - first);
    x += first * ldx, w += (int64_t)out * k;
    float sum[RAGGED_ROWS] = {};
    for (int i = lane; i < k; i += 32) {
        const float weight = cu_f32(w[i]);
#pragma unroll
        for (int r = 0; r < RAGGED_ROWS; r++)
            if (r < rows) sum[r] = fmaf(cu_f32(x[(int64_t)r * ldx + i]), weight, sum[r]);
    }
    float mine = bias[out]; /* lane r has the output of row r */
#pragma unroll
    for (int r = 0; r < RAGGED_ROWS; r++) {
        const float whole = cu_lanes_sum<32>(sum[r]);
        if (lane == r) mine += whole;
    }
    if (lane >= rows) return;
    Y *to = y + (first + lane) * ldy + out;
    const float v = cu_act<Y>(mine, act);
    *to = cu_to<Y>(accumulate ? cu_f32(*to) + v : v);
}

static bool is_ragged(struct s2_tensor y, struct s2_tensor x, const struct s2_linear *l)
{
    return x.dtype != S2_F32 && (l->in % 8 != 0 || l->out % 8 != 0 || !cu_whole(x) || !cu_whole(y));
}

/* T: of x. y is of the same type or float32. */
template <class T>
static void launch_ragged(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *l,
                          enum s2_act act, bool accumulate)
{
    const struct weights *p = (const struct weights *)l->impl;
    const int m = (int)s2_tokens(x), threads = 32 * RAGGED_WARPS;
    const dim3 grid((unsigned)cu_blocks(m, RAGGED_ROWS), (unsigned)cu_blocks(l->out, RAGGED_WARPS));
    cudaStream_t stream = cu_stream(be);
    if (y.dtype == S2_F32) {
        ragged<<<grid, threads, 0, stream>>>((float *)y.data, (const T *)x.data, (const T *)p->w, p->bias, m, l->out,
                                             l->in, x.ld, y.ld, act, accumulate);
    } else {
        ragged<<<grid, threads, 0, stream>>>((T *)y.data, (const T *)x.data, (const T *)p->w, p->bias, m, l->out, l->in,
                                             x.ld, y.ld, act, accumulate);
    }
    CU_LAUNCHED(be, "a ragged product");
}

/* ------------------------------------------------------------------ operators */

/* y = (accumulate ? y : 0) + act(x) for what the library's epilogues cannot do; x NULL: y itself. Rows of `row` pieces,
 * those of y at a distance of ld pieces */
template <class T, int N>
__global__ void activate(cu_piece<T, N> *y, int ld, const cu_piece<T, N> *x, int64_t n, int row, enum s2_act act,
                         bool accumulate)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t at = ld == row ? i : i / row * ld + i % row;
    cu_piece<T, N> to, from = x ? x[i] : y[at];
    if (accumulate) to = y[at];
#pragma unroll
    for (int e = 0; e < N; e++) {
        float v = cu_act<T>(cu_f32(from.v[e]), act);
        to.v[e] = cu_to<T>(accumulate ? cu_f32(to.v[e]) + v : v);
    }
    y[at] = to;
}

/* y (+)= x W^T + b, then ReLU if asked */
static void product(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *l, bool relu,
                    bool accumulate)
{
    const struct weights *p = (const struct weights *)l->impl;
    struct cu_blas *b = cu_of(be)->blas;
    struct key key;
    memset(&key, 0, sizeof key);
    key.m = (int)s2_tokens(x), key.n = l->out, key.k = l->in, key.ldx = x.ld, key.ldy = y.ld;
    key.type_x = x.dtype, key.type_y = y.dtype;
    key.epilogue = relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    key.accumulate = accumulate;
    key.align_x = alignment(x.data, x.ld, x.dtype), key.align_y = alignment(y.data, y.ld, y.dtype);
    const struct plan *plan = find_plan(be, &key);
    if (!plan) return;

    const void *bias = y.dtype == S2_F32 ? p->bias : p->bias_t;
    float one = 1, beta = accumulate ? 1.0f : 0.0f;
    b->lt.MatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    cublasStatus_t st =
        b->lt.Matmul(b->handle, plan->desc, &one, p->w, plan->w, x.data, plan->x, &beta, y.data, plan->y, y.data,
                     plan->y, &plan->algo, cu_of(be)->now->workspace, workspace_size, cu_stream(be));
    if (st != CUBLAS_STATUS_SUCCESS)
        s2_backend_fail(be, S2_E_DEVICE, "cuBLASLt failed (status %d) in a product of %d x %d by %d", (int)st, key.m,
                        key.k, key.n);
}

static void launch_activate(struct s2_backend *be, struct s2_tensor y, const void *x, enum s2_act act, bool accumulate)
{
    CU_BY_PIECE(y.dtype, cu_whole(y), T, N, {
        using piece = cu_piece<T, N>;
        const int64_t n = s2_elements(y) / N;
        activate<T, N><<<cu_blocks(n, 256), 256, 0, cu_stream(be)>>>((piece *)y.data, y.ld / N, (const piece *)x, n,
                                                                     y.c / N, act, accumulate);
    });
    CU_LAUNCHED(be, "an activation");
}

void cu_linear(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *l,
               enum s2_act act, bool accumulate)
{
    if (be->skip) return;
    if (act == S2_ACT_GELU && !accumulate && cu_mlp_layer(be, y, x, NULL, l, act)) return;
    if (is_ragged(y, x, l)) {
        CU_BY_HALF(x.dtype, T, launch_ragged<T>(be, y, x, l, act, accumulate));
        return;
    }
    bool fused = act == S2_ACT_NONE || (act == S2_ACT_RELU && !accumulate);
    if (fused || !accumulate) {
        product(be, y, x, l, act == S2_ACT_RELU, accumulate && fused);
        if (!fused && !be->skip) launch_activate(be, y, NULL, act, false);
        return;
    }
    struct s2_tensor t = y;
    t.ld = t.c;
    if (!(t.data = cu_scratch(be, (size_t)s2_elements(y) * s2_dtype_size(y.dtype)))) return;
    product(be, t, x, l, false, false);
    if (!be->skip) launch_activate(be, y, t.data, act, true);
}

void cu_norm_linear(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                    const struct s2_linear *l, struct s2_tensor room)
{
    if (be->skip || cu_mlp_layer(be, y, x, norm, l, S2_ACT_NONE)) return;
    s2_compose_norm_linear(be, y, x, norm, l, room);
}

void cu_mlp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
            const struct s2_linear *fc1, enum s2_act act, const struct s2_linear *fc2)
{
    if (be->skip || cu_mlp_whole(be, y, x, norm, fc1, act, fc2)) return;
    size_t tokens = (size_t)s2_tokens(x), size = s2_dtype_size(x.dtype);
    size_t first = norm ? cu_rounded(tokens * (size_t)x.c * size) : 0;
    char *scratch = (char *)cu_scratch(be, first + tokens * (size_t)fc1->out * size);
    if (!scratch) return;
    struct s2_tensor normed = x, hidden = x;
    hidden.data = scratch + first, hidden.c = hidden.ld = fc1->out;
    if (!cu_mlp_layer(be, hidden, x, norm, fc1, act)) {
        if (norm) {
            normed.data = scratch, normed.ld = x.c;
            cu_layer_norm(be, normed, x, norm, S2_ACT_NONE);
        }
        cu_linear(be, hidden, normed, fc1, act, false);
    }
    if (!be->skip) cu_linear(be, y, hidden, fc2, S2_ACT_NONE, true);
}

/* y[n][2h][2w][c] = act(t[n][h][w][dy][dx][c] + skip); c, n in pieces */
template <class T, int N>
__global__ void shuffle(cu_piece<T, N> *y, const cu_piece<T, N> *t, const cu_piece<T, N> *skip, int64_t skip_n, int h,
                        int w, int c, int64_t n, enum s2_act act)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int ch = (int)(i % c), X = (int)(i / c % (2 * w)), Y = (int)(i / c / (2 * w) % (2 * h));
    int64_t b = i / c / (2 * w) / (2 * h), one = (int64_t)4 * h * w * c;
    cu_piece<T, N> to = t[(((b * h + Y / 2) * w + X / 2) * 4 + (Y % 2) * 2 + X % 2) * c + ch], add;
    if (skip) add = skip[(skip_n == 1 ? 0 : b * one) + i % one];
#pragma unroll
    for (int e = 0; e < N; e++) {
        float v = cu_f32(to.v[e]) + (skip ? cu_f32(add.v[e]) : 0.0f);
        to.v[e] = cu_to<T>(cu_act<T>(v, act));
    }
    y[i] = to;
}

void cu_deconv2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *l,
                struct s2_tensor skip, enum s2_act act)
{
    if (be->skip) return;
    struct s2_tensor t = x;
    t.c = t.ld = l->out;
    if (!(t.data = cu_scratch(be, (size_t)s2_elements(t) * s2_dtype_size(t.dtype)))) return;
    cu_linear(be, t, x, l, S2_ACT_NONE, false);
    if (be->skip) return;
    CU_BY_PIECE(y.dtype, cu_whole(y) && cu_whole(t) && (!skip.data || cu_whole(skip)), T, N, {
        using piece = cu_piece<T, N>;
        const int64_t n = s2_elements(y) / N;
        shuffle<T, N><<<cu_blocks(n, 256), 256, 0, cu_stream(be)>>>(
            (piece *)y.data, (const piece *)t.data, (const piece *)skip.data, skip.n, x.h, x.w, y.c / N, n, act);
    });
    CU_LAUNCHED(be, "deconv2");
}

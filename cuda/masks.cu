/* masks.cu - mask logits, the choice among four masks, hole filling, masks at video size. */
#include "bilinear.cuh"
#include "launch.cuh"

/* ------------------------------------------------------------------ logits */

enum { LOGIT_MASKS = 4 }; /* whose sums a thread has at a time */

/* One thread a pixel and batch entry, N channels at a time; the weights lie in shared memory. c, ld of u in pieces */
template <class T, int N>
__global__ void mask_logits(float *y, const T *hyper, const cu_piece<T, N> *u, int k, int c, int pixels)
{
    cu_await();
    extern __shared__ float weight[];
    const int64_t b = blockIdx.y;
    for (int i = threadIdx.x; i < k * c * N; i += blockDim.x) weight[i] = cu_f32(hyper[b * k * c * N + i]);
    __syncthreads();
    const int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    const cu_piece<T, N> *from = u + (b * pixels + p) * c;
    for (int first = 0; first < k; first += LOGIT_MASKS) {
        float sum[LOGIT_MASKS] = {};
#pragma unroll 4
        for (int i = 0; i < c; i++) {
            const cu_piece<T, N> piece = from[i];
#pragma unroll
            for (int e = 0; e < N; e++) {
                const float v = cu_f32(piece.v[e]);
#pragma unroll
                for (int m = 0; m < LOGIT_MASKS; m++)
                    if (first + m < k) sum[m] = fmaf(v, weight[((first + m) * c + i) * N + e], sum[m]);
            }
        }
#pragma unroll
        for (int m = 0; m < LOGIT_MASKS; m++)
            if (first + m < k) y[(b * k + first + m) * pixels + p] = sum[m];
    }
}

void cu_mask_logits(struct s2_backend *be, struct s2_tensor y, struct s2_tensor hyper, struct s2_tensor u)
{
    if (be->skip) return;
    const int pixels = u.h * u.w, k = hyper.w;
    const size_t bytes = (size_t)(k * u.c) * sizeof(float);
    CU_BY_PIECE(u.dtype, cu_whole(u), T, N, {
        cu_launch(be, mask_logits<T, N>, dim3(cu_blocks(pixels, 128), (unsigned)u.n), 128, bytes, (float *)y.data,
                  (const T *)hyper.data, (const cu_piece<T, N> *)u.data, k, u.c / N, pixels);
    });
    CU_LAUNCHED(be, "mask_logits");
}

/* ------------------------------------------------------------------ choice */

enum { CHOOSE_THREADS = 1024 };

__device__ static int best_of_three(const float *iou)
{
    int best = 1;
    for (int i = 2; i < 4; i++)
        if (iou[i] > iou[best]) best = i;
    return best;
}

/* which [n]: the index of the chosen mask where the first may be it. One block a batch entry; integer counts, so their
 * order does not show. */
__global__ void decide(int *which, const float *masks, const float *iou, int pixels)
{
    cu_await();
    __shared__ int inner, outer;
    int64_t b = blockIdx.x;
    const float *mask0 = masks + b * 4 * pixels;
    if (threadIdx.x == 0) inner = outer = 0;
    __syncthreads();
    int a = 0, o = 0;
    for (int p = threadIdx.x; p < pixels; p += CHOOSE_THREADS) {
        a += mask0[p] > 0.05f;
        o += mask0[p] > -0.05f;
    }
    atomicAdd(&inner, a);
    atomicAdd(&outer, o);
    __syncthreads();
    if (threadIdx.x) return;
    const bool stable = outer == 0 || (float)inner / (float)outer >= 0.98f;
    which[b] = stable ? 0 : best_of_three(iou + 4 * b);
}

/* which NULL: the best of three, and its token */
template <class T>
__global__ void pick(float *low, T *token, float *best_iou, const int *which, const float *masks, const float *iou,
                     const float *score, const T *tokens, int pixels, int c, int t)
{
    cu_await();
    int64_t b = blockIdx.y;
    int p = blockIdx.x * blockDim.x + threadIdx.x, m = which ? which[b] : best_of_three(iou + 4 * b);
    if (p < pixels) low[b * pixels + p] = score[b] > 0 ? masks[(b * 4 + m) * pixels + p] : -1024.0f;
    if (p < c) token[b * c + p] = tokens[(b * t + (which ? 0 : m)) * c + p];
    if (p == 0) best_iou[b] = iou[4 * b + m];
}

void cu_choose(struct s2_backend *be, struct s2_tensor low, struct s2_tensor token, struct s2_tensor best_iou,
               struct s2_tensor masks, struct s2_tensor iou, struct s2_tensor score, struct s2_tensor tokens, int first,
               bool multimask)
{
    if (be->skip) return;
    const int n = masks.n, pixels = masks.w, c = tokens.c;
    int *which = NULL;
    if (!multimask) {
        if (!(which = (int *)cu_scratch(be, (size_t)n * sizeof(int)))) return;
        cu_launch(be, decide, n, CHOOSE_THREADS, 0, which, (const float *)masks.data, (const float *)iou.data, pixels);
    }
    CU_BY_TYPE(tokens.dtype, T,
               cu_launch(be, pick<T>, dim3(cu_blocks(pixels > c ? pixels : c, 256), (unsigned)n), 256, 0,
                         (float *)low.data, (T *)token.data, (float *)best_iou.data, which, (const float *)masks.data,
                         (const float *)iou.data, (const float *)score.data, (const T *)tokens.data + first * c, pixels,
                         c, tokens.w));
    CU_LAUNCHED(be, "choose");
}

/* ------------------------------------------------------------------ hole filling */

/* Up to this area each background pixel looks for its component by itself: all of it is within NEAR_AREA pixels, and
 * so is a part of NEAR_AREA + 1 pixels if it is larger. */
enum { NEAR_AREA = 8, NEAR_ROWS = 2 * NEAR_AREA + 1, HOLES_TALL = 8 };

/* The size of the component of the middle of a window whose background has bits set; one beyond `area` may be said to
 * be any other beyond it. */
__device__ static int near_size(const uint32_t (&background)[NEAR_ROWS], int area)
{
    uint32_t found[NEAR_ROWS] = {};
    int size = 1;
    found[NEAR_AREA] = 1u << NEAR_AREA;
    for (int before = 0; size != before && size <= area;) {
        uint32_t above = 0;
        before = size, size = 0;
#pragma unroll
        for (int r = 0; r < NEAR_ROWS; r++) {
            const uint32_t here = found[r], rows = above | here | (r + 1 < NEAR_ROWS ? found[r + 1] : 0);
            above = here;
            found[r] = (rows | rows << 1 | rows >> 1) & background[r];
            size += __popc(found[r]);
        }
    }
    return size;
}

/* A block has HOLES_TALL rows of 32 pixels; the background around them as bits, 16 more columns on either side. */
__global__ void holes_near(float *y, const float *x, int h, int w, int area)
{
    cu_await();
    __shared__ uint32_t bits[HOLES_TALL + 2 * NEAR_AREA][2];
    const int64_t at = (int64_t)blockIdx.z * h * w;
    const int left = blockIdx.x * 32 - 16, top = blockIdx.y * HOLES_TALL - NEAR_AREA;
    for (int i = threadIdx.y; i < 2 * (HOLES_TALL + 2 * NEAR_AREA); i += HOLES_TALL) {
        const int row = top + i / 2, column = left + i % 2 * 32 + (int)threadIdx.x;
        const bool inside = row >= 0 && row < h && column >= 0 && column < w;
        const uint32_t word = __ballot_sync(0xffffffffu, inside && x[at + (int64_t)row * w + column] <= 0);
        if (threadIdx.x == 0) bits[i / 2][i % 2] = word;
    }
    __syncthreads();
    const int px = blockIdx.x * 32 + threadIdx.x, py = blockIdx.y * HOLES_TALL + threadIdx.y;
    if (px >= w || py >= h) return;
    const int64_t p = at + (int64_t)py * w + px;
    uint32_t background[NEAR_ROWS];
#pragma unroll
    for (int r = 0; r < NEAR_ROWS; r++) {
        const uint32_t *row = bits[threadIdx.y + r];
        const uint64_t both = (uint64_t)row[1] << 32 | row[0];
        background[r] = (uint32_t)(both >> (16 - NEAR_AREA + threadIdx.x)) & ((1u << NEAR_ROWS) - 1);
    }
    const bool is_background = background[NEAR_AREA] >> NEAR_AREA & 1;
    y[p] = is_background && near_size(background, area) <= area ? 0.1f : x[p];
}

/* Union-find over the whole map; a background pixel's parent is an index of its component, -1 elsewhere. */
__device__ static int root(const int *parent, int i)
{
    while (parent[i] != i) i = parent[i];
    return i;
}

/* Hooks the larger root under the smaller one: the final roots are the components' smallest indices in any order. */
__device__ static void unite(int *parent, int a, int b)
{
    for (;;) {
        a = root(parent, a), b = root(parent, b);
        if (a == b) return;
        if (a < b) {
            int t = a;
            a = b, b = t;
        }
        int old = atomicMin(&parent[a], b);
        if (old == a) return;
        a = old;
    }
}

__global__ void holes_start(int *parent, int *size, const float *x, int pixels)
{
    cu_await();
    int64_t b = blockIdx.y;
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    parent[b * pixels + p] = x[b * pixels + p] <= 0 ? p : -1;
    size[b * pixels + p] = 0;
}

__global__ void holes_unite(int *parents, int h, int w)
{
    cu_await();
    int *parent = parents + (int64_t)blockIdx.y * h * w;
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= h * w || parent[p] < 0) return;
    int x = p % w, y = p / w;
    if (x > 0 && parent[p - 1] >= 0) unite(parent, p, p - 1);
    if (y == 0) return;
    if (parent[p - w] >= 0) unite(parent, p, p - w);
    if (x > 0 && parent[p - w - 1] >= 0) unite(parent, p, p - w - 1);
    if (x + 1 < w && parent[p - w + 1] >= 0) unite(parent, p, p - w + 1);
}

__global__ void holes_count(int *parents, int *sizes, int pixels)
{
    cu_await();
    int64_t b = blockIdx.y;
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p < pixels && parents[b * pixels + p] >= 0) atomicAdd(&sizes[b * pixels + root(parents + b * pixels, p)], 1);
}

__global__ void holes_fill(float *y, const float *x, const int *parents, const int *sizes, int pixels, int area)
{
    cu_await();
    int64_t b = blockIdx.y, at = b * pixels;
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    bool hole = parents[at + p] >= 0 && sizes[at + root(parents + at, p)] <= area;
    y[at + p] = hole ? 0.1f : x[at + p];
}

void cu_fill_holes(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int area)
{
    if (be->skip) return;
    int pixels = x.h * x.w;
    if (area <= 0) {
        if (y.data != x.data)
            cu_ok(be,
                  cudaMemcpyAsync(y.data, x.data, (size_t)x.n * (size_t)pixels * sizeof(float),
                                  cudaMemcpyDeviceToDevice, cu_stream(be)),
                  "fill_holes");
        return;
    }
    const dim3 grid((unsigned)cu_blocks(pixels, 256), (unsigned)x.n);
    if (area <= NEAR_AREA && y.data != x.data) {
        const dim3 tiles((unsigned)cu_blocks(x.w, 32), (unsigned)cu_blocks(x.h, HOLES_TALL), (unsigned)x.n);
        cu_launch(be, holes_near, tiles, dim3(32, HOLES_TALL), 0, (float *)y.data, (const float *)x.data, x.h, x.w,
                  area);
        CU_LAUNCHED(be, "fill_holes");
        return;
    }
    int *parent = (int *)cu_scratch(be, 2 * (size_t)x.n * (size_t)pixels * sizeof(int));
    int *size = parent + (int64_t)x.n * pixels;
    if (!parent) return;
    cu_launch(be, holes_start, grid, 256, 0, parent, size, (const float *)x.data, pixels);
    cu_launch(be, holes_unite, grid, 256, 0, parent, x.h, x.w);
    cu_launch(be, holes_count, grid, 256, 0, parent, size, pixels);
    cu_launch(be, holes_fill, grid, 256, 0, (float *)y.data, (const float *)x.data, parent, size, pixels, area);
    CU_LAUNCHED(be, "fill_holes");
}

/* ------------------------------------------------------------------ masks at video size */

/* Where the bits of up to GROUP objects go; NULL: nowhere. */
enum { GROUP = 64 };
struct destinations {
    uint8_t *bits[GROUP];
};

/* A warp makes 32 pixels. owner NULL: not wanted; to: objects first .. first+count-1. */
__global__ void video_masks(struct destinations to, int first, int count, size_t stride, uint16_t *owner,
                            const float *low, int n, int h, int w, int height, int width, bool exclusive)
{
    cu_await();
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (y >= height) return;
    const bool inside = x < width;
    const int byte = blockIdx.x * 4 + threadIdx.x;
    const bool writes = threadIdx.x < 4 && byte < (width + 7) / 8;
    const struct cu_tap ty = cu_bilinear_tap(h, height, y), tx = cu_bilinear_tap(w, width, inside ? x : 0);
    int best = -1;
    float most = 0;
    if (owner || exclusive)
        for (int i = 0; i < n; i++) {
            float v = cu_bilinear_at(low + (int64_t)i * h * w, w, ty, tx);
            if (i == 0 || v > most) most = v, best = i;
        }
    if (most <= 0) best = -1;
    if (owner && inside) owner[(int64_t)y * width + x] = (uint16_t)(best + 1);
    for (int i = 0; i < count; i++) {
        if (!to.bits[i]) continue;
        const bool set =
            exclusive ? best == first + i : cu_bilinear_at(low + (int64_t)(first + i) * h * w, w, ty, tx) > 0;
        const uint32_t word = __brev(__ballot_sync(0xffffffffu, inside && set)); /* the first pixel on top */
        if (writes) to.bits[i][(size_t)y * stride + byte] = (uint8_t)(word >> (24 - 8 * threadIdx.x));
    }
}

void cu_video_masks(struct s2_backend *be, const struct s2_video_masks *out, struct s2_tensor low)
{
    if (be->skip) return;
    const dim3 grid((unsigned)cu_blocks(out->width, 32), (unsigned)cu_blocks(out->height, 8));
    const int n = out->bits ? low.n : 1; /* owners come from all objects at once */
    for (int first = 0; first < n; first += GROUP) {
        const int count = n - first < GROUP ? n - first : GROUP;
        struct destinations to = {};
        for (int i = 0; out->bits && i < count; i++) to.bits[i] = out->bits[first + i];
        cu_launch(be, video_masks, grid, dim3(32, 8), 0, to, first, out->bits ? count : 0, out->bit_stride,
                  first == 0 ? out->owner : NULL, (const float *)low.data, low.n, low.h, low.w, out->height, out->width,
                  out->exclusive);
        if (!CU_LAUNCHED(be, "video_masks")) return;
    }
}

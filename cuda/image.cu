/* image.cu - a decoded frame becomes the model's input: Pillow's 8-bit bicubic in its own integer arithmetic, then the
 * normalised levels (spec of both in engine/common.h). */
#include <cstdlib>
#include <cstring>

#include "cu.cuh"

extern "C" {
#include "../engine/common.h"
}

/* Tables of one frame size, device memory: [first, count, coef] across, the same down, then the 3 x 256 levels. */
struct axis {
    const int32_t *first, *count, *coef;
    int in, out, taps; /* taps 0: the size stays */
};

static size_t axis_cells(int in, int out) { return in == out ? 0 : (size_t)out * (size_t)(s2i_bicubic_taps(in, out) + 2); }

static void fill(int32_t *at, int in, int out)
{
    if (in != out) s2i_bicubic_table(in, out, at, at + out, at + 2 * out);
}

static struct axis view(const int32_t *at, int in, int out)
{
    struct axis a = {NULL, NULL, NULL, in, out, 0};
    if (in != out) a.first = at, a.count = at + out, a.coef = at + 2 * out, a.taps = s2i_bicubic_taps(in, out);
    return a;
}

static bool make_tables(struct s2_backend *be, int width, int height, int side)
{
    struct cu_backend *cu = cu_of(be);
    if (cu->axis && cu->axis_width == width && cu->axis_height == height && cu->axis_side == side) return true;
    size_t across = axis_cells(width, side), cells = across + axis_cells(height, side) + 768;
    int32_t *host = (int32_t *)malloc(cells * sizeof *host);
    if (!host) {
        s2_backend_fail(be, S2_E_DEVICE, "out of memory for the resampling tables");
        return false;
    }
    be->ops->sync(be);
    cu_programs_stale(cu);
    be->ops->free(be, cu->axis);
    cu->axis = be->ops->alloc(be, cells * sizeof *host);
    fill(host, width, side);
    fill(host + across, height, side);
    s2i_normalised_levels((float(*)[256])(host + cells - 768));
    if (cu->axis) be->ops->upload(be, cu->axis, host, cells * sizeof *host);
    be->ops->sync(be);
    free(host);
    cu->axis_width = width, cu->axis_height = height, cu->axis_side = side;
    return !be->skip;
}

/* Room for a frame on the device and in the host memory it travels from. */
static bool make_room(struct s2_backend *be, struct cu_staging *s, size_t bytes)
{
    struct cu_backend *cu = cu_of(be);
    if (bytes > cu->frame_size) {
        be->ops->sync(be);
        cu_programs_stale(cu);
        be->ops->free(be, cu->frame);
        cu->frame = (uint8_t *)be->ops->alloc(be, bytes);
        cu->frame_size = cu->frame ? bytes : 0;
    }
    if (bytes > s->size) {
        if (s->pixels) be->ops->free_host(be, s->pixels);
        s->pixels = (uint8_t *)be->ops->alloc_host(be, bytes);
        s->size = s->pixels ? bytes : 0;
    }
    if (!s->sent) cu_ok(be, cudaEventCreateWithFlags(&s->sent, cudaEventDisableTiming), "creating an event");
    return !be->skip;
}

void cu_stage_image(struct s2_backend *be, const struct s2_image *f)
{
    struct cu_backend *cu = cu_of(be);
    struct cu_staging *s = &cu->staging[cu->staged++ % CU_STAGINGS];
    const size_t row = 3 * (size_t)f->width, bytes = row * (size_t)f->height;
    if (be->skip || (s->sent && !cu_ok(be, cudaEventSynchronize(s->sent), "uploading a frame"))) return;
    if (!make_room(be, s, bytes)) return;
    for (int y = 0; y < f->height; y++) memcpy(s->pixels + (size_t)y * row, f->rgb + (size_t)y * f->stride, row);
    cu_ok(be, cudaMemcpyAsync(cu->frame, s->pixels, bytes, cudaMemcpyHostToDevice, cu->stream), "uploading a frame");
    cu_ok(be, cudaEventRecord(s->sent, cu->stream), "uploading a frame");
}

void cu_staging_free(struct cu_backend *cu)
{
    for (int i = 0; i < CU_STAGINGS; i++) {
        if (cu->staging[i].pixels) cudaFreeHost(cu->staging[i].pixels);
        if (cu->staging[i].sent) cudaEventDestroy(cu->staging[i].sent);
    }
}

__device__ static uint8_t clip(int32_t sum)
{
    int32_t v = sum >> S2I_BICUBIC_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* dst [height][a.out][3] */
__global__ void across(uint8_t *dst, const uint8_t *src, struct axis a, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= a.out || y >= height) return;
    const uint8_t *from = src + ((int64_t)y * a.in + a.first[x]) * 3;
    const int32_t *coef = a.coef + (int64_t)x * a.taps;
    int32_t r = 1 << (S2I_BICUBIC_BITS - 1), g = r, b = r;
    for (int j = 0; j < a.count[x]; j++) r += from[3 * j] * coef[j], g += from[3 * j + 1] * coef[j], b += from[3 * j + 2] * coef[j];
    uint8_t *to = dst + ((int64_t)y * a.out + x) * 3;
    to[0] = clip(r), to[1] = clip(g), to[2] = clip(b);
}

/* dst [a.out][row bytes] */
__global__ void down(uint8_t *dst, const uint8_t *src, struct axis a, int row)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= row) return;
    const uint8_t *from = src + (int64_t)a.first[y] * row + x;
    const int32_t *coef = a.coef + (int64_t)y * a.taps;
    int32_t sum = 1 << (S2I_BICUBIC_BITS - 1);
    for (int j = 0; j < a.count[y]; j++) sum += from[(int64_t)j * row] * coef[j];
    dst[(int64_t)y * row + x] = clip(sum);
}

template <class T> __global__ void normalise(T *y, const uint8_t *x, const float *level, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = cu_to<T>(level[(i % 3) * 256 + x[i]]);
}

void cu_preprocess(struct s2_backend *be, struct s2_tensor y, const struct s2_image *f)
{
    struct cu_backend *cu = cu_of(be);
    int side = y.w, w = f->width, h = f->height;
    if (be->skip || !make_tables(be, w, h, side)) return;
    const int32_t *tables = (const int32_t *)cu->axis;
    struct axis ax = view(tables, w, side), ay = view(tables + axis_cells(w, side), h, side);
    const float *level = (const float *)(tables + axis_cells(w, side) + axis_cells(h, side));
    bool down_first = s2i_bicubic_vertical_first(w, h, side);
    size_t mid = 3 * (size_t)side * (size_t)(down_first ? w : h), whole = 3 * (size_t)side * (size_t)side;
    uint8_t *first = (uint8_t *)cu_scratch(be, mid + whole), *second = first + mid;
    const uint8_t *p = cu->frame;
    if (!first) return;

    for (int pass = 0; pass < 2; pass++) {
        bool vertical = (pass == 0) == down_first;
        uint8_t *to = pass == 0 ? first : second;
        struct axis a = vertical ? ay : ax;
        int row = 3 * (vertical ? (pass == 0 ? w : side) : 0), rows = pass == 0 ? h : side;
        if (a.taps == 0) continue;
        if (vertical) down<<<dim3(cu_blocks(row, 256), (unsigned)side), 256, 0, cu->stream>>>(to, p, a, row);
        else across<<<dim3(cu_blocks(side, 128), (unsigned)rows), 128, 0, cu->stream>>>(to, p, a, rows);
        if (!CU_LAUNCHED(be, "preprocess")) return;
        p = to;
    }
    int64_t n = 3 * (int64_t)side * side;
    CU_BY_TYPE(y.dtype, T, normalise<T><<<cu_blocks(n, 256), 256, 0, cu->stream>>>((T *)y.data, p, level, n));
    CU_LAUNCHED(be, "preprocess");
}

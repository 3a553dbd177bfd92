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

/* Rows of a picture on the host, and where they lie, packed, behind cu->frame. */
struct part {
    const uint8_t *from;
    size_t stride, row, rows, at;
};

/* Returns how many. RGB is at 0; planes are behind the room for it. */
static int parts_of(const struct s2_image *f, struct part part[3])
{
    const struct s2_yuv *p = f->yuv;
    const size_t w = (size_t)f->width, h = (size_t)f->height, luma = 3 * w * h, chroma = luma + w * h;
    if (!p) {
        part[0] = {f->rgb, f->stride, 3 * w, h, 0};
        return 1;
    }
    part[0] = {p->y, p->y_stride, w, h, luma};
    if (p->chroma_step == 2) {
        part[1] = {p->u, p->chroma_stride, w, h / 2, chroma};
        return 2;
    }
    part[1] = {p->u, p->chroma_stride, w / 2, h / 2, chroma};
    part[2] = {p->v, p->chroma_stride, w / 2, h / 2, chroma + w / 2 * (h / 2)};
    return 3;
}

/* The two samples of one axis beside a pixel, and the weight of the second in quarters: yuv.c. */
struct tap {
    int first, second, weight;
};

__device__ static struct tap tap_of(int pixel, int offset, int samples)
{
    int quarters = 2 * pixel - offset;
    if (samples < 4) quarters = (quarters + 2) & ~3;
    int i = quarters >> 2;
    return {max(0, min(i, samples - 1)), max(0, min(i + 1, samples - 1)), quarters & 3};
}

__device__ static int chroma_at(const uint8_t *plane, int64_t stride, int step, struct tap x, struct tap y)
{
    const uint8_t *top = plane + y.first * stride, *bottom = plane + y.second * stride;
    int a = x.first * step, b = x.second * step;
    int above = (4 - x.weight) * top[a] + x.weight * top[b], below = (4 - x.weight) * bottom[a] + x.weight * bottom[b];
    return 32 * ((4 - y.weight) * above + y.weight * below) - (1 << 16);
}

__device__ static uint8_t level_of(uint32_t sum) { return (uint8_t)max(0, min((int32_t)sum >> 22, 255)); }

/* dst [height][width][3]; the planes of p are device memory */
__global__ void planes_to_rgb(uint8_t *dst, struct s2_yuv p, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    struct tap across = tap_of(x, p.chroma_x, width / 2), down = tap_of(y, p.chroma_y, height / 2);
    int u = chroma_at(p.u, (int64_t)p.chroma_stride, p.chroma_step, across, down);
    int v = chroma_at(p.v, (int64_t)p.chroma_stride, p.chroma_step, across, down);
    uint32_t grey = (uint32_t)((512 * p.y[(int64_t)y * (int64_t)p.y_stride + x] - p.black) * p.gain) + (1u << 21);
    uint8_t *to = dst + ((int64_t)y * width + x) * 3;
    to[0] = level_of(grey + (uint32_t)(v * p.v_to_r));
    to[1] = level_of(grey + (uint32_t)(v * p.v_to_g) + (uint32_t)(u * p.u_to_g));
    to[2] = level_of(grey + (uint32_t)(u * p.u_to_b));
}

/* Behind the copies and before any program, so that one recording serves pictures of both kinds. */
static void convert(struct s2_backend *be, const struct s2_image *f, const struct part *part, int parts)
{
    struct cu_backend *cu = cu_of(be);
    struct s2_yuv p = *f->yuv;
    p.y = cu->frame + part[0].at, p.u = cu->frame + part[1].at, p.v = parts == 3 ? cu->frame + part[2].at : p.u + 1;
    p.y_stride = part[0].row, p.chroma_stride = part[1].row;
    planes_to_rgb<<<dim3(cu_blocks(f->width, 128), (unsigned)f->height), 128, 0, cu->now->stream>>>(cu->frame, p, f->width, f->height);
    CU_LAUNCHED(be, "a frame's colours");
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

/* Packed at `to` as it will lie on the device from the first part on; returns the bytes. */
static size_t gather(uint8_t *to, const struct part *part, int parts)
{
    for (int i = 0; i < parts; i++) {
        uint8_t *at = to + (part[i].at - part[0].at);
        for (size_t y = 0; y < part[i].rows; y++) memcpy(at + y * part[i].row, part[i].from + y * part[i].stride, part[i].row);
    }
    const struct part *last = &part[parts - 1];
    return last->at + last->row * last->rows - part[0].at;
}

void cu_stage_image(struct s2_backend *be, const struct s2_image *f)
{
    struct cu_backend *cu = cu_of(be);
    struct cu_staging *s = &cu->staging[cu->staged++ % CU_STAGINGS];
    struct part part[3];
    const int parts = parts_of(f, part);
    const size_t room = 9 * (size_t)f->width * (size_t)f->height / 2; /* RGB, and planes behind it */
    if (be->skip || (s->sent && !cu_ok(be, cudaEventSynchronize(s->sent), "uploading a frame"))) return;
    if (!make_room(be, s, room)) return;
    const size_t bytes = gather(s->pixels, part, parts);
    cu_ok(be, cudaMemcpyAsync(cu->frame + part[0].at, s->pixels, bytes, cudaMemcpyHostToDevice, cu->now->stream), "uploading a frame");
    cu_ok(be, cudaEventRecord(s->sent, cu->now->stream), "uploading a frame");
    if (f->yuv && !be->skip) convert(be, f, part, parts);
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
        if (vertical) down<<<dim3(cu_blocks(row, 256), (unsigned)side), 256, 0, cu->now->stream>>>(to, p, a, row);
        else across<<<dim3(cu_blocks(side, 128), (unsigned)rows), 128, 0, cu->now->stream>>>(to, p, a, rows);
        if (!CU_LAUNCHED(be, "preprocess")) return;
        p = to;
    }
    int64_t n = 3 * (int64_t)side * side;
    CU_BY_TYPE(y.dtype, T, normalise<T><<<cu_blocks(n, 256), 256, 0, cu->now->stream>>>((T *)y.data, p, level, n));
    CU_LAUNCHED(be, "preprocess");
}

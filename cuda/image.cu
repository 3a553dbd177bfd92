/* image.cu - a decoded frame becomes the model's input: 4:2:0 planes made RGB (yuv.c has the arithmetic), Pillow's
 * 8-bit bicubic in its own integer arithmetic, then the normalised levels (spec of both in engine/common.h); all in one
 * kernel. */
#include <cstdlib>
#include <cstring>

#include "launch.cuh"

extern "C" {
#include "../engine/common.h"
}

/* ------------------------------------------------------------------ tables */

/* Of one axis, device memory: [first, count, coef]. taps 1: the size stays, each sample is its own. */
struct axis {
    const int32_t *first, *count, *coef;
    int in, out, taps;
};

static int taps_of(int in, int out)
{
    return in == out ? 1 : s2i_bicubic_taps(in, out);
}

static size_t axis_cells(int in, int out)
{
    return (size_t)out * (size_t)(taps_of(in, out) + 2);
}

static void fill(int32_t *at, int in, int out)
{
    if (in != out) {
        s2i_bicubic_table(in, out, at, at + out, at + 2 * out);
        return;
    }
    for (int i = 0; i < out; i++) at[i] = i, at[out + i] = 1, at[2 * out + i] = 1 << S2I_BICUBIC_BITS;
}

static struct axis view(const int32_t *at, int in, int out)
{
    return {at, at + out, at + 2 * out, in, out, taps_of(in, out)};
}

/* Those of one frame size: across, down, then the 3 x 256 levels. */
static bool make_tables(struct s2_backend *be, int width, int height, int side)
{
    struct cu_backend *cu = cu_of(be);
    if (cu->axis && cu->axis_width == width && cu->axis_height == height && cu->axis_side == side) return true;
    const size_t across = axis_cells(width, side), cells = across + axis_cells(height, side) + 768;
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

/* ------------------------------------------------------------------ staging */

/* In front of the pixels on the device, so that one recording serves pictures of both kinds. */
struct head {
    const uint8_t *rgb; /* [height][width][3], or NULL: */
    struct s2_yuv yuv;  /* with planes in device memory */
};
enum { HEAD_ROOM = 256 };

/* Rows of a picture on the host, and where they lie packed behind the head. */
struct part {
    const uint8_t *from;
    size_t stride, row, rows, at;
};

/* Returns how many. */
static int parts_of(const struct s2_image *f, struct part part[3])
{
    const struct s2_yuv *p = f->yuv;
    const size_t w = (size_t)f->width, h = (size_t)f->height, chroma = HEAD_ROOM + w * h;
    if (!p) {
        part[0] = {f->rgb, f->stride, 3 * w, h, HEAD_ROOM};
        return 1;
    }
    part[0] = {p->y, p->y_stride, w, h, HEAD_ROOM};
    if (p->chroma_step == 2) {
        part[1] = {p->u, p->chroma_stride, w, h / 2, chroma};
        return 2;
    }
    part[1] = {p->u, p->chroma_stride, w / 2, h / 2, chroma};
    part[2] = {p->v, p->chroma_stride, w / 2, h / 2, chroma + w / 2 * (h / 2)};
    return 3;
}

static struct head head_of(const struct s2_image *f, const struct part *part, int parts, const uint8_t *frame)
{
    if (!f->yuv) return {frame + part[0].at, {}};
    struct head h = {NULL, *f->yuv};
    h.yuv.y = frame + part[0].at, h.yuv.u = frame + part[1].at;
    h.yuv.v = parts == 3 ? frame + part[2].at : h.yuv.u + 1;
    h.yuv.y_stride = part[0].row, h.yuv.chroma_stride = part[1].row;
    return h;
}

/* From one staged picture to the next, device memory */
static size_t distance(const struct s2_image *f)
{
    return cu_rounded(HEAD_ROOM + 3 * (size_t)f->width * (size_t)f->height);
}

static bool device_room(struct s2_backend *be, size_t bytes)
{
    struct cu_backend *cu = cu_of(be);
    if (bytes <= cu->frame_size) return true;
    be->ops->sync(be);
    cu_programs_stale(cu);
    be->ops->free(be, cu->frame);
    cu->frame = (uint8_t *)be->ops->alloc(be, bytes);
    cu->frame_size = cu->frame ? bytes : 0;
    return !be->skip;
}

/* Room in the host memory that a picture travels from. */
static bool host_room(struct s2_backend *be, struct cu_staging *s, size_t bytes)
{
    if (bytes > s->size) {
        if (s->pixels) be->ops->free_host(be, s->pixels);
        s->pixels = (uint8_t *)be->ops->alloc_host(be, bytes);
        s->size = s->pixels ? bytes : 0;
    }
    if (!s->sent) cu_ok(be, cudaEventCreateWithFlags(&s->sent, cudaEventDisableTiming), "creating an event");
    return !be->skip;
}

/* Packed as it will lie on the device; returns the bytes. */
static size_t gather(uint8_t *to, const struct part *part, int parts)
{
    for (int i = 0; i < parts; i++) {
        uint8_t *at = to + part[i].at;
        for (size_t y = 0; y < part[i].rows; y++)
            memcpy(at + y * part[i].row, part[i].from + y * part[i].stride, part[i].row);
    }
    const struct part *last = &part[parts - 1];
    return last->at + last->row * last->rows;
}

/* Whether all of it is page-locked, so that the device takes it from where it is. */
static bool is_reached(const struct part *part, int parts)
{
    for (int i = 0; i < parts; i++) {
        cudaPointerAttributes a = {};
        if (cudaPointerGetAttributes(&a, part[i].from) != cudaSuccess || a.type != cudaMemoryTypeHost) {
            cudaGetLastError();
            return false;
        }
    }
    return true;
}

static void send(struct s2_backend *be, const struct part *p, uint8_t *to)
{
    cu_ok(be,
          p->stride == p->row ? cudaMemcpyAsync(to, p->from, p->row * p->rows, cudaMemcpyHostToDevice, cu_stream(be))
                              : cudaMemcpy2DAsync(to, p->row, p->from, p->stride, p->row, p->rows,
                                                  cudaMemcpyHostToDevice, cu_stream(be)),
          "uploading a frame");
}

static void stage(struct s2_backend *be, const struct s2_image *f, uint8_t *to)
{
    struct cu_backend *cu = cu_of(be);
    struct cu_staging *s = &cu->staging[cu->staged++ % CU_STAGINGS];
    struct part part[3];
    const int parts = parts_of(f, part);
    const bool reached = is_reached(part, parts);
    if (be->skip || (s->sent && !cu_ok(be, cudaEventSynchronize(s->sent), "uploading a frame"))) return;
    if (!host_room(be, s, reached ? HEAD_ROOM : distance(f))) return;
    const struct head head = head_of(f, part, parts, to);
    static_assert(sizeof head <= HEAD_ROOM, "pixels lie behind the head");
    memcpy(s->pixels, &head, sizeof head);
    const size_t bytes = reached ? sizeof head : gather(s->pixels, part, parts);
    cu_ok(be, cudaMemcpyAsync(to, s->pixels, bytes, cudaMemcpyHostToDevice, cu_stream(be)), "uploading a frame");
    cu_ok(be, cudaEventRecord(s->sent, cu_stream(be)), "uploading a frame");
    for (int i = 0; reached && i < parts; i++) send(be, &part[i], to + part[i].at);
}

void cu_stage_images(struct s2_backend *be, int n, const struct s2_image *frame)
{
    const size_t apart = distance(frame);
    if (!device_room(be, (size_t)n * apart)) return;
    for (int i = 0; i < n; i++) stage(be, frame + i, cu_of(be)->frame + (size_t)i * apart);
}

void cu_staging_free(struct cu_backend *cu)
{
    for (int i = 0; i < CU_STAGINGS; i++) {
        if (cu->staging[i].pixels) cudaFreeHost(cu->staging[i].pixels);
        if (cu->staging[i].sent) cudaEventDestroy(cu->staging[i].sent);
    }
}

/* ------------------------------------------------------------------ pixels */

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

__device__ static uint8_t level_of(uint32_t sum)
{
    return (uint8_t)max(0, min((int32_t)sum >> 22, 255));
}

__device__ static uchar3 pixel_at(const struct head *f, int x, int y, int width, int height)
{
    if (f->rgb) {
        const uint8_t *p = f->rgb + ((int64_t)y * width + x) * 3;
        return make_uchar3(p[0], p[1], p[2]);
    }
    const struct s2_yuv &p = f->yuv;
    const struct tap across = tap_of(x, p.chroma_x, width / 2), down = tap_of(y, p.chroma_y, height / 2);
    const int u = chroma_at(p.u, (int64_t)p.chroma_stride, p.chroma_step, across, down);
    const int v = chroma_at(p.v, (int64_t)p.chroma_stride, p.chroma_step, across, down);
    const uint32_t grey = (uint32_t)((512 * p.y[(int64_t)y * (int64_t)p.y_stride + x] - p.black) * p.gain) + (1u << 21);
    return make_uchar3(level_of(grey + (uint32_t)(v * p.v_to_r)),
                       level_of(grey + (uint32_t)(v * p.v_to_g) + (uint32_t)(u * p.u_to_g)),
                       level_of(grey + (uint32_t)(u * p.u_to_b)));
}

/* ------------------------------------------------------------------ resampling */

__device__ static uint8_t clip(int32_t sum)
{
    return (uint8_t)max(0, min(sum >> S2I_BICUBIC_BITS, 255));
}

/* The output at `count` samples of 3 bytes, `step` bytes apart */
__device__ static uchar3 resampled(const uint8_t *from, int step, const int32_t *coef, int count)
{
    int32_t r = 1 << (S2I_BICUBIC_BITS - 1), g = r, b = r;
    for (int j = 0; j < count; j++, from += step)
        r += from[0] * coef[j], g += from[1] * coef[j], b += from[2] * coef[j];
    return make_uchar3(clip(r), clip(g), clip(b));
}

/* What a block makes, and its shared memory: [lines] source lines resampled along, `wide` pixels each, and [chunk]
 * lines of `segment` source pixels. */
struct tiling {
    int wide, tall, lines, chunk, segment;
};
enum { ACROSS = 64, DOWN = 4 }; /* threads */

static size_t shared_bytes(const struct tiling &t)
{
    return 3 * ((size_t)t.lines * (size_t)t.wide + (size_t)t.chunk * (size_t)t.segment);
}

static struct tiling make_tiling(const struct axis &along, const struct axis &lines)
{
    struct tiling t = {ACROSS, 16, 0, 0, 0};
    for (;;) {
        t.lines = (int)((int64_t)t.tall * lines.in / lines.out) + lines.taps + 2;
        t.segment = (int)((int64_t)t.wide * along.in / along.out) + along.taps + 2;
        t.chunk = max(1, min(t.lines, (16 << 10) / (3 * t.segment)));
        if (shared_bytes(t) <= 48 << 10 || (t.tall == 1 && t.wide == 1)) return t;
        if (t.tall > 1)
            t.tall /= 2;
        else
            t.wide /= 2;
    }
}

/* The first pass goes along lines, the second from line to line: lines are rows, or columns if DOWN_FIRST. y
 * [n][S][S][3], frames `apart` bytes from each other */
template <class T, bool DOWN_FIRST>
__global__ void resample(T *y, const uint8_t *frames, size_t apart, struct axis along, struct axis lines,
                         const float *level, struct tiling t)
{
    cu_await();
    extern __shared__ uint8_t resample_memory[];
    const struct head *frame = (const struct head *)(frames + blockIdx.z * apart);
    y += (int64_t)blockIdx.z * along.out * lines.out * 3;
    uint8_t *middle = resample_memory, *source = middle + 3 * t.lines * t.wide;
    const int a0 = blockIdx.x * t.wide, l0 = blockIdx.y * t.tall, na = min(t.wide, along.out - a0),
              nl = min(t.tall, lines.out - l0);
    const int first = along.first[a0], segment = along.first[a0 + na - 1] + along.count[a0 + na - 1] - first;
    const int begin = lines.first[l0], end = lines.first[l0 + nl - 1] + lines.count[l0 + nl - 1];
    const int width = DOWN_FIRST ? lines.in : along.in, height = DOWN_FIRST ? along.in : lines.in;

    for (int at = begin; at < end; at += t.chunk) {
        const int n = min(t.chunk, end - at);
        for (int l = threadIdx.y; l < n; l += DOWN)
            for (int i = threadIdx.x; i < segment; i += ACROSS) {
                const int x = DOWN_FIRST ? at + l : first + i, row = DOWN_FIRST ? first + i : at + l;
                *(uchar3 *)(source + 3 * (l * t.segment + i)) = pixel_at(frame, x, row, width, height);
            }
        __syncthreads();
        for (int l = threadIdx.y; l < n; l += DOWN)
            for (int i = threadIdx.x; i < na; i += ACROSS)
                *(uchar3 *)(middle + 3 * ((at - begin + l) * t.wide + i)) =
                    resampled(source + 3 * (l * t.segment + along.first[a0 + i] - first), 3,
                              along.coef + (int64_t)(a0 + i) * along.taps, along.count[a0 + i]);
        __syncthreads();
    }
    for (int l = threadIdx.y; l < nl; l += DOWN)
        for (int i = threadIdx.x; i < na; i += ACROSS) {
            const int line = l0 + l;
            const uchar3 v = resampled(middle + 3 * ((lines.first[line] - begin) * t.wide + i), 3 * t.wide,
                                       lines.coef + (int64_t)line * lines.taps, lines.count[line]);
            T *to = y + 3 * (DOWN_FIRST ? (int64_t)(a0 + i) * lines.out + line : (int64_t)line * along.out + a0 + i);
            to[0] = cu_to<T>(level[v.x]), to[1] = cu_to<T>(level[256 + v.y]), to[2] = cu_to<T>(level[512 + v.z]);
        }
}

void cu_preprocess(struct s2_backend *be, struct s2_tensor y, const struct s2_image *f)
{
    struct cu_backend *cu = cu_of(be);
    const int side = y.w, w = f->width, h = f->height;
    if (be->skip || !make_tables(be, w, h, side)) return;
    const int32_t *tables = (const int32_t *)cu->axis;
    const struct axis across = view(tables, w, side), down = view(tables + axis_cells(w, side), h, side);
    const float *level = (const float *)(tables + axis_cells(w, side) + axis_cells(h, side));
    const bool down_first = s2i_bicubic_vertical_first(w, h, side);
    const struct axis &along = down_first ? down : across, &lines = down_first ? across : down;
    const struct tiling t = make_tiling(along, lines);
    const dim3 grid((unsigned)cu_blocks(side, t.wide), (unsigned)cu_blocks(side, t.tall), (unsigned)y.n),
        block(ACROSS, DOWN);
    CU_BY_TYPE(y.dtype, T, {
        auto kernel = down_first ? resample<T, true> : resample<T, false>;
        cu_launch(be, kernel, grid, block, shared_bytes(t), (T *)y.data, cu->frame, distance(f), along, lines, level,
                  t);
    });
    CU_LAUNCHED(be, "preprocess");
}

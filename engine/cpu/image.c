/* image.c - a frame becomes the network's input: Pillow's 8-bit bicubic, then normalised levels. */
#include "cpu.h"

#include <string.h>

static size_t axis_size(int in, int out)
{
    return in == out ? 0 : (size_t)out * (size_t)(s2i_bicubic_taps(in, out) + 2) * sizeof(int32_t);
}

static struct cpu_axis axis_make(int in, int out, void *memory)
{
    struct cpu_axis a = {.in = in, .out = out};
    if (in == out) return a;
    a.taps = s2i_bicubic_taps(in, out);
    a.first = memory;
    a.count = a.first + out;
    a.coef = a.count + out;
    s2i_bicubic_table(in, out, a.first, a.count, a.coef);
    return a;
}

/* A picture on its way, rows `pitch` bytes apart. */
struct picture {
    const uint8_t *rgb;
    ptrdiff_t pitch;
    int width, height;
};

static struct picture pass_across(struct cpu_backend *cpu, struct picture p, const struct cpu_axis *a, uint8_t *to)
{
    const ptrdiff_t pitch = (ptrdiff_t)a->out * 3;
    if (!a->taps) return p;
    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int row = 0; row < p.height; row += 4)
        cpu->kern->resample_across(to + row * pitch, pitch, p.rgb + row * p.pitch, p.pitch, cpu_min(p.height - row, 4),
                                   a);
    return (struct picture){to, pitch, a->out, p.height};
}

static struct picture pass_down(struct cpu_backend *cpu, struct picture p, const struct cpu_axis *a, uint8_t *to)
{
    if (!a->taps) return p;
    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int row = 0; row < a->out; row++)
        cpu->kern->resample_down(to + (ptrdiff_t)row * p.width * 3, p.rgb, p.pitch, p.width * 3, a, row);
    return (struct picture){to, (ptrdiff_t)p.width * 3, p.width, a->out};
}

static struct picture picture_of_planes(struct cpu_backend *cpu, struct picture p, const struct s2_yuv *yuv,
                                        uint8_t *to)
{
    const ptrdiff_t pitch = (ptrdiff_t)p.width * 3;
    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int row = 0; row < p.height; row++) s2_yuv_row(yuv, p.width, p.height, row, to + row * pitch);
    return (struct picture){to, pitch, p.width, p.height};
}

static void preprocess(struct s2_backend *be, struct s2_tensor y, const struct s2_image *frame)
{
    struct cpu_backend *cpu = cpu_of(be);
    const int size = y.w, width = frame->width, height = frame->height;
    const size_t across_size = axis_size(width, size), down_size = axis_size(height, size);
    const bool down_first = s2i_bicubic_vertical_first(width, height, size);
    const size_t half = 3 * (size_t)size * (size_t)(down_first ? width : height),
                 whole = 3 * (size_t)size * (size_t)size, rgb = frame->yuv ? 3 * (size_t)width * (size_t)height : 0;
    if (!cpu_scratch(cpu, across_size + down_size + half + whole + rgb, 0)) return;
    char *memory = cpu_shared(cpu);
    const struct cpu_axis across = axis_make(width, size, memory), down = axis_make(height, size, memory + across_size);
    uint8_t *first = (uint8_t *)memory + across_size + down_size, *second = first + half;

    struct picture p = {frame->rgb, (ptrdiff_t)frame->stride, width, height};
    if (frame->yuv) p = picture_of_planes(cpu, p, frame->yuv, second + whole);
    if (down_first)
        p = pass_across(cpu, pass_down(cpu, p, &down, first), &across, second);
    else
        p = pass_down(cpu, pass_across(cpu, p, &across, first), &down, second);

    float level[3][256];
    s2i_normalised_levels(level);
    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int row = 0; row < size; row++) {
        const uint8_t *from = p.rgb + row * p.pitch;
        float *to = cpu_token(y, (int64_t)row * size);
        for (int i = 0; i < 3 * size; i += 3)
            for (int c = 0; c < 3; c++) to[i + c] = level[c][from[i + c]];
    }
}

void cpu_preprocess(struct s2_backend *be, struct s2_tensor y, const struct s2_image *frame)
{
    for (int i = 0; !be->skip && i < y.n; i++) preprocess(be, s2_batch(y, i, 1), frame + i);
}

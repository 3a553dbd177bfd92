/* masks.c - prompts in, masks out. */
#include "cpu.h"

#include <math.h>
#include <string.h>

void cpu_point_tokens(struct s2_backend *be, struct s2_tensor y, const float *points, const float *gauss,
                      const float *embed, int size)
{
    if (be->skip) return;
    const int half = y.c / 2;
    for (int64_t i = 0; i < s2_tokens(y); i++) {
        const float *p = points + i * 3;
        const int label = (int)p[2];
        float *to = cpu_token(y, i);
        if (label == -1) {
            memcpy(to, embed + 4 * y.c, (size_t)y.c * sizeof *to);
            continue;
        }
        const float u = 2 * ((p[0] + 0.5f) / (float)size) - 1, v = 2 * ((p[1] + 0.5f) / (float)size) - 1;
        for (int c = 0; c < half; c++) {
            const float z = (float)(2 * M_PI) * (u * gauss[c] + v * gauss[half + c]);
            to[c] = sinf(z) + embed[label * y.c + c];
            to[half + c] = cosf(z) + embed[label * y.c + half + c];
        }
    }
}

void cpu_mask_logits(struct s2_backend *be, struct s2_tensor y, struct s2_tensor hyper, struct s2_tensor u)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const struct cpu_kern *kern = cpu->kern;
    const int map = u.h * u.w, c = u.c, k = hyper.w, step = CPU_KEYS, pieces = (map + step - 1) / step;
    if (!cpu_scratch(cpu, 0, kern->keys_size(step, c) * sizeof(float))) return;
    CPU_PARALLEL_FOR(cpu, (int64_t)u.n * map * c / 4)
    for (int piece = 0; piece < u.n * pieces; piece++) {
        const int n = piece / pieces, first = piece % pieces * step, count = cpu_min(map - first, step);
        float *pixels = cpu_local(cpu);
        kern->pack(pixels, cpu_token(u, (int64_t)n * map + first), c, count, 1, u.ld);
        const struct cpu_product logits = {.m = k,
                                           .n = count,
                                           .k = c,
                                           .a = cpu_token(hyper, (int64_t)n * k),
                                           .lda = hyper.ld,
                                           .b = pixels,
                                           .panel_stride = (ptrdiff_t)kern->panel * c,
                                           .c = (float *)y.data + (int64_t)n * k * map + first,
                                           .ldc = map};
        kern->product(&logits);
    }
}

static int best_of_three(const float *iou)
{
    int best = 1;
    for (int i = 2; i < 4; i++)
        if (iou[i] > iou[best]) best = i;
    return best;
}

static bool is_stable(const float *mask, int count)
{
    int inner = 0, outer = 0;
    for (int i = 0; i < count; i++) {
        inner += mask[i] > 0.05f;
        outer += mask[i] > -0.05f;
    }
    return outer == 0 || (float)inner / (float)outer >= 0.98f;
}

void cpu_choose(struct s2_backend *be, struct s2_tensor low, struct s2_tensor token, struct s2_tensor best_iou,
                struct s2_tensor masks, struct s2_tensor iou, struct s2_tensor score, struct s2_tensor tokens,
                int first, bool multimask)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int pixels = masks.w;
    CPU_PARALLEL_FOR(cpu, (int64_t)masks.n * pixels)
    for (int n = 0; n < masks.n; n++) {
        const float *mask = (const float *)masks.data + (int64_t)n * 4 * pixels;
        const float *quality = (const float *)iou.data + n * 4;
        const int best = !multimask && is_stable(mask, pixels) ? 0 : best_of_three(quality);
        float *to = (float *)low.data + (int64_t)n * pixels;
        if (((const float *)score.data)[n] <= 0)
            for (int i = 0; i < pixels; i++) to[i] = -1024;
        else
            memcpy(to, mask + (int64_t)best * pixels, (size_t)pixels * sizeof *to);
        /* the reference takes the pointer from token 0 even when another mask replaces mask 0 */
        memcpy(cpu_token(token, n), cpu_token(tokens, (int64_t)n * tokens.w + first + (multimask ? best : 0)),
               (size_t)token.c * sizeof(float));
        ((float *)best_iou.data)[n] = quality[best];
    }
}

void cpu_fill_holes(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int area)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const size_t pixels = (size_t)x.h * (size_t)x.w;
    if (area == 0) {
        if (y.data != x.data) memcpy(y.data, x.data, (size_t)x.n * pixels * sizeof(float));
        return;
    }
    if (!cpu_scratch(cpu, 0, pixels * sizeof(int32_t))) return;
    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int n = 0; n < x.n; n++) {
        const size_t at = (size_t)n * pixels;
        s2i_fill_holes((float *)y.data + at, (const float *)x.data + at, x.w, x.h, area, cpu_local(cpu));
    }
}

/* Rows of the video that a thread makes at a time: neighbouring rows share the interpolated rows of the logits. */
enum { BAND = 16 };

/* What a thread needs for a band. */
struct band {
    float *line[2]; /* two rows of logits at the width of the video */
    int at[2];      /* which, -1: none */
    float *row, *largest;
    uint16_t *owner;
    uint8_t *set;
};

static size_t band_size(size_t width)
{
    return width * ((3 + BAND) * sizeof(float) + BAND * sizeof(uint16_t) + 1);
}

static struct band band_in(void *local, int width)
{
    struct band b = {.line[0] = local};
    b.line[1] = b.line[0] + width;
    b.row = b.line[1] + width;
    b.largest = b.row + width;
    b.owner = (uint16_t *)(b.largest + (ptrdiff_t)BAND * width);
    b.set = (uint8_t *)(b.owner + (ptrdiff_t)BAND * width);
    return b;
}

/* Row i of a map at the width of the video; `other` is the row that must stay. */
static const float *line_of(const struct cpu_kern *kern, struct band *b, const float *map, int map_width, int i,
                            int other, const struct s2i_tap *across, int width)
{
    if (b->at[0] == i) return b->line[0];
    if (b->at[1] == i) return b->line[1];
    const int free = b->at[0] == other ? 1 : 0;
    kern->lerp_across(b->line[free], map + (ptrdiff_t)i * map_width, across, width);
    b->at[free] = i;
    return b->line[free];
}

static void video_row(const struct cpu_kern *kern, struct band *b, const float *map, int map_width, struct s2i_tap down,
                      const struct s2i_tap *across, int width)
{
    const float *above = line_of(kern, b, map, map_width, down.i0, down.i1, across, width);
    const float *below = line_of(kern, b, map, map_width, down.i1, down.i0, across, width);
    kern->lerp_down(b->row, above, below, down.lambda0, down.lambda1, width);
}

/* Rows first .. first+count-1 of all objects. */
static void video_band(const struct cpu_kern *kern, const struct s2_video_masks *out, struct s2_tensor low,
                       const struct s2i_tap *across, int first, int count, struct band b)
{
    const int width = out->width;
    const bool owned = out->owner || (out->bits && out->exclusive);
    if (out->owner) b.owner = out->owner + (ptrdiff_t)first * width;
    memset(b.largest, 0, (size_t)count * (size_t)width * sizeof *b.largest);
    if (owned) memset(b.owner, 0, (size_t)count * (size_t)width * sizeof *b.owner);
    for (int n = 0; n < low.n; n++) {
        const float *map = (const float *)low.data + (ptrdiff_t)n * low.h * low.w;
        uint8_t *bits = out->bits && !out->exclusive ? out->bits[n] : NULL;
        if (!bits && !owned) continue;
        b.at[0] = b.at[1] = -1;
        for (int y = 0; y < count; y++) {
            video_row(kern, &b, map, low.w, s2i_bilinear_tap(low.h, out->height, first + y), across, width);
            if (owned) kern->own(b.owner + (ptrdiff_t)y * width, b.largest + (ptrdiff_t)y * width, b.row, n + 1, width);
            if (!bits) continue;
            kern->positive(b.set, b.row, width);
            kern->pack_bits(bits + (size_t)(first + y) * out->bit_stride, out->bit_stride, b.set, width);
        }
    }
    for (int n = 0; out->bits && out->exclusive && n < low.n; n++)
        for (int y = 0; out->bits[n] && y < count; y++) {
            kern->owned(b.set, b.owner + (ptrdiff_t)y * width, n + 1, width);
            kern->pack_bits(out->bits[n] + (size_t)(first + y) * out->bit_stride, out->bit_stride, b.set, width);
        }
}

void cpu_video_masks(struct s2_backend *be, const struct s2_video_masks *out, struct s2_tensor low)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int width = out->width;
    if (!cpu_scratch(cpu, (size_t)width * sizeof(struct s2i_tap), band_size((size_t)width))) return;
    struct s2i_tap *across = cpu_shared(cpu);
    for (int x = 0; x < width; x++) across[x] = s2i_bilinear_tap(low.w, width, x);

    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int y = 0; y < out->height; y += BAND)
        video_band(cpu->kern, out, low, across, y, cpu_min(out->height - y, BAND), band_in(cpu_local(cpu), width));
}

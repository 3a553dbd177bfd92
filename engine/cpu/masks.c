/* masks.c - prompts in, masks out. */
#include "cpu.h"

#include <math.h>
#include <string.h>

#include "../common.h"

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
    const int map = u.h * u.w, c = u.c, k = hyper.w, step = kern->key_block, pieces = (map + step - 1) / step;
    if (!cpu_scratch(cpu, 0, kern->keys_size(step, c) * sizeof(float))) return;
    CPU_PARALLEL_FOR(cpu, (int64_t)u.n * map * c / 4)
    for (int piece = 0; piece < u.n * pieces; piece++) {
        const int n = piece / pieces, first = piece % pieces * step, count = cpu_min(map - first, step);
        float *pixels = cpu_local(cpu);
        kern->pack(pixels, cpu_token(u, (int64_t)n * map + first), c, count, 1, u.ld);
        kern->product(&(struct cpu_product){.m = k,
                                            .n = count,
                                            .k = c,
                                            .a = cpu_token(hyper, (int64_t)n * k),
                                            .lda = hyper.ld,
                                            .b = pixels,
                                            .panel_stride = (ptrdiff_t)kern->panel * c,
                                            .c = (float *)y.data + (int64_t)n * k * map + first,
                                            .ldc = map});
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
                bool multimask)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int pixels = masks.w;
    CPU_PARALLEL_FOR(cpu, (int64_t)masks.n * pixels)
    for (int n = 0; n < masks.n; n++) {
        const float *mask = (const float *)masks.data + (int64_t)n * 4 * pixels;
        const float *quality = (const float *)iou.data + n * 4;
        const bool first = !multimask && is_stable(mask, pixels);
        const int best = first ? 0 : best_of_three(quality);
        float *to = (float *)low.data + (int64_t)n * pixels;
        if (((const float *)score.data)[n] <= 0)
            for (int i = 0; i < pixels; i++) to[i] = -1024;
        else
            memcpy(to, mask + (int64_t)best * pixels, (size_t)pixels * sizeof *to);
        /* the reference takes the pointer from token 0 even when another mask replaces mask 0 */
        memcpy(cpu_token(token, n), cpu_token(tokens, (int64_t)n * 4 + (multimask ? best : 0)),
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

/* One row of one object at the size of the video. Multiplied and added in the order of torch's kernel, without
 * fused operations: a logit near zero decides a bit. */
static void video_row(float *to, const float *map, int map_width, struct s2i_tap down, const struct s2i_tap *across,
                      int width)
{
    for (int x = 0; x < width; x++) to[x] = s2i_bilinear_at(map, map_width, down, across[x]);
}

static void pack_row(uint8_t *bits, size_t stride, const float *row, int width)
{
    memset(bits, 0, stride);
    for (int x = 0; x < width; x += 8) {
        unsigned byte = 0;
        for (int i = 0; i < cpu_min(width - x, 8); i++) byte |= (unsigned)(row[x + i] > 0) << (7 - i);
        bits[x / 8] = (uint8_t)byte;
    }
}

static void pack_owned(uint8_t *bits, size_t stride, const uint16_t *owner, int index, int width)
{
    memset(bits, 0, stride);
    for (int x = 0; x < width; x++)
        if (owner[x] == index) bits[x / 8] |= (uint8_t)(0x80 >> x % 8);
}

static void own_row(uint16_t *owner, float *largest, const float *row, int index, int width)
{
    for (int x = 0; x < width; x++) {
        const bool more = row[x] > largest[x];
        largest[x] = more ? row[x] : largest[x];
        owner[x] = more ? (uint16_t)index : owner[x];
    }
}

void cpu_video_masks(struct s2_backend *be, const struct s2_video_masks *out, struct s2_tensor low)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int width = out->width;
    const size_t map = (size_t)low.h * (size_t)low.w;
    const bool owned = out->owner || (out->bits && out->exclusive);
    if (!cpu_scratch(cpu, (size_t)width * sizeof(struct s2i_tap), (size_t)width * (2 * sizeof(float) + 2))) return;
    struct s2i_tap *across = cpu_shared(cpu);
    for (int x = 0; x < width; x++) across[x] = s2i_bilinear_tap(low.w, width, x);

    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int y = 0; y < out->height; y++) {
        const struct s2i_tap down = s2i_bilinear_tap(low.h, out->height, y);
        float *row = cpu_local(cpu), *largest = row + width;
        uint16_t *owner = out->owner ? out->owner + (size_t)y * (size_t)width : (uint16_t *)(largest + width);
        for (int x = 0; x < width; x++) largest[x] = 0;
        if (owned) memset(owner, 0, (size_t)width * sizeof *owner);
        for (int n = 0; n < low.n; n++) {
            video_row(row, (const float *)low.data + (size_t)n * map, low.w, down, across, width);
            if (owned) own_row(owner, largest, row, n + 1, width);
            if (out->bits && out->bits[n] && !out->exclusive)
                pack_row(out->bits[n] + (size_t)y * out->bit_stride, out->bit_stride, row, width);
        }
        for (int n = 0; out->bits && out->exclusive && n < low.n; n++)
            if (out->bits[n])
                pack_owned(out->bits[n] + (size_t)y * out->bit_stride, out->bit_stride, owner, n + 1, width);
    }
}

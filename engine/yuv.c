/* yuv.c - 4:2:0 planes to RGB, in the integers of libswscale's bilinear scaler with SWS_ACCURATE_RND,
 * SWS_FULL_CHR_H_INT and SWS_FULL_CHR_H_INP and planar RGB out. Its filters and 15-bit intermediates come to the
 * following, because all weights are quarters and nothing is rounded before the end:
 *
 *     luma    L = 512 y - black
 *     chroma  C = 32 s - 2^16, s being the sum of 2 x 2 samples with weights of 16 in all: linear interpolation at
 *             the pixel, the edge's samples going on beyond it; along an axis of fewer than 4 samples the nearest
 *             one (the next one, half way)
 *     red     clip((gain L + v_to_r Cv + 2^21) >> 22); green and blue likewise
 *
 * Sums are modulo 2^32 and then signed: colours far outside of RGB wrap around, there as here. */
#include "base.h"

/* The two samples of one axis beside a pixel, and the weight of the second in quarters. */
struct tap {
    int first, second, weight;
};

static int inside(int i, int n)
{
    return i < 0 ? 0 : i < n ? i : n - 1;
}

static struct tap tap_of(int pixel, int offset, int samples)
{
    int quarters = 2 * pixel - offset;
    if (samples < 4) quarters = (quarters + 2) & ~3;
    const int i = quarters >> 2;
    return (struct tap){inside(i, samples), inside(i + 1, samples), quarters & 3};
}

static int chroma_at(const uint8_t *top, const uint8_t *bottom, struct tap x, int step, int weight)
{
    const int a = x.first * step, b = x.second * step;
    const int above = (4 - x.weight) * top[a] + x.weight * top[b];
    const int below = (4 - x.weight) * bottom[a] + x.weight * bottom[b];
    return 32 * ((4 - weight) * above + weight * below) - (1 << 16);
}

static uint8_t level_of(uint32_t sum)
{
    const int32_t v = (int32_t)sum >> 22;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

void s2_yuv_row(const struct s2_yuv *p, int width, int height, int row, uint8_t *rgb)
{
    const struct tap y = tap_of(row, p->chroma_y, height / 2);
    const size_t top = (size_t)y.first * p->chroma_stride, bottom = (size_t)y.second * p->chroma_stride;
    const uint8_t *luma = p->y + (size_t)row * p->y_stride;
    for (int i = 0; i < width; i++, rgb += 3) {
        const struct tap x = tap_of(i, p->chroma_x, width / 2);
        const int u = chroma_at(p->u + top, p->u + bottom, x, p->chroma_step, y.weight);
        const int v = chroma_at(p->v + top, p->v + bottom, x, p->chroma_step, y.weight);
        const uint32_t grey = (uint32_t)((512 * luma[i] - p->black) * p->gain) + (1u << 21);
        rgb[0] = level_of(grey + (uint32_t)(v * p->v_to_r));
        rgb[1] = level_of(grey + (uint32_t)(v * p->v_to_g) + (uint32_t)(u * p->u_to_g));
        rgb[2] = level_of(grey + (uint32_t)(u * p->u_to_b));
    }
}

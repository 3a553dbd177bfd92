/* mask_prompt.c - a mask prompt on the host: once a prompt, not once a frame. */
#include <math.h>
#include <stdlib.h>

#include "session.h"

/* Weights of torch's antialiased bilinear resizing (align_corners false) of one axis. Source: PyTorch,
 * aten/src/ATen/native/cpu/UpSampleKernel.cpp, HelperInterpBase::_compute_indices_weights_aa. */
struct axis {
    int in, out, max_taps;
    int *first, *count;
    float *weight; /* [out][max_taps] */
};

static bool make_axis(struct axis *a, int in, int out)
{
    float ratio = (float)in / (float)out, support = ratio >= 1 ? ratio : 1, inverse = ratio >= 1 ? 1 / ratio : 1;
    *a = (struct axis){.in = in, .out = out, .max_taps = 2 * (int)ceilf(support) + 1};
    a->first = calloc((size_t)out, sizeof *a->first);
    a->count = calloc((size_t)out, sizeof *a->count);
    a->weight = calloc((size_t)out * (size_t)a->max_taps, sizeof *a->weight);
    if (!a->first || !a->count || !a->weight) return false;
    for (int i = 0; i < out; i++) {
        float center = ratio * ((float)i + 0.5f), sum = 0, *w = a->weight + (size_t)i * (size_t)a->max_taps;
        int lo = (int)(center - support + 0.5f), hi = (int)(center + support + 0.5f);
        if (lo < 0) lo = 0;
        if (hi > in) hi = in;
        a->first[i] = lo, a->count[i] = hi - lo;
        for (int j = 0; j < hi - lo; j++) {
            float x = fabsf(((float)(j + lo) - center + 0.5f) * inverse);
            w[j] = x < 1 ? 1 - x : 0;
            sum += w[j];
        }
        for (int j = 0; j < hi - lo && sum != 0; j++) w[j] /= sum;
    }
    return true;
}

static void free_axis(struct axis *a)
{
    free(a->first), free(a->count), free(a->weight);
}

/* out [h2][w2] = in [h][w] resized, horizontal pass first */
static bool resize(float *out, int h2, int w2, const float *in, int h, int w)
{
    struct axis ax, ay;
    bool ok = make_axis(&ax, w, w2);
    ok = make_axis(&ay, h, h2) && ok;
    float *mid = ok ? malloc((size_t)h * (size_t)w2 * sizeof *mid) : NULL;
    for (int y = 0; mid && y < h; y++)
        for (int x = 0; x < w2; x++) {
            const float *row = in + (size_t)y * (size_t)w + ax.first[x],
                        *wt = ax.weight + (size_t)x * (size_t)ax.max_taps;
            float s = 0;
            for (int j = 0; j < ax.count[x]; j++) s += row[j] * wt[j];
            mid[(size_t)y * (size_t)w2 + (size_t)x] = s;
        }
    for (int y = 0; mid && y < h2; y++)
        for (int x = 0; x < w2; x++) {
            const float *wt = ay.weight + (size_t)y * (size_t)ay.max_taps;
            float s = 0;
            for (int j = 0; j < ay.count[y]; j++) s += mid[(size_t)(ay.first[y] + j) * (size_t)w2 + (size_t)x] * wt[j];
            out[(size_t)y * (size_t)w2 + (size_t)x] = s;
        }
    ok = mid != NULL;
    free(mid);
    free_axis(&ax);
    free_axis(&ay);
    return ok;
}

static void unpack(float *out, const struct s2_bits *b)
{
    for (int y = 0; y < b->height; y++)
        for (int x = 0; x < b->width; x++)
            out[(size_t)y * (size_t)b->width + (size_t)x] =
                (float)(b->data[(size_t)y * b->stride + (size_t)(x >> 3)] >> (7 - (x & 7)) & 1);
}

enum s2_status s2i_mask_prompt(const struct s2_model *m, const struct s2_bits *bits, float *low, float *prompt,
                               bool *any, struct s2_err *err)
{
    size_t s = (size_t)m->S, p = (size_t)(4 * m->G);
    size_t bytes = ((size_t)bits->width * (size_t)bits->height + s * s) * sizeof(float);
    float *frame = malloc(bytes);
    if (!frame) return s2_no_memory(err, "a mask prompt", bytes);
    float *square = frame + (size_t)bits->width * (size_t)bits->height;

    unpack(frame, bits);
    if (bits->width == m->S && bits->height == m->S) {
        unpack(square, bits);
    } else if (!resize(square, m->S, m->S, frame, bits->height, bits->width)) {
        free(frame);
        return s2_no_memory(err, "a mask prompt", bytes);
    }
    *any = false;
    for (size_t i = 0; i < s * s; i++) {
        square[i] = square[i] >= 0.5f;
        *any |= square[i] > 0;
    }
    for (size_t y = 0; y < p; y++) /* 4x4 stride 4 convolution */
        for (size_t x = 0; x < p; x++) {
            float sum = 0;
            for (size_t k = 0; k < 16; k++) sum += square[(4 * y + k / 4) * s + 4 * x + k % 4] * m->mask_downsample[k];
            prompt[y * p + x] = sum + m->mask_downsample[16];
        }
    for (size_t i = 0; i < s * s; i++) square[i] = square[i] * 20.0f - 10.0f;
    bool ok = resize(low, (int)p, (int)p, square, m->S, m->S);
    free(frame);
    return ok ? S2_OK : s2_no_memory(err, "a mask prompt", bytes);
}

/* common.c - see common.h */
#include "common.h"

#include <math.h>

/* Keys' cubic with a = -0.5, in the order of operations of Pillow's bicubic_filter. */
static double cubic(double x)
{
    const double a = -0.5;
    if (x < 0.0) x = -x;
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double filter_scale(int in, int out)
{
    const double scale = (double)in / out;
    return scale < 1.0 ? 1.0 : scale;
}

int s2i_bicubic_taps(int in, int out)
{
    return (int)ceil(2.0 * filter_scale(in, out)) * 2 + 1;
}

void s2i_bicubic_table(int in, int out, int32_t *first, int32_t *count, int32_t *coef)
{
    const double scale = (double)in / out, fs = filter_scale(in, out), support = 2.0 * fs, inverse = 1.0 / fs;
    const int taps = s2i_bicubic_taps(in, out);
    for (int i = 0; i < out; i++, coef += taps) {
        const double centre = (i + 0.5) * scale;
        int lo = (int)(centre - support + 0.5), hi = (int)(centre + support + 0.5);
        if (lo < 0) lo = 0;
        if (hi > in) hi = in;
        double sum = 0;
        for (int j = 0; j < hi - lo; j++) sum += cubic((j + lo - centre + 0.5) * inverse);
        for (int j = 0; j < hi - lo; j++) {
            double w = cubic((j + lo - centre + 0.5) * inverse);
            if (sum != 0.0) w *= 1.0 / sum;
            coef[j] = (int32_t)(w * (1 << S2I_BICUBIC_BITS) + (w < 0 ? -0.5 : 0.5));
        }
        for (int j = hi - lo; j < taps; j++) coef[j] = 0;
        first[i] = lo;
        count[i] = hi - lo;
    }
}

bool s2i_bicubic_vertical_first(int width, int height, int size)
{
    return height > (int64_t)100 * width && size < height;
}

void s2i_normalised_levels(float table[3][256])
{
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, deviation[3] = {0.229f, 0.224f, 0.225f};
    for (int c = 0; c < 3; c++) {
        for (int v = 0; v < 256; v++) table[c][v] = ((float)(v / 255.0) - mean[c]) / deviation[c];
    }
}

struct s2i_tap s2i_bilinear_tap(int in, int out, int i)
{
    const float ratio = (float)in / (float)out;
    float s = ratio * ((float)i + 0.5f) - 0.5f;
    if (s < 0) s = 0;
    struct s2i_tap t;
    t.i0 = (int32_t)s;
    if (t.i0 > in - 1) t.i0 = in - 1;
    t.i1 = t.i0 + (t.i0 < in - 1);
    t.lambda1 = s - (float)t.i0;
    if (t.lambda1 > 1) t.lambda1 = 1;
    t.lambda0 = 1 - t.lambda1;
    return t;
}

/* Union-find over background pixels: a root holds minus the size of its component, any other pixel the
 * index of a pixel nearer to the root. */
#define FOREGROUND INT32_MIN

static int32_t find_root(int32_t *link, int32_t i)
{
    while (link[i] >= 0) {
        const int32_t up = link[i];
        if (link[up] >= 0) link[i] = link[up];
        i = up;
    }
    return i;
}

static void unite(int32_t *link, int32_t a, int32_t b)
{
    a = find_root(link, a);
    b = find_root(link, b);
    if (a == b) return;
    if (link[a] > link[b]) {
        const int32_t t = a;
        a = b;
        b = t;
    }
    link[a] += link[b];
    link[b] = a;
}

void s2i_fill_holes(float *y, const float *x, int width, int height, int area, int32_t *scratch)
{
    for (int r = 0; r < height; r++) {
        for (int c = 0; c < width; c++) {
            const int32_t i = r * width + c;
            scratch[i] = x[i] <= 0 ? -1 : FOREGROUND;
            if (scratch[i] == FOREGROUND) continue;
            const bool left = c > 0, right = c + 1 < width, up = r > 0;
            if (left && scratch[i - 1] != FOREGROUND) unite(scratch, i, i - 1);
            if (up && scratch[i - width] != FOREGROUND) unite(scratch, i, i - width);
            if (up && left && scratch[i - width - 1] != FOREGROUND) unite(scratch, i, i - width - 1);
            if (up && right && scratch[i - width + 1] != FOREGROUND) unite(scratch, i, i - width + 1);
        }
    }
    for (int32_t i = 0; i < width * height; i++) {
        const bool hole = scratch[i] != FOREGROUND && -scratch[find_root(scratch, i)] <= area;
        y[i] = hole ? 0.1f : x[i];
    }
}

float s2i_sine_argument(float position, int i, int half)
{
    return position / (float)pow(10000.0, 2.0 * (i / 2) / half);
}

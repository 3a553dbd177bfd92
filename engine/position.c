/* position.c - constant position tables, computed once at load in f32 as the reference does. */
#include <math.h>

#include "model.h"

#define TWO_PI 6.283185307179586f

/* Sine encoding of a square grid: channels [0,m) encode y, [m,2m) encode x, sine and cosine interleaved.
 * Source: position_encoding.py PositionEmbeddingSine. */
void s2i_sine_2d(float *out, int side, int channels)
{
    int m = channels / 2;
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            float *token = out + ((size_t)y * (size_t)side + (size_t)x) * (size_t)channels;
            float vy = (float)(y + 1) / ((float)side + 1e-6f) * TWO_PI,
                  vx = (float)(x + 1) / ((float)side + 1e-6f) * TWO_PI;
            for (int c = 0; c < m; c++) {
                float wave = powf(10000.0f, (float)(2 * (c / 2)) / (float)m);
                token[c] = c % 2 ? cosf(vy / wave) : sinf(vy / wave);
                token[m + c] = c % 2 ? cosf(vx / wave) : sinf(vx / wave);
            }
        }
}

/* Rotary angles of a square grid: the first half of the pairs turns with x, the second with y.
 * Source: position_encoding.py compute_axial_cis. */
void s2i_rope_table(float *out, int side, int channels)
{
    int pairs = channels / 2, half = pairs / 2;
    for (int n = 0; n < side * side; n++)
        for (int p = 0; p < pairs; p++) {
            float at = (float)(p < half ? n % side : n / side);
            float angle = at * (1.0f / powf(10000.0f, (float)(4 * (p % half)) / (float)channels));
            out[((size_t)n * (size_t)pairs + (size_t)p) * 2] = cosf(angle);
            out[((size_t)n * (size_t)pairs + (size_t)p) * 2 + 1] = sinf(angle);
        }
}

/* Random Fourier features of the cell centres: 128 sines, then 128 cosines.
 * Source: position_encoding.py PositionEmbeddingRandom.forward. */
void s2i_fourier_grid(float *out, int side, const float *gauss)
{
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            float *token = out + ((size_t)y * (size_t)side + (size_t)x) * 256;
            float u = 2.0f * (((float)x + 0.5f) / (float)side) - 1.0f,
                  v = 2.0f * (((float)y + 0.5f) / (float)side) - 1.0f;
            for (int c = 0; c < 128; c++) {
                float z = TWO_PI * (u * gauss[c] + v * gauss[128 + c]);
                token[c] = sinf(z);
                token[128 + c] = cosf(z);
            }
        }
}

/* Keys' cubic convolution with a = -0.75 at distance |t| */
static float cubic(float t)
{
    const float a = -0.75f;
    t = fabsf(t);
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
}

/* Four taps of bicubic resizing (align_corners false, borders replicated) */
static void taps(int i, int out, int in, int at[4], float weight[4])
{
    float s = (float)in / (float)out * ((float)i + 0.5f) - 0.5f, base = floorf(s), t = s - base;
    for (int k = 0; k < 4; k++) {
        int j = (int)base + k - 1;
        at[k] = j < 0 ? 0 : j >= in ? in - 1 : j;
        weight[k] = cubic(t + 1 - (float)k);
    }
}

/* The background map resized bicubically plus the 8x8 window map tiled.
 * background [dim][b][b], window [dim][8][8] as stored. Source: hieradet.py Hiera._get_pos_embed. */
void s2i_hiera_position(float *out, int side, int dim, const float *background, int b, const float *window)
{
    for (int y = 0; y < side; y++) {
        int ay[4], ax[4];
        float wy[4], wx[4];
        taps(y, side, b, ay, wy);
        for (int x = 0; x < side; x++) {
            float *token = out + ((size_t)y * (size_t)side + (size_t)x) * (size_t)dim;
            taps(x, side, b, ax, wx);
            for (int c = 0; c < dim; c++) {
                float sum = 0;
                for (int j = 0; j < 4; j++) {
                    const float *row = background + (c * b + ay[j]) * b;
                    sum += wy[j] * (wx[0] * row[ax[0]] + wx[1] * row[ax[1]] + wx[2] * row[ax[2]] + wx[3] * row[ax[3]]);
                }
                token[c] = sum + window[(c * 8 + y % 8) * 8 + x % 8];
            }
        }
    }
}

/* tokens.c - operators on rows of tokens */
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int rows_at(int64_t first, int64_t tokens)
{
    return (int)(tokens - first < PLAIN_ROWS ? tokens - first : PLAIN_ROWS);
}

void plain_linear(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *lin,
                  enum s2_act act, bool accumulate)
{
    if (be->skip) return;
    const struct plain_matrix *m = lin->impl;
    double *in = plain_doubles(be, PLAIN_ROWS, (size_t)m->in), *out = plain_doubles(be, PLAIN_ROWS, (size_t)m->out);
    const int64_t tokens = in && out ? s2_tokens(x) : 0;
    for (int64_t first = 0; first < tokens; first += PLAIN_ROWS) {
        const int rows = rows_at(first, tokens);
        plain_load(in, x, first, rows);
        plain_affine(out, in, m, rows);
        for (int r = 0; r < rows; r++) {
            float *to = plain_token(y, first + r);
            for (int o = 0; o < m->out; o++) {
                const double v = plain_activate(out[r * m->out + o], act);
                to[o] = (float)(accumulate ? to[o] + v : v);
            }
        }
    }
    free(in);
    free(out);
}

static void normalise(double *v, const struct s2_norm *norm)
{
    double mean = 0, variance = 0;
    for (int c = 0; c < norm->c; c++) mean += v[c];
    mean /= norm->c;
    for (int c = 0; c < norm->c; c++) variance += (v[c] - mean) * (v[c] - mean);
    variance /= norm->c;
    const double scale = 1 / sqrt(variance + norm->eps);
    for (int c = 0; c < norm->c; c++) v[c] = (v[c] - mean) * scale * norm->weight[c] + norm->bias[c];
}

void plain_layer_norm(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                      enum s2_act act)
{
    if (be->skip) return;
    double *v = plain_doubles(be, (size_t)norm->c, 1);
    const int64_t tokens = v ? s2_tokens(x) : 0;
    for (int64_t i = 0; i < tokens; i++) {
        plain_load(v, x, i, 1);
        normalise(v, norm);
        for (int c = 0; c < norm->c; c++) plain_token(y, i)[c] = (float)plain_activate(v[c], act);
    }
    free(v);
}

void plain_mlp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
               const struct s2_linear *fc1, enum s2_act act, const struct s2_linear *fc2)
{
    if (be->skip) return;
    const struct plain_matrix *m1 = fc1->impl, *m2 = fc2->impl;
    double *in = plain_doubles(be, PLAIN_ROWS, (size_t)m1->in),
           *hidden = plain_doubles(be, PLAIN_ROWS, (size_t)m1->out);
    double *out = plain_doubles(be, PLAIN_ROWS, (size_t)m2->out);
    const int64_t tokens = in && hidden && out ? s2_tokens(x) : 0;
    for (int64_t first = 0; first < tokens; first += PLAIN_ROWS) {
        const int rows = rows_at(first, tokens);
        plain_load(in, x, first, rows);
        for (int r = 0; norm && r < rows; r++) normalise(in + r * m1->in, norm);
        plain_affine(hidden, in, m1, rows);
        for (int i = 0; i < rows * m1->out; i++) hidden[i] = plain_activate(hidden[i], act);
        plain_affine(out, hidden, m2, rows);
        for (int r = 0; r < rows; r++) {
            float *to = plain_token(y, first + r);
            for (int o = 0; o < m2->out; o++) to[o] = (float)(to[o] + out[r * m2->out + o]);
        }
    }
    free(in);
    free(hidden);
    free(out);
}

void plain_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s)
{
    if (be->skip) return;
    const int64_t map = (int64_t)y.h * y.w;
    const bool one_a = a.n == 1, one_b = b.n == 1, one_token = b.h == 1 && b.w == 1;
    for (int n = 0; n < y.n; n++) {
        for (int64_t i = 0; i < map; i++) {
            const float *va = plain_token(a, (one_a ? 0 : n * map) + i);
            const float *vb = plain_token(b, one_token ? (one_b ? 0 : n) : (one_b ? 0 : n * map) + i);
            float *to = plain_token(y, n * map + i);
            for (int c = 0; c < y.c; c++) to[c] = (float)(va[c] + (double)s * vb[c]);
        }
    }
}

void plain_rope(struct s2_backend *be, struct s2_tensor x, const float *table, int width)
{
    if (be->skip) return;
    for (int64_t i = 0; i < s2_tokens(x); i++) {
        float *v = plain_token(x, i);
        const float *turn = table + i % x.w * width;
        for (int c = 0; c < x.c; c += 2) {
            const double a = v[c], b = v[c + 1], cosine = turn[c % width], sine = turn[c % width + 1];
            v[c] = (float)(a * cosine - b * sine);
            v[c + 1] = (float)(a * sine + b * cosine);
        }
    }
}

static void copy_tokens(struct s2_tensor y, int64_t to, struct s2_tensor x, int64_t from, int count)
{
    for (int i = 0; i < count; i++) {
        memcpy(plain_token(y, to + i), plain_token(x, from + i), (size_t)y.c * sizeof(float));
    }
}

void plain_take(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int first)
{
    if (be->skip) return;
    for (int n = 0; n < y.n; n++) copy_tokens(y, (int64_t)n * y.w, x, (int64_t)n * x.h * x.w + first, y.w);
}

void plain_concat(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b)
{
    if (be->skip) return;
    for (int n = 0; n < y.n; n++) {
        const int64_t to = (int64_t)n * y.w;
        copy_tokens(y, to, a, a.n == 1 ? 0 : (int64_t)n * a.w, a.w);
        copy_tokens(y, to + a.w, b, (int64_t)n * b.w, b.w);
    }
}

void plain_scatter(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const int32_t *index)
{
    if (be->skip) return;
    const int count = x.h * x.w;
    for (int n = 0; n < x.n; n++) {
        if (index[n] >= 0) copy_tokens(y, (int64_t)index[n] * count, x, (int64_t)n * count, count);
    }
}

/* product.c - matrix products, activations and softmax attention in double */
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double *plain_doubles(struct s2_backend *be, size_t a, size_t b)
{
    size_t count = 0, bytes = SIZE_MAX;
    double *p = NULL;
    if (s2_mul(a, b, &count) && s2_mul(count, sizeof *p, &bytes)) p = calloc(count + 1, sizeof *p);
    if (!p) {
        be->skip = true;
        s2_no_memory(&be->err, "the scratch of an operator", bytes);
    }
    return p;
}

double plain_activate(double x, enum s2_act act)
{
    switch (act) {
    case S2_ACT_NONE: break;
    case S2_ACT_RELU: return x > 0 ? x : 0;
    case S2_ACT_GELU: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case S2_ACT_SIGMOID: return 1 / (1 + exp(-x));
    }
    return x;
}

void plain_product(double *y, const double *x, const double *packed, int rows, int in, int out)
{
    for (int o = 0; o < out; o += PLAIN_PANEL) {
        const double *panel = packed + plain_at(in, 0, o);
        const int width = out - o < PLAIN_PANEL ? out - o : PLAIN_PANEL;
        for (int r = 0; r < rows; r++) {
            const double *row = x + (size_t)r * (size_t)in;
            double sum[PLAIN_PANEL] = {0};
            for (int i = 0; i < in; i++) {
                const double v = row[i], *w = panel + (size_t)i * PLAIN_PANEL;
                for (int j = 0; j < PLAIN_PANEL; j++) sum[j] += v * w[j];
            }
            memcpy(y + (size_t)r * (size_t)out + o, sum, (size_t)width * sizeof *sum);
        }
    }
}

void plain_affine(double *y, const double *x, const struct plain_matrix *m, int rows)
{
    plain_product(y, x, m->packed, rows, m->in, m->out);
    for (int r = 0; r < rows; r++, y += m->out) {
        for (int o = 0; o < m->out; o++) y[o] += m->bias[o];
    }
}

void plain_load(double *rows, struct s2_tensor t, int64_t first, int count)
{
    for (int r = 0; r < count; r++, rows += t.c) {
        const float *token = plain_token(t, first + r);
        for (int c = 0; c < t.c; c++) rows[c] = token[c];
    }
}

static void softmax(double *s, int n)
{
    double largest = s[0], sum = 0;
    for (int i = 1; i < n; i++) largest = s[i] > largest ? s[i] : largest;
    for (int i = 0; i < n; i++) {
        s[i] = exp(s[i] - largest);
        sum += s[i];
    }
    for (int i = 0; i < n; i++) s[i] /= sum;
}

void plain_attend(double *y, const double *q, const double *k, const double *v, double *scores, int rows, int keys,
                  int d, int dv, double scale)
{
    plain_product(scores, q, k, rows, d, keys);
    for (int r = 0; r < rows; r++) {
        double *s = scores + (size_t)r * (size_t)keys;
        for (int i = 0; i < keys; i++) s[i] *= scale;
        softmax(s, keys);
    }
    plain_product(y, scores, v, rows, keys, dv);
}

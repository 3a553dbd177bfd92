/* bound.c - how far a backend may be from the oracle, from the sizes of the terms
 *
 * A sum of K products rounded at each step is off by at most K eps sum|a||b|, and by about sqrt(K) eps sum|a||b|
 * when roundings are independent; the bounds take twice the latter plus a few roundings. Errors that operands
 * already have add up in the same way.
 *
 * Operands of matrix products may be rounded: to bf16, by 2^-9 of their size on average, or to two bf16, after which a
 * product misses 2^-17 of its size on average. Such errors are independent, so a sum of K alike terms has sqrt(K) of
 * them; the bound is twice the largest for one term and about five times the deviation for many. */
#include "kcheck.h"

#include <math.h>

double kc_sum_bound(int terms)
{
    return kc.eps * (8 + 2 * sqrt(terms));
}

double kc_dot_bound(int terms)
{
    const double together = 4 / sqrt(terms);
    return kc_sum_bound(terms) + kc.operand * (together < 2 ? together : 2);
}

double kc_gain(enum s2_act act)
{
    switch (act) {
    case S2_ACT_GELU: return 1.13; /* the largest slope, at sqrt(2) */
    case S2_ACT_SIGMOID: return 0.25;
    case S2_ACT_NONE:
    case S2_ACT_RELU: break;
    }
    return 1;
}

double *kc_product_bound(struct kc_tensor x, const struct kc_linear *l, enum s2_act act)
{
    const int64_t rows = s2_tokens(x.on[KC_ORACLE]);
    double *bound = kc_scratch((size_t)rows * (size_t)l->out, sizeof *bound);
    for (int64_t r = 0; r < rows; r++) {
        for (int o = 0; o < l->out; o++) {
            double size = fabs((double)l->b[o]);
            for (int i = 0; i < l->in; i++)
                size += fabs((double)kc_value(x, r, i) * l->w[(size_t)o * (size_t)l->in + (size_t)i]);
            bound[r * l->out + o] =
                kc_gain(act) * kc_dot_bound(l->in) * size + (act == S2_ACT_SIGMOID ? 8 * kc.eps : 0);
        }
    }
    return bound;
}

void kc_norm_bound(struct kc_tensor x, const struct kc_norm *norm, double *value, double *bound)
{
    const int c = norm->on[KC_ORACLE].c;
    for (int64_t r = 0; r < s2_tokens(x.on[KC_ORACLE]); r++) {
        double mean = 0, size = 0, variance = 0;
        for (int i = 0; i < c; i++) {
            mean += kc_value(x, r, i) / (double)c;
            size += fabs((double)kc_value(x, r, i)) / c;
        }
        for (int i = 0; i < c; i++) variance += (kc_value(x, r, i) - mean) * (kc_value(x, r, i) - mean) / c;
        const double scale = 1 / sqrt(variance + norm->on[KC_ORACLE].eps);
        for (int i = 0; i < c; i++) {
            const double v = kc_value(x, r, i), w = norm->weight[i], b = norm->bias[i];
            value[r * c + i] = (v - mean) * scale * w + b;
            bound[r * c + i] = kc_sum_bound(c) * ((fabs(v) + size) * scale * fabs(w) + fabs(b));
        }
    }
}

void kc_attention_bound(double *bound, const double *q, const double *keys, const double *key_error,
                        const double *values, int n, int d, int dv, double *p, double *e)
{
    const double scale = 1 / sqrt(d);
    double largest = -INFINITY, sum = 0, mean = 0;
    for (int j = 0; j < n; j++) {
        double s = 0, size = 0, given = 0;
        for (int i = 0; i < d; i++) {
            const double product = q[i] * keys[(size_t)j * (size_t)d + (size_t)i];
            s += product;
            size += fabs(product);
            if (key_error) given += pow(q[i] * key_error[(size_t)j * (size_t)d + (size_t)i], 2);
        }
        p[j] = s * scale;
        e[j] = scale * (kc_dot_bound(d) * size + 2 * sqrt(given));
        largest = fmax(largest, p[j]);
    }
    for (int j = 0; j < n; j++) sum += p[j] = exp(p[j] - largest);
    for (int j = 0; j < n; j++) mean += (p[j] /= sum) * e[j];
    for (int i = 0; i < dv; i++) bound[i] = 0;
    for (int j = 0; j < n; j++) {
        /* a score off by e makes its probability off by the factor exp(e), all together move the normalisation */
        const double factor = p[j] * (expm1(e[j]) + expm1(mean) + kc_sum_bound(n) + 2 * kc.operand);
        for (int i = 0; i < dv; i++) bound[i] += factor * fabs(values[(size_t)j * (size_t)dv + (size_t)i]);
    }
}

/* bound.c - how far a backend may be from the oracle, from the sizes of the terms
 *
 * A sum of K products rounded at each step is off by at most K eps sum|a||b|, and by about sqrt(K) eps sum|a||b|
 * when roundings are independent; the bounds take twice the latter plus a few roundings. Errors that operands
 * already have add up in the same way.
 *
 * Operands of matrix products may be rounded: to bf16, by 2^-9 of their size on average, or to two bf16, after which a
 * product misses 2^-17 of its size on average. Such errors are independent, so a sum of K alike terms has sqrt(K) of
 * them; the bound is twice the largest for one term and over five times the deviation for many.
 *
 * Activations of 16 bits are rounded where an operator keeps one: by half an ulp, which is at most 2^-8 of the number
 * in bf16, in fp16 2^-11 of it or 2^-25. Of an operator's output kc_close takes care; here are the numbers that an
 * operator may keep on its way. Independent ones add up to at most twice the root of the sum of their squares, which
 * for many is about five times the deviation and for up to four no less than their sum. */
#include "kcheck.h"

#include <math.h>

#define MAX_CHANNELS 256 /* of a value */

double kc_sum_bound(int terms)
{
    return kc.eps * (8 + 2 * sqrt(terms));
}

double kc_dot_bound(int terms)
{
    const double together = 5 / sqrt(terms);
    return kc_sum_bound(terms) + kc.operand * (together < 2 ? together : 2);
}

double kc_store_bound(double v)
{
    switch (kc.act) {
    case S2_BF16: return 0x1p-8 * fabs(v);
    case S2_F16: return fmax(0x1p-11 * fabs(v), 0x1p-25);
    default: return 0;
    }
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

double kc_act_bound(double error, enum s2_act act)
{
    return kc_gain(act) * error + (act == S2_ACT_SIGMOID ? 8 * kc.eps : 0);
}

double kc_act_pass_bound(double v, double error, enum s2_act act)
{
    const bool own_pass = act == S2_ACT_GELU || act == S2_ACT_SIGMOID; /* ReLU and rounding can change places */
    return kc_act_bound(error + (own_pass ? kc_store_bound(v) : 0), act);
}

double *kc_product_bound(struct kc_tensor x, const struct kc_linear *l, enum s2_act act, bool kept)
{
    const int64_t rows = s2_tokens(x.on[KC_ORACLE]);
    double *bound = kc_scratch((size_t)rows * (size_t)l->out, sizeof *bound);
    for (int64_t r = 0; r < rows; r++) {
        for (int o = 0; o < l->out; o++) {
            double sum = l->b[o], size = fabs(sum);
            for (int i = 0; i < l->in; i++) {
                const double term = (double)kc_value(x, r, i) * l->w[(size_t)o * (size_t)l->in + (size_t)i];
                sum += term;
                size += fabs(term);
            }
            const double error = kc_dot_bound(l->in) * size + (kept ? kc_store_bound(sum) : 0);
            bound[r * l->out + o] = kc_act_bound(error, act);
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

/* What roundings to 16 bits on the way add: of keys, which move scores by independent amounts; of probabilities, kept
 * unnormalised with at most 1 for the largest; of values. p is normalised, by `sum`. Probabilities count one and a half
 * times: they may crowd above a power of two, where the deviation is largest beside the bound. */
static void add_roundings(double *bound, const struct kc_attended *a, const double *p, const double *moved, double sum)
{
    double mean[MAX_CHANNELS] = {0}, kept[MAX_CHANNELS] = {0}, alike[MAX_CHANNELS] = {0};
    for (int j = 0; j < a->n; j++) {
        for (int i = 0; i < a->dv; i++) mean[i] += p[j] * a->values[(size_t)j * (size_t)a->dv + (size_t)i];
    }
    for (int j = 0; j < a->n; j++) {
        const double *v = a->values + (size_t)j * (size_t)a->dv;
        const double *error = a->value_rounding ? a->value_rounding + (size_t)j * (size_t)a->dv : NULL;
        const double share = kc_store_bound(p[j] * sum) / sum, shift = p[j] * expm1(2 * moved[j]) / 2;
        for (int i = 0; i < a->dv; i++) {
            if (j < a->n - a->alike) {
                kept[i] += 2.25 * share * v[i] * share * v[i];
            } else {
                alike[i] += share * fabs(v[i]); /* rounded as one */
            }
            kept[i] += shift * (v[i] - mean[i]) * shift * (v[i] - mean[i]);
            if (error) kept[i] += p[j] * error[i] * p[j] * error[i];
        }
    }
    for (int i = 0; i < a->dv; i++) bound[i] += 2 * sqrt(kept[i]) + alike[i];
}

/* The root of the sum of squares of a_i b_i. */
static double together(const double *a, const double *b, int n)
{
    double squares = 0;
    for (int i = 0; i < n; i++) squares += a[i] * b[i] * a[i] * b[i];
    return sqrt(squares);
}

void kc_attention_bound(double *bound, const double *q, const struct kc_attended *a)
{
    const int n = a->n, d = a->d, dv = a->dv;
    const double scale = 1 / sqrt(d);
    double *p = a->scratch, *e = p + n, *moved = e + n, largest = -INFINITY, sum = 0, mean = 0;
    for (int j = 0; j < n; j++) {
        const size_t at = (size_t)j * (size_t)d;
        double s = 0, size = 0;
        for (int i = 0; i < d; i++) {
            const double product = q[i] * a->keys[at + (size_t)i];
            s += product;
            size += fabs(product);
        }
        p[j] = s * scale;
        e[j] = scale * (kc_dot_bound(d) * size + (a->key_error ? 2 * together(q, a->key_error + at, d) : 0));
        moved[j] = a->key_rounding ? scale * together(q, a->key_rounding + at, d) : 0;
        largest = fmax(largest, p[j]);
    }
    for (int j = 0; j < n; j++) sum += p[j] = exp(p[j] - largest);
    for (int j = 0; j < n; j++) mean += (p[j] /= sum) * e[j];
    for (int i = 0; i < dv; i++) bound[i] = 0;
    for (int j = 0; j < n; j++) {
        /* a score off by e makes its probability off by the factor exp(e), all together move the normalisation */
        const double factor = p[j] * (expm1(e[j]) + expm1(mean) + kc_sum_bound(n) + 2 * kc.operand);
        for (int i = 0; i < dv; i++) bound[i] += factor * fabs(a->values[(size_t)j * (size_t)dv + (size_t)i]);
    }
    if (kc.act != S2_F32) add_roundings(bound, a, p, moved, sum);
}

/* decoder.c - cases of the mask decoder's steps. Their bounds follow values and errors from product to product:
 * independent errors add up as in bound.c, those of a softmax's scores through what each does to the result. */
#include "kcheck.h"

#include <math.h>

enum { C = 256, INNER = 128, HEADS = S2_DECODER_HEADS };

/* Rows of values, each off by at most its error */
struct vals {
    int rows, c;
    double *v, *e;
};

static struct vals vals(int rows, int c)
{
    const size_t size = (size_t)rows * (size_t)c;
    return (struct vals){rows, c, kc_scratch(size, sizeof(double)), kc_scratch(size, sizeof(double))};
}

static struct vals of(struct kc_tensor t)
{
    const struct s2_tensor *s = &t.on[KC_ORACLE];
    struct vals y = vals((int)s2_tokens(*s), s->c);
    for (int i = 0; i < y.rows * y.c; i++) y.v[i] = kc_value(t, i / y.c, i % y.c);
    return y;
}

/* a + b, b's rows again and again, kept in the activation type */
static struct vals plus(struct vals a, struct vals b)
{
    struct vals y = vals(a.rows, a.c);
    for (int i = 0; i < a.rows * a.c; i++) {
        const int j = i % (b.rows * b.c);
        y.v[i] = a.v[i] + b.v[j];
        y.e[i] = a.e[i] + b.e[j] + 2 * kc.eps * (fabs(a.v[i]) + fabs(b.v[j])) + kc_store_bound(y.v[i]);
    }
    return y;
}

static double root_of_squares(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i] * a[i] * b[i];
    return sqrt(sum);
}

/* act(x W^T + b), kept in the activation type */
static struct vals product(struct vals x, const struct kc_linear *l, enum s2_act act)
{
    struct vals y = vals(x.rows, l->out);
    double *row = kc_scratch((size_t)l->in, sizeof *row);
    for (int o = 0; o < l->out; o++) {
        for (int i = 0; i < l->in; i++) row[i] = l->w[(size_t)o * (size_t)l->in + (size_t)i];
        for (int r = 0; r < x.rows; r++) {
            double sum = l->b[o], size = fabs(sum);
            for (int i = 0; i < l->in; i++) {
                sum += row[i] * x.v[r * l->in + i];
                size += fabs(row[i] * x.v[r * l->in + i]);
            }
            const double given = 2 * root_of_squares(row, x.e + (size_t)r * (size_t)l->in, l->in);
            const double error = kc_dot_bound(l->in) * size + given + kc_store_bound(sum);
            y.v[r * l->out + o] = act == S2_ACT_RELU ? fmax(sum, 0) : sum;
            y.e[r * l->out + o] = error;
        }
    }
    return y;
}

/* What is given for one head of an attention: q [d], and [n][d] keys and values of one entry. seen [n][m], weight
 * [d][m]: keys are its products with these, and q may be multiplied by the weights instead, and then kept; or NULL. */
struct head {
    int n, d, m;
    const double *q, *q_error, *k, *k_error, *v, *v_error, *seen, *weight;
    double *p, *moved, *folded, *pulled; /* scratch: [n], [n], [m], [m or d] */
};

/* How far a number added to each of the `count` of a query moves channel `channel` of the result y, where it moves
 * scores by along [n][count]: the covariance of the two. */
static void pull(double *to, const struct head *h, const double *along, int count, double y, int channel)
{
    for (int c = 0; c < count; c++) to[c] = 0;
    for (int j = 0; j < h->n; j++) {
        const double share = h->p[j] * (h->v[j * h->d + channel] - y), *row = along + (size_t)j * (size_t)count;
        for (int c = 0; c < count; c++) to[c] += share * row[c];
    }
}

static void attend(double *y, double *error, const struct head *h)
{
    const double scale = 1 / sqrt(h->d);
    double *p = h->p, largest = -INFINITY, sum = 0;
    for (int j = 0; j < h->n; j++) {
        const double *k = h->k + (size_t)j * (size_t)h->d;
        double size = 0;
        p[j] = 0;
        for (int i = 0; i < h->d; i++) p[j] += scale * h->q[i] * k[i], size += scale * fabs(h->q[i] * k[i]);
        const double rounded = scale * root_of_squares(h->q, h->k_error + (size_t)j * (size_t)h->d, h->d);
        h->moved[j] = hypot(rounded, kc_dot_bound(h->d) * size);
        largest = fmax(largest, p[j]);
    }
    for (int j = 0; j < h->n; j++) sum += p[j] = exp(p[j] - largest);
    for (int j = 0; j < h->n; j++) p[j] /= sum;
    for (int c = 0; c < h->m; c++) {
        h->folded[c] = 0;
        for (int i = 0; i < h->d; i++) h->folded[c] += h->q[i] * h->weight[(size_t)i * (size_t)h->m + (size_t)c];
    }
    for (int i = 0; i < h->d; i++) {
        double squares = 0, size = 0;
        y[i] = 0;
        for (int j = 0; j < h->n; j++) y[i] += p[j] * h->v[j * h->d + i], size += fabs(p[j] * h->v[j * h->d + i]);
        pull(h->pulled, h, h->k, h->d, y[i], i);
        for (int d = 0; d < h->d; d++) squares += pow(scale * h->q_error[d] * h->pulled[d], 2);
        pull(h->pulled, h, h->seen, h->m, y[i], i);
        for (int c = 0; c < h->m; c++) squares += pow(scale * kc_store_bound(h->folded[c]) * h->pulled[c], 2);
        for (int j = 0; j < h->n; j++) {
            const double v = h->v[j * h->d + i], share = 1.5 * kc_store_bound(p[j] * sum) / sum + p[j] * kc.operand;
            squares += pow(p[j] * h->moved[j] * (v - y[i]), 2) + pow(p[j] * h->v_error[j * h->d + i], 2);
            squares += pow(share * v, 2);
        }
        /* what is more than proportional in the scores' errors, and float32 */
        error[i] = 2.5 * sqrt(squares) + (kc_sum_bound(h->n) + 16 * kc.eps) * size + kc_store_bound(y[i]);
    }
}

static double *columns(const double *v, int rows, int c, int first, int count)
{
    double *y = kc_scratch((size_t)rows * (size_t)count, sizeof *y);
    for (int i = 0; i < rows * count; i++) y[i] = v[i / count * c + first + i % count];
    return y;
}

/* All heads of n entries. seen, l: what k was made of, where q may be multiplied by l instead; l NULL: no. */
static struct vals attention(int n, struct vals q, struct vals k, struct vals v, struct vals seen,
                             const struct kc_linear *l)
{
    struct vals y = vals(q.rows, q.c);
    const int d = q.c / HEADS, queries = q.rows / n, keys = k.rows / n;
    for (int i = 0; i < n * HEADS; i++) {
        const int first = i % HEADS * d, entry = i / HEADS;
        const size_t at = (size_t)entry * (size_t)keys * (size_t)k.c;
        struct head h = {.n = keys, .d = d, .m = l ? l->in : 0};
        h.p = kc_scratch((size_t)keys, sizeof *h.p), h.moved = kc_scratch((size_t)keys, sizeof *h.moved);
        h.folded = kc_scratch((size_t)h.m, sizeof *h.folded);
        h.pulled = kc_scratch((size_t)(h.m + d), sizeof *h.pulled);
        h.k = columns(k.v + at, keys, k.c, first, d), h.k_error = columns(k.e + at, keys, k.c, first, d);
        h.v = columns(v.v + at, keys, v.c, first, d), h.v_error = columns(v.e + at, keys, v.c, first, d);
        if (l) {
            double *w = kc_scratch((size_t)d * (size_t)l->in, sizeof *w);
            for (int j = 0; j < d * l->in; j++) w[j] = l->w[first * l->in + j];
            h.weight = w, h.seen = seen.v + (size_t)entry * (size_t)keys * (size_t)seen.c;
        }
        for (int r = 0; r < queries; r++) {
            const int row = (entry * queries + r) * q.c + first;
            h.q = q.v + row, h.q_error = q.e + row;
            attend(y.v + row, y.e + row, &h);
        }
    }
    return y;
}

static struct vals normalised(struct vals x, const struct kc_norm *norm, double eps)
{
    struct vals y = vals(x.rows, x.c);
    for (int r = 0; r < x.rows; r++) {
        const double *v = x.v + (size_t)r * (size_t)x.c, *e = x.e + (size_t)r * (size_t)x.c;
        double mean = 0, size = 0, variance = 0, moved = 0, stretched = 0;
        for (int i = 0; i < x.c; i++) mean += v[i] / x.c, size += fabs(v[i]) / x.c, moved += e[i] * e[i];
        for (int i = 0; i < x.c; i++) {
            variance += (v[i] - mean) * (v[i] - mean) / x.c;
            stretched += (v[i] - mean) * (v[i] - mean) * e[i] * e[i];
        }
        const double scale = 1 / sqrt(variance + eps), shift = 2 * sqrt(moved) / x.c;
        const double stretch = 2 * sqrt(stretched) / x.c * scale * scale;
        for (int i = 0; i < x.c; i++) {
            const double w = norm->weight[i], b = norm->bias[i], d = v[i] - mean;
            y.v[r * x.c + i] = d * scale * w + b;
            y.e[r * x.c + i] = fabs(w) * scale * (e[i] + shift + 1.25 * fabs(d) * stretch) +
                               kc_sum_bound(x.c) * ((fabs(v[i]) + size) * scale * fabs(w) + fabs(b));
        }
    }
    return y;
}

/* ------------------------------------------------------------------ the steps */

struct projections {
    struct kc_linear q, k, v, out;
    struct s2_projections on[KC_SIDES];
};

static struct projections projections(int inner)
{
    struct projections p = {.q = kc_linear(C, inner)};
    p.k = kc_linear(C, inner), p.v = kc_linear(C, inner), p.out = kc_linear(inner, C);
    KC_EACH(s) p.on[s] = (struct s2_projections){p.q.on[s], p.k.on[s], p.v.on[s], p.out.on[s]};
    return p;
}

static void projections_free(struct projections *p)
{
    kc_linear_free(&p->q), kc_linear_free(&p->k), kc_linear_free(&p->v), kc_linear_free(&p->out);
}

/* Whatever an operator leaves in it */
static struct kc_tensor room(int n, int tokens, int image)
{
    struct kc_tensor t = kc_poison(1, 1, 1, (int)s2_decoder_room(n, tokens, image));
    t.buffer->checked = true;
    return t;
}

static void token_attention(int n, int t, double size, bool prompted, bool in_place)
{
    kc_begin("%d x %d tokens, size %g%s%s", n, t, size, prompted ? ", prompt" : "", in_place ? ", in place" : "");
    struct projections p = projections(C);
    struct kc_norm norm = kc_norm(C, 1e-5f);
    struct kc_tensor x = kc_noise(n, 1, t, C, size), y = in_place ? x : kc_poison(n, 1, t, C), more = room(n, t, 0);
    struct kc_tensor prompt = prompted ? kc_noise(n, 1, t, C, size) : kc_none(n, 1, t, C);
    const struct vals from = of(x), at = prompted ? plus(from, of(prompt)) : from;
    struct vals a = attention(n, product(at, &p.q, S2_ACT_NONE), product(at, &p.k, S2_ACT_NONE),
                              product(from, &p.v, S2_ACT_NONE), at, NULL);
    a = product(a, &p.out, S2_ACT_NONE);
    if (prompted) a = plus(a, from);
    KC_EACH(s)
    KC_RUN(s, token_attention, y.on[s], x.on[s], prompted ? prompt.on[s] : (struct s2_tensor){0}, &p.on[s], &norm.on[s],
           more.on[s]);
    kc_close(y, normalised(a, &norm, 1e-5).e);
    projections_free(&p);
    kc_end();
}

void check_token_attention(void)
{
    token_attention(1, 1, 1, true, true);
    token_attention(1, 8, 1, false, false);
    token_attention(2, 8, 2, true, true);
    token_attention(3, 7, 1, true, false);
    token_attention(8, 8, 1, true, true);
    token_attention(2, 9, 1, true, true);
    token_attention(1, 37, 1, false, false);
}

static void token_to_image(int n, int t, int tokens, double size)
{
    kc_begin("%d x %d tokens, image of %d, size %g", n, t, tokens, size);
    struct projections p = projections(INNER);
    struct kc_norm norm = kc_norm(C, 1e-5f);
    struct kc_tensor y = kc_noise(n, 1, t, C, 0.5 * size), prompt = kc_noise(n, 1, t, C, size),
                     more = room(n, t, tokens);
    struct kc_tensor image = kc_noise(n, 1, tokens, C, size), pe = kc_noise(1, 1, tokens, C, 1);
    const struct vals at = plus(of(image), of(pe));
    struct vals a = attention(n, product(plus(of(y), of(prompt)), &p.q, S2_ACT_NONE), product(at, &p.k, S2_ACT_NONE),
                              product(of(image), &p.v, S2_ACT_NONE), at, &p.k);
    a = plus(product(a, &p.out, S2_ACT_NONE), of(y));
    KC_EACH(s)
    KC_RUN(s, token_to_image, y.on[s], prompt.on[s], image.on[s], pe.on[s], &p.on[s], &norm.on[s], more.on[s]);
    kc_close(y, normalised(a, &norm, 1e-5).e);
    projections_free(&p);
    kc_end();
}

void check_token_to_image(void)
{
    token_to_image(1, 1, 1, 1);
    token_to_image(1, 8, 64, 1);
    token_to_image(2, 8, 100, 2);
    token_to_image(2, 7, 63, 3);
    token_to_image(1, 9, 49, 1);
    if (kc.quick) return;
    token_to_image(1, 8, 256, 1);
    token_to_image(1, 8, 1024, 2);
    if (!kc.gpu) return;
    token_to_image(1, 8, 4096, 1);
    token_to_image(8, 8, 193, 3);
}

static void token_mlp(int n, int t, int hidden)
{
    kc_begin("%d x %d tokens, hidden %d", n, t, hidden);
    struct kc_linear fc1 = kc_linear(C, hidden), fc2 = kc_linear(hidden, C);
    struct kc_norm norm = kc_norm(C, 1e-5f);
    struct kc_tensor x = kc_noise(n, 1, t, C, 1);
    const struct vals from = of(x), y = product(product(from, &fc1, S2_ACT_RELU), &fc2, S2_ACT_NONE);
    KC_EACH(s) KC_RUN(s, token_mlp, x.on[s], &fc1.on[s], &fc2.on[s], &norm.on[s]);
    kc_close(x, normalised(plus(y, from), &norm, 1e-5).e);
    kc_linear_free(&fc1);
    kc_linear_free(&fc2);
    kc_end();
}

void check_token_mlp(void)
{
    token_mlp(1, 1, 2048);
    token_mlp(1, 8, 2048);
    token_mlp(3, 7, 2048);
    token_mlp(8, 8, 2048);
    token_mlp(2, 9, 2048);
    token_mlp(2, 8, 100);
}

/* Values multiplied by p->out first, and then kept: what that adds to the errors of the product y. */
static void add_kept_values(struct vals y, struct vals v, const struct kc_linear *out, int n)
{
    const int d = v.c / HEADS, t = v.rows / n;
    for (int entry = 0; kc.act != S2_F32 && entry < n; entry++) {
        for (int o = 0; o < y.c; o++) {
            double squares = 0; /* no probability is above 1, and those of a head are 1 together */
            for (int h = 0; h < HEADS; h++) {
                double largest = 0;
                for (int j = 0; j < t; j++) {
                    double sum = 0;
                    for (int i = h * d; i < (h + 1) * d; i++) {
                        sum += out->w[o * out->in + i] * v.v[(entry * t + j) * v.c + i];
                    }
                    largest = fmax(largest, kc_store_bound(sum));
                }
                squares += largest * largest;
            }
            for (int r = 0; r < y.rows / n; r++) y.e[(entry * (y.rows / n) + r) * y.c + o] += 2 * sqrt(squares);
        }
    }
}

/* Mean squares of the columns of each entry's rows, [n][c] */
static double *mean_squares(struct vals x, int n)
{
    double *y = kc_scratch((size_t)n * (size_t)x.c, sizeof *y);
    const int rows = x.rows / n;
    for (int i = 0; i < x.rows * x.c; i++) y[i / x.c / rows * x.c + i % x.c] += x.v[i] * x.v[i] / rows;
    return y;
}

/* Keys k may be multiplied by the weights l of the queries q = l at instead, and then kept: errors of k that move
 * scores as much as that. */
static struct vals folded_keys(struct vals k, struct vals q, struct vals at, const struct kc_linear *l, int n)
{
    const int d = k.c / HEADS, t = k.rows / n;
    const double *in = mean_squares(at, n), *out = mean_squares(q, n);
    struct vals y = vals(k.rows, k.c);
    y.v = k.v;
    for (int i = 0; i < k.rows * HEADS; i++) {
        const int row = i / HEADS, first = i % HEADS * d, entry = row / t;
        double squares = 0;
        for (int c = 0; c < at.c; c++) {
            double folded = 0;
            for (int j = first; j < first + d; j++) folded += l->w[j * at.c + c] * k.v[row * k.c + j];
            squares += in[entry * at.c + c] * pow(kc_store_bound(folded), 2);
        }
        for (int j = first; j < first + d; j++) {
            const double more = 2 * sqrt(squares / d / fmax(out[entry * k.c + j], 1e-3));
            y.e[row * k.c + j] = hypot(k.e[row * k.c + j], more);
        }
    }
    return y;
}

static void image_to_token(int n, int t, int tokens, double size)
{
    kc_begin("image of %d, %d x %d tokens, size %g", tokens, n, t, size);
    struct projections p = projections(INNER);
    struct kc_norm norm = kc_norm(C, 1e-5f);
    struct kc_tensor x = kc_noise(n, 1, t, C, size), prompt = kc_noise(n, 1, t, C, size), more = room(n, t, tokens);
    struct kc_tensor y = kc_noise(n, 1, tokens, C, size), pe = kc_noise(1, 1, tokens, C, 1);
    const struct vals at = plus(of(y), of(pe)), q = product(at, &p.q, S2_ACT_NONE);
    const struct vals v = product(of(x), &p.v, S2_ACT_NONE);
    const struct vals k = folded_keys(product(plus(of(x), of(prompt)), &p.k, S2_ACT_NONE), q, at, &p.q, n);
    struct vals a = product(attention(n, q, k, v, k, NULL), &p.out, S2_ACT_NONE);
    add_kept_values(a, v, &p.out, n);
    KC_EACH(s)
    KC_RUN(s, image_to_token, y.on[s], pe.on[s], x.on[s], prompt.on[s], &p.on[s], &norm.on[s], more.on[s]);
    kc_close(y, normalised(plus(a, of(y)), &norm, 1e-5).e);
    projections_free(&p);
    kc_end();
}

void check_image_to_token(void)
{
    image_to_token(1, 1, 1, 1);
    image_to_token(1, 8, 64, 1);
    image_to_token(2, 8, 100, 2);
    image_to_token(2, 7, 63, 1);
    image_to_token(1, 9, 49, 1);
    if (kc.quick) return;
    image_to_token(3, 8, 256, 1);
    if (!kc.gpu) return;
    image_to_token(8, 8, 1089, 1);
}

/* wide: into float32, else into columns of one tensor of the activation type */
static void token_heads(int n, int t, int n_heads, int out, enum s2_act last, bool wide)
{
    kc_begin("%d x %d tokens, %d heads of %d, activation %d%s", n, t, n_heads, out, last, wide ? ", float32" : "");
    struct kc_linear l[S2_MAX_HEADS][3];
    struct s2_linear on[KC_SIDES][S2_MAX_HEADS][3];
    struct s2_head head[KC_SIDES][S2_MAX_HEADS];
    struct kc_tensor x = kc_noise(n, 1, t, C, 1), y[S2_MAX_HEADS], more = room(n, t, 0);
    struct kc_tensor all = wide ? kc_poison_f32(n, 1, 1, n_heads * out) : kc_poison(n, 1, 1, n_heads * out);
    double *bound = kc_scratch((size_t)(n * n_heads * out), sizeof *bound);
    for (int i = 0; i < n_heads; i++) {
        const int token = (5 * i + 1) % t;
        struct vals v = vals(n, C);
        for (int j = 0; j < n * C; j++) v.v[j] = kc_value(x, j / C * t + token, j % C);
        for (int k = 0; k < 3; k++) {
            l[i][k] = kc_linear(C, k == 2 ? out : C);
            v = product(v, &l[i][k], k == 2 ? S2_ACT_NONE : S2_ACT_RELU);
        }
        for (int j = 0; j < n * out; j++) bound[(j / out * n_heads + i) * out + j % out] = kc_act_bound(v.e[j], last);
        y[i] = kc_columns(all, i * out, out);
        KC_EACH(s)
        {
            for (int k = 0; k < 3; k++) on[s][i][k] = l[i][k].on[s];
            head[s][i] = (struct s2_head){token, on[s][i], last, y[i].on[s]};
        }
    }
    KC_EACH(s) KC_RUN(s, token_heads, n_heads, head[s], x.on[s], more.on[s]);
    kc_close(all, bound);
    for (int i = 0; i < n_heads * 3; i++) kc_linear_free(&l[i / 3][i % 3]);
    kc_end();
}

void check_token_heads(void)
{
    token_heads(1, 8, 6, 32, S2_ACT_NONE, false);
    token_heads(3, 8, 4, 32, S2_ACT_NONE, false);
    token_heads(1, 1, 1, 1, S2_ACT_NONE, true);
    token_heads(5, 8, 2, 4, S2_ACT_SIGMOID, true);
    token_heads(8, 9, 1, 256, S2_ACT_NONE, true);
    token_heads(9, 3, 2, 33, S2_ACT_NONE, true);
}

/* GELU of x in place, kept in the activation type */
static void activate(struct vals x)
{
    for (int i = 0; i < x.rows * x.c; i++) {
        const double v = x.v[i];
        x.v[i] = 0.5 * v * (1 + erf(v * M_SQRT1_2));
        x.e[i] = kc_act_pass_bound(v, x.e[i], S2_ACT_GELU) + kc_store_bound(x.v[i]) + 4 * kc.eps * fabs(v);
    }
}

/* The pixel of a map that is part i of a token of scale x scale, w tokens a row; of 4 x 4, part i % 4 of part i / 4. */
static int pixel_of(int token, int w, int scale, int i)
{
    const int whole = scale == 4 ? i / 4 : i, sub = scale == 4 ? i % 4 : 0, twice = scale / 2;
    const int row = whole / 2 * twice + sub / 2, column = whole % 2 * twice + sub % 2;
    return (token / w * scale + row) * w * scale + token % w * scale + column;
}

static struct vals parts_of(struct kc_tensor map, int w, int scale)
{
    const struct vals from = of(map), y = vals(from.rows, from.c);
    for (int i = 0; i < from.rows * from.c; i++) {
        const int part = i / from.c, parts = scale * scale;
        y.v[i] = from.v[pixel_of(part / parts, w, scale, part % parts) * from.c + i % from.c];
    }
    return y;
}

static struct vals parts(struct vals x, int c)
{
    return (struct vals){x.rows * x.c / c, c, x.v, x.e};
}

static void upscaled_masks(int n, int h, int w, int masks, int c1, int c0)
{
    kc_begin("%d x %d of [%d,%d], %d and %d channels", n, masks, h, w, c1, c0);
    struct kc_linear up1 = kc_linear(C, 4 * c1), up2 = kc_linear(c1, 4 * c0);
    struct kc_norm norm = kc_norm(c1, 1e-6f);
    struct kc_tensor image = kc_noise(n, h, w, C, 1), hyper = kc_noise(n, 1, masks, c0, 1), more = room(n, 1, h * w);
    struct kc_tensor s1 = kc_noise(1, 2 * h, 2 * w, c1, 1), s0 = kc_noise(1, 4 * h, 4 * w, c0, 1);
    struct kc_tensor y = kc_poison_f32(n, masks, 16 * h * w, 1);
    struct vals u = plus(parts(product(of(image), &up1, S2_ACT_NONE), c1), parts_of(s1, w, 2));
    u = normalised(u, &norm, 1e-6);
    activate(u);
    u = plus(parts(product(u, &up2, S2_ACT_NONE), c0), parts_of(s0, w, 4));
    activate(u);
    double *bound = kc_scratch((size_t)(n * masks * 16 * h * w), sizeof *bound);
    const struct vals weights = of(hyper);
    for (int i = 0; i < u.rows; i++) {
        const int token = i / 16 % (h * w), entry = i / 16 / (h * w);
        for (int k = 0; k < masks; k++) {
            const double *weight = weights.v + (entry * masks + k) * c0, *v = u.v + (size_t)i * (size_t)c0;
            double size = 0;
            for (int c = 0; c < c0; c++) size += fabs(weight[c] * v[c]);
            bound[(entry * masks + k) * 16 * h * w + pixel_of(token, w, 4, i % 16)] =
                kc_dot_bound(c0) * size + 2 * root_of_squares(weight, u.e + (size_t)i * (size_t)c0, c0);
        }
    }
    KC_EACH(s)
    KC_RUN(s, upscaled_masks, y.on[s], hyper.on[s], image.on[s], &up1.on[s], s1.on[s], &norm.on[s], &up2.on[s],
           s0.on[s], more.on[s]);
    kc_close(y, bound);
    kc_linear_free(&up1);
    kc_linear_free(&up2);
    kc_end();
}

void check_upscaled_masks(void)
{
    upscaled_masks(1, 1, 1, 4, 64, 32);
    upscaled_masks(1, 4, 8, 4, 64, 32);
    upscaled_masks(2, 5, 7, 4, 64, 32);
    upscaled_masks(2, 3, 5, 3, 64, 32);
    upscaled_masks(1, 2, 3, 4, 48, 24);
    if (kc.quick || !kc.gpu) return;
    upscaled_masks(8, 24, 24, 4, 64, 32);
}

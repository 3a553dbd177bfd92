/* attention.c - multi-head attention, whole and in windows */
#include "plain.h"

#include <math.h>
#include <stdlib.h>

/* Scratch of one attention of `keys` keys, d channels a head. query[] is used by windows only. */
struct scratch {
    double *k, *v, *q, *y, *scores;
    const float **query, **key, **value; /* [keys] rows of tokens */
};

/* Channels channel .. channel+d-1 of the keys and values as plain_attend wants them. */
static void pack_head(struct scratch *s, int keys, int channel, int d)
{
    for (int i = 0; i < keys; i++) {
        for (int c = 0; c < d; c++) {
            s->k[plain_at(d, c, i)] = s->key[i][channel + c];
            s->v[plain_at(keys, i, c)] = s->value[i][channel + c];
        }
    }
}

static bool scratch_alloc(struct s2_backend *be, struct scratch *s, int keys, int d)
{
    s->k = plain_doubles(be, plain_packed_size(d, keys), 1);
    s->v = plain_doubles(be, plain_packed_size(keys, d), 1);
    s->q = plain_doubles(be, PLAIN_ROWS, (size_t)d);
    s->y = plain_doubles(be, PLAIN_ROWS, (size_t)d);
    s->scores = plain_doubles(be, PLAIN_ROWS, (size_t)keys);
    s->query = calloc((size_t)keys, sizeof *s->query);
    s->key = calloc((size_t)keys, sizeof *s->key);
    s->value = calloc((size_t)keys, sizeof *s->value);
    if (!s->query || !s->key || !s->value) {
        be->skip = true;
        s2_no_memory(&be->err, "the scratch of an operator", (size_t)keys * sizeof *s->key);
    }
    return !be->skip;
}

static void scratch_free(struct scratch *s)
{
    free(s->k);
    free(s->v);
    free(s->q);
    free(s->y);
    free(s->scores);
    free(s->query);
    free(s->key);
    free(s->value);
}

void plain_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, struct s2_tensor k,
                     struct s2_tensor v, int heads)
{
    if (be->skip) return;
    const int d = q.c / heads, queries = q.h * q.w, keys = k.h * k.w;
    struct scratch s = {0};
    const int batch = scratch_alloc(be, &s, keys, d) ? q.n : 0;
    for (int n = 0; n < batch; n++) {
        for (int i = 0; i < keys; i++) {
            s.key[i] = plain_token(k, (int64_t)n * keys + i);
            s.value[i] = plain_token(v, (int64_t)n * keys + i);
        }
        for (int h = 0; h < heads; h++) {
            pack_head(&s, keys, h * d, d);
            for (int first = 0; first < queries; first += PLAIN_ROWS) {
                const int rows = queries - first < PLAIN_ROWS ? queries - first : PLAIN_ROWS;
                const int64_t token = (int64_t)n * queries + first;
                plain_load(s.q, s2_columns(q, h * d, d), token, rows);
                plain_attend(s.y, s.q, s.k, s.v, s.scores, rows, keys, d, d, 1 / sqrt(d));
                for (int r = 0; r < rows; r++) {
                    for (int c = 0; c < d; c++) plain_token(y, token + r)[h * d + c] = (float)s.y[r * d + c];
                }
            }
        }
    }
    scratch_free(&s);
}

/* A window: side lengths and the map position of its top left token. */
struct window {
    int h, w, top, left;
};

/* The largest of the 2x2 queries at (y, x) of the pooled window; channel c. */
static float pooled(const float **query, struct window win, int y, int x, int c)
{
    const float **t = query + 2 * y * win.w + 2 * x;
    const float top = fmaxf(t[0][c], t[1][c]), bottom = fmaxf(t[win.w][c], t[win.w + 1][c]);
    return fmaxf(top, bottom);
}

static void attend_window(struct s2_tensor y, struct scratch *s, struct window win, int heads, bool pool)
{
    const int cell = pool ? 2 : 1, d = y.c / heads, keys = win.h * win.w;
    const int h = win.h / cell, w = win.w / cell, top = win.top / cell, left = win.left / cell;
    for (int head = 0; head < heads; head++) {
        pack_head(s, keys, head * d, d);
        for (int first = 0; first < h * w; first += PLAIN_ROWS) {
            const int rows = h * w - first < PLAIN_ROWS ? h * w - first : PLAIN_ROWS;
            for (int i = 0; i < rows * d; i++) {
                const int query = first + i / d, channel = head * d + i % d;
                s->q[i] = pool ? pooled(s->query, win, query / w, query % w, channel) : s->query[query][channel];
            }
            plain_attend(s->y, s->q, s->k, s->v, s->scores, rows, keys, d, d, 1 / sqrt(d));
            for (int r = 0; r < rows; r++) {
                const int row = top + (first + r) / w, column = left + (first + r) % w;
                if (row >= y.h || column >= y.w) continue;
                float *to = plain_token(y, (int64_t)row * y.w + column) + head * d;
                for (int c = 0; c < d; c++) to[c] = (float)s->y[r * d + c];
            }
        }
    }
}

static void map_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor qkv, const struct s2_linear *lin,
                          int heads, int window, bool pool)
{
    const float *padding = ((const struct plain_matrix *)lin->impl)->bias;
    struct window win = {window ? window : qkv.h, window ? window : qkv.w, 0, 0};
    struct scratch s = {0};
    const int bottom = scratch_alloc(be, &s, win.h * win.w, y.c / heads) ? qkv.h : 0;
    for (win.top = 0; win.top < bottom; win.top += win.h) {
        for (win.left = 0; win.left < qkv.w; win.left += win.w) {
            for (int i = 0; i < win.h * win.w; i++) {
                const int row = win.top + i / win.w, column = win.left + i % win.w;
                const bool inside = row < qkv.h && column < qkv.w;
                s.query[i] = inside ? plain_token(qkv, (int64_t)row * qkv.w + column) : padding;
                s.key[i] = s.query[i] + y.c;
                s.value[i] = s.key[i] + y.c;
            }
            attend_window(y, &s, win, heads, pool);
        }
    }
    scratch_free(&s);
}

void plain_window_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor qkv,
                            const struct s2_linear *lin, int heads, int window, bool pool)
{
    for (int i = 0; !be->skip && i < y.n; i++)
        map_attention(be, s2_batch(y, i, 1), s2_batch(qkv, i, 1), lin, heads, window, pool);
}

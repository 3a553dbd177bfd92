/* memory.c - storing memories and attending to them */
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common.h"

void plain_memory_mask(struct s2_backend *be, struct s2_tensor y, struct s2_tensor low, bool binarize)
{
    if (be->skip) return;
    for (int64_t i = 0; i < s2_tokens(y); i++) {
        const int64_t map = (int64_t)y.h * y.w, p = i % map;
        const float *logits = (const float *)low.data + i / map * low.h * low.w;
        const float v = s2i_bilinear_at(logits, low.w, s2i_bilinear_tap(low.h, y.h, (int)(p / y.w)),
                                        s2i_bilinear_tap(low.w, y.w, (int)(p % y.w)));
        const double m = binarize ? v > 0 : plain_activate(v, S2_ACT_SIGMOID);
        *plain_token(y, i) = (float)(20 * m - 10);
    }
}

void plain_bank_store(struct s2_backend *be, const struct s2_bank *bank, const int32_t *slot, const int32_t *ptr_slot,
                      struct s2_tensor mem, struct s2_tensor ptr)
{
    if (be->skip) return;
    const size_t size = (size_t)bank->tokens * (size_t)bank->dim;
    for (int n = 0; n < mem.n; n++) {
        if (slot[n] >= 0) {
            const float *from = (const float *)mem.data + (size_t)n * size;
            uint16_t *to = (uint16_t *)bank->spatial + (size_t)slot[n] * size;
            for (size_t i = 0; i < size; i++) to[i] = s2_bf16(from[i]);
        }
        if (ptr_slot[n] >= 0) {
            memcpy(bank->pointers + (size_t)ptr_slot[n] * (size_t)bank->ptr_dim, plain_token(ptr, n),
                   (size_t)bank->ptr_dim * sizeof(float));
        }
    }
}

void plain_pointer_positions(struct s2_backend *be, struct s2_tensor y, const struct s2_bank_table *table,
                             const struct s2_linear *lin)
{
    if (be->skip) return;
    if (!lin) {
        memset(y.data, 0, (size_t)s2_elements(y) * sizeof(float));
        return;
    }
    const int half = lin->in / 2;
    double *sine = plain_doubles(be, (size_t)lin->in, 1), *out = plain_doubles(be, (size_t)lin->out, 1);
    const int batch = sine && out ? y.n : 0;
    for (int n = 0; n < batch; n++) {
        for (int j = 0; j < table->counts[2 * n + 1]; j++) {
            const int64_t at = (int64_t)n * table->ptr_cap + j;
            for (int i = 0; i < half; i++) {
                const float angle = s2i_sine_argument(table->ptr_dist[at], i, half);
                sine[i] = sin(angle);
                sine[half + i] = cos(angle);
            }
            plain_affine(out, sine, lin->impl, 1);
            for (int c = 0; c < y.c; c++) plain_token(y, at)[c] = (float)out[c];
        }
    }
    free(sine);
    free(out);
}

/* The operands of one memory attention that all batch entries share. */
struct memories {
    const struct s2_bank *bank;
    const struct s2_bank_table *table;
    const struct plain_matrix *kproj;
    const float *pe, *tpos, *rope;
    struct s2_tensor ptr_pos;
};

static int key_count(const struct memories *m, int n)
{
    const int parts = m->bank->ptr_dim / m->bank->dim;
    return m->table->counts[2 * n] * m->bank->tokens + m->table->counts[2 * n + 1] * parts;
}

/* memory [dim] and its position [dim] of key i of entry n; *turn is its row of the rotation or NULL. */
static void read_key(const struct memories *m, int n, int i, double *memory, double *position, const float **turn)
{
    const struct s2_bank *bank = m->bank;
    const struct s2_bank_table *table = m->table;
    const int dim = bank->dim, spatial = table->counts[2 * n] * bank->tokens;
    if (i < spatial) {
        const int entry = n * table->spatial_cap + i / bank->tokens, token = i % bank->tokens;
        const uint16_t *from = (const uint16_t *)bank->spatial +
                               ((size_t)table->slot[entry] * (size_t)bank->tokens + (size_t)token) * (size_t)dim;
        for (int c = 0; c < dim; c++) {
            memory[c] = s2_from_bf16(from[c]);
            position[c] = (double)m->pe[token * dim + c] + m->tpos[table->row[entry] * dim + c];
        }
        *turn = m->rope + (size_t)token * (size_t)m->kproj->out;
        return;
    }
    const int parts = bank->ptr_dim / dim, j = (i - spatial) / parts, part = (i - spatial) % parts;
    const int entry = n * table->ptr_cap + j;
    const float *from = bank->pointers + (size_t)table->ptr_slot[entry] * (size_t)bank->ptr_dim + part * dim;
    for (int c = 0; c < dim; c++) {
        memory[c] = from[c];
        position[c] = plain_token(m->ptr_pos, entry)[c];
    }
    *turn = NULL;
}

/* All keys of entry n, projected and rotated, and their memories, packed for plain_attend.
 * row: scratch [2 * dim + kproj->out] */
static void pack_memories(double *k, double *v, const struct memories *m, int n, double *row)
{
    const int dim = m->bank->dim, d = m->kproj->out, keys = key_count(m, n);
    double *memory = row, *sum = row + dim, *key = sum + dim;
    for (int i = 0; i < keys; i++) {
        const float *turn;
        read_key(m, n, i, memory, sum, &turn);
        for (int c = 0; c < dim; c++) {
            sum[c] += memory[c];
            v[plain_at(keys, i, c)] = memory[c];
        }
        plain_affine(key, sum, m->kproj, 1);
        for (int c = 0; c < d; c += 2) {
            const double a = key[c], b = key[c + 1], cosine = turn ? turn[c] : 1, sine = turn ? turn[c + 1] : 0;
            k[plain_at(d, c, i)] = a * cosine - b * sine;
            k[plain_at(d, c + 1, i)] = a * sine + b * cosine;
        }
    }
}

static void attend_entry(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const struct memories *m, int n)
{
    const int dim = m->bank->dim, d = m->kproj->out, keys = key_count(m, n);
    double *k = plain_doubles(be, plain_packed_size(d, keys), 1),
           *v = plain_doubles(be, plain_packed_size(keys, dim), 1);
    double *scores = plain_doubles(be, PLAIN_ROWS, (size_t)keys), *row = plain_doubles(be, (size_t)(2 * dim + d), 1);
    double *query = plain_doubles(be, PLAIN_ROWS, (size_t)d), *out = plain_doubles(be, PLAIN_ROWS, (size_t)dim);
    const int queries = be->skip ? 0 : q.h * q.w;
    if (queries > 0) pack_memories(k, v, m, n, row);
    for (int first = 0; first < queries; first += PLAIN_ROWS) {
        const int rows = queries - first < PLAIN_ROWS ? queries - first : PLAIN_ROWS;
        const int64_t token = (int64_t)n * queries + first;
        plain_load(query, q, token, rows);
        plain_attend(out, query, k, v, scores, rows, keys, d, dim, 1 / sqrt(d));
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < dim; c++) plain_token(y, token + r)[c] = (float)out[r * dim + c];
        }
    }
    free(k);
    free(v);
    free(scores);
    free(row);
    free(query);
    free(out);
}

void plain_memory_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const struct s2_bank *bank,
                            const struct s2_bank_table *table, const struct s2_linear *kproj, const float *pe,
                            const float *tpos, struct s2_tensor ptr_pos, const float *rope)
{
    if (be->skip) return;
    const struct memories m = {bank, table, kproj->impl, pe, tpos, rope, ptr_pos};
    for (int n = 0; n < q.n && !be->skip; n++) {
        const int64_t token = (int64_t)n * y.h * y.w;
        if (key_count(&m, n) > 0) {
            attend_entry(be, y, q, &m, n);
        } else {
            memset(plain_token(y, token), 0, (size_t)y.h * (size_t)y.w * (size_t)y.c * sizeof(float));
        }
    }
}

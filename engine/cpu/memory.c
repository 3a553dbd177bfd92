/* memory.c - the memory bank: masks into it, positions, attention over it. */
#include "cpu.h"

#include <math.h>
#include <string.h>

void cpu_memory_mask(struct s2_backend *be, struct s2_tensor y, struct s2_tensor low, bool binarize)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int64_t map = (int64_t)low.h * low.w;
    if (!cpu_scratch(cpu, (size_t)y.w * sizeof(struct s2i_tap), 0)) return;
    struct s2i_tap *across = cpu_shared(cpu);
    for (int x = 0; x < y.w; x++) across[x] = s2i_bilinear_tap(low.w, y.w, x);

    CPU_PARALLEL_FOR(cpu, s2_tokens(y))
    for (int row = 0; row < y.n * y.h; row++) {
        const float *logits = (const float *)low.data + row / y.h * map;
        const struct s2i_tap down = s2i_bilinear_tap(low.h, y.h, row % y.h);
        float *to = cpu_token(y, (int64_t)row * y.w);
        for (int x = 0; x < y.w; x++) to[x] = s2i_bilinear_at(logits, low.w, down, across[x]);
        if (!binarize) cpu->kern->sigmoid20(to, (size_t)y.w);
        for (int x = 0; binarize && x < y.w; x++) to[x] = to[x] > 0 ? 10.0f : -10.0f;
    }
}

void cpu_bank_store(struct s2_backend *be, const struct s2_bank *bank, const int32_t *slot, const int32_t *ptr_slot,
                    struct s2_tensor mem, struct s2_tensor ptr)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const size_t size = (size_t)bank->tokens * (size_t)bank->dim;
    CPU_PARALLEL_FOR(cpu, s2_elements(mem) / 16)
    for (int n = 0; n < mem.n; n++) {
        if (slot[n] >= 0)
            cpu->kern->narrow((uint16_t *)bank->spatial + (size_t)slot[n] * size,
                              (const float *)mem.data + (size_t)n * size, size);
        if (ptr_slot[n] >= 0)
            memcpy(bank->pointers + (size_t)ptr_slot[n] * (size_t)bank->ptr_dim, cpu_token(ptr, n),
                   (size_t)bank->ptr_dim * sizeof(float));
    }
}

void cpu_pointer_positions(struct s2_backend *be, struct s2_tensor y, const struct s2_bank_table *table,
                           const struct s2_linear *lin)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    if (!lin) {
        memset(y.data, 0, (size_t)s2_elements(y) * sizeof(float));
        return;
    }
    const int half = lin->in / 2;
    if (!cpu_scratch(cpu, 0, (size_t)lin->in * sizeof(float))) return;
    CPU_PARALLEL_FOR(cpu, y.n * table->ptr_cap * 4 * half)
    for (int at = 0; at < y.n * table->ptr_cap; at++) {
        if (at % table->ptr_cap >= table->counts[2 * (at / table->ptr_cap) + 1]) continue;
        float *sine = cpu_local(cpu);
        for (int i = 0; i < half; i++) {
            const float angle = s2i_sine_argument(table->ptr_dist[at], i, half);
            sine[i] = sinf(angle);
            sine[half + i] = cosf(angle);
        }
        cpu_affine(cpu, cpu_token(y, at), y.ld, sine, lin->in, 1, lin->impl, 0, lin->out, S2_ACT_NONE, false);
    }
}

/* The operands of one memory attention that all batch entries share. */
struct memories {
    const struct s2_bank *bank;
    const struct s2_bank_table *table;
    const struct cpu_matrix *kproj;
    const float *pe, *tpos, *rope;
    struct s2_tensor ptr_pos;
};

static int key_count(const struct memories *m, int n)
{
    const int parts = m->bank->ptr_dim / m->bank->dim;
    return m->table->counts[2 * n] * m->bank->tokens + m->table->counts[2 * n + 1] * parts;
}

static int key_capacity(const struct memories *m)
{
    return m->table->spatial_cap * m->bank->tokens + m->table->ptr_cap * (m->bank->ptr_dim / m->bank->dim);
}

/* Key i of entry n: its memory as value, memory and position summed as input of the key projection. Returns its row
 * of the rotation, NULL for none. */
static const float *read_key(const struct cpu_backend *cpu, const struct memories *m, int n, int i, float *value,
                             float *input)
{
    const struct s2_bank *bank = m->bank;
    const struct s2_bank_table *table = m->table;
    const int dim = bank->dim, spatial = table->counts[2 * n] * bank->tokens;
    if (i < spatial) {
        const int entry = n * table->spatial_cap + i / bank->tokens, token = i % bank->tokens;
        const uint16_t *from =
            (const uint16_t *)bank->spatial + ((ptrdiff_t)table->slot[entry] * bank->tokens + token) * dim;
        cpu->kern->widen(value, from, (size_t)dim);
        cpu->kern->memory_token(input, from, m->pe + (ptrdiff_t)token * dim, m->tpos + table->row[entry] * dim, dim);
        return m->rope + (ptrdiff_t)token * m->kproj->out;
    }
    const int parts = bank->ptr_dim / dim, j = (i - spatial) / parts, part = (i - spatial) % parts;
    const int entry = n * table->ptr_cap + j;
    const float *from = bank->pointers + (ptrdiff_t)table->ptr_slot[entry] * bank->ptr_dim + part * dim;
    memcpy(value, from, (size_t)dim * sizeof *value);
    cpu->kern->axpy(input, from, cpu_token(m->ptr_pos, entry), 1.0f, (size_t)dim);
    return NULL;
}

/* What packing a block of keys needs beside: the block's values, projection inputs, keys. */
static size_t block_size(const struct memories *m)
{
    return (size_t)CPU_KEYS * (size_t)(2 * m->bank->dim + m->kproj->out);
}

static void pack_block(const struct cpu_backend *cpu, const struct memories *m, int n, int first, int keys,
                       void *packed_keys, void *packed_values, float *local)
{
    const struct cpu_kern *kern = cpu->kern;
    const int dim = m->bank->dim, d = m->kproj->out, count = cpu_min(keys - first, CPU_KEYS);
    float *value = local, *input = value + CPU_KEYS * dim, *key = input + CPU_KEYS * dim;
    const float *turn[CPU_KEYS];
    for (int i = 0; i < count; i++) turn[i] = read_key(cpu, m, n, first + i, value + i * dim, input + i * dim);
    cpu_affine(cpu, key, d, input, dim, count, m->kproj, 0, d, S2_ACT_NONE, false);
    for (int i = 0; i < count; i++)
        if (turn[i]) kern->rope(key + i * d, turn[i], d);
    kern->keys_pack(packed_keys, key, d, first, count, d);
    kern->values_pack(packed_values, value, dim, first, count, dim);
}

void cpu_memory_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const struct s2_bank *bank,
                          const struct s2_bank_table *table, const struct s2_linear *kproj, const float *pe,
                          const float *tpos, struct s2_tensor ptr_pos, const float *rope)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const struct cpu_kern *kern = cpu->kern;
    const struct memories m = {bank, table, kproj->impl, pe, tpos, rope, ptr_pos};
    const int queries = q.h * q.w, d = kproj->out, dim = bank->dim;
    const int step = cpu_piece(cpu, queries, kern->rows, CPU_QUERIES);
    const size_t pack = block_size(&m) * sizeof(float), attend = kern->attend_size(step, d, dim);
    const size_t key_size = kern->keys_size(key_capacity(&m), d), value_size = kern->values_size(key_capacity(&m), dim);
    if (!cpu_scratch(cpu, key_size + value_size, pack > attend ? pack : attend)) return;
    char *packed_keys = cpu_shared(cpu), *packed_values = packed_keys + key_size;

    for (int n = 0; n < q.n; n++) {
        const int keys = key_count(&m, n);
        if (keys == 0) {
            memset(cpu_token(y, (int64_t)n * queries), 0, (size_t)queries * (size_t)dim * sizeof(float));
            continue;
        }
        CPU_PARALLEL_FOR(cpu, CPU_WORTH)
        for (int first = 0; first < keys; first += CPU_KEYS)
            pack_block(cpu, &m, n, first, keys, packed_keys, packed_values, cpu_local(cpu));
        const struct cpu_attend a = {.q = cpu_token(q, (int64_t)n * queries),
                                     .ldq = q.ld,
                                     .keys = packed_keys,
                                     .values = packed_values,
                                     .y = cpu_token(y, (int64_t)n * queries),
                                     .ldy = y.ld,
                                     .n_keys = keys,
                                     .d = d,
                                     .dv = dim};
        CPU_PARALLEL_FOR(cpu, CPU_WORTH)
        for (int first = 0; first < queries; first += step)
            kern->attend(&a, first, cpu_min(queries - first, step), cpu_local(cpu));
    }
}

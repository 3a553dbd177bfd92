/* memory.c - cases of bank_store, pointer_positions, memory_attention */
#include "kcheck.h"

#include <math.h>

#define DIM     64
#define PTR_DIM 256
#define ROWS    7

/* The same bank on every side; slots that hold nothing are NaN. */
struct bank {
    struct s2_bank on[KC_SIDES];
    struct kc_buffer *spatial, *pointers;
    uint16_t *memory;
    float *pointer;
};

static struct bank bank_of(int tokens, int slots, int ptr_slots)
{
    struct bank b;
    const size_t size = (size_t)slots * (size_t)tokens * DIM, ptr_size = (size_t)ptr_slots * PTR_DIM;
    b.memory = kc_scratch(size, sizeof *b.memory);
    b.pointer = kc_random(ptr_size, 1);
    for (size_t i = 0; i < size; i++) b.memory[i] = s2_bf16((float)kc_uniform());
    for (int i = 0; i < tokens * DIM; i++) b.memory[i] = s2_bf16(NAN); /* slot 0 of each kind is never used */
    for (int i = 0; i < PTR_DIM; i++) b.pointer[i] = NAN;
    b.spatial = kc_buffer(b.memory, size * sizeof *b.memory);
    b.pointers = kc_floats(b.pointer, ptr_size);
    KC_EACH(s)
    b.on[s] = (struct s2_bank){tokens, DIM, slots, ptr_slots, PTR_DIM, kc_at(b.spatial, s), kc_at(b.pointers, s)};
    return b;
}

static void bank_store(int n, int tokens, double scale)
{
    kc_begin("%d memories of %d tokens, size %g", n, tokens, scale);
    struct bank b = bank_of(tokens, n + 2, n + 3);
    float *mem = kc_random((size_t)n * (size_t)tokens * DIM, scale);
    mem[0] = 1 + 0x1p-8f;     /* a tie: to even, down */
    mem[1] = 1 + 3 * 0x1p-8f; /* a tie: to even, up */
    mem[2] = 0x1.fffffep127f; /* rounds to infinity, in fp16 at once */
    mem[3] = -0x1p-140f;      /* subnormal */
    mem[4] = -0.0f;
    int32_t *slot = kc_scratch((size_t)n, sizeof *slot), *ptr_slot = kc_scratch((size_t)n, sizeof *ptr_slot);
    for (int i = 0; i < n; i++) {
        slot[i] = i % 3 == 1 ? -1 : n + 1 - i;
        ptr_slot[i] = i % 3 == 2 ? -1 : i;
    }
    const struct kc_buffer *slots = kc_buffer(slot, (size_t)n * sizeof *slot);
    const struct kc_buffer *ptr_slots = kc_buffer(ptr_slot, (size_t)n * sizeof *ptr_slot);
    struct kc_tensor m = kc_tensor_of(mem, n, 1, tokens, DIM), ptr = kc_noise_f32(n, 1, 1, PTR_DIM, 1);
    KC_EACH(s) KC_RUN(s, bank_store, &b.on[s], kc_at(slots, s), kc_at(ptr_slots, s), m.on[s], ptr.on[s]);
    kc_equal_bytes(b.spatial);
    kc_equal_bytes(b.pointers);
    kc_end();
}

void check_bank_store(void)
{
    bank_store(1, 1, 1);
    bank_store(2, 49, 1);
    bank_store(4, 64, 100);
    bank_store(3, 256, 1e-3);
}

/* Table entries behind the counts are no indices at all. */
struct table {
    struct s2_bank_table on[KC_SIDES];
    int32_t *counts, *slot, *row, *ptr_slot;
    float *ptr_dist;
    int spatial_cap, ptr_cap;
};

static struct table table_of(int n, const int (*counts)[2], int spatial_cap, int ptr_cap, int slots, int ptr_slots)
{
    struct table t = {.spatial_cap = spatial_cap, .ptr_cap = ptr_cap};
    const size_t spatial = (size_t)(n * spatial_cap), ptrs = (size_t)(n * ptr_cap);
    t.counts = kc_scratch((size_t)n * 2, sizeof *t.counts);
    t.slot = kc_scratch(spatial, sizeof *t.slot);
    t.row = kc_scratch(spatial, sizeof *t.row);
    t.ptr_slot = kc_scratch(ptrs, sizeof *t.ptr_slot);
    t.ptr_dist = kc_scratch(ptrs, sizeof *t.ptr_dist);
    for (int i = 0; i < n * spatial_cap; i++) {
        const bool used = i % spatial_cap < counts[i / spatial_cap][0];
        t.slot[i] = used ? 1 + kc_below(slots - 1) : INT32_MAX;
        t.row[i] = used ? kc_below(ROWS) : INT32_MAX;
    }
    for (int i = 0; i < n * ptr_cap; i++) {
        const bool used = i % ptr_cap < counts[i / ptr_cap][1];
        t.ptr_slot[i] = used ? 1 + kc_below(ptr_slots - 1) : INT32_MAX;
        t.ptr_dist[i] = used ? (float)(i % 3 == 0 ? 1000 * kc_uniform() : (i % ptr_cap) / 15.0) : NAN;
    }
    for (int i = 0; i < 2 * n; i++) t.counts[i] = counts[i / 2][i % 2];
    const struct kc_buffer *c = kc_buffer(t.counts, (size_t)n * 2 * sizeof *t.counts);
    const struct kc_buffer *slot = kc_buffer(t.slot, spatial * sizeof *t.slot);
    const struct kc_buffer *row = kc_buffer(t.row, spatial * sizeof *t.row);
    const struct kc_buffer *ptr = kc_buffer(t.ptr_slot, ptrs * sizeof *t.ptr_slot), *dist = kc_floats(t.ptr_dist, ptrs);
    KC_EACH(s)
    t.on[s] = (struct s2_bank_table){spatial_cap,   ptr_cap,       kc_at(c, s),   kc_at(slot, s),
                                     kc_at(row, s), kc_at(ptr, s), kc_at(dist, s)};
    return t;
}

static void pointer_positions(int n, const int (*counts)[2], int ptr_cap, bool zeros)
{
    kc_begin("%d entries, %d pointers in the first, capacity %d%s", n, counts[0][1], ptr_cap,
             zeros ? ", no projection" : "");
    struct table t = table_of(n, counts, 9, ptr_cap, 3, 40);
    struct kc_linear lin = kc_linear(256, DIM);
    struct kc_tensor y = kc_poison_f32(n, 1, ptr_cap, DIM);
    double *bound = kc_scratch((size_t)(n * ptr_cap * DIM), sizeof *bound);
    for (int i = 0; i < n * ptr_cap * DIM; i++) {
        const int entry = i / DIM, o = i % DIM;
        if (entry % ptr_cap >= counts[entry / ptr_cap][1]) bound[i] = -1;
        if (bound[i] < 0 || zeros) continue;
        bound[i] = kc_sum_bound(256) * fabs((double)lin.b[o]);
        for (int c = 0; c < 256; c++) {
            const double angle = fabs((double)t.ptr_dist[entry]) / pow(10000, 2.0 * (c % 128 / 2) / 128);
            bound[i] += fabs((double)lin.w[o * 256 + c]) * (kc_dot_bound(256) + 8 * kc.eps * angle);
        }
    }
    KC_EACH(s) KC_RUN(s, pointer_positions, y.on[s], &t.on[s], zeros ? NULL : &lin.on[s]);
    kc_close(y, bound);
    kc_linear_free(&lin);
    kc_end();
}

void check_pointer_positions(void)
{
    static const int counts[][4][2] = {{{1, 1}, {0, 0}, {9, 19}, {7, 16}}, {{7, 16}, {7, 5}, {1, 0}, {2, 2}}};
    for (int zeros = 0; zeros < 2; zeros++) {
        pointer_positions(1, counts[0], 1, zeros);
        pointer_positions(4, counts[0], 19, zeros);
        pointer_positions(3, counts[1], 17, zeros);
    }
}

struct memory_case {
    int n, side; /* entries; a memory has side * side tokens */
    const int (*counts)[2];
    struct bank bank;
    struct table table;
    struct kc_linear kproj;
    const float *pe, *tpos, *turn;
    struct kc_tensor positions;
};

/* Memory value of channel c of key i of entry b, and its one or two positions. */
static double key_input(const struct memory_case *m, int b, int i, int c, double *p0, double *p1)
{
    const int tokens = m->side * m->side, spatial = m->counts[b][0] * tokens;
    if (i < spatial) {
        const int entry = b * m->table.spatial_cap + i / tokens, token = i % tokens;
        *p0 = m->pe[token * DIM + c];
        *p1 = m->tpos[m->table.row[entry] * DIM + c];
        return s2_from_bf16(
            m->bank.memory[((size_t)m->table.slot[entry] * (size_t)tokens + (size_t)token) * DIM + (size_t)c]);
    }
    const int entry = b * m->table.ptr_cap + (i - spatial) / 4, part = (i - spatial) % 4;
    *p0 = kc_value(m->positions, entry, c);
    *p1 = 0;
    return m->bank.pointer[(size_t)m->table.ptr_slot[entry] * PTR_DIM + (size_t)(part * DIM + c)];
}

/* The key [PTR_DIM] of an input and the turn of its token, or NULL; its f32 error, and the independent errors in 16
 * bits of an input that is kept before the product and a key that is kept after the turn. */
static void one_key(const struct memory_case *m, const double *input, const double *size, const float *turn,
                    double *key, double *error, double *rounding)
{
    double kept[DIM];
    for (int c = 0; c < DIM; c++) kept[c] = kc_store_bound(input[c]);
    for (int o = 0; o < PTR_DIM; o++) {
        key[o] = m->kproj.b[o];
        error[o] = kc_sum_bound(DIM) * fabs(key[o]);
        rounding[o] = 0;
        for (int c = 0; c < DIM; c++) {
            const double w = m->kproj.w[o * DIM + c];
            key[o] += w * input[c];
            error[o] += kc_dot_bound(DIM) * fabs(w) * size[c];
            rounding[o] += pow(w * kept[c], 2);
        }
    }
    for (int o = 0; turn && o < PTR_DIM; o += 2, turn += 2) {
        const double a = key[o], c = key[o + 1], e = error[o] + error[o + 1] + 4 * kc.eps * (fabs(a) + fabs(c));
        key[o] = a * turn[0] - c * turn[1];
        key[o + 1] = a * turn[1] + c * turn[0];
        error[o] = error[o + 1] = e;
        rounding[o] = rounding[o + 1] = fmax(rounding[o], rounding[o + 1]);
    }
    for (int o = 0; o < PTR_DIM; o++) rounding[o] = sqrt(rounding[o] + pow(kc_store_bound(key[o]), 2));
}

static struct kc_attended keys_of(const struct memory_case *m, int b)
{
    const int tokens = m->side * m->side, spatial = m->counts[b][0] * tokens, n = spatial + 4 * m->counts[b][1];
    const size_t keys = (size_t)n * PTR_DIM, values = (size_t)n * DIM;
    double *key = kc_scratch(keys, sizeof *key), *error = kc_scratch(keys, sizeof *error);
    double *rounding = kc_scratch(keys, sizeof *rounding);
    double *value = kc_scratch(values, sizeof *value), *value_rounding = kc_scratch(values, sizeof *value_rounding);
    for (int i = 0; i < n; i++) {
        double input[DIM], size[DIM], p0, p1;
        for (int c = 0; c < DIM; c++) {
            const double v = key_input(m, b, i, c, &p0, &p1);
            value[i * DIM + c] = v;
            value_rounding[i * DIM + c] = fabs(kc_rounded((float)v, kc.act) - v);
            input[c] = v + p0 + p1;
            size[c] = fabs(v) + fabs(p0) + fabs(p1);
        }
        const size_t at = (size_t)i * PTR_DIM;
        one_key(m, input, size, i < spatial ? m->turn + (i % tokens) * PTR_DIM : NULL, key + at, error + at,
                rounding + at);
    }
    return (struct kc_attended){.n = n,
                                .d = PTR_DIM,
                                .dv = DIM,
                                .keys = key,
                                .key_error = error,
                                .key_rounding = kc.act == S2_F32 ? NULL : rounding,
                                .values = value,
                                .value_rounding = value_rounding,
                                .scratch = kc_scratch((size_t)n * 3, sizeof(double))};
}

static double *memory_bound(const struct memory_case *m, struct kc_tensor q)
{
    const int tokens = m->side * m->side;
    double *bound = kc_scratch((size_t)m->n * (size_t)tokens * DIM, sizeof *bound), query[PTR_DIM];
    for (int b = 0; b < m->n; b++) {
        const struct kc_attended seen = keys_of(m, b);
        for (int i = 0; seen.n > 0 && i < tokens; i++) {
            for (int c = 0; c < PTR_DIM; c++) query[c] = kc_value(q, b * tokens + i, c);
            kc_attention_bound(bound + ((size_t)b * (size_t)tokens + (size_t)i) * DIM, query, &seen);
        }
    }
    return bound;
}

static void memory_attention(int n, int side, const int (*counts)[2], double size)
{
    kc_begin("%d entries of %dx%d tokens, %d memories and %d pointers in the first, query size %g", n, side, side,
             counts[0][0], counts[0][1], size);
    const int tokens = side * side, slots = 11, ptr_slots = 24;
    struct memory_case m = {.n = n, .side = side, .counts = counts};
    m.bank = bank_of(tokens, slots, ptr_slots);
    m.table = table_of(n, counts, 9, 19, slots, ptr_slots);
    m.kproj = kc_linear(DIM, PTR_DIM);
    m.pe = kc_random((size_t)(tokens * DIM), 1);
    m.tpos = kc_random((size_t)(ROWS * DIM), 1);
    float *turn = kc_scratch((size_t)(tokens * PTR_DIM), sizeof *turn), *at = kc_random((size_t)(n * 19 * DIM), 1);
    for (int i = 0; i < tokens * PTR_DIM / 2; i++) {
        const double angle = 10 * kc_uniform();
        turn[2 * i] = (float)cos(angle);
        turn[2 * i + 1] = (float)sin(angle);
    }
    m.turn = turn;
    for (int i = 0; i < n * 19 * DIM; i++) {
        if (i / DIM % 19 >= counts[i / DIM / 19][1]) at[i] = NAN;
    }
    m.positions = kc_f32_of(at, n, 1, 19, DIM);
    const struct kc_buffer *pe = kc_floats(m.pe, (size_t)(tokens * DIM)), *tpos = kc_floats(m.tpos, ROWS * DIM);
    const struct kc_buffer *table = kc_floats(turn, (size_t)(tokens * PTR_DIM));
    struct kc_tensor q = kc_noise(n, 1, tokens, PTR_DIM, size), y = kc_poison(n, 1, tokens, DIM);
    KC_EACH(s)
    KC_RUN(s, memory_attention, y.on[s], q.on[s], &m.bank.on[s], &m.table.on[s], &m.kproj.on[s], kc_at(pe, s),
           kc_at(tpos, s), m.positions.on[s], kc_at(table, s));
    kc_close(y, memory_bound(&m, q));
    kc_linear_free(&m.kproj);
    kc_end();
}

/* 64, 256, 400 and 1024 tokens: whole and broken blocks of queries, tiles of keys that cross from one memory to the
 * next and into the pointers */
static void memory_attention_of_gpus(void)
{
    static const int few[][2] = {{1, 16}, {4, 3}, {0, 16}}, many[][2] = {{7, 16}, {0, 0}, {5, 1}};
    static const int pointers[][2] = {{0, 9}, {2, 0}, {1, 1}}, one[][2] = {{2, 16}}, plain[][2] = {{7, 0}};
    memory_attention(3, 8, many, 2);
    memory_attention(2, 8, pointers, 1);
    memory_attention(3, 16, many, 1);
    memory_attention(1, 16, plain, 2);
    memory_attention(3, 20, few, 1);
    memory_attention(2, 20, pointers, 10);
    memory_attention(1, 32, one, 1);
    memory_attention(3, 32, pointers, 1);
}

void check_memory_attention(void)
{
    static const int one[][2] = {{1, 1}}, pointer[][2] = {{0, 1}}, spatial[][2] = {{1, 0}}, full[][2] = {{7, 16}};
    static const int mixed[][2] = {{1, 1}, {7, 16}, {0, 3}, {9, 19}}, two[][2] = {{3, 0}, {8, 17}};
    static const int nothing[][2] = {{0, 0}, {2, 1}, {0, 0}}, ends[][2] = {{2, 0}, {0, 0}, {1, 16}};
    memory_attention(1, 1, one, 1);
    memory_attention(1, 4, pointer, 1);
    memory_attention(1, 5, spatial, 2);
    memory_attention(1, 7, full, 1);
    memory_attention(4, 4, mixed, 2);
    memory_attention(3, 6, mixed, 30);
    memory_attention(2, 8, two, 1);
    memory_attention(3, 5, nothing, 1);
    memory_attention(3, 8, ends, 1);
    if (kc.quick) return;
    memory_attention(2, 16, mixed, 2);
    memory_attention(1, 20, full, 1);
    if (kc.gpu) memory_attention_of_gpus();
}

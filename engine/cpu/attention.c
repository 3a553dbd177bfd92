/* attention.c - multi-head attention and Hiera's window attention. */
#include "cpu.h"

void cpu_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, struct s2_tensor k,
                   struct s2_tensor v, int heads)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int d = q.c / heads, queries = q.h * q.w, keys = k.h * k.w;
    const struct cpu_kern *kern = keys < CPU_FEW_KEYS && cpu->kern->few_keys ? cpu->kern->few_keys : cpu->kern;
    const int step = cpu_piece(cpu, (int64_t)queries * heads, kern->rows, CPU_QUERIES);
    const int blocks = (keys + CPU_KEYS - 1) / CPU_KEYS, pieces = (queries + step - 1) / step;
    const size_t key_size = kern->keys_size(keys, d), value_size = kern->values_size(keys, d);
    if (!cpu_scratch(cpu, (key_size + value_size) * (size_t)heads, kern->attend_size(step, d, d))) return;
    char *packed_keys = cpu_shared(cpu), *packed_values = packed_keys + key_size * (size_t)heads;

    for (int n = 0; n < q.n; n++) {
        CPU_PARALLEL_FOR(cpu, (int64_t)keys * q.c / 8)
        for (int piece = 0; piece < heads * blocks; piece++) {
            const int head = piece / blocks, first = piece % blocks * CPU_KEYS;
            const int count = cpu_min(keys - first, CPU_KEYS);
            const int64_t token = (int64_t)n * keys + first;
            kern->keys_pack(packed_keys + (size_t)head * key_size, cpu_token(k, token) + head * d, k.ld, first, count,
                            d);
            kern->values_pack(packed_values + (size_t)head * value_size, cpu_token(v, token) + head * d, v.ld, first,
                              count, d);
        }
        CPU_PARALLEL_FOR(cpu, (int64_t)queries * keys * q.c / 128)
        for (int piece = 0; piece < heads * pieces; piece++) {
            const int head = piece / pieces, first = piece % pieces * step;
            const struct cpu_attend a = {.q = cpu_token(q, (int64_t)n * queries) + head * d,
                                         .ldq = q.ld,
                                         .keys = packed_keys + (size_t)head * key_size,
                                         .values = packed_values + (size_t)head * value_size,
                                         .y = cpu_token(y, (int64_t)n * queries) + head * d,
                                         .ldy = y.ld,
                                         .n_keys = keys,
                                         .d = d,
                                         .dv = d};
            kern->attend(&a, first, cpu_min(queries - first, step), cpu_local(cpu));
        }
    }
}

static void whole_map(struct s2_backend *be, struct s2_tensor y, struct s2_tensor qkv, int heads)
{
    const int tokens = qkv.h * qkv.w, o = qkv.c / 3;
    const struct s2_tensor flat = {qkv.data, qkv.dtype, qkv.n, 1, tokens, qkv.c, qkv.ld};
    cpu_attention(be, s2_shape(y, y.n, 1, tokens, o), s2_columns(flat, 0, o), s2_columns(flat, o, o),
                  s2_columns(flat, 2 * o, o), heads);
}

void cpu_window_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor qkv, const struct s2_linear *lin,
                          int heads, int window, bool pool)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    if (window == 0 && !pool) {
        whole_map(be, y, qkv, heads);
        return;
    }
    const int o = qkv.c / 3, d = o / heads, cell = pool ? 2 : 1;
    const int side_h = window ? window : qkv.h, side_w = window ? window : qkv.w;
    const int down = (qkv.h + side_h - 1) / side_h, across = (qkv.w + side_w - 1) / side_w;
    if (!cpu_scratch(cpu, 0, cpu->kern->window_size(side_h * side_w + 1, d))) return;
    const float *pad = ((const struct cpu_matrix *)lin->impl)->bias;

    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int piece = 0; piece < qkv.n * down * across; piece++) {
        const int image = piece / (down * across), top = piece / across % down * side_h, left = piece % across * side_w;
        const struct s2_tensor from = s2_batch(qkv, image, 1), to = s2_batch(y, image, 1);
        struct cpu_window win = {.o = o,
                                 .row = (ptrdiff_t)qkv.w * qkv.ld,
                                 .token = qkv.ld,
                                 .y_row = (ptrdiff_t)y.w * y.ld,
                                 .y_token = y.ld,
                                 .h = cpu_min(qkv.h - top, side_h),
                                 .w = cpu_min(qkv.w - left, side_w),
                                 .d = d,
                                 .pool = pool};
        win.n_pad = side_h * side_w - win.h * win.w;
        for (int head = 0; head < heads; head++) {
            win.qkv = cpu_token(from, (int64_t)top * qkv.w + left) + head * d;
            win.pad = pad + head * d;
            win.y = cpu_token(to, (int64_t)(top / cell) * y.w + left / cell) + head * d;
            cpu->kern->window(&win, cpu_local(cpu));
        }
    }
}

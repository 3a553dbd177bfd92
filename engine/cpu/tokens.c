/* tokens.c - passes over tokens: norm, sum, rotation, copies, pooling. */
#include "cpu.h"

#include <string.h>

/* Channels of a pass that a thread takes at a time: enough to be worth it, small against the cache. */
enum { PIECE = 1 << 14 };

static int token_piece(const struct cpu_backend *cpu, int64_t tokens, int c)
{
    const int most = c < PIECE ? PIECE / c : 1;
    return cpu_piece(cpu, tokens, 1, most);
}

static int piece_at(int64_t first, int64_t n, int piece)
{
    return (int)(n - first < piece ? n - first : piece);
}

void cpu_layer_norm(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                    enum s2_act act)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int64_t tokens = s2_tokens(x);
    const int piece = token_piece(cpu, tokens, x.c);
    CPU_PARALLEL_FOR(cpu, tokens * x.c / 4)
    for (int64_t i = 0; i < tokens; i += piece)
        cpu->kern->layer_norm(cpu_token(y, i), cpu_token(x, i), norm, (size_t)piece_at(i, tokens, piece), act);
}

void cpu_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int map = y.h * y.w, piece = token_piece(cpu, s2_tokens(y), y.c), pieces = (map + piece - 1) / piece;
    const bool one_token = b.h == 1 && b.w == 1;
    CPU_PARALLEL_FOR(cpu, s2_elements(y) / 16)
    for (int p = 0; p < y.n * pieces; p++) {
        const int64_t n = p / pieces, first = (int64_t)(p % pieces) * piece;
        const int count = piece_at(first, map, piece);
        float *to = cpu_token(y, n * map + first);
        const float *from = cpu_token(a, (a.n == 1 ? 0 : n * map) + first);
        if (one_token) {
            const float *more = cpu_token(b, b.n == 1 ? 0 : n);
            for (int i = 0; i < count; i++) cpu->kern->axpy(to + i * y.c, from + i * y.c, more, s, (size_t)y.c);
        } else {
            const float *more = cpu_token(b, (b.n == 1 ? 0 : n * map) + first);
            cpu->kern->axpy(to, from, more, s, (size_t)count * (size_t)y.c);
        }
    }
}

void cpu_rope(struct s2_backend *be, struct s2_tensor x, const float *table, int width)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int64_t tokens = s2_tokens(x);
    const int piece = token_piece(cpu, tokens, x.c);
    CPU_PARALLEL_FOR(cpu, tokens * x.c / 8)
    for (int64_t first = 0; first < tokens; first += piece)
        for (int64_t i = first; i < first + piece_at(first, tokens, piece); i++)
            for (int c = 0; c < x.c; c += width) cpu->kern->rope(cpu_token(x, i) + c, table + i % x.w * width, width);
}

static void copy_tokens(struct s2_tensor y, int64_t to, struct s2_tensor x, int64_t from, int count)
{
    if (count > 0) memcpy(cpu_token(y, to), cpu_token(x, from), (size_t)count * (size_t)y.c * sizeof(float));
}

void cpu_take(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int first)
{
    if (be->skip) return;
    for (int n = 0; n < y.n; n++) copy_tokens(y, (int64_t)n * y.w, x, (int64_t)n * x.w + first, y.w);
}

void cpu_concat(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b)
{
    if (be->skip) return;
    for (int n = 0; n < y.n; n++) {
        const int64_t to = (int64_t)n * y.w;
        copy_tokens(y, to, a, a.n == 1 ? 0 : (int64_t)n * a.w, a.w);
        copy_tokens(y, to + a.w, b, (int64_t)n * b.w, b.w);
    }
}

void cpu_max_pool2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    CPU_PARALLEL_FOR(cpu, s2_elements(y) / 4)
    for (int row = 0; row < y.n * y.h; row++)
        for (int column = 0; column < y.w; column++) {
            const int64_t corner = 2 * (int64_t)row * x.w + 2 * column;
            cpu->kern->max4(cpu_token(y, (int64_t)row * y.w + column), cpu_token(x, corner), cpu_token(x, corner + 1),
                            cpu_token(x, corner + x.w), cpu_token(x, corner + x.w + 1), (size_t)y.c);
        }
}

void cpu_upsample2_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    CPU_PARALLEL_FOR(cpu, s2_elements(y) / 8)
    for (int row = 0; row < y.n * y.h; row++)
        for (int column = 0; column < y.w; column++) {
            float *to = cpu_token(y, (int64_t)row * y.w + column);
            cpu->kern->axpy(to, to, cpu_token(x, (int64_t)(row / 2) * x.w + column / 2), 1.0f, (size_t)y.c);
        }
}

void cpu_where_absent(struct s2_backend *be, struct s2_tensor x, struct s2_tensor score, const float *vec, bool replace)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int map = x.h * x.w;
    for (int n = 0; n < x.n; n++) {
        if (!(((const float *)score.data)[n] <= 0)) continue;
        const int piece = token_piece(cpu, map, x.c);
        CPU_PARALLEL_FOR(cpu, (int64_t)map * x.c / 16)
        for (int first = 0; first < map; first += piece)
            for (int i = first; i < first + piece_at(first, map, piece); i++) {
                float *to = cpu_token(x, (int64_t)n * map + i);
                if (replace)
                    memcpy(to, vec, (size_t)x.c * sizeof *to);
                else
                    cpu->kern->axpy(to, to, vec, 1.0f, (size_t)x.c);
            }
    }
}

void cpu_clamp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, float lo, float hi)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int64_t n = s2_elements(x);
    const int piece = cpu_piece(cpu, n, 16, PIECE);
    CPU_PARALLEL_FOR(cpu, n / 16)
    for (int64_t i = 0; i < n; i += piece)
        cpu->kern->clamp((float *)y.data + i, (const float *)x.data + i, lo, hi, (size_t)piece_at(i, n, piece));
}

void cpu_scatter(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const int32_t *index)
{
    if (be->skip) return;
    const size_t count = (size_t)x.h * (size_t)x.w * (size_t)x.c;
    for (int n = 0; n < x.n; n++)
        if (index[n] >= 0)
            memcpy((float *)y.data + (size_t)index[n] * count, (const float *)x.data + (size_t)n * count,
                   count * sizeof(float));
}

/* linear.c - linear layers and what is made of them: the two-layer perceptron, the transposed convolution. */
#include "cpu.h"

#include <string.h>

static void affine(const struct cpu_backend *cpu, struct cpu_affine p)
{
    cpu->kern->affine(&p, cpu_panel(cpu));
}

void cpu_affine(const struct cpu_backend *cpu, float *c, ptrdiff_t ldc, const float *a, ptrdiff_t lda, int m,
                const struct cpu_matrix *w, int first, int columns, enum s2_act act, bool accumulate)
{
    affine(cpu, (struct cpu_affine){w, a, c, lda, ldc, m, first, columns, 0, w->in, accumulate, act});
}

/* y += act(...) needs the sum apart from y */
static void affine_aside(const struct cpu_backend *cpu, float *aside, float *y, ptrdiff_t ldy, const float *x,
                         ptrdiff_t ldx, int m, const struct cpu_matrix *w, int first, int columns, enum s2_act act)
{
    cpu_affine(cpu, aside, columns, x, ldx, m, w, first, columns, act, false);
    for (int i = 0; i < m; i++)
        cpu->kern->axpy(y + i * ldy, y + i * ldy, aside + (ptrdiff_t)i * columns, 1.0f, (size_t)columns);
}

/* How a product is cut: rows, and columns too where the rows alone do not give every thread enough pieces. */
struct cut {
    int rows, columns, row_pieces, column_pieces;
};

static struct cut cut_product(const struct cpu_backend *cpu, int64_t rows, int columns)
{
    struct cut c = {.rows = cpu_piece(cpu, rows, cpu->kern->rows, cpu->kern->block),
                    .columns = cpu_round_up(columns, cpu->kern->panel)};
    if (c.rows < 2 * cpu->kern->rows) {
        c.rows = cpu_min(2 * cpu->kern->rows, (int)(rows > 0 ? rows : 1));
        const int64_t pieces = (rows + c.rows - 1) / c.rows;
        c.columns = cpu_piece(cpu, columns * pieces, cpu->kern->panel, c.columns);
    }
    c.row_pieces = (int)((rows + c.rows - 1) / c.rows);
    c.column_pieces = (columns + c.columns - 1) / c.columns;
    return c;
}

void cpu_linear(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *lin,
                enum s2_act act, bool accumulate)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const struct cpu_matrix *w = lin->impl;
    const int64_t rows = s2_tokens(x);
    const struct cut cut = cut_product(cpu, rows, w->out);
    const bool aside = accumulate && act != S2_ACT_NONE;
    if (aside && !cpu_scratch(cpu, 0, (size_t)cut.rows * (size_t)cut.columns * sizeof(float))) return;

    CPU_PARALLEL_FOR(cpu, rows * w->in * w->out / 256)
    for (int piece = 0; piece < cut.row_pieces * cut.column_pieces; piece++) {
        const int64_t row = (int64_t)(piece / cut.column_pieces) * cut.rows;
        const int column = piece % cut.column_pieces * cut.columns;
        const int m = (int)(rows - row < cut.rows ? rows - row : cut.rows), n = cpu_min(w->out - column, cut.columns);
        float *to = cpu_token(y, row) + column;
        const float *from = cpu_token(x, row);
        if (aside)
            affine_aside(cpu, cpu_local(cpu), to, y.ld, from, x.ld, m, w, column, n, act);
        else
            cpu_affine(cpu, to, y.ld, from, x.ld, m, w, column, n, act, accumulate);
    }
}

/* A few rows: every thread takes columns of one layer, then of the other. */
static void mlp_few(struct cpu_backend *cpu, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                    const struct cpu_matrix *fc1, enum s2_act act, const struct cpu_matrix *fc2)
{
    const int m = (int)s2_tokens(x);
    const size_t normed = (size_t)m * (size_t)x.c;
    if (!cpu_scratch(cpu, (normed + (size_t)m * (size_t)fc1->out) * sizeof(float), 0)) return;
    float *in = cpu_shared(cpu), *hidden = in + normed;
    if (norm)
        cpu->kern->layer_norm(in, x.data, norm, (size_t)m, S2_ACT_NONE);
    else
        memcpy(in, x.data, normed * sizeof *in);

    const int first = cpu_piece(cpu, fc1->out, cpu->kern->panel, fc1->out);
    CPU_PARALLEL_FOR(cpu, (int64_t)m * fc1->in * fc1->out / 256)
    for (int c = 0; c < fc1->out; c += first)
        cpu_affine(cpu, hidden + c, fc1->out, in, x.c, m, fc1, c, cpu_min(fc1->out - c, first), act, false);

    const int second = cpu_piece(cpu, fc2->out, cpu->kern->panel, fc2->out);
    CPU_PARALLEL_FOR(cpu, (int64_t)m * fc2->in * fc2->out / 256)
    for (int c = 0; c < fc2->out; c += second)
        for (int k = 0; k < fc2->in; k += CPU_DEPTH)
            affine(cpu, (struct cpu_affine){.w = fc2,
                                            .a = hidden + k,
                                            .c = (float *)y.data + c,
                                            .lda = fc1->out,
                                            .ldc = y.ld,
                                            .m = m,
                                            .first = c,
                                            .columns = cpu_min(fc2->out - c, second),
                                            .k = k,
                                            .depth = cpu_min(fc2->in - k, CPU_DEPTH),
                                            .accumulate = true});
}

void cpu_mlp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
             const struct s2_linear *fc1, enum s2_act act, const struct s2_linear *fc2)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const int64_t rows = s2_tokens(x);
    const int few = 2 * cpu->kern->rows;
    if (rows <= (int64_t)few * cpu->threads) {
        mlp_few(cpu, y, x, norm, fc1->impl, act, fc2->impl);
        return;
    }
    int step = cpu_piece(cpu, rows, cpu->kern->rows, cpu->kern->perceptron_block);
    while (step > few && cpu->kern->perceptron_size(step, x.c) > CPU_CACHE) step -= cpu->kern->rows;
    if (step < few) step = few;
    if (!cpu_scratch(cpu, 0, cpu->kern->perceptron_size(step, x.c))) return;

    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int64_t row = 0; row < rows; row += step) {
        const struct cpu_perceptron p = {.fc1 = fc1->impl,
                                         .fc2 = fc2->impl,
                                         .norm = norm,
                                         .x = cpu_token(x, row),
                                         .y = cpu_token(y, row),
                                         .ldy = y.ld,
                                         .m = (int)(rows - row < step ? rows - row : step),
                                         .act = act};
        cpu->kern->perceptron(&p, cpu_local(cpu));
    }
}

/* One row of the small map becomes two rows of the large one. wide: [w][4*c] */
static void shuffle_rows(const struct cpu_backend *cpu, float *y, const float *wide, const float *skip, int w, int c,
                         enum s2_act act)
{
    for (int dy = 0; dy < 2; dy++) {
        const ptrdiff_t at = (ptrdiff_t)dy * 2 * w * c;
        for (int x = 0; x < w; x++)
            memcpy(y + at + (ptrdiff_t)x * 2 * c, wide + ((ptrdiff_t)x * 4 + dy * 2) * c,
                   2 * (size_t)c * sizeof *y); /* dx = 0, 1 are neighbours on both sides */
    }
    const size_t n = 4 * (size_t)w * (size_t)c;
    if (skip) cpu->kern->axpy(y, y, skip, 1.0f, n);
    cpu->kern->activate(y, n, act);
}

void cpu_deconv2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *lin,
                 struct s2_tensor skip, enum s2_act act)
{
    if (be->skip) return;
    struct cpu_backend *cpu = cpu_of(be);
    const struct cpu_matrix *w = lin->impl;
    if (!cpu_scratch(cpu, 0, (size_t)x.w * (size_t)w->out * sizeof(float))) return;

    CPU_PARALLEL_FOR(cpu, CPU_WORTH)
    for (int row = 0; row < x.n * x.h; row++) {
        const int64_t to = (int64_t)row * 2 * y.w, map = (int64_t)y.h * y.w;
        const float *more = skip.data ? cpu_token(skip, skip.n == 1 ? to % map : to) : NULL;
        float *wide = cpu_local(cpu);
        cpu_affine(cpu, wide, w->out, cpu_token(x, (int64_t)row * x.w), x.ld, x.w, w, 0, w->out, S2_ACT_NONE, false);
        shuffle_rows(cpu, cpu_token(y, to), wide, more, x.w, y.c, act);
    }
}

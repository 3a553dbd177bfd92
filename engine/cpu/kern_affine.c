/* kern_affine.c - packed matrices: the linear layer and the two-layer perceptron of a piece of rows. */
#include "kern.h"
#include "vec.h"

static inline int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

size_t K(cpu_matrix_size)(int in, int out)
{
    return (size_t)round_up(out, PANEL) * (size_t)in * sizeof(float);
}

void K(cpu_matrix_pack)(struct cpu_matrix *m, const float *w, int first, int count)
{
    const ptrdiff_t at = (ptrdiff_t)first * m->in;
    K(cpu_pack)((float *)m->packed + at, w + at, m->in, count, 1, m->in);
}

void K(cpu_affine)(const struct cpu_affine *p, void *local)
{
    (void)local;
    const struct cpu_product product = {.m = p->m,
                                        .n = p->columns,
                                        .k = p->depth,
                                        .a = p->a,
                                        .lda = p->lda,
                                        .b = (const float *)p->w->packed + (ptrdiff_t)p->first * p->w->in +
                                             (ptrdiff_t)p->k * PANEL,
                                        .panel_stride = (ptrdiff_t)PANEL * p->w->in,
                                        .bias = p->k == 0 ? p->w->bias + p->first : NULL,
                                        .c = p->c,
                                        .ldc = p->ldc,
                                        .act = p->act,
                                        .accumulate = p->accumulate};
    K(cpu_product)(&product);
}

size_t K(cpu_perceptron_size)(int m, int c)
{
    return (size_t)m * (size_t)(c + CPU_DEPTH) * sizeof(float);
}

void K(cpu_perceptron)(const struct cpu_perceptron *p, void *local)
{
    const int in = p->fc1->in, hidden = p->fc1->out;
    float *x = local, *h = x + (ptrdiff_t)p->m * in;
    if (p->norm)
        K(cpu_layer_norm)(x, p->x, p->norm, (size_t)p->m, S2_ACT_NONE);
    else
        memcpy(x, p->x, (size_t)p->m * (size_t)in * sizeof *x);
    for (int first = 0; first < hidden; first += CPU_DEPTH) {
        const int width = hidden - first < CPU_DEPTH ? hidden - first : CPU_DEPTH;
        K(cpu_affine)
        (&(struct cpu_affine){.w = p->fc1,
                              .a = x,
                              .lda = in,
                              .c = h,
                              .ldc = width,
                              .m = p->m,
                              .first = first,
                              .columns = width,
                              .depth = in,
                              .act = p->act},
         NULL);
        K(cpu_affine)
        (&(struct cpu_affine){.w = p->fc2,
                              .a = h,
                              .lda = width,
                              .c = p->y,
                              .ldc = p->ldy,
                              .m = p->m,
                              .columns = p->fc2->out,
                              .k = first,
                              .depth = width,
                              .accumulate = true},
         NULL);
    }
}

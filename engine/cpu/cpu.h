/* cpu.h - the CPU backend: float32, threaded with OpenMP. What its files share.
 *
 * An operator cuts its work into pieces that each thread takes dynamically, so that a thread that loses its core for a
 * while does not hold up the others, and calls the serial kernels of kern.h on them. Temporary memory comes from one
 * scratch arena that only ever grows to the largest operator; nothing else is allocated once warm. */
#ifndef S2_CPU_H
#define S2_CPU_H

#include <omp.h>

#include "kern.h"

struct cpu_backend {
    struct s2_backend base;
    const struct cpu_kern *kern;
    int threads;
    char *scratch; /* shared part, then one part a thread */
    size_t scratch_size, shared_size, local_size;
    char *panels; /* kern->affine_size bytes a thread */
    char text[96];
};

/* impl of a depthwise convolution */
struct cpu_depthwise {
    float *weight; /* [k][k][c] */
    float *bias;
};

static inline struct cpu_backend *cpu_of(struct s2_backend *be)
{
    return (struct cpu_backend *)be;
}

/* `for` over pieces, each taken by the next free thread. work: about how many vector operations there are in all;
 * a few are done sooner than another thread wakes up. */
enum { CPU_WORTH = 1 << 13 };
#define CPU_PRAGMA(text) _Pragma(#text)
#define CPU_PARALLEL_FOR(cpu, work)                                                                                    \
    CPU_PRAGMA(omp parallel for schedule(dynamic) num_threads((cpu)->threads) if ((work) >= CPU_WORTH))

static inline float *cpu_token(struct s2_tensor t, int64_t i)
{
    return (float *)t.data + i * t.ld;
}

static inline int cpu_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int cpu_round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

/* backend.c */
/* Scratch of `shared` bytes and `local` bytes a thread, until the next call; false: recorded as a failure. */
bool cpu_scratch(struct cpu_backend *, size_t shared, size_t local);
static inline void *cpu_shared(struct cpu_backend *cpu)
{
    return cpu->scratch;
}
/* of the calling thread, inside a parallel loop */
static inline void *cpu_local(struct cpu_backend *cpu)
{
    return cpu->scratch + cpu->shared_size + (size_t)omp_get_thread_num() * cpu->local_size;
}
/* of the calling thread, for kern->affine */
static inline void *cpu_panel(const struct cpu_backend *cpu)
{
    return cpu->panels + (size_t)omp_get_thread_num() * cpu->kern->affine_size;
}
void cpu_no_memory(struct cpu_backend *, const char *what, size_t bytes);
/* Size of the pieces that n things are cut into: at most `most`, a multiple of `unit`, smaller where that gives every
 * thread several pieces. */
int cpu_piece(const struct cpu_backend *, int64_t n, int unit, int most);

/* amx.c: true if the processor and the system have AMX for this process */
bool cpu_amx_enable(void);

/* weights.c; impl of a linear layer and of a dense convolution, whose columns are then (ky, kx, channel) */
struct cpu_matrix *cpu_matrix_new(struct cpu_backend *, const float *w, const float *b, int in, int out);
void cpu_matrix_free(struct cpu_matrix *);
void cpu_linear_create(struct s2_backend *, struct s2_linear *, const float *w, const float *b, int in, int out);
void cpu_linear_destroy(struct s2_backend *, struct s2_linear *);
void cpu_conv_create(struct s2_backend *, struct s2_conv *, const float *w, const float *b);
void cpu_conv_destroy(struct s2_backend *, struct s2_conv *);

/* linear.c */
/* c [m][columns first ..] = act(a W^T + b), serial; first is a multiple of the panel */
void cpu_affine(const struct cpu_backend *, float *c, ptrdiff_t ldc, const float *a, ptrdiff_t lda, int m,
                const struct cpu_matrix *, int first, int columns, enum s2_act act, bool accumulate);
void cpu_linear(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *, enum s2_act,
                bool accumulate);
void cpu_mlp(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
             const struct s2_linear *fc1, enum s2_act, const struct s2_linear *fc2);
void cpu_deconv2(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *,
                 struct s2_tensor skip, enum s2_act);

/* tokens.c */
void cpu_layer_norm(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *, enum s2_act);
void cpu_add(struct s2_backend *, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s);
void cpu_rope(struct s2_backend *, struct s2_tensor x, const float *table, int width);
void cpu_take(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, int first);
void cpu_concat(struct s2_backend *, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b);
void cpu_max_pool2(struct s2_backend *, struct s2_tensor y, struct s2_tensor x);
void cpu_upsample2_add(struct s2_backend *, struct s2_tensor y, struct s2_tensor x);
void cpu_where_absent(struct s2_backend *, struct s2_tensor x, struct s2_tensor score, const float *vec, bool replace);
void cpu_scatter(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const int32_t *index);
void cpu_clamp(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, float lo, float hi);

/* attention.c */
/* Most queries of a piece: more make better use of each packed key, but their state must stay in the cache. */
enum { CPU_QUERIES = 224 };
void cpu_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor q, struct s2_tensor k, struct s2_tensor v,
                   int heads);
void cpu_window_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor qkv, const struct s2_linear *,
                          int heads, int window, bool pool);

/* memory.c */
void cpu_memory_mask(struct s2_backend *, struct s2_tensor y, struct s2_tensor low, bool binarize);
void cpu_bank_store(struct s2_backend *, const struct s2_bank *, const int32_t *slot, const int32_t *ptr_slot,
                    struct s2_tensor mem, struct s2_tensor ptr);
void cpu_pointer_positions(struct s2_backend *, struct s2_tensor y, const struct s2_bank_table *,
                           const struct s2_linear *);
void cpu_memory_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor q, const struct s2_bank *,
                          const struct s2_bank_table *, const struct s2_linear *kproj, const float *pe,
                          const float *tpos, struct s2_tensor ptr_pos, const float *rope);

/* image.c */
void cpu_preprocess(struct s2_backend *, struct s2_tensor y, const struct s2_image *frame);

/* conv.c */
void cpu_conv(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *, enum s2_act);

/* masks.c */
void cpu_point_tokens(struct s2_backend *, struct s2_tensor y, const float *points, const float *gauss,
                      const float *embed, int size);
void cpu_mask_logits(struct s2_backend *, struct s2_tensor y, struct s2_tensor hyper, struct s2_tensor u);
void cpu_choose(struct s2_backend *, struct s2_tensor low, struct s2_tensor token, struct s2_tensor best_iou,
                struct s2_tensor masks, struct s2_tensor iou, struct s2_tensor score, struct s2_tensor tokens,
                int first, bool multimask);
void cpu_fill_holes(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, int area);
void cpu_video_masks(struct s2_backend *, const struct s2_video_masks *out, struct s2_tensor low);

#endif

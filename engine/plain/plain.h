/* plain.h - the oracle backend: what its files share. Activations are f32, sums are carried in double and
 * rounded once at the end of an operator. */
#ifndef PLAIN_H
#define PLAIN_H

#include "../ops.h"

/* rows of tokens that an operator works on at a time */
#define PLAIN_ROWS 32

/* A matrix in -> out in double, columns in panels of 16 so that the inner loop of a product runs over
 * neighbouring doubles: element (i, o) lies at plain_at(in, i, o). */
#define PLAIN_PANEL 16
static inline size_t plain_at(int in, int i, int o)
{
    return ((size_t)(o / PLAIN_PANEL) * (size_t)in + (size_t)i) * PLAIN_PANEL + (size_t)(o % PLAIN_PANEL);
}
static inline size_t plain_packed_size(int in, int out)
{
    return ((size_t)out + PLAIN_PANEL - 1) / PLAIN_PANEL * PLAIN_PANEL * (size_t)in;
}

/* impl of a linear layer and of a dense convolution, whose input is then (ky, kx, channel) */
struct plain_matrix {
    int in, out;
    double *packed;
    float *bias;
};

/* impl of a depthwise convolution */
struct plain_depthwise {
    float *weight; /* [c][k][k] */
    float *bias;
};

static inline float *plain_token(struct s2_tensor t, int64_t i)
{
    return (float *)t.data + i * t.ld;
}

/* product.c */
/* a * b doubles, zeroed; NULL: recorded as a failure. Released with free(). */
double *plain_doubles(struct s2_backend *be, size_t a, size_t b);
double plain_activate(double x, enum s2_act act);
/* y [rows][out] = x [rows][in] times a packed matrix */
void plain_product(double *y, const double *x, const double *packed, int rows, int in, int out);
/* the same plus the bias */
void plain_affine(double *y, const double *x, const struct plain_matrix *m, int rows);
/* tokens first .. first+rows-1 of t as [rows][t.c] */
void plain_load(double *rows, struct s2_tensor t, int64_t first, int count);
/* y [rows][dv] = softmax(scale q k^T) v: q [rows][d], k packed d -> keys, v packed keys -> dv,
 * scores: scratch [rows][keys] */
void plain_attend(double *y, const double *q, const double *k, const double *v, double *scores, int rows, int keys,
                  int d, int dv, double scale);

/* weights.c */
void plain_linear_create(struct s2_backend *, struct s2_linear *, const float *w, const float *b, int in, int out);
void plain_linear_destroy(struct s2_backend *, struct s2_linear *);
void plain_conv_create(struct s2_backend *, struct s2_conv *, const float *w, const float *b);
void plain_conv_destroy(struct s2_backend *, struct s2_conv *);

/* image.c */
void plain_preprocess(struct s2_backend *, struct s2_tensor y, const struct s2_image *frame);
void plain_conv(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *, enum s2_act);
void plain_max_pool2(struct s2_backend *, struct s2_tensor y, struct s2_tensor x);
void plain_upsample2_add(struct s2_backend *, struct s2_tensor y, struct s2_tensor x);

/* tokens.c */
void plain_linear(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *, enum s2_act,
                  bool accumulate);
void plain_layer_norm(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *, enum s2_act);
void plain_mlp(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
               const struct s2_linear *fc1, enum s2_act, const struct s2_linear *fc2);
void plain_add(struct s2_backend *, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s);
void plain_rope(struct s2_backend *, struct s2_tensor x, const float *table, int width);
void plain_take(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, int first);
void plain_concat(struct s2_backend *, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b);

/* attention.c */
void plain_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor q, struct s2_tensor k,
                     struct s2_tensor v, int heads);
void plain_window_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor qkv, const struct s2_linear *,
                            int heads, int window, bool pool);

/* masks.c */
void plain_point_tokens(struct s2_backend *, struct s2_tensor y, const float *points, const float *gauss,
                        const float *embed, int size);
void plain_deconv2(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *,
                   struct s2_tensor skip, enum s2_act);
void plain_mask_logits(struct s2_backend *, struct s2_tensor y, struct s2_tensor hyper, struct s2_tensor u);
void plain_choose(struct s2_backend *, struct s2_tensor low, struct s2_tensor token, struct s2_tensor best_iou,
                  struct s2_tensor masks, struct s2_tensor iou, struct s2_tensor score, struct s2_tensor tokens,
                  int first, bool multimask);
void plain_where_absent(struct s2_backend *, struct s2_tensor x, struct s2_tensor score, const float *vec,
                        bool replace);
void plain_scatter(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const int32_t *index);
void plain_clamp(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, float lo, float hi);
void plain_fill_holes(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, int area);
void plain_video_masks(struct s2_backend *, const struct s2_video_masks *out, struct s2_tensor low);

/* memory.c */
void plain_memory_mask(struct s2_backend *, struct s2_tensor y, struct s2_tensor low, bool binarize);
void plain_bank_store(struct s2_backend *, const struct s2_bank *, const int32_t *slot, const int32_t *ptr_slot,
                      struct s2_tensor mem, struct s2_tensor ptr);
void plain_pointer_positions(struct s2_backend *, struct s2_tensor y, const struct s2_bank_table *,
                             const struct s2_linear *lin);
void plain_memory_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor q, const struct s2_bank *,
                            const struct s2_bank_table *, const struct s2_linear *kproj, const float *pe,
                            const float *tpos, struct s2_tensor ptr_pos, const float *rope);

#endif

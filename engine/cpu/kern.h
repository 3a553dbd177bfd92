/* kern.h - the serial kernels of the CPU backend, one table per instruction set.
 *
 * engine/cpu/kern_*.c are compiled once per instruction set; K(name) carries its suffix. The ordinary files
 * of this folder cut the work into pieces, give each thread its piece and its memory, and call these. A kernel
 * computes each output row the same way wherever the cut lies, so results do not depend on the cut. */
#ifndef S2_CPU_KERN_H
#define S2_CPU_KERN_H

#include "../common.h"
#include "../ops.h"

#ifndef K
#define K(name) name##_base
#endif

/* One product C[m][n] = act(A[m][k] B + bias), or C += A B + bias with accumulate (act NONE then). B is packed:
 * panels of `panel` columns, each [k][panel], panel_stride floats from one to the next. bias holds a whole
 * number of panels, or is NULL. */
struct cpu_product {
    int m, n, k;
    const float *a, *b, *bias;
    float *c;
    ptrdiff_t lda, ldc, panel_stride;
    ptrdiff_t step; /* of a, from k to k + 1; 0 stands for 1 */
    bool grouped;   /* a is as cpu_group_rows left it; lda and step are 0 */
    bool accumulate;
    enum s2_act act;
};

/* A matrix W [out][in] with its bias, columns being its rows: packed by matrix_pack, the bias [out] with zeros to a
 * whole panel behind. */
struct cpu_matrix {
    int in, out;
    void *packed;
    float *bias;
};

/* c [m][columns] = act(a W^T + b) for columns first .. of the result, or c += a W^T + b with accumulate (act NONE
 * then). Only terms k .. k+depth-1 of the sums count; the bias belongs to the first term. first is a multiple of the
 * panel, k of CPU_DEPTH. */
struct cpu_affine {
    const struct cpu_matrix *w;
    const float *a;
    float *c;
    ptrdiff_t lda, ldc;
    int m, first, columns, k, depth;
    bool accumulate;
    enum s2_act act;
};

/* The hidden layer of a perceptron is made and used in steps of so many columns. */
enum { CPU_DEPTH = 512 };

/* y [m][c] += fc2(act(fc1(norm(x)))); norm may be NULL. Rows of x are contiguous; y may be x. */
struct cpu_perceptron {
    const struct cpu_matrix *fc1, *fc2;
    const struct s2_norm *norm;
    const float *x;
    float *y;
    ptrdiff_t ldy;
    int m;
    enum s2_act act;
};

/* Of the second-level cache, what a piece of work may take up in bytes. */
enum { CPU_CACHE = 7 << 18 };

/* Keys of an attention step: packing and attention go by blocks of so many. */
enum { CPU_KEYS = 256 };

/* One-head attention of query rows against packed keys and values, see cpu_keys_*. */
struct cpu_attend {
    const float *q;            /* rows ldq apart */
    const void *keys, *values; /* packed */
    float *y;
    ptrdiff_t ldq, ldy;
    int n_keys, d, dv;
};

/* One window and one head of Hiera's attention. Strides in floats. */
struct cpu_window {
    const float *qkv; /* q of the window's first token and head; k and v lie o and 2o behind */
    const float *pad; /* the same for a padding token */
    float *y;
    ptrdiff_t o;          /* channels of all heads */
    ptrdiff_t row, token; /* from one map row and token to the next: W*3*o, 3*o */
    ptrdiff_t y_row, y_token;
    int h, w;  /* real tokens of the window */
    int n_pad; /* padding tokens */
    int d;
    bool pool;
};

/* One axis of Pillow's resampling, see common.h. taps == 0: the axis keeps its size. */
struct cpu_axis {
    int in, out, taps;
    int32_t *first, *count, *coef;
};

enum { CPU_FEW_KEYS = 32 };

struct cpu_kern {
    const char *name;
    int panel;            /* columns of a packed panel */
    int rows;             /* rows of a register tile: cuts in multiples of it cost least */
    int block;            /* most rows of a cut: they stay in the second-level cache while the weights stream past */
    int perceptron_block; /* the same for perceptron, as long as its memory is at most CPU_CACHE */

    /* dst[panel][k][panel columns] from B[i][j] = b[i*row + j*col], i < k, j < n; columns behind n are 0 */
    void (*pack)(float *dst, const float *b, int k, int n, ptrdiff_t row, ptrdiff_t col);
    void (*product)(const struct cpu_product *);

    size_t (*matrix_size)(int in, int out); /* bytes of a packed matrix */
    /* packs columns first .. first+count-1 of a matrix, so far zeros, from w [out][in]; first is a multiple of the
     * panel */
    void (*matrix_pack)(struct cpu_matrix *, const float *w, int first, int count);
    size_t affine_size; /* bytes of local memory that affine needs */
    void (*affine)(const struct cpu_affine *, void *local);
    size_t (*perceptron_size)(int m, int c); /* bytes of local memory */
    void (*perceptron)(const struct cpu_perceptron *, void *local);

    /* the table whose attention takes fewer than CPU_FEW_KEYS keys, of which tiles would mostly be padding; NULL: this
     * one */
    const struct cpu_kern *few_keys;
    /* bytes that the keys and values of n_keys keys take when packed */
    size_t (*keys_size)(int n_keys, int d);
    size_t (*values_size)(int n_keys, int dv);
    /* pack keys first .. first+count-1; first is a multiple of CPU_KEYS, count is CPU_KEYS but for the last ones;
     * k and v point to key `first` */
    void (*keys_pack)(void *keys, const float *k, ptrdiff_t ldk, int first, int count, int d);
    void (*values_pack)(void *values, const float *v, ptrdiff_t ldv, int first, int count, int dv);
    /* rows first .. first+count-1; local holds attend_size(count, d, dv) bytes */
    size_t (*attend_size)(int count, int d, int dv);
    void (*attend)(const struct cpu_attend *, int first, int count, void *local);
    size_t (*window_size)(int keys, int d); /* bytes; keys: tokens of a window, plus one for padding */
    void (*window)(const struct cpu_window *, void *local);

    void (*layer_norm)(float *y, const float *x, const struct s2_norm *, size_t rows, enum s2_act);
    void (*activate)(float *x, size_t n, enum s2_act);
    void (*axpy)(float *y, const float *a, const float *b, float s, size_t n); /* y = a + s b */
    void (*rope)(float *x, const float *table, int c);                         /* one token */
    void (*max4)(float *y, const float *a, const float *b, const float *c, const float *d, size_t n);
    void (*clamp)(float *y, const float *x, float lo, float hi, size_t n);
    /* y = the bf16 memory token + pe + tpos */
    void (*memory_token)(float *y, const uint16_t *mem, const float *pe, const float *tpos, int n);
    void (*widen)(float *y, const uint16_t *x, size_t n);  /* bf16 to f32 */
    void (*narrow)(uint16_t *y, const float *x, size_t n); /* f32 to bf16, nearest even */
    void (*sigmoid20)(float *y, size_t n);                 /* y = 20 sigmoid(y) - 10 */
    /* y[i][c] += sum over t < taps of x[i+t][c] w[t][c], i < width, c < n: one row of a depthwise kernel */
    void (*depthwise)(float *y, const float *x, const float *w, int width, int taps, int n);

    /* Interpolated rows, rounded as torch does: across to `width` pixels, then between two such rows. */
    void (*lerp_across)(float *to, const float *from, const struct s2i_tap *, int width);
    void (*lerp_down)(float *to, const float *above, const float *below, float lambda0, float lambda1, int width);
    /* set[x] = 1 where the condition holds, else 0; pack_bits makes the layout of struct s2_bits of it */
    void (*positive)(uint8_t *set, const float *row, int width);
    void (*owned)(uint8_t *set, const uint16_t *owner, int index, int width);
    void (*pack_bits)(uint8_t *bits, size_t stride, const uint8_t *set, int width);
    /* owner = index where row > largest; largest follows */
    void (*own)(uint16_t *owner, float *largest, const float *row, int index, int width);

    /* one to four rows of RGB pixels */
    void (*resample_across)(uint8_t *dst, ptrdiff_t dst_pitch, const uint8_t *src, ptrdiff_t src_pitch, int rows,
                            const struct cpu_axis *);
    /* output row i of `bytes` bytes from rows of src, `pitch` bytes apart */
    void (*resample_down)(uint8_t *dst, const uint8_t *src, ptrdiff_t pitch, int bytes, const struct cpu_axis *, int i);
};

extern const struct cpu_kern cpu_kern_base, cpu_kern_avx2, cpu_kern_avx512, cpu_kern_amx, cpu_kern_amx_bf16;

#include "kern_parts.h"

#endif

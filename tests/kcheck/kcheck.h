/* kcheck.h - operator parity and benchmark: every operator of the table on the oracle and on the CPU or CUDA backend,
 * with the same input, compared element by element.
 *
 * A case: kc_begin, make tensors (the same content on every side), call the operator on every side, compare,
 * kc_end. Outputs are poisoned with NaN, every buffer lies between canaries, whatever an operator has no
 * business to write must keep its bytes, and the tested backend must give the same bytes on one thread.
 *
 * A backend's activations may have 16 bits. Tensors of the activation type, and weights, have their content rounded to
 * the tested backend's before any side gets it: the oracle works on the same numbers in f32. Tensors that the contract
 * wants in f32 on any backend are made by kc_f32_of, kc_noise_f32 and kc_poison_f32. */
#ifndef KCHECK_H
#define KCHECK_H

#include "ops.h"

/* KC_OTHER is the tested backend with another number of threads. */
enum kc_side { KC_ORACLE, KC_TESTED, KC_OTHER, KC_SIDES };

struct kc_run {
    struct s2_backend *be[KC_SIDES];
    bool quick;         /* small cases only: under sanitizers */
    bool bench;         /* only KC_TESTED exists */
    bool gpu;           /* KC_TESTED is a GPU, or stands for one: cases for its block sizes are worth their time */
    enum s2_dtype act;  /* activation type of KC_TESTED */
    double eps;         /* unit roundoff of the tested backend's arithmetic */
    double operand;     /* error of a product over its size by the rounding of its operands; 0 for f32 */
    int passed, failed; /* cases */
    int cases;          /* of the current operator */
    double worst;       /* largest error over tolerance of the current operator */
    const char *op;
};
extern struct kc_run kc;

#define KC_EACH(s) for (int s = kc.bench ? KC_TESTED : KC_ORACLE; s < (kc.bench ? KC_TESTED + 1 : KC_SIDES); s++)

#define KC_CALL(s, op, ...) kc.be[s]->ops->op(kc.be[s], __VA_ARGS__)

/* Calls the operator under test, first with the backend's skip set, when it must not do anything. */
#define KC_RUN(s, op, ...)                                                                                             \
    do {                                                                                                               \
        kc.be[s]->skip = true;                                                                                         \
        KC_CALL(s, op, __VA_ARGS__);                                                                                   \
        kc.be[s]->skip = false;                                                                                        \
        kc_nothing_done(s);                                                                                            \
        KC_CALL(s, op, __VA_ARGS__);                                                                                   \
        kc_wait(s);                                                                                                    \
    } while (0)
void kc_nothing_done(int side);
/* A device that runs behind the host is waited for. Its buffers are pinned host memory, which both sides reach, unless
 * times are taken. */
void kc_wait(int side);
bool kc_reachable(int side);

/* harness.c: memory on all sides, released by kc_end */
struct kc_buffer {
    struct kc_copy {
        size_t bytes;
        char *host; /* content at the start with its canaries */
        char *base; /* backend memory, canaries included */
    } on[KC_SIDES];
    bool checked; /* compared as an output; other buffers must not have changed */
    struct kc_buffer *next;
};
struct kc_tensor {
    struct s2_tensor on[KC_SIDES];
    struct kc_buffer *buffer;
};

void kc_begin(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void kc_end(void);
/* Fails the current case; the first reason is printed. */
void kc_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

double kc_uniform(void);                 /* [-1, 1) */
int kc_below(int n);                     /* 0 .. n-1 */
void *kc_scratch(size_t n, size_t size); /* zeroed host memory until kc_end */
struct kc_buffer *kc_buffer(const void *content, size_t bytes);
void *kc_at(const struct kc_buffer *, int side);
/* The same host array in backend memory of one side, for vectors and tables. */
struct kc_buffer *kc_floats(const float *v, size_t n);

/* of the activation type */
struct kc_tensor kc_tensor_of(const float *content, int n, int h, int w, int c);
struct kc_tensor kc_noise(int n, int h, int w, int c, double scale); /* uniform in [-scale, scale) */
struct kc_tensor kc_poison(int n, int h, int w, int c);              /* NaN */
struct kc_tensor kc_none(int n, int h, int w, int c);                /* data == NULL */
/* of f32 whatever the backend */
struct kc_tensor kc_f32_of(const float *content, int n, int h, int w, int c);
struct kc_tensor kc_noise_f32(int n, int h, int w, int c, double scale);
struct kc_tensor kc_poison_f32(int n, int h, int w, int c);

struct kc_tensor kc_columns(struct kc_tensor, int first, int count);
struct kc_tensor kc_shape(struct kc_tensor, int n, int h, int w, int c);
struct kc_tensor kc_batch(struct kc_tensor, int first, int count); /* views all three */
float kc_value(struct kc_tensor, int64_t token, int c);            /* content at the start */
float *kc_random(size_t n, double scale);                          /* host, until kc_end */

struct kc_linear {
    struct s2_linear on[KC_SIDES];
    const float *w, *b; /* rounded to the activation type */
    int in, out;
};
struct kc_conv {
    struct s2_conv on[KC_SIDES];
    const float *w, *b;
};
struct kc_norm {
    struct s2_norm on[KC_SIDES];
    const float *weight, *bias;
};
struct kc_linear kc_linear(int in, int out); /* random, weights of the size of 1/sqrt(in) */
void kc_linear_free(struct kc_linear *);
struct kc_conv kc_conv(int in, int out, int k, int stride, int pad, int groups);
void kc_conv_free(struct kc_conv *);
struct kc_norm kc_norm(int c, float eps);

/* Every side's y against the oracle's: |difference| <= tolerance[element], elements as [token][channel], before y is
 * rounded to its type; elements whose tolerance is negative are skipped. kc_equal: equal (0 and -0 are) once the
 * oracle's is rounded to the type. */
void kc_close(struct kc_tensor y, const double *tolerance);
void kc_equal(struct kc_tensor y);
void kc_equal_bytes(struct kc_buffer *);

/* half.c: numbers of bf16, fp16 and, unchanged, f32 */
void kc_narrow(void *to, const float *from, size_t n, enum s2_dtype);
float kc_widened(const void *, size_t index, enum s2_dtype);
float kc_rounded(float, enum s2_dtype);
double kc_half_ulp(float, enum s2_dtype); /* half the distance to the next number away from 0; 0 for f32 */

/* half_plain.c: the oracle's operators on activations of `act`; *err is set on failure */
struct s2_backend *kc_half_plain_open(enum s2_dtype act, struct s2_err *err);

/* bound.c: error bounds of the backend's arithmetic, per element; all sums in double */
double kc_sum_bound(int terms);  /* eps (8 + 2 sqrt(terms)): error of a sum over the sum of the terms' sizes */
double kc_dot_bound(int terms);  /* the same for a dot product of rounded operands */
double kc_store_bound(double v); /* error of keeping v in the activation type; 0 for f32, where eps has it */
double kc_gain(enum s2_act act); /* the most that an activation enlarges an error */
double kc_act_bound(double error, enum s2_act act);                /* error of act(v), v off by `error` */
double kc_act_pass_bound(double v, double error, enum s2_act act); /* the same where v may be kept before act */
/* [rows][out] of act(x W^T + b); kept: the product is kept in the activation type before what follows */
double *kc_product_bound(struct kc_tensor x, const struct kc_linear *, enum s2_act act, bool kept);
/* normalised values and their bound, [rows][c] */
void kc_norm_bound(struct kc_tensor x, const struct kc_norm *, double *value, double *bound);
/* What one head attends to: keys [n] rows of d, values [n] rows of dv. Keys may already have errors, and in 16 bits
 * independent ones of being kept, as values may; NULL: none. The last `alike` keys and values are one and the same. */
struct kc_attended {
    int n, d, dv, alike;
    const double *keys, *key_error, *key_rounding, *values, *value_rounding;
    double *scratch; /* [3 n] */
};
/* bound [dv] of the attention of one query q [d] */
void kc_attention_bound(double *bound, const double *q, const struct kc_attended *);

/* cases, by file */
void check_preprocess(void), check_conv(void), check_conv_norm(void), check_patch_embed(void), check_max_pool2(void),
    check_upsample2_add(void);
void check_linear(void), check_layer_norm(void), check_norm_linear(void), check_mlp(void), check_add(void),
    check_rope(void), check_take(void), check_concat(void), check_scatter(void);
void check_attention(void), check_window_attention(void);
void check_point_tokens(void), check_deconv2(void), check_mask_logits(void), check_choose(void),
    check_where_absent(void), check_clamp(void), check_fill_holes(void), check_video_masks(void);
void check_token_attention(void), check_token_to_image(void), check_token_mlp(void), check_image_to_token(void),
    check_token_heads(void), check_upscaled_masks(void);
void check_memory_mask(void), check_bank_store(void), check_pointer_positions(void), check_memory_attention(void);

/* bench.c: KC_BENCH times a call of the tested backend; bytes are inputs and outputs, each once. On a device, calls in
 * a row as a program, which is replayed. bench_ops.c: the shapes of SAM 2.1 tiny at 1024, and some of other models. */
void bench_operators(void);
void bench_decoder(void); /* of the mask decoder, bench_decoder.c */
bool kc_bench_wants(const char *op);
void kc_clock_start(void);
bool kc_clock_more(void);
int kc_clock_calls(void); /* to issue now, 0: they are replayed */
bool kc_clock_again(void);
void kc_clock_report(const char *op, double flops, double bytes, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define KC_BENCH(op, flops, bytes, call, ...)                                                                          \
    do {                                                                                                               \
        for (kc_clock_start(); kc_clock_more();) {                                                                     \
            const int kc_calls = kc_clock_calls();                                                                     \
            if (kc_calls > 0) {                                                                                        \
                do {                                                                                                   \
                    for (int kc_call = 0; kc_call < kc_calls; kc_call++) call;                                         \
                } while (kc_clock_again());                                                                            \
            }                                                                                                          \
        }                                                                                                              \
        kc_clock_report(op, flops, bytes, __VA_ARGS__);                                                                \
    } while (0)

#endif

/* ops.h - the operator table: everything the model asks of a machine.
 *
 * The network is written once (hiera.c, memattn.c, ...) as plain lists of the calls below. A backend
 * (engine/plain: the oracle; engine/cpu: own kernels; cuda/) fills struct s2_ops. Operators
 * are wide: each is one pass that a backend may fuse as it likes, as long as the contract holds.
 *
 * Conventions
 *   - Activations are NHWC = [n][h*w tokens][c channels], row-major; token index y*w + x.
 *   - A tensor's dtype is the backend's activation type (s2_backend.act: f32 on the CPU, bf16 or fp16 or
 *     f32 on CUDA) unless a contract says f32 or i32. Arithmetic accumulates in f32.
 *   - Tensors are contiguous (ld == c) except where a contract says "ld allowed".
 *   - Outputs do not overlap inputs unless the contract says "may be".
 *   - Operators return nothing. A failing one records the first failure in the backend and sets `skip`;
 *     every later call is then a no-op. Each stage ends with one s2_backend_check().
 *   - Within a step nothing comes back to the host but through `download`: what depends on values (mask
 *     choice, absence, bank slots) is data in backend memory, so that a step can be captured and replayed.
 *   - The same input gives the same bytes, whatever the number of threads. */
#ifndef S2_OPS_H
#define S2_OPS_H

#include "base.h"

enum s2_act { S2_ACT_NONE, S2_ACT_RELU, S2_ACT_GELU /* erf form */, S2_ACT_SIGMOID };

struct s2_tensor {
    void *data;
    enum s2_dtype dtype;
    int n, h, w, c;
    int ld; /* elements from one token to the next; c when contiguous */
};

/* y = x W^T + b, W [out][in]. bias always exists (zeros if the model has none). */
struct s2_linear {
    int in, out;
    void *impl; /* the backend's packed weights and bias */
};

/* sam/transformer.py Attention: the four products of an attention with S2_DECODER_HEADS heads. */
struct s2_projections {
    struct s2_linear q, k, v, out;
};
enum { S2_DECODER_HEADS = 8 };

/* One head of the mask decoder: y {n,1,1,out} = last(layer[2](relu(layer[1](relu(layer[0](x)))))), x being one token of
 * each batch entry. y is f32 or of the activation type; ld allowed. */
struct s2_head {
    int token;
    const struct s2_linear *layer; /* [3] */
    enum s2_act last;
    struct s2_tensor y;
};
enum { S2_MAX_HEADS = 6 };

/* Square kernel k, W [out][in/groups][k][k]; groups is 1 or in (= out, depthwise). */
struct s2_conv {
    int in, out, k, stride, pad, groups;
    void *impl;
};

/* Layer normalisation over c channels of each token, biased variance. f32 vectors in backend memory. */
struct s2_norm {
    int c;
    float eps;
    float *weight, *bias;
};

/* The stored memories of all objects of a session, backend memory, fixed capacity (spec of the bank: the
 * SAM 2 paper, section "Memory bank"; sam2_base.py _prepare_memory_conditioned_features). */
struct s2_bank {
    int tokens;      /* tokens of one memory frame, G*G */
    int dim;         /* 64 */
    int slots;       /* spatial slots in all, over all objects */
    int ptr_slots;   /* pointer slots in all */
    int ptr_dim;     /* 256; a pointer is ptr_dim/dim tokens */
    void *spatial;   /* bf16 [slots][tokens][dim] */
    float *pointers; /* f32 [ptr_slots][ptr_dim] */
};

/* Which memories each object of a batch attends to, in backend memory; entry b has counts[b][0] spatial
 * and counts[b][1] pointer memories, in this order of tokens. Missing memories cost nothing. */
struct s2_bank_table {
    int spatial_cap, ptr_cap;
    const int32_t *counts;   /* [n][2] */
    const int32_t *slot;     /* [n][spatial_cap]: index into s2_bank.spatial */
    const int32_t *row;      /* [n][spatial_cap]: row of tpos */
    const int32_t *ptr_slot; /* [n][ptr_cap]: index into s2_bank.pointers */
    const float *ptr_dist;   /* [n][ptr_cap]: distance in frames / Dmax, signed */
};

/* What video_masks writes, in backend memory. */
struct s2_video_masks {
    int width, height;
    size_t bit_stride; /* bytes a row of bits, >= (width+7)/8 */
    bool exclusive;    /* a set bit only where the object also owns the pixel */
    uint8_t **bits;    /* [n] rows of height * bit_stride, layout of struct s2_bits; NULL: not wanted */
    uint16_t *owner;   /* [height][width]: 1 + index of the object with the largest logit if that is > 0
                          (the first on ties), else 0; NULL: not wanted */
};

enum s2_program { S2_PROGRAM_IMAGE, S2_PROGRAM_TRACK, S2_PROGRAM_RESULTS, S2_PROGRAM_PROMPT, S2_PROGRAM_REFINE };
const char *s2_program_name(enum s2_program); /* "image", "track", "results", "prompt", "refine" */

enum { S2_OUTPUT_OWNER = 1, S2_OUTPUT_MASKS = 2 };
enum { S2_MAX_STEPS = 4, S2_MAX_MARKS = 8, S2_MAX_COPIES = 8 };

/* What makes two steps the same program. The session stands for what is fixed while it is open: model, image size,
 * precision, size of the video, capacity of the bank, and all addresses. */
struct s2_signature {
    uint64_t session; /* serial number of the session in this process */
    enum s2_program program;
    int batch;   /* objects in the batch; frames of S2_PROGRAM_IMAGE */
    int outputs; /* of S2_PROGRAM_RESULTS: bits S2_OUTPUT_* */
};

struct s2_backend;

struct s2_ops {
    /* --- memory and weights; called at open and close only, except upload and download */
    void *(*alloc)(struct s2_backend *, size_t bytes); /* 64-byte aligned; NULL: recorded as a failure */
    void (*free)(struct s2_backend *, void *);
    void (*upload)(struct s2_backend *, void *dst, const void *host, size_t bytes);
    void (*download)(struct s2_backend *, void *host, const void *src, size_t bytes); /* complete after sync */
    void (*linear_create)(struct s2_backend *, struct s2_linear *, const float *w, const float *b, int in, int out);
    void (*linear_destroy)(struct s2_backend *, struct s2_linear *);
    /* in, out, k, stride, pad, groups are set in *conv by the caller */
    void (*conv_create)(struct s2_backend *, struct s2_conv *, const float *w, const float *b);
    void (*conv_destroy)(struct s2_backend *, struct s2_conv *);
    void (*close)(struct s2_backend *);

    /* --- devices that run behind the host (all NULL on the CPU, where operators are complete on return) */
    /* Host memory that upload, download and stage_images reach directly. By any thread; NULL: there is none left */
    void *(*alloc_host)(struct s2_backend *, size_t bytes);
    void (*free_host)(struct s2_backend *, void *);
    void (*sync)(struct s2_backend *); /* everything issued so far is complete, downloads included */
    /* The pixels of n frames start on their way; the caller's buffers are free on return, those from alloc_host when
     * what was issued so far is complete. preprocess of as many then reads the staged copies (its frame argument says
     * the sizes). */
    void (*stage_images)(struct s2_backend *, int n, const struct s2_image *frame);
    /* A step is everything issued between begin, which gives its number, and end. wait: it is complete, downloads
     * included; S2_MAX_STEPS may be on their way. */
    uint64_t (*step_begin)(struct s2_backend *);
    void (*step_end)(struct s2_backend *, uint64_t step);
    void (*step_wait)(struct s2_backend *, uint64_t step);
    /* Operators between ahead_begin and ahead_end may run while those issued before are still on their way: they wait
     * for each other and for the last ahead_end's copies, so they read and write nothing but memory of their own and
     * what was complete before. What follows ahead_end waits for them and for n copies, from[i] to to[i], at most
     * S2_MAX_COPIES, whole rows of as many elements. Both are called after a failure too. */
    void (*ahead_begin)(struct s2_backend *);
    void (*ahead_end)(struct s2_backend *, int n, const struct s2_tensor *to, const struct s2_tensor *from);
    void (*copy)(struct s2_backend *, int n, const struct s2_tensor *to,
                 const struct s2_tensor *from); /* such copies */
    /* Marks a place among the operators, recorded ones too; between: seconds from one mark to another as they were last
     * passed, 0 if one never was. Everything is complete. */
    void (*mark)(struct s2_backend *, int mark); /* 0 .. S2_MAX_MARKS - 1 */
    double (*between)(struct s2_backend *, int from, int to);
    /* A program is a list of operators that depends on nothing but *sig and on data in backend memory. begin: true
     * if a recording was replayed in place of it; false: the caller issues the operators, then calls end, and issues
     * them again for as long as end says true:
     *     if (!begin()) do { operators } while (end());
     * The backend may record a round, which then computes nothing; whatever the rounds, the operators have taken
     * effect once. end follows a begin that said false even if an operator failed. why_not: a constant string, the
     * reason why nothing may be recorded or replayed; NULL: it may. */
    bool (*begin)(struct s2_backend *, const struct s2_signature *sig, const char *why_not);
    bool (*end)(struct s2_backend *);
    void (*forget)(struct s2_backend *, uint64_t session); /* drops the recordings of a session */

    /* --- image */
    /* y [n,S,S,3]: frame[n], all of one size, squeezed to S x S by Pillow's 8-bit bicubic (antialiased, a = -0.5,
     * horizontal pass first; vertical first only when H > 100 W and S < H; an axis of equal size is not resampled),
     * then (v/255 rounded to f32 - mean) / std in f32, RGB, mean .485 .456 .406, std .229 .224 .225. Planes become
     * RGB first, byte by byte as s2_yuv_row has it. */
    void (*preprocess)(struct s2_backend *, struct s2_tensor y, const struct s2_image *frame);
    /* y [n,h',w',out] = act(conv(x) + bias), zero padding */
    void (*conv)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *, enum s2_act);
    /* y = act(norm(conv(x) + bias)), the norm over the channels of a place (sam2_utils.py LayerNorm2d) */
    void (*conv_norm)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *,
                      const struct s2_norm *, enum s2_act);
    /* y = conv(x) + bias + pos, pos [1,h',w',out] (hieradet.py PatchEmbed, Hiera._get_pos_embed) */
    void (*patch_embed)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *,
                        struct s2_tensor pos);
    /* y [n,h/2,w/2,c] = max over 2x2; h and w even */
    void (*max_pool2)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x);
    /* y[n,2h,2w,c] += x[n,h,w,c] at (Y/2, X/2) */
    void (*upsample2_add)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x);

    /* --- tokens */
    /* y = act(x W^T + b); rows = n*h*w of x. accumulate: y += act(...) instead. x, y: ld allowed */
    void (*linear)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *, enum s2_act,
                   bool accumulate);
    /* y = act(norm(x)); y may be x */
    void (*layer_norm)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
                       enum s2_act);
    /* y = norm(x) W^T + b; room: memory of x's shape that the operator may use */
    void (*norm_linear)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
                        const struct s2_linear *, struct s2_tensor room);
    /* y += fc2(act(fc1(norm(x)))); norm may be NULL (identity); y may be x */
    void (*mlp)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
                const struct s2_linear *fc1, enum s2_act, const struct s2_linear *fc2);
    /* y = a + s*b. b broadcasts: over n if b.n == 1 < y.n, over tokens if b.h == b.w == 1. a broadcasts over n
     * if a.n == 1. y may be a (or b, where b does not broadcast) */
    void (*add)(struct s2_backend *, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s);
    /* rotate in place: x [n,1,N,c] (ld allowed), each `width` channels of a token, c a multiple of it, by
     * table f32 [N][width/2][2] = cos, sin of channels (2m, 2m+1): (a,b) -> (a cos - b sin, a sin + b cos). Same
     * table for every n. */
    void (*rope)(struct s2_backend *, struct s2_tensor x, const float *table, int width);
    /* y [n,1,Tq,c] = softmax(q k^T / sqrt(c/heads)) v, per n and head (heads lie one after another in c).
     * q [n,1,Tq,c], k, v [n,1,Tk,c]; q, k, v: ld allowed */
    void (*attention)(struct s2_backend *, struct s2_tensor y, struct s2_tensor q, struct s2_tensor k,
                      struct s2_tensor v, int heads);
    /* Hiera attention on un-windowed maps. qkv [n,H,W,3*o], per token [3][heads][o/heads]. window w > 0:
     * the map is cut into w x w windows from the top left; tokens behind the right and bottom edge are keys
     * whose q, k, v are the bias of `lin` (they are real keys, no mask). w == 0: one window, the whole map.
     * pool: queries are the max over 2x2 (H, W, w even) and y is [n,H/2,W/2,o], else y is [n,H,W,o].
     * (hieradet.py MultiScaleAttention, MultiScaleBlock) */
    void (*window_attention)(struct s2_backend *, struct s2_tensor y, struct s2_tensor qkv, const struct s2_linear *lin,
                             int heads, int window, bool pool);
    /* y [n,1,count,c] = tokens first .. first+count-1 of x [n,1,T,c], count = y.w */
    void (*take)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, int first);
    /* y [n,1,a.w+b.w,c] = a's tokens then b's; a.n may be 1 (broadcast); b.w may be 0 */
    void (*concat)(struct s2_backend *, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b);

    /* y[index[b]] = x[b] where index[b] >= 0; f32, y {m,h,w,c}, x {n,h,w,c}; index i32 [n] in backend memory */
    void (*scatter)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const int32_t *index);

    /* --- prompts and masks */
    /* y [n,1,k,256]; points f32 [n][k][3] = x, y (model pixels, before the +0.5), label. label -1:
     * embed[4]; 0..3: fourier + embed[label]. gauss f32 [2][128], embed f32 [5][256]; size = S.
     * (prompt_encoder.py _embed_points, position_encoding.py PositionEmbeddingRandom) */
    void (*point_tokens)(struct s2_backend *, struct s2_tensor y, const float *points, const float *gauss,
                         const float *embed, int size);
    /* --- steps of the mask decoder (sam/transformer.py TwoWayAttentionBlock, sam/mask_decoder.py). tokens, prompt
     * [n,1,t,c], image [n,1,N,c], pe [1,1,N,c]; prompt and pe are positions. A(q, k, v) is the attention on the
     * products of q, k and v by p, then p->out. room: memory of the activation type that the operator may use, at
     * least s2_decoder_room elements. compose.c has each as the operators it is made of. */
    /* y = norm(x + A(x + prompt, x + prompt, x)); prompt.data NULL: norm(A(x, x, x)). y may be x */
    void (*token_attention)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, struct s2_tensor prompt,
                            const struct s2_projections *p, const struct s2_norm *, struct s2_tensor room);
    /* tokens = norm(tokens + A(tokens + prompt, image + pe, image)) */
    void (*token_to_image)(struct s2_backend *, struct s2_tensor tokens, struct s2_tensor prompt,
                           struct s2_tensor image, struct s2_tensor pe, const struct s2_projections *p,
                           const struct s2_norm *, struct s2_tensor room);
    /* tokens = norm(tokens + fc2(relu(fc1(tokens)))) */
    void (*token_mlp)(struct s2_backend *, struct s2_tensor tokens, const struct s2_linear *fc1,
                      const struct s2_linear *fc2, const struct s2_norm *);
    /* image = norm(image + A(image + pe, tokens + prompt, tokens)) */
    void (*image_to_token)(struct s2_backend *, struct s2_tensor image, struct s2_tensor pe, struct s2_tensor tokens,
                           struct s2_tensor prompt, const struct s2_projections *p, const struct s2_norm *,
                           struct s2_tensor room);
    /* every head's y, at most S2_MAX_HEADS of them */
    void (*token_heads)(struct s2_backend *, int n_heads, const struct s2_head *, struct s2_tensor tokens,
                        struct s2_tensor room);
    /* masks f32 {n,k,16 h w,1} = mask_logits of hyper [n,1,k,c0] and image [n,h,w,c] upscaled four times: deconv2 by
     * up1 plus s1 [1,2h,2w,c1], norm and GELU, deconv2 by up2 plus s0 [1,4h,4w,c0], GELU */
    void (*upscaled_masks)(struct s2_backend *, struct s2_tensor masks, struct s2_tensor hyper, struct s2_tensor image,
                           const struct s2_linear *up1, struct s2_tensor s1, const struct s2_norm *,
                           const struct s2_linear *up2, struct s2_tensor s0, struct s2_tensor room);

    /* Transposed convolution 2x2 stride 2: lin [4*c_out][c_in] in the order (dy, dx, c_out).
     * y [n,2h,2w,c] = act(shuffle(x W^T + b) + skip); skip [1 or n,2h,2w,c] or data == NULL */
    void (*deconv2)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *,
                    struct s2_tensor skip, enum s2_act);
    /* y f32 [n,k,h*w] as tensor {n, h=k, w=h*w, c=1}: y[b][i][p] = sum_c hyper[b][i][c] u[b][p][c];
     * hyper [n,1,k,c], u [n,h,w,c] */
    void (*mask_logits)(struct s2_backend *, struct s2_tensor y, struct s2_tensor hyper, struct s2_tensor u);
    /* Which of the four masks is the answer (mask_decoder.py forward, _dynamic_multimask_via_stability;
     * sam2_base.py _forward_sam_heads). masks f32 {n,4,P,1}, iou f32 {n,1,1,4}, score f32 {n,1,1,1} (logit),
     * tokens [n,1,T,256], of which first .. first + 3 are the four mask tokens.
     * multimask: best = the largest of iou 1..3, first on ties; token = tokens[first + best].
     * else: mask 0 if #(mask0 > .05) / #(mask0 > -.05) >= .98 (0/0 counts as 1), otherwise best as above;
     * token = tokens[first] in both cases.
     * low f32 {n,1,P,1} = the chosen mask, or -1024 everywhere if score <= 0; best_iou f32 {n,1,1,1}. */
    void (*choose)(struct s2_backend *, struct s2_tensor low, struct s2_tensor token, struct s2_tensor best_iou,
                   struct s2_tensor masks, struct s2_tensor iou, struct s2_tensor score, struct s2_tensor tokens,
                   int first, bool multimask);
    /* x[b] := vec (replace) or x[b] += vec, on every token, where score[b] <= 0. vec f32 [c]. f32 score */
    void (*where_absent)(struct s2_backend *, struct s2_tensor x, struct s2_tensor score, const float *vec,
                         bool replace);
    /* y = min(max(x, lo), hi), converted to y's type; x f32; y may be x where the types are equal */
    void (*clamp)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, float lo, float hi);
    /* Hole filling: 8-connected components of {x <= 0} of at most `area` pixels become 0.1; the rest is copied.
     * f32 {n,h,w,1}; y may be x; area 0 copies */
    void (*fill_holes)(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, int area);
    /* low f32 {n,h,w,1} logits -> bilinear (align_corners false, no antialias) to out->height x out->width,
     * > 0, packed. Complete on return on the CPU. */
    void (*video_masks)(struct s2_backend *, const struct s2_video_masks *out, struct s2_tensor low);

    /* --- memory */
    /* y [n,S,S,1] = 20 m - 10, m = sigmoid(low upsampled bilinearly) or, binarize, (upsampled > 0).
     * low f32 {n,S/4,S/4,1} */
    void (*memory_mask)(struct s2_backend *, struct s2_tensor y, struct s2_tensor low, bool binarize);
    /* bank.spatial[slot[b]] = bf16(mem[b]), bank.pointers[ptr_slot[b]] = ptr[b]; a slot of -1 is not
     * written. mem [n,G,G,64], ptr f32 {n,1,1,256}; slots i32 [n] in backend memory */
    void (*bank_store)(struct s2_backend *, const struct s2_bank *, const int32_t *slot, const int32_t *ptr_slot,
                       struct s2_tensor mem, struct s2_tensor ptr);
    /* y f32 {n,1,ptr_cap,64}: position of pointer j = lin(PE1d(dist)) (sam2_utils.py get_1d_sine_pe, 256 wide),
     * for j < counts[b][1]; zeros if lin is NULL */
    void (*pointer_positions)(struct s2_backend *, struct s2_tensor y, const struct s2_bank_table *,
                              const struct s2_linear *lin);
    /* y [n,1,N,64] = softmax(q k^T / 16) M over the memories of table entry b, where M are the stored memory
     * tokens (then pointer tokens: each pointer's 256 numbers are 4 tokens of 64) and
     * k = rope(kproj(M + pe + tpos[row])) for spatial tokens, kproj(M + ptr_pos[pointer]) for pointer tokens.
     * q [n,1,N,256] rotated. pe f32 [N][64], tpos f32 [rows][64], ptr_pos f32 {n,1,ptr_cap,64}, rope as in
     * `rope`. The value projection is left to the caller: softmax rows sum to 1, so Wo(Wv M + bv) + bo is one
     * matrix applied after (memory_attention.py, sam/transformer.py RoPEAttention). An entry without memories
     * gives zeros. */
    void (*memory_attention)(struct s2_backend *, struct s2_tensor y, struct s2_tensor q, const struct s2_bank *,
                             const struct s2_bank_table *, const struct s2_linear *kproj, const float *pe,
                             const float *tpos, struct s2_tensor ptr_pos, const float *rope);
};

struct s2_backend {
    const struct s2_ops *ops;
    const char *name;  /* "cpu", "plain", "cuda" */
    enum s2_dtype act; /* type of activations */
    int max_batch;     /* objects a batch this backend is laid out for */
    int band_tokens;   /* windowed attention runs in bands of about this many tokens; 0: the whole map at once */
    bool skip;         /* operators do nothing: a failure is recorded, or a pass is only being measured */
    struct s2_err err; /* the first failure */
};

/* Records a failure (sentence as s2_fail) and makes the following operators no-ops. */
void s2_backend_fail(struct s2_backend *, enum s2_status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* S2_OK, or the recorded failure copied into *err. */
enum s2_status s2_backend_check(const struct s2_backend *, struct s2_err *err);

/* The oracle: every operator in plain, single-threaded C. Slow and obvious. Never NULL but for want of memory. */
struct s2_backend *s2_plain_open(struct s2_err *err);

/* The CPU backend on `threads` threads (0: all cores the process may use). precision S2_F32, or S2_BF16: matrix
 * products and attention take operands rounded to bf16, sums and everything between stay f32; S2_E_DEVICE on a
 * processor without AMX. Open it before other threads start: the system's leave to use AMX is for the threads to
 * come. */
struct s2_backend *s2_cpu_open(int threads, enum s2_dtype precision, struct s2_err *err);
/* compose.c: operators of s2_ops as others of the same backend */
void s2_compose_conv_norm(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *,
                          const struct s2_norm *, enum s2_act);
void s2_compose_norm_linear(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
                            const struct s2_linear *, struct s2_tensor room);
void s2_compose_patch_embed(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *,
                            struct s2_tensor pos);
void s2_compose_token_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, struct s2_tensor prompt,
                                const struct s2_projections *, const struct s2_norm *, struct s2_tensor room);
void s2_compose_token_to_image(struct s2_backend *, struct s2_tensor tokens, struct s2_tensor prompt,
                               struct s2_tensor image, struct s2_tensor pe, const struct s2_projections *,
                               const struct s2_norm *, struct s2_tensor room);
void s2_compose_token_mlp(struct s2_backend *, struct s2_tensor tokens, const struct s2_linear *fc1,
                          const struct s2_linear *fc2, const struct s2_norm *);
void s2_compose_image_to_token(struct s2_backend *, struct s2_tensor image, struct s2_tensor pe,
                               struct s2_tensor tokens, struct s2_tensor prompt, const struct s2_projections *,
                               const struct s2_norm *, struct s2_tensor room);
void s2_compose_token_heads(struct s2_backend *, int n_heads, const struct s2_head *, struct s2_tensor tokens,
                            struct s2_tensor room);
void s2_compose_upscaled_masks(struct s2_backend *, struct s2_tensor masks, struct s2_tensor hyper,
                               struct s2_tensor image, const struct s2_linear *up1, struct s2_tensor s1,
                               const struct s2_norm *, const struct s2_linear *up2, struct s2_tensor s0,
                               struct s2_tensor room);

/* What the CPU backend uses, e.g. "AVX-512, 2 threads"; valid until the next call. */
const char *s2_cpu_describe(const struct s2_backend *);

static inline int64_t s2_tokens(struct s2_tensor t)
{
    return (int64_t)t.n * t.h * t.w;
}
static inline int64_t s2_elements(struct s2_tensor t)
{
    return s2_tokens(t) * t.c;
}
/* Elements that a step of the mask decoder may need beside its tensors: n entries of t tokens and N image tokens. */
static inline int64_t s2_decoder_room(int n, int t, int N)
{
    return (int64_t)n * (768 * N + 1280 * t) + 8 * 64;
}
/* channels first .. first+count-1 of t, a view */
static inline struct s2_tensor s2_columns(struct s2_tensor t, int first, int count)
{
    t.data = (char *)t.data + (size_t)first * s2_dtype_size(t.dtype);
    t.c = count;
    return t;
}
/* entries first .. first+count-1 of the batch, a view */
static inline struct s2_tensor s2_batch(struct s2_tensor t, int first, int count)
{
    t.data = (char *)t.data + (size_t)first * (size_t)t.h * (size_t)t.w * (size_t)t.ld * s2_dtype_size(t.dtype);
    t.n = count;
    return t;
}
/* the same data under another shape with the same number of elements, a view of a contiguous tensor */
static inline struct s2_tensor s2_shape(struct s2_tensor t, int n, int h, int w, int c)
{
    t.n = n, t.h = h, t.w = w, t.c = t.ld = c;
    return t;
}

#endif

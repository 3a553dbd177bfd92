/* model.h - the network's parts as bound weights, and the forward pass of each part. Engine-internal.
 *
 * A forward pass allocates from a workspace (a stack in backend memory) and is a list of operator calls.
 * Shapes: S image side, G = S/16, N = G*G, B objects of a batch. Sources are files of the reference
 * (facebookresearch/sam2, folder sam2/modeling). */
#ifndef S2_MODEL_H
#define S2_MODEL_H

#include "engine.h"

/* Calls an operator unless a failure is recorded or the pass is only being measured. */
#define OP(be, op, ...)                                                                                                \
    do {                                                                                                               \
        if (!(be)->skip) (be)->ops->op((be), __VA_ARGS__);                                                             \
    } while (0)

/* Waits where the backend runs behind the host. */
static inline void s2i_sync(struct s2_backend *be)
{
    if (!be->skip && be->ops->sync) be->ops->sync(be);
}

enum { S2_MODEL_DIM = 256, S2_MEMORY_DIM = 64, S2_NUM_MASKMEM = 7, S2_MAX_POINTERS = 16, S2_MAX_BLOCKS = 48 };

/* ------------------------------------------------------------------ workspace */

/* A stack of tensors in backend memory. Measured once with a null base, then allocated. Callers save `used`
 * and restore it to release what came after. */
struct s2i_workspace {
    char *base;
    size_t used, peak;
    enum s2_dtype act;
};
struct s2_tensor s2i_act(struct s2i_workspace *, int n, int h, int w, int c); /* activation type */
struct s2_tensor s2i_f32(struct s2i_workspace *, int n, int h, int w, int c);
/* A tensor over memory that lives elsewhere. */
struct s2_tensor s2i_tensor(void *data, enum s2_dtype, int n, int h, int w, int c);

/* ------------------------------------------------------------------ parts */

/* backbones/hieradet.py MultiScaleBlock */
struct s2i_block {
    int in, out, heads, window; /* window 0: global attention */
    bool pool;                  /* first block of stages 2-4: q and the shortcut are max-pooled */
    struct s2_norm norm1, norm2;
    struct s2_linear qkv, proj, shortcut, fc1, fc2;
};

/* backbones/hieradet.py Hiera */
struct s2i_trunk {
    int dim, n_blocks;
    int stage_end[4];
    struct s2_conv patch;
    struct s2_tensor position; /* [1,S/4,S/4,dim] */
    struct s2i_block block[S2_MAX_BLOCKS];
};

/* backbones/image_encoder.py FpnNeck, the two finest levels folded with conv_s0, conv_s1 of the decoder */
struct s2i_neck {
    struct s2_linear c5, c4; /* to 256 */
    struct s2_linear s1, s0; /* C3 -> 64, C2 -> 32 */
};

/* memory_attention.py MemoryAttentionLayer; qkv fused, the value and output projections of the cross
 * attention folded into one 64 -> 256 matrix (softmax rows sum to 1) */
struct s2i_memory_layer {
    struct s2_norm norm1, norm2, norm3;
    struct s2_linear qkv, self_out, cross_q, cross_k, cross_vo, fc1, fc2;
};

struct s2i_memory_attention {
    int n_layers;
    struct s2i_memory_layer layer[4];
    struct s2_norm norm;
};

/* memory_encoder.py MemoryEncoder; layer scale folded into fc2 */
struct s2i_memory_encoder {
    struct s2_conv down[4];
    struct s2_norm down_norm[4];
    struct s2_linear down_out, pixel;
    struct {
        struct s2_conv depthwise;
        struct s2_norm norm;
        struct s2_linear fc1, fc2;
    } fuser[2];
    struct s2_linear out;
};

/* sam/prompt_encoder.py PromptEncoder */
struct s2i_prompt_encoder {
    float *gauss;             /* [2][128] */
    float *embed;             /* [5][256]: negative, positive, box corners, not a point */
    struct s2_tensor no_mask; /* [1,1,1,256] */
    struct s2_conv down[2];
    struct s2_norm down_norm[2];
    struct s2_linear out;
};

struct s2i_mlp3 {
    struct s2_linear layer[3];
};

/* sam/mask_decoder.py MaskDecoder */
struct s2i_mask_decoder {
    struct s2_tensor tokens; /* [1,1,6,256]: object score, iou, four masks */
    struct {
        struct s2_projections self, to_image, to_token;
        struct s2_norm norm[4];
        struct s2_linear fc1, fc2;
    } layer[2];
    struct s2_projections final;
    struct s2_norm norm_final;
    struct s2_linear up1, up2; /* transposed convolutions, see s2_ops.deconv2 */
    struct s2_norm up_norm;
    struct s2i_mlp3 hyper[4], iou, score;
};

struct s2_model {
    struct s2_backend *be;
    struct s2_model_info info;
    char name[32];
    int S, G, N;
    struct s2i_trunk trunk;
    struct s2i_neck neck;
    struct s2i_memory_attention memory_attention;
    struct s2i_memory_encoder memory_encoder;
    struct s2i_prompt_encoder prompt_encoder;
    struct s2i_mask_decoder decoder;
    struct s2i_mlp3 pointer;
    struct s2_linear pointer_position; /* 2.1 only */
    float *tpos;                       /* [7][64] maskmem_tpos_enc */
    float *no_object_pointer;          /* [256] */
    float *no_object_memory;           /* [64], 2.1 only, else NULL */
    struct s2_tensor no_memory;        /* [1,1,1,256] */
    float mask_downsample[17];         /* host: 4x4 weights, bias */
    struct s2_tensor pe256;            /* [1,G,G,256] sine */
    float *pe64;                       /* [N][64] sine */
    struct s2_tensor dense_pe;         /* [1,G,G,256] Fourier */
    float *rope;                       /* [N][128][2] */
    void **owned;                      /* backend memory to free */
    int n_owned, owned_capacity;
};

/* Which Hiera a set of tensors is: sizes that tensors cannot tell come from this table (configs/ of the reference). */
struct s2i_hiera_size {
    const char *name;
    int dim, heads, stages[4], global[3], n_global, window[4], background, native_size;
};
extern const struct s2i_hiera_size s2i_hiera_sizes[];
extern const int s2i_n_hiera_sizes;

/* bind.c: every weight of the model from the source. be NULL: names and shapes are checked only. */
enum s2_status s2i_bind(struct s2_model *, struct s2_backend *be, const struct s2_source *, struct s2_err *);
/* Backend memory owned by the model; NULL after a recorded failure. */
void *s2i_own(struct s2_model *, size_t bytes);
/* f32 from the host into new backend memory of the activation type. */
struct s2_tensor s2i_constant(struct s2_model *, const float *host, int n, int h, int w, int c);

/* position.c: constant tables, host memory of the caller. */
void s2i_sine_2d(float *out, int side, int channels);            /* [side*side][channels] */
void s2i_rope_table(float *out, int side, int channels);         /* [side*side][channels/2][2] */
void s2i_fourier_grid(float *out, int side, const float *gauss); /* [side*side][256] */
void s2i_hiera_position(float *out, int side, int dim, const float *background, int background_side,
                        const float *window); /* [side*side][dim] */

/* ------------------------------------------------------------------ forward passes */

/* f [n,G,G,256], s1 [n,2G,2G,64], s0 [n,4G,4G,32] of n frames as preprocess takes them. probe: NULL or where to see
 * the network's input (stage -1) and the trunk's maps C2..C5 at strides 4, 8, 16, 32 (stages 0 .. 3), while they
 * last. */
struct s2i_stage_probe {
    void (*see)(void *ctx, int stage, struct s2_tensor);
    void *ctx;
};
void s2i_image_encoder_forward(const struct s2_model *, struct s2i_workspace *, const struct s2_image *frame,
                               struct s2_tensor f, struct s2_tensor s1, struct s2_tensor s0,
                               const struct s2i_stage_probe *);

/* t [n,1,N,256] of f [n,G,G,256]: the features with their position after the first layer's self attention, where no
 * memory has been seen yet, so that it is the same for every object of a frame */
void s2i_self_seen_forward(const struct s2_model *, struct s2i_workspace *, struct s2_tensor t, struct s2_tensor f);

/* x [B,1,N,256]: t [1,1,N,256] of the frame conditioned on the memories of the table. probe: NULL or where to see each
 * layer's output (called with the layer index, or -1 and the pointer positions first) */
struct s2i_memory_probe {
    void (*see)(void *ctx, int layer, struct s2_tensor);
    void *ctx;
};
void s2i_memory_attention_forward(const struct s2_model *, struct s2i_workspace *, struct s2_tensor x,
                                  struct s2_tensor t, const struct s2_bank *, const struct s2_bank_table *,
                                  const struct s2i_memory_probe *);

/* memory [B,G,G,64] of mask [B,S,S,1] (values 20 m - 10) and the raw map f [1,G,G,256] */
void s2i_memory_encoder_forward(const struct s2_model *, struct s2i_workspace *, struct s2_tensor memory,
                                struct s2_tensor mask, struct s2_tensor f);

/* dense [1,G,G,256] of mask logits f32 {1,4G,4G,1}, first clamped to +-limit */
void s2i_dense_prompt(const struct s2_model *, struct s2i_workspace *, struct s2_tensor dense, struct s2_tensor logits,
                      float limit);

struct s2i_decoded {
    struct s2_tensor masks;         /* f32 {B,4,4G*4G,1} */
    struct s2_tensor iou;           /* f32 {B,1,1,4} */
    struct s2_tensor score;         /* f32 {B,1,1,1} */
    struct s2_tensor tokens, image; /* after the transformer: [B,1,T,256], [B,1,N,256] */
    struct s2_tensor sparse;        /* [B,1,n,256] */
};
/* x [B,1,N,256] (or [1,...] with B = 1); dense: [1,1,1,256] or [1,G,G,256]; points f32 [B][n_points][3] in
 * backend memory, label -1 for padding. All of *out lives in the workspace. */
void s2i_mask_decoder_forward(const struct s2_model *, struct s2i_workspace *, struct s2_tensor x,
                              struct s2_tensor dense, const float *points, int n_points, struct s2_tensor s1,
                              struct s2_tensor s0, struct s2i_decoded *out);

#endif

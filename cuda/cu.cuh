/* cu.cuh - what the files of cuda/ share: the backend's state, activation types, launches. */
#ifndef S2_CU_CUH
#define S2_CU_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "cuda.h"

struct cu_program; /* graph.cu */
struct cu_blas;    /* linear.cu */

/* Around the operators of a step, steps.cu */
struct cu_step {
    cudaEvent_t begin, end;
};

/* Host memory from which a frame travels while the next one is put into the other, image.cu */
struct cu_staging {
    uint8_t *pixels;
    size_t size;
    cudaEvent_t sent;
};
enum { CU_STAGINGS = 4 };

/* A stream, and what its operators need to themselves: those of two lanes run side by side. */
struct cu_lane {
    cudaStream_t stream;
    void *scratch; /* see cu_scratch */
    size_t scratch_size;
    void *workspace; /* of the matrix library, linear.cu */
};
enum { CU_MAIN, CU_AHEAD, CU_LANES };

struct cu_backend {
    struct s2_backend base;              /* first */
    int device, sm_count, cc;            /* cc: 80, 86, 89, 90, 100 ...; of what the code is for, if older */
    struct cu_lane lane[CU_LANES], *now; /* now: where operators go */
    cudaEvent_t encoded, taken;          /* of the last ahead_end: before and behind its copies, steps.cu */
    bool recording;                      /* the stream is being captured: nothing may allocate or wait */
    bool awaits;                         /* kernels may be set up before the one before is done, launch.cuh */
    uint8_t *frame;                      /* staged pictures, device memory, image.cu */
    size_t frame_size;
    struct cu_staging staging[CU_STAGINGS];
    uint64_t staged; /* frames so far */
    struct cu_step step[S2_MAX_STEPS];
    uint64_t steps;
    double busy, idle; /* seconds inside steps, and between the end of one and the begin of the next */
    cudaEvent_t mark[S2_MAX_MARKS];
    void *axis; /* resampling tables of the present frame size, image.cu */
    int axis_width, axis_height, axis_side;
    size_t bytes_now, bytes_peak;
    struct cu_blas *blas;
    struct cu_program *programs, *program; /* program: between begin and end; NULL: none, or one never recorded */
    double record_start;
    bool record_launch; /* the recording is launched when it is made */
    bool fell_back;     /* a program could not be recorded, which was told */
    struct cu_graph_stats graph;
    char text[320];
};

static inline struct cu_backend *cu_of(struct s2_backend *be)
{
    return (struct cu_backend *)be;
}

/* Where operators go */
static inline cudaStream_t cu_stream(struct s2_backend *be)
{
    return cu_of(be)->now->stream;
}

/* Records a CUDA failure of `what` ("layer_norm") as the backend's; true if err is cudaSuccess. */
bool cu_ok(struct s2_backend *, cudaError_t err, const char *what);
/* After a launch: cu_ok(cudaGetLastError()). */
#define CU_LAUNCHED(be, what) cu_ok((be), cudaGetLastError(), (what))

/* Device memory that lives until the operator's kernels are done: one block, reused by the next operator of the
 * stream. Grows only outside recordings (a program runs eagerly before it is recorded). NULL: failure recorded. */
void *cu_scratch(struct s2_backend *, size_t bytes);

/* The bytes of a part of a scratch block: what follows it starts at a multiple of 256, as the block does. */
static inline size_t cu_rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Calls f with a null pointer of the activation type: CU_BY_TYPE(be, T, kernel<T><<<...>>>(...)) */
#define CU_BY_TYPE(dtype, T, ...)                                                                                      \
    do {                                                                                                               \
        if ((dtype) == S2_BF16) {                                                                                      \
            using T = __nv_bfloat16;                                                                                   \
            __VA_ARGS__;                                                                                               \
        } else if ((dtype) == S2_F16) {                                                                                \
            using T = __half;                                                                                          \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            using T = float;                                                                                           \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

/* The same for operators of 16-bit activations alone */
#define CU_BY_HALF(dtype, T, ...)                                                                                      \
    do {                                                                                                               \
        if ((dtype) == S2_BF16) {                                                                                      \
            using T = __nv_bfloat16;                                                                                   \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            using T = __half;                                                                                          \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

__device__ __forceinline__ float cu_f32(float x)
{
    return x;
}
__device__ __forceinline__ float cu_f32(__half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float cu_f32(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <class T> __device__ __forceinline__ T cu_to(float x);
template <> __device__ __forceinline__ float cu_to<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __half cu_to<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 cu_to<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* Erf form. Where the result is rounded to 16 bits, by formula 7.1.26 of Abramowitz and Stegun for erfc(|z|), whose
 * error of 1.5e-7 is far below that rounding. */
template <class T> __device__ __forceinline__ float cu_gelu(float x)
{
    const float z = fabsf(x) * 0.70710678118654752f, t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
    float p = fmaf(1.061405429f, t, -1.453152027f);
    p = fmaf(p, t, 1.421413741f), p = fmaf(p, t, -0.284496736f), p = fmaf(p, t, 0.254829592f);
    const float tail = 0.5f * p * t * __expf(-z * z); /* of the normal distribution beyond |x| */
    return x * (x > 0 ? 1.0f - tail : tail);
}
template <> __device__ __forceinline__ float cu_gelu<float>(float x)
{
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

/* T: what the result will be rounded to */
template <class T> __device__ __forceinline__ float cu_act(float x, enum s2_act act)
{
    switch (act) {
    case S2_ACT_RELU: return fmaxf(x, 0.0f);
    case S2_ACT_GELU: return cu_gelu<T>(x);
    case S2_ACT_SIGMOID: return 1.0f / (1.0f + expf(-x));
    default: return x;
    }
}

/* The sum of v over LANES neighbouring lanes, in all of them; every lane of the warp takes part. */
template <int LANES> __device__ __forceinline__ float cu_lanes_sum(float v)
{
#pragma unroll
    for (int o = LANES / 2; o; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

/* N neighbouring channels, read and written at once. */
template <class T, int N> struct alignas(N * sizeof(T)) cu_piece {
    T v[N];
};

/* Whether rows of c channels at a distance of ld elements are whole 16-byte pieces. */
static inline bool cu_whole(const void *p, int c, int ld, enum s2_dtype t)
{
    const int n = 16 / (int)s2_dtype_size(t);
    return c % n == 0 && ld % n == 0 && (size_t)p % 16 == 0;
}
static inline bool cu_whole(struct s2_tensor t)
{
    return cu_whole(t.data, t.c, t.ld, t.dtype);
}

/* CU_BY_TYPE with N = the elements of 16 bytes if `whole`, else 1 */
#define CU_BY_PIECE(dtype, whole, T, N, ...)                                                                           \
    CU_BY_TYPE(dtype, T, {                                                                                             \
        if (whole) {                                                                                                   \
            constexpr int N = 16 / (int)sizeof(T);                                                                     \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            constexpr int N = 1;                                                                                       \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    })

static inline int cu_blocks(int64_t n, int per)
{
    return (int)((n + per - 1) / per);
}

/* linear.cu: n floats of the host in new device memory, of the activation type or as they are; NULL: a failure, which
 * is recorded */
void *cu_to_device(struct s2_backend *, const float *host, size_t n);
float *cu_floats_to_device(struct s2_backend *, const float *host, size_t n);
/* a linear layer's weights [out][in] in the activation type and its bias in f32, device memory */
const void *cu_linear_weight(const struct s2_linear *);
const float *cu_linear_bias(const struct s2_linear *);
/* the same weights in the order of mlp.cuh; NULL: no kernel there takes the layer */
const void *cu_linear_packed(const struct s2_linear *);

/* --- operators, by file; contracts in ops.h */
/* linear.cu */
void cu_linear_create(struct s2_backend *, struct s2_linear *, const float *w, const float *b, int in, int out);
void cu_linear_destroy(struct s2_backend *, struct s2_linear *);
void cu_linear(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *, enum s2_act,
               bool accumulate);
void cu_norm_linear(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
                    const struct s2_linear *, struct s2_tensor room);
void cu_mlp(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
            const struct s2_linear *fc1, enum s2_act, const struct s2_linear *fc2);
void cu_deconv2(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *,
                struct s2_tensor skip, enum s2_act);
struct cu_blas *cu_blas_open(struct s2_backend *);
void cu_blas_close(struct s2_backend *, struct cu_blas *);
/* mlp.cu: layers with what is around them in one kernel. false: not of this shape, nothing is done. */
bool cu_mlp_whole(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
                  const struct s2_linear *fc1, enum s2_act act, const struct s2_linear *fc2);
/* y = act(fc1(norm(x))), GELU or none; norm may be NULL */
bool cu_mlp_layer(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *,
                  const struct s2_linear *fc1, enum s2_act act);
/* New memory with w [out][in], activation type, in the order of those kernels; NULL: none takes it, or a failure. */
void *cu_mlp_pack(struct s2_backend *, const void *w, int in, int out);
/* conv.cu */
void cu_conv_create(struct s2_backend *, struct s2_conv *, const float *w, const float *b);
void cu_conv_destroy(struct s2_backend *, struct s2_conv *);
void cu_conv(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *, enum s2_act);
void cu_conv_norm(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *,
                  const struct s2_norm *, enum s2_act);
const void *cu_conv_patches(const struct s2_conv *); /* what patches.cu packed, device memory; NULL: nothing */
const float *cu_conv_bias(const struct s2_conv *);   /* device memory */
/* patches.cu */
void cu_patch_embed(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *,
                    struct s2_tensor pos);
bool cu_patches_take(const struct s2_conv *);                            /* there is a kernel for it in 16 bits */
size_t cu_patches_cells(const struct s2_conv *);                         /* numbers of the packed weights */
void cu_patches_pack(const struct s2_conv *, float *to, const float *w); /* w as conv_create has it */
/* image.cu */
void cu_stage_images(struct s2_backend *, int n, const struct s2_image *);
void cu_staging_free(struct cu_backend *);
/* steps.cu: see s2_ops */
uint64_t cu_step_begin(struct s2_backend *);
void cu_step_end(struct s2_backend *, uint64_t step);
void cu_step_wait(struct s2_backend *, uint64_t step);
void cu_mark(struct s2_backend *, int mark);
double cu_between(struct s2_backend *, int from, int to);
void cu_ahead_begin(struct s2_backend *);
void cu_ahead_end(struct s2_backend *, int n, const struct s2_tensor *to, const struct s2_tensor *from);
void cu_copy(struct s2_backend *, int n, const struct s2_tensor *to, const struct s2_tensor *from);
void cu_steps_free(struct cu_backend *);
/* Whether the device runs code that was compiled with cu_await. */
bool cu_can_await(struct s2_backend *);
void cu_preprocess(struct s2_backend *, struct s2_tensor y, const struct s2_image *frame);
/* tokens.cu */
void cu_max_pool2(struct s2_backend *, struct s2_tensor y, struct s2_tensor x);
void cu_upsample2_add(struct s2_backend *, struct s2_tensor y, struct s2_tensor x);
void cu_layer_norm(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *, enum s2_act);
void cu_add(struct s2_backend *, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s);
void cu_rope(struct s2_backend *, struct s2_tensor x, const float *table, int width);
void cu_take(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, int first);
void cu_concat(struct s2_backend *, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b);
void cu_scatter(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, const int32_t *index);
void cu_point_tokens(struct s2_backend *, struct s2_tensor y, const float *points, const float *gauss,
                     const float *embed, int size);
void cu_where_absent(struct s2_backend *, struct s2_tensor x, struct s2_tensor score, const float *vec, bool replace);
void cu_clamp(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, float lo, float hi);
/* attention.cu, window.cu */
void cu_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor q, struct s2_tensor k, struct s2_tensor v,
                  int heads);
void cu_window_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor qkv, const struct s2_linear *lin,
                         int heads, int window, bool pool);
/* masks.cu */
void cu_mask_logits(struct s2_backend *, struct s2_tensor y, struct s2_tensor hyper, struct s2_tensor u);
void cu_choose(struct s2_backend *, struct s2_tensor low, struct s2_tensor token, struct s2_tensor best_iou,
               struct s2_tensor masks, struct s2_tensor iou, struct s2_tensor score, struct s2_tensor tokens, int first,
               bool multimask);
void cu_fill_holes(struct s2_backend *, struct s2_tensor y, struct s2_tensor x, int area);
void cu_video_masks(struct s2_backend *, const struct s2_video_masks *out, struct s2_tensor low);
/* bank.cu */
void cu_memory_mask(struct s2_backend *, struct s2_tensor y, struct s2_tensor low, bool binarize);
void cu_bank_store(struct s2_backend *, const struct s2_bank *, const int32_t *slot, const int32_t *ptr_slot,
                   struct s2_tensor mem, struct s2_tensor ptr);
void cu_pointer_positions(struct s2_backend *, struct s2_tensor y, const struct s2_bank_table *,
                          const struct s2_linear *lin);
/* memory.cu */
void cu_memory_attention(struct s2_backend *, struct s2_tensor y, struct s2_tensor q, const struct s2_bank *,
                         const struct s2_bank_table *, const struct s2_linear *kproj, const float *pe,
                         const float *tpos, struct s2_tensor ptr_pos, const float *rope);
/* graph.cu */
bool cu_begin(struct s2_backend *, const struct s2_signature *, const char *why_not);
bool cu_end(struct s2_backend *);
void cu_forget(struct s2_backend *, uint64_t session);
/* Memory that recordings point to is about to move: they are made anew when their program comes up next. */
void cu_programs_stale(struct cu_backend *);
void cu_programs_free(struct cu_backend *);

#endif

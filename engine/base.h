/* base.h - what every folder shares: status and error sentence, checked sizes, the log, and the few
 * plain structs that cross a folder border (stored tensors, images, bit masks, prompts).
 *
 * Fallible functions return enum s2_status and fill a struct s2_err with one full sentence that names
 * the file, JSON path or tensor and what to do; callers pass both up unchanged. */
#ifndef S2_BASE_H
#define S2_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S2_VERSION "0.1.0"

/* Exit codes of the program, see sam2track.1. */
enum s2_status {
    S2_OK = 0,
    S2_E_INTERNAL = 1, /* a bug */
    S2_E_USAGE = 2,    /* options, prompts */
    S2_E_MODEL = 3,    /* the model cannot be used */
    S2_E_INPUT = 4,    /* the input cannot be opened or has no decodable frame */
    S2_E_BROKEN = 5,   /* the input broke off; what could be decoded was processed */
    S2_E_OUTPUT = 6,   /* an output cannot be written */
    S2_E_DEVICE = 7,   /* the device cannot be used, or memory ran out */
};

struct s2_err {
    enum s2_status status;
    char text[1024]; /* one sentence, no newline at the end */
};

/* Fills *err (which may be NULL) and returns status, so that a caller can write
 *     return s2_fail(err, S2_E_MODEL, "%s: ...", path);
 * The first failure stays: a second call on a filled err changes nothing. */
enum s2_status s2_fail(struct s2_err *err, enum s2_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* S2_E_DEVICE with a sentence that says what could not be allocated and how many MiB it needs. */
enum s2_status s2_no_memory(struct s2_err *err, const char *what, size_t bytes);

/* *out = a*b (a+b); false on overflow, *out is then untouched. */
bool s2_mul(size_t a, size_t b, size_t *out);
bool s2_add(size_t a, size_t b, size_t *out);

/* The log. Only cmd/ prints: it installs the callback; without one, messages are dropped. Safe to call
 * from any thread once set. */
enum s2_log_level { S2_LOG_ERROR, S2_LOG_WARN, S2_LOG_INFO, S2_LOG_DEBUG };
typedef void s2_log_fn(void *ctx, enum s2_log_level level, const char *text);
void s2_log_set(s2_log_fn *fn, void *ctx);
void s2_log(enum s2_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The ending of a counted noun: "" for 1, else "s". */
static inline const char *s2_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Seconds of a monotonic clock. */
double s2_now(void);

enum s2_dtype { S2_F32, S2_F16, S2_BF16, S2_F64, S2_I64, S2_I32, S2_I16, S2_I8, S2_U8, S2_BOOL };
size_t s2_dtype_size(enum s2_dtype t);      /* bytes of one element */
const char *s2_dtype_name(enum s2_dtype t); /* "float32", "bfloat16", ... */

/* bf16 <-> f32; to bf16 rounds to nearest even, NaN stays NaN. */
uint16_t s2_bf16(float x);
float s2_from_bf16(uint16_t x);
float s2_from_f16(uint16_t x);

/* ------------------------------------------------------------------ tensors of a checkpoint */

#define S2_MAX_DIMS 8

/* A tensor as it lies in a file: contiguous, row-major, little-endian, not necessarily aligned. */
struct s2_stored {
    const char *name; /* owned by the source */
    enum s2_dtype dtype;
    int ndim; /* 0: a scalar */
    int64_t dim[S2_MAX_DIMS];
    const void *data; /* bytes = elements * s2_dtype_size(dtype); pages are read on first use */
    size_t elements;
};

/* Where the engine gets its weights from: find a tensor by its name in the reference's
 * `checkpoint["model"]`. formats/ fills it from a file, tests/ from a generator. */
struct s2_source {
    void *ctx;
    const char *path;                                                 /* for error sentences */
    size_t count;                                                     /* tensors in the model part */
    bool (*at)(void *ctx, size_t i, struct s2_stored *out);           /* i < count */
    bool (*find)(void *ctx, const char *name, struct s2_stored *out); /* false: no such tensor */
};

/* Converts elements [first, first+n) to f32. false if dtype is not a float type. */
bool s2_stored_f32(const struct s2_stored *t, size_t first, size_t n, float *out);

/* "[96,3,7,7]" into buf; returns buf. */
const char *s2_shape_text(const int64_t *dim, int ndim, char *buf, size_t size);

/* ------------------------------------------------------------------ pictures, masks, prompts */

/* The planes of an 8-bit 4:2:0 picture of even width and height, and what makes RGB of them; yuv.c has the
 * arithmetic. */
struct s2_yuv {
    const uint8_t *y, *u, *v;
    size_t y_stride, chroma_stride; /* bytes from row to row */
    int chroma_step;                /* bytes between samples of u and of v: 1, or 2 if they alternate, u first */
    int chroma_x, chroma_y;         /* the first chroma sample lies so many halves of a luma sample right of and
                                               below the first luma sample: 0, 1 or 2 */
    int32_t black;                  /* luma of black, in 1/512 of a level */
    int32_t gain;                   /* of luma, and the weights of chroma, in 1/8192 */
    int32_t v_to_r, v_to_g, u_to_g, u_to_b; /* signed */
};

/* Row `row` of the picture of that size as 8-bit RGB, 3 bytes a pixel. */
void s2_yuv_row(const struct s2_yuv *, int width, int height, int row, uint8_t *rgb);

/* Where large buffers come from that a device should reach without a copy on the host. Both functions may be called by
 * any thread; alloc: NULL if there is none left. */
struct s2_memory {
    void *(*alloc)(void *ctx, size_t bytes);
    void (*free)(void *ctx, void *);
    void *ctx;
};

/* 8-bit RGB, 3 bytes a pixel, rows `stride` bytes apart; displayed orientation. */
struct s2_image {
    int width, height;
    size_t stride;
    uint8_t *rgb;
    const struct s2_yuv *yuv; /* not NULL: the picture is this one, and rgb holds nothing */
};

/* A binary mask, one bit a pixel, rows `stride` bytes apart (at least (width+7)/8), the leftmost pixel
 * in the highest bit (as a 1-bit PNG has it); bits behind the width are 0. */
struct s2_bits {
    int width, height;
    size_t stride;
    uint8_t *data;
};

/* Bytes of a row of a mask as a device writes it. */
size_t s2_mask_stride(int width);

enum s2_prompt_kind { S2_PROMPT_POINTS, S2_PROMPT_MASK, S2_PROMPT_STOP };

/* One prompt of one object on one frame. Points and a box combine; a mask stands alone. */
struct s2_prompt {
    int object; /* position of the object in the session, from 0 */
    enum s2_prompt_kind kind;
    int n_points;
    const float *xy;      /* [n_points][2], pixels of the frame, x right, y down */
    const int8_t *labels; /* [n_points], 1 = inside, 0 = outside */
    bool has_box;
    float box[4];        /* x0, y0, x1, y1 in pixels */
    struct s2_bits mask; /* kind MASK: at the size of the frame */
};

#endif

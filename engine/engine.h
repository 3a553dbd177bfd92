/* engine.h - the model and the tracker: weights in, frames and prompts in, masks out.
 *
 * A model is loaded once onto a backend; a session tracks objects through one clip with bounded memory:
 * everything is allocated when it opens. Objects never influence each other except through the overlap
 * rule of the output masks. Semantics: SAM2VideoPredictor of the reference, one state per object, each
 * object starting at its first prompt. */
#ifndef S2_ENGINE_H
#define S2_ENGINE_H

#include "base.h"
#include "ops.h"

struct s2_model;
struct s2_session;

enum s2_family { S2_FAMILY_SAM2, S2_FAMILY_SAM2_1 };

struct s2_model_info {
    enum s2_family family;
    const char *name;             /* "sam2.1_tiny", "sam2_large", "sam2.1_mini", "sam2.1_custom" */
    const char *size;             /* "tiny", "small", "base_plus", "large", "mini", "custom" */
    int native_size;              /* 1024, mini 512 */
    int image_size;               /* what the model was loaded for */
    int64_t parameters;           /* elements used */
    int blocks, embed_dim, heads; /* of the Hiera trunk */
    int memory_layers;
};

/* What the tensors are, without touching weight data. S2_E_MODEL and a sentence that names the tensor, its
 * shape and the expected one, if it is no SAM 2 / 2.1 model or one with a missing or misshapen tensor. */
enum s2_status s2_model_identify(const struct s2_source *, struct s2_model_info *out, struct s2_err *);

/* image_size 0: the model's own; else 512 or 1024 (a multiple of 64 in general). Weights are converted to the
 * backend's layout; the source is not needed afterwards. The backend must outlive the model. */
enum s2_status s2_model_load(struct s2_model **out, struct s2_backend *, const struct s2_source *, int image_size,
                             struct s2_err *);
const struct s2_model_info *s2_model_get_info(const struct s2_model *);
void s2_model_free(struct s2_model *); /* NULL allowed */

/* What a prompt on an already tracked frame of an object does. */
enum s2_late {
    S2_LATE_REFINE,    /* track the frame, refine with its memory and mask, keep it as conditioning frame */
    S2_LATE_RESTART,   /* as an initial prompt: without memory */
    S2_LATE_LOOKAHEAD, /* all prompts are known before the first frame is tracked: s2_session_preview() */
};

/* Debug taps: named intermediate tensors, f32, channels first for maps. kind "image", "prompt", "refine",
 * "mask", "track" or "memory"; object is a position (-1 for kind "image"). dims as numpy has them. */
typedef void s2_tap_fn(void *ctx, int frame, int object, const char *kind, const char *name, const float *data,
                       const int64_t *dim, int ndim);

struct s2_session_config {
    int width, height; /* of the frames */
    int num_frames;    /* of the clip, if fewer than 16 (pointer positions depend on it); else anything >= 16 */
    int n_objects;
    const int *prompted_frames; /* [n_objects]: on how many frames each object is prompted at most */
    int max_points;             /* the most points (a box counts 2) that one object has on one frame */
    int fill_hole_area;         /* 0: off; reference default 8 */
    int max_cond_frames;        /* 0: no cap; else >= 2 */
    enum s2_late late;
    bool turns;       /* s2_session_turn() will be called */
    bool want_owner;  /* s2_step_result.owner will be asked for */
    bool direct;      /* what s2_step_result points to is the device's own (s2_host_memory), bit_stride is
                         s2_mask_stride() */
    bool exclusive;   /* overlap rule on the masks themselves */
    bool pairs;       /* s2_session_submit() is told the frame after; counts on a device without taps */
    bool time_stages; /* on a device: s2_session_times() counts, which holds for s2_session_step() only */
    s2_tap_fn *tap;   /* NULL: no taps */
    void *tap_ctx;
};

struct s2_object_result {
    bool started;  /* prompted on this frame or before, and not stopped: bits are the mask. Otherwise they are empty */
    float score;   /* object score logit; > 0: present */
    float iou;     /* the model's estimate for the chosen mask; NAN for a mask prompt */
    uint8_t *bits; /* in: [height][bit_stride], filled by the step; NULL: not wanted */
};

struct s2_step_result {
    size_t bit_stride;               /* in */
    struct s2_object_result *object; /* in: [n_objects] */
    uint16_t *owner;                 /* in: [height][width] or NULL; out: see s2_video_masks, 1 + object position */
};

/* Host memory that a device reaches directly, for images and results; it lives no longer than the backend. false: the
 * backend has no use for it. */
bool s2_host_memory(struct s2_backend *, struct s2_memory *out);

enum s2_status s2_session_open(struct s2_session **out, struct s2_model *, const struct s2_session_config *,
                               struct s2_err *);
/* S2_LATE_LOOKAHEAD only, before the first step: encodes a prompted frame and keeps its memory. frame counts the
 * frames that s2_session_step() will see, from 0. */
enum s2_status s2_session_preview(struct s2_session *, int frame, const struct s2_image *, const struct s2_prompt *,
                                  int n_prompts, struct s2_err *);
/* The next frame of the clip (0, 1, 2 ...) and its prompts in the order given. No allocation. */
enum s2_status s2_session_step(struct s2_session *, const struct s2_image *, const struct s2_prompt *, int n_prompts,
                               struct s2_step_result *, struct s2_err *);
/* The same in two halves, so that a device computes while the caller deals with other frames. submit issues the step.
 * after: the frame that the next submit brings, NULL: there is none, or it is not known. A session opened with `pairs`
 * encodes both in one batch, which may round otherwise than each alone: hand it in always or never. Images and prompts
 * are the caller's again on return, but an image in the device's own memory only when its step is collected. *result is
 * copied and what it points to is written until collect returns. collect waits for the oldest step submitted and
 * completes its results. At most s2_session_depth() steps are in flight: 1 on the CPU, which is done on submit, else
 * S2_MAX_IN_FLIGHT. A submit that fails leaves nothing to collect. */
enum { S2_MAX_IN_FLIGHT = 3 };
enum s2_status s2_session_submit(struct s2_session *, const struct s2_image *, const struct s2_image *after,
                                 const struct s2_prompt *, int n_prompts, const struct s2_step_result *,
                                 struct s2_err *);
enum s2_status s2_session_collect(struct s2_session *, struct s2_err *);
int s2_session_depth(const struct s2_session *);
bool s2_session_pairs(const struct s2_session *); /* submit makes use of `after` */
int s2_session_in_flight(const struct s2_session *);
/* Goes back to the frames before the first prompts, as propagate_in_video(reverse=True) after a forward pass does: the
 * next step is frame `frame` of those seen so far, then frame - 1 ... 0. An object is tracked on frames before the
 * first it was prompted on, with the memories of its life up to the first stop, the tracked frames behind that prompt
 * among them; elsewhere it is not started. Only stops may come as prompts: from there on the object is not tracked. */
enum s2_status s2_session_turn(struct s2_session *, int frame, struct s2_err *);
/* Hands in what the forward pass gave for an object on the next frame, so that the next step's results and its overlap
 * rule include it. logits: s2_session_logits() of then; cells without a positive neighbour may be any negative. */
void s2_session_show(struct s2_session *, int object, const float *logits, float score, float iou);
/* Seconds spent so far in each stage (a device counts only with time_stages, and with more objects than a batch takes
 * only the last batch); names and values are arrays of the returned length, valid until the
 * session is freed. */
int s2_session_times(const struct s2_session *, const char *const **names, const double **seconds);
/* low-res mask logits of the last step, after hole filling: f32 [4G][4G], side in *side. NULL if not started. */
const float *s2_session_logits(const struct s2_session *, int object, int *side);
void s2_session_free(struct s2_session *); /* NULL allowed */

/* Weights from a seed, for tests and `bench --random`: a source of every tensor of the named model
 * (tiny, small, base_plus, large, sam2-tiny ..., mini). Generator: splitmix64 over an FNV-1a hash of the
 * name, see seeded.c. Free with s2_seeded_free. NULL if the name is unknown or memory is short. */
struct s2_source *s2_seeded_source(const char *model, uint64_t seed);
void s2_seeded_free(struct s2_source *);

#endif

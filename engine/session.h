/* session.h - state of one clip being tracked. Engine-internal. */
#ifndef S2_SESSION_H
#define S2_SESSION_H

#include "membank.h"

enum s2i_stage {
    S2_STAGE_IMAGE,
    S2_STAGE_MEMORY_ATTENTION,
    S2_STAGE_DECODER,
    S2_STAGE_MEMORY_ENCODER,
    S2_STAGE_OUTPUT,
    S2_N_STAGES
};

struct s2i_object {
    bool started;     /* tracked in the present direction */
    bool shown;       /* its mask of this frame was handed in */
    bool ended;       /* on the way back: stopped */
    int first;        /* the first frame it was prompted on, -1: none yet */
    int preview_life; /* lives begun while previewing */
    struct s2i_membank memories;
};

/* Bank tables of all objects for one step, written on the host and copied to the backend in one piece. */
struct s2i_step_table {
    size_t bytes;
    char *host, *device;
    struct s2i_selection selection;  /* host side; entry i at [i * capacity] */
    int32_t *object;                 /* host side, [entries]: position of the object, -1: an unused entry */
    int32_t *store_slot, *store_ptr; /* host side, [entries] */
    float *points;                   /* host side, [max_points + 1][3]: prompts of one object */
    int entries;                     /* room: n_objects, rounded up to whole batches */
    int spatial_cap, ptr_cap;
};

/* A step on its way from submit to collect, and the host memory it needs to itself. */
struct s2i_flight {
    uint64_t step; /* the backend's number of it */
    struct s2_step_result result;
    char *table;     /* host side of the step table */
    float *scores;   /* [2][n_objects] */
    uint8_t *bits;   /* [n_objects][height][bit_stride of the session]: where a device's masks arrive and */
    uint16_t *owner; /* [height][width] its owners; NULL: results go straight to the caller */
};

struct s2i_features {
    struct s2_tensor f, s1, s0; /* {n,G,G,256}, {n,2G,2G,64}, {n,4G,4G,32}: what the neck gives */
    struct s2_tensor t;         /* {n,1,N,256}: what memory attention makes of f before it looks at memories */
};

struct s2_session {
    struct s2_model *m;
    struct s2_backend *be;
    struct s2_session_config cfg;
    uint64_t serial; /* see s2_signature */
    int frame;       /* index of the next step */
    bool backward;   /* frames come in descending order */
    int n_points;    /* capacity of a decoder call: max_points + 1 */
    struct s2i_object *object;
    struct s2i_workspace ws, image_ws; /* image_ws: of the image encoder */
    bool ahead;                        /* a frame is encoded while the one before is tracked, */
    bool pairs;                        /* and two frames at once */
    int held_frame;                    /* whose features wait in `held`; -1: none */

    /* backend memory for the whole session */
    struct s2i_features now;     /* of the present frame */
    struct s2i_features next;    /* where the encoder puts them, with pairs those of two frames; `now` unless ahead */
    struct s2i_features held;    /* with pairs: of the second frame, while the first is tracked */
    struct s2_tensor low;        /* f32 {n_objects,4G,4G,1}: logits after hole filling */
    struct s2_tensor score, iou; /* f32 {n_objects,1,1,1} */
    float *no_points;            /* [max_batch][2][3]: the two padding points of a frame without prompts */
    struct s2_bank bank;
    struct s2i_step_table table;
    uint8_t *device_bits;   /* [n_objects][height][bit_stride] and */
    uint16_t *device_owner; /* [height][width]: results on a device; NULL on the CPU */
    size_t bit_stride;

    /* host */
    struct s2i_flight flight[S2_MAX_IN_FLIGHT]; /* step i lies in i % S2_MAX_IN_FLIGHT */
    uint64_t submitted, collected;
    float *host_logits; /* [4G*4G] */
    uint8_t **bits;     /* [n_objects]: where video_masks writes */
    bool *iou_known;    /* [n_objects] */
    double seconds[S2_N_STAGES];
};

/* session.c */
/* How many table entries a batch of n objects takes: a backend that records programs gets few sizes. */
int s2i_bucket(const struct s2_backend *, int n);
/* The step table in this host memory; the same offsets as on the backend. */
void s2i_carve_table(struct s2_session *, char *host);
/* The object's mask becomes empty: not started, or stopped. */
void s2i_blank(struct s2_session *, int object);
/* of one object's bits, of the owners; on a device */
size_t s2i_plane_bytes(const struct s2_session *);
size_t s2i_owner_bytes(const struct s2_session *);

/* step.c: everything below computes on the features of the present frame. */

/* Table entries first .. first+n-1: memory attention, decoder, memory encoder, store. */
void s2i_track(struct s2_session *, int first, int n);
/* All calls of one object on this frame. entry: its table entry; refine: the object is tracked and the calls correct
 * it; store: keep the result as conditioning memory (slots in the table entry). */
void s2i_prompt(struct s2_session *, int object, int entry, const struct s2_prompt *, int n, bool refine, bool store,
                struct s2_err *);
/* Runs every path once with the backend skipping, to learn the workspace's size. */
void s2i_measure(struct s2_session *);
struct s2_bank_table s2i_table_at(const struct s2_session *, int entry);
/* of frames first .. first+n-1, a view */
struct s2i_features s2i_features_of(struct s2i_features, int first, int n);
/* The features of n frames to s->next */
void s2i_encode_images(struct s2_session *, int n, const struct s2_image *frame);
/* The host's time since `since` is the stage's; on a device that times its stages the end of it is marked. */
void s2i_lap(struct s2_session *, enum s2i_stage, double since);

/* taps.c */
struct s2i_tap_scope {
    struct s2_session *s;
    int object;
    const char *kind;
};
void s2i_tap_map(const struct s2i_tap_scope *, const char *name, struct s2_tensor, int entry);    /* [C,H,W] */
void s2i_tap_tokens(const struct s2i_tap_scope *, const char *name, struct s2_tensor, int entry); /* [tokens,C] */
void s2i_tap_vector(const struct s2i_tap_scope *, const char *name, struct s2_tensor, int entry); /* [h*w*c] */
/* what memory attention receives: mem, mem_pos, n_ptr_tokens */
void s2i_tap_bank(const struct s2i_tap_scope *, int entry, struct s2_tensor pointer_position, int batch_entry);

/* mask_prompt.c: a mask at frame size as the model takes it (SAM2VideoPredictor.add_new_mask, _use_mask_as_output).
 * low [4G*4G] = the +-10 mask, prompt [4G*4G] = mask_downsample's logits. *any: it has a pixel. */
enum s2_status s2i_mask_prompt(const struct s2_model *, const struct s2_bits *, float *low, float *prompt, bool *any,
                               struct s2_err *);

#endif

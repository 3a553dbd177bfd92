/* formats.h - bytes in and out: checkpoints, video and stills, prompts, RLE, and the outputs of a run.
 *
 * Nothing here knows the engine; what crosses is in base.h. Every size read from a file is checked before
 * use; parsers bound depth, counts and sizes. */
#ifndef S2_FORMATS_H
#define S2_FORMATS_H

#include "../engine/base.h"

/* ------------------------------------------------------------------ checkpoints (zip, pickle, pt, safetensors) */

struct fmt_checkpoint;

/* Opens a PyTorch .pt (ZIP container, nothing executed) or .safetensors by its content. Tensors stay mapped.
 * S2_E_MODEL and a sentence on anything else. */
enum s2_status fmt_checkpoint_open(struct fmt_checkpoint **out, const char *path, struct s2_err *);
/* The model part: names without a uniform "module." prefix. Valid until close. Finding tensors gives mapped pages back
 * from time to time: a reader of the whole file needs little memory, and data found before is read from it again. */
const struct s2_source *fmt_checkpoint_source(const struct fmt_checkpoint *);
const char *fmt_checkpoint_container(const struct fmt_checkpoint *); /* "pt" or "safetensors" */
/* Tells the system that the mapped pages are not needed any more. */
void fmt_checkpoint_drop_pages(struct fmt_checkpoint *);
/* Lower-case hex SHA-256 of the whole file, for output headers. */
enum s2_status fmt_checkpoint_sha256(const char *path, char hex[65], struct s2_err *);
void fmt_checkpoint_close(struct fmt_checkpoint *); /* NULL allowed */

/* ------------------------------------------------------------------ video and stills in */

struct fmt_video;
struct fmt_index;

struct fmt_video_options {
    bool allow_network;               /* else a URL is refused */
    int threads;                      /* decoder threads, 0: as FFmpeg likes */
    int convert_threads;              /* to RGB, 0: as many as suit the machine */
    bool planes;                      /* frames may also come as image.yuv, as decoded: those of which s2_yuv_row would
                                         make the same bytes, neither turned nor interlaced, 8-bit 4:2:0 of even size */
    int64_t first, end;               /* half-open range of source frames to deliver; end < 0: to the end */
    int64_t stride;                   /* deliver every stride-th of them, >= 1 */
    const struct fmt_index *backward; /* not NULL: the same frames, the last one first; it outlives the clip */
    size_t backward_bytes;            /* of decoded frames that may then wait, but at least 8 frames; 0: 128 MiB */
};

/* How pictures are to be seen, beside their samples. */
struct fmt_colors {
    bool bt709;              /* the matrix is BT.709's, or nearer to that than to BT.601's */
    int primaries, transfer; /* as AVColorPrimaries and AVColorTransferCharacteristic; 2: not known */
    int chroma;              /* as AVChromaLocation, of 4:2:0; 0: not known, which is "left" */
};

struct fmt_video_info {
    int width, height; /* displayed: after rotation metadata */
    int rotation;      /* 0, 90, 180, 270 clockwise, as applied */
    int time_base_num, time_base_den;
    struct fmt_colors colors;
    int aspect_num, aspect_den; /* width of a pixel by its height; 0: not known */
    double fps;                 /* average, 0 if unknown */
    int64_t frames_hint;        /* what the container says, -1 if unknown; for progress bars only */
    double duration;            /* seconds, < 0 if unknown */
    bool is_stills; /* a folder, a pattern or one picture: frames have their own names, no audio, 25 fps assumed */
    bool reopens;   /* opening the same input again gives the same frames (not stdin) */
    bool has_audio;
    char container[32], codec[32], pixel_format[32], color_space[16], color_range[8];
};

struct fmt_frame {
    struct s2_image image; /* width and height of the clip; the caller's own buffer, see fmt_video_next */
    int64_t index;         /* source frame number: 0-based, display order */
    int64_t pts;           /* in time_base, made monotonic, relative to the first frame of the source */
    double time;           /* seconds from the first frame of the source */
    double next_time;      /* time of the following source frame; INFINITY on the last */
    char stem[256];        /* stills: file name without folder and extension; else "" */
    struct fmt_kept *kept; /* what image.yuv lives by; NULL at first */
};
/* Frees what the frame keeps, not the frame. */
void fmt_frame_release(struct fmt_frame *);

/* path: a file, a folder of PNG/JPEG (natural sort), a printf pattern, or "-" (a stream on stdin). Starts
 * decoding ahead on its own threads. S2_E_INPUT: cannot be opened, or no decodable frame. Colour, chroma and
 * interlacing: video_convert.h. Stills are numbered by their place in the list, so that one that cannot be decoded
 * leaves a gap; a still with EXIF orientation is turned. */
enum s2_status fmt_video_open(struct fmt_video **out, const char *path, const struct fmt_video_options *,
                              struct s2_err *);
/* From now on planes lie in this memory, as long as it has room. It outlives them. Call once at most. */
void fmt_video_set_memory(struct fmt_video *, const struct s2_memory *);
const struct fmt_video_info *fmt_video_get_info(const struct fmt_video *);
/* Frames that will be delivered: exact if there are fewer than `limit`, else `limit`. May wait for decoding
 * (limit at most 16). */
int fmt_video_at_least(struct fmt_video *, int limit);
/* Next delivered frame into frame->image.rgb (the caller's, height * stride bytes, set before the call), or as
 * frame->image.yuv, valid until the next call with this frame or fmt_frame_release, after fmt_video_close too.
 * *got = false at the end. S2_E_BROKEN: the input is damaged or broke off after the frames so far; a frame
 * of another size than the first is also S2_E_BROKEN, with a sentence. */
enum s2_status fmt_video_next(struct fmt_video *, struct fmt_frame *, bool *got, struct s2_err *);
/* fmt_video_next would not wait. */
bool fmt_video_ready(struct fmt_video *);
/* Source frames seen so far (decoded, delivered or not), and seconds the decoder worked. */
int64_t fmt_video_decoded(const struct fmt_video *);
double fmt_video_seconds(const struct fmt_video *);
void fmt_video_close(struct fmt_video *); /* NULL allowed; stops the threads */

/* Number of frames of the source, whatever the range, by reading packets, without decoding; -1 if it cannot be told
 * (stdin). */
int64_t fmt_video_count(const char *path, const struct fmt_video_options *);

/* What the frames of a clip are: decodes it as far as the range goes (a list of stills is only counted) and keeps 32
 * bytes a frame. Damage is kept for fmt_index_verdict; frames up to it can be read backwards. Ends early
 * once on_frame, called behind each frame with their number so far, is not 0. Not for stdin. */
enum s2_status fmt_index_build(struct fmt_index **out, const char *path, const struct fmt_video_options *,
                               int (*on_frame)(void *ctx, int64_t count), void *ctx, struct s2_err *);
/* Frames of the source, not beyond the first one behind the range. */
int64_t fmt_index_count(const struct fmt_index *);
/* Seconds from the first frame, INFINITY behind the last one. */
double fmt_index_time(const struct fmt_index *, int64_t frame);
/* S2_E_BROKEN if the clip is damaged. */
enum s2_status fmt_index_verdict(const struct fmt_index *, struct s2_err *);
void fmt_index_free(struct fmt_index *); /* NULL allowed */

/* One still (PNG, JPEG, anything FFmpeg decodes) as a mask: grey, 1-bit, palette index, or alpha where RGB is
 * constant; non-zero is inside, or only pixels == value if value >= 0. In lossy pictures (JPEG) inside starts at half
 * the scale, because black is not exactly 0 there. S2_E_USAGE: no usable mask. out->data is malloc'ed. */
enum s2_status fmt_mask_read(const char *path, int value, struct s2_bits *out, struct s2_err *);

/* ------------------------------------------------------------------ RLE (COCO) */

/* COCO run lengths, column-major, zeros first, as pycocotools' compressed string (ASCII, NUL-terminated,
 * unescaped). Appends to a growing buffer that is reused from frame to frame. */
struct fmt_text {
    char *data; /* NUL-terminated once anything was written */
    size_t size, capacity;
};
struct fmt_rle_stats {
    int64_t area;
    int bbox[4]; /* x, y, w, h; zeros when empty */
};
enum s2_status fmt_rle_encode(const struct s2_bits *, struct fmt_text *counts, struct fmt_rle_stats *, struct s2_err *);
/* Compressed string (length bytes) into *out (width, height, stride, data set by the caller). false with a
 * sentence about what is wrong: a bad character, runs that do not add up to width*height. */
bool fmt_rle_decode(const char *counts, size_t length, struct s2_bits *out, struct s2_err *);
bool fmt_rle_decode_runs(const int64_t *runs, size_t n, struct s2_bits *out, struct s2_err *);

/* ------------------------------------------------------------------ prompts */

struct fmt_object {
    int id;
    char *label; /* NULL: none */
};

struct fmt_prompt {
    char where[64]; /* "prompts[2]" or "--point 10,20": what an error sentence names */
    bool by_time;
    int64_t frame; /* source frame number, unless by_time */
    double time;   /* seconds, if by_time */
    int object;    /* position in objects */
    enum s2_prompt_kind kind;
    int n_points;
    float *xy; /* as written; pixels unless fmt_prompts.normalized */
    int8_t *labels;
    bool has_box;
    float box[4];
    char *mask_path;     /* resolved; or NULL */
    int mask_value;      /* -1: any non-zero */
    struct s2_bits mask; /* from RLE at parse time, from mask_path after fmt_prompts_resolve */
};

struct fmt_prompts {
    char *path; /* for sentences: "prompts.json", "<stdin>" or "command line" */
    bool normalized;
    struct fmt_object *objects;
    size_t n_objects;
    struct fmt_prompt *prompts;
    size_t n_prompts;
};

/* path "-" is stdin. Every check that needs no video is made here; S2_E_USAGE and a sentence like
 * "prompts.json: prompts[2].box: x1 (90) is not right of x0 (95)". */
enum s2_status fmt_prompts_read(struct fmt_prompts *out, const char *path, struct s2_err *);
enum s2_status fmt_prompts_parse(struct fmt_prompts *out, const char *name, const char *json, size_t size,
                                 const char *folder, struct s2_err *);
/* Quick prompts: option is "point", "box" or "mask", text its argument. Several of one frame and id merge; they
 * append to what a file gave, in its units. Start with a zeroed set or a read one. */
enum s2_status fmt_prompts_quick(struct fmt_prompts *, const char *option, const char *text, struct s2_err *);
/* Checks that need the video: frame < frames if frames >= 0; points 0 <= x < width, boxes 0 <= x0 < x1 <= width, and
 * so in y; mask sizes. Turns normalized coordinates into pixels, reads mask files. Free the set if it fails. */
enum s2_status fmt_prompts_resolve(struct fmt_prompts *, int width, int height, int64_t frames, struct s2_err *);
void fmt_prompts_free(struct fmt_prompts *);

/* ------------------------------------------------------------------ outputs */

/* What a run writes. Paths are NULL where not wanted. All that is pointed to outlives the outputs.
 *
 * png_dir          DIR/00007.png of source frame 7 (or the still's stem): 8-bit palette, pixel = object id, 1..255
 * png_objects_dir  DIR/ID/00007.png for every frame and every object, 1-bit grey: empty while it is not started
 * rle_path         ".json", ".jsonl" or "-"; a pipe or device gets lines as "-" does
 * overlay_path     ".mp4", ".m4v", ".mov", ".mkv" or ".webm"; time 0 is the first frame put
 *
 * A DIR is created with its parents. With overwrite, the numbered PNG files of an earlier run go when the first
 * frame is put; those of stills are replaced one by one. */
struct fmt_outputs_config {
    const char *png_dir, *png_objects_dir, *rle_path /* ".json", ".jsonl" or "-" */, *overlay_path;
    bool overwrite;
    int width, height;
    const struct fmt_object *objects;
    size_t n_objects;
    int time_base_num, time_base_den;
    double fps;
    struct fmt_colors colors;   /* of the overlay */
    int aspect_num, aspect_den; /* of its pixels; 0: not known */
    const char *overlay_preset; /* of libx264, from "ultrafast" to "veryslow"; NULL: "veryfast" */
    bool stills;                /* no audio; file stems for PNG names */
    const char *input_path;     /* overlay: audio is copied from it if it is a plain file; RLE header */
    const char *model_file, *model_name, *precision, *device, *graph; /* RLE header */
    int model_size;
    const char *overlap;            /* "allow" or "exclusive" */
    const struct s2_memory *memory; /* for masks and owners; it outlives the outputs. NULL: the heap */
};

struct fmt_record_object {
    bool started;
    float score, iou; /* iou NAN: null */
    struct s2_bits bits;
};

/* One frame's results; buffers belong to the pool. */
struct fmt_record {
    struct fmt_frame frame;           /* image.rgb is a pool buffer: decode straight into it */
    struct fmt_record_object *object; /* [n_objects] */
    uint16_t *owner;                  /* [height][width], 1 + object position, 0 none; for id maps and overlays only */
};

struct fmt_outputs;

/* Creates nothing under a final name yet but folders; refuses existing outputs (S2_E_OUTPUT) unless overwrite.
 * S2_E_USAGE: two outputs of one path, one that is the input, an ending that is not known, ids above 255 in a map. */
enum s2_status fmt_outputs_open(struct fmt_outputs **out, const struct fmt_outputs_config *, struct s2_err *);
/* A free record; waits while all are in flight. NULL once an output has failed. */
struct fmt_record *fmt_outputs_take(struct fmt_outputs *);
/* Hands it to the writers, frames in display order ... */
void fmt_outputs_put(struct fmt_outputs *, struct fmt_record *);
/* ... or back unused. */
void fmt_outputs_return(struct fmt_outputs *, struct fmt_record *);
/* Waits for the writers, closes files so that they play and parse, renames them to their final names; after a
 * failure or an interrupted run too, with the frames so far. Reports the first failure (S2_E_OUTPUT), and how many
 * frames of that output are kept; further ones are warnings. An overlay without a frame leaves no file. Frees. */
enum s2_status fmt_outputs_finish(struct fmt_outputs *, struct s2_err *);
/* Frees without renaming; removes what was written under temporary names. NULL allowed. */
void fmt_outputs_discard(struct fmt_outputs *);
/* Seconds each writer worked, its threads together, for --stats: names and values of the returned length. */
int fmt_outputs_times(const struct fmt_outputs *, const char *const **names, const double **seconds);

/* ------------------------------------------------------------------ results that wait for their turn */

/* Results of frames in a temporary file without a name, in TMPDIR or else /tmp: a pass that does not go in display
 * order leaves them there. A slot is the number of a frame among those that are tracked. */
struct fmt_spill;
/* owners: records carry the map of owners. S2_E_OUTPUT if no file can be made. */
enum s2_status fmt_spill_open(struct fmt_spill **out, int64_t slots, size_t n_objects, bool owners, struct s2_err *);
/* All of the record but its frame; a few KiB, as run lengths. S2_E_OUTPUT: the disk is full. */
enum s2_status fmt_spill_put(struct fmt_spill *, int64_t slot, const struct fmt_record *, struct s2_err *);
bool fmt_spill_has(const struct fmt_spill *, int64_t slot); /* put was called */
enum s2_status fmt_spill_get(struct fmt_spill *, int64_t slot, struct fmt_record *, struct s2_err *);
/* Low-res logits [side][side] of one object, which decide about overlaps. Only cells that are positive or touch a
 * positive one keep their value, the others come back as -1024: the upsampled mask and its values inside are the same.
 * *got: there are any for this slot and object. */
enum s2_status fmt_spill_put_logits(struct fmt_spill *, int64_t slot, size_t object, const float *logits, int side,
                                    float score, float iou, struct s2_err *);
enum s2_status fmt_spill_get_logits(struct fmt_spill *, int64_t slot, size_t object, float *logits, int side,
                                    float *score, float *iou, bool *got, struct s2_err *);
int64_t fmt_spill_bytes(const struct fmt_spill *); /* on disk */
void fmt_spill_free(struct fmt_spill *);           /* NULL allowed */

#endif

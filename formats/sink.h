/* sink.h - inside formats/: one kind of output as outputs.c drives it, and the tools of the overlay.
 *
 * A sink writes under temporary names beside the final ones. `open` makes every check that needs no frame and
 * fails with S2_E_USAGE or S2_E_OUTPUT; the config and all it points to outlive the sink. */
#ifndef S2_FORMATS_SINK_H
#define S2_FORMATS_SINK_H

#include "formats.h"

enum { FMT_SINK_WORKERS = 6 }; /* threads of one sink at most */

/* How many of them suit the machine. */
int fmt_sink_workers(void);

struct fmt_sink {
    const char *name; /* of its stage in fmt_outputs_times */
    int workers;      /* threads; each has another frame */
    bool in_order;    /* write is called for one frame after the other; else by all workers at once */
    /* Before the first frame, in the caller's thread; NULL: nothing to do. */
    enum s2_status (*begin)(struct fmt_sink *, struct s2_err *);
    /* By all workers at once, before write; NULL: nothing to do. */
    enum s2_status (*prepare)(struct fmt_sink *, int worker, const struct fmt_record *, struct s2_err *);
    enum s2_status (*write)(struct fmt_sink *, int worker, const struct fmt_record *, struct s2_err *);
    /* Makes what was written whole and gives it its final name, after a failed write too. *kept: in, frames
     * written; out, those that can be read under the final name. Called once, when no thread writes any more. */
    enum s2_status (*finish)(struct fmt_sink *, int64_t *kept, struct s2_err *);
    /* Removes what still has a temporary name, frees. */
    void (*free)(struct fmt_sink *);
};

enum s2_status fmt_sink_png_open(struct fmt_sink **out, const struct fmt_outputs_config *, struct s2_err *);
enum s2_status fmt_sink_png_objects_open(struct fmt_sink **out, const struct fmt_outputs_config *, struct s2_err *);
enum s2_status fmt_sink_rle_open(struct fmt_sink **out, const struct fmt_outputs_config *, struct s2_err *);
enum s2_status fmt_sink_overlay_open(struct fmt_sink **out, const struct fmt_outputs_config *, struct s2_err *);

/* S2_E_OUTPUT "<path>: <what>: <strerror(error)>". */
enum s2_status fmt_output_failed(struct s2_err *, const char *path, const char *what, int error);
/* S2_E_OUTPUT if something that may not be replaced has this name: anything at all without overwrite, with it
 * what is not a plain file. */
enum s2_status fmt_output_check_file(const char *path, bool overwrite, struct s2_err *);
/* "<folder>/<name>" and "<path>.part", malloc'ed; NULL: no memory. */
char *fmt_output_join(const char *folder, const char *name);
char *fmt_output_part(const char *path);
/* Where the run of owners that begins at x ends in its row. */
int fmt_run_end(const uint16_t *owner, int x, int width);
/* Writes all bytes; offset < 0: at the file's own position. 0 or errno. */
int fmt_output_write(int fd, const char *bytes, size_t n, int64_t offset);

/* ------------------------------------------------------------------ overlay pictures */

/* A picture to paint on: three components of limited-range YUV, all of full size, rows `stride` bytes apart. */
struct fmt_canvas {
    int width, height;
    uint8_t *plane[3];
    size_t stride[3];
};

/* alpha: how much the colour covers the pixel, 0..255. Outside of the picture there is nothing to cover. */
void fmt_canvas_blend(const struct fmt_canvas *, int x, int y, const uint8_t color[3], int alpha);

struct fmt_painter;

/* Paints tints, outlines and labels for pictures of one size, in the colours of BT.709 or BT.601. The objects outlive
 * it. */
enum s2_status fmt_painter_open(struct fmt_painter **out, int width, int height, bool bt709, const struct fmt_object *,
                                size_t n_objects, struct s2_err *);
/* owner: [height][width], 1 + object position, 0 none; positions behind n_objects are taken as none. */
void fmt_painter_draw(struct fmt_painter *, const struct fmt_canvas *, const uint16_t *owner);
void fmt_painter_free(struct fmt_painter *); /* NULL allowed */

/* Letters drawn as round strokes, printable ASCII; other characters show as '?'. */
struct fmt_letters;

/* height: of a capital letter in pixels. NULL: no memory. */
struct fmt_letters *fmt_letters_open(double height);
int fmt_letters_width(const struct fmt_letters *, const char *text); /* in pixels */
/* Top left corner of the capitals at (x, y); what lies outside the picture is cut off. */
void fmt_letters_draw(const struct fmt_letters *, const struct fmt_canvas *, int x, int y, const char *text,
                      const uint8_t color[3]);
void fmt_letters_free(struct fmt_letters *); /* NULL allowed */

/* A side of the video for one of the picture: encoders want chroma samples whole. */
static inline int fmt_even(int side)
{
    return side + (side & 1);
}

struct AVFrame;
struct fmt_easel;

/* A frame's picture with its masks, as 4:2:0 of even size. One for each thread that paints. */
enum s2_status fmt_easel_open(struct fmt_easel **out, const struct fmt_outputs_config *, struct s2_err *);
/* The frame is the easel's, until the next call. */
enum s2_status fmt_easel_paint(struct fmt_easel *, const struct s2_image *, const uint16_t *owner, struct AVFrame **out,
                               struct s2_err *);
void fmt_easel_free(struct fmt_easel *); /* NULL allowed */

/* ------------------------------------------------------------------ overlay sound */

struct AVFormatContext;
struct fmt_audio;

/* Copies the best audio stream of a local file into `muxer`, to which it adds a stream (before the header is
 * written). NULL where there is none, or none that the container takes: said in the log, never an error. */
struct fmt_audio *fmt_audio_open(const char *input_path, struct AVFormatContext *muxer);
/* Sound from `start` (seconds after the source's first frame, the same in every call) up to `end`; time 0 of the
 * output is `start`. */
void fmt_audio_copy(struct fmt_audio *, double start, double end);
void fmt_audio_free(struct fmt_audio *); /* NULL allowed */

#endif

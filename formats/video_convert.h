/* video_convert.h - decoded frames of any pixel format to 8-bit RGB, and their turn into displayed orientation.
 *
 * Colour: the YUV matrix is the one the stream names; unnamed, BT.709 from 720 rows or 1280 columns on, else
 * BT.601. Range: as the stream says (yuvj formats: full); unsaid, YUV is limited and grey is full. Chroma is
 * interpolated linearly at the sample position the stream names (unnamed: left, as in MPEG-2 and H.264). A frame
 * marked interlaced stays one whole frame, but chroma of 4:2:0 is interpolated within each field (where its height
 * is a multiple of 4, so that both fields have whole chroma rows). No tone mapping: PQ and HLG are shown as they
 * are coded. Alpha is dropped. Samples over 8 bits are rounded to nearest.
 *
 * One struct fmt_convert belongs to one thread. */
#ifndef S2_FORMATS_VIDEO_CONVERT_H
#define S2_FORMATS_VIDEO_CONVERT_H

#include "formats.h"

#include <libavutil/buffer.h>
#include <libavutil/frame.h>

#define FMT_MAX_SIDE 16384 /* pixels; larger pictures are refused */

struct SwsContext;

/* From the picture as decoded to the picture as displayed: first transpose, then mirror. */
struct fmt_orientation {
    bool transpose, flip_x, flip_y;
};

/* matrix: FFmpeg's display matrix (int32_t[9], libavutil/display.h), NULL for none. Rotations in between are taken
 * to the nearest quarter turn. */
struct fmt_orientation fmt_orientation_of(const int32_t *matrix);
int fmt_orientation_degrees(struct fmt_orientation); /* clockwise: 0, 90, 180, 270; mirroring aside */

struct fmt_convert {
    struct SwsContext *whole, *field[2];
    int width, height, format, space, range, location; /* what the contexts are made for */
    AVBufferPool *pool;                                /* RGB pictures of pool_size bytes */
    size_t pool_size;
    AVFrame *even;  /* copy of a frame of odd size */
    uint16_t *line; /* samples of one row */
    uint8_t *level; /* [1 << level_depth]: 8-bit value of each sample */
    int level_depth, level_limited;
};

/* The matrix (enum AVColorSpace) and range (enum AVColorRange) that the conversion uses for the frame. */
int fmt_color_space(const AVFrame *);
int fmt_color_range(const AVFrame *);
/* From Y'CbCr of that matrix, limited range, in 1/65536: Cr to R, Cb to B, -Cb to G, -Cr to G. */
const int *fmt_color_table(int space);
/* Where chroma samples lie (enum AVChromaLocation), in 1/256 of a luma sample from the top left one's centre. */
void fmt_chroma_position(int location, int *h, int *v);
/* A libswscale context from one pixel format (enum AVPixelFormat) to another of the same size, one thread, to which
 * options can be added; NULL: no memory. */
struct SwsContext *fmt_sws_alloc(int width, int height, int from, int to, int flags);
/* Makes it ready. Tables of coefficients as fmt_color_table has them, and whether the ranges are full. NULL: it cannot
 * be had, and is freed. */
struct SwsContext *fmt_sws_init(struct SwsContext *, const int *from, int from_full, const int *to, int to_full);
/* Whether chroma is interpolated within each field. */
bool fmt_converts_fields(const AVFrame *);
/* false: no way to RGB is known for this pixel format (enum AVPixelFormat). */
bool fmt_convert_knows(int format);

/* Makes `out` (blank) an 8-bit RGB or grey picture: another reference to `in` if that is one already, else a
 * picture of the pool. */
enum s2_status fmt_convert_frame(struct fmt_convert *, const AVFrame *in, AVFrame *out, struct s2_err *);
/* Writes what fmt_convert_frame made, turned, to image (its width and height are those after the turn). */
void fmt_convert_store(const AVFrame *rgb, struct fmt_orientation, const struct s2_image *image);
void fmt_convert_free(struct fmt_convert *);

#endif

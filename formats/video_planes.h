/* video_planes.h - decoded frames that need not become RGB, because who takes them makes the same of their planes. */
#ifndef S2_FORMATS_VIDEO_PLANES_H
#define S2_FORMATS_VIDEO_PLANES_H

#include "video_convert.h"

/* The planes of an 8-bit 4:2:0 frame of even width and height whose chroma is not interpolated by fields; they live
 * as long as the frame. false: it is none. */
bool fmt_planes_of(const AVFrame *, struct s2_yuv *out);

/* Whether they are limited-range BT.709, or BT.601. */
bool fmt_planes_are(const struct s2_yuv *, bool bt709);

/* Whether s2_yuv_row makes of these planes what fmt_convert_frame makes of the frame, byte by byte, in the `band` rows
 * at its top, middle and bottom. false, too, if memory ran out. */
bool fmt_planes_agree(struct fmt_convert *, const AVFrame *, const struct s2_yuv *, int band);

/* The frame's planes, packed, in a buffer of the pool; `to` is empty. false: the pool has none, or one too small. */
bool fmt_planes_copy(struct AVBufferPool *, const AVFrame *, AVFrame *to);

/* What was found out about frames of one kind. libswscale's integers differ between versions and processors: each
 * kind is tried on its first frame and on noise of the same size. */
struct fmt_planes_trial {
    int width, height, format, space, range, location;
    bool tried, agreed;
};

/* Whether the frame may be passed on as planes. name: of the clip, for the log. */
bool fmt_planes_usable(struct fmt_planes_trial *, const AVFrame *, const char *name);

#endif

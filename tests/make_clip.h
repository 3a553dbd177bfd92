/* make_clip.h - small synthetic clips, encoded on the spot with FFmpeg's libraries. */
#ifndef TESTS_MAKE_CLIP_H
#define TESTS_MAKE_CLIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct make_clip {
    const char *path;    /* container by its extension; a printf pattern (f%03d.png) gives stills */
    const char *format;  /* container by name, NULL: by extension */
    const char *options; /* of the container, "movflags=faststart:..." */
    const char *codec;   /* encoder: "ffv1", "mpeg4", "mjpeg", "png", "rawvideo", "libx264", ... */
    const char *pix_fmt; /* NULL: the first that the encoder takes */
    int width, height, frames, fps;
    bool vfr;    /* uneven times, see make_clip_tick */
    int rotate;  /* 0, 90, 180, 270: clockwise turn that a player shall apply (display matrix) */
    bool mirror; /* and a left-right flip after the turn */
    bool full;   /* full range; else limited for YUV. Tagged only with tag_range */
    bool tag_range;
    const char *matrix; /* "bt709", "smpte170m", ...: tagged and used for the default picture; NULL: untagged, 601 */
    bool interlaced;    /* frames are marked so */
    bool audio;         /* a tone beside the picture */
    int gop;            /* distance of key frames, 0: the encoder's */
    /* Component values of one sample (Y U V A, R G B A or the palette index) at the depth of the format; x, y is the
     * sample's place in the frame. NULL: the default picture, make_clip_rgb. */
    void (*paint)(const void *ctx, int frame, int x, int y, uint16_t value[4]);
    const void *ctx;
};

/* Time of frame i in tenths of a frame: 10 i, or uneven but increasing. */
int64_t make_clip_tick(const struct make_clip *, int i);
/* The default picture: red grows with x, green with y, a red square moves right, and a grey block of 16x16 in the
 * upper left corner has the value 8 * frame (mod 256). */
void make_clip_rgb(const struct make_clip *, int frame, int x, int y, int rgb[3]);
/* Entry i of the palette that palette formats get. */
uint32_t make_clip_palette(int i);

/* false with a reason. */
bool make_clip(const struct make_clip *, char *why, size_t size);
bool make_clip_has_encoder(const char *name);

#endif

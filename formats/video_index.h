/* video_index.h - what a pass over a clip learns about each of its frames, and reading the clip backwards with it. */
#ifndef S2_FORMATS_VIDEO_INDEX_H
#define S2_FORMATS_VIDEO_INDEX_H

#include "video.h"

struct fmt_indexed {
    int64_t stamp; /* time in the stream, AV_NOPTS_VALUE: none */
    int64_t pts;   /* as delivered */
    uint64_t hash; /* of the decoded picture */
    bool key;      /* decoding can start here */
};

struct fmt_index {
    bool is_stills;
    int64_t count;             /* frames before the end, before damage that ends the clip, or the end of the range */
    struct fmt_indexed *frame; /* [count] of a container; NULL for stills */
    AVRational base;           /* of pts */
    struct s2_err end;         /* what was wrong with the clip, status S2_OK: nothing */
};

/* A hash of the visible part of a decoded picture. */
uint64_t fmt_picture_hash(const AVFrame *);

/* Frames of a container in descending order. Decoding goes forward from a key frame, or from the start of the clip
 * where seeking does not help, and fills a buffer of bounded size. What
 * came by seeking is taken only if its time and picture are those of the first pass. */
enum { FMT_BACKWARD_BYTES = 128 << 20, FMT_BACKWARD_LEAST = 8, FMT_BACKWARD_MOST = 256 };

struct fmt_backward {
    struct fmt_video *v;
    const struct fmt_index *index;
    AVFrame *frame[FMT_BACKWARD_MOST]; /* number i is source frame low + i * stride */
    int capacity;
    int64_t low;
    int misses;    /* times that seeking did not help */
    bool at_start; /* the stream stands at its first frame, nothing was read yet */
};
enum s2_status fmt_backward_init(struct fmt_backward *, struct fmt_video *, struct s2_err *);
/* Frames low, low + stride ... high, at most capacity of them, into frame[]. */
enum s2_status fmt_backward_fill(struct fmt_backward *, int64_t low, int64_t high, struct s2_err *);
void fmt_backward_free(struct fmt_backward *);

#endif

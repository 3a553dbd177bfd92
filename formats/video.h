/* video.h - the parts of an open clip.
 *
 *   decode threads --(decoded)--> convert threads --(converted)--> fmt_video_next
 *
 * One thread reads a container (FFmpeg adds its own frame threads behind it); several read a list of stills. Several
 * convert where there are cores for it. */
#ifndef S2_FORMATS_VIDEO_H
#define S2_FORMATS_VIDEO_H

#include "video_planes.h"
#include "video_queue.h"
#include "video_stream.h"

enum {
    FMT_AHEAD = 4,           /* decoded frames that wait in steady state */
    FMT_AHEAD_CONVERTED = 2, /* and converted ones, beside one in the hands of each thread that converts */
    FMT_STILL_THREADS = 8,   /* at most */
    FMT_CONVERT_THREADS = 4, /* at most */
    FMT_STILL_RATE = 25      /* frames a second that stills are taken to have */
};

struct fmt_kept {
    AVFrame *frame;
    struct s2_yuv planes; /* of it */
};

#define FMT_FAR (INT64_C(1) << 40) /* frames: more than any clip has, and small enough to add and multiply */

struct fmt_video {
    char *path;
    struct fmt_video_options options;
    struct fmt_video_info info;
    struct fmt_input input;
    struct fmt_stream stream; /* of a container */
    struct fmt_queue decoded, converted;
    pthread_t thread[FMT_STILL_THREADS + FMT_CONVERT_THREADS];
    int n_threads, still_threads;
    atomic_int converting;  /* threads that convert and are not done */
    pthread_mutex_t trying; /* guards the trial */
    struct fmt_planes_trial trial;
    _Atomic(struct AVBufferPool *) planes; /* memory for them; NULL: they stay where they were decoded to */
    struct fmt_queued taken;               /* by fmt_video_next */
    bool end_told;                         /* fmt_video_next has reported how the clip ended */
    _Atomic int64_t frames_seen, busy_ns;
    /* stills */
    _Atomic int64_t next_still; /* to be claimed by a thread, counted in delivered frames */
    pthread_mutex_t damage;     /* guards what follows */
    int64_t damaged_stills, first_damaged;
    struct s2_err first_damage;
};

/* `wanted`, or if that is 0 one for so many cores; 1 to `most`. */
int fmt_video_threads(int wanted, int cores_each, int most);
/* Starts the threads. S2_E_DEVICE if they cannot be had. */
enum s2_status fmt_video_start(struct fmt_video *, struct s2_err *);
/* Width and height of a decoded frame as displayed. */
void fmt_displayed_size(const AVFrame *, struct fmt_orientation, int *width, int *height);

#endif

/* stats.h - how long the parts of a run took, for the summary line and --stats. */
#ifndef CMD_STATS_H
#define CMD_STATS_H

#include "../engine/engine.h"
#include "../formats/formats.h"

enum { CMD_STATS_WINDOW = 256 };

struct cmd_stats {
    double device_seconds;                  /* opening the device */
    double model_seconds;                   /* loading the model */
    double session_seconds;                 /* opening the session */
    double first_mask_seconds;              /* from the start of the process; < 0: no mask yet */
    double start, end;                      /* s2_now() at the first and after the last frame */
    int64_t frames;                         /* tracked */
    double frame_seconds[CMD_STATS_WINDOW]; /* of the last frames, a ring */
    double last[2];                         /* see cmd_frame_seconds */
};

/* What a frame took that is finished at `now`: the mean of two from one frame's end to the next's, as devices take
 * frames in pairs. last: the ends of the two frames before, at first both the start; moves on */
double cmd_frame_seconds(double last[2], double now, bool first);

void cmd_stats_start(struct cmd_stats *);
/* A frame is finished; has_object: a mask of some object came out. */
void cmd_stats_frame(struct cmd_stats *, bool has_object);
/* Frames a second from the first frame to the last. */
double cmd_stats_fps(const struct cmd_stats *);
/* Median seconds of a frame, over the later half of the clip and at most the last CMD_STATS_WINDOW frames. */
double cmd_stats_steady(const struct cmd_stats *);

/* Sorts v[n]. */
double cmd_median(double *v, size_t n);

/* Everything that --stats tells; pointers may be NULL where a part never opened. */
struct cmd_stats_report {
    const struct cmd_stats *stats;
    const struct s2_session *session;
    double video_seconds; /* the decoder's */
    int64_t finished;     /* frames that came out */
    int64_t spilled;      /* bytes of results that waited on disk */
    int n_outputs;        /* writers, by name, and the seconds they worked */
    const char *output_name[8];
    double output_seconds[8];
    const struct s2_model_info *model;
    const struct cmd_device *opened;
    const char *input, *device, *precision, *late, *direction;
    int n_objects, threads;
    int64_t frames_expected;
    int status; /* exit code */
};

/* path: a file, written beside and renamed, or "-". S2_E_OUTPUT if it cannot be written. */
enum s2_status cmd_stats_write(const struct cmd_stats_report *, const char *path, struct s2_err *);

#endif

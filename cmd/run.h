/* run.h - one `track` run: what track.c sets up and passes.c works on. */
#ifndef CMD_RUN_H
#define CMD_RUN_H

#include "device.h"
#include "progress.h"
#include "schedule.h"
#include "stats.h"
#include "taps.h"
#include "track.h"
#include "watch.h"

/* A step of the session whose results are not collected yet. */
struct cmd_flight {
    struct fmt_record *record;
    struct s2_object_result *results; /* [n_objects] */
    int number;                       /* of the frame, for the taps */
    int n_prompts;
};

struct cmd_run {
    struct cmd_track_options o;
    struct fmt_video *video; /* of the present pass */
    double video_seconds;    /* the decoder's, in passes that have ended */
    struct fmt_video_info info;
    int64_t frames; /* of the clip, counted; -1 while unknown */
    struct fmt_checkpoint *checkpoint;
    struct s2_model_info model_info;
    struct cmd_device device;
    struct s2_memory memory; /* of the device */
    bool direct;             /* there is such memory: frames and results lie in it */
    struct s2_model *model;
    struct fmt_outputs *outputs;
    struct s2_session *session;
    struct cmd_flight flight[S2_MAX_IN_FLIGHT]; /* step i is in i % S2_MAX_IN_FLIGHT */
    int64_t submitted, collected;
    struct cmd_schedule schedule;
    struct cmd_watch watch;
    struct cmd_taps *taps;
    struct cmd_stats stats;
    struct cmd_stats_report report;
    enum s2_late late;
    int steps;        /* frames given to the session to track */
    int64_t finished; /* frames handed to the outputs */

    /* directions other than forward */
    enum cmd_direction direction; /* CMD_FORWARD, too, where both directions come to the same */
    struct fmt_index *index;
    struct fmt_spill *spill;
    int64_t complete_from; /* both: from this source frame on the forward pass says all */
    int turn;              /* both: the step that saw this frame */
    float *logits;         /* both: of one object */
    int side;              /* of the logits */
};

/* Opens the input for a pass that delivers frames from `first` up to `end` (< 0: open). index: the last one first. */
enum s2_status cmd_run_open_video(struct cmd_run *, int64_t first, int64_t end, const struct fmt_index *,
                                  struct s2_err *);

/* passes.c. What the frames are, where that costs little (stills) or the direction needs it: r->index and r->frames. */
enum s2_status cmd_passes_index(struct cmd_run *, struct s2_err *);
/* From the first frame to the last record handed to the outputs. Ends early, with what is complete, when a signal
 * asks for it. */
enum s2_status cmd_passes_run(struct cmd_run *, struct s2_err *);

#endif

/* video_queue.h - a bounded queue of frames between the threads behind fmt_video.
 *
 * Frames enter in the order of their numbers 0, 1, 2, ...: several producers may work on different numbers
 * at once, each waits for its turn. So may several consumers. */
#ifndef S2_FORMATS_VIDEO_QUEUE_H
#define S2_FORMATS_VIDEO_QUEUE_H

#include "video_convert.h"

#include <pthread.h>
#include <stdatomic.h>

#define FMT_QUEUE_SLOTS 16

struct fmt_queued {
    AVFrame *frame;
    struct fmt_orientation orientation;
    int64_t index, pts;
    int64_t number; /* of those that left a queue, this one's */
    double time, next_time;
    const char *file; /* stills: the file's name; else NULL */
};

struct fmt_queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct fmt_queued slot[FMT_QUEUE_SLOTS]; /* their AVFrames live as long as the queue */
    int head, count;
    int ahead;           /* frames that may wait in the queue */
    int64_t turn, total; /* number that may enter next; frames that entered */
    bool ready;          /* mutex and condition exist */
    bool ended;
    struct s2_err end; /* why: S2_OK is the end of the input */
    atomic_bool stop;  /* nobody wants more frames; readable without the mutex */
};

bool fmt_queue_init(struct fmt_queue *, int ahead); /* false: no memory */
void fmt_queue_free(struct fmt_queue *);            /* zeroed struct allowed; no thread may use it any more */

/* Moves item (its frame's references) in as number `number`, when its turn comes and there is room; NULL: there
 * is no frame of that number. false: the queue has ended or was stopped. */
bool fmt_queue_push(struct fmt_queue *, int64_t number, struct fmt_queued *item);
/* Ends the queue in place of number `number`; at once if that one has entered. */
void fmt_queue_end(struct fmt_queue *, int64_t number, const struct s2_err *why);
/* Why the queue has ended; S2_OK if it has not, too. */
void fmt_queue_verdict(struct fmt_queue *, struct s2_err *why);
/* Moves the oldest frame into out->frame, waiting for one, and numbers it. false: no more frames. */
bool fmt_queue_pop(struct fmt_queue *, struct fmt_queued *out);
/* fmt_queue_pop would not wait. */
bool fmt_queue_ready(struct fmt_queue *);

void fmt_queue_set_ahead(struct fmt_queue *, int ahead); /* at most FMT_QUEUE_SLOTS */
/* Waits until `n` frames have entered since the start, or the end; returns how many have. */
int64_t fmt_queue_wait(struct fmt_queue *, int64_t n);
void fmt_queue_stop(struct fmt_queue *);

#endif

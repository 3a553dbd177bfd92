/* watch.h - warnings about results that are rarely meant: an object that is absent where it was prompted, a mask
 * that suddenly covers the whole frame. */
#ifndef CMD_WATCH_H
#define CMD_WATCH_H

#include "../formats/formats.h"

struct cmd_watch {
    const struct fmt_object *objects;
    size_t n_objects;
    double *covered; /* [n_objects]: share of the frame that the mask covered on the frame before */
    bool *warned;    /* [n_objects]: about covering the frame, once */
};

enum s2_status cmd_watch_open(struct cmd_watch *, const struct fmt_object *, size_t n, struct s2_err *);
/* Returns how many objects are present. prompts: those of this frame. */
int cmd_watch_frame(struct cmd_watch *, int64_t frame, const struct fmt_record_object *, const struct s2_prompt *,
                    int n_prompts);
/* The next frame does not follow the one before. */
void cmd_watch_turn(struct cmd_watch *);
void cmd_watch_close(struct cmd_watch *); /* may be called on a zeroed struct, and again */

#endif

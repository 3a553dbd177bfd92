/* schedule.h - which prompts belong to which frame of a run, in the engine's form. */
#ifndef CMD_SCHEDULE_H
#define CMD_SCHEDULE_H

#include "../formats/formats.h"

enum cmd_direction { CMD_FORWARD, CMD_BACKWARD, CMD_BOTH };

/* Which prompts a pass takes. A stop before its object's first prompt ends the way back of CMD_BOTH. */
enum cmd_pass { CMD_PASS_ALL, CMD_PASS_THERE /* all but such stops */, CMD_PASS_BACK /* only such stops */ };

struct cmd_schedule {
    const struct fmt_prompts *prompts;
    struct s2_prompt *all; /* [prompts->n_prompts]: points and masks are borrowed from `prompts` */
    struct s2_prompt *now; /* those of the present frame */
    bool *done;
    size_t left;           /* prompts that no frame has taken yet */
    int *prompted_frames;  /* [prompts->n_objects]: on how many frames each object is prompted at most */
    int64_t *first_prompt; /* [prompts->n_objects]: source frame of its first prompt, -1: none, or none by frame */
    int max_points;        /* the most points that one object has on one frame; a box counts 2 */
    int64_t last_frame;    /* source number of the last frame seen, -1: none */
    int64_t highest;       /* and of the one furthest on */
    double last_time, last_interval;
};

/* Every prompt by frame must lie on a frame that first, end (< 0: open) and stride deliver, and a stop behind a prompt
 * of its object in the direction of travel: S2_E_USAGE and a sentence otherwise. Needs no video. */
enum s2_status cmd_schedule_check(const struct fmt_prompts *, int64_t first, int64_t end, int64_t stride,
                                  enum cmd_direction, struct s2_err *);
/* Prompts by time become prompts by frame, where the times of all frames are known. S2_E_USAGE and a sentence if the
 * frame shown then is not delivered, or if a mask or a stop meets another prompt of its object. */
enum s2_status cmd_schedule_place(struct fmt_prompts *, const struct fmt_index *, int64_t first, int64_t end,
                                  int64_t stride, struct s2_err *);

/* prompts must be resolved and stay as they are until cmd_schedule_close. */
enum s2_status cmd_schedule_open(struct cmd_schedule *, const struct fmt_prompts *, struct s2_err *);
/* The prompts of a delivered frame, in their order: *n of them in s->now. Prompts by time belong to the frame
 * that is shown then; S2_E_USAGE if that frame was not delivered (stride, range), or if a mask or a stop meets
 * another prompt of its object. */
enum s2_status cmd_schedule_frame(struct cmd_schedule *, const struct fmt_frame *, int *n, struct s2_err *);
/* After the last frame: S2_E_USAGE and a sentence if prompts are left. */
enum s2_status cmd_schedule_end(const struct cmd_schedule *, struct s2_err *);
void cmd_schedule_rewind(struct cmd_schedule *, enum cmd_pass); /* for another pass over the clip */
void cmd_schedule_close(struct cmd_schedule *);                 /* may be called on a zeroed struct, and again */

#endif

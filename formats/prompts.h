/* prompts.h - what the JSON reader, the quick prompts and the resolver share. */
#ifndef S2_FORMATS_PROMPTS_H
#define S2_FORMATS_PROMPTS_H

#include "formats.h"

enum {
    FMT_MAX_ID = 65535,
    FMT_MAX_FRAME = INT32_MAX,
    FMT_MAX_POINTS = 4096,     /* of one prompt */
    FMT_MAX_MASK_SIDE = 16384, /* as of a video */
    FMT_MAX_MASK_MIB = 2048,   /* bits of all masks of a set of prompts */
};

/* Position of the object with that id, -1 if there is none. */
int fmt_prompts_find_object(const struct fmt_prompts *, int id);
/* Position of a new object at the end; -1 if memory ran out. */
int fmt_prompts_add_object(struct fmt_prompts *, int id);
/* A zeroed prompt (mask_value -1) at the end, valid until the next one; NULL if memory ran out. */
struct fmt_prompt *fmt_prompts_add(struct fmt_prompts *);
/* Room for more points at the end of those there are, S2_E_USAGE beyond FMT_MAX_POINTS. n_points is not changed. */
enum s2_status fmt_prompt_reserve_points(struct s2_err *, const struct fmt_prompts *, struct fmt_prompt *, int more);
/* Frees what the prompt owns and zeroes it. */
void fmt_prompt_clear(struct fmt_prompt *);

/* Whether it was written on the command line. */
bool fmt_prompt_is_quick(const struct fmt_prompt *);
/* S2_E_USAGE with "prompts.json: prompts[2].box: ..." (member "box") or "--box 1,2,3,4: ..." */
enum s2_status fmt_prompt_fail(struct s2_err *, const struct fmt_prompts *, const struct fmt_prompt *,
                               const char *member, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Checks that need no picture. Coordinates: finite, not negative, normalized ones at most 1 (a point: below 1),
 * a box with an area; they are stored as float, and what is checked is what is stored. */
enum s2_status fmt_prompt_check_point(struct s2_err *, const struct fmt_prompts *, const struct fmt_prompt *, int i);
enum s2_status fmt_prompt_check_box(struct s2_err *, const struct fmt_prompts *, const struct fmt_prompt *);
/* The mask file exists, can be read and is a regular file. */
enum s2_status fmt_prompt_check_file(struct s2_err *, const struct fmt_prompts *, const struct fmt_prompt *);
/* What the prompts of one object say together: a mask or a stop alone on its frame, no stop without any prompt. */
enum s2_status fmt_prompts_check_together(struct s2_err *, const struct fmt_prompts *);

#endif

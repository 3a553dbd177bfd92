/* outputs_fixture.h - a temporary folder and a short made-up clip of two objects, for the tests of outputs. */
#ifndef OUTPUTS_FIXTURE_H
#define OUTPUTS_FIXTURE_H

#include "../formats/formats.h"

#include <sys/resource.h>

enum { FIX_WIDTH = 13, FIX_HEIGHT = 9 };

extern struct fmt_object fix_objects[2]; /* ids 1 and 200 */

void fix_make_folder(void);
void fix_remove_folder(void);
const char *fix_in(const char *name); /* "<folder>/<name>", in one of a few buffers that are used in turn */
bool fix_exists(const char *name);
void fix_touch(const char *name); /* a file that holds "old" */
char *fix_read_all(const char *name);
int fix_count_files(const char *name); /* in a folder of the folder */
rlim_t fix_limit_files(rlim_t bytes);  /* how large files may grow; returns the limit before */

struct fmt_outputs_config fix_config(void); /* without outputs */
struct fmt_outputs *fix_open_run(const struct fmt_outputs_config *);
void fix_open_fails(const struct fmt_outputs_config *, enum s2_status, const char *part_of_sentence);
/* Masks of frame n: object 200 starts on frame 1 and covers a part of object 1. */
bool fix_inside(int64_t n, int object, int x, int y);
uint16_t fix_owner_at(int64_t n, int x, int y);
bool fix_put_frame(struct fmt_outputs *, int64_t n, const char *stem); /* false: the run has failed */
void fix_run_frames(const struct fmt_outputs_config *, int n);

#endif

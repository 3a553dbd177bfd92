/* taps.h - --debug-taps: the inner tensors of a run as NumPy files, to compare with another implementation.
 *
 *   DIR/taps/f00000/NAME.npy           tensors of a frame's image encoding
 *   DIR/taps/f00000.oID.KIND/NAME.npy  of one object; KIND: prompt, refine, mask, track, memory
 *   DIR/masks/ID/00000.png             1-bit masks, 0 and 255, at the size of the frames
 *   DIR/logits/ID/00000.npy            low-res logits after hole filling
 *   DIR/scores.json                    {"ID/FRAME": object score logit}
 *
 * Frames are numbered by their place among those that are tracked, in display order, from 0. */
#ifndef CMD_TAPS_H
#define CMD_TAPS_H

#include "track.h"

struct cmd_taps;

/* S2_E_OUTPUT if DIR holds something already and overwrite is false, or cannot be made. objects and frames are
 * borrowed until cmd_taps_close. */
enum s2_status cmd_taps_open(struct cmd_taps **out, const char *dir, bool overwrite,
                             const struct cmd_tap_frames *frames, const struct fmt_object *objects, size_t n_objects,
                             struct s2_err *);
/* The session sees n frames from the last to the first. */
void cmd_taps_mirror(struct cmd_taps *, int n);
/* The session's tap; ctx is the struct cmd_taps. The first failure is kept for cmd_taps_frame. */
s2_tap_fn cmd_taps_tensor;
/* Masks, logits and scores of the step that just ended, of objects that it tracked. */
enum s2_status cmd_taps_frame(struct cmd_taps *, int frame, const struct s2_session *, const struct fmt_record_object *,
                              struct s2_err *);
/* Writes scores.json, if there was a frame, and frees; NULL allowed. */
enum s2_status cmd_taps_close(struct cmd_taps *, struct s2_err *);

#endif

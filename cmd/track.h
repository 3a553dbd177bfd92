/* track.h - what one `track` run was asked to do, and the parts that only track.c uses. */
#ifndef CMD_TRACK_H
#define CMD_TRACK_H

#include <stdio.h>

#include "../engine/engine.h"
#include "../formats/formats.h"
#include "device.h"
#include "options.h"
#include "schedule.h"

struct cmd_tap_frames {
    bool all;
    int64_t *frame; /* [n], malloc'ed */
    size_t n;
};

struct cmd_track_options {
    const char *input, *model, *prompts_file;
    struct fmt_prompts prompts; /* those of --point, --box and --mask; track.c reads --prompts into it */
    const char *png, *png_objects, *rle, *overlay, *stats, *taps;
    struct cmd_tap_frames tap_frames;
    const char *size, *device, *precision, *graph, *direction, *late, *overlap, *overlay_preset, *progress;
    int64_t first, end; /* of --frames; end < 0: open */
    int stride, fill_holes, max_cond_frames, threads, verbose;
    bool overwrite, allow_network, dry_run, quiet, help;
};

/* Parses and checks everything that needs no file. */
enum s2_status cmd_track_options_parse(struct cmd_track_options *, int argc, char **argv, struct s2_err *);
void cmd_track_options_help(FILE *);
void cmd_track_options_free(struct cmd_track_options *); /* may be called again */
enum cmd_direction cmd_track_direction(const struct cmd_track_options *);
enum s2_late cmd_track_late(const struct cmd_track_options *);
int cmd_track_size(const struct cmd_track_options *); /* 0: the model's own */
struct cmd_device_options cmd_track_device(const struct cmd_track_options *);

/* S2_E_USAGE if an output is a file that the run reads, S2_E_OUTPUT if the file of --stats cannot be written. */
enum s2_status cmd_track_check_paths(const struct cmd_track_options *, struct s2_err *);

/* S2_E_USAGE if two outputs are one folder; once the folders of the outputs exist. */
enum s2_status cmd_track_check_folders(const struct cmd_track_options *, struct s2_err *);

/* Frames that a run delivers if the clip has `frames` (< 0: unknown); -1 if that cannot be told. */
int64_t cmd_track_expected(const struct cmd_track_options *, int64_t frames);

/* --dry-run: the resolved plan as one JSON document. frames: counted, -1 if unknown. */
enum s2_status cmd_plan_print(const struct cmd_track_options *, const struct fmt_video_info *, int64_t frames,
                              const struct s2_model_info *, const char *container, const char *device,
                              const char *precision, const struct fmt_prompts *, FILE *, struct s2_err *);

#endif

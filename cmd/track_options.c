/* track_options.c - the option table of `track` and the checks that need no file. */
#include "track.h"

#include <stdlib.h>
#include <string.h>

static const char summary[] =
    "Usage: sam2track [track] -m MODEL -p PROMPTS.json [outputs] [options] INPUT\n"
    "       sam2track [track] -m MODEL --point X,Y [outputs] [options] INPUT\n"
    "\n"
    "Tracks objects through a clip, from a few clicks, boxes or masks to one mask an object and frame.\n"
    "INPUT is a video file, a folder of PNG or JPEG frames, a pattern (f%05d.jpg), or - for a video on stdin.\n"
    "Frames count from 0 in display order; pixels from the top left of the displayed frame.\n"
    "At least one output is required, or --stats, or --dry-run.\n";

static const char notes[] =
    "Examples:\n"
    "  Track what lies under one pixel of the first frame, masks as PNG files:\n"
    "    sam2track -m sam2.1_hiera_tiny.pt --point 210,350 --png masks clip.mp4\n"
    "  A click to keep and one to leave out, a second object by its box, from frame 40 on:\n"
    "    sam2track -m MODEL --point 210,350 --point 250,220,0 --box 300,0,500,400@40#2 --overlay out.mp4 clip.mp4\n"
    "  Prompts from a file, results as JSON lines into another program:\n"
    "    sam2track -m MODEL -p prompts.json --rle - clip.mp4 | program\n"
    "  What would happen, without doing it:\n"
    "    sam2track -m MODEL -p prompts.json --rle out.json --dry-run clip.mp4\n"
    "\n"
    "Exit codes: 0 done, 2 usage or prompts, 3 model, 4 input, 5 input broke off (frames so far are kept),\n"
    "6 output, 7 device or memory, 129, 130 and 143 interrupted, 1 a bug. More in the man page sam2track(1).\n";

static enum s2_status on_quick(void *ctx, const char *name, const char *value, struct s2_err *err)
{
    return fmt_prompts_quick(ctx, name, value, err);
}

/* --frames A:B, half-open; either side may be left out. */
static enum s2_status on_frames(void *ctx, const char *name, const char *value, struct s2_err *err)
{
    struct cmd_track_options *o = ctx;
    char first[24] = "";
    const char *colon = strchr(value, ':');
    int64_t a = 0, b = -1;
    bool ok = colon && (size_t)(colon - value) < sizeof first;
    if (ok) {
        memcpy(first, value, (size_t)(colon - value));
        ok = (!*first || (cmd_parse_int64(first, &a) && a >= 0)) &&
             (!colon[1] || (cmd_parse_int64(colon + 1, &b) && b >= 0));
    }
    if (!ok) {
        return s2_fail(err, S2_E_USAGE, "--%s %s: expected A:B, A: or :B, frame numbers from 0, B not included", name,
                       value);
    }
    if (b >= 0 && b <= a) {
        return s2_fail(err, S2_E_USAGE, "--%s %s: holds no frame: B is not included, so it must be above A", name,
                       value);
    }
    o->first = a;
    o->end = b;
    return S2_OK;
}

/* --debug-tap-frames 0,1,8 */
static enum s2_status on_tap_frames(void *ctx, const char *name, const char *value, struct s2_err *err)
{
    struct cmd_tap_frames *t = ctx;
    free(t->frame);
    *t = (struct cmd_tap_frames){0};
    size_t n = 1;
    for (const char *p = value; *p; p++) n += *p == ',';
    if (!(t->frame = calloc(n, sizeof *t->frame))) return s2_no_memory(err, "the tap frames", n * sizeof *t->frame);
    for (const char *p = value; t->n < n; p += strcspn(p, ",") + 1) {
        char number[24] = "";
        const size_t length = strcspn(p, ",");
        if (length < sizeof number) memcpy(number, p, length);
        if (!cmd_parse_int64(number, &t->frame[t->n]) || t->frame[t->n] < 0) {
            return s2_fail(err, S2_E_USAGE, "--%s %s: expected frame numbers with commas between, as 0,1,8", name,
                           value);
        }
        t->n++;
    }
    return S2_OK;
}

enum { MAX_OPTIONS = 64 };
static const char OVERLAY_PRESET[] = "veryfast"; /* the default */

/* The table; its rows point into *o. */
static struct cmd_command command(struct cmd_track_options *o, struct cmd_option rows[MAX_OPTIONS])
{
    const struct cmd_option table[] = {
        {CMD_GROUP, .help = "Model"},
        {CMD_TEXT, 'm', "model", "FILE", "checkpoint, .pt or .safetensors; required", .value = &o->model},
        {CMD_CHOICE, 0, "size", NULL, "side of the model's input; 512 is faster, less exact", .value = &o->size,
         .choices = "1024|512", .fallback = "the model's"},

        {CMD_GROUP, .help = "Prompts, from a file or quick ones (repeatable; without @FRAME #ID: frame 0, object 1)"},
        {CMD_TEXT, 'p', "prompts", "FILE", "prompts in JSON, see sam2track-formats(5); - is stdin",
         .value = &o->prompts_file},
        {CMD_CALL, 0, "point", "X,Y[,0|1][@FRAME][#ID]", "a click, 1 (or nothing) on the object, 0 beside it",
         .value = &o->prompts, .call = on_quick},
        {CMD_CALL, 0, "box", "X0,Y0,X1,Y1[@FRAME][#ID]", "a box around the object", .value = &o->prompts,
         .call = on_quick},
        {CMD_CALL, 0, "mask", "FILE[@FRAME][#ID]", "an image of the clip's size, not zero on the object",
         .value = &o->prompts, .call = on_quick},
        {CMD_CHOICE, 0, "late-prompts", NULL, "later prompts correct the track, start it anew, or count from the start",
         .value = &o->late, .choices = "refine|restart|lookahead"},

        {CMD_GROUP, .help = "Outputs, any number in one pass"},
        {CMD_TEXT, 0, "png", "DIR", "a palette PNG a frame, pixel = object id", .value = &o->png, .once = true},
        {CMD_TEXT, 0, "png-objects", "DIR", "a black and white PNG an object and frame, DIR/ID/00000.png",
         .value = &o->png_objects, .once = true},
        {CMD_TEXT, 0, "rle", "FILE", ".json or .jsonl with COCO RLE, scores and boxes; - is JSON lines on stdout",
         .value = &o->rle, .once = true},
        {CMD_TEXT, 0, "overlay", "FILE", "the video with tinted masks, outlines and ids", .value = &o->overlay,
         .once = true},
        {CMD_CHOICE, 0, "overlay-preset", NULL, "libx264's: how fast the overlay is encoded, and how large",
         .value = &o->overlay_preset, .choices = "ultrafast|superfast|veryfast|faster|fast|medium"},
        {CMD_FLAG, 0, "overwrite", NULL, "replace existing outputs; without it they are an error before any work",
         .value = &o->overwrite},

        {CMD_GROUP, .help = "Frames"},
        {CMD_CALL, 0, "frames", "A:B", "only frames A to B-1; A: and :B are open", .value = o, .call = on_frames,
         .fallback = "all"},
        {CMD_INTEGER, 0, "stride", "N", "every Nth frame; outputs keep the numbers of the source", .value = &o->stride,
         .min = 1, .max = 1000000},
        {CMD_CHOICE, 0, "direction", NULL, "backward: from the last prompt; both: both ways from the first",
         .value = &o->direction, .choices = "forward|backward|both"},
        {CMD_FLAG, 0, "allow-network", NULL, "INPUT may be a URL", .value = &o->allow_network},

        {CMD_GROUP, .help = "Masks"},
        {CMD_CHOICE, 0, "overlap", NULL, "exclusive: a pixel belongs to the object with the largest logit only",
         .value = &o->overlap, .choices = "allow|exclusive"},
        {CMD_INTEGER, 0, "fill-holes", "AREA", "fill holes of at most this many pixels of the low-res mask, 0: none",
         .value = &o->fill_holes, .max = 1000000},
        {CMD_INTEGER, 0, "max-cond-frames", "N", "prompted frames an object attends to, at least 2; 0: all",
         .value = &o->max_cond_frames, .max = 1000000},

        {CMD_GROUP, .help = "Machine"},
        {CMD_TEXT, 0, "device", "auto|cpu|cuda[:N]", "where the model runs; auto: a GPU if one works",
         .value = &o->device, .fallback = "auto"},
        {CMD_CHOICE, 0, "precision", NULL, "arithmetic of the model; auto: bf16 on a GPU, fp32 on the CPU",
         .value = &o->precision, .choices = "auto|fp32|bf16|fp16"},
        {CMD_CHOICE, 0, "graph", NULL, "CUDA graphs: record each frame's work once, then replay it", .value = &o->graph,
         .choices = "auto|on|off"},
        {CMD_INTEGER, 0, "threads", "N", "CPU threads", .value = &o->threads, .max = 4096, .fallback = "all cores"},

        {CMD_GROUP, .help = "Reports"},
        {CMD_FLAG, 0, "dry-run", NULL, "check everything, print the plan as JSON on stdout, write nothing",
         .value = &o->dry_run},
        {CMD_CHOICE, 0, "progress", NULL, "on stderr; auto: a bar on a terminal, else lines", .value = &o->progress,
         .choices = "auto|bar|lines|json|none"},
        {CMD_TEXT, 0, "stats", "FILE", "times of the stages, frames a second and memory, as JSON", .value = &o->stats,
         .once = true},
        {CMD_FLAG, 'q', "quiet", NULL, "warnings and errors only", .value = &o->quiet},
        {CMD_COUNT, 'v', "verbose", NULL, "more about what happens; twice: the messages of FFmpeg, too",
         .value = &o->verbose},

        {CMD_GROUP, .help = "Debugging"},
        {CMD_TEXT, 0, "debug-taps", "DIR", "named inner tensors, logits, masks and scores, as NumPy files",
         .value = &o->taps, .once = true},
        {CMD_CALL, 0, "debug-tap-frames", "LIST", "tensors of these frames only, as 0,1,8", .value = &o->tap_frames,
         .call = on_tap_frames, .fallback = "all"},

        {CMD_REFUSED, 0, "resume", .help = "this build cannot continue a run; start it again with --overwrite"},
        {CMD_REFUSED, 0, "variant", .help = "the models of this build need no variant, it is in the file"},
    };
    _Static_assert(sizeof table / sizeof *table <= MAX_OPTIONS, "the table fits");
    memcpy(rows, table, sizeof table);
    return (struct cmd_command){"track", summary, notes, rows, sizeof table / sizeof *table};
}

static void set_defaults(struct cmd_track_options *o)
{
    *o = (struct cmd_track_options){.device = "auto",
                                    .precision = "auto",
                                    .graph = "auto",
                                    .direction = "forward",
                                    .late = "refine",
                                    .overlap = "allow",
                                    .overlay_preset = OVERLAY_PRESET,
                                    .progress = "auto",
                                    .end = -1,
                                    .stride = 1,
                                    .fill_holes = 8,
                                    .tap_frames.all = true};
}

/* What no single option can judge. */
static enum s2_status check(const struct cmd_track_options *o, int n_operands, char **operands, struct s2_err *err)
{
    const bool has_output = o->png || o->png_objects || o->rle || o->overlay || o->taps;
    const char *stats = o->stats ? o->stats : "";
    if (n_operands == 0) return s2_fail(err, S2_E_USAGE, "no INPUT given; 'sam2track track --help' shows how");
    if (!*operands[0]) return s2_fail(err, S2_E_USAGE, "INPUT is empty; name a video file or a folder of frames");
    if (n_operands > 1) {
        return s2_fail(err, S2_E_USAGE, "one INPUT at a time, but '%s' and '%s' were given", operands[0], operands[1]);
    }
    const struct cmd_device_options device = cmd_track_device(o);
    if (cmd_device_check(&device, err)) return err->status;
    if (!o->model) return s2_fail(err, S2_E_USAGE, "no model given; add --model FILE");
    if (!o->prompts_file && o->prompts.n_prompts == 0) {
        return s2_fail(err, S2_E_USAGE, "nothing to track; add --prompts FILE, --point, --box or --mask");
    }
    if (o->prompts_file && o->prompts.n_prompts > 0) {
        return s2_fail(err, S2_E_USAGE, "give either --prompts or --point, --box and --mask, not both");
    }
    if (!has_output && !o->stats && !o->dry_run) {
        return s2_fail(err, S2_E_USAGE,
                       "no output given; add --png, --png-objects, --rle or --overlay, or --stats to measure only");
    }
    if (o->prompts_file && strcmp(o->prompts_file, "-") == 0 && strcmp(o->input, "-") == 0) {
        return s2_fail(err, S2_E_USAGE, "--prompts and INPUT cannot both be stdin");
    }
    if (cmd_track_direction(o) != CMD_FORWARD && strcmp(o->input, "-") == 0) {
        return s2_fail(err, S2_E_USAGE,
                       "--direction %s reads INPUT from its end, too, which stdin does not allow; save it to a file "
                       "first",
                       o->direction);
    }
    if (o->rle && strcmp(o->rle, "-") == 0 && strcmp(stats, "-") == 0) {
        return s2_fail(err, S2_E_USAGE, "--rle and --stats cannot both be stdout");
    }
    if (o->max_cond_frames == 1) {
        return s2_fail(err, S2_E_USAGE, "--max-cond-frames 1: at least 2 are needed (0: no cap)");
    }
    if (o->taps && strcmp(o->graph, "on") == 0) {
        return s2_fail(err, S2_E_USAGE,
                       "--graph on and --debug-taps contradict each other: a replayed frame cannot be looked into");
    }
    if (!o->tap_frames.all && !o->taps) return s2_fail(err, S2_E_USAGE, "--debug-tap-frames needs --debug-taps DIR");
    if (!o->overlay && strcmp(o->overlay_preset, OVERLAY_PRESET) != 0)
        return s2_fail(err, S2_E_USAGE, "--overlay-preset needs --overlay FILE");
    if (o->quiet && o->verbose) return s2_fail(err, S2_E_USAGE, "--quiet and --verbose contradict each other");
    return S2_OK;
}

enum s2_status cmd_track_options_parse(struct cmd_track_options *o, int argc, char **argv, struct s2_err *err)
{
    set_defaults(o);
    struct cmd_option rows[MAX_OPTIONS];
    const struct cmd_command c = command(o, rows);
    int n_operands;
    const enum s2_status status = cmd_options_parse(&c, argc, argv, &n_operands, &o->help, err);
    if (status || o->help) return status;
    o->input = n_operands > 0 ? argv[0] : NULL;
    return check(o, n_operands, argv, err);
}

void cmd_track_options_help(FILE *f)
{
    struct cmd_track_options o;
    struct cmd_option rows[MAX_OPTIONS];
    set_defaults(&o);
    const struct cmd_command c = command(&o, rows);
    cmd_options_help(&c, f);
}

void cmd_track_options_free(struct cmd_track_options *o)
{
    fmt_prompts_free(&o->prompts);
    free(o->tap_frames.frame);
    o->tap_frames.frame = NULL;
    o->tap_frames.n = 0;
}

enum cmd_direction cmd_track_direction(const struct cmd_track_options *o)
{
    if (strcmp(o->direction, "backward") == 0) return CMD_BACKWARD;
    return strcmp(o->direction, "both") == 0 ? CMD_BOTH : CMD_FORWARD;
}

enum s2_late cmd_track_late(const struct cmd_track_options *o)
{
    if (strcmp(o->late, "restart") == 0) return S2_LATE_RESTART;
    return strcmp(o->late, "lookahead") == 0 ? S2_LATE_LOOKAHEAD : S2_LATE_REFINE;
}

int cmd_track_size(const struct cmd_track_options *o)
{
    int64_t size = 0;
    if (o->size) cmd_parse_int64(o->size, &size);
    return (int)size;
}

struct cmd_device_options cmd_track_device(const struct cmd_track_options *o)
{
    return (struct cmd_device_options){o->device, o->precision, o->graph, o->threads};
}

int64_t cmd_track_expected(const struct cmd_track_options *o, int64_t frames)
{
    int64_t end = frames < 0 || (o->end >= 0 && o->end < frames) ? o->end : frames;
    if (end < 0) return -1;
    return end <= o->first ? 0 : (end - o->first + o->stride - 1) / o->stride;
}

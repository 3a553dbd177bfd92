/* bench.c - how fast a model runs on this machine: a made-up clip with moving discs, one click an object on its
 * first frame, times of each frame and stage as JSON lines. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/engine.h"
#include "../formats/formats.h"
#include "cmd.h"
#include "device.h"
#include "json.h"
#include "log.h"
#include "options.h"
#include "process.h"
#include "stats.h"

enum { WIDTH = 960, HEIGHT = 540, RADIUS = 60, MAX_STAGES = 16, MAX_PICTURES = 8 };

struct bench {
    const char *model_file, *random, *size_text;
    int frames, steady, n_objects, threads, size;
    bool stages;
    struct fmt_checkpoint *checkpoint;
    struct s2_source *seeded;
    struct cmd_device_options where;
    struct cmd_device device;
    struct s2_model *model;
    struct s2_session *session;
    struct s2_image pictures[MAX_PICTURES]; /* drawn before the run; a longer one goes through them again */
    uint8_t *bits;                          /* [S2_MAX_IN_FLIGHT][n_objects][HEIGHT][stride] */
    struct s2_object_result *results;       /* [S2_MAX_IN_FLIGHT][n_objects] */
    struct s2_prompt *prompts;              /* [n_objects] */
    float *clicks;                          /* [n_objects][2] */
    int *prompted_frames;                   /* [n_objects] */
    double *seconds;                        /* [MAX_STAGES + 1][frames]: of the stages, then of the whole frame */
    double stage_total[MAX_STAGES];         /* seconds so far */
    double model_seconds, first_mask_seconds;
};

static const char summary[] =
    "Usage: sam2track bench [-m MODEL | --random NAME] [options]\n"
    "\n"
    "Tracks discs through a made-up clip of 960x540 and prints times as JSON lines: a line 'setup', one for each\n"
    "'stage' and for the whole 'frame' (median, least and most milliseconds), and a line 'end'. A GPU tracks a frame\n"
    "while it encodes the next one, and times its stages only with --stages, one frame at a time.\n";
static const char notes[] = "Examples:\n"
                            "  sam2track bench --random tiny\n"
                            "  sam2track bench -m sam2.1_hiera_large.pt --size 512 --objects 4\n";

/* ------------------------------------------------------------------ the clip */

/* Where object i is on a frame: it goes round in a circle of its own. */
static void position(int i, int frame, float xy[2])
{
    const int columns = 4, cell_x = i % columns, cell_y = i / columns % 3;
    static const int dx[8] = {0, 3, 4, 3, 0, -3, -4, -3}, dy[8] = {-4, -3, 0, 3, 4, 3, 0, -3};
    xy[0] = (float)(WIDTH * (2 * cell_x + 1) / (2 * columns) + 4 * dx[(frame + i) % 8]);
    xy[1] = (float)(HEIGHT * (2 * cell_y + 1) / 6 + 4 * dy[(frame + i) % 8]);
}

static void draw(const struct bench *b, const struct s2_image *picture, int frame)
{
    for (int y = 0; y < HEIGHT; y++) {
        uint8_t *p = picture->rgb + (size_t)y * picture->stride;
        for (int x = 0; x < WIDTH; x++, p += 3) {
            p[0] = (uint8_t)((x + 2 * frame) / 8 & 127);
            p[1] = (uint8_t)((y + frame) / 4 & 127);
            p[2] = (uint8_t)((x ^ y) & 63);
        }
    }
    for (int i = 0; i < b->n_objects; i++) {
        float centre[2];
        position(i, frame, centre);
        const int cx = (int)centre[0], cy = (int)centre[1];
        for (int y = cy - RADIUS < 0 ? 0 : cy - RADIUS; y < HEIGHT && y <= cy + RADIUS; y++) {
            for (int x = cx - RADIUS < 0 ? 0 : cx - RADIUS; x < WIDTH && x <= cx + RADIUS; x++) {
                if ((x - cx) * (x - cx) + (y - cy) * (y - cy) > RADIUS * RADIUS) continue;
                uint8_t *p = picture->rgb + (size_t)y * picture->stride + 3 * (size_t)x;
                p[0] = (uint8_t)(200 + 13 * i % 55), p[1] = (uint8_t)(60 + 71 * i % 190), p[2] = 30;
            }
        }
    }
}

/* ------------------------------------------------------------------ the run */

static enum s2_status open_model(struct bench *b, struct s2_err *err)
{
    const struct s2_source *source;
    const double start = s2_now();
    if (b->model_file) {
        const enum s2_status status = fmt_checkpoint_open(&b->checkpoint, b->model_file, err);
        if (status) return status;
        source = fmt_checkpoint_source(b->checkpoint);
    } else {
        if (!(b->seeded = s2_seeded_source(b->random, 1))) {
            return s2_fail(err, S2_E_USAGE,
                           "--random %s: not a model; known are tiny, small, base_plus, large (SAM 2.1), sam2-tiny to "
                           "sam2-large, and mini",
                           b->random);
        }
        source = b->seeded;
    }
    b->where.threads = b->threads;
    enum s2_status opened = cmd_device_open(&b->where, &b->device, err);
    if (opened) return opened;
    const enum s2_status status = s2_model_load(&b->model, b->device.backend, source, b->size, err);
    b->model_seconds = s2_now() - start;
    fmt_checkpoint_close(b->checkpoint);
    s2_seeded_free(b->seeded);
    b->checkpoint = NULL;
    b->seeded = NULL;
    return status;
}

static enum s2_status open_session(struct bench *b, struct s2_err *err)
{
    const size_t n = (size_t)b->n_objects, bit_stride = (WIDTH + 7) / 8, stride = 3 * WIDTH;
    for (int i = 0; i < b->frames && i < MAX_PICTURES; i++) {
        b->pictures[i] =
            (struct s2_image){.width = WIDTH, .height = HEIGHT, .stride = stride, .rgb = malloc(stride * HEIGHT)};
        if (!b->pictures[i].rgb) return s2_no_memory(err, "the benchmark", stride * HEIGHT);
        draw(b, &b->pictures[i], i);
    }
    b->bits = calloc(S2_MAX_IN_FLIGHT * n * HEIGHT, bit_stride);
    b->results = calloc(S2_MAX_IN_FLIGHT * n, sizeof *b->results);
    b->prompts = calloc(n, sizeof *b->prompts);
    b->clicks = calloc(n, 2 * sizeof *b->clicks);
    b->prompted_frames = calloc(n, sizeof *b->prompted_frames);
    b->seconds = calloc((size_t)b->frames * (MAX_STAGES + 1), sizeof *b->seconds);
    if (!b->bits || !b->results || !b->prompts || !b->clicks || !b->prompted_frames || !b->seconds) {
        return s2_no_memory(err, "the benchmark", n * HEIGHT * bit_stride);
    }
    for (size_t i = 0; i < S2_MAX_IN_FLIGHT * n; i++) b->results[i].bits = b->bits + i * HEIGHT * bit_stride;
    static const int8_t inside = 1;
    for (size_t i = 0; i < n; i++) {
        b->prompted_frames[i] = 1;
        position((int)i, 0, b->clicks + 2 * i);
        b->prompts[i] = (struct s2_prompt){
            .object = (int)i, .kind = S2_PROMPT_POINTS, .n_points = 1, .xy = b->clicks + 2 * i, .labels = &inside};
    }
    const struct s2_session_config config = {.width = WIDTH,
                                             .height = HEIGHT,
                                             .num_frames = b->frames,
                                             .n_objects = b->n_objects,
                                             .prompted_frames = b->prompted_frames,
                                             .max_points = 1,
                                             .fill_hole_area = 8,
                                             .time_stages = b->stages,
                                             .pairs = true,
                                             .late = S2_LATE_REFINE};
    return s2_session_open(&b->session, b->model, &config, err);
}

/* Completes the oldest step in flight. last: see cmd_frame_seconds */
static enum s2_status collect(struct bench *b, int frame, double last[2], struct s2_err *err)
{
    const char *const *names;
    const double *total;
    const int n = s2_session_times(b->session, &names, &total);
    const enum s2_status status = s2_session_collect(b->session, err);
    if (status) return status;
    const double now = s2_now();
    b->seconds[MAX_STAGES * b->frames + frame] = cmd_frame_seconds(last, now, frame == 0);
    if (frame == 0) b->first_mask_seconds = cmd_process_seconds();
    for (int s = 0; s < n && s < MAX_STAGES; s++) {
        b->seconds[s * b->frames + frame] = total[s] - b->stage_total[s];
        b->stage_total[s] = total[s];
    }
    return S2_OK;
}

static enum s2_status run_frames(struct bench *b, struct s2_err *err)
{
    const int depth = b->stages ? 1 : s2_session_depth(b->session),
              pictures = b->frames < MAX_PICTURES ? b->frames : MAX_PICTURES;
    double last[2] = {s2_now(), s2_now()};
    int collected = 0;
    for (int frame = 0; frame < b->frames; frame++) {
        const struct s2_step_result result = {.bit_stride = (WIDTH + 7) / 8,
                                              .object = b->results + frame % S2_MAX_IN_FLIGHT * b->n_objects};
        const struct s2_image *after = frame + 1 < b->frames ? &b->pictures[(frame + 1) % pictures] : NULL;
        enum s2_status status = s2_session_submit(b->session, &b->pictures[frame % pictures], after, b->prompts,
                                                  frame == 0 ? b->n_objects : 0, &result, err);
        if (status) return status;
        const int stay = frame + 1 < b->frames ? depth - 1 : 0;
        while (s2_session_in_flight(b->session) > stay)
            if ((status = collect(b, collected++, last, err))) return status;
    }
    return S2_OK;
}

/* ------------------------------------------------------------------ the report */

static struct cmd_json record(const char *kind)
{
    struct cmd_json j = {.one_line = true};
    cmd_json_object(&j, NULL);
    cmd_json_string(&j, "record", kind);
    return j;
}

static enum s2_status print(struct cmd_json *j, struct s2_err *err)
{
    cmd_json_end(j);
    const bool ok = cmd_json_print(j, stdout);
    cmd_json_free(j);
    return ok ? S2_OK : s2_fail(err, S2_E_OUTPUT, "the times cannot be written to stdout: %s", strerror(errno));
}

static enum s2_status print_setup(const struct bench *b, struct s2_err *err)
{
    const struct s2_model_info *m = s2_model_get_info(b->model);
    struct cmd_json j = record("setup");
    cmd_json_string(&j, "version", S2_VERSION);
    cmd_json_string(&j, "model", m->name);
    cmd_json_string(&j, "weights", b->model_file ? b->model_file : "random");
    cmd_json_integer(&j, "parameters", m->parameters);
    cmd_json_integer(&j, "size", m->image_size);
    cmd_json_string(&j, "device", b->device.name);
    cmd_json_string(&j, "describe", b->device.text);
    cmd_json_string(&j, "precision", b->device.precision);
    cmd_json_integer(&j, "width", WIDTH);
    cmd_json_integer(&j, "height", HEIGHT);
    cmd_json_integer(&j, "objects", b->n_objects);
    cmd_json_integer(&j, "frames", b->frames);
    cmd_json_integer(&j, "left_out", b->steady);
    return print(&j, err);
}

/* Sorts the measured frames of one row of times. */
static enum s2_status print_times(const struct bench *b, int row, const char *kind, const char *name,
                                  struct s2_err *err)
{
    double *v = b->seconds + row * b->frames + b->steady;
    const size_t n = (size_t)(b->frames - b->steady);
    const double median = cmd_median(v, n);
    struct cmd_json j = record(kind);
    if (name) cmd_json_string(&j, "name", name);
    cmd_json_number(&j, "median_ms", 1e3 * median, 5);
    cmd_json_number(&j, "min_ms", 1e3 * v[0], 5);
    cmd_json_number(&j, "max_ms", 1e3 * v[n - 1], 5);
    if (!name) cmd_json_number(&j, "fps", median > 0 ? 1 / median : 0, 5);
    return print(&j, err);
}

static enum s2_status print_end(const struct bench *b, struct s2_err *err)
{
    struct cmd_json j = record("end");
    cmd_json_number(&j, "model_seconds", b->model_seconds, 5);
    cmd_json_number(&j, "first_mask_seconds", b->first_mask_seconds, 5);
    cmd_json_number(&j, "total_seconds", cmd_process_seconds(), 5);
    cmd_json_number(&j, "peak_memory_mib", cmd_process_peak_mib(), 6);
    cmd_device_report(&b->device, &j);
    return print(&j, err);
}

static enum s2_status bench(struct bench *b, struct s2_err *err)
{
    enum s2_status status = open_model(b, err);
    if (!status) status = print_setup(b, err);
    if (!status) status = open_session(b, err);
    if (!status) status = run_frames(b, err);
    if (status) return status;
    const char *const *names;
    const double *total;
    const int n = s2_session_times(b->session, &names, &total);
    const bool timed = b->stages || s2_session_depth(b->session) == 1;
    for (int s = 0; s < n && s < MAX_STAGES && !status && timed; s++)
        status = print_times(b, s, "stage", names[s], err);
    if (!status) status = print_times(b, MAX_STAGES, "frame", NULL, err);
    return status ? status : print_end(b, err);
}

static void close_all(struct bench *b)
{
    s2_session_free(b->session);
    s2_model_free(b->model);
    if (b->device.backend) b->device.backend->ops->close(b->device.backend);
    fmt_checkpoint_close(b->checkpoint);
    s2_seeded_free(b->seeded);
    for (int i = 0; i < MAX_PICTURES; i++) free(b->pictures[i].rgb);
    free(b->bits);
    free(b->results);
    free(b->prompts);
    free(b->clicks);
    free(b->prompted_frames);
    free(b->seconds);
}

/* ------------------------------------------------------------------ the verb */

static enum s2_status check(struct bench *b, int n_operands, char **operands, struct s2_err *err)
{
    int64_t size = 0;
    if (b->size_text) cmd_parse_int64(b->size_text, &size);
    b->size = (int)size;
    if (n_operands > 0) return s2_fail(err, S2_E_USAGE, "bench takes no file but that of --model: '%s'", operands[0]);
    if (b->model_file && b->random) return s2_fail(err, S2_E_USAGE, "give either --model or --random, not both");
    if (!b->model_file && !b->random) b->random = "tiny";
    if (b->steady < 0) b->steady = b->frames < 16 ? b->frames / 2 : 8;
    if (b->steady >= b->frames) {
        return s2_fail(err, S2_E_USAGE, "--steady %d leaves none of %d frame%s to measure", b->steady, b->frames,
                       s2_plural(b->frames));
    }
    return S2_OK;
}

int cmd_bench(int argc, char **argv)
{
    struct bench b = {.frames = 24, .steady = -1, .n_objects = 1, .where = {"auto", "auto", "auto", 0}};
    const struct cmd_option rows[] = {
        {CMD_GROUP, .help = "Options"},
        {CMD_TEXT, 'm', "model", "FILE", "checkpoint, .pt or .safetensors", .value = &b.model_file},
        {CMD_TEXT, 0, "random", "NAME", "random weights: tiny, small, base_plus, large, sam2-tiny .. sam2-large, mini",
         .value = &b.random, .fallback = "tiny"},
        {CMD_CHOICE, 0, "size", NULL, "side of the model's input", .value = &b.size_text, .choices = "1024|512",
         .fallback = "the model's"},
        {CMD_INTEGER, 0, "objects", "N", "objects to track", .value = &b.n_objects, .min = 1, .max = 1000},
        {CMD_INTEGER, 0, "frames", "N", "frames to run", .value = &b.frames, .min = 1, .max = 100000},
        {CMD_INTEGER, 0, "steady", "N", "frames at the start that the times leave out", .value = &b.steady,
         .max = 100000, .fallback = "8, half of less than 16"},
        {CMD_FLAG, 0, "stages", NULL, "time the stages on a GPU too", .value = &b.stages},
        {CMD_TEXT, 0, "device", "auto|cpu|cuda[:N]", "where the model runs; auto: a GPU if one works",
         .value = &b.where.device, .fallback = "auto"},
        {CMD_CHOICE, 0, "precision", NULL, "arithmetic of the model", .value = &b.where.precision,
         .choices = "auto|fp32|bf16|fp16"},
        {CMD_CHOICE, 0, "graph", NULL, "CUDA graphs", .value = &b.where.graph, .choices = "auto|on|off"},
        {CMD_INTEGER, 0, "threads", "N", "CPU threads", .value = &b.threads, .max = 4096, .fallback = "all cores"},
    };
    const struct cmd_command command = {"bench", summary, notes, rows, sizeof rows / sizeof *rows};
    struct s2_err err = {0};
    int n;
    bool help;
    enum s2_status status = cmd_options_parse(&command, argc, argv, &n, &help, &err);
    if (!status && help) {
        cmd_options_help(&command, stdout);
        return 0;
    }
    if (!status) status = check(&b, n, argv, &err);
    if (!status) status = cmd_device_check(&b.where, &err);
    cmd_log_start(CMD_NORMAL);
    if (!status) status = bench(&b, &err);
    if (status) cmd_error("%s", err.text);
    close_all(&b);
    return status;
}

/* A device that runs behind the host or fails in the middle of a clip: results come in order, what was finished stays,
 * the failure is told. */
#include "../cmd/run.h"
#include "outputs_fixture.h"
#include "video_fixture.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(device_fault, .init = video_folder_make, .fini = video_folder_remove, .timeout = 300);

enum { SIZE = 128, CLIP_FRAMES = 9 };

static struct s2_ops ops;
static const struct s2_ops *cpu;
static int calls_left;

/* The last operator of a frame, as a device reports what went wrong at any time before. */
static void video_masks(struct s2_backend *be, const struct s2_video_masks *out, struct s2_tensor low)
{
    if (calls_left-- > 0)
        cpu->video_masks(be, out, low);
    else
        s2_backend_fail(be, S2_E_DEVICE, "the GPU failed in a step: unspecified launch failure");
}

/* Steps of a device: they are complete when they are waited for, in the order of their begin. */
static uint64_t begun, waited;
static int most_in_flight;

static uint64_t step_begin(struct s2_backend *be)
{
    (void)be;
    if ((int)(begun + 1 - waited) > most_in_flight) most_in_flight = (int)(begun + 1 - waited);
    return begun++;
}

static void step_end(struct s2_backend *be, uint64_t step)
{
    (void)be;
    cr_expect_eq(step, begun - 1);
}

static void step_wait(struct s2_backend *be, uint64_t step)
{
    (void)be;
    cr_expect_eq(step, waited++);
}

/* What runs ahead of a step, and the copies that hand it over, at once or later. */
static int ahead, handed_over, taken_later;

static void ahead_begin(struct s2_backend *be)
{
    (void)be;
    cr_expect_eq(ahead++, 0, "nothing runs ahead of what runs ahead");
}

static void hand_over(struct s2_backend *be, int n, const struct s2_tensor *to, const struct s2_tensor *from)
{
    cr_expect(n > 0 && n <= S2_MAX_COPIES);
    if (be->skip) return;
    for (int i = 0; i < n; i++) {
        const size_t bytes = (size_t)s2_elements(to[i]) * s2_dtype_size(to[i].dtype);
        cr_expect_neq(to[i].data, from[i].data, "the encoder writes where a step reads");
        cr_expect_eq(s2_elements(from[i]), s2_elements(to[i]));
        memcpy(to[i].data, from[i].data, bytes);
        memset(from[i].data, 0xff, bytes); /* not a number: read no more */
    }
}

static void ahead_end(struct s2_backend *be, int n, const struct s2_tensor *to, const struct s2_tensor *from)
{
    cr_expect_eq(--ahead, 0);
    hand_over(be, n, to, from);
    handed_over += !be->skip;
}

static void copy(struct s2_backend *be, int n, const struct s2_tensor *to, const struct s2_tensor *from)
{
    hand_over(be, n, to, from);
    taken_later += !be->skip;
}

/* Memory that the device reaches, and downloads into it, which are complete when their step is waited for. */
static atomic_int buffers;
static int late_downloads, direct_downloads;
static struct download {
    void *to, *what;
    size_t bytes;
} late[64];

static void *alloc_host(struct s2_backend *be, size_t bytes)
{
    (void)be;
    atomic_fetch_add(&buffers, 1);
    return malloc(bytes);
}

static void free_host(struct s2_backend *be, void *p)
{
    (void)be;
    atomic_fetch_sub(&buffers, 1);
    free(p);
}

static void download(struct s2_backend *be, void *host, const void *src, size_t bytes)
{
    if (be->skip) return;
    cr_assert_lt(late_downloads, 64);
    struct download *d = &late[late_downloads++];
    *d = (struct download){host, malloc(bytes), bytes};
    memcpy(d->what, src, bytes);
    memset(host, 0x55, bytes); /* what was there is gone */
    direct_downloads++;
}

static void land(struct s2_backend *be)
{
    (void)be;
    for (int i = 0; i < late_downloads; i++) {
        memcpy(late[i].to, late[i].what, late[i].bytes);
        free(late[i].what);
    }
    late_downloads = 0;
}

static void step_wait_direct(struct s2_backend *be, uint64_t step)
{
    land(be);
    step_wait(be, step);
}

static void must(enum s2_status status, const struct s2_err *err)
{
    cr_assert_eq(status, S2_OK, "%s", err->text);
}

/* A device that is done on return; one with steps in flight; one that takes frames in pairs as well; and one that in
 * addition takes frames from memory of its own and leaves results there. */
enum kind { AT_ONCE, BEHIND, IN_PAIRS, DIRECT };

/* All that a run of one box on frame `prompted` has open when the passes begin, the device good for `good` frames. */
static void open_run(struct cmd_run *r, struct fmt_outputs_config *config, int prompted, const char *direction,
                     int good, enum kind kind)
{
    struct s2_err err = {0};
    static char *argv[16];
    static char box[64];
    int argc = 0;
    snprintf(box, sizeof box, "8,8,30,30@%d", prompted);
    const char *const words[] = {
        "-m",          "none",
        "--box",       box,
        "--direction", direction,
        "--progress",  "none",
        "-q",          "--stats",
        "none",        video_make("clip.mkv", (struct make_clip){.frames = CLIP_FRAMES, .pix_fmt = "yuv420p"})};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) argv[argc++] = (char *)(uintptr_t)words[i];
    memset(r, 0, sizeof *r);
    must(cmd_track_options_parse(&r->o, argc, argv, &err), &err);
    r->o.rle = video_path("out.jsonl"), r->o.overlay = video_path("over.mkv");
    r->direction = cmd_track_direction(&r->o);
    const struct fmt_video_options options = {.end = -1, .stride = 1, .planes = true};
    must(fmt_video_open(&r->video, r->o.input, &options, &err), &err);
    r->info = *fmt_video_get_info(r->video);
    r->frames = CLIP_FRAMES;
    must(fmt_prompts_resolve(&r->o.prompts, r->info.width, r->info.height, r->frames, &err), &err);
    must(cmd_schedule_open(&r->schedule, &r->o.prompts, &err), &err);
    if (r->direction != CMD_FORWARD) must(cmd_passes_index(r, &err), &err);

    cr_assert(r->device.backend = s2_cpu_open(0, S2_F32, &err), "%s", err.text);
    cpu = r->device.backend->ops, ops = *cpu, ops.video_masks = video_masks, calls_left = good;
    begun = waited = 0, most_in_flight = ahead = handed_over = taken_later = 0;
    if (kind != AT_ONCE) {
        ops.step_begin = step_begin, ops.step_end = step_end, ops.step_wait = step_wait;
        ops.ahead_begin = ahead_begin, ops.ahead_end = ahead_end, ops.copy = copy;
    }
    if (kind == DIRECT) {
        ops.alloc_host = alloc_host, ops.free_host = free_host, ops.download = download, ops.sync = land;
        ops.step_wait = step_wait_direct;
    }
    r->device.backend->ops = &ops;
    r->direct = s2_host_memory(r->device.backend, &r->memory);
    cr_assert_eq(r->direct, kind == DIRECT);
    if (r->direct) fmt_video_set_memory(r->video, &r->memory);
    *config = fix_config();
    config->width = r->info.width, config->height = r->info.height;
    config->objects = r->o.prompts.objects, config->n_objects = 1;
    config->rle_path = r->o.rle, config->overlay_path = r->o.overlay;
    config->memory = r->direct ? &r->memory : NULL;
    must(fmt_outputs_open(&r->outputs, config, &err), &err);

    struct s2_source *weights = s2_seeded_source("mini", 1);
    must(s2_model_load(&r->model, r->device.backend, weights, SIZE, &err), &err);
    s2_seeded_free(weights);
    for (int i = 0; i < S2_MAX_IN_FLIGHT; i++)
        cr_assert(r->flight[i].results = calloc(1, sizeof *r->flight[i].results));
    must(cmd_watch_open(&r->watch, r->o.prompts.objects, 1, &err), &err);
    must(s2_session_open(&r->session, r->model,
                         &(struct s2_session_config){.width = r->info.width,
                                                     .height = r->info.height,
                                                     .num_frames = CLIP_FRAMES,
                                                     .n_objects = 1,
                                                     .prompted_frames = r->schedule.prompted_frames,
                                                     .max_points = r->schedule.max_points,
                                                     .want_owner = true,
                                                     .direct = r->direct,
                                                     .pairs = kind >= IN_PAIRS},
                         &err),
         &err);
}

static void close_run(struct cmd_run *r)
{
    cmd_watch_close(&r->watch);
    cmd_schedule_close(&r->schedule);
    fmt_video_close(r->video);
    s2_session_free(r->session);
    s2_model_free(r->model);
    r->device.backend->ops->close(r->device.backend);
    cr_expect_eq(atomic_load(&buffers), 0, "memory of the device is left");
    fmt_index_free(r->index);
    fmt_spill_free(r->spill);
    for (int i = 0; i < S2_MAX_IN_FLIGHT; i++) free(r->flight[i].results);
    cmd_track_options_free(&r->o);
}

/* Both outputs hold the frames first .. last, whole. */
static void expect_kept(int first, int last)
{
    size_t n;
    char *text = (char *)video_slurp(video_path("out.jsonl"), &n), *line = text;
    int lines = 0;
    for (char *end; line < text + n && (end = memchr(line, '\n', (size_t)(text + n - line))); line = end + 1) {
        cJSON *json = cJSON_ParseWithLength(line, (size_t)(end - line));
        cr_assert(json, "line %d is no JSON", lines + 1);
        if (lines) cr_expect_eq(cJSON_GetObjectItem(json, "frame")->valueint, first + lines - 1);
        cJSON_Delete(json);
        lines++;
    }
    cr_expect_eq(lines - 1, last - first + 1, "%d frames in JSON, expected %d", lines - 1, last - first + 1);
    cr_expect_eq(line, text + n, "the last line is whole");
    free(text);
    struct video_clip *over = video_read(video_path("over.mkv"), NULL);
    cr_expect_eq(over->status, S2_OK, "%s", over->err.text);
    cr_expect_eq(over->n, last - first + 1, "%d frames in the overlay, expected %d", over->n, last - first + 1);
    video_free(over);
}

static void expect_fault(int prompted, const char *direction, int good, int first, int last)
{
    struct cmd_run r;
    struct fmt_outputs_config config;
    struct s2_err err = {0};
    open_run(&r, &config, prompted, direction, good, AT_ONCE);
    cr_expect_eq(cmd_passes_run(&r, &err), S2_E_DEVICE);
    cr_expect_str_eq(err.text, "the GPU failed in a step: unspecified launch failure");
    cr_expect_eq(r.finished, last - first + 1);
    struct s2_err closing = {0};
    must(fmt_outputs_finish(r.outputs, &closing), &closing);
    expect_kept(first, last);
    close_run(&r);
}

Test(device_fault, finished_frames_are_kept)
{
    expect_fault(0, "forward", 5, 0, 4);
}

Test(device_fault, finished_frames_of_a_backward_run_are_written)
{
    expect_fault(7, "backward", 4, 5, 8);
}

/* The JSON lines of a run. */
static char *results_of(enum kind kind, size_t *n)
{
    struct cmd_run r;
    struct fmt_outputs_config config;
    struct s2_err err = {0};
    open_run(&r, &config, 2, "forward", 1000, kind);
    must(cmd_passes_run(&r, &err), &err);
    cr_expect_eq(r.finished, CLIP_FRAMES);
    must(fmt_outputs_finish(r.outputs, &err), &err);
    expect_kept(0, CLIP_FRAMES - 1);
    char *text = (char *)video_slurp(video_path("out.jsonl"), n);
    cr_assert_eq(unlink(video_path("out.jsonl")), 0);
    cr_assert_eq(unlink(video_path("over.mkv")), 0);
    close_run(&r);
    return text;
}

Test(device_fault, steps_in_flight_give_the_same_results)
{
    size_t n[2];
    char *at_once = results_of(AT_ONCE, &n[0]), *behind = results_of(BEHIND, &n[1]);
    cr_expect_eq(begun, CLIP_FRAMES);
    cr_expect_eq(waited, CLIP_FRAMES);
    cr_expect_eq(handed_over, CLIP_FRAMES - 2, "features of %d frames, the first 2 have no object", handed_over);
    cr_expect_eq(most_in_flight, S2_MAX_IN_FLIGHT, "at most %d steps were in flight", most_in_flight);
    cr_assert_eq(n[0], n[1]);
    cr_expect_arr_eq(at_once, behind, n[0]);
    free(at_once), free(behind);
}

Test(device_fault, frames_in_pairs_give_the_same_results)
{
    size_t n[2];
    char *at_once = results_of(AT_ONCE, &n[0]), *pairs = results_of(IN_PAIRS, &n[1]);
    cr_expect_eq(begun, CLIP_FRAMES);
    cr_expect_eq(handed_over, (CLIP_FRAMES - 2 + 1) / 2, "the encoder ran %d times", handed_over);
    cr_expect_eq(taken_later, (CLIP_FRAMES - 2) / 2, "second frames of %d pairs", taken_later);
    cr_expect_eq(most_in_flight, S2_MAX_IN_FLIGHT, "at most %d steps were in flight", most_in_flight);
    cr_assert_eq(n[0], n[1]);
    cr_expect_arr_eq(at_once, pairs, n[0]);
    free(at_once), free(pairs);
}

Test(device_fault, memory_of_the_device_gives_the_same_results)
{
    size_t n[2];
    char *at_once = results_of(AT_ONCE, &n[0]);
    direct_downloads = 0;
    char *direct = results_of(DIRECT, &n[1]);
    cr_expect_eq(direct_downloads, CLIP_FRAMES * 4, "scores, estimates, masks and owners of each frame");
    cr_expect_eq(waited, CLIP_FRAMES);
    cr_assert_eq(n[0], n[1]);
    cr_expect_arr_eq(at_once, direct, n[0]);
    free(at_once), free(direct);
}

Test(device_fault, what_was_in_flight_when_the_device_failed_is_not_written)
{
    struct cmd_run r;
    struct fmt_outputs_config config;
    struct s2_err err = {0};
    open_run(&r, &config, 0, "forward", 5, BEHIND);
    cr_expect_eq(cmd_passes_run(&r, &err), S2_E_DEVICE);
    cr_expect_str_eq(err.text, "the GPU failed in a step: unspecified launch failure");
    cr_expect(r.finished > 5 - S2_MAX_IN_FLIGHT && r.finished <= 5, "%d frames", (int)r.finished);
    struct s2_err closing = {0};
    must(fmt_outputs_finish(r.outputs, &closing), &closing);
    expect_kept(0, (int)r.finished - 1);
    close_run(&r);
}

/* track.c - the main job: one clip, one pass, every output. */
#include "track.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "device.h"
#include "log.h"
#include "process.h"
#include "progress.h"
#include "schedule.h"
#include "signals.h"
#include "stats.h"
#include "taps.h"
#include "watch.h"

struct run {
    struct cmd_track_options o;
    struct fmt_video *video;
    struct fmt_video_info info;
    int64_t frames; /* of the clip, counted; -1 while unknown */
    struct fmt_checkpoint *checkpoint;
    struct s2_model_info model_info;
    struct cmd_device device;
    struct s2_model *model;
    struct fmt_outputs *outputs;
    struct s2_session *session;
    struct s2_object_result *results; /* [n_objects] */
    struct cmd_schedule schedule;
    struct cmd_watch watch;
    struct cmd_taps *taps;
    struct cmd_stats stats;
    struct cmd_stats_report report;
    enum s2_late late;
    int steps; /* frames given to the session */
};

static enum s2_status read_prompts(struct run *r, struct s2_err *err)
{
    struct cmd_track_options *o = &r->o;
    if (o->prompts_file) {
        const enum s2_status status = fmt_prompts_read(&o->prompts, o->prompts_file, err);
        if (status) return status;
    }
    if (o->prompts.n_prompts == 0) {
        return s2_fail(err, S2_E_USAGE, "%s: holds no prompt, there is nothing to track", o->prompts.path);
    }
    return cmd_schedule_check(&o->prompts, o->first, o->end, o->stride, err);
}

static struct fmt_video_options video_options(const struct cmd_track_options *o)
{
    return (struct fmt_video_options){.allow_network = o->allow_network,
                                      .threads = o->threads,
                                      .first = o->first,
                                      .end = o->end,
                                      .stride = o->stride};
}

static enum s2_status open_video(struct run *r, struct s2_err *err)
{
    const struct fmt_video_options options = video_options(&r->o);
    const enum s2_status status = fmt_video_open(&r->video, r->o.input, &options, err);
    if (!status) r->info = *fmt_video_get_info(r->video);
    return status;
}

static enum s2_status open_checkpoint(struct run *r, struct s2_err *err)
{
    enum s2_status status = fmt_checkpoint_open(&r->checkpoint, r->o.model, err);
    if (!status) status = s2_model_identify(fmt_checkpoint_source(r->checkpoint), &r->model_info, err);
    if (status) return status;
    const int size = cmd_track_size(&r->o);
    if (size && size < r->model_info.native_size) {
        s2_log(S2_LOG_INFO, "--size %d: masks are coarser than at the %d that %s was trained for", size,
               r->model_info.native_size, r->model_info.name);
    }
    return S2_OK;
}

/* The clip's length is counted only where it is cheap and says more than the container does. */
static enum s2_status resolve_prompts(struct run *r, struct s2_err *err)
{
    struct fmt_prompts *p = &r->o.prompts;
    int64_t last = 0;
    for (size_t i = 0; i < p->n_prompts; i++) {
        if (!p->prompts[i].by_time && p->prompts[i].frame > last) last = p->prompts[i].frame;
    }
    r->frames = -1;
    if (r->info.reopens && (r->info.frames_hint < 0 || last >= r->info.frames_hint || r->o.dry_run)) {
        const struct fmt_video_options options = video_options(&r->o);
        r->frames = fmt_video_count(r->o.input, &options);
    }
    const enum s2_status status = fmt_prompts_resolve(p, r->info.width, r->info.height, r->frames, err);
    return status ? status : cmd_schedule_open(&r->schedule, p, err);
}

/* Looking ahead is one more pass over the input; it changes nothing where no object is prompted twice. */
static enum s2_status choose_late(struct run *r, struct s2_err *err)
{
    int most = 0;
    for (size_t i = 0; i < r->o.prompts.n_objects; i++) {
        if (r->schedule.prompted_frames[i] > most) most = r->schedule.prompted_frames[i];
    }
    r->late = cmd_track_late(&r->o);
    if (r->late != S2_LATE_LOOKAHEAD) return S2_OK;
    if (most < 2) {
        r->late = S2_LATE_REFINE;
    } else if (!r->info.reopens) {
        return s2_fail(err, S2_E_USAGE,
                       "--late-prompts lookahead reads INPUT twice, which %s does not allow; "
                       "save it to a file first",
                       strcmp(r->o.input, "-") == 0 ? "stdin" : r->o.input);
    }
    return S2_OK;
}

static enum s2_status open_outputs(struct run *r, struct s2_err *err)
{
    const struct cmd_track_options *o = &r->o;
    enum s2_status status = cmd_track_check_paths(o, err);
    if (!status && o->taps) {
        status = cmd_taps_open(&r->taps, o->taps, o->overwrite, &o->tap_frames, o->prompts.objects,
                               o->prompts.n_objects, err);
    }
    if (status) return status;
    const int size = cmd_track_size(o);
    const struct fmt_outputs_config config = {.png_dir = o->png,
                                              .png_objects_dir = o->png_objects,
                                              .rle_path = o->rle,
                                              .overlay_path = o->overlay,
                                              .overwrite = o->overwrite,
                                              .width = r->info.width,
                                              .height = r->info.height,
                                              .objects = o->prompts.objects,
                                              .n_objects = o->prompts.n_objects,
                                              .time_base_num = r->info.time_base_num,
                                              .time_base_den = r->info.time_base_den,
                                              .fps = r->info.fps,
                                              .stills = r->info.is_stills,
                                              .input_path = o->input,
                                              .model_file = o->model,
                                              .model_name = r->model_info.name,
                                              .precision = r->device.precision,
                                              .device = r->device.name,
                                              .graph = o->graph,
                                              .model_size = size ? size : r->model_info.native_size,
                                              .overlap = o->overlap};
    return fmt_outputs_open(&r->outputs, &config, err);
}

static enum s2_status open_device(struct run *r, struct s2_err *err)
{
    const struct cmd_device_options options = cmd_track_device(&r->o);
    return cmd_device_open(&options, &r->device, err);
}

static enum s2_status load_model(struct run *r, struct s2_err *err)
{
    const double start = s2_now();
    const enum s2_status status =
        s2_model_load(&r->model, r->device.backend, fmt_checkpoint_source(r->checkpoint), cmd_track_size(&r->o), err);
    if (status) return status;
    r->model_info = *s2_model_get_info(r->model);
    fmt_checkpoint_drop_pages(r->checkpoint);
    r->stats.model_seconds = s2_now() - start;
    cmd_say("%s at %d on %s, %zu object%s", r->model_info.name, r->model_info.image_size, r->device.text,
            r->o.prompts.n_objects, r->o.prompts.n_objects == 1 ? "" : "s");
    return S2_OK;
}

static enum s2_status open_session(struct run *r, struct s2_err *err)
{
    const struct cmd_track_options *o = &r->o;
    const size_t n = o->prompts.n_objects;
    if (!(r->results = calloc(n + 1, sizeof *r->results))) return s2_no_memory(err, "the results", n);
    const enum s2_status status = cmd_watch_open(&r->watch, o->prompts.objects, n, err);
    if (status) return status;
    const struct s2_session_config config = {.width = r->info.width,
                                             .height = r->info.height,
                                             .num_frames = fmt_video_at_least(r->video, 16),
                                             .n_objects = (int)n,
                                             .prompted_frames = r->schedule.prompted_frames,
                                             .max_points = r->schedule.max_points,
                                             .fill_hole_area = o->fill_holes,
                                             .max_cond_frames = o->max_cond_frames,
                                             .late = r->late,
                                             .want_owner = o->png || o->overlay,
                                             .exclusive = strcmp(o->overlap, "exclusive") == 0,
                                             .tap = r->taps ? cmd_taps_tensor : NULL,
                                             .tap_ctx = r->taps};
    return s2_session_open(&r->session, r->model, &config, err);
}

static enum cmd_progress_mode progress_mode(const struct cmd_track_options *o)
{
    return cmd_progress_mode(o->quiet && strcmp(o->progress, "auto") == 0 ? "none" : o->progress);
}

/* The first of the two passes of --late-prompts lookahead: the prompted frames only. */
static enum s2_status preview(struct run *r, struct s2_err *err)
{
    if (r->late != S2_LATE_LOOKAHEAD) return S2_OK;
    struct fmt_record *record = fmt_outputs_take(r->outputs);
    if (!record) return S2_OK; // the outputs failed; finish() says why
    struct cmd_progress progress;
    cmd_progress_start(&progress, progress_mode(&r->o), "lookahead", -1, (int)r->o.prompts.n_objects);
    enum s2_status status = S2_OK;
    bool got = true;
    int frame = 0;
    for (; !status && r->schedule.left > 0 && !cmd_interrupted(); frame++) {
        int n = 0;
        status = fmt_video_next(r->video, &record->frame, &got, err);
        if (status || !got) break;
        status = cmd_schedule_frame(&r->schedule, &record->frame, &n, err);
        if (!status && n > 0)
            status = s2_session_preview(r->session, frame, &record->frame.image, r->schedule.now, n, err);
        cmd_progress_frame(&progress, frame + 1, record->frame.index, 0);
    }
    cmd_progress_end(&progress, frame);
    fmt_outputs_return(r->outputs, record);
    if (!status && !got && !cmd_interrupted()) status = cmd_schedule_end(&r->schedule, err);
    if (status || cmd_interrupted()) return status;
    cmd_schedule_rewind(&r->schedule);
    fmt_video_close(r->video);
    r->video = NULL;
    return open_video(r, err);
}

/* One frame that lies in the record: its prompts, the model's step, what the outputs need. */
static enum s2_status step(struct run *r, struct fmt_record *record, int *present, struct s2_err *err)
{
    const size_t n_objects = r->o.prompts.n_objects;
    int n_prompts = 0;
    enum s2_status status = cmd_schedule_frame(&r->schedule, &record->frame, &n_prompts, err);
    if (status) return status;
    struct s2_step_result result = {.bit_stride = record->object[0].bits.stride, .object = r->results};
    if (r->o.png || r->o.overlay) result.owner = record->owner;
    for (size_t i = 0; i < n_objects; i++) r->results[i].bits = record->object[i].bits.data;
    status = s2_session_step(r->session, &record->frame.image, r->schedule.now, n_prompts, &result, err);
    if (status) return status;
    bool has_object = false;
    for (size_t i = 0; i < n_objects; i++) {
        record->object[i].started = r->results[i].started;
        record->object[i].score = r->results[i].score;
        record->object[i].iou = r->results[i].iou;
        has_object |= r->results[i].started;
    }
    cmd_stats_frame(&r->stats, has_object);
    *present = cmd_watch_frame(&r->watch, record->frame.index, record->object, r->schedule.now, n_prompts);
    if (r->taps) status = cmd_taps_frame(r->taps, r->steps, r->session, record->object, err);
    r->steps++;
    return status;
}

static enum s2_status track_frames(struct run *r, struct s2_err *err)
{
    struct cmd_progress progress;
    const int64_t hint = r->frames >= 0 ? r->frames : r->info.frames_hint;
    enum s2_status status = S2_OK;
    cmd_progress_start(&progress, progress_mode(&r->o), "track", cmd_track_expected(&r->o, hint),
                       (int)r->o.prompts.n_objects);
    cmd_stats_start(&r->stats);
    bool got = true;
    while (!cmd_interrupted()) {
        struct fmt_record *record = fmt_outputs_take(r->outputs);
        if (!record) break; // an output failed; finish() says which
        int present = 0;
        status = fmt_video_next(r->video, &record->frame, &got, err);
        if (!status && got) status = step(r, record, &present, err);
        if (status || !got) {
            fmt_outputs_return(r->outputs, record);
            break;
        }
        const int64_t index = record->frame.index;
        fmt_outputs_put(r->outputs, record);
        cmd_progress_frame(&progress, r->steps, index, present);
    }
    cmd_progress_end(&progress, r->steps);
    if (!status && !got && !cmd_interrupted()) status = cmd_schedule_end(&r->schedule, err);
    return status;
}

static enum s2_status print_plan(const struct run *r, struct s2_err *err)
{
    return cmd_plan_print(&r->o, &r->info, r->frames, &r->model_info, fmt_checkpoint_container(r->checkpoint),
                          r->device.name, r->device.precision, &r->o.prompts, stdout, err);
}

/* The whole run, from files to finished frames; stops early when a signal asks for it. */
static enum s2_status run(struct run *r, struct s2_err *err)
{
    typedef enum s2_status part_fn(struct run *, struct s2_err *);
    // the video is opened before the model, so that frames are decoded while weights are read
    static part_fn *const checks[] = {read_prompts, open_video,  open_checkpoint, resolve_prompts,
                                      choose_late,  open_device, open_outputs};
    static part_fn *const work[] = {load_model, open_session, preview, track_frames};
    enum s2_status status = S2_OK;
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !status; i++) status = checks[i](r, err);
    if (!status && r->o.dry_run) return print_plan(r, err);
    for (size_t i = 0; i < sizeof work / sizeof *work && !status && !cmd_interrupted(); i++) status = work[i](r, err);
    if (cmd_interrupted() && (status == S2_E_BROKEN || r->steps == 0)) {
        *err = (struct s2_err){0}; // the signal cut it short, nothing is wrong with the input
        return S2_OK;
    }
    return status;
}

static enum s2_status close_outputs(struct run *r, struct s2_err *err)
{
    enum s2_status status = S2_OK;
    if (r->outputs && r->steps > 0) {
        const char *const *names;
        const double *seconds;
        r->report.n_outputs = fmt_outputs_times(r->outputs, &names, &seconds);
        for (int i = 0; i < r->report.n_outputs; i++) {
            r->report.output_name[i] = names[i];
            r->report.output_seconds[i] = seconds[i];
        }
        status = fmt_outputs_finish(r->outputs, err);
    } else {
        fmt_outputs_discard(r->outputs);
    }
    r->outputs = NULL;
    const enum s2_status taps_status = cmd_taps_close(r->taps, err);
    r->taps = NULL;
    return status ? status : taps_status;
}

static enum s2_status write_stats(struct run *r, enum s2_status status, struct s2_err *err)
{
    if (!r->o.stats || r->steps == 0) return S2_OK;
    r->report.stats = &r->stats;
    r->report.session = r->session;
    r->report.video = r->video;
    r->report.model = &r->model_info;
    r->report.input = r->o.input;
    r->report.device = r->device.text;
    r->report.opened = &r->device;
    r->report.precision = r->device.precision;
    r->report.late = r->o.late;
    r->report.n_objects = (int)r->o.prompts.n_objects;
    r->report.status = status ? (int)status : cmd_interrupted() ? 128 + cmd_interrupted() : 0;
    return cmd_stats_write(&r->report, r->o.stats, err);
}

/* Closes the outputs, finished frames are kept. A failure to write outweighs a broken input: then not all that was
 * decoded is kept. */
static enum s2_status finish(struct run *r, enum s2_status status, struct s2_err *err)
{
    struct s2_err closing = {0};
    enum s2_status closed = close_outputs(r, &closing);
    if (!closed) closed = write_stats(r, status, &closing);
    if (!closed) return status;
    if (status) cmd_error("%s", status == S2_E_BROKEN ? err->text : closing.text);
    if (status && status != S2_E_BROKEN) return status;
    *err = closing;
    return closed;
}

static void summarize(const struct run *r)
{
    const char *const paths[] = {r->o.png, r->o.png_objects, r->o.rle, r->o.overlay, r->o.stats, r->o.taps};
    char text[1024] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (!paths[i] || used >= sizeof text) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : ": ",
                                 strcmp(paths[i], "-") == 0 ? "stdout" : paths[i]);
    }
    cmd_say("%s%" PRId64 " frame%s in %.1f s, %.2f fps%s", cmd_interrupted() ? "interrupted; " : "", r->stats.frames,
            r->stats.frames == 1 ? "" : "s", cmd_process_seconds(), cmd_stats_fps(&r->stats), text);
}

static void close_all(struct run *r)
{
    cmd_watch_close(&r->watch);
    cmd_schedule_close(&r->schedule);
    s2_session_free(r->session);
    s2_model_free(r->model);
    if (r->device.backend) r->device.backend->ops->close(r->device.backend);
    fmt_checkpoint_close(r->checkpoint);
    fmt_video_close(r->video);
    free(r->results);
}

int cmd_track(int argc, char **argv)
{
    struct run r = {0};
    struct s2_err err = {0};
    enum s2_status status = cmd_track_options_parse(&r.o, argc, argv, &err);
    if (!status && r.o.help) {
        cmd_track_options_help(stdout);
    } else if (!status) {
        cmd_log_start(r.o.quiet ? CMD_QUIET : r.o.verbose > 1 ? CMD_DEBUG : r.o.verbose ? CMD_VERBOSE : CMD_NORMAL);
        cmd_signals_install();
        status = finish(&r, run(&r, &err), &err);
        if (r.steps > 0)
            summarize(&r);
        else if (!status && cmd_interrupted())
            cmd_say("interrupted before the first frame, nothing was written");
    }
    if (status) cmd_error("%s", err.text);
    close_all(&r);
    cmd_track_options_free(&r.o);
    return status ? (int)status : cmd_interrupted() ? 128 + cmd_interrupted() : 0;
}

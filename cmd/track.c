/* track.c - the main job: one clip, every output. Sets up, finishes; passes.c does what lies between. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "log.h"
#include "process.h"
#include "run.h"
#include "signals.h"

static enum s2_status read_prompts(struct cmd_run *r, struct s2_err *err)
{
    struct cmd_track_options *o = &r->o;
    if (o->prompts_file) {
        const enum s2_status status = fmt_prompts_read(&o->prompts, o->prompts_file, err);
        if (status) return status;
    }
    if (o->prompts.n_prompts == 0) {
        return s2_fail(err, S2_E_USAGE, "%s: holds no prompt, there is nothing to track", o->prompts.path);
    }
    r->direction = cmd_track_direction(o);
    return cmd_schedule_check(&o->prompts, o->first, o->end, o->stride, r->direction, err);
}

static struct fmt_video_options video_options(const struct cmd_track_options *o)
{
    return (struct fmt_video_options){.allow_network = o->allow_network,
                                      .threads = o->threads,
                                      .planes = true,
                                      .first = o->first,
                                      .end = o->end,
                                      .stride = o->stride};
}

static enum s2_status open_video(struct cmd_run *r, struct s2_err *err)
{
    const struct fmt_video_options options = video_options(&r->o);
    const enum s2_status status = fmt_video_open(&r->video, r->o.input, &options, err);
    if (!status) r->info = *fmt_video_get_info(r->video);
    return status;
}

enum s2_status cmd_run_open_video(struct cmd_run *r, int64_t first, int64_t end, const struct fmt_index *index,
                                  struct s2_err *err)
{
    struct fmt_video_options options = video_options(&r->o);
    options.first = first;
    options.end = end;
    options.backward = index;
    if (r->video) r->video_seconds += fmt_video_seconds(r->video);
    fmt_video_close(r->video);
    r->video = NULL;
    cmd_log_mute(true);
    const enum s2_status status = fmt_video_open(&r->video, r->o.input, &options, err);
    cmd_log_mute(false);
    if (!status && r->direct) fmt_video_set_memory(r->video, &r->memory);
    return status;
}

static enum s2_status open_checkpoint(struct cmd_run *r, struct s2_err *err)
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

/* With the frames known, prompts by time find theirs, and how far the passes of both directions go is known. */
static enum s2_status place_prompts(struct cmd_run *r, struct s2_err *err)
{
    struct cmd_track_options *o = &r->o;
    struct fmt_prompts *p = &o->prompts;
    if (!r->index) return S2_OK;
    cmd_log_mute(true);
    enum s2_status status = fmt_prompts_resolve(p, r->info.width, r->info.height, r->frames, err);
    cmd_log_mute(false);
    if (!status) status = cmd_schedule_place(p, r->index, o->first, o->end, o->stride, err);
    if (!status) status = cmd_schedule_check(p, o->first, o->end, o->stride, r->direction, err);
    if (status) return status;
    cmd_schedule_close(&r->schedule);
    if ((status = cmd_schedule_open(&r->schedule, p, err)) || r->direction != CMD_BOTH) return status;
    r->complete_from = o->first;
    for (size_t i = 0; i < p->n_objects; i++) {
        if (r->schedule.first_prompt[i] > r->complete_from) r->complete_from = r->schedule.first_prompt[i];
    }
    if (r->complete_from == o->first) r->direction = CMD_FORWARD; // there is nothing before the first prompts
    return S2_OK;
}

/* The clip's length is counted only where it is cheap and says more than the container does. */
static enum s2_status resolve_prompts(struct cmd_run *r, struct s2_err *err)
{
    struct fmt_prompts *p = &r->o.prompts;
    int64_t last = 0;
    for (size_t i = 0; i < p->n_prompts; i++) {
        if (!p->prompts[i].by_time && p->prompts[i].frame > last) last = p->prompts[i].frame;
    }
    r->frames = -1;
    if (!r->info.is_stills && r->info.reopens &&
        (r->info.frames_hint < 0 || last >= r->info.frames_hint || r->o.dry_run)) {
        const struct fmt_video_options options = video_options(&r->o);
        r->frames = fmt_video_count(r->o.input, &options);
    }
    enum s2_status status = fmt_prompts_resolve(p, r->info.width, r->info.height, r->frames, err);
    if (!status) status = cmd_schedule_open(&r->schedule, p, err);
    if (!status && r->info.is_stills && !(status = cmd_passes_index(r, err))) status = place_prompts(r, err);
    return status;
}

/* Looking ahead is one more pass over the input; it changes nothing where no object is prompted twice. */
static enum s2_status choose_late(struct cmd_run *r, struct s2_err *err)
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

static enum s2_status check_direction(struct cmd_run *r, struct s2_err *err)
{
    if (r->direction == CMD_FORWARD || r->info.reopens) return S2_OK;
    return s2_fail(err, S2_E_USAGE,
                   "--direction %s reads INPUT from its end, too, which %s does not allow; save it to a file first",
                   r->o.direction, strcmp(r->o.input, "-") == 0 ? "stdin" : r->o.input);
}

/* Reads a container to its end, for directions other than forward. */
static enum s2_status learn_frames(struct cmd_run *r, struct s2_err *err)
{
    if (r->index || r->direction == CMD_FORWARD) return S2_OK;
    const enum s2_status status = cmd_passes_index(r, err);
    return status || cmd_interrupted() ? status : place_prompts(r, err);
}

static enum s2_status open_outputs(struct cmd_run *r, struct s2_err *err)
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
                                              .overlay_preset = o->overlay_preset,
                                              .overwrite = o->overwrite,
                                              .width = r->info.width,
                                              .height = r->info.height,
                                              .objects = o->prompts.objects,
                                              .n_objects = o->prompts.n_objects,
                                              .time_base_num = r->info.time_base_num,
                                              .time_base_den = r->info.time_base_den,
                                              .fps = r->info.fps,
                                              .colors = r->info.colors,
                                              .aspect_num = r->info.aspect_num,
                                              .aspect_den = r->info.aspect_den,
                                              .stills = r->info.is_stills,
                                              .input_path = o->input,
                                              .model_file = o->model,
                                              .model_name = r->model_info.name,
                                              .precision = r->device.precision,
                                              .device = r->device.name,
                                              .graph = o->graph,
                                              .model_size = size ? size : r->model_info.native_size,
                                              .overlap = o->overlap,
                                              .memory = r->direct ? &r->memory : NULL};
    status = fmt_outputs_open(&r->outputs, &config, err);
    return status ? status : cmd_track_check_folders(o, err);
}

static enum s2_status open_device(struct cmd_run *r, struct s2_err *err)
{
    const struct cmd_device_options options = cmd_track_device(&r->o);
    const double start = s2_now();
    const enum s2_status status = cmd_device_open(&options, &r->device, err);
    r->stats.device_seconds = s2_now() - start;
    r->direct = !status && s2_host_memory(r->device.backend, &r->memory);
    if (r->direct) fmt_video_set_memory(r->video, &r->memory);
    return status;
}

static enum s2_status load_model(struct cmd_run *r, struct s2_err *err)
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

static enum s2_status open_session(struct cmd_run *r, struct s2_err *err)
{
    const struct cmd_track_options *o = &r->o;
    const size_t n = o->prompts.n_objects;
    for (int i = 0; i < S2_MAX_IN_FLIGHT; i++)
        if (!(r->flight[i].results = calloc(n + 1, sizeof *r->flight[i].results)))
            return s2_no_memory(err, "the results", n);
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
                                             .turns = r->direction == CMD_BOTH,
                                             .want_owner = o->png || o->overlay,
                                             .direct = r->direct,
                                             .exclusive = strcmp(o->overlap, "exclusive") == 0,
                                             // a live pipe would have to wait for the frame after
                                             .pairs = r->info.reopens && r->direction == CMD_FORWARD,
                                             .tap = r->taps ? cmd_taps_tensor : NULL,
                                             .tap_ctx = r->taps};
    const double start = s2_now();
    const enum s2_status opened = s2_session_open(&r->session, r->model, &config, err);
    r->stats.session_seconds = s2_now() - start;
    return opened;
}

static enum s2_status print_plan(const struct cmd_run *r, struct s2_err *err)
{
    return cmd_plan_print(&r->o, &r->info, r->frames, &r->model_info, fmt_checkpoint_container(r->checkpoint),
                          r->device.name, r->device.precision, &r->o.prompts, stdout, err);
}

/* The whole run, from files to finished frames; stops early when a signal asks for it. */
static enum s2_status run(struct cmd_run *r, struct s2_err *err)
{
    typedef enum s2_status part_fn(struct cmd_run *, struct s2_err *);
    // the video is opened before the model, so that frames are decoded while weights are read
    static part_fn *const checks[] = {read_prompts,    open_video,  check_direction, open_checkpoint,
                                      resolve_prompts, choose_late, open_device,     open_outputs};
    static part_fn *const work[] = {learn_frames, load_model, open_session, cmd_passes_run};
    enum s2_status status = S2_OK;
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !status; i++) status = checks[i](r, err);
    if (!status && r->o.dry_run) return print_plan(r, err);
    for (size_t i = 0; i < sizeof work / sizeof *work && !status && !cmd_interrupted(); i++) status = work[i](r, err);
    if (cmd_interrupted() && (status == S2_E_BROKEN || r->finished == 0)) {
        *err = (struct s2_err){0}; // the signal cut it short, nothing is wrong with the input
        return S2_OK;
    }
    return status;
}

static enum s2_status close_outputs(struct cmd_run *r, struct s2_err *err)
{
    enum s2_status status = S2_OK;
    if (r->outputs && r->finished > 0) {
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

static enum s2_status write_stats(struct cmd_run *r, enum s2_status status, struct s2_err *err)
{
    if (!r->o.stats || r->finished == 0) return S2_OK;
    r->report.stats = &r->stats;
    r->report.session = r->session;
    r->report.video_seconds = r->video_seconds + (r->video ? fmt_video_seconds(r->video) : 0);
    r->report.direction = r->o.direction;
    r->report.finished = r->finished;
    r->report.spilled = r->spill ? fmt_spill_bytes(r->spill) : 0;
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
static enum s2_status finish(struct cmd_run *r, enum s2_status status, struct s2_err *err)
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

/* Where outputs failed, the sentences about them tell what there is. */
static void summarize(const struct cmd_run *r, enum s2_status status)
{
    const char *const paths[] = {r->o.png, r->o.png_objects, r->o.rle, r->o.overlay, r->o.stats, r->o.taps};
    char text[1024] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths && status != S2_E_OUTPUT; i++) {
        if (!paths[i] || used >= sizeof text) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : ": ",
                                 strcmp(paths[i], "-") == 0 ? "stdout" : paths[i]);
    }
    cmd_say("%s%" PRId64 " frame%s in %.1f s, %.2f fps once loaded%s", cmd_interrupted() ? "interrupted; " : "",
            r->finished, r->finished == 1 ? "" : "s", cmd_process_seconds(), cmd_stats_fps(&r->stats), text);
}

static void close_all(struct cmd_run *r)
{
    cmd_watch_close(&r->watch);
    cmd_schedule_close(&r->schedule);
    fmt_video_close(r->video); // before the device, in whose memory frames are
    s2_session_free(r->session);
    s2_model_free(r->model);
    if (r->device.backend) r->device.backend->ops->close(r->device.backend);
    fmt_checkpoint_close(r->checkpoint);
    fmt_index_free(r->index);
    fmt_spill_free(r->spill);
    free(r->logits);
    for (int i = 0; i < S2_MAX_IN_FLIGHT; i++) free(r->flight[i].results);
}

int cmd_track(int argc, char **argv)
{
    struct cmd_run r = {0};
    struct s2_err err = {0};
    enum s2_status status = cmd_track_options_parse(&r.o, argc, argv, &err);
    if (!status && r.o.help) {
        cmd_track_options_help(stdout);
    } else if (!status) {
        cmd_log_start(r.o.quiet ? CMD_QUIET : r.o.verbose > 1 ? CMD_DEBUG : r.o.verbose ? CMD_VERBOSE : CMD_NORMAL);
        cmd_signals_install();
        status = finish(&r, run(&r, &err), &err);
        if (r.finished > 0)
            summarize(&r, status);
        else if (!status && cmd_interrupted())
            cmd_say("interrupted before %s, nothing was written",
                    r.steps > 0 ? "any frame was complete" : "the first frame");
    }
    if (status) cmd_error("%s", err.text);
    close_all(&r);
    cmd_track_options_free(&r.o);
    return status ? (int)status : cmd_interrupted() ? 128 + cmd_interrupted() : 0;
}

/* passes.c - the passes over a clip.
 *
 * forward   one pass, results go to the outputs as they come
 * backward  the clip mirrored: the session sees the last frame first
 * both      forward, then back from each object's first prompt to the first frame
 *
 * lookahead puts a pass over the prompted frames in front. Where results do not come in display order, a spill keeps
 * them, and a last pass reads the clip forward once more and hands frames and results to the outputs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "run.h"
#include "signals.h"

/* Does its part with a frame that lies in the record; *present: visible objects. */
typedef enum s2_status frame_fn(struct cmd_run *, struct fmt_record *, int *present, struct s2_err *);

struct pass {
    const char *stage; /* of --progress */
    frame_fn *frame;
    int64_t expected; /* frames, -1 unknown */
    bool puts;        /* finished records go to the outputs, after a signal too */
    bool previews;    /* ends with the last prompt */
};

static enum cmd_progress_mode progress_mode(const struct cmd_track_options *o)
{
    return cmd_progress_mode(o->quiet && strcmp(o->progress, "auto") == 0 ? "none" : o->progress);
}

/* Number of the record's frame among those of the clip that are tracked, in display order. */
static int64_t slot_of(const struct cmd_run *r, const struct fmt_record *record)
{
    return (record->frame.index - r->o.first) / r->o.stride;
}

static int64_t slots(const struct cmd_run *r)
{
    return cmd_track_expected(&r->o, r->frames);
}

/* A damaged input ends a pass, S2_E_BROKEN: all that came before is dealt with. */
static enum s2_status go(struct cmd_run *r, const struct pass *p, struct s2_err *err)
{
    struct cmd_progress progress;
    enum s2_status status = S2_OK;
    cmd_progress_start(&progress, progress_mode(&r->o), p->stage, p->expected, (int)r->o.prompts.n_objects);
    bool got = true;
    int64_t done = 0;
    while (p->puts || !cmd_interrupted()) {
        if (p->previews && r->schedule.left == 0) break;
        struct fmt_record *record = fmt_outputs_take(r->outputs);
        if (!record) break; // an output failed; finish() says which
        int present = 0;
        status = fmt_video_next(r->video, &record->frame, &got, err);
        if (!status && got) status = p->frame(r, record, &present, err);
        const int64_t index = record->frame.index;
        const bool put = !status && got && p->puts;
        (put ? fmt_outputs_put : fmt_outputs_return)(r->outputs, record);
        r->finished += put;
        if (status || !got) break;
        cmd_progress_frame(&progress, ++done, index, present);
    }
    cmd_progress_end(&progress, done);
    if (!status && !got && !p->puts && !cmd_interrupted()) status = cmd_schedule_end(&r->schedule, err);
    return status;
}

/* ------------------------------------------------------------------ the session's steps */

static enum s2_status preview(struct cmd_run *r, struct fmt_record *record, int *present, struct s2_err *err)
{
    int n = 0;
    enum s2_status status = cmd_schedule_frame(&r->schedule, &record->frame, &n, err);
    if (!status && n > 0)
        status = s2_session_preview(r->session, r->steps, &record->frame.image, r->schedule.now, n, err);
    r->steps++;
    *present = 0;
    return status;
}

/* Prompts and the model's step, which is in flight then. number: for the taps; after: the frame behind, or NULL. */
static enum s2_status submit(struct cmd_run *r, struct fmt_record *record, const struct fmt_record *after, int number,
                             struct s2_err *err)
{
    struct cmd_flight *f = &r->flight[r->submitted % S2_MAX_IN_FLIGHT];
    *f = (struct cmd_flight){.record = record, .results = f->results, .number = number};
    enum s2_status status = cmd_schedule_frame(&r->schedule, &record->frame, &f->n_prompts, err);
    if (status) return status;
    const struct s2_step_result result = {
        .bit_stride = record->object[0].bits.stride, .object = f->results, .owner = record->owner};
    for (size_t i = 0; i < r->o.prompts.n_objects; i++) f->results[i].bits = record->object[i].bits.data;
    status = s2_session_submit(r->session, &record->frame.image, after ? &after->frame.image : NULL, r->schedule.now,
                               f->n_prompts, &result, err);
    if (status) return status;
    r->submitted++;
    r->steps++;
    return S2_OK;
}

/* What the outputs need of the oldest step in flight; its prompts, if it has any, are still those of the schedule. */
static enum s2_status collect(struct cmd_run *r, int *present, struct s2_err *err)
{
    const struct cmd_flight *f = &r->flight[r->collected++ % S2_MAX_IN_FLIGHT];
    struct fmt_record *record = f->record;
    bool has_object = false;
    const enum s2_status status = s2_session_collect(r->session, err);
    if (status) return status;
    for (size_t i = 0; i < r->o.prompts.n_objects; i++) {
        record->object[i].started = f->results[i].started;
        record->object[i].score = f->results[i].score;
        record->object[i].iou = f->results[i].iou;
        has_object |= f->results[i].started;
    }
    cmd_stats_frame(&r->stats, has_object);
    *present = cmd_watch_frame(&r->watch, record->frame.index, record->object, r->schedule.now, f->n_prompts);
    return r->taps ? cmd_taps_frame(r->taps, f->number, r->session, record->object, err) : S2_OK;
}

static enum s2_status step(struct cmd_run *r, struct fmt_record *record, int number, int *present, struct s2_err *err)
{
    const enum s2_status status = submit(r, record, NULL, number, err);
    return status ? status : collect(r, present, err);
}

static enum s2_status backward(struct cmd_run *r, struct fmt_record *record, int *present, struct s2_err *err)
{
    const int64_t slot = slot_of(r, record);
    const enum s2_status status = step(r, record, (int)slot, present, err);
    return status ? status : fmt_spill_put(r->spill, slot, record, err);
}

/* The first half of both. Frames that some object reaches only on the way back keep the logits of the others, so that
 * the overlap rule can be applied to all of them then. */
static enum s2_status there(struct cmd_run *r, struct fmt_record *record, int *present, struct s2_err *err)
{
    const int64_t slot = slot_of(r, record);
    if (record->frame.index == r->complete_from) r->turn = r->steps;
    enum s2_status status = step(r, record, r->steps, present, err);
    if (!status && record->frame.index >= r->complete_from) return fmt_spill_put(r->spill, slot, record, err);
    for (size_t i = 0; i < r->o.prompts.n_objects && !status; i++) {
        const struct fmt_record_object *o = &record->object[i];
        const float *logits = s2_session_logits(r->session, (int)i, &r->side);
        if (logits) status = fmt_spill_put_logits(r->spill, slot, i, logits, r->side, o->score, o->iou, err);
    }
    return status;
}

static enum s2_status back(struct cmd_run *r, struct fmt_record *record, int *present, struct s2_err *err)
{
    const int64_t slot = slot_of(r, record);
    enum s2_status status = S2_OK;
    for (size_t i = 0; i < r->o.prompts.n_objects && !status; i++) {
        float score, iou;
        bool got = false;
        if (r->side > 0) status = fmt_spill_get_logits(r->spill, slot, i, r->logits, r->side, &score, &iou, &got, err);
        if (!status && got) s2_session_show(r->session, (int)i, r->logits, score, iou);
    }
    if (!status) status = step(r, record, --r->turn, present, err);
    return status ? status : fmt_spill_put(r->spill, slot, record, err);
}

/* ------------------------------------------------------------------ the passes */

/* A damaged end is no reason not to go on: *first keeps the sentence. */
static enum s2_status set_aside(enum s2_status status, struct s2_err *err, struct s2_err *first)
{
    if (status != S2_E_BROKEN) return status;
    if (!first->status) *first = *err;
    *err = (struct s2_err){0};
    return S2_OK;
}

/* Ready for a pass of the whole range, that of lookahead done. index: backward; otherwise the clip stands open. */
static enum s2_status look(struct cmd_run *r, enum cmd_pass which, const struct fmt_index *index, struct s2_err *err)
{
    static const struct pass previews = {.stage = "lookahead", .frame = preview, .expected = -1, .previews = true};
    enum s2_status status = index ? cmd_run_open_video(r, r->o.first, r->o.end, index, err) : S2_OK;
    cmd_schedule_rewind(&r->schedule, which);
    if (status || r->late != S2_LATE_LOOKAHEAD) return status;
    struct s2_err met_again = {0}; /* in the next pass */
    status = set_aside(go(r, &previews, err), err, &met_again);
    r->steps = 0;
    if (status || cmd_interrupted()) return status;
    cmd_schedule_rewind(&r->schedule, which);
    return cmd_run_open_video(r, r->o.first, r->o.end, index, err);
}

/* How many steps may stay in flight. None where nothing is to be done meanwhile: the next frame is not there yet. */
static int may_stay(const struct cmd_run *r, const struct fmt_record *after)
{
    const int n_prompts = r->flight[(r->submitted - 1) % S2_MAX_IN_FLIGHT].n_prompts;
    if (r->taps || n_prompts > 0 || (!after && !fmt_video_ready(r->video))) return 0;
    return s2_session_depth(r->session) - 1;
}

/* Hands out the results of the steps in flight but for the last `stay`. */
static enum s2_status deliver(struct cmd_run *r, int stay, struct cmd_progress *progress, struct s2_err *err)
{
    enum s2_status first = S2_OK;
    while (r->submitted - r->collected > stay) {
        struct fmt_record *record = r->flight[r->collected % S2_MAX_IN_FLIGHT].record;
        const int64_t index = record->frame.index;
        int present = 0;
        struct s2_err now = {0};
        const enum s2_status status = collect(r, &present, &now);
        (status ? fmt_outputs_return : fmt_outputs_put)(r->outputs, record);
        if (!status)
            cmd_progress_frame(progress, ++r->finished, index, present);
        else if (!first)
            first = status, *err = now;
    }
    return first;
}

/* A record with the next frame; NULL: there is none, or an output failed, which finish() tells. */
static struct fmt_record *read_frame(struct cmd_run *r, bool *ended, enum s2_status *status, struct s2_err *err)
{
    struct fmt_record *record = fmt_outputs_take(r->outputs);
    bool got = false;
    if (!record) return NULL;
    *status = fmt_video_next(r->video, &record->frame, &got, err);
    if (*status == S2_OK && got) return record;
    fmt_outputs_return(r->outputs, record);
    *ended = *status == S2_OK;
    return NULL;
}

/* A frame is decoded and its results are handed out while the device computes the next one. */
static enum s2_status go_forward(struct cmd_run *r, int64_t expected, struct s2_err *err)
{
    struct cmd_progress progress;
    struct s2_err of_step = {0}, last = {0};
    enum s2_status status = S2_OK, step = S2_OK;
    bool ended = false;
    cmd_progress_start(&progress, progress_mode(&r->o), "track", expected, (int)r->o.prompts.n_objects);
    struct fmt_record *record = read_frame(r, &ended, &status, err);
    while (record && !step && !cmd_interrupted()) {
        struct fmt_record *after = s2_session_pairs(r->session) ? read_frame(r, &ended, &status, err) : NULL;
        step = submit(r, record, after, r->steps, &of_step);
        if (step)
            fmt_outputs_return(r->outputs, record);
        else
            step = deliver(r, may_stay(r, after), &progress, &of_step);
        record = after;
        if (!record && !step && !status && !ended) record = read_frame(r, &ended, &status, err);
    }
    if (record) fmt_outputs_return(r->outputs, record);
    const enum s2_status left = deliver(r, 0, &progress, &last);
    if (!step && left) step = left, of_step = last;
    if (step) status = step, *err = of_step;
    cmd_progress_end(&progress, r->finished);
    if (!status && ended && !cmd_interrupted()) status = cmd_schedule_end(&r->schedule, err);
    return status;
}

static enum s2_status run_forward(struct cmd_run *r, struct s2_err *err)
{
    const int64_t hint = r->frames >= 0 ? r->frames : r->info.frames_hint;
    const enum s2_status status = look(r, CMD_PASS_ALL, NULL, err);
    if (status || cmd_interrupted()) return status;
    cmd_stats_start(&r->stats);
    return go_forward(r, cmd_track_expected(&r->o, hint), err);
}

static enum s2_status track_backward(struct cmd_run *r, struct s2_err *damage, struct s2_err *err)
{
    const struct pass track = {.stage = "track", .frame = backward, .expected = slots(r)};
    if (r->taps) cmd_taps_mirror(r->taps, (int)slots(r));
    enum s2_status status = look(r, CMD_PASS_ALL, r->index, err);
    if (status || cmd_interrupted()) return status;
    cmd_stats_start(&r->stats);
    return set_aside(go(r, &track, err), err, damage);
}

static enum s2_status track_both(struct cmd_run *r, struct s2_err *damage, struct s2_err *err)
{
    const struct pass forth = {.stage = "track", .frame = there, .expected = slots(r)};
    const struct pass track_back = {
        .stage = "back", .frame = back, .expected = cmd_track_expected(&r->o, r->complete_from)};
    enum s2_status status = look(r, CMD_PASS_THERE, NULL, err);
    if (status || cmd_interrupted()) return status;
    cmd_stats_start(&r->stats);
    status = set_aside(go(r, &forth, err), err, damage);
    if (status || cmd_interrupted() || r->turn < 0) return status;

    const size_t cells = (size_t)r->side * (size_t)r->side;
    if (r->side > 0 && !(r->logits = calloc(cells, sizeof *r->logits)))
        return s2_no_memory(err, "logits", cells * sizeof *r->logits);
    cmd_schedule_rewind(&r->schedule, CMD_PASS_BACK);
    cmd_watch_turn(&r->watch);
    if ((status = s2_session_turn(r->session, r->turn - 1, err))) return status;
    if ((status = cmd_run_open_video(r, r->o.first, r->complete_from, r->index, err))) return status;
    return set_aside(go(r, &track_back, err), err, damage);
}

static enum s2_status hand_out(struct cmd_run *r, struct fmt_record *record, int *present, struct s2_err *err)
{
    const enum s2_status status = fmt_spill_get(r->spill, slot_of(r, record), record, err);
    *present = 0;
    for (size_t i = 0; !status && i < r->o.prompts.n_objects; i++)
        *present += record->object[i].started && record->object[i].score > 0;
    return status;
}

/* All frames that are complete; they follow each other. */
static enum s2_status write_out(struct cmd_run *r, struct s2_err *damage, struct s2_err *err)
{
    int64_t low = 0, high = slots(r);
    while (low < high && !fmt_spill_has(r->spill, low)) low++;
    while (high > low && !fmt_spill_has(r->spill, high - 1)) high--;
    if (low == high) return S2_OK;
    if (!r->o.png && !r->o.png_objects && !r->o.rle && !r->o.overlay) {
        r->finished = high - low;
        return S2_OK;
    }
    if (cmd_interrupted())
        cmd_say("interrupted; writing the %" PRId64 " frame%s with all objects, a second signal ends at once",
                high - low, s2_plural(high - low));
    const struct pass write = {.stage = "write", .frame = hand_out, .expected = high - low, .puts = true};
    const int64_t first = r->o.first + low * r->o.stride, end = r->o.first + (high - 1) * r->o.stride + 1;
    const enum s2_status status = cmd_run_open_video(r, first, end, NULL, err);
    return status ? status : set_aside(go(r, &write, err), err, damage);
}

static enum s2_status run_spilled(struct cmd_run *r, struct s2_err *err)
{
    struct s2_err damage = {0}, writing = {0};
    r->turn = -1;
    enum s2_status status = fmt_spill_open(&r->spill, slots(r), r->o.prompts.n_objects, r->o.png || r->o.overlay, err);
    if (status) return status;
    fmt_index_verdict(r->index, &damage);
    status = (r->direction == CMD_BOTH ? track_both : track_backward)(r, &damage, err);
    if (status != S2_E_USAGE) write_out(r, &damage, &writing);
    if (status) return status;
    if (writing.status) return s2_fail(err, writing.status, "%s", writing.text);
    return damage.status ? s2_fail(err, damage.status, "%s", damage.text) : S2_OK;
}

enum s2_status cmd_passes_run(struct cmd_run *r, struct s2_err *err)
{
    return (r->direction == CMD_FORWARD ? run_forward : run_spilled)(r, err);
}

/* ------------------------------------------------------------------ what the frames are */

static int on_indexed(void *progress, int64_t count)
{
    cmd_progress_frame(progress, count, count - 1, 0);
    return cmd_interrupted();
}

enum s2_status cmd_passes_index(struct cmd_run *r, struct s2_err *err)
{
    if (r->index || (r->direction == CMD_FORWARD && !r->info.is_stills)) return S2_OK;
    struct cmd_track_options *o = &r->o;
    const struct fmt_video_options options = {.allow_network = o->allow_network,
                                              .threads = o->threads,
                                              .first = o->first,
                                              .end = o->end,
                                              .stride = o->stride};
    struct cmd_progress progress = {.mode = CMD_PROGRESS_NONE};
    if (!r->info.is_stills)
        cmd_progress_start(&progress, progress_mode(o), "index", o->end >= 0 ? o->end : r->info.frames_hint,
                           (int)o->prompts.n_objects);
    cmd_log_mute(true);
    enum s2_status status = fmt_index_build(&r->index, o->input, &options, on_indexed, &progress, err);
    cmd_log_mute(false);
    cmd_progress_end(&progress, r->index ? fmt_index_count(r->index) : 0);
    if (!status && !cmd_interrupted()) r->frames = fmt_index_count(r->index);
    return status;
}

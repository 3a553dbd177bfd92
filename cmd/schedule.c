/* schedule.c - see schedule.h */
#include "schedule.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Times written with six decimals still find their frame. */
static const double time_tolerance = 1e-6;

/* "prompts.json: prompts[2]: SENTENCE"; a quick prompt stands for itself. */
static enum s2_status fail(const struct fmt_prompts *p, const struct fmt_prompt *q, struct s2_err *err, const char *fmt,
                           ...) __attribute__((format(printf, 4, 5)));
static enum s2_status fail(const struct fmt_prompts *p, const struct fmt_prompt *q, struct s2_err *err, const char *fmt,
                           ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const bool quick = strncmp(q->where, "--", 2) == 0;
    return s2_fail(err, S2_E_USAGE, "%s%s%s: %s", quick ? "" : p->path, quick ? "" : ": ", q->where, text);
}

/* A stop needs a prompt of its object that the pass meets before. Frames and seconds cannot be compared here, so a
 * stop in the one is content with any prompt in the other. */
static enum s2_status check_stop(const struct fmt_prompts *p, const struct fmt_prompt *stop, enum cmd_direction d,
                                 struct s2_err *err)
{
    for (size_t i = 0; i < p->n_prompts; i++) {
        const struct fmt_prompt *q = &p->prompts[i];
        if (q->object != stop->object || q->kind == S2_PROMPT_STOP) continue;
        if (d == CMD_BOTH || q->by_time != stop->by_time) return S2_OK;
        const bool earlier = q->by_time ? q->time < stop->time : q->frame < stop->frame;
        if (earlier == (d == CMD_FORWARD)) return S2_OK;
    }
    const char *side = d == CMD_FORWARD ? "before" : "behind";
    const int id = p->objects[stop->object].id;
    if (stop->by_time) return fail(p, stop, err, "object %d is not prompted %s %g s", id, side, stop->time);
    return fail(p, stop, err, "object %d is not prompted %s frame %" PRId64, id, side, stop->frame);
}

enum s2_status cmd_schedule_check(const struct fmt_prompts *p, int64_t first, int64_t end, int64_t stride,
                                  enum cmd_direction direction, struct s2_err *err)
{
    for (size_t i = 0; i < p->n_prompts; i++) {
        const struct fmt_prompt *q = &p->prompts[i];
        if (q->kind == S2_PROMPT_STOP && check_stop(p, q, direction, err)) return S2_E_USAGE;
        if (q->by_time) continue;
        if (q->frame < first || (end >= 0 && q->frame >= end)) {
            return fail(p, q, err,
                        "frame %" PRId64 " is outside the range of --frames; frames count from the start of the input, "
                        "and the first of the range is %" PRId64,
                        q->frame, first);
        }
        if ((q->frame - first) % stride != 0) {
            const int64_t before = q->frame - (q->frame - first) % stride;
            return fail(p, q, err,
                        "--stride %" PRId64 " skips frame %" PRId64 "; the nearest frames it delivers are %" PRId64
                        " and %" PRId64,
                        stride, q->frame, before, before + stride);
        }
    }
    return S2_OK;
}

/* The last frame that is shown at `time` or before; -1: none. */
static int64_t shown_at(const struct fmt_index *x, double time)
{
    int64_t low = 0, high = fmt_index_count(x);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (fmt_index_time(x, middle) <= time + time_tolerance)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static enum s2_status place(const struct fmt_prompts *p, struct fmt_prompt *q, const struct fmt_index *x, int64_t first,
                            int64_t end, int64_t stride, struct s2_err *err)
{
    const int64_t count = fmt_index_count(x), frame = shown_at(x, q->time);
    if (frame < 0 || count == 0) return fail(p, q, err, "no frame is shown at %g s", q->time);
    const double last = fmt_index_time(x, count - 1), interval = count > 1 ? last - fmt_index_time(x, count - 2) : 0;
    if (frame < first || (end >= 0 && frame >= end)) {
        return fail(p, q, err, "the frame shown at %g s, number %" PRId64 ", is outside the range of --frames", q->time,
                    frame);
    }
    // the last frame of the clip is shown as long as the one before it
    if (q->time > last + interval + time_tolerance) {
        return fail(p, q, err, "time %g s is past the end: the last frame is shown at %g s", q->time, last);
    }
    if ((frame - first) % stride != 0) {
        return fail(p, q, err, "--stride %" PRId64 " skips the frame shown at %g s, number %" PRId64, stride, q->time,
                    frame);
    }
    q->by_time = false;
    q->frame = frame;
    return S2_OK;
}

static enum s2_status check_company(const struct fmt_prompts *, size_t i, const struct fmt_prompt *other, int64_t frame,
                                    struct s2_err *);

enum s2_status cmd_schedule_place(struct fmt_prompts *p, const struct fmt_index *x, int64_t first, int64_t end,
                                  int64_t stride, struct s2_err *err)
{
    enum s2_status status = S2_OK;
    for (size_t i = 0; i < p->n_prompts && !status; i++) {
        if (p->prompts[i].by_time) status = place(p, &p->prompts[i], x, first, end, stride, err);
        for (size_t k = 0; k < i && !status; k++) {
            if (p->prompts[k].frame == p->prompts[i].frame)
                status = check_company(p, i, &p->prompts[k], p->prompts[i].frame, err);
        }
    }
    return status;
}

static int points_of(const struct fmt_prompt *q)
{
    return q->n_points + (q->has_box ? 2 : 0);
}

/* By object, then those by frame, then those by time. */
static int compare(const void *left, const void *right)
{
    const struct fmt_prompt *a = *(struct fmt_prompt *const *)left, *b = *(struct fmt_prompt *const *)right;
    if (a->object != b->object) return a->object < b->object ? -1 : 1;
    if (a->by_time != b->by_time) return a->by_time ? 1 : -1;
    if (a->by_time) return a->time < b->time ? -1 : a->time > b->time;
    return a->frame < b->frame ? -1 : a->frame > b->frame;
}

/* Capacities of a session: the most points of an object on one frame, the most prompted frames of each object.
 * Which frame a prompt by time meets is known only later, so it counts as a frame of its own and as points on
 * every frame. */
static enum s2_status measure(struct cmd_schedule *s, struct s2_err *err)
{
    const size_t n = s->prompts->n_prompts;
    const struct fmt_prompt **order = calloc(n + 1, sizeof(*order));
    if (!order) return s2_no_memory(err, "the prompts", n * sizeof(*order));
    for (size_t i = 0; i < n; i++) order[i] = &s->prompts->prompts[i];
    qsort(order, n, sizeof(*order), compare);
    for (size_t i = 0; i < n;) {
        const int object = order[i]->object;
        int64_t on_frame = 0, most = 0, by_time = 0;
        for (size_t first = i; i < n && order[i]->object == object; i++) {
            const bool new_frame = i == first || compare(&order[i], &order[i - 1]) != 0;
            if (new_frame) s->prompted_frames[object]++;
            if (order[i]->by_time) {
                by_time += points_of(order[i]);
                continue;
            }
            on_frame = (new_frame ? 0 : on_frame) + points_of(order[i]);
            if (on_frame > most) most = on_frame;
        }
        if (most + by_time > s->max_points) s->max_points = (int)(most + by_time < INT_MAX ? most + by_time : INT_MAX);
    }
    free(order);
    return S2_OK;
}

enum s2_status cmd_schedule_open(struct cmd_schedule *s, const struct fmt_prompts *p, struct s2_err *err)
{
    *s = (struct cmd_schedule){.prompts = p};
    s->all = calloc(p->n_prompts + 1, sizeof *s->all);
    s->now = calloc(p->n_prompts + 1, sizeof *s->now);
    s->done = calloc(p->n_prompts + 1, sizeof *s->done);
    s->prompted_frames = calloc(p->n_objects + 1, sizeof *s->prompted_frames);
    s->first_prompt = calloc(p->n_objects + 1, sizeof *s->first_prompt);
    if (!s->all || !s->now || !s->done || !s->prompted_frames || !s->first_prompt) {
        cmd_schedule_close(s);
        return s2_no_memory(err, "the prompts", p->n_prompts * sizeof *s->all);
    }
    for (size_t i = 0; i < p->n_prompts; i++) {
        const struct fmt_prompt *q = &p->prompts[i];
        struct s2_prompt *e = &s->all[i];
        *e = (struct s2_prompt){.object = q->object,
                                .kind = q->kind,
                                .n_points = q->n_points,
                                .xy = q->xy,
                                .labels = q->labels,
                                .has_box = q->has_box,
                                .mask = q->mask};
        memcpy(e->box, q->box, sizeof e->box);
    }
    for (size_t i = 0; i < p->n_objects; i++) s->first_prompt[i] = -1;
    for (size_t i = 0; i < p->n_prompts; i++) {
        const struct fmt_prompt *q = &p->prompts[i];
        int64_t *first = &s->first_prompt[q->object];
        if (q->kind != S2_PROMPT_STOP && !q->by_time && (*first < 0 || q->frame < *first)) *first = q->frame;
    }
    cmd_schedule_rewind(s, CMD_PASS_ALL);
    const enum s2_status status = measure(s, err);
    if (status) cmd_schedule_close(s);
    return status;
}

static bool belongs(const struct cmd_schedule *s, const struct fmt_prompt *q, const struct fmt_frame *f)
{
    if (!q->by_time) return q->frame == f->index;
    if (q->time < f->time - time_tolerance) return false;
    if (isfinite(f->next_time)) return q->time < f->next_time - time_tolerance;
    // the last frame of the clip is shown as long as the one before it
    return q->time <= f->time + s->last_interval + time_tolerance;
}

/* Prompts i and `other` belong to one frame. A stop or a mask stands alone there; prompts of one kind of moment were
 * compared when they were read, a time meets a frame number only here. */
static enum s2_status check_company(const struct fmt_prompts *p, size_t i, const struct fmt_prompt *other,
                                    int64_t frame, struct s2_err *err)
{
    const struct fmt_prompt *q = &p->prompts[i];
    if (other->object != q->object) return S2_OK;
    const int id = p->objects[q->object].id;
    if (q->kind == S2_PROMPT_STOP || other->kind == S2_PROMPT_STOP) {
        return fail(p, q, err, "object %d is both stopped and prompted at frame %" PRId64 "; see %s", id, frame,
                    other->where);
    }
    if (q->kind == S2_PROMPT_MASK || other->kind == S2_PROMPT_MASK) {
        return fail(p, q, err,
                    "a mask stands alone, but %s prompts object %d at frame %" PRId64 " too; keep one of them",
                    other->where, id, frame);
    }
    return S2_OK;
}

enum s2_status cmd_schedule_frame(struct cmd_schedule *s, const struct fmt_frame *f, int *n, struct s2_err *err)
{
    *n = 0;
    if (s->last_frame >= 0 && f->index > s->last_frame) {
        s->last_interval = (f->time - s->last_time) / (double)(f->index - s->last_frame);
    }
    s->last_frame = f->index;
    if (f->index > s->highest) s->highest = f->index;
    s->last_time = f->time;
    for (size_t i = 0; s->left > 0 && i < s->prompts->n_prompts; i++) {
        const struct fmt_prompt *q = &s->prompts->prompts[i];
        if (s->done[i]) continue;
        if (belongs(s, q, f)) {
            for (size_t k = 0; k < i; k++) {
                const struct fmt_prompt *other = &s->prompts->prompts[k];
                if (belongs(s, other, f) && check_company(s->prompts, i, other, f->index, err)) return S2_E_USAGE;
            }
            s->done[i] = true;
            s->left--;
            s->now[(*n)++] = s->all[i];
        } else if (q->by_time && q->time < f->time) {
            return fail(s->prompts, q, err,
                        "the frame shown at %g s is not delivered (--frames, --stride); frame %" PRId64
                        " at %g s is the next one",
                        q->time, f->index, f->time);
        }
    }
    return S2_OK;
}

enum s2_status cmd_schedule_end(const struct cmd_schedule *s, struct s2_err *err)
{
    for (size_t i = 0; i < s->prompts->n_prompts; i++) {
        const struct fmt_prompt *q = &s->prompts->prompts[i];
        if (s->done[i]) continue;
        if (q->by_time) {
            return fail(s->prompts, q, err, "time %g s is past the end: the last frame is shown at %g s", q->time,
                        s->last_time);
        }
        if (q->frame < s->highest) return fail(s->prompts, q, err, "frame %" PRId64 " cannot be decoded", q->frame);
        return fail(s->prompts, q, err, "frame %" PRId64 " is past the end: the last frame is %" PRId64, q->frame,
                    s->highest);
    }
    return S2_OK;
}

void cmd_schedule_rewind(struct cmd_schedule *s, enum cmd_pass pass)
{
    s->left = 0;
    for (size_t i = 0; i < s->prompts->n_prompts; i++) {
        const struct fmt_prompt *q = &s->prompts->prompts[i];
        const bool early = q->kind == S2_PROMPT_STOP && q->frame < s->first_prompt[q->object];
        s->done[i] = pass != CMD_PASS_ALL && early != (pass == CMD_PASS_BACK);
        s->left += !s->done[i];
    }
    s->last_frame = s->highest = -1;
    s->last_time = s->last_interval = 0;
}

void cmd_schedule_close(struct cmd_schedule *s)
{
    free(s->all);
    free(s->now);
    free(s->done);
    free(s->prompted_frames);
    free(s->first_prompt);
    *s = (struct cmd_schedule){0};
}

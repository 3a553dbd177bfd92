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

enum s2_status cmd_schedule_check(const struct fmt_prompts *p, int64_t first, int64_t end, int64_t stride,
                                  struct s2_err *err)
{
    for (size_t i = 0; i < p->n_prompts; i++) {
        const struct fmt_prompt *q = &p->prompts[i];
        if (q->by_time) continue;
        if (q->frame < first || (end >= 0 && q->frame >= end)) {
            return fail(p, q, err, "frame %" PRId64 " is outside the range of --frames", q->frame);
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
    if (!s->all || !s->now || !s->done || !s->prompted_frames) {
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
    cmd_schedule_rewind(s);
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

/* Prompt i belongs to frame f. A stop or a mask stands alone on its frame; prompts of one kind of
 * moment were compared when they were read, a time meets a frame number only here. */
static enum s2_status check_company(const struct cmd_schedule *s, size_t i, const struct fmt_frame *f,
                                    struct s2_err *err)
{
    const struct fmt_prompts *p = s->prompts;
    const struct fmt_prompt *q = &p->prompts[i];
    for (size_t k = 0; k < i; k++) {
        const struct fmt_prompt *other = &p->prompts[k];
        if (other->object != q->object || !belongs(s, other, f)) continue;
        const int id = p->objects[q->object].id;
        if (q->kind == S2_PROMPT_STOP || other->kind == S2_PROMPT_STOP) {
            return fail(p, q, err, "object %d is both stopped and prompted at frame %" PRId64 "; see %s", id, f->index,
                        other->where);
        }
        if (q->kind == S2_PROMPT_MASK || other->kind == S2_PROMPT_MASK) {
            return fail(p, q, err,
                        "a mask stands alone, but %s prompts object %d at frame %" PRId64 " too; keep one of them",
                        other->where, id, f->index);
        }
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
    s->last_time = f->time;
    for (size_t i = 0; s->left > 0 && i < s->prompts->n_prompts; i++) {
        const struct fmt_prompt *q = &s->prompts->prompts[i];
        if (s->done[i]) continue;
        if (belongs(s, q, f)) {
            const enum s2_status status = check_company(s, i, f, err);
            if (status) return status;
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
        return fail(s->prompts, q, err, "frame %" PRId64 " is past the end: the last frame is %" PRId64, q->frame,
                    s->last_frame);
    }
    return S2_OK;
}

void cmd_schedule_rewind(struct cmd_schedule *s)
{
    for (size_t i = 0; i < s->prompts->n_prompts; i++) s->done[i] = false;
    s->left = s->prompts->n_prompts;
    s->last_frame = -1;
    s->last_time = s->last_interval = 0;
}

void cmd_schedule_close(struct cmd_schedule *s)
{
    free(s->all);
    free(s->now);
    free(s->done);
    free(s->prompted_frames);
    *s = (struct cmd_schedule){0};
}

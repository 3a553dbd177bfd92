/* prompts.c - sets of prompts: building, the checks that need no picture, sentences, freeing. */
#include "prompts.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ building */

/* Room for one more of n elements; the capacity is the power of two that holds n. */
static bool grow(void **array, size_t n, size_t element)
{
    if (n & (n - 1)) return true;
    size_t bytes;
    if (!s2_mul(n ? 2 * n : 1, element, &bytes)) return false;
    void *more = realloc(*array, bytes);
    if (more) *array = more;
    return more != NULL;
}

int fmt_prompts_find_object(const struct fmt_prompts *p, int id)
{
    for (size_t i = 0; i < p->n_objects; i++)
        if (p->objects[i].id == id) return (int)i;
    return -1;
}

int fmt_prompts_add_object(struct fmt_prompts *p, int id)
{
    void *array = p->objects;
    if (!grow(&array, p->n_objects, sizeof *p->objects)) return -1;
    p->objects = array;
    p->objects[p->n_objects] = (struct fmt_object){.id = id};
    return (int)p->n_objects++;
}

struct fmt_prompt *fmt_prompts_add(struct fmt_prompts *p)
{
    void *array = p->prompts;
    if (!grow(&array, p->n_prompts, sizeof *p->prompts)) return NULL;
    p->prompts = array;
    p->prompts[p->n_prompts] = (struct fmt_prompt){.mask_value = -1};
    return &p->prompts[p->n_prompts++];
}

enum s2_status fmt_prompt_reserve_points(struct s2_err *err, const struct fmt_prompts *p, struct fmt_prompt *q,
                                         int more)
{
    if (more > FMT_MAX_POINTS - q->n_points)
        return fmt_prompt_fail(err, p, q, "points", "more than %d points on one frame", FMT_MAX_POINTS);
    size_t n = (size_t)(q->n_points + more);
    float *xy = realloc(q->xy, n * 2 * sizeof *xy);
    if (xy) q->xy = xy;
    int8_t *labels = realloc(q->labels, n);
    if (labels) q->labels = labels;
    if (!xy || !labels) return s2_no_memory(err, "the points of a prompt", n * (2 * sizeof *xy + 1));
    return S2_OK;
}

void fmt_prompt_clear(struct fmt_prompt *q)
{
    free(q->xy);
    free(q->labels);
    free(q->mask_path);
    free(q->mask.data);
    *q = (struct fmt_prompt){.mask_value = -1};
}

void fmt_prompts_free(struct fmt_prompts *p)
{
    for (size_t i = 0; i < p->n_prompts; i++) fmt_prompt_clear(&p->prompts[i]);
    for (size_t i = 0; i < p->n_objects; i++) free(p->objects[i].label);
    free(p->prompts);
    free(p->objects);
    free(p->path);
    *p = (struct fmt_prompts){0};
}

/* ------------------------------------------------------------------ sentences */

bool fmt_prompt_is_quick(const struct fmt_prompt *q)
{
    return !strncmp(q->where, "--", 2);
}

enum s2_status fmt_prompt_fail(struct s2_err *err, const struct fmt_prompts *p, const struct fmt_prompt *q,
                               const char *member, const char *fmt, ...)
{
    char what[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (fmt_prompt_is_quick(q)) return s2_fail(err, S2_E_USAGE, "%s: %s", q->where, what);
    return s2_fail(err, S2_E_USAGE, "%s: %s%s%s: %s", p->path, q->where, *member ? "." : "", member, what);
}

/* "frame 3" or "2.5 s" */
static const char *moment(const struct fmt_prompt *q, char buf[32])
{
    if (q->by_time)
        snprintf(buf, 32, "%.9g s", q->time);
    else
        snprintf(buf, 32, "frame %lld", (long long)q->frame);
    return buf;
}

/* ------------------------------------------------------------------ one prompt */

enum s2_status fmt_prompt_check_point(struct s2_err *err, const struct fmt_prompts *p, const struct fmt_prompt *q,
                                      int i)
{
    char member[32];
    snprintf(member, sizeof member, "points[%d]", i);
    for (int a = 0; a < 2; a++) {
        float v = q->xy[2 * i + a];
        if (!isfinite(v)) return fmt_prompt_fail(err, p, q, member, "%c is too large", "xy"[a]);
        if (v < 0) return fmt_prompt_fail(err, p, q, member, "%c (%.7g) is negative", "xy"[a], v);
        if (p->normalized && v >= 1)
            return fmt_prompt_fail(err, p, q, member, "%c (%.7g) is not below 1, and the units are normalized", "xy"[a],
                                   v);
    }
    return S2_OK;
}

enum s2_status fmt_prompt_check_box(struct s2_err *err, const struct fmt_prompts *p, const struct fmt_prompt *q)
{
    static const char *const name[4] = {"x0", "y0", "x1", "y1"};
    for (int a = 0; a < 4; a++) {
        float v = q->box[a];
        if (!isfinite(v)) return fmt_prompt_fail(err, p, q, "box", "%s is too large", name[a]);
        if (v < 0) return fmt_prompt_fail(err, p, q, "box", "%s (%.7g) is negative", name[a], v);
        if (p->normalized && v > 1)
            return fmt_prompt_fail(err, p, q, "box", "%s (%.7g) is above 1, and the units are normalized", name[a], v);
    }
    if (q->box[2] <= q->box[0])
        return fmt_prompt_fail(err, p, q, "box", "x1 (%.7g) is not right of x0 (%.7g)", q->box[2], q->box[0]);
    if (q->box[3] <= q->box[1])
        return fmt_prompt_fail(err, p, q, "box", "y1 (%.7g) is not below y0 (%.7g)", q->box[3], q->box[1]);
    return S2_OK;
}

enum s2_status fmt_prompt_check_file(struct s2_err *err, const struct fmt_prompts *p, const struct fmt_prompt *q)
{
    struct stat st;
    if (stat(q->mask_path, &st) || access(q->mask_path, R_OK))
        return fmt_prompt_fail(err, p, q, "mask", "%s cannot be read: %s", q->mask_path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return fmt_prompt_fail(err, p, q, "mask", "%s is a folder", q->mask_path);
    if (!S_ISREG(st.st_mode)) return fmt_prompt_fail(err, p, q, "mask", "%s is no file", q->mask_path);
    return S2_OK;
}

/* ------------------------------------------------------------------ prompts of one object together */

/* By object, then by moment, prompts that count frames before those that count seconds, then as written. */
static int by_moment(const void *va, const void *vb)
{
    const struct fmt_prompt *a = *(const struct fmt_prompt *const *)va, *b = *(const struct fmt_prompt *const *)vb;
    if (a->object != b->object) return a->object < b->object ? -1 : 1;
    if (a->by_time != b->by_time) return a->by_time ? 1 : -1;
    if (a->by_time && a->time != b->time) return a->time < b->time ? -1 : 1;
    if (!a->by_time && a->frame != b->frame) return a->frame < b->frame ? -1 : 1;
    return a < b ? -1 : a > b;
}

static bool same_moment(const struct fmt_prompt *a, const struct fmt_prompt *b)
{
    return a->object == b->object && a->by_time == b->by_time &&
           (a->by_time ? a->time == b->time : a->frame == b->frame);
}

/* Two prompts of one object on one frame, a written before b. */
static enum s2_status check_pair(struct s2_err *err, const struct fmt_prompts *p, const struct fmt_prompt *a,
                                 const struct fmt_prompt *b)
{
    char when[32];
    int id = p->objects[a->object].id;
    moment(b, when);
    if (a->kind == S2_PROMPT_STOP || b->kind == S2_PROMPT_STOP)
        return fmt_prompt_fail(err, p, b, "", "object %d is both stopped and prompted at %s; see %s", id, when,
                               a->where);
    if (a->kind == S2_PROMPT_MASK || b->kind == S2_PROMPT_MASK)
        return fmt_prompt_fail(err, p, b, "",
                               "a mask stands alone, but %s prompts object %d at %s too; keep one of them", a->where,
                               id, when);
    return S2_OK;
}

/* The n prompts of one object, sorted: a stop needs a prompt somewhere. Whether one comes before it depends on the
 * direction of the run. */
static enum s2_status check_stops(struct s2_err *err, const struct fmt_prompts *p, struct fmt_prompt *const *q,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (q[i]->kind != S2_PROMPT_STOP) return S2_OK;
    return fmt_prompt_fail(err, p, q[0], "stop", "object %d is never prompted", p->objects[q[0]->object].id);
}

enum s2_status fmt_prompts_check_together(struct s2_err *err, const struct fmt_prompts *p)
{
    enum s2_status status = S2_OK;
    size_t n = p->n_prompts;
    if (!n) return S2_OK;
    struct fmt_prompt **order = malloc(n * sizeof *order);
    if (!order) return s2_no_memory(err, "the prompts", n * sizeof *order);
    for (size_t i = 0; i < n; i++) order[i] = &p->prompts[i];
    qsort(order, n, sizeof *order, by_moment);
    for (size_t i = 1; !status && i < n; i++)
        if (same_moment(order[i - 1], order[i])) status = check_pair(err, p, order[i - 1], order[i]);
    for (size_t i = 0, end; !status && i < n; i = end) {
        for (end = i; end < n && order[end]->object == order[i]->object;) end++;
        status = check_stops(err, p, order + i, end - i);
    }
    free(order);
    return status;
}

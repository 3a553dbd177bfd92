/* prompts_resolve.c - prompts against the video: frames, coordinates in pixels, masks at its size.
 *
 * Whole coordinates are columns and rows of pixels, as the reference takes them; fractions are allowed. A point lies
 * in 0 <= x < width, 0 <= y < height; a box may touch the edges, 0 <= x0 < x1 <= width. */
#include "prompts.h"

#include <math.h>
#include <stdio.h>

struct picture {
    const struct fmt_prompts *set;
    int width, height;
    struct s2_err *err;
};

static float to_pixels(float v, int side)
{
    return (float)((double)v * side);
}

static enum s2_status resolve_point(const struct picture *v, struct fmt_prompt *q, int i)
{
    const int side[2] = {v->width, v->height};
    char member[32];
    snprintf(member, sizeof member, "points[%d]", i);
    for (int a = 0; a < 2; a++) {
        float *x = &q->xy[2 * i + a];
        if (v->set->normalized) *x = fminf(to_pixels(*x, side[a]), nextafterf((float)side[a], 0));
        if (!(*x >= 0 && *x < (float)side[a]))
            return fmt_prompt_fail(v->err, v->set, q, member, "%c (%.7g) is outside the frame: 0 <= %c < %d", "xy"[a],
                                   *x, "xy"[a], side[a]);
    }
    return S2_OK;
}

static enum s2_status resolve_box(const struct picture *v, struct fmt_prompt *q)
{
    static const char *const name[4] = {"x0", "y0", "x1", "y1"};
    const int side[2] = {v->width, v->height};
    for (int a = 0; a < 4; a++) {
        if (v->set->normalized) q->box[a] = to_pixels(q->box[a], side[a % 2]);
        if (!(q->box[a] >= 0 && q->box[a] <= (float)side[a % 2]))
            return fmt_prompt_fail(v->err, v->set, q, "box", "%s (%.7g) is outside the frame: 0 <= %s <= %d", name[a],
                                   q->box[a], name[a], side[a % 2]);
    }
    if (q->box[2] <= q->box[0] || q->box[3] <= q->box[1])
        return fmt_prompt_fail(v->err, v->set, q, "box", "has no area on a frame of %dx%d", v->width, v->height);
    return S2_OK;
}

static bool is_empty(const struct s2_bits *m)
{
    for (int y = 0; y < m->height; y++)
        for (int i = 0; i < (m->width + 7) / 8; i++)
            if (m->data[(size_t)y * m->stride + (size_t)i]) return false;
    return true;
}

static enum s2_status resolve_mask(const struct picture *v, struct fmt_prompt *q)
{
    const char *file = q->mask_path ? q->mask_path : "the mask";
    struct s2_err why = {0};
    if (!q->mask.data && fmt_mask_read(q->mask_path, q->mask_value, &q->mask, &why)) {
        if (why.status == S2_E_DEVICE) return s2_fail(v->err, why.status, "%s", why.text);
        return fmt_prompt_fail(v->err, v->set, q, "mask", "%s", why.text);
    }
    if (q->mask.width != v->width || q->mask.height != v->height)
        return fmt_prompt_fail(v->err, v->set, q, "mask", "%s is %dx%d, but the video is %dx%d", file, q->mask.width,
                               q->mask.height, v->width, v->height);
    if (is_empty(&q->mask))
        s2_log(S2_LOG_WARN, "%s: %s: %s has no pixel inside; the object starts as absent", v->set->path, q->where,
               file);
    return S2_OK;
}

enum s2_status fmt_prompts_resolve(struct fmt_prompts *p, int width, int height, int64_t frames, struct s2_err *err)
{
    const struct picture v = {p, width, height, err};
    enum s2_status status = S2_OK;
    for (size_t i = 0; !status && i < p->n_prompts; i++) {
        struct fmt_prompt *q = &p->prompts[i];
        if (!q->by_time && frames >= 0 && q->frame >= frames)
            return fmt_prompt_fail(err, p, q, "frame", "frame %lld is past the end; the video has %lld frame%s, from 0",
                                   (long long)q->frame, (long long)frames, s2_plural(frames));
        for (int k = 0; !status && k < q->n_points; k++) status = resolve_point(&v, q, k);
        if (!status && q->has_box) status = resolve_box(&v, q);
        if (!status && q->kind == S2_PROMPT_MASK) status = resolve_mask(&v, q);
    }
    if (!status) p->normalized = false;
    return status;
}

/* session_step.c - what happens to each object on a frame; a step in two halves. */
#include <math.h>
#include <string.h>

#include "session.h"

static bool prompted(const struct s2_prompt *p, int n, int object)
{
    for (int i = 0; i < n; i++)
        if (p[i].object == object && p[i].kind != S2_PROMPT_STOP) return true;
    return false;
}

static enum s2_status check_prompts(const struct s2_session *s, const struct s2_prompt *p, int n, struct s2_err *err)
{
    for (int i = 0; i < n; i++) {
        if (p[i].object < 0 || p[i].object >= s->cfg.n_objects)
            return s2_fail(err, S2_E_INTERNAL, "a prompt names object position %d of %d", p[i].object,
                           s->cfg.n_objects);
        if (p[i].kind == S2_PROMPT_MASK && (p[i].mask.width != s->cfg.width || p[i].mask.height != s->cfg.height))
            return s2_fail(err, S2_E_USAGE, "a mask prompt is %d x %d, the video is %d x %d", p[i].mask.width,
                           p[i].mask.height, s->cfg.width, s->cfg.height);
    }
    for (int i = 0; s->backward && i < n; i++)
        if (p[i].kind != S2_PROMPT_STOP)
            return s2_fail(err, S2_E_INTERNAL, "object position %d is prompted on the way back", p[i].object);
    for (int o = 0; o < s->cfg.n_objects; o++) {
        int points = 0;
        for (int i = 0; i < n; i++)
            if (p[i].object == o && p[i].kind == S2_PROMPT_POINTS) points += p[i].n_points + (p[i].has_box ? 2 : 0);
        if (points > s->n_points - 1)
            return s2_fail(err, S2_E_INTERNAL, "an object has %d points on one frame, the session was opened for %d",
                           points, s->n_points - 1);
    }
    return S2_OK;
}

static void stop_objects(struct s2_session *s, const struct s2_prompt *p, int n)
{
    for (int i = 0; i < n; i++) {
        struct s2i_object *o = &s->object[p[i].object];
        if (p[i].kind != S2_PROMPT_STOP) continue;
        if (!s->backward) s2i_membank_end_life(&o->memories);
        o->ended = s->backward;
        o->started = false;
        s2i_blank(s, p[i].object);
    }
}

/* Fills table entry `entry`: what the object attends to, and where its memory of this frame goes. */
static void enter(struct s2_session *s, int entry, int object, bool attends, bool store, bool cond, int life)
{
    struct s2i_step_table *t = &s->table;
    t->object[entry] = object;
    struct s2i_membank *b = &s->object[object].memories;
    struct s2i_selection sel = {t->selection.counts + 2 * entry, t->selection.slot + entry * t->spatial_cap,
                                t->selection.row + entry * t->spatial_cap, t->selection.ptr_slot + entry * t->ptr_cap,
                                t->selection.ptr_dist + entry * t->ptr_cap};
    sel.counts[0] = sel.counts[1] = 0;
    if (attends) s2i_membank_select(b, s->frame, s->cfg.num_frames, &sel);
    t->store_slot[entry] = t->store_ptr[entry] = -1;
    if (store) {
        struct s2i_memory m = s2i_membank_insert(b, s->frame, cond, life);
        t->store_slot[entry] = m.slot, t->store_ptr[entry] = m.ptr_slot;
    }
}

static void upload_table(struct s2_session *s)
{
    struct s2_backend *be = s->be;
    OP(be, upload, s->table.device, s->table.host, s->table.bytes);
}

/* An entry that fills a batch: it attends to nothing and leaves nothing. */
static void enter_nothing(struct s2_session *s, int entry)
{
    struct s2i_step_table *t = &s->table;
    t->selection.counts[2 * entry] = t->selection.counts[2 * entry + 1] = 0;
    t->object[entry] = t->store_slot[entry] = t->store_ptr[entry] = -1;
}

/* False: a recording was replayed; else the operators up to end() are one program. */
static bool begin(struct s2_session *s, enum s2_program program, int batch, int outputs)
{
    const struct s2_signature sig = {.session = s->serial, .program = program, .batch = batch, .outputs = outputs};
    const char *why_not = s->cfg.tap                                                     ? "debug taps look inside"
                          : program == S2_PROGRAM_PROMPT || program == S2_PROGRAM_REFINE ? "prompts are not recorded"
                                                                                         : NULL;
    return !s->be->ops->begin || !s->be->ops->begin(s->be, &sig, why_not);
}

/* True: the operators are issued once more. */
static bool end(struct s2_session *s)
{
    return s->be->ops->end && s->be->ops->end(s->be);
}

struct s2i_features s2i_features_of(struct s2i_features f, int first, int n)
{
    return (struct s2i_features){s2_batch(f.f, first, n), s2_batch(f.s1, first, n), s2_batch(f.s0, first, n),
                                 s2_batch(f.t, first, n)};
}

enum { FEATURES = 4 };

static void list_features(struct s2_tensor list[FEATURES], struct s2i_features f)
{
    list[0] = f.f, list[1] = f.s1, list[2] = f.s0, list[3] = f.t;
}

/* The features of a frame, which nothing of the frames before is needed for; if `after` is given those of the frame
 * behind as well, in one batch. */
static void image_program(struct s2_session *s, const struct s2_image *image, const struct s2_image *after)
{
    const struct s2_ops *ops = s->be->ops;
    struct s2_tensor to[2 * FEATURES], from[2 * FEATURES];
    list_features(to, s->now);
    if (s->held_frame == s->frame) {
        list_features(from, s->held);
        OP(s->be, copy, FEATURES, to, from);
        return;
    }
    const int n = s->pairs && after ? 2 : 1;
    const struct s2_image frame[] = {*image, n == 2 ? *after : *image};
    if (s->ahead) ops->ahead_begin(s->be);
    if (!s->be->skip && ops->stage_images) ops->stage_images(s->be, n, frame);
    if (begin(s, S2_PROGRAM_IMAGE, n, 0)) {
        do {
            if (s->cfg.time_stages && ops->mark) OP(s->be, mark, 0);
            s2i_encode_images(s, n, frame);
        } while (end(s));
    }
    if (!s->ahead) return;
    list_features(to + FEATURES, s->held);
    for (int i = 0; i < n; i++) list_features(from + i * FEATURES, s2i_features_of(s->next, i, 1));
    ops->ahead_end(s->be, n * FEATURES, to, from);
    if (n == 2) s->held_frame = s->frame + 1;
}

/* n tracked objects (table entries 0 .. n-1, whole batches) */
static void track_program(struct s2_session *s, int n)
{
    int batch = n < s->be->max_batch ? n : s->be->max_batch;
    upload_table(s);
    if (!begin(s, S2_PROGRAM_TRACK, n, 0)) return;
    do {
        for (int i = 0; i < n; i += batch) s2i_track(s, i, n - i < batch ? n - i : batch);
    } while (end(s));
}

/* Masks and owners of all objects. */
static void results_program(struct s2_session *s, const struct s2_video_masks *out)
{
    struct s2_backend *be = s->be;
    const double start = s2_now();
    const int outputs = (out->owner ? S2_OUTPUT_OWNER : 0) | S2_OUTPUT_MASKS;
    if (!begin(s, S2_PROGRAM_RESULTS, s->cfg.n_objects, outputs)) return;
    do {
        OP(be, video_masks, out, s->low);
        s2i_lap(s, S2_STAGE_OUTPUT, start);
    } while (end(s));
}

static bool wanted(const struct s2_step_result *r, int n)
{
    bool any = r->owner != NULL;
    for (int i = 0; i < n; i++) any |= r->object[i].bits != NULL;
    return any;
}

/* What was computed on the device goes to where collect finds it, or straight to the caller. */
static void issue_downloads(struct s2_session *s, struct s2i_flight *f)
{
    struct s2_backend *be = s->be;
    const struct s2_step_result *r = &f->result;
    const int n = s->cfg.n_objects;
    const size_t plane = s2i_plane_bytes(s);
    OP(be, download, f->scores, s->score.data, (size_t)n * sizeof(float));
    OP(be, download, f->scores + n, s->iou.data, (size_t)n * sizeof(float));
    if (!s->device_bits || !wanted(r, n)) return;
    if (f->bits) OP(be, download, f->bits, s->device_bits, (size_t)n * plane);
    for (int i = 0; !f->bits && i < n; i++)
        if (r->object[i].bits) OP(be, download, r->object[i].bits, s->device_bits + (size_t)i * plane, plane);
    if (r->owner) OP(be, download, f->bits ? f->owner : r->owner, s->device_owner, s2i_owner_bytes(s));
}

/* Issues what brings the frame's results to the host, and keeps what the host knows of them. */
static void issue_results(struct s2_session *s, struct s2i_flight *f)
{
    struct s2_step_result *r = &f->result;
    const int n = s->cfg.n_objects;
    const bool device = s->device_bits != NULL;
    for (int i = 0; i < n; i++)
        s->bits[i] = device ? s->device_bits + (size_t)i * s2i_plane_bytes(s) : r->object[i].bits;
    const struct s2_video_masks out = {.width = s->cfg.width,
                                       .height = s->cfg.height,
                                       .bit_stride = device ? s->bit_stride : r->bit_stride,
                                       .exclusive = s->cfg.exclusive,
                                       .bits = s->bits,
                                       .owner = r->owner && device ? s->device_owner : r->owner};
    if (wanted(r, n)) results_program(s, &out);
    issue_downloads(s, f);
    for (int i = 0; i < n; i++) {
        struct s2_object_result *o = &r->object[i];
        o->started = s->object[i].started || s->object[i].shown;
        o->iou = s->iou_known[i] && o->started ? 0 : NAN;
        if (s->object[i].shown) s2i_blank(s, i);
        s->object[i].shown = false;
    }
}

static void copy_landed(const struct s2_session *s, const struct s2i_flight *f)
{
    const struct s2_step_result *r = &f->result;
    const size_t h = (size_t)s->cfg.height, row = r->bit_stride < s->bit_stride ? r->bit_stride : s->bit_stride;
    for (int i = 0; i < s->cfg.n_objects; i++) {
        const uint8_t *from = f->bits + (size_t)i * s2i_plane_bytes(s);
        for (size_t y = 0; r->object[i].bits && y < h; y++)
            memcpy(r->object[i].bits + y * r->bit_stride, from + y * s->bit_stride, row);
    }
    if (r->owner) memcpy(r->owner, f->owner, s2i_owner_bytes(s));
}

/* On the way back an object is tracked from the frame before its first prompt on. */
static void start_backward(struct s2_session *s)
{
    for (int i = 0; i < s->cfg.n_objects; i++) {
        struct s2i_object *o = &s->object[i];
        o->started = o->first > s->frame && !o->ended;
    }
}

/* The next frame's step; results of the objects are on their way when it returns. */
static void issue_step(struct s2_session *s, const struct s2_image *image, const struct s2_image *after,
                       const struct s2_prompt *p, int n, struct s2i_flight *f, struct s2_err *err)
{
    int objects = s->cfg.n_objects, n_tracked = 0, n_prompted = 0;
    bool ahead = s->cfg.late == S2_LATE_LOOKAHEAD;

    stop_objects(s, p, n);
    if (s->backward) start_backward(s);
    for (int i = 0; i < objects; i++) {
        if (!s->object[i].started || prompted(p, n, i)) continue;
        enter(s, n_tracked++, i, true, true, false, s->object[i].memories.life);
        s->iou_known[i] = true;
    }
    for (int i = 0; i < objects; i++) n_prompted += prompted(p, n, i);
    if (n_tracked + n_prompted > 0) image_program(s, image, after);
    if (n_tracked > 0) {
        int whole = s2i_bucket(s->be, n_tracked);
        for (int i = n_tracked; i < whole; i++) enter_nothing(s, i);
        track_program(s, whole);
    }
    for (int i = 0; i < objects; i++) { /* prompts are rare: one object at a time, table entry 0 */
        if (!prompted(p, n, i)) continue;
        bool refine = s->object[i].started && s->cfg.late == S2_LATE_REFINE;
        begin(s, refine ? S2_PROGRAM_REFINE : S2_PROGRAM_PROMPT, 1, 0);
        s2i_sync(s->be); /* the table is on its way no more */
        enter(s, 0, i, refine, !ahead, true, s->object[i].memories.life);
        upload_table(s);
        s2i_prompt(s, i, 0, p, n, refine, !ahead, err);
        end(s);
        s->object[i].started = true;
        if (s->object[i].first < 0) s->object[i].first = s->frame;
    }
    issue_results(s, f);
    s->frame += s->backward ? -1 : 1;
}

int s2_session_depth(const struct s2_session *s)
{
    return s->be->ops->step_begin ? S2_MAX_IN_FLIGHT : 1;
}

bool s2_session_pairs(const struct s2_session *s)
{
    return s->pairs;
}

int s2_session_in_flight(const struct s2_session *s)
{
    return (int)(s->submitted - s->collected);
}

enum s2_status s2_session_submit(struct s2_session *s, const struct s2_image *image, const struct s2_image *after,
                                 const struct s2_prompt *p, int n, const struct s2_step_result *result,
                                 struct s2_err *err)
{
    struct s2_backend *be = s->be;
    enum s2_status st = check_prompts(s, p, n, err);
    if (st != S2_OK) return st;
    if (s2_session_in_flight(s) >= s2_session_depth(s))
        return s2_fail(err, S2_E_INTERNAL, "a step was submitted while %d were in flight", s2_session_in_flight(s));
    struct s2i_flight *f = &s->flight[s->submitted % (uint64_t)s2_session_depth(s)];
    f->result = *result;
    s2i_carve_table(s, f->table);
    if (be->ops->step_begin) f->step = be->ops->step_begin(be);
    issue_step(s, image, after, p, n, f, err);
    if (be->ops->step_end) be->ops->step_end(be, f->step);
    if ((st = s2_backend_check(be, err)) == S2_OK) s->submitted++;
    return st;
}

static void add_stage_times(struct s2_session *s)
{
    struct s2_backend *be = s->be;
    for (int i = 0; i < S2_N_STAGES; i++) s->seconds[i] += be->ops->between(be, i, i + 1);
}

enum s2_status s2_session_collect(struct s2_session *s, struct s2_err *err)
{
    struct s2_backend *be = s->be;
    const int n = s->cfg.n_objects;
    if (s2_session_in_flight(s) == 0) return s2_fail(err, S2_E_INTERNAL, "there is no step to collect");
    const struct s2i_flight *f = &s->flight[s->collected++ % (uint64_t)s2_session_depth(s)];
    if (be->ops->step_wait) be->ops->step_wait(be, f->step);
    const enum s2_status st = s2_backend_check(be, err);
    if (st != S2_OK) return st;
    if (f->bits) copy_landed(s, f);
    for (int i = 0; i < n; i++) {
        f->result.object[i].score = f->scores[i];
        if (!isnan(f->result.object[i].iou)) f->result.object[i].iou = f->scores[n + i];
    }
    if (s->cfg.time_stages && be->ops->between) add_stage_times(s);
    return S2_OK;
}

enum s2_status s2_session_step(struct s2_session *s, const struct s2_image *image, const struct s2_prompt *p, int n,
                               struct s2_step_result *r, struct s2_err *err)
{
    const enum s2_status st = s2_session_submit(s, image, NULL, p, n, r, err);
    return st == S2_OK ? s2_session_collect(s, err) : st;
}

enum s2_status s2_session_preview(struct s2_session *s, int frame, const struct s2_image *image,
                                  const struct s2_prompt *p, int n, struct s2_err *err)
{
    enum s2_status st = check_prompts(s, p, n, err);
    if (st != S2_OK) return st;
    s2_tap_fn *tap = s->cfg.tap;
    bool encoded = false;

    s->cfg.tap = NULL; /* the step on this frame gives the taps */
    s->frame = frame;
    for (int i = 0; i < s->cfg.n_objects; i++) {
        for (int k = 0; k < n; k++)
            if (p[k].object == i && p[k].kind == S2_PROMPT_STOP) s->object[i].preview_life++;
        if (!prompted(p, n, i)) continue;
        if (!encoded) image_program(s, image, NULL);
        encoded = true;
        begin(s, S2_PROGRAM_PROMPT, 1, 0);
        enter(s, 0, i, false, true, true, s->object[i].preview_life);
        upload_table(s);
        s2i_prompt(s, i, 0, p, n, false, true, err);
        end(s);
        s2i_sync(s->be);
        s2i_blank(s, i);
    }
    s->frame = 0;
    s->cfg.tap = tap;
    return s2_backend_check(s->be, err);
}

enum s2_status s2_session_turn(struct s2_session *s, int frame, struct s2_err *err)
{
    if (!s->cfg.turns || s->backward)
        return s2_fail(err, S2_E_INTERNAL, "a session that was not opened for a way back was turned");
    s->backward = true;
    s->frame = frame;
    for (int i = 0; i < s->cfg.n_objects; i++) {
        s->object[i].started = false;
        s2i_membank_turn(&s->object[i].memories);
        s2i_blank(s, i);
    }
    return s2_backend_check(s->be, err);
}

void s2_session_show(struct s2_session *s, int object, const float *logits, float score, float iou)
{
    struct s2_backend *be = s->be;
    float known = isnan(iou) ? 0 : iou;
    OP(be, upload, s2_batch(s->low, object, 1).data, logits, (size_t)(16 * s->m->N) * sizeof(float));
    OP(be, upload, s2_batch(s->score, object, 1).data, &score, sizeof score);
    OP(be, upload, s2_batch(s->iou, object, 1).data, &known, sizeof known);
    s2i_sync(be); /* the caller's memory is read no more */
    s->iou_known[object] = !isnan(iou);
    s->object[object].shown = true;
}

const float *s2_session_logits(const struct s2_session *s, int object, int *side)
{
    if (object < 0 || object >= s->cfg.n_objects || !s->object[object].started || s->be->skip) return NULL;
    *side = 4 * s->m->G;
    s->be->ops->download(s->be, s->host_logits, s2_batch(s->low, object, 1).data,
                         (size_t)(16 * s->m->N) * sizeof(float));
    return s->host_logits;
}

/* session.c - opening, stepping and closing a session; what happens to each object on a frame. */
#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const stage_names[S2_N_STAGES] = {"image_encoder", "memory_attention", "decoder", "memory_encoder",
                                                     "output"};

/* ------------------------------------------------------------------ open */

static enum s2_status open_objects(struct s2_session *s, struct s2_err *err)
{
    int slots = 0, pointers = 0;
    for (int i = 0; i < s->cfg.n_objects; i++) {
        struct s2i_membank *b = &s->object[i].memories;
        enum s2_status st = s2i_membank_init(b, s->cfg.prompted_frames[i], s->cfg.max_cond_frames,
                                             s->cfg.late == S2_LATE_LOOKAHEAD, s->cfg.turns, err);
        if (st != S2_OK) return st;
        s->object[i].first = -1;
        b->first_slot = slots, b->first_ptr = pointers;
        slots += b->slots, pointers += b->ptr_slots;
        if (b->spatial_cap > s->table.spatial_cap) s->table.spatial_cap = b->spatial_cap;
        if (b->ptr_cap > s->table.ptr_cap) s->table.ptr_cap = b->ptr_cap;
    }
    s->bank = (struct s2_bank){
        .tokens = s->m->N, .dim = S2_MEMORY_DIM, .slots = slots, .ptr_slots = pointers, .ptr_dim = S2_MODEL_DIM};
    return S2_OK;
}

static void *host_alloc(struct s2_session *s, size_t bytes)
{
    void *p = s->be->ops->alloc_host ? s->be->ops->alloc_host(s->be, bytes) : malloc(bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

static void host_free(struct s2_session *s, void *p)
{
    if (p && s->be->ops->free_host)
        s->be->ops->free_host(s->be, p);
    else
        free(p);
}

/* How many table entries a batch of n objects takes: a backend that records programs gets few sizes. */
static int bucket(const struct s2_backend *be, int n)
{
    int size = 1;
    if (!be->ops->begin) return n;
    while (size < n && size < be->max_batch) size *= 2;
    return (n + size - 1) / size * size;
}

/* Carves the step table: the same offsets on host and backend. */
static enum s2_status open_table(struct s2_session *s, struct s2_err *err)
{
    struct s2i_step_table *t = &s->table;
    t->entries = bucket(s->be, s->cfg.n_objects);
    size_t n = (size_t)t->entries, spatial = n * (size_t)t->spatial_cap, pointers = n * (size_t)t->ptr_cap;
    size_t cells = 2 * n + 2 * spatial + 2 * pointers + 3 * n + 3 * (size_t)s->n_points;

    t->bytes = cells * sizeof(int32_t);
    if (!(t->host = host_alloc(s, t->bytes))) return s2_no_memory(err, "the step table", t->bytes);
    int32_t *p = (int32_t *)(void *)t->host;
    t->selection.counts = p, p += 2 * n;
    t->selection.slot = p, p += spatial;
    t->selection.row = p, p += spatial;
    t->selection.ptr_slot = p, p += pointers;
    t->selection.ptr_dist = (float *)(void *)p, p += pointers;
    t->object = p, p += n;
    t->store_slot = p, p += n;
    t->store_ptr = p, p += n;
    t->points = (float *)(void *)p;
    return S2_OK;
}

/* Where a device writes its results; on the CPU they go straight to the caller. */
static enum s2_status open_pinned(struct s2_session *s, struct s2_err *err)
{
    size_t n = (size_t)s->cfg.n_objects, w = (size_t)s->cfg.width, h = (size_t)s->cfg.height;
    s->host_scores = host_alloc(s, 2 * n * sizeof *s->host_scores);
    if (!s->host_scores) return s2_no_memory(err, "scores", 2 * n * sizeof *s->host_scores);
    if (!s->be->ops->alloc_host) return S2_OK;
    s->pinned_stride = (w + 31) / 32 * 4;
    s->pinned_bits = host_alloc(s, n * h * s->pinned_stride);
    if (s->cfg.want_owner) s->pinned_owner = host_alloc(s, w * h * sizeof *s->pinned_owner);
    if (!s->pinned_bits || (s->cfg.want_owner && !s->pinned_owner))
        return s2_no_memory(err, "masks", n * h * s->pinned_stride);
    return S2_OK;
}

static void *device(struct s2_session *s, size_t bytes)
{
    return s->be->skip ? NULL : s->be->ops->alloc(s->be, bytes);
}

static struct s2_tensor device_tensor(struct s2_session *s, enum s2_dtype type, int n, int h, int w, int c)
{
    struct s2_tensor t = s2i_tensor(NULL, type, n, h, w, c);
    t.data = device(s, (size_t)s2_elements(t) * s2_dtype_size(type));
    return t;
}

static enum s2_status open_device(struct s2_session *s, struct s2_err *err)
{
    struct s2_backend *be = s->be;
    int n = s->cfg.n_objects, g = s->m->G, batch = be->max_batch;
    float pad[6] = {0, 0, -1, 0, 0, -1};

    s->f = device_tensor(s, be->act, 1, g, g, S2_MODEL_DIM);
    s->s1 = device_tensor(s, be->act, 1, 2 * g, 2 * g, s->m->neck.s1.out);
    s->s0 = device_tensor(s, be->act, 1, 4 * g, 4 * g, s->m->neck.s0.out);
    s->low = device_tensor(s, S2_F32, n, 4 * g, 4 * g, 1);
    s->score = device_tensor(s, S2_F32, n, 1, 1, 1);
    s->iou = device_tensor(s, S2_F32, n, 1, 1, 1);
    s->no_points = device(s, (size_t)batch * sizeof pad);
    s->bank.spatial = device(s, (size_t)s->bank.slots * (size_t)s->m->N * S2_MEMORY_DIM * sizeof(uint16_t));
    s->bank.pointers = device(s, (size_t)s->bank.ptr_slots * S2_MODEL_DIM * sizeof(float));
    s->table.device = device(s, s->table.bytes);
    for (int i = 0; i < batch; i++) OP(be, upload, s->no_points + 6 * i, pad, sizeof pad);

    if (s2_backend_check(be, err) == S2_OK) {
        be->skip = true; /* measure the workspace */
        s2i_measure(s);
        be->skip = false;
        s->ws.base = device(s, s->ws.peak);
    }
    return s2_backend_check(be, err);
}

/* The object's mask is empty: not started, or stopped. */
static void blank(struct s2_session *s, int object)
{
    struct s2_backend *be = s->be;
    size_t count = (size_t)(16 * s->m->N);
    float absent = -1024.0f, zero = 0;
    for (size_t i = 0; i < count; i++) s->host_logits[i] = absent;
    OP(be, upload, s2_batch(s->low, object, 1).data, s->host_logits, count * sizeof(float));
    OP(be, upload, s2_batch(s->score, object, 1).data, &absent, sizeof absent);
    OP(be, upload, s2_batch(s->iou, object, 1).data, &zero, sizeof zero);
}

enum s2_status s2_session_open(struct s2_session **out, struct s2_model *m, const struct s2_session_config *cfg,
                               struct s2_err *err)
{
    if (cfg->n_objects < 1) return s2_fail(err, S2_E_USAGE, "there is no object to track; give at least one prompt");
    if (cfg->max_cond_frames < 0 || cfg->max_cond_frames == 1)
        return s2_fail(err, S2_E_USAGE, "the cap on prompted frames in memory is %d; it must be 0 (none) or at least 2",
                       cfg->max_cond_frames);

    struct s2_session *s = calloc(1, sizeof *s);
    if (!s) return s2_no_memory(err, "a session", sizeof *s);
    enum s2_status st = S2_E_DEVICE;
    size_t n = (size_t)cfg->n_objects, logits = (size_t)(16 * m->N);
    s->m = m, s->be = m->be, s->cfg = *cfg;
    s->ws.act = m->be->act;
    static uint64_t sessions;
    s->serial = __atomic_add_fetch(&sessions, 1, __ATOMIC_RELAXED);
    s->n_points = (cfg->max_points > 2 ? cfg->max_points : 2) + 1;
    s->object = calloc(n, sizeof *s->object);
    s->host_logits = calloc(2 * logits, sizeof *s->host_logits);
    s->bits = calloc(n, sizeof *s->bits);
    s->iou_known = calloc(n, sizeof *s->iou_known);
    if (!s->object || !s->host_logits || !s->bits || !s->iou_known) {
        st = s2_no_memory(err, "a session", 2 * logits * sizeof *s->host_logits);
        goto fail;
    }
    if ((st = open_objects(s, err)) != S2_OK) goto fail;
    if ((st = open_table(s, err)) != S2_OK) goto fail;
    if ((st = open_pinned(s, err)) != S2_OK) goto fail;
    if ((st = open_device(s, err)) != S2_OK) goto fail;
    for (int i = 0; i < cfg->n_objects; i++) blank(s, i);
    if ((st = s2_backend_check(s->be, err)) != S2_OK) goto fail;
    s->cfg.prompted_frames = NULL; /* the caller's */
    *out = s;
    return S2_OK;
fail:
    s2_session_free(s);
    return st;
}

void s2_session_free(struct s2_session *s)
{
    if (!s) return;
    if (s->be->ops->forget) s->be->ops->forget(s->be, s->serial);
    void *owned[] = {s->f.data,    s->s1.data,      s->s0.data,       s->low.data,     s->score.data, s->iou.data,
                     s->no_points, s->bank.spatial, s->bank.pointers, s->table.device, s->ws.base};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (owned[i]) s->be->ops->free(s->be, owned[i]);
    for (int i = 0; s->object && i < s->cfg.n_objects; i++) s2i_membank_free(&s->object[i].memories);
    host_free(s, s->table.host), host_free(s, s->host_scores), host_free(s, s->pinned_bits),
        host_free(s, s->pinned_owner);
    free(s->object), free(s->host_logits), free(s->bits), free(s->iou_known);
    free(s);
}

/* ------------------------------------------------------------------ a frame */

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
        blank(s, p[i].object);
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

static void stage_image(struct s2_session *s, const struct s2_image *image)
{
    if (!s->be->skip && s->be->ops->stage_image) s->be->ops->stage_image(s->be, image);
}

/* Image features, and n tracked objects (table entries 0 .. n-1, whole batches) */
static void track_program(struct s2_session *s, const struct s2_image *image, int n)
{
    int batch = n < s->be->max_batch ? n : s->be->max_batch;
    stage_image(s, image);
    if (!begin(s, S2_PROGRAM_TRACK, n, 0)) return;
    do {
        upload_table(s);
        s2i_encode_image(s, image);
        for (int i = 0; i < n; i += batch) s2i_track(s, i, n - i < batch ? n - i : batch);
    } while (end(s));
}

/* Scores, masks and owners of all objects to the host. */
static void results_program(struct s2_session *s, const struct s2_video_masks *out, bool wanted)
{
    struct s2_backend *be = s->be;
    size_t n = (size_t)s->cfg.n_objects;
    const int outputs = (out->owner ? S2_OUTPUT_OWNER : 0) | (wanted ? S2_OUTPUT_MASKS : 0);
    if (!begin(s, S2_PROGRAM_RESULTS, (int)n, outputs)) return;
    do {
        OP(be, download, s->host_scores, s->score.data, n * sizeof(float));
        OP(be, download, s->host_scores + n, s->iou.data, n * sizeof(float));
        if (wanted) OP(be, video_masks, out, s->low);
    } while (end(s));
}

static void copy_pinned(struct s2_session *s, struct s2_step_result *r)
{
    size_t h = (size_t)s->cfg.height, stride = s->pinned_stride;
    for (int i = 0; i < s->cfg.n_objects; i++) {
        const uint8_t *from = s->pinned_bits + (size_t)i * h * stride;
        for (size_t y = 0; r->object[i].bits && y < h; y++)
            memcpy(r->object[i].bits + y * r->bit_stride, from + y * stride,
                   r->bit_stride < stride ? r->bit_stride : stride);
    }
    if (r->owner) memcpy(r->owner, s->pinned_owner, (size_t)s->cfg.width * h * sizeof *r->owner);
}

static void give_results(struct s2_session *s, struct s2_step_result *r)
{
    int n = s->cfg.n_objects;
    double t = s2_now();
    bool wanted = r->owner != NULL, pinned = s->pinned_bits != NULL;
    for (int i = 0; i < n; i++) {
        wanted |= r->object[i].bits != NULL;
        s->bits[i] = pinned ? s->pinned_bits + (size_t)i * (size_t)s->cfg.height * s->pinned_stride : r->object[i].bits;
    }
    struct s2_video_masks out = {.width = s->cfg.width,
                                 .height = s->cfg.height,
                                 .bit_stride = pinned ? s->pinned_stride : r->bit_stride,
                                 .exclusive = s->cfg.exclusive,
                                 .bits = s->bits,
                                 .owner = r->owner && pinned ? s->pinned_owner : r->owner};
    results_program(s, &out, wanted);
    s2i_sync(s->be);
    if (pinned && !s->be->skip) copy_pinned(s, r);
    for (int i = 0; i < n; i++) {
        struct s2_object_result *o = &r->object[i];
        o->started = s->object[i].started || s->object[i].shown;
        o->score = s->host_scores[i];
        o->iou = s->iou_known[i] && o->started ? s->host_scores[n + i] : NAN;
        if (s->object[i].shown) blank(s, i);
        s->object[i].shown = false;
    }
    s->seconds[S2_STAGE_OUTPUT] += s2_now() - t;
}

/* On the way back an object is tracked from the frame before its first prompt on. */
static void start_backward(struct s2_session *s)
{
    for (int i = 0; i < s->cfg.n_objects; i++) {
        struct s2i_object *o = &s->object[i];
        o->started = o->first > s->frame && !o->ended;
    }
}

enum s2_status s2_session_step(struct s2_session *s, const struct s2_image *image, const struct s2_prompt *p, int n,
                               struct s2_step_result *r, struct s2_err *err)
{
    int objects = s->cfg.n_objects, n_tracked = 0, n_prompted = 0;
    bool ahead = s->cfg.late == S2_LATE_LOOKAHEAD;
    enum s2_status st = check_prompts(s, p, n, err);
    if (st != S2_OK) return st;

    stop_objects(s, p, n);
    if (s->backward) start_backward(s);
    for (int i = 0; i < objects; i++) {
        if (!s->object[i].started || prompted(p, n, i)) continue;
        enter(s, n_tracked++, i, true, true, false, s->object[i].memories.life);
        s->iou_known[i] = true;
    }
    if (n_tracked > 0) {
        int whole = bucket(s->be, n_tracked);
        for (int i = n_tracked; i < whole; i++) enter_nothing(s, i);
        track_program(s, image, whole);
    }
    for (int i = 0; i < objects; i++) { /* prompts are rare: one object at a time, table entry 0 */
        if (!prompted(p, n, i)) continue;
        bool refine = s->object[i].started && s->cfg.late == S2_LATE_REFINE;
        begin(s, refine ? S2_PROGRAM_REFINE : S2_PROGRAM_PROMPT, 1, 0);
        if (n_tracked == 0 && n_prompted++ == 0) {
            stage_image(s, image);
            s2i_encode_image(s, image);
        }
        s2i_sync(s->be); /* the table is on its way no more */
        enter(s, 0, i, refine, !ahead, true, s->object[i].memories.life);
        upload_table(s);
        s2i_prompt(s, i, 0, p, n, refine, !ahead, err);
        end(s);
        s->object[i].started = true;
        if (s->object[i].first < 0) s->object[i].first = s->frame;
    }
    give_results(s, r);
    s->frame += s->backward ? -1 : 1;
    return s2_backend_check(s->be, err);
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
        begin(s, S2_PROGRAM_PROMPT, 1, 0);
        enter(s, 0, i, false, true, true, s->object[i].preview_life);
        upload_table(s);
        if (!encoded) {
            stage_image(s, image);
            s2i_encode_image(s, image);
        }
        encoded = true;
        s2i_prompt(s, i, 0, p, n, false, true, err);
        end(s);
        s2i_sync(s->be);
        blank(s, i);
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
        blank(s, i);
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

int s2_session_times(const struct s2_session *s, const char *const **names, const double **seconds)
{
    *names = stage_names;
    *seconds = s->seconds;
    return S2_N_STAGES;
}

const float *s2_session_logits(const struct s2_session *s, int object, int *side)
{
    if (object < 0 || object >= s->cfg.n_objects || !s->object[object].started || s->be->skip) return NULL;
    *side = 4 * s->m->G;
    s->be->ops->download(s->be, s->host_logits, s2_batch(s->low, object, 1).data,
                         (size_t)(16 * s->m->N) * sizeof(float));
    return s->host_logits;
}

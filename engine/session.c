/* session.c - opening and closing a session: everything a clip needs in memory. */
#include "session.h"

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

int s2i_bucket(const struct s2_backend *be, int n)
{
    int size = 1;
    if (!be->ops->begin) return n;
    while (size < n && size < be->max_batch) size *= 2;
    return (n + size - 1) / size * size;
}

void s2i_carve_table(struct s2_session *s, char *host)
{
    struct s2i_step_table *t = &s->table;
    const size_t n = (size_t)t->entries, spatial = n * (size_t)t->spatial_cap, pointers = n * (size_t)t->ptr_cap;
    int32_t *p = (int32_t *)(void *)host;
    t->host = host;
    t->selection.counts = p, p += 2 * n;
    t->selection.slot = p, p += spatial;
    t->selection.row = p, p += spatial;
    t->selection.ptr_slot = p, p += pointers;
    t->selection.ptr_dist = (float *)(void *)p, p += pointers;
    t->object = p, p += n;
    t->store_slot = p, p += n;
    t->store_ptr = p, p += n;
    t->points = (float *)(void *)p;
}

static enum s2_status open_table(struct s2_session *s, struct s2_err *err)
{
    struct s2i_step_table *t = &s->table;
    t->entries = s2i_bucket(s->be, s->cfg.n_objects);
    size_t n = (size_t)t->entries, spatial = n * (size_t)t->spatial_cap, pointers = n * (size_t)t->ptr_cap;
    size_t cells = 2 * n + 2 * spatial + 2 * pointers + 3 * n + 3 * (size_t)s->n_points;

    t->bytes = cells * sizeof(int32_t);
    for (int i = 0; i < s2_session_depth(s); i++)
        if (!(s->flight[i].table = host_alloc(s, t->bytes))) return s2_no_memory(err, "the step table", t->bytes);
    s2i_carve_table(s, s->flight[0].table);
    return S2_OK;
}

size_t s2i_plane_bytes(const struct s2_session *s)
{
    return (size_t)s->cfg.height * s->bit_stride;
}

size_t s2i_owner_bytes(const struct s2_session *s)
{
    return (size_t)s->cfg.width * (size_t)s->cfg.height * sizeof(uint16_t);
}

static void *alloc_host(void *be, size_t bytes)
{
    return ((struct s2_backend *)be)->ops->alloc_host(be, bytes);
}

static void free_host(void *be, void *p)
{
    ((struct s2_backend *)be)->ops->free_host(be, p);
}

bool s2_host_memory(struct s2_backend *be, struct s2_memory *out)
{
    *out = (struct s2_memory){.alloc = alloc_host, .free = free_host, .ctx = be};
    return be->ops->alloc_host != NULL;
}

/* Where a device's results arrive that do not go straight to the caller, as those of the CPU do. */
static enum s2_status open_landing(struct s2_session *s, struct s2_err *err)
{
    const size_t n = (size_t)s->cfg.n_objects, scores = 2 * n * sizeof(float);
    s->bit_stride = s2_mask_stride(s->cfg.width);
    for (int i = 0; i < s2_session_depth(s); i++) {
        struct s2i_flight *f = &s->flight[i];
        if (!(f->scores = host_alloc(s, scores))) return s2_no_memory(err, "scores", scores);
        if (!s->be->ops->alloc_host || s->cfg.direct) continue;
        f->bits = host_alloc(s, n * s2i_plane_bytes(s));
        if (s->cfg.want_owner) f->owner = host_alloc(s, s2i_owner_bytes(s));
        if (!f->bits || (s->cfg.want_owner && !f->owner)) return s2_no_memory(err, "masks", n * s2i_plane_bytes(s));
    }
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

static struct s2i_features device_features(struct s2_session *s, int n)
{
    const int g = s->m->G;
    const enum s2_dtype act = s->be->act;
    return (struct s2i_features){.f = device_tensor(s, act, n, g, g, S2_MODEL_DIM),
                                 .s1 = device_tensor(s, act, n, 2 * g, 2 * g, s->m->neck.s1.out),
                                 .s0 = device_tensor(s, act, n, 4 * g, 4 * g, s->m->neck.s0.out),
                                 .t = device_tensor(s, act, n, 1, s->m->N, S2_MODEL_DIM)};
}

static void free_device(struct s2_session *s, void *p)
{
    if (p) s->be->ops->free(s->be, p);
}

static void free_features(struct s2_session *s, struct s2i_features f)
{
    free_device(s, f.f.data), free_device(s, f.s1.data), free_device(s, f.s0.data), free_device(s, f.t.data);
}

/* What runs ahead has a workspace of its own. */
static void open_workspaces(struct s2_session *s)
{
    struct s2i_workspace *ws = &s->ws, *image = &s->image_ws;
    s->be->skip = true;
    s2i_measure(s);
    s->be->skip = false;
    if (!s->ahead && image->peak > ws->peak) ws->peak = image->peak;
    ws->base = device(s, ws->peak);
    image->base = s->ahead ? device(s, image->peak) : ws->base;
}

static enum s2_status open_device(struct s2_session *s, struct s2_err *err)
{
    struct s2_backend *be = s->be;
    int n = s->cfg.n_objects, g = s->m->G, batch = be->max_batch;
    float pad[6] = {0, 0, -1, 0, 0, -1};

    s->now = device_features(s, 1);
    s->next = s->ahead ? device_features(s, s->pairs ? 2 : 1) : s->now;
    if (s->pairs) s->held = device_features(s, 1);
    s->low = device_tensor(s, S2_F32, n, 4 * g, 4 * g, 1);
    s->score = device_tensor(s, S2_F32, n, 1, 1, 1);
    s->iou = device_tensor(s, S2_F32, n, 1, 1, 1);
    s->no_points = device(s, (size_t)batch * sizeof pad);
    s->bank.spatial = device(s, (size_t)s->bank.slots * (size_t)s->m->N * S2_MEMORY_DIM * sizeof(uint16_t));
    s->bank.pointers = device(s, (size_t)s->bank.ptr_slots * S2_MODEL_DIM * sizeof(float));
    s->table.device = device(s, s->table.bytes);
    if (be->ops->alloc_host) {
        s->device_bits = device(s, (size_t)n * s2i_plane_bytes(s));
        if (s->cfg.want_owner) s->device_owner = device(s, s2i_owner_bytes(s));
    }
    for (int i = 0; i < batch; i++) OP(be, upload, s->no_points + 6 * i, pad, sizeof pad);

    if (s2_backend_check(be, err) == S2_OK) open_workspaces(s);
    return s2_backend_check(be, err);
}

void s2i_blank(struct s2_session *s, int object)
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
    s->ws.act = s->image_ws.act = m->be->act;
    s->ahead = m->be->ops->ahead_begin && !cfg->time_stages;
    s->pairs = s->ahead && cfg->pairs && !cfg->tap;
    s->held_frame = -1;
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
    if ((st = open_landing(s, err)) != S2_OK) goto fail;
    if ((st = open_device(s, err)) != S2_OK) goto fail;
    for (int i = 0; i < cfg->n_objects; i++) s2i_blank(s, i);
    s2i_sync(s->be); /* what runs ahead does not wait for this */
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
    if (s->be->ops->sync) s->be->ops->sync(s->be); /* steps may be on their way */
    free_features(s, s->now);
    if (s->ahead) free_features(s, s->next);
    free_features(s, s->held);
    void *owned[] = {s->low.data,
                     s->score.data,
                     s->iou.data,
                     s->no_points,
                     s->device_bits,
                     s->device_owner,
                     s->bank.spatial,
                     s->bank.pointers,
                     s->table.device,
                     s->ws.base,
                     s->ahead ? s->image_ws.base : NULL};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free_device(s, owned[i]);
    for (int i = 0; s->object && i < s->cfg.n_objects; i++) s2i_membank_free(&s->object[i].memories);
    for (int i = 0; i < S2_MAX_IN_FLIGHT; i++) {
        struct s2i_flight *f = &s->flight[i];
        host_free(s, f->table), host_free(s, f->scores), host_free(s, f->bits), host_free(s, f->owner);
    }
    free(s->object), free(s->host_logits), free(s->bits), free(s->iou_known);
    free(s);
}

int s2_session_times(const struct s2_session *s, const char *const **names, const double **seconds)
{
    *names = stage_names;
    *seconds = s->seconds;
    return S2_N_STAGES;
}

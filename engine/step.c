/* step.c - one frame's computation: image features, tracking, prompts, memories.
 * Source: sam2/modeling/sam2_base.py track_step, _forward_sam_heads, _use_mask_as_output, _encode_new_memory;
 * sam2/sam2_video_predictor.py _run_single_frame_inference, propagate_in_video_preflight. */
#include <math.h>
#include <string.h>

#include "session.h"

void s2i_lap(struct s2_session *s, enum s2i_stage stage, double since)
{
    struct s2_backend *be = s->be;
    if (!be->ops->mark) s->seconds[stage] += s2_now() - since;
    if (be->ops->mark && s->cfg.time_stages) OP(be, mark, (int)stage + 1);
}

static void see_stage(void *ctx, int stage, struct s2_tensor map)
{
    static const char *const names[] = {"I", "C2", "C3", "C4", "C5"};
    s2i_tap_map(ctx, names[stage + 1], map, 0);
}

void s2i_encode_images(struct s2_session *s, int n, const struct s2_image *frame)
{
    const struct s2_model *m = s->m;
    struct s2i_tap_scope tap = {s, -1, "image"};
    const struct s2i_features out = s2i_features_of(s->next, 0, n);
    const struct s2i_stage_probe see = {see_stage, &tap};
    double t = s2_now();

    s2i_image_encoder_forward(m, &s->image_ws, frame, out.f, out.s1, out.s0, s->cfg.tap ? &see : NULL);
    s2i_tap_map(&tap, "P2", out.f, 0);
    s2i_tap_map(&tap, "PE256", m->pe256, 0);
    s2i_tap_map(&tap, "S0", out.s0, 0);
    s2i_tap_map(&tap, "S1", out.s1, 0);
    s2i_lap(s, S2_STAGE_IMAGE, t);

    t = s2_now();
    s2i_self_seen_forward(m, &s->image_ws, out.t, out.f);
    s2i_lap(s, S2_STAGE_MEMORY_ATTENTION, t);
}

struct s2_bank_table s2i_table_at(const struct s2_session *s, int entry)
{
    const struct s2i_step_table *t = &s->table;
    size_t e = (size_t)entry;
/* the device copy has the host copy's layout */
#define ON_DEVICE(p) (const void *)(t->device + ((const char *)(p)-t->host))
    return (struct s2_bank_table){
        .spatial_cap = t->spatial_cap,
        .ptr_cap = t->ptr_cap,
        .counts = ON_DEVICE(t->selection.counts + 2 * e),
        .slot = ON_DEVICE(t->selection.slot + e * (size_t)t->spatial_cap),
        .row = ON_DEVICE(t->selection.row + e * (size_t)t->spatial_cap),
        .ptr_slot = ON_DEVICE(t->selection.ptr_slot + e * (size_t)t->ptr_cap),
        .ptr_dist = ON_DEVICE(t->selection.ptr_dist + e * (size_t)t->ptr_cap),
    };
#undef ON_DEVICE
}

static const int32_t *on_device(const struct s2_session *s, const int32_t *host)
{
    return (const int32_t *)(const void *)(s->table.device + ((const char *)host - s->table.host));
}

/* ------------------------------------------------------------------ taps around the forward passes */

struct probe {
    struct s2_session *s;
    const char *kind;
    int first, n; /* table entries = positions in s->tracked, or one object's entry */
    const int32_t *object;
};

static void see_layer(void *ctx, int layer, struct s2_tensor t)
{
    const struct probe *p = ctx;
    for (int i = 0; i < p->n; i++) {
        struct s2i_tap_scope tap = {p->s, p->object[i], p->kind};
        char name[] = "memattn0";
        name[7] = (char)('0' + layer);
        if (layer < 0)
            s2i_tap_bank(&tap, p->first + i, t, i);
        else
            s2i_tap_tokens(&tap, name, t, i);
    }
}

static void tap_decoded(const struct s2i_tap_scope *tap, const struct s2i_decoded *d, struct s2_tensor dense, int i)
{
    int side = 4 * tap->s->m->G;
    s2i_tap_tokens(tap, "sparse", d->sparse, i);
    s2i_tap_map(tap, "dense", dense, 0);
    s2i_tap_tokens(tap, "T", d->tokens, i);
    s2i_tap_tokens(tap, "K", d->image, i);
    struct s2_tensor four = s2i_tensor((char *)d->masks.data + (size_t)i * 4 * (size_t)(side * side) * sizeof(float),
                                       S2_F32, 4, side, side, 1);
    s2i_tap_vector(tap, "masks4", four, -1);
    s2i_tap_vector(tap, "iou4", d->iou, i);
}

static void tap_result(const struct s2i_tap_scope *tap, struct s2_tensor low, struct s2_tensor score,
                       struct s2_tensor pointer, int i)
{
    s2i_tap_vector(tap, "low", low, i);
    s2i_tap_vector(tap, "score", score, i);
    s2i_tap_vector(tap, "ptr", pointer, i);
}

/* ------------------------------------------------------------------ pieces */

/* The decoder's answer and its object pointer. low f32 {n,side,side,1}, pointer f32 {n,1,1,256}, iou f32 {n,1,1,1} */
static void answer(struct s2_session *s, const struct s2i_decoded *d, bool multimask, struct s2_tensor low,
                   struct s2_tensor iou, struct s2_tensor pointer)
{
    struct s2_backend *be = s->be;
    const struct s2_model *m = s->m;
    size_t mark = s->ws.used;
    int n = low.n;
    struct s2_tensor token = s2i_act(&s->ws, n, 1, 1, S2_MODEL_DIM);
    struct s2_tensor room = s2i_act(&s->ws, 1, 1, 1, (int)s2_decoder_room(n, 1, 0));
    const struct s2_head head = {0, m->pointer.layer, S2_ACT_NONE, pointer};

    OP(be, choose, s2_shape(low, n, 1, low.h * low.w, 1), token, iou, d->masks, d->iou, d->score, d->tokens, 2,
       multimask);
    OP(be, token_heads, 1, &head, token, room);
    OP(be, where_absent, pointer, d->score, m->no_object_pointer, true);
    s->ws.used = mark;
}

/* Memory of low-res logits: binarised where it comes from prompts. */
static void remember(struct s2_session *s, int entry, const int32_t *objects, struct s2_tensor low,
                     struct s2_tensor score, struct s2_tensor pointer, bool from_prompt, const char *kind)
{
    struct s2_backend *be = s->be;
    const struct s2_model *m = s->m;
    size_t mark = s->ws.used;
    double t = s2_now();
    int n = low.n;
    struct s2_tensor mask = s2i_act(&s->ws, n, m->S, m->S, 1), memory = s2i_act(&s->ws, n, m->G, m->G, S2_MEMORY_DIM);

    OP(be, memory_mask, mask, low, from_prompt);
    s2i_memory_encoder_forward(m, &s->ws, memory, mask, s->now.f);
    if (m->no_object_memory) OP(be, where_absent, memory, score, m->no_object_memory, false);
    OP(be, bank_store, &s->bank, on_device(s, s->table.store_slot + entry), on_device(s, s->table.store_ptr + entry),
       memory, pointer);
    for (int i = 0; i < n; i++) {
        struct s2i_tap_scope tap = {s, objects[i], kind};
        s2i_tap_map(&tap, "memin", mask, i);
        s2i_tap_map(&tap, "memnew", memory, i);
    }
    s->ws.used = mark;
    s2i_lap(s, S2_STAGE_MEMORY_ENCODER, t);
}

/* x {n,1,N,256} conditioned on the memories of table entries entry .. entry+n-1 */
static void attend_memories(struct s2_session *s, struct s2_tensor x, int entry, const int32_t *objects,
                            const char *kind)
{
    double t = s2_now();
    struct s2_bank_table table = s2i_table_at(s, entry);
    struct probe probe = {s, kind, entry, x.n, objects};
    struct s2i_memory_probe see = {see_layer, &probe};
    s2i_memory_attention_forward(s->m, &s->ws, x, s->now.t, &s->bank, &table, s->cfg.tap ? &see : NULL);
    for (int i = 0; i < x.n; i++) {
        struct s2i_tap_scope tap = {s, objects[i], kind};
        s2i_tap_map(&tap, "X", s2_shape(x, x.n, s->m->G, s->m->G, S2_MODEL_DIM), i);
    }
    s2i_lap(s, S2_STAGE_MEMORY_ATTENTION, t);
}

/* What a frame without prompts gives for n objects; all tensors in the workspace. */
struct tracked {
    struct s2_tensor low, iou, pointer;
    struct s2i_decoded decoded;
};

static void decode_unprompted(struct s2_session *s, struct s2_tensor x, int entry, struct tracked *out)
{
    struct s2_backend *be = s->be;
    const struct s2_model *m = s->m;
    int n = x.n, side = 4 * m->G;
    const int32_t *objects = s->table.object + entry, *index = on_device(s, objects);
    double t = s2_now();

    out->low = s2i_f32(&s->ws, n, side, side, 1);
    out->iou = s2i_f32(&s->ws, n, 1, 1, 1);
    out->pointer = s2i_f32(&s->ws, n, 1, 1, S2_MODEL_DIM);
    struct s2_tensor filled = s2i_f32(&s->ws, n, side, side, 1);
    s2i_mask_decoder_forward(m, &s->ws, x, m->prompt_encoder.no_mask, s->no_points, 2, s->now.s1, s->now.s0,
                             &out->decoded);
    answer(s, &out->decoded, true, out->low, out->iou, out->pointer);
    OP(be, fill_holes, filled, out->low, s->cfg.fill_hole_area);
    OP(be, scatter, s->low, filled, index);
    OP(be, scatter, s->score, out->decoded.score, index);
    OP(be, scatter, s->iou, out->iou, index);
    for (int i = 0; i < n; i++) {
        struct s2i_tap_scope tap = {s, objects[i], "track"};
        tap_decoded(&tap, &out->decoded, m->prompt_encoder.no_mask, i);
        tap_result(&tap, out->low, out->decoded.score, out->pointer, i);
    }
    s2i_lap(s, S2_STAGE_DECODER, t);
}

/* ------------------------------------------------------------------ tracking */

void s2i_track(struct s2_session *s, int first, int n)
{
    size_t mark = s->ws.used;
    const int32_t *objects = s->table.object + first;
    struct s2_tensor x = s2i_act(&s->ws, n, 1, s->m->N, S2_MODEL_DIM);
    struct tracked r = {0};

    attend_memories(s, x, first, objects, "track");
    decode_unprompted(s, x, first, &r);
    remember(s, first, objects, r.low, r.decoded.score, r.pointer, false, "track");
    s->ws.used = mark;
}

/* ------------------------------------------------------------------ prompts */

/* State of the calls of one object on one frame */
struct calls {
    int object;
    bool refine;
    const char *kind;
    struct s2_tensor x;       /* what the decoder reads */
    struct s2_tensor raw;     /* F as tokens */
    struct s2_tensor pointer; /* f32 {1,1,1,256} */
    bool has_logits;          /* s->low holds this frame's mask so far */
    int n_points;
};

static struct s2_tensor one(struct s2_tensor t, int object)
{
    return s2_batch(t, object, 1);
}

static void append_point(struct s2_session *s, int at, float x, float y, float label)
{
    float *p = s->table.points + 3 * at;
    p[0] = x, p[1] = y, p[2] = label;
}

/* Pixels of the frame to pixels of the model's input */
static void add_points(struct s2_session *s, struct calls *c, const struct s2_prompt *p)
{
    float w = (float)s->cfg.width, h = (float)s->cfg.height, side = (float)s->m->S;
    s2i_sync(s->be);  /* the points of the call before may still be on their way */
    if (p->has_box) { /* a box starts the set of points anew; its corners come first */
        c->n_points = 0;
        for (int i = 0; i < 2; i++)
            append_point(s, c->n_points++, p->box[2 * i] / w * side, p->box[2 * i + 1] / h * side, (float)(2 + i));
    }
    for (int i = 0; i < p->n_points; i++)
        append_point(s, c->n_points++, p->xy[2 * i] / w * side, p->xy[2 * i + 1] / h * side,
                     p->labels[i] ? 1.0f : 0.0f);
}

static const float *upload_points(struct s2_session *s, int n)
{
    struct s2_backend *be = s->be;
    char *device = s->table.device + ((const char *)s->table.points - s->table.host);
    OP(be, upload, device, s->table.points, (size_t)n * 3 * sizeof(float));
    return (const float *)(const void *)device;
}

static void decode_points(struct s2_session *s, struct calls *c)
{
    struct s2_backend *be = s->be;
    const struct s2_model *m = s->m;
    size_t mark = s->ws.used;
    int side = 4 * m->G;
    struct s2i_tap_scope tap = {s, c->object, c->kind};
    struct s2_tensor low = s2i_f32(&s->ws, 1, side, side, 1), dense = m->prompt_encoder.no_mask;
    struct s2i_decoded d = {0};

    append_point(s, c->n_points, 0, 0, -1);
    const float *points = upload_points(s, c->n_points + 1);
    if (c->has_logits) {
        dense = s2i_act(&s->ws, 1, m->G, m->G, S2_MODEL_DIM);
        s2i_dense_prompt(m, &s->ws, dense, one(s->low, c->object), 32.0f);
    }
    s2i_mask_decoder_forward(m, &s->ws, c->x, dense, points, c->n_points + 1, s->now.s1, s->now.s0, &d);
    answer(s, &d, c->n_points <= 1, low, one(s->iou, c->object), c->pointer);
    OP(be, fill_holes, one(s->low, c->object), low, s->cfg.fill_hole_area);
    OP(be, clamp, one(s->score, c->object), d.score, -INFINITY, INFINITY);

    s2i_tap_map(&tap, "X", s2_shape(c->x, 1, m->G, m->G, S2_MODEL_DIM), 0);
    tap_decoded(&tap, &d, dense, 0);
    tap_result(&tap, low, d.score, c->pointer, 0);
    s->ws.used = mark;
}

/* The mask is taken as the output; the decoder runs on the raw features for the pointer alone. */
static void decode_mask(struct s2_session *s, struct calls *c, const struct s2_bits *bits, struct s2_err *err)
{
    struct s2_backend *be = s->be;
    const struct s2_model *m = s->m;
    size_t mark = s->ws.used, bytes = (size_t)(16 * m->N) * sizeof(float);
    int side = 4 * m->G;
    struct s2i_tap_scope tap = {s, c->object, "mask"};
    struct s2_tensor low = s2i_f32(&s->ws, 1, side, side, 1), logits = s2i_f32(&s->ws, 1, side, side, 1);
    struct s2_tensor ignored = s2i_f32(&s->ws, 1, side, side, 1), iou = s2i_f32(&s->ws, 1, 1, 1, 1);
    struct s2_tensor dense = s2i_act(&s->ws, 1, m->G, m->G, S2_MODEL_DIM);
    struct s2i_decoded d = {0};
    bool any = false;

    if (bits) {
        enum s2_status st = s2i_mask_prompt(m, bits, s->host_logits, s->host_logits + 16 * m->N, &any, err);
        if (st != S2_OK) {
            s2_backend_fail(be, st, "%s", err ? err->text : "out of memory");
            return;
        }
    }
    float score = any ? 10.0f : -10.0f;
    OP(be, upload, low.data, s->host_logits, bytes);
    OP(be, upload, logits.data, s->host_logits + 16 * m->N, bytes);
    s2i_dense_prompt(m, &s->ws, dense, logits, INFINITY);
    s2i_mask_decoder_forward(m, &s->ws, c->raw, dense, s->no_points, 2, s->now.s1, s->now.s0, &d);
    answer(s, &d, false, ignored, iou, c->pointer);

    struct s2_tensor out_score = one(s->score, c->object);
    OP(be, upload, out_score.data, &score, sizeof score);
    OP(be, where_absent, c->pointer, out_score, m->no_object_pointer, true);
    OP(be, fill_holes, one(s->low, c->object), low, s->cfg.fill_hole_area);

    tap_decoded(&tap, &d, dense, 0);
    tap_result(&tap, low, out_score, c->pointer, 0);
    s->ws.used = mark;
}

/* X of the first call: the memories' view of this frame, or F + no_mem_embed */
static void prepare_x(struct s2_session *s, struct calls *c, int entry)
{
    struct s2_backend *be = s->be;
    c->x = s2i_act(&s->ws, 1, 1, s->m->N, S2_MODEL_DIM);
    c->raw = s2_shape(s->now.f, 1, 1, s->m->N, S2_MODEL_DIM);
    c->pointer = s2i_f32(&s->ws, 1, 1, 1, S2_MODEL_DIM);
    if (!c->refine) {
        OP(be, add, c->x, c->raw, s->m->no_memory, 1.0f);
        return;
    }
    struct tracked r = {0};
    size_t mark = s->ws.used;
    attend_memories(s, c->x, entry, s->table.object + entry, "track");
    decode_unprompted(s, c->x, entry, &r);
    c->has_logits = true;
    if (s->cfg.tap) { /* the reference tracks the frame, then attends once more to refine it: the same values */
        attend_memories(s, c->x, entry, s->table.object + entry, "refine");
        /* last: the slot it goes to may be that of a memory which only this frame attends to */
        remember(s, entry, s->table.object + entry, r.low, r.decoded.score, r.pointer, false, "track");
    }
    s->ws.used = mark;
}

void s2i_prompt(struct s2_session *s, int object, int entry, const struct s2_prompt *prompts, int n, bool refine,
                bool store, struct s2_err *err)
{
    size_t mark = s->ws.used;
    struct calls c = {.object = object, .refine = refine, .kind = refine ? "refine" : "prompt"};

    prepare_x(s, &c, entry);
    for (int i = 0; i < n; i++) {
        const struct s2_prompt *p = &prompts[i];
        if (p->object != object || p->kind == S2_PROMPT_STOP) continue;
        double t = s2_now();
        if (p->kind == S2_PROMPT_MASK) {
            c.n_points = 0;
            decode_mask(s, &c, p->mask.data ? &p->mask : NULL, err);
        } else {
            add_points(s, &c, p);
            decode_points(s, &c);
        }
        s->iou_known[object] = p->kind == S2_PROMPT_POINTS;
        c.has_logits = true;
        s2i_lap(s, S2_STAGE_DECODER, t);
    }
    if (store)
        remember(s, entry, s->table.object + entry, one(s->low, object), one(s->score, object), c.pointer, true,
                 "memory");
    s->ws.used = mark;
}

void s2i_measure(struct s2_session *s)
{
    int batch = s->table.entries < s->be->max_batch ? s->table.entries : s->be->max_batch;
    float zero[2] = {0};
    bool known = s->iou_known[0];
    struct s2_prompt mask = {.kind = S2_PROMPT_MASK},
                     box = {.kind = S2_PROMPT_POINTS, .has_box = true, .box = {0, 0, 1, 1}, .xy = zero};

    s2i_encode_images(s, s->pairs ? 2 : 1, NULL);
    s2i_track(s, 0, batch);
    s2i_prompt(s, 0, 0, &mask, 1, true, true, NULL);
    struct s2_prompt widest = box; /* the most points a call can have */
    size_t mark = s->ws.used;
    struct calls c = {.kind = "prompt", .has_logits = true};
    prepare_x(s, &c, 0);
    add_points(s, &c, &widest);
    c.n_points = s->n_points - 1;
    decode_points(s, &c);
    s->ws.used = mark;
    s->iou_known[0] = known;
    memset(s->seconds, 0, sizeof s->seconds);
}

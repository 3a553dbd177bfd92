/* hiera.c - image encoder: Hiera trunk and feature pyramid neck.
 * Source: sam2/modeling/backbones/hieradet.py, image_encoder.py. */
#include "model.h"

/* rows first .. first+count-1 of a map; all of them if n > 1 */
static struct s2_tensor rows(struct s2_tensor t, int first, int count)
{
    t.data = (char *)t.data + (size_t)first * (size_t)t.w * (size_t)t.ld * s2_dtype_size(t.dtype);
    t.h = count;
    return t;
}

/* out (= x where the block keeps its width) += attention(norm1(x)), one band of whole windows at a time. Bands are
 * independent: a window sees only its own tokens. */
static void attention_band(struct s2_backend *be, struct s2i_workspace *ws, const struct s2i_block *b,
                           struct s2_tensor out, struct s2_tensor x)
{
    size_t mark = ws->used;
    struct s2_tensor y = s2i_act(ws, x.n, x.h, x.w, b->in);
    if (b->in != b->out) { /* the shortcut is a projection of the normed input */
        size_t inner = ws->used;
        OP(be, layer_norm, y, x, &b->norm1, S2_ACT_NONE);
        struct s2_tensor s = s2i_act(ws, x.n, x.h, x.w, b->out);
        OP(be, linear, s, y, &b->shortcut, S2_ACT_NONE, false);
        OP(be, max_pool2, out, s);
        ws->used = inner;
    }
    struct s2_tensor qkv = s2i_act(ws, x.n, x.h, x.w, 3 * b->out);
    struct s2_tensor a = s2_shape(y, x.n, out.h, out.w, b->out); /* y has done its work and is no smaller */
    if (b->in != b->out)
        OP(be, linear, qkv, y, &b->qkv, S2_ACT_NONE, false);
    else
        OP(be, norm_linear, qkv, x, &b->norm1, &b->qkv, y);
    OP(be, window_attention, a, qkv, &b->qkv, b->heads, b->window, b->pool);
    OP(be, linear, out, a, &b->proj, S2_ACT_NONE, true);
    ws->used = mark;
}

static int band_rows(const struct s2_backend *be, const struct s2i_block *b, struct s2_tensor x)
{
    if (b->window == 0 || be->band_tokens == 0 || x.n > 1) return x.h;
    int windows = be->band_tokens / (x.w * b->window);
    return (windows > 1 ? windows : 1) * b->window;
}

static void block_forward(struct s2_backend *be, struct s2i_workspace *ws, const struct s2i_block *b,
                          struct s2_tensor out, struct s2_tensor x)
{
    int step = band_rows(be, b, x), shrink = b->pool ? 2 : 1;
    for (int r = 0; r < x.h; r += step) {
        int count = x.h - r < step ? x.h - r : step;
        attention_band(be, ws, b, rows(out, r / shrink, count / shrink), rows(x, r, count));
    }
    OP(be, mlp, out, out, &b->norm2, &b->fc1, S2_ACT_GELU, &b->fc2);
}

/* f = c4(C4) + upsample(c5(C5)) */
static void top_down(const struct s2_model *m, struct s2i_workspace *ws, struct s2_tensor f, struct s2_tensor c4,
                     struct s2_tensor c5)
{
    struct s2_backend *be = m->be;
    size_t mark = ws->used;
    struct s2_tensor p3 = s2i_act(ws, f.n, m->G / 2, m->G / 2, S2_MODEL_DIM);

    OP(be, linear, p3, c5, &m->neck.c5, S2_ACT_NONE, false);
    OP(be, linear, f, c4, &m->neck.c4, S2_ACT_NONE, false);
    OP(be, upsample2_add, f, p3);
    ws->used = mark;
}

/* The maps of the first two stages are large and only the neck still wants them: it takes them at once, and the next
 * stage's map, half as large, is written over them. A band is read before it is written. */
void s2i_image_encoder_forward(const struct s2_model *m, struct s2i_workspace *ws, const struct s2_image *frame,
                               struct s2_tensor f, struct s2_tensor s1, struct s2_tensor s0,
                               const struct s2i_stage_probe *probe)
{
    struct s2_backend *be = m->be;
    const struct s2i_trunk *t = &m->trunk;
    const size_t mark = ws->used;
    struct s2_tensor x = s2i_act(ws, f.n, m->S / 4, m->S / 4, t->dim), map[4];
    const size_t behind_first = ws->used;
    struct s2_tensor input = s2i_act(ws, f.n, m->S, m->S, 3);

    OP(be, preprocess, input, frame);
    OP(be, patch_embed, x, input, &t->patch, t->position);
    if (probe) probe->see(probe->ctx, -1, input);
    ws->used = behind_first;

    for (int i = 0, stage = 0; i < t->n_blocks; i++) {
        const struct s2i_block *b = &t->block[i];
        struct s2_tensor out = x;
        const size_t behind_x = ws->used;
        if (b->pool && stage < 3) ws->used = mark;
        if (b->pool) out = s2i_act(ws, x.n, x.h / 2, x.w / 2, b->out);
        const size_t behind_out = ws->used;
        if (ws->used < behind_x) ws->used = behind_x;
        block_forward(be, ws, b, out, x);
        ws->used = behind_out;
        x = out;
        if (i != t->stage_end[stage]) continue;
        map[stage] = x;
        if (stage == 0) OP(be, linear, s0, x, &m->neck.s0, S2_ACT_NONE, false);
        if (stage == 1) OP(be, linear, s1, x, &m->neck.s1, S2_ACT_NONE, false);
        if (probe) probe->see(probe->ctx, stage, x);
        stage++;
    }
    top_down(m, ws, f, map[2], map[3]);
    ws->used = mark;
}

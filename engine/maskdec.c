/* maskdec.c - mask decoder: a two-way transformer between tokens and the image, then upscaling.
 * Source: sam2/modeling/sam/mask_decoder.py, sam/transformer.py TwoWayTransformer. */
#include "model.h"

/* y (+)= out(softmax(q(query) k(key)^T / sqrt(head)) v(value)) with 8 heads; y may be an input */
static void attend(struct s2_backend *be, struct s2i_workspace *ws, const struct s2i_attention *a, struct s2_tensor y,
                   struct s2_tensor query, struct s2_tensor key, struct s2_tensor value, bool accumulate)
{
    size_t mark = ws->used;
    struct s2_tensor q = s2i_act(ws, query.n, 1, query.w, a->q.out), k = s2i_act(ws, key.n, 1, key.w, a->k.out),
                     v = s2i_act(ws, value.n, 1, value.w, a->v.out), o = s2i_act(ws, query.n, 1, query.w, a->q.out);

    OP(be, linear, q, query, &a->q, S2_ACT_NONE, false);
    OP(be, linear, k, key, &a->k, S2_ACT_NONE, false);
    OP(be, linear, v, value, &a->v, S2_ACT_NONE, false);
    OP(be, attention, o, q, k, v, 8);
    OP(be, linear, y, o, &a->out, S2_ACT_NONE, accumulate);
    ws->used = mark;
}

/* tokens and image are updated in place; prompt = the tokens as they came in, the positional term of queries */
static void two_way_transformer(const struct s2_model *m, struct s2i_workspace *ws, struct s2_tensor tokens,
                                struct s2_tensor prompt, struct s2_tensor image)
{
    struct s2_backend *be = m->be;
    const struct s2i_mask_decoder *d = &m->decoder;
    struct s2_tensor pe = s2_shape(m->dense_pe, 1, 1, m->N, S2_MODEL_DIM);
    size_t mark = ws->used;
    struct s2_tensor q = s2i_act(ws, tokens.n, 1, tokens.w, S2_MODEL_DIM);
    struct s2_tensor k = s2i_act(ws, image.n, 1, image.w, S2_MODEL_DIM);

    for (int i = 0; i < 2; i++) {
        if (i == 0) { /* the first layer replaces the tokens: no residual, no position */
            attend(be, ws, &d->layer[i].self, tokens, tokens, tokens, tokens, false);
        } else {
            OP(be, add, q, tokens, prompt, 1.0f);
            attend(be, ws, &d->layer[i].self, tokens, q, q, tokens, true);
        }
        OP(be, layer_norm, tokens, tokens, &d->layer[i].norm[0], S2_ACT_NONE);

        OP(be, add, q, tokens, prompt, 1.0f);
        OP(be, add, k, image, pe, 1.0f);
        attend(be, ws, &d->layer[i].to_image, tokens, q, k, image, true);
        OP(be, layer_norm, tokens, tokens, &d->layer[i].norm[1], S2_ACT_NONE);

        OP(be, mlp, tokens, tokens, NULL, &d->layer[i].fc1, S2_ACT_RELU, &d->layer[i].fc2);
        OP(be, layer_norm, tokens, tokens, &d->layer[i].norm[2], S2_ACT_NONE);

        OP(be, add, q, tokens, prompt, 1.0f);
        attend(be, ws, &d->layer[i].to_token, image, k, q, tokens, true);
        OP(be, layer_norm, image, image, &d->layer[i].norm[3], S2_ACT_NONE);
    }
    OP(be, add, q, tokens, prompt, 1.0f);
    OP(be, add, k, image, pe, 1.0f);
    attend(be, ws, &d->final, tokens, q, k, image, true);
    OP(be, layer_norm, tokens, tokens, &d->norm_final, S2_ACT_NONE);
    ws->used = mark;
}

void s2i_mlp3_forward(struct s2_backend *be, struct s2i_workspace *ws, const struct s2i_mlp3 *mlp, struct s2_tensor y,
                      struct s2_tensor x, enum s2_act last)
{
    size_t mark = ws->used;
    struct s2_tensor a = s2i_act(ws, x.n, x.h, x.w, mlp->layer[0].out),
                     b = s2i_act(ws, x.n, x.h, x.w, mlp->layer[1].out);

    OP(be, linear, a, x, &mlp->layer[0], S2_ACT_RELU, false);
    OP(be, linear, b, a, &mlp->layer[1], S2_ACT_RELU, false);
    OP(be, linear, y, b, &mlp->layer[2], last, false);
    ws->used = mark;
}

/* The image side of the transformer, upscaled four times, times one weight vector a mask token. */
static void masks_of(const struct s2_model *m, struct s2i_workspace *ws, struct s2_tensor masks,
                     struct s2_tensor tokens, struct s2_tensor image, struct s2_tensor s1, struct s2_tensor s0)
{
    struct s2_backend *be = m->be;
    const struct s2i_mask_decoder *d = &m->decoder;
    int n = image.n, g = m->G;
    size_t mark = ws->used;
    struct s2_tensor u1 = s2i_act(ws, n, 2 * g, 2 * g, s1.c), u0 = s2i_act(ws, n, 4 * g, 4 * g, s0.c);
    struct s2_tensor hyper = s2i_act(ws, n, 1, 4, s0.c), token = s2i_act(ws, n, 1, 1, S2_MODEL_DIM);

    OP(be, deconv2, u1, s2_shape(image, n, g, g, S2_MODEL_DIM), &d->up1, s1, S2_ACT_NONE);
    OP(be, layer_norm, u1, u1, &d->up_norm, S2_ACT_GELU);
    OP(be, deconv2, u0, u1, &d->up2, s0, S2_ACT_GELU);

    for (int i = 0; i < 4; i++) {
        struct s2_tensor column = s2_columns(s2_shape(hyper, n, 1, 1, 4 * s0.c), i * s0.c, s0.c);
        OP(be, take, token, tokens, 2 + i);
        s2i_mlp3_forward(be, ws, &d->hyper[i], column, token, S2_ACT_NONE);
    }
    OP(be, mask_logits, masks, hyper, u0);
    ws->used = mark;
}

void s2i_mask_decoder_forward(const struct s2_model *m, struct s2i_workspace *ws, struct s2_tensor x,
                              struct s2_tensor dense, const float *points, int n_points, struct s2_tensor s1,
                              struct s2_tensor s0, struct s2i_decoded *out)
{
    struct s2_backend *be = m->be;
    const struct s2i_mask_decoder *d = &m->decoder;
    int n = x.n, t = 6 + n_points, side = 4 * m->G;

    out->sparse = s2i_act(ws, n, 1, n_points, S2_MODEL_DIM);
    out->tokens = s2i_act(ws, n, 1, t, S2_MODEL_DIM);
    out->image = s2i_act(ws, n, 1, m->N, S2_MODEL_DIM);
    out->masks = s2i_f32(ws, n, 4, side * side, 1);
    out->iou = s2i_f32(ws, n, 1, 1, 4);
    out->score = s2i_f32(ws, n, 1, 1, 1);
    size_t mark = ws->used;
    struct s2_tensor prompt = s2i_act(ws, n, 1, t, S2_MODEL_DIM), token = s2i_act(ws, n, 1, 1, S2_MODEL_DIM);

    OP(be, point_tokens, out->sparse, points, m->prompt_encoder.gauss, m->prompt_encoder.embed, m->S);
    OP(be, concat, prompt, d->tokens, out->sparse);
    OP(be, add, out->tokens, prompt, prompt, 0.0f);
    if (dense.h > 1) dense = s2_shape(dense, 1, 1, m->N, S2_MODEL_DIM);
    OP(be, add, out->image, s2_shape(x, n, 1, m->N, S2_MODEL_DIM), dense, 1.0f);
    two_way_transformer(m, ws, out->tokens, prompt, out->image);

    masks_of(m, ws, out->masks, out->tokens, out->image, s1, s0);
    OP(be, take, token, out->tokens, 1);
    s2i_mlp3_forward(be, ws, &d->iou, out->iou, token, S2_ACT_SIGMOID);
    OP(be, take, token, out->tokens, 0);
    s2i_mlp3_forward(be, ws, &d->score, out->score, token, S2_ACT_NONE);
    ws->used = mark;
}

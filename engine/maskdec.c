/* maskdec.c - mask decoder: a two-way transformer between tokens and the image, then upscaling.
 * Source: sam2/modeling/sam/mask_decoder.py, sam/transformer.py TwoWayTransformer. */
#include "model.h"

/* tokens and image are updated in place; prompt = the tokens as they came in, the positional term of queries */
static void two_way_transformer(const struct s2_model *m, struct s2_tensor tokens, struct s2_tensor prompt,
                                struct s2_tensor image, struct s2_tensor room)
{
    struct s2_backend *be = m->be;
    const struct s2i_mask_decoder *d = &m->decoder;
    struct s2_tensor pe = s2_shape(m->dense_pe, 1, 1, m->N, S2_MODEL_DIM), none = {0};

    for (int i = 0; i < 2; i++) {
        if (i == 0) { /* the first layer replaces the tokens: no residual, no position */
            OP(be, token_attention, tokens, prompt, none, &d->layer[i].self, &d->layer[i].norm[0], room);
        } else {
            OP(be, token_attention, tokens, tokens, prompt, &d->layer[i].self, &d->layer[i].norm[0], room);
        }
        OP(be, token_to_image, tokens, prompt, image, pe, &d->layer[i].to_image, &d->layer[i].norm[1], room);
        OP(be, token_mlp, tokens, &d->layer[i].fc1, &d->layer[i].fc2, &d->layer[i].norm[2]);
        OP(be, image_to_token, image, pe, tokens, prompt, &d->layer[i].to_token, &d->layer[i].norm[3], room);
    }
    OP(be, token_to_image, tokens, prompt, image, pe, &d->final, &d->norm_final, room);
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
    struct s2_tensor prompt = s2i_act(ws, n, 1, t, S2_MODEL_DIM);
    struct s2_tensor hyper = s2i_act(ws, n, 1, 4, s0.c), flat = s2_shape(hyper, n, 1, 1, 4 * s0.c);
    struct s2_tensor room = s2i_act(ws, 1, 1, 1, (int)s2_decoder_room(n, t, m->N));

    OP(be, point_tokens, out->sparse, points, m->prompt_encoder.gauss, m->prompt_encoder.embed, m->S);
    OP(be, concat, prompt, d->tokens, out->sparse);
    if (dense.h > 1) dense = s2_shape(dense, 1, 1, m->N, S2_MODEL_DIM);
    OP(be, add, out->image, s2_shape(x, n, 1, m->N, S2_MODEL_DIM), dense, 1.0f);
    two_way_transformer(m, out->tokens, prompt, out->image, room);

    /* tokens: object score, IoU, one a mask, whose weight vector over the upscaled image it becomes */
    struct s2_head heads[6] = {{0, d->score.layer, S2_ACT_NONE, out->score},
                               {1, d->iou.layer, S2_ACT_SIGMOID, out->iou}};
    for (int i = 0; i < 4; i++)
        heads[2 + i] = (struct s2_head){2 + i, d->hyper[i].layer, S2_ACT_NONE, s2_columns(flat, i * s0.c, s0.c)};
    OP(be, token_heads, 6, heads, out->tokens, room);
    OP(be, upscaled_masks, out->masks, hyper, s2_shape(out->image, n, m->G, m->G, S2_MODEL_DIM), &d->up1, s1,
       &d->up_norm, &d->up2, s0, room);
    ws->used = mark;
}

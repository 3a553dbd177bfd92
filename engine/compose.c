/* compose.c - convolutions with what follows them and the steps of the mask decoder as the operators they are made of:
 * what they mean, and how a backend does them that has no kernel of its own for the case. */
#include "ops.h"

void s2_compose_conv_norm(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv,
                          const struct s2_norm *norm, enum s2_act act)
{
    if (be->skip) return;
    be->ops->conv(be, y, x, conv, S2_ACT_NONE);
    be->ops->layer_norm(be, y, y, norm, act);
}

void s2_compose_norm_linear(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                            const struct s2_linear *l, struct s2_tensor room)
{
    if (be->skip) return;
    be->ops->layer_norm(be, room, x, norm, S2_ACT_NONE);
    be->ops->linear(be, y, room, l, S2_ACT_NONE, false);
}

void s2_compose_patch_embed(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *conv,
                            struct s2_tensor pos)
{
    if (be->skip) return;
    be->ops->conv(be, y, x, conv, S2_ACT_NONE);
    be->ops->add(be, y, y, pos, 1.0f);
}

/* A tensor of the activation type in the room, from element *used on. */
static struct s2_tensor in_room(struct s2_tensor room, int64_t *used, int n, int tokens, int c)
{
    struct s2_tensor t = s2_shape(room, n, 1, tokens, c);
    t.data = (char *)room.data + (size_t)*used * s2_dtype_size(room.dtype);
    *used += (s2_elements(t) + 63) / 64 * 64;
    return t;
}

/* y (+)= p->out of the attention of p's heads on the products of query, key and value; y may be an input */
static void attend(struct s2_backend *be, const struct s2_projections *p, struct s2_tensor y, struct s2_tensor query,
                   struct s2_tensor key, struct s2_tensor value, bool accumulate, struct s2_tensor room, int64_t used)
{
    const struct s2_ops *ops = be->ops;
    struct s2_tensor q = in_room(room, &used, query.n, query.w, p->q.out);
    struct s2_tensor k = in_room(room, &used, key.n, key.w, p->k.out);
    struct s2_tensor v = in_room(room, &used, value.n, value.w, p->v.out);
    ops->linear(be, q, query, &p->q, S2_ACT_NONE, false);
    ops->linear(be, k, key, &p->k, S2_ACT_NONE, false);
    ops->linear(be, v, value, &p->v, S2_ACT_NONE, false);
    struct s2_tensor o = in_room(room, &used, query.n, query.w, p->v.out);
    ops->attention(be, o, q, k, v, S2_DECODER_HEADS);
    ops->linear(be, y, o, &p->out, S2_ACT_NONE, accumulate);
}

void s2_compose_token_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, struct s2_tensor prompt,
                                const struct s2_projections *p, const struct s2_norm *norm, struct s2_tensor room)
{
    int64_t used = 0;
    if (be->skip) return;
    if (!prompt.data) {
        attend(be, p, y, x, x, x, false, room, used);
    } else {
        struct s2_tensor at = in_room(room, &used, x.n, x.w, x.c);
        be->ops->add(be, at, x, prompt, 1.0f);
        if (y.data != x.data) be->ops->add(be, y, x, x, 0.0f);
        attend(be, p, y, at, at, x, true, room, used);
    }
    be->ops->layer_norm(be, y, y, norm, S2_ACT_NONE);
}

/* x = norm(x + A(x + at_x, y + at_y, y)) */
static void attend_across(struct s2_backend *be, struct s2_tensor x, struct s2_tensor at_x, struct s2_tensor y,
                          struct s2_tensor at_y, const struct s2_projections *p, const struct s2_norm *norm,
                          struct s2_tensor room)
{
    int64_t used = 0;
    if (be->skip) return;
    struct s2_tensor query = in_room(room, &used, x.n, x.w, x.c);
    struct s2_tensor key = in_room(room, &used, y.n, y.w, y.c);
    be->ops->add(be, query, x, at_x, 1.0f);
    be->ops->add(be, key, y, at_y, 1.0f);
    attend(be, p, x, query, key, y, true, room, used);
    be->ops->layer_norm(be, x, x, norm, S2_ACT_NONE);
}

void s2_compose_token_to_image(struct s2_backend *be, struct s2_tensor tokens, struct s2_tensor prompt,
                               struct s2_tensor image, struct s2_tensor pe, const struct s2_projections *p,
                               const struct s2_norm *norm, struct s2_tensor room)
{
    attend_across(be, tokens, prompt, image, pe, p, norm, room);
}

void s2_compose_token_mlp(struct s2_backend *be, struct s2_tensor tokens, const struct s2_linear *fc1,
                          const struct s2_linear *fc2, const struct s2_norm *norm)
{
    if (be->skip) return;
    be->ops->mlp(be, tokens, tokens, NULL, fc1, S2_ACT_RELU, fc2);
    be->ops->layer_norm(be, tokens, tokens, norm, S2_ACT_NONE);
}

void s2_compose_image_to_token(struct s2_backend *be, struct s2_tensor image, struct s2_tensor pe,
                               struct s2_tensor tokens, struct s2_tensor prompt, const struct s2_projections *p,
                               const struct s2_norm *norm, struct s2_tensor room)
{
    attend_across(be, image, pe, tokens, prompt, p, norm, room);
}

void s2_compose_token_heads(struct s2_backend *be, int n_heads, const struct s2_head *head, struct s2_tensor tokens,
                            struct s2_tensor room)
{
    if (be->skip) return;
    for (const struct s2_head *h = head; h < head + n_heads; h++) {
        int64_t used = 0;
        struct s2_tensor x = in_room(room, &used, tokens.n, 1, tokens.c);
        struct s2_tensor a = in_room(room, &used, tokens.n, 1, h->layer[0].out);
        struct s2_tensor b = in_room(room, &used, tokens.n, 1, h->layer[1].out);
        be->ops->take(be, x, tokens, h->token);
        be->ops->linear(be, a, x, &h->layer[0], S2_ACT_RELU, false);
        be->ops->linear(be, b, a, &h->layer[1], S2_ACT_RELU, false);
        be->ops->linear(be, h->y, b, &h->layer[2], h->last, false);
    }
}

void s2_compose_upscaled_masks(struct s2_backend *be, struct s2_tensor masks, struct s2_tensor hyper,
                               struct s2_tensor image, const struct s2_linear *up1, struct s2_tensor s1,
                               const struct s2_norm *norm, const struct s2_linear *up2, struct s2_tensor s0,
                               struct s2_tensor room)
{
    int64_t used = 0;
    const int n = image.n, tokens = image.h * image.w;
    if (be->skip) return;
    struct s2_tensor u1 = s2_shape(in_room(room, &used, n, 4 * tokens, s1.c), n, 2 * image.h, 2 * image.w, s1.c);
    struct s2_tensor u0 = s2_shape(in_room(room, &used, n, 16 * tokens, s0.c), n, 4 * image.h, 4 * image.w, s0.c);
    be->ops->deconv2(be, u1, image, up1, s1, S2_ACT_NONE);
    be->ops->layer_norm(be, u1, u1, norm, S2_ACT_GELU);
    be->ops->deconv2(be, u0, u1, up2, s0, S2_ACT_GELU);
    be->ops->mask_logits(be, masks, hyper, u0);
}

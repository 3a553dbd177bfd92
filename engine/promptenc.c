/* promptenc.c - prompt encoder: mask logits to a dense map. Points become tokens in s2_ops.point_tokens.
 * Source: sam2/modeling/sam/prompt_encoder.py. */
#include "model.h"

void s2i_dense_prompt(const struct s2_model *m, struct s2i_workspace *ws, struct s2_tensor dense,
                      struct s2_tensor logits, float limit)
{
    struct s2_backend *be = m->be;
    const struct s2i_prompt_encoder *e = &m->prompt_encoder;
    size_t mark = ws->used;
    struct s2_tensor x = s2i_act(ws, 1, 4 * m->G, 4 * m->G, 1);
    struct s2_tensor a = s2i_act(ws, 1, 2 * m->G, 2 * m->G, e->down[0].out);
    struct s2_tensor b = s2i_act(ws, 1, m->G, m->G, e->down[1].out);

    OP(be, clamp, x, logits, -limit, limit);
    OP(be, conv, a, x, &e->down[0], S2_ACT_NONE);
    OP(be, layer_norm, a, a, &e->down_norm[0], S2_ACT_GELU);
    OP(be, conv, b, a, &e->down[1], S2_ACT_NONE);
    OP(be, layer_norm, b, b, &e->down_norm[1], S2_ACT_GELU);
    OP(be, linear, dense, b, &e->out, S2_ACT_NONE, false);
    ws->used = mark;
}

/* memenc.c - memory encoder: a mask and the frame's raw features become one memory frame.
 * Source: sam2/modeling/memory_encoder.py. */
#include "model.h"

void s2i_memory_encoder_forward(const struct s2_model *m, struct s2i_workspace *ws, struct s2_tensor memory,
                                struct s2_tensor mask, struct s2_tensor f)
{
    struct s2_backend *be = m->be;
    const struct s2i_memory_encoder *e = &m->memory_encoder;
    size_t mark = ws->used;
    int n = mask.n;

    struct s2_tensor z = mask;
    for (int i = 0, side = m->S / 2; i < 4; i++, side /= 2) {
        struct s2_tensor next = s2i_act(ws, n, side, side, e->down[i].out);
        OP(be, conv_norm, next, z, &e->down[i], &e->down_norm[i], S2_ACT_GELU);
        z = next;
    }
    struct s2_tensor y = s2i_act(ws, n, m->G, m->G, S2_MODEL_DIM), r = s2i_act(ws, n, m->G, m->G, S2_MODEL_DIM);
    struct s2_tensor pixel = s2i_act(ws, 1, m->G, m->G, S2_MODEL_DIM);
    OP(be, linear, pixel, f, &e->pixel, S2_ACT_NONE, false);
    OP(be, linear, y, z, &e->down_out, S2_ACT_NONE, false);
    OP(be, add, y, y, pixel, 1.0f);

    for (int i = 0; i < 2; i++) { /* CXBlock */
        OP(be, conv, r, y, &e->fuser[i].depthwise, S2_ACT_NONE);
        OP(be, mlp, y, r, &e->fuser[i].norm, &e->fuser[i].fc1, S2_ACT_GELU, &e->fuser[i].fc2);
    }
    OP(be, linear, memory, y, &e->out, S2_ACT_NONE, false);
    ws->used = mark;
}

/* memattn.c - memory attention: the frame's features look at the object's memories.
 * Source: sam2/modeling/memory_attention.py, sam/transformer.py RoPEAttention. */
#include "model.h"

static void self_attention(const struct s2_model *m, struct s2i_workspace *ws, const struct s2i_memory_layer *l,
                           struct s2_tensor x)
{
    struct s2_backend *be = m->be;
    size_t mark = ws->used;
    struct s2_tensor y = s2i_act(ws, x.n, 1, x.w, S2_MODEL_DIM);
    struct s2_tensor qkv = s2i_act(ws, x.n, 1, x.w, 3 * S2_MODEL_DIM);
    struct s2_tensor q = s2_columns(qkv, 0, S2_MODEL_DIM), k = s2_columns(qkv, S2_MODEL_DIM, S2_MODEL_DIM),
                     v = s2_columns(qkv, 2 * S2_MODEL_DIM, S2_MODEL_DIM), turned = s2_columns(qkv, 0, 2 * S2_MODEL_DIM);

    OP(be, layer_norm, y, x, &l->norm1, S2_ACT_NONE);
    OP(be, linear, qkv, y, &l->qkv, S2_ACT_NONE, false);
    OP(be, rope, turned, m->rope, S2_MODEL_DIM);
    OP(be, attention, y, q, k, v, 1);
    OP(be, linear, x, y, &l->self_out, S2_ACT_NONE, true);
    ws->used = mark;
}

static void cross_attention(const struct s2_model *m, struct s2i_workspace *ws, const struct s2i_memory_layer *l,
                            struct s2_tensor x, const struct s2_bank *bank, const struct s2_bank_table *table,
                            struct s2_tensor pointer_position)
{
    struct s2_backend *be = m->be;
    size_t mark = ws->used;
    struct s2_tensor y = s2i_act(ws, x.n, 1, x.w, S2_MODEL_DIM), q = s2i_act(ws, x.n, 1, x.w, S2_MODEL_DIM);
    struct s2_tensor seen = s2i_act(ws, x.n, 1, x.w, S2_MEMORY_DIM);

    OP(be, layer_norm, y, x, &l->norm2, S2_ACT_NONE);
    OP(be, linear, q, y, &l->cross_q, S2_ACT_NONE, false);
    OP(be, rope, q, m->rope, S2_MODEL_DIM);
    OP(be, memory_attention, seen, q, bank, table, &l->cross_k, m->pe64, m->tpos, pointer_position, m->rope);
    OP(be, linear, x, seen, &l->cross_vo, S2_ACT_NONE, true);
    ws->used = mark;
}

void s2i_self_seen_forward(const struct s2_model *m, struct s2i_workspace *ws, struct s2_tensor t, struct s2_tensor f)
{
    struct s2_backend *be = m->be;

    OP(be, add, t, s2_shape(f, f.n, 1, m->N, S2_MODEL_DIM), s2_shape(m->pe256, 1, 1, m->N, S2_MODEL_DIM), 0.1f);
    self_attention(m, ws, &m->memory_attention.layer[0], t);
}

void s2i_memory_attention_forward(const struct s2_model *m, struct s2i_workspace *ws, struct s2_tensor x,
                                  struct s2_tensor t, const struct s2_bank *bank, const struct s2_bank_table *table,
                                  const struct s2i_memory_probe *probe)
{
    struct s2_backend *be = m->be;
    const struct s2i_memory_attention *a = &m->memory_attention;
    size_t mark = ws->used;
    struct s2_tensor position = s2i_f32(ws, x.n, 1, table->ptr_cap, S2_MEMORY_DIM);

    OP(be, concat, x, t, s2_shape(x, x.n, 1, 0, S2_MODEL_DIM));
    OP(be, pointer_positions, position, table, m->pointer_position.impl ? &m->pointer_position : NULL);
    if (probe) probe->see(probe->ctx, -1, position);

    for (int i = 0; i < a->n_layers; i++) {
        const struct s2i_memory_layer *l = &a->layer[i];
        if (i > 0) self_attention(m, ws, l, x);
        cross_attention(m, ws, l, x, bank, table, position);
        OP(be, mlp, x, x, &l->norm3, &l->fc1, S2_ACT_RELU, &l->fc2);
        if (probe) probe->see(probe->ctx, i, x);
    }
    OP(be, layer_norm, x, x, &a->norm, S2_ACT_NONE);
    ws->used = mark;
}

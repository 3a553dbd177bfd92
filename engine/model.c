/* model.c - loading, describing and freeing a model. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

void *s2i_own(struct s2_model *m, size_t bytes)
{
    if (m->be->skip) return NULL;
    if (m->n_owned == m->owned_capacity) {
        int capacity = m->owned_capacity ? 2 * m->owned_capacity : 64;
        void **grown = realloc(m->owned, (size_t)capacity * sizeof *grown);
        if (!grown) {
            s2_backend_fail(m->be, S2_E_DEVICE, "out of memory while loading the model");
            return NULL;
        }
        m->owned = grown;
        m->owned_capacity = capacity;
    }
    void *p = m->be->ops->alloc(m->be, bytes);
    if (p) m->owned[m->n_owned++] = p;
    return p;
}

struct s2_tensor s2i_constant(struct s2_model *m, const float *host, int n, int h, int w, int c)
{
    struct s2_backend *be = m->be;
    struct s2_tensor t = s2i_tensor(NULL, be->act, n, h, w, c);
    size_t count = (size_t)s2_elements(t);

    if (!(t.data = s2i_own(m, count * s2_dtype_size(be->act)))) return t;
    if (be->act == S2_F32) {
        OP(be, upload, t.data, host, count * sizeof *host);
        return t;
    }
    /* clamp converts f32 to the activation type */
    struct s2_tensor wide = s2i_tensor(be->ops->alloc(be, count * sizeof *host), S2_F32, n, h, w, c);
    OP(be, upload, wide.data, host, count * sizeof *host);
    OP(be, clamp, t, wide, -3e38f, 3e38f);
    if (wide.data) be->ops->free(be, wide.data);
    return t;
}

/* Tables that depend on the sizes alone */
static void make_tables(struct s2_model *m, struct s2_err *err)
{
    size_t n = (size_t)m->N;
    float *host = malloc(n * 256 * sizeof *host);
    if (!host) {
        s2_backend_fail(m->be, s2_no_memory(err, "position tables", n * 256 * sizeof *host), "out of memory");
        return;
    }
    s2i_sine_2d(host, m->G, S2_MODEL_DIM);
    m->pe256 = s2i_constant(m, host, 1, m->G, m->G, S2_MODEL_DIM);
    s2i_sine_2d(host, m->G, S2_MEMORY_DIM);
    if ((m->pe64 = s2i_own(m, n * S2_MEMORY_DIM * sizeof *host)))
        OP(m->be, upload, m->pe64, host, n * S2_MEMORY_DIM * sizeof *host);
    s2i_rope_table(host, m->G, S2_MODEL_DIM);
    if ((m->rope = s2i_own(m, n * 256 * sizeof *host))) OP(m->be, upload, m->rope, host, n * 256 * sizeof *host);
    free(host);
}

enum s2_status s2_model_identify(const struct s2_source *src, struct s2_model_info *out, struct s2_err *err)
{
    struct s2_model *m = calloc(1, sizeof *m);
    if (!m) return s2_no_memory(err, "a model", sizeof *m);
    enum s2_status st = s2i_bind(m, NULL, src, err);
    if (st == S2_OK) {
        *out = m->info;
        static const char *const names[2][5] = {
            {"sam2_tiny", "sam2_small", "sam2_base_plus", "sam2_large", "sam2_mini"},
            {"sam2.1_tiny", "sam2.1_small", "sam2.1_base_plus", "sam2.1_large", "sam2.1_mini"}};
        for (int i = 0; i < s2i_n_hiera_sizes; i++)
            if (s2i_hiera_sizes[i].name == m->info.size) out->name = names[m->info.family == S2_FAMILY_SAM2_1][i];
    }
    free(m);
    return st;
}

enum s2_status s2_model_load(struct s2_model **out, struct s2_backend *be, const struct s2_source *src, int image_size,
                             struct s2_err *err)
{
    if (image_size != 0 && (image_size < 128 || image_size > 2048 || image_size % 64 != 0))
        return s2_fail(err, S2_E_USAGE,
                       "the model input side %d is not a multiple of 64 from 128 to 2048; use 512 or 1024", image_size);
    struct s2_model *m = calloc(1, sizeof *m);
    if (!m) return s2_no_memory(err, "a model", sizeof *m);
    m->be = be;
    m->S = image_size;
    enum s2_status st = s2i_bind(m, be, src, err);
    if (st == S2_OK) {
        make_tables(m, err);
        st = s2_backend_check(be, err);
    }
    if (st != S2_OK) {
        s2_model_free(m);
        return st;
    }
    *out = m;
    return S2_OK;
}

const struct s2_model_info *s2_model_get_info(const struct s2_model *m)
{
    return &m->info;
}

/* Every linear layer and convolution of the model, once */
static void each_weight(struct s2_model *m, void (*linear)(struct s2_backend *, struct s2_linear *),
                        void (*conv)(struct s2_backend *, struct s2_conv *))
{
#define L(x)         linear(m->be, &(x))
#define C(x)         conv(m->be, &(x))
#define ATTENTION(a) L((a).q), L((a).k), L((a).v), L((a).out)
#define MLP3(p)      L((p).layer[0]), L((p).layer[1]), L((p).layer[2])
    C(m->trunk.patch);
    for (int i = 0; i < m->trunk.n_blocks; i++) {
        struct s2i_block *b = &m->trunk.block[i];
        L(b->qkv), L(b->proj), L(b->shortcut), L(b->fc1), L(b->fc2);
    }
    L(m->neck.c5), L(m->neck.c4), L(m->neck.s1), L(m->neck.s0);
    for (int i = 0; i < m->memory_attention.n_layers; i++) {
        struct s2i_memory_layer *l = &m->memory_attention.layer[i];
        L(l->qkv), L(l->self_out), L(l->cross_q), L(l->cross_k), L(l->cross_vo), L(l->fc1), L(l->fc2);
    }
    struct s2i_memory_encoder *e = &m->memory_encoder;
    for (int i = 0; i < 4; i++) C(e->down[i]);
    L(e->down_out), L(e->pixel), L(e->out);
    for (int i = 0; i < 2; i++) C(e->fuser[i].depthwise), L(e->fuser[i].fc1), L(e->fuser[i].fc2);
    C(m->prompt_encoder.down[0]), C(m->prompt_encoder.down[1]), L(m->prompt_encoder.out);
    struct s2i_mask_decoder *d = &m->decoder;
    for (int i = 0; i < 2; i++) {
        ATTENTION(d->layer[i].self), ATTENTION(d->layer[i].to_image), ATTENTION(d->layer[i].to_token);
        L(d->layer[i].fc1), L(d->layer[i].fc2);
    }
    ATTENTION(d->final), L(d->up1), L(d->up2);
    for (int i = 0; i < 4; i++) MLP3(d->hyper[i]);
    MLP3(d->iou), MLP3(d->score), MLP3(m->pointer), L(m->pointer_position);
#undef L
#undef C
#undef ATTENTION
#undef MLP3
}

static void free_linear(struct s2_backend *be, struct s2_linear *l)
{
    if (l->impl) be->ops->linear_destroy(be, l);
    l->impl = NULL;
}

static void free_conv(struct s2_backend *be, struct s2_conv *c)
{
    if (c->impl) be->ops->conv_destroy(be, c);
    c->impl = NULL;
}

void s2_model_free(struct s2_model *m)
{
    if (!m) return;
    each_weight(m, free_linear, free_conv);
    for (int i = 0; i < m->n_owned; i++) m->be->ops->free(m->be, m->owned[i]);
    free(m->owned);
    free(m);
}

/* bind.c - every weight of the model, bound by its name in the reference's checkpoint["model"]. One list of
 * names serves identification (names and shapes only) and loading. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* configs/sam2.1/sam2.1_hiera_{t,s,b+,l}.yaml and hieradet.py's defaults; mini is this project's test model */
const struct s2i_hiera_size s2i_hiera_sizes[] = {
    {"tiny", 96, 1, {1, 2, 7, 2}, {5, 7, 9}, 3, {8, 4, 14, 7}, 7, 1024},
    {"small", 96, 1, {1, 2, 11, 2}, {7, 10, 13}, 3, {8, 4, 14, 7}, 7, 1024},
    {"base_plus", 112, 2, {2, 3, 16, 3}, {12, 16, 20}, 3, {8, 4, 14, 7}, 14, 1024},
    {"large", 144, 2, {2, 6, 36, 4}, {23, 33, 43}, 3, {8, 4, 16, 8}, 7, 1024},
    {"mini", 32, 1, {1, 2, 4, 1}, {4, 6}, 2, {8, 4, 14, 7}, 7, 512},
};
const int s2i_n_hiera_sizes = sizeof s2i_hiera_sizes / sizeof *s2i_hiera_sizes;

struct binder {
    struct s2_model *m;
    struct s2_backend *be; /* NULL: check only */
    const struct s2_source *src;
    struct s2_err *err;
    bool failed;
    int64_t used; /* tensors */
    int64_t elements;
};

/* ------------------------------------------------------------------ finding and checking */

static void fail(struct binder *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct binder *b, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!b->failed) s2_fail(b->err, S2_E_MODEL, "%s: %s", b->src->path, text);
    b->failed = true;
}

static bool has(const struct binder *b, const char *name)
{
    struct s2_stored t;
    return b->src->find(b->src->ctx, name, &t);
}

/* Finds `name` with the given shape; a linear layer may be stored as a 1x1 convolution. */
static bool find(struct binder *b, const char *name, const int64_t *dim, int ndim, struct s2_stored *t)
{
    char want[96], have[96];
    if (b->failed) return false;
    if (!b->src->find(b->src->ctx, name, t)) {
        fail(
            b,
            "the tensor \"%s\" is missing, so this is not a complete SAM 2 or SAM 2.1 checkpoint; download it again or "
            "export the whole model",
            name);
        return false;
    }
    int n = t->ndim;
    while (n > ndim && t->dim[n - 1] == 1) n--;
    if (n != ndim || memcmp(t->dim, dim, (size_t)n * sizeof *dim) != 0) {
        fail(b, "the tensor \"%s\" has shape %s, expected %s", name, s2_shape_text(t->dim, t->ndim, have, sizeof have),
             s2_shape_text(dim, ndim, want, sizeof want));
        return false;
    }
    b->used++;
    b->elements += (int64_t)t->elements;
    return true;
}

static size_t first_not_finite(const float *x, size_t n)
{
    size_t i = 0;
    while (i < n && isfinite(x[i])) i++;
    return i;
}

/* Finds and, when loading, converts into dst (room for its elements) */
static void read_into(struct binder *b, float *dst, const char *name, const int64_t *dim, int ndim)
{
    struct s2_stored t;
    if (!find(b, name, dim, ndim, &t)) return;
    if (t.dtype != S2_F32 && t.dtype != S2_F16 && t.dtype != S2_BF16 && t.dtype != S2_F64) {
        fail(b, "the tensor \"%s\" holds %s numbers, expected floating point", name, s2_dtype_name(t.dtype));
        return;
    }
    if (!b->be) return;
    if (!s2_stored_f32(&t, 0, t.elements, dst)) fail(b, "the tensor \"%s\" cannot be converted", name);
    size_t odd = first_not_finite(dst, t.elements);
    if (odd < t.elements)
        fail(b, "number %zu of the tensor \"%s\" is %s; the file is damaged, or its training went wrong", odd, name,
             isnan(dst[odd]) ? "not a number" : "infinite");
}

/* Host room for n floats while loading, NULL while checking. */
static float *room(struct binder *b, size_t n)
{
    if (!b->be || b->failed) return NULL;
    float *p = calloc(n, sizeof *p);
    if (!p) {
        s2_no_memory(b->err, "a weight", n * sizeof *p);
        b->failed = true;
    }
    return p;
}

static float *at(float *p, size_t offset)
{
    return p ? p + offset : NULL;
}

/* "prefix.leaf" */
static const char *join(char *buf, size_t size, const char *prefix, const char *leaf)
{
    snprintf(buf, size, "%s.%s", prefix, leaf);
    return buf;
}

#define DIMS(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void read_pair(struct binder *b, float *w, float *bias, const char *prefix, int out, int in)
{
    char name[160];
    read_into(b, w, join(name, sizeof name, prefix, "weight"), DIMS(out, in));
    read_into(b, bias, join(name, sizeof name, prefix, "bias"), DIMS(out));
}

/* ------------------------------------------------------------------ binding by kind */

static void make_linear(struct binder *b, struct s2_linear *l, const float *w, const float *bias, int out, int in)
{
    l->in = in, l->out = out;
    if (b->be && !b->failed) b->be->ops->linear_create(b->be, l, w, bias, in, out);
}

static void bind_linear(struct binder *b, struct s2_linear *l, const char *prefix, int out, int in)
{
    float *w = room(b, (size_t)out * (size_t)in), *bias = room(b, (size_t)out);
    read_pair(b, w, bias, prefix, out, in);
    make_linear(b, l, w, bias, out, in);
    free(w);
    free(bias);
}

static float *bind_vector(struct binder *b, const char *name, const int64_t *dim, int ndim)
{
    size_t n = 1;
    for (int i = 0; i < ndim; i++) n *= (size_t)dim[i];
    float *host = room(b, n), *dev = NULL;
    read_into(b, host, name, dim, ndim);
    if (b->be && !b->failed && (dev = s2i_own(b->m, n * sizeof *dev))) OP(b->be, upload, dev, host, n * sizeof *dev);
    free(host);
    return dev;
}

static void bind_norm(struct binder *b, struct s2_norm *n, const char *prefix, int c, float eps)
{
    char name[160];
    n->c = c, n->eps = eps;
    n->weight = bind_vector(b, join(name, sizeof name, prefix, "weight"), DIMS(c));
    n->bias = bind_vector(b, join(name, sizeof name, prefix, "bias"), DIMS(c));
}

static void bind_conv(struct binder *b, struct s2_conv *c, const char *prefix, int out, int in, int k, int stride,
                      int pad, int groups)
{
    char name[160];
    *c = (struct s2_conv){.in = in, .out = out, .k = k, .stride = stride, .pad = pad, .groups = groups};
    float *w = room(b, (size_t)out * (size_t)(in / groups) * (size_t)(k * k)), *bias = room(b, (size_t)out);
    read_into(b, w, join(name, sizeof name, prefix, "weight"), DIMS(out, in / groups, k, k));
    read_into(b, bias, join(name, sizeof name, prefix, "bias"), DIMS(out));
    if (b->be && !b->failed) b->be->ops->conv_create(b->be, c, w, bias);
    free(w);
    free(bias);
}

/* y = outer(inner(x)) as one layer, exact up to rounding. outer [out][mid], inner [mid][in] */
static void bind_folded(struct binder *b, struct s2_linear *l, const char *outer, const char *inner, int out, int mid,
                        int in)
{
    float *wo = room(b, (size_t)(out * mid)), *bo = room(b, (size_t)out), *wi = room(b, (size_t)(mid * in)),
          *bi = room(b, (size_t)mid), *w = room(b, (size_t)(out * in)), *bias = room(b, (size_t)out);
    read_pair(b, wo, bo, outer, out, mid);
    read_pair(b, wi, bi, inner, mid, in);
    if (b->be && !b->failed)
        for (int o = 0; o < out; o++) {
            double s = bo[o];
            for (int k = 0; k < mid; k++) s += (double)wo[o * mid + k] * bi[k];
            bias[o] = (float)s;
            for (int i = 0; i < in; i++) {
                s = 0;
                for (int k = 0; k < mid; k++) s += (double)wo[o * mid + k] * wi[k * in + i];
                w[o * in + i] = (float)s;
            }
        }
    make_linear(b, l, w, bias, out, in);
    free(wo), free(bo), free(wi), free(bi), free(w), free(bias);
}

/* Transposed convolution [in][out][2][2] as a linear layer with rows (dy, dx, out) */
static void bind_deconv(struct binder *b, struct s2_linear *l, const char *prefix, int out, int in)
{
    char name[160];
    float *stored = room(b, (size_t)(in * out * 4)), *w = room(b, (size_t)(in * out * 4)), *one = room(b, (size_t)out),
          *bias = room(b, (size_t)(out * 4));
    read_into(b, stored, join(name, sizeof name, prefix, "weight"), DIMS(in, out, 2, 2));
    read_into(b, one, join(name, sizeof name, prefix, "bias"), DIMS(out));
    if (b->be && !b->failed)
        for (int tap = 0; tap < 4; tap++)
            for (int o = 0; o < out; o++) {
                bias[tap * out + o] = one[o];
                for (int i = 0; i < in; i++) w[(tap * out + o) * in + i] = stored[(i * out + o) * 4 + tap];
            }
    make_linear(b, l, w, bias, 4 * out, in);
    free(stored), free(w), free(one), free(bias);
}

/* ------------------------------------------------------------------ parts */

static void bind_trunk(struct binder *b, const struct s2i_hiera_size *z)
{
    struct s2i_trunk *t = &b->m->trunk;
    char p[128], q[160];
    const char *trunk = "image_encoder.trunk";
    int side = b->m->S / 4, d = z->dim;

    snprintf(p, sizeof p, "%s.patch_embed.proj", trunk);
    bind_conv(b, &t->patch, p, d, 3, 7, 4, 3, 1);

    float *back = room(b, (size_t)(d * z->background * z->background)), *win = room(b, (size_t)(d * 64)),
          *pos = room(b, (size_t)side * (size_t)side * (size_t)d);
    read_into(b, back, join(q, sizeof q, trunk, "pos_embed"), DIMS(1, d, z->background, z->background));
    read_into(b, win, join(q, sizeof q, trunk, "pos_embed_window"), DIMS(1, d, 8, 8));
    if (b->be && !b->failed) {
        s2i_hiera_position(pos, side, d, back, z->background, win);
        t->position = s2i_constant(b->m, pos, 1, side, side, d);
    }
    free(back), free(win), free(pos);

    int i = 0, in = d;
    t->dim = d;
    for (int stage = 0; stage < 4; stage++) {
        for (int j = 0; j < z->stages[stage]; j++, i++) {
            struct s2i_block *k = &t->block[i];
            bool first = stage > 0 && j == 0; /* its window is the previous stage's */
            int o = d << stage;
            *k = (struct s2i_block){.in = in,
                                    .out = o,
                                    .heads = z->heads << stage,
                                    .window = z->window[first ? stage - 1 : stage],
                                    .pool = first};
            for (int g = 0; g < z->n_global; g++)
                if (z->global[g] == i) k->window = 0;
            snprintf(p, sizeof p, "%s.blocks.%d", trunk, i);
            bind_norm(b, &k->norm1, join(q, sizeof q, p, "norm1"), in, 1e-6f);
            bind_linear(b, &k->qkv, join(q, sizeof q, p, "attn.qkv"), 3 * o, in);
            bind_linear(b, &k->proj, join(q, sizeof q, p, "attn.proj"), o, o);
            bind_norm(b, &k->norm2, join(q, sizeof q, p, "norm2"), o, 1e-6f);
            bind_linear(b, &k->fc1, join(q, sizeof q, p, "mlp.layers.0"), 4 * o, o);
            bind_linear(b, &k->fc2, join(q, sizeof q, p, "mlp.layers.1"), o, 4 * o);
            if (in != o) bind_linear(b, &k->shortcut, join(q, sizeof q, p, "proj"), o, in);
            in = o;
        }
        t->stage_end[stage] = i - 1;
    }
    t->n_blocks = i;

    const char *neck = "image_encoder.neck.convs.%d.conv";
    snprintf(p, sizeof p, neck, 0);
    bind_linear(b, &b->m->neck.c5, p, 256, 8 * d);
    snprintf(p, sizeof p, neck, 1);
    bind_linear(b, &b->m->neck.c4, p, 256, 4 * d);
    snprintf(p, sizeof p, neck, 2);
    bind_folded(b, &b->m->neck.s1, "sam_mask_decoder.conv_s1", p, 64, 256, 2 * d);
    snprintf(p, sizeof p, neck, 3);
    bind_folded(b, &b->m->neck.s0, "sam_mask_decoder.conv_s0", p, 32, 256, d);
}

static void bind_memory_layer(struct binder *b, struct s2i_memory_layer *l, const char *p, int ff)
{
    char q[160], r[160];
    float *w = room(b, 3 * 256 * 256), *bias = room(b, 3 * 256);
    static const char *const part[] = {"q_proj", "k_proj", "v_proj"};
    for (int i = 0; i < 3; i++) {
        snprintf(q, sizeof q, "%s.self_attn.%s", p, part[i]);
        read_pair(b, at(w, (size_t)i * 256 * 256), at(bias, (size_t)i * 256), q, 256, 256);
    }
    make_linear(b, &l->qkv, w, bias, 3 * 256, 256);
    free(w), free(bias);
    bind_linear(b, &l->self_out, join(q, sizeof q, p, "self_attn.out_proj"), 256, 256);
    bind_linear(b, &l->cross_q, join(q, sizeof q, p, "cross_attn_image.q_proj"), 256, 256);
    bind_linear(b, &l->cross_k, join(q, sizeof q, p, "cross_attn_image.k_proj"), 256, 64);
    bind_folded(b, &l->cross_vo, join(q, sizeof q, p, "cross_attn_image.out_proj"),
                join(r, sizeof r, p, "cross_attn_image.v_proj"), 256, 256, 64);
    bind_norm(b, &l->norm1, join(q, sizeof q, p, "norm1"), 256, 1e-5f);
    bind_norm(b, &l->norm2, join(q, sizeof q, p, "norm2"), 256, 1e-5f);
    bind_norm(b, &l->norm3, join(q, sizeof q, p, "norm3"), 256, 1e-5f);
    bind_linear(b, &l->fc1, join(q, sizeof q, p, "linear1"), ff, 256);
    bind_linear(b, &l->fc2, join(q, sizeof q, p, "linear2"), 256, ff);
}

static void bind_memory_attention(struct binder *b)
{
    struct s2i_memory_attention *a = &b->m->memory_attention;
    char p[96], q[160];
    for (a->n_layers = 0; a->n_layers < 4; a->n_layers++) {
        struct s2_stored t;
        snprintf(q, sizeof q, "memory_attention.layers.%d.linear1.weight", a->n_layers);
        if (!b->src->find(b->src->ctx, q, &t) || t.ndim != 2 || t.dim[0] < 1 || t.dim[0] > 1 << 16) break;
        snprintf(p, sizeof p, "memory_attention.layers.%d", a->n_layers);
        bind_memory_layer(b, &a->layer[a->n_layers], p, (int)t.dim[0]);
    }
    if (a->n_layers == 0) fail(b, "the tensor \"memory_attention.layers.0.linear1.weight\" is missing or misshapen");
    bind_norm(b, &a->norm, "memory_attention.norm", 256, 1e-5f);
    b->m->tpos = bind_vector(b, "maskmem_tpos_enc", DIMS(S2_NUM_MASKMEM, 1, 1, 64));
}

static void bind_memory_encoder(struct binder *b)
{
    struct s2i_memory_encoder *e = &b->m->memory_encoder;
    char p[96], q[160];
    for (int i = 0, in = 1; i < 4; i++, in *= 4) {
        snprintf(p, sizeof p, "memory_encoder.mask_downsampler.encoder.%d", 3 * i);
        bind_conv(b, &e->down[i], p, 4 * in, in, 3, 2, 1, 1);
        snprintf(p, sizeof p, "memory_encoder.mask_downsampler.encoder.%d", 3 * i + 1);
        bind_norm(b, &e->down_norm[i], p, 4 * in, 1e-6f);
    }
    bind_linear(b, &e->down_out, "memory_encoder.mask_downsampler.encoder.12", 256, 256);
    bind_linear(b, &e->pixel, "memory_encoder.pix_feat_proj", 256, 256);
    for (int i = 0; i < 2; i++) {
        snprintf(p, sizeof p, "memory_encoder.fuser.layers.%d", i);
        bind_conv(b, &e->fuser[i].depthwise, join(q, sizeof q, p, "dwconv"), 256, 256, 7, 1, 3, 256);
        bind_norm(b, &e->fuser[i].norm, join(q, sizeof q, p, "norm"), 256, 1e-6f);
        bind_linear(b, &e->fuser[i].fc1, join(q, sizeof q, p, "pwconv1"), 1024, 256);
        float *w = room(b, 256 * 1024), *bias = room(b, 256), *gamma = room(b, 256);
        read_pair(b, w, bias, join(q, sizeof q, p, "pwconv2"), 256, 1024);
        read_into(b, gamma, join(q, sizeof q, p, "gamma"), DIMS(256));
        if (b->be && !b->failed)
            for (int o = 0; o < 256; o++) {
                bias[o] *= gamma[o];
                for (int k = 0; k < 1024; k++) w[o * 1024 + k] *= gamma[o];
            }
        make_linear(b, &e->fuser[i].fc2, w, bias, 256, 1024);
        free(w), free(bias), free(gamma);
    }
    bind_linear(b, &e->out, "memory_encoder.out_proj", 64, 256);
}

static void bind_prompt_encoder(struct binder *b)
{
    struct s2_model *m = b->m;
    struct s2i_prompt_encoder *e = &m->prompt_encoder;
    char q[160];
    float *gauss = room(b, 2 * 128), *embed = room(b, 5 * 256), *no_mask = room(b, 256),
          *grid = room(b, (size_t)m->N * 256);

    read_into(b, gauss, "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix", DIMS(2, 128));
    for (int i = 0; i < 4; i++) {
        snprintf(q, sizeof q, "sam_prompt_encoder.point_embeddings.%d.weight", i);
        read_into(b, at(embed, (size_t)i * 256), q, DIMS(1, 256));
    }
    read_into(b, at(embed, 4 * 256), "sam_prompt_encoder.not_a_point_embed.weight", DIMS(1, 256));
    read_into(b, no_mask, "sam_prompt_encoder.no_mask_embed.weight", DIMS(1, 256));
    if (b->be && !b->failed) {
        if ((e->gauss = s2i_own(m, 2 * 128 * sizeof(float))))
            OP(b->be, upload, e->gauss, gauss, 2 * 128 * sizeof(float));
        if ((e->embed = s2i_own(m, 5 * 256 * sizeof(float))))
            OP(b->be, upload, e->embed, embed, 5 * 256 * sizeof(float));
        e->no_mask = s2i_constant(m, no_mask, 1, 1, 1, 256);
        s2i_fourier_grid(grid, m->G, gauss);
        m->dense_pe = s2i_constant(m, grid, 1, m->G, m->G, 256);
    }
    free(gauss), free(embed), free(no_mask), free(grid);

    bind_conv(b, &e->down[0], "sam_prompt_encoder.mask_downscaling.0", 4, 1, 2, 2, 0, 1);
    bind_norm(b, &e->down_norm[0], "sam_prompt_encoder.mask_downscaling.1", 4, 1e-6f);
    bind_conv(b, &e->down[1], "sam_prompt_encoder.mask_downscaling.3", 16, 4, 2, 2, 0, 1);
    bind_norm(b, &e->down_norm[1], "sam_prompt_encoder.mask_downscaling.4", 16, 1e-6f);
    bind_linear(b, &e->out, "sam_prompt_encoder.mask_downscaling.6", 256, 16);
}

static void bind_attention(struct binder *b, struct s2_projections *a, const char *p, int inner)
{
    char q[160];
    bind_linear(b, &a->q, join(q, sizeof q, p, "q_proj"), inner, 256);
    bind_linear(b, &a->k, join(q, sizeof q, p, "k_proj"), inner, 256);
    bind_linear(b, &a->v, join(q, sizeof q, p, "v_proj"), inner, 256);
    bind_linear(b, &a->out, join(q, sizeof q, p, "out_proj"), 256, inner);
}

static void bind_mlp3(struct binder *b, struct s2i_mlp3 *mlp, const char *p, int out)
{
    char q[160];
    for (int i = 0; i < 3; i++) {
        snprintf(q, sizeof q, "%s.layers.%d", p, i);
        bind_linear(b, &mlp->layer[i], q, i == 2 ? out : 256, 256);
    }
}

static void bind_decoder(struct binder *b)
{
    struct s2i_mask_decoder *d = &b->m->decoder;
    char p[96], q[160];
    float *tokens = room(b, 6 * 256);
    read_into(b, tokens, "sam_mask_decoder.obj_score_token.weight", DIMS(1, 256));
    read_into(b, at(tokens, 256), "sam_mask_decoder.iou_token.weight", DIMS(1, 256));
    read_into(b, at(tokens, 2 * 256), "sam_mask_decoder.mask_tokens.weight", DIMS(4, 256));
    if (b->be && !b->failed) d->tokens = s2i_constant(b->m, tokens, 1, 1, 6, 256);
    free(tokens);

    for (int i = 0; i < 2; i++) {
        snprintf(p, sizeof p, "sam_mask_decoder.transformer.layers.%d", i);
        bind_attention(b, &d->layer[i].self, join(q, sizeof q, p, "self_attn"), 256);
        bind_attention(b, &d->layer[i].to_image, join(q, sizeof q, p, "cross_attn_token_to_image"), 128);
        bind_attention(b, &d->layer[i].to_token, join(q, sizeof q, p, "cross_attn_image_to_token"), 128);
        bind_linear(b, &d->layer[i].fc1, join(q, sizeof q, p, "mlp.layers.0"), 2048, 256);
        bind_linear(b, &d->layer[i].fc2, join(q, sizeof q, p, "mlp.layers.1"), 256, 2048);
        for (int k = 0; k < 4; k++) {
            snprintf(q, sizeof q, "%s.norm%d", p, k + 1);
            bind_norm(b, &d->layer[i].norm[k], q, 256, 1e-5f);
        }
    }
    bind_attention(b, &d->final, "sam_mask_decoder.transformer.final_attn_token_to_image", 128);
    bind_norm(b, &d->norm_final, "sam_mask_decoder.transformer.norm_final_attn", 256, 1e-5f);
    bind_deconv(b, &d->up1, "sam_mask_decoder.output_upscaling.0", 64, 256);
    bind_norm(b, &d->up_norm, "sam_mask_decoder.output_upscaling.1", 64, 1e-6f);
    bind_deconv(b, &d->up2, "sam_mask_decoder.output_upscaling.3", 32, 64);
    for (int i = 0; i < 4; i++) {
        snprintf(p, sizeof p, "sam_mask_decoder.output_hypernetworks_mlps.%d", i);
        bind_mlp3(b, &d->hyper[i], p, 32);
    }
    bind_mlp3(b, &d->iou, "sam_mask_decoder.iou_prediction_head", 4);
    bind_mlp3(b, &d->score, "sam_mask_decoder.pred_obj_score_head", 1);
}

static void bind_pointers(struct binder *b)
{
    struct s2_model *m = b->m;
    float *no_memory = room(b, 256);
    read_into(b, no_memory, "no_mem_embed", DIMS(1, 1, 256));
    if (b->be && !b->failed) m->no_memory = s2i_constant(m, no_memory, 1, 1, 1, 256);
    free(no_memory);
    bind_mlp3(b, &m->pointer, "obj_ptr_proj", 256);
    m->no_object_pointer = bind_vector(b, "no_obj_ptr", DIMS(1, 256));

    float downsample[17] = {0};
    read_into(b, downsample, "mask_downsample.weight", DIMS(1, 1, 4, 4));
    read_into(b, downsample + 16, "mask_downsample.bias", DIMS(1));
    memcpy(m->mask_downsample, downsample, sizeof downsample);

    if (m->info.family == S2_FAMILY_SAM2_1) {
        bind_linear(b, &m->pointer_position, "obj_ptr_tpos_proj", 64, 256);
        m->no_object_memory = bind_vector(b, "no_obj_embed_spatial", DIMS(1, 64));
    }
}

/* ------------------------------------------------------------------ which model is it? */

static int count_blocks(const struct binder *b)
{
    char name[160];
    for (int i = 0;; i++) {
        snprintf(name, sizeof name, "image_encoder.trunk.blocks.%d.norm1.weight", i);
        if (i > S2_MAX_BLOCKS || !has(b, name)) return i;
    }
}

static const struct s2i_hiera_size *which_size(struct binder *b)
{
    const char *name = "image_encoder.trunk.patch_embed.proj.weight";
    struct s2_stored t;
    if (has(b, "image_encoder.trunk.body.stem.conv1.c.weight")) {
        fail(b, "this is an EdgeTAM checkpoint, which this version cannot run; use a SAM 2 or SAM 2.1 one");
        return NULL;
    }
    if (!b->src->find(b->src->ctx, name, &t)) {
        fail(b,
             "there is no tensor \"%s\" among the %zu in it, so it holds no SAM 2 or SAM 2.1 model; use a checkpoint "
             "such "
             "as sam2.1_hiera_tiny.pt",
             name, b->src->count);
        return NULL;
    }
    if (t.ndim == 4 && t.dim[2] == 16) {
        fail(b, "this is an EfficientTAM checkpoint, which this version cannot run; use a SAM 2 or SAM 2.1 one");
        return NULL;
    }
    int blocks = count_blocks(b);
    for (int i = 0; i < s2i_n_hiera_sizes; i++) {
        const struct s2i_hiera_size *z = &s2i_hiera_sizes[i];
        if (t.ndim == 4 && t.dim[0] == z->dim && blocks == z->stages[0] + z->stages[1] + z->stages[2] + z->stages[3])
            return z;
    }
    char shape[96];
    fail(b,
         "its image encoder has %d blocks and \"%s\" of shape %s, which is no size of SAM 2 (tiny, small, base_plus, "
         "large)",
         blocks, name, s2_shape_text(t.dim, t.ndim, shape, sizeof shape));
    return NULL;
}

static void note_unused(const struct binder *b)
{
    /* no_mem_pos_enc is in every published file and used by no code */
    int64_t extra = (int64_t)b->src->count - b->used - (has(b, "no_mem_pos_enc") ? 1 : 0);
    if (extra > 0)
        s2_log(S2_LOG_INFO, "%s: %lld tensor%s no part of the model, and ignored", b->src->path, (long long)extra,
               extra == 1 ? " is" : "s are");
}

enum s2_status s2i_bind(struct s2_model *m, struct s2_backend *be, const struct s2_source *src, struct s2_err *err)
{
    struct binder b = {.m = m, .be = be, .src = src, .err = err};
    const struct s2i_hiera_size *z = which_size(&b);
    if (!z) return S2_E_MODEL;

    bool v21 = has(&b, "obj_ptr_tpos_proj.weight") || has(&b, "no_obj_embed_spatial");
    if (m->S == 0) m->S = z->native_size;
    m->G = m->S / 16;
    m->N = m->G * m->G;
    snprintf(m->name, sizeof m->name, "%s_%s", v21 ? "sam2.1" : "sam2", z->name);
    m->info = (struct s2_model_info){.family = v21 ? S2_FAMILY_SAM2_1 : S2_FAMILY_SAM2,
                                     .name = m->name,
                                     .size = z->name,
                                     .native_size = z->native_size,
                                     .image_size = m->S,
                                     .embed_dim = z->dim,
                                     .heads = z->heads};

    bind_trunk(&b, z);
    bind_memory_attention(&b);
    bind_memory_encoder(&b);
    bind_prompt_encoder(&b);
    bind_decoder(&b);
    bind_pointers(&b);
    if (b.failed) return err ? err->status : S2_E_MODEL;
    m->info.parameters = b.elements;
    m->info.blocks = m->trunk.n_blocks;
    m->info.memory_layers = m->memory_attention.n_layers;
    if (be) note_unused(&b);
    return be ? s2_backend_check(be, err) : S2_OK;
}

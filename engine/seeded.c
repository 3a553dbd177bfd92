/* seeded.c - weights made from a seed, so that tests and `bench --random` need no checkpoint. Element i of a tensor
 * is c + s*v with v in [-1,1) from splitmix64 (Steele, Lea, Flood 2014) started at FNV-1a-64 of the tensor's name; c
 * and s keep activations in a sane range. Names and shapes are those of the reference's checkpoints. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

struct entry {
    char name[104];
    int64_t dim[4];
    int ndim;
};

struct seeded {
    struct s2_source source; /* first: freed through it */
    uint64_t seed;
    struct entry *entry;
    size_t n, capacity;
    bool failed;
    float *data; /* the tensor asked for last */
    size_t room;
    char path[48];
};

/* ------------------------------------------------------------------ names and shapes */

static void put(struct seeded *s, const int64_t *dim, int ndim, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void put(struct seeded *s, const int64_t *dim, int ndim, const char *fmt, ...)
{
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 512;
        struct entry *grown = realloc(s->entry, capacity * sizeof *grown);
        if (!grown) {
            s->failed = true;
            return;
        }
        s->entry = grown;
        s->capacity = capacity;
    }
    struct entry *e = &s->entry[s->n++];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->name, sizeof e->name, fmt, ap);
    va_end(ap);
    memcpy(e->dim, dim, (size_t)ndim * sizeof *dim);
    e->ndim = ndim;
}

#define D(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void put_linear(struct seeded *s, const char *prefix, int out, int in)
{
    put(s, D(out, in), "%s.weight", prefix);
    put(s, D(out), "%s.bias", prefix);
}

static void put_conv(struct seeded *s, const char *prefix, int out, int in, int k)
{
    put(s, D(out, in, k, k), "%s.weight", prefix);
    put(s, D(out), "%s.bias", prefix);
}

static void put_norm(struct seeded *s, const char *prefix, int c)
{
    put(s, D(c), "%s.weight", prefix);
    put(s, D(c), "%s.bias", prefix);
}

#define AT(buf, ...) (snprintf(buf, sizeof buf, __VA_ARGS__), buf)

static void put_trunk(struct seeded *s, const struct s2i_hiera_size *z)
{
    char p[104];
    put(s, D(1, z->dim, z->background, z->background), "image_encoder.trunk.pos_embed");
    put(s, D(1, z->dim, 8, 8), "image_encoder.trunk.pos_embed_window");
    put_conv(s, "image_encoder.trunk.patch_embed.proj", z->dim, 3, 7);
    for (int stage = 0, i = 0, in = z->dim; stage < 4; stage++)
        for (int j = 0; j < z->stages[stage]; j++, i++) {
            int o = z->dim << stage;
            put_norm(s, AT(p, "image_encoder.trunk.blocks.%d.norm1", i), in);
            put_linear(s, AT(p, "image_encoder.trunk.blocks.%d.attn.qkv", i), 3 * o, in);
            put_linear(s, AT(p, "image_encoder.trunk.blocks.%d.attn.proj", i), o, o);
            put_norm(s, AT(p, "image_encoder.trunk.blocks.%d.norm2", i), o);
            put_linear(s, AT(p, "image_encoder.trunk.blocks.%d.mlp.layers.0", i), 4 * o, o);
            put_linear(s, AT(p, "image_encoder.trunk.blocks.%d.mlp.layers.1", i), o, 4 * o);
            if (in != o) put_linear(s, AT(p, "image_encoder.trunk.blocks.%d.proj", i), o, in);
            in = o;
        }
    for (int j = 0; j < 4; j++) put_conv(s, AT(p, "image_encoder.neck.convs.%d.conv", j), 256, z->dim << (3 - j), 1);
}

static void put_memory(struct seeded *s, int layers, int ff)
{
    static const char *const part[] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    char p[104];
    for (int i = 0; i < layers; i++) {
        for (int k = 0; k < 4; k++) {
            put_linear(s, AT(p, "memory_attention.layers.%d.self_attn.%s", i, part[k]), 256, 256);
            put_linear(s, AT(p, "memory_attention.layers.%d.cross_attn_image.%s", i, part[k]), 256,
                       k == 1 || k == 2 ? 64 : 256);
        }
        put_linear(s, AT(p, "memory_attention.layers.%d.linear1", i), ff, 256);
        put_linear(s, AT(p, "memory_attention.layers.%d.linear2", i), 256, ff);
        for (int k = 1; k <= 3; k++) put_norm(s, AT(p, "memory_attention.layers.%d.norm%d", i, k), 256);
    }
    put_norm(s, "memory_attention.norm", 256);
    for (int i = 0, in = 1; i < 4; i++, in *= 4) {
        put_conv(s, AT(p, "memory_encoder.mask_downsampler.encoder.%d", 3 * i), 4 * in, in, 3);
        put_norm(s, AT(p, "memory_encoder.mask_downsampler.encoder.%d", 3 * i + 1), 4 * in);
    }
    put_conv(s, "memory_encoder.mask_downsampler.encoder.12", 256, 256, 1);
    put_conv(s, "memory_encoder.pix_feat_proj", 256, 256, 1);
    for (int i = 0; i < 2; i++) {
        put(s, D(256), "memory_encoder.fuser.layers.%d.gamma", i);
        put_conv(s, AT(p, "memory_encoder.fuser.layers.%d.dwconv", i), 256, 1, 7);
        put_norm(s, AT(p, "memory_encoder.fuser.layers.%d.norm", i), 256);
        put_linear(s, AT(p, "memory_encoder.fuser.layers.%d.pwconv1", i), 1024, 256);
        put_linear(s, AT(p, "memory_encoder.fuser.layers.%d.pwconv2", i), 256, 1024);
    }
    put_conv(s, "memory_encoder.out_proj", 64, 256, 1);
}

static void put_prompts(struct seeded *s)
{
    char p[104];
    put(s, D(2, 128), "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix");
    for (int i = 0; i < 4; i++) put(s, D(1, 256), "sam_prompt_encoder.point_embeddings.%d.weight", i);
    put(s, D(1, 256), "sam_prompt_encoder.not_a_point_embed.weight");
    put(s, D(1, 256), "sam_prompt_encoder.no_mask_embed.weight");
    for (int i = 0, in = 1; i < 2; i++, in *= 4) {
        put_conv(s, AT(p, "sam_prompt_encoder.mask_downscaling.%d", 3 * i), 4 * in, in, 2);
        put_norm(s, AT(p, "sam_prompt_encoder.mask_downscaling.%d", 3 * i + 1), 4 * in);
    }
    put_conv(s, "sam_prompt_encoder.mask_downscaling.6", 256, 16, 1);
}

static void put_attention(struct seeded *s, const char *prefix, int inner)
{
    char p[104];
    put_linear(s, AT(p, "%.80s.q_proj", prefix), inner, 256);
    put_linear(s, AT(p, "%.80s.k_proj", prefix), inner, 256);
    put_linear(s, AT(p, "%.80s.v_proj", prefix), inner, 256);
    put_linear(s, AT(p, "%.80s.out_proj", prefix), 256, inner);
}

static void put_mlp3(struct seeded *s, const char *prefix, int out)
{
    char p[104];
    for (int i = 0; i < 3; i++) put_linear(s, AT(p, "%.80s.layers.%d", prefix, i), i == 2 ? out : 256, 256);
}

static void put_decoder(struct seeded *s)
{
    char p[104];
    const char *layer = "sam_mask_decoder.transformer.layers";
    put(s, D(1, 256), "sam_mask_decoder.obj_score_token.weight");
    put(s, D(1, 256), "sam_mask_decoder.iou_token.weight");
    put(s, D(4, 256), "sam_mask_decoder.mask_tokens.weight");
    for (int i = 0; i < 2; i++) {
        put_attention(s, AT(p, "%.80s.%d.self_attn", layer, i), 256);
        put_attention(s, AT(p, "%.80s.%d.cross_attn_token_to_image", layer, i), 128);
        put_attention(s, AT(p, "%.80s.%d.cross_attn_image_to_token", layer, i), 128);
        put_linear(s, AT(p, "%.80s.%d.mlp.layers.0", layer, i), 2048, 256);
        put_linear(s, AT(p, "%.80s.%d.mlp.layers.1", layer, i), 256, 2048);
        for (int k = 1; k <= 4; k++) put_norm(s, AT(p, "%.80s.%d.norm%d", layer, i, k), 256);
    }
    put_attention(s, "sam_mask_decoder.transformer.final_attn_token_to_image", 128);
    put_norm(s, "sam_mask_decoder.transformer.norm_final_attn", 256);
    put(s, D(256, 64, 2, 2), "sam_mask_decoder.output_upscaling.0.weight");
    put(s, D(64), "sam_mask_decoder.output_upscaling.0.bias");
    put_norm(s, "sam_mask_decoder.output_upscaling.1", 64);
    put(s, D(64, 32, 2, 2), "sam_mask_decoder.output_upscaling.3.weight");
    put(s, D(32), "sam_mask_decoder.output_upscaling.3.bias");
    put_conv(s, "sam_mask_decoder.conv_s0", 32, 256, 1);
    put_conv(s, "sam_mask_decoder.conv_s1", 64, 256, 1);
    for (int i = 0; i < 4; i++) put_mlp3(s, AT(p, "sam_mask_decoder.output_hypernetworks_mlps.%d", i), 32);
    put_mlp3(s, "sam_mask_decoder.iou_prediction_head", 4);
    put_mlp3(s, "sam_mask_decoder.pred_obj_score_head", 1);
}

static void put_top(struct seeded *s, bool v21)
{
    put(s, D(S2_NUM_MASKMEM, 1, 1, 64), "maskmem_tpos_enc");
    put(s, D(1, 1, 256), "no_mem_embed");
    put(s, D(1, 1, 256), "no_mem_pos_enc");
    put(s, D(1, 256), "no_obj_ptr");
    put_conv(s, "mask_downsample", 1, 1, 4);
    put_mlp3(s, "obj_ptr_proj", 256);
    if (!v21) return;
    put(s, D(1, 64), "no_obj_embed_spatial");
    put_linear(s, "obj_ptr_tpos_proj", 64, 256);
}

/* ------------------------------------------------------------------ values */

static bool ends(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

static bool contains_any(const char *name, const char *const *part)
{
    for (; *part; part++)
        if (strstr(name, *part)) return true;
    return false;
}

/* centre and half width of a tensor's values */
static void range_of(const struct entry *e, double *c, double *s)
{
    static const char *const sharp[] = {"q_proj", "k_proj", "qkv", "_head.", "hypernetworks", NULL};
    const char *name = e->name;
    *c = 0, *s = 0.5;
    if (ends(name, "positional_encoding_gaussian_matrix"))
        *s = 2;
    else if (ends(name, ".gamma"))
        *c = 0.5, *s = 0.25;
    else if (ends(name, ".weight") && e->ndim == 1)
        *c = 1, *s = 0.25;
    else if (ends(name, "pred_obj_score_head.layers.2.bias"))
        *c = 0.5, *s = 0.25;
    else if (ends(name, ".bias"))
        *s = 0.25;
    else if (ends(name, "_embed.weight") || ends(name, "_token.weight") || ends(name, "_tokens.weight") ||
             strstr(name, "point_embeddings."))
        *s = 1;
    else if (ends(name, ".weight")) {
        int64_t fan = strstr(name, "output_upscaling") ? e->dim[0] : 1;
        for (int i = 1; i < e->ndim && !strstr(name, "output_upscaling"); i++) fan *= e->dim[i];
        double gain = 1;
        if (contains_any(name, sharp))
            gain = 1.5;
        else if (strstr(name, "trunk.") && (ends(name, ".attn.proj.weight") || ends(name, ".mlp.layers.1.weight")))
            gain = 0.5;
        *s = gain * sqrt(3.0 / (double)fan);
    }
}

static void generate(float *out, size_t n, const struct entry *e, uint64_t seed)
{
    const uint64_t step = 0x9e3779b97f4a7c15u;
    uint64_t h = 0xcbf29ce484222325u;
    double c, s;
    for (const char *p = e->name; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    h ^= seed * step;
    range_of(e, &c, &s);
    for (size_t i = 0; i < n; i++) {
        uint64_t z = h + (i + 1) * step;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        out[i] = (float)(c + s * (((double)(z >> 40) - 8388608.0) / 8388608.0));
    }
}

/* ------------------------------------------------------------------ the source */

static size_t elements(const struct entry *e)
{
    size_t n = 1;
    for (int i = 0; i < e->ndim; i++) n *= (size_t)e->dim[i];
    return n;
}

static bool give(struct seeded *s, const struct entry *e, struct s2_stored *out)
{
    size_t n = elements(e);
    if (n > s->room) return false;
    generate(s->data, n, e, s->seed);
    *out = (struct s2_stored){.name = e->name, .dtype = S2_F32, .ndim = e->ndim, .data = s->data, .elements = n};
    memcpy(out->dim, e->dim, sizeof e->dim);
    return true;
}

static bool source_at(void *ctx, size_t i, struct s2_stored *out)
{
    struct seeded *s = ctx;
    return i < s->n && give(s, &s->entry[i], out);
}

static bool source_find(void *ctx, const char *name, struct s2_stored *out)
{
    struct seeded *s = ctx;
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->entry[i].name, name) == 0) return give(s, &s->entry[i], out);
    return false;
}

struct s2_source *s2_seeded_source(const char *model, uint64_t seed)
{
    bool v21 = strncmp(model, "sam2-", 5) != 0;
    const char *size = v21 ? model : model + 5;
    const struct s2i_hiera_size *z = NULL;
    for (int i = 0; i < s2i_n_hiera_sizes; i++)
        if (strcmp(s2i_hiera_sizes[i].name, size) == 0) z = &s2i_hiera_sizes[i];
    struct seeded *s = z ? calloc(1, sizeof *s) : NULL;
    if (!s) return NULL;

    bool mini = z->dim == 32;
    put_top(s, v21);
    put_trunk(s, z);
    put_memory(s, mini ? 2 : 4, mini ? 1024 : 2048);
    put_prompts(s);
    put_decoder(s);
    for (size_t i = 0; i < s->n; i++)
        if (elements(&s->entry[i]) > s->room) s->room = elements(&s->entry[i]);
    s->data = malloc(s->room * sizeof *s->data);
    s->seed = seed;
    snprintf(s->path, sizeof s->path, "random %s", model);
    s->source = (struct s2_source){.ctx = s, .path = s->path, .count = s->n, .at = source_at, .find = source_find};
    if (s->failed || !s->data) {
        s2_seeded_free(&s->source);
        return NULL;
    }
    return &s->source;
}

void s2_seeded_free(struct s2_source *source)
{
    if (!source) return;
    struct seeded *s = source->ctx;
    free(s->entry);
    free(s->data);
    free(s);
}

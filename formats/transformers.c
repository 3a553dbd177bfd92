/* transformers.c - from the names of Hugging Face transformers (Sam2VideoModel) to those of the reference.
 *
 * Source of the pairs: convert_sam2_video_to_hf.py in transformers. Shapes are the same, but for the four point
 * embeddings, which transformers stacks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"

#define HIERA_MARK   "vision_encoder.backbone.patch_embed.projection.weight"
#define EDGETAM_MARK "vision_encoder.backbone.timm_model.stem.conv1.c.weight"
#define POINTS       "prompt_encoder.point_embed.weight"

/* The beginning of a name and what replaces it; '#' stands for a number. The first match counts. */
static const struct {
    const char *from, *to;
} rules[] = {
    {"vision_encoder.backbone.patch_embed.projection.", "image_encoder.trunk.patch_embed.proj."},
    {"vision_encoder.backbone.blocks.#.layer_norm", "image_encoder.trunk.blocks.#.norm"},
    {"vision_encoder.backbone.blocks.#.mlp.proj_in.", "image_encoder.trunk.blocks.#.mlp.layers.0."},
    {"vision_encoder.backbone.blocks.#.mlp.proj_out.", "image_encoder.trunk.blocks.#.mlp.layers.1."},
    {"vision_encoder.backbone.", "image_encoder.trunk."},
    {"vision_encoder.neck.convs.#.", "image_encoder.neck.convs.#.conv."},

    {"memory_temporal_positional_encoding", "maskmem_tpos_enc"},
    {"no_memory_embedding", "no_mem_embed"},
    {"no_memory_positional_encoding", "no_mem_pos_enc"},
    {"no_object_pointer", "no_obj_ptr"},
    {"occlusion_spatial_embedding_parameter", "no_obj_embed_spatial"},
    {"temporal_positional_encoding_projection_layer.", "obj_ptr_tpos_proj."},
    {"object_pointer_proj.proj_in.", "obj_ptr_proj.layers.0."},
    {"object_pointer_proj.layers.0.", "obj_ptr_proj.layers.1."},
    {"object_pointer_proj.proj_out.", "obj_ptr_proj.layers.2."},

    {"memory_attention.layers.#.self_attn.o_proj.", "memory_attention.layers.#.self_attn.out_proj."},
    {"memory_attention.layers.#.cross_attn_image.o_proj.", "memory_attention.layers.#.cross_attn_image.out_proj."},
    {"memory_attention.layers.#.layer_norm", "memory_attention.layers.#.norm"},
    {"memory_attention.layer_norm.", "memory_attention.norm."},

    {"memory_encoder.mask_downsampler.layers.0.conv.", "memory_encoder.mask_downsampler.encoder.0."},
    {"memory_encoder.mask_downsampler.layers.0.layer_norm.", "memory_encoder.mask_downsampler.encoder.1."},
    {"memory_encoder.mask_downsampler.layers.1.conv.", "memory_encoder.mask_downsampler.encoder.3."},
    {"memory_encoder.mask_downsampler.layers.1.layer_norm.", "memory_encoder.mask_downsampler.encoder.4."},
    {"memory_encoder.mask_downsampler.layers.2.conv.", "memory_encoder.mask_downsampler.encoder.6."},
    {"memory_encoder.mask_downsampler.layers.2.layer_norm.", "memory_encoder.mask_downsampler.encoder.7."},
    {"memory_encoder.mask_downsampler.layers.3.conv.", "memory_encoder.mask_downsampler.encoder.9."},
    {"memory_encoder.mask_downsampler.layers.3.layer_norm.", "memory_encoder.mask_downsampler.encoder.10."},
    {"memory_encoder.mask_downsampler.final_conv.", "memory_encoder.mask_downsampler.encoder.12."},
    {"memory_encoder.feature_projection.", "memory_encoder.pix_feat_proj."},
    {"memory_encoder.memory_fuser.layers.#.scale", "memory_encoder.fuser.layers.#.gamma"},
    {"memory_encoder.memory_fuser.layers.#.depthwise_conv.", "memory_encoder.fuser.layers.#.dwconv."},
    {"memory_encoder.memory_fuser.layers.#.pointwise_conv", "memory_encoder.fuser.layers.#.pwconv"},
    {"memory_encoder.memory_fuser.layers.#.layer_norm.", "memory_encoder.fuser.layers.#.norm."},
    {"memory_encoder.projection.", "memory_encoder.out_proj."},

    /* one matrix under two names; files may hold either or both */
    {"prompt_encoder.shared_embedding.positional_embedding",
     "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"},
    {"shared_image_embedding.positional_embedding", "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"},
    {"prompt_encoder.mask_embed.conv1.", "sam_prompt_encoder.mask_downscaling.0."},
    {"prompt_encoder.mask_embed.layer_norm1.", "sam_prompt_encoder.mask_downscaling.1."},
    {"prompt_encoder.mask_embed.conv2.", "sam_prompt_encoder.mask_downscaling.3."},
    {"prompt_encoder.mask_embed.layer_norm2.", "sam_prompt_encoder.mask_downscaling.4."},
    {"prompt_encoder.mask_embed.conv3.", "sam_prompt_encoder.mask_downscaling.6."},
    {"prompt_encoder.", "sam_prompt_encoder."},

    {"mask_decoder.transformer.layers.#.self_attn.o_proj.",
     "sam_mask_decoder.transformer.layers.#.self_attn.out_proj."},
    {"mask_decoder.transformer.layers.#.cross_attn_token_to_image.o_proj.",
     "sam_mask_decoder.transformer.layers.#.cross_attn_token_to_image.out_proj."},
    {"mask_decoder.transformer.layers.#.cross_attn_image_to_token.o_proj.",
     "sam_mask_decoder.transformer.layers.#.cross_attn_image_to_token.out_proj."},
    {"mask_decoder.transformer.layers.#.layer_norm", "sam_mask_decoder.transformer.layers.#.norm"},
    {"mask_decoder.transformer.layers.#.mlp.proj_in.", "sam_mask_decoder.transformer.layers.#.mlp.layers.0."},
    {"mask_decoder.transformer.layers.#.mlp.proj_out.", "sam_mask_decoder.transformer.layers.#.mlp.layers.1."},
    {"mask_decoder.transformer.final_attn_token_to_image.o_proj.",
     "sam_mask_decoder.transformer.final_attn_token_to_image.out_proj."},
    {"mask_decoder.transformer.layer_norm_final_attn.", "sam_mask_decoder.transformer.norm_final_attn."},
    {"mask_decoder.upscale_conv1.", "sam_mask_decoder.output_upscaling.0."},
    {"mask_decoder.upscale_layer_norm.", "sam_mask_decoder.output_upscaling.1."},
    {"mask_decoder.upscale_conv2.", "sam_mask_decoder.output_upscaling.3."},
    {"mask_decoder.output_hypernetworks_mlps.#.proj_in.", "sam_mask_decoder.output_hypernetworks_mlps.#.layers.0."},
    {"mask_decoder.output_hypernetworks_mlps.#.layers.0.", "sam_mask_decoder.output_hypernetworks_mlps.#.layers.1."},
    {"mask_decoder.output_hypernetworks_mlps.#.proj_out.", "sam_mask_decoder.output_hypernetworks_mlps.#.layers.2."},
    {"mask_decoder.iou_prediction_head.proj_in.", "sam_mask_decoder.iou_prediction_head.layers.0."},
    {"mask_decoder.iou_prediction_head.layers.0.", "sam_mask_decoder.iou_prediction_head.layers.1."},
    {"mask_decoder.iou_prediction_head.proj_out.", "sam_mask_decoder.iou_prediction_head.layers.2."},
    {"mask_decoder.pred_obj_score_head.proj_in.", "sam_mask_decoder.pred_obj_score_head.layers.0."},
    {"mask_decoder.pred_obj_score_head.layers.0.", "sam_mask_decoder.pred_obj_score_head.layers.1."},
    {"mask_decoder.pred_obj_score_head.proj_out.", "sam_mask_decoder.pred_obj_score_head.layers.2."},
    {"mask_decoder.", "sam_mask_decoder."},
};

/* Length of the beginning of name that matches pattern, 0 if none; the number's place goes to *number. */
static size_t match(const char *name, const char *pattern, const char **number, int *digits)
{
    const char *p = name;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*p++ != *pattern) return 0;
            continue;
        }
        *number = p;
        *digits = (int)strspn(p, "0123456789");
        if (!*digits) return 0;
        p += *digits;
    }
    return (size_t)(p - name);
}

/* The reference's name of a tensor, malloc'ed; NULL: no memory. */
static char *reference_name(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const char *number = "";
        int digits = 0;
        size_t matched = match(name, rules[i].from, &number, &digits);
        if (!matched) continue;
        size_t size = strlen(rules[i].to) + strlen(name) + 1;
        int before = (int)strcspn(rules[i].to, "#");
        const char *after = rules[i].to + before + (rules[i].to[before] == '#');
        char *renamed = malloc(size);
        if (renamed)
            snprintf(renamed, size, "%.*s%.*s%s%s", before, rules[i].to, digits, number, after, name + matched);
        return renamed;
    }
    return strdup(name);
}

static ptrdiff_t position(const struct fmt_tensors *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->at[i].name, name)) return (ptrdiff_t)i;
    return -1;
}

static void remove_at(struct fmt_tensors *t, size_t i)
{
    free((char *)t->at[i].name);
    memmove(&t->at[i], &t->at[i + 1], (t->count - i - 1) * sizeof *t->at);
    t->count--;
}

/* [4,256] becomes four of [1,256], in place. */
static enum s2_status split_points(struct fmt_tensors *t, size_t i, struct s2_err *err)
{
    struct s2_stored stacked = t->at[i];
    if (stacked.ndim != 2 || stacked.dim[0] != 4)
        return s2_fail(err, S2_E_MODEL, "%s: tensor \"%s\" does not hold the four point embeddings", t->path, POINTS);
    size_t row = stacked.elements / 4;
    for (size_t k = 0; k < 4; k++) {
        char name[64];
        struct s2_stored one = stacked;
        one.dim[0] = 1;
        one.elements = row;
        one.data = (const uint8_t *)stacked.data + k * row * s2_dtype_size(one.dtype);
        int n = snprintf(name, sizeof name, "sam_prompt_encoder.point_embeddings.%zu.weight", k);
        enum s2_status status = fmt_tensors_add(t, &one, name, (size_t)n, err);
        if (status) return status;
    }
    remove_at(t, i);
    return S2_OK;
}

enum s2_status fmt_transformers_rename(struct fmt_tensors *t, struct s2_err *err)
{
    if (position(t, EDGETAM_MARK) >= 0)
        return s2_fail(
            err, S2_E_MODEL,
            "%s: this holds EdgeTAM with the names of Hugging Face transformers, which are not supported; use the "
            "original edgetam.pt",
            t->path);
    if (position(t, HIERA_MARK) < 0) return S2_OK;

    if (position(t, "prompt_encoder.shared_embedding.positional_embedding") >= 0) {
        ptrdiff_t twin = position(t, "shared_image_embedding.positional_embedding");
        if (twin >= 0) remove_at(t, (size_t)twin);
    }
    ptrdiff_t points = position(t, POINTS);
    enum s2_status status = points >= 0 ? split_points(t, (size_t)points, err) : S2_OK;
    for (size_t i = 0; i < t->count && !status; i++) {
        char *name = reference_name(t->at[i].name);
        if (!name) return s2_no_memory(err, "a tensor's name", 256);
        free((char *)t->at[i].name);
        t->at[i].name = name;
    }
    return status;
}

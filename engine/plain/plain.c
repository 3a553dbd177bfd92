/* plain.c - opens the oracle backend; memory is the host's. */
#include "plain.h"

#include <stdlib.h>
#include <string.h>

static void *plain_alloc(struct s2_backend *be, size_t bytes)
{
    size_t padded;
    void *p = NULL;
    if (s2_add(bytes, 64, &padded)) p = aligned_alloc(64, padded / 64 * 64);
    if (!p) {
        be->skip = true;
        s2_no_memory(&be->err, "tensors", bytes);
    }
    return p;
}

static void plain_free(struct s2_backend *be, void *p)
{
    (void)be;
    free(p);
}

static void plain_copy(struct s2_backend *be, void *dst, const void *src, size_t bytes)
{
    if (be->skip || bytes == 0) return;
    memcpy(dst, src, bytes);
}

static void plain_close(struct s2_backend *be)
{
    free(be);
}

static const struct s2_ops ops = {
    .alloc = plain_alloc,
    .free = plain_free,
    .upload = plain_copy,
    .download = plain_copy,
    .linear_create = plain_linear_create,
    .linear_destroy = plain_linear_destroy,
    .conv_create = plain_conv_create,
    .conv_destroy = plain_conv_destroy,
    .close = plain_close,
    .preprocess = plain_preprocess,
    .conv = plain_conv,
    .conv_norm = s2_compose_conv_norm,
    .patch_embed = s2_compose_patch_embed,
    .max_pool2 = plain_max_pool2,
    .upsample2_add = plain_upsample2_add,
    .linear = plain_linear,
    .layer_norm = plain_layer_norm,
    .norm_linear = s2_compose_norm_linear,
    .mlp = plain_mlp,
    .add = plain_add,
    .rope = plain_rope,
    .attention = plain_attention,
    .window_attention = plain_window_attention,
    .take = plain_take,
    .concat = plain_concat,
    .scatter = plain_scatter,
    .point_tokens = plain_point_tokens,
    .token_attention = s2_compose_token_attention,
    .token_to_image = s2_compose_token_to_image,
    .token_mlp = s2_compose_token_mlp,
    .image_to_token = s2_compose_image_to_token,
    .token_heads = s2_compose_token_heads,
    .upscaled_masks = s2_compose_upscaled_masks,
    .deconv2 = plain_deconv2,
    .mask_logits = plain_mask_logits,
    .choose = plain_choose,
    .where_absent = plain_where_absent,
    .clamp = plain_clamp,
    .fill_holes = plain_fill_holes,
    .video_masks = plain_video_masks,
    .memory_mask = plain_memory_mask,
    .bank_store = plain_bank_store,
    .pointer_positions = plain_pointer_positions,
    .memory_attention = plain_memory_attention,
};

struct s2_backend *s2_plain_open(struct s2_err *err)
{
    struct s2_backend *be = calloc(1, sizeof *be);
    if (!be) {
        s2_no_memory(err, "the backend", sizeof *be);
        return NULL;
    }
    be->ops = &ops;
    be->name = "plain";
    be->act = S2_F32;
    be->max_batch = 4;
    return be;
}

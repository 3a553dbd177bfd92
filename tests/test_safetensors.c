/* .safetensors: round trips, headers that are wrong or hostile, and the names of Hugging Face transformers. */
#include "../formats/checkpoint.h"
#include "make_checkpoint.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t bytes[64] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

static enum s2_status read_bytes(struct fmt_tensors *list, const struct make_bytes *b, struct s2_err *err)
{
    *list = (struct fmt_tensors){.path = "f.safetensors"};
    enum s2_status status = fmt_safetensors_read(list, b->data, b->size, err);
    return status ? status : fmt_tensors_index(list, err);
}

Test(safetensors, round_trip_of_every_dtype)
{
    static const char *const names[] = {"f32", "f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u8", "bool"};
    struct make_tensor tensors[10] = {0};
    struct make_bytes b = {0};
    struct fmt_tensors list;
    struct s2_err err = {0};
    for (int i = 0; i < 10; i++)
        tensors[i] = (struct make_tensor){names[i], (enum s2_dtype)i, i % 4, {2, 1, 3}, bytes + i, 0};
    make_safetensors(&b, tensors, 10, NULL);
    cr_expect(fmt_safetensors_begins(b.data, b.size));
    cr_assert_eq(read_bytes(&list, &b, &err), S2_OK, "%s", err.text);
    cr_expect_eq(list.count, 10);
    for (int i = 0; i < 10; i++) {
        static const size_t elements[] = {1, 2, 2, 6};
        const struct s2_stored *t = fmt_tensors_find(&list, names[i]);
        cr_assert_not_null(t);
        cr_expect_eq(t->dtype, tensors[i].dtype);
        cr_expect_eq(t->ndim, i % 4);
        cr_expect_eq(t->elements, elements[i % 4]);
        cr_expect(!memcmp(t->data, bytes + i, t->elements * s2_dtype_size(t->dtype)));
    }
    fmt_tensors_free(&list);
    make_free(&b);
}

static struct make_bytes with_header(const char *header, size_t data)
{
    struct make_bytes b = {0};
    make_safetensors(&b, NULL, 0, header);
    make_put(&b, bytes, data);
    return b;
}

/* One tensor "x" of 4 floats in 16 bytes, but for what is said. */
static void accepts(const char *header, size_t data, size_t n, size_t first)
{
    struct make_bytes b = with_header(header, data);
    struct fmt_tensors list;
    struct s2_err err = {0};
    cr_assert_eq(read_bytes(&list, &b, &err), S2_OK, "%s", err.text);
    const struct s2_stored *t = fmt_tensors_find(&list, "x");
    cr_assert_not_null(t, "%s", header);
    cr_expect_eq(t->elements, n);
    if (n) cr_expect_eq(*(const uint8_t *)t->data, first);
    fmt_tensors_free(&list);
    make_free(&b);
}

static void refuses(const char *header, size_t data, const char *sentence)
{
    struct make_bytes b = with_header(header, data);
    struct fmt_tensors list;
    struct s2_err err = {0};
    cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL, "%s", header);
    cr_expect(strstr(err.text, sentence), "\"%s\" does not say \"%s\"", err.text, sentence);
    cr_expect(!strncmp(err.text, "f.safetensors: ", 15), "%s", err.text);
    fmt_tensors_free(&list);
    make_free(&b);
}

#define X(dtype, shape, offsets) "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define Y(offsets)               "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" offsets "}"

Test(safetensors, tolerates)
{
    accepts(X("F32", "[4]", "[0,16]"), 16, 4, 0);
    accepts(X("F32", "[2,2]", "[0,16]") "     \n", 16, 4, 0);
    accepts(X("F32", "[]", "[4,8]"), 8, 1, 4);
    accepts(X("F32", "[0,3]", "[7,7]"), 8, 0, 0);
    accepts(X("U8", "[2]", "[5,7]"), 20, 2, 5); /* gaps in front and behind */
    accepts("{\"__metadata__\":{\"a\":\"b\"}, \"x\" : {\"data_offsets\":[0, 4],\"shape\":[1],\"dtype\":\"F32\"}}", 4, 1,
            0);
    accepts("{\"\\u0078\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}", 4, 1, 3);
    accepts("{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}," Y("[0,4]") "}", 8, 4, 4);
    accepts("{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}," Y("[4,8]") "}", 8, 0, 0);
}

Test(safetensors, escaped_names)
{
    struct make_bytes b =
        with_header("{\"a\\\"\\u00e9\\/b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    struct fmt_tensors list;
    struct s2_err err = {0};
    cr_assert_eq(read_bytes(&list, &b, &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(list.at[0].name, "a\"\xc3\xa9/b");
    fmt_tensors_free(&list);
    make_free(&b);
}

Test(safetensors, refuses_wrong_ranges)
{
    refuses(X("F32", "[4]", "[0,16]"), 15, "the file ends in the middle of tensor \"x\"");
    refuses(X("F32", "[4]", "[0,17]"), 32, "a shape that does not fit its data_offsets");
    refuses(X("F32", "[4]", "[0,8]"), 32, "a shape that does not fit its data_offsets");
    refuses(X("F16", "[4]", "[0,16]"), 32, "a shape that does not fit its data_offsets");
    refuses(X("F32", "[4]", "[16,0]"), 32, "no valid data_offsets");
    refuses(X("F32", "[4]", "[-16,0]"), 32, "no valid data_offsets");
    refuses(X("F32", "[4]", "[0]"), 32, "no valid data_offsets");
    refuses(X("F32", "[4]", "[0,16,32]"), 32, "no valid data_offsets");
    refuses(X("F32", "[4]", "{\"a\":0,\"b\":16}"), 32, "no valid data_offsets");
    refuses(X("F32", "[4]", "[0.5,16.5]"), 32, "no valid data_offsets");
    refuses(X("F32", "[4]", "[0,1e300]"), 32, "no valid data_offsets");
    refuses(X("F32", "[4]", "[18446744073709551600,18446744073709551616]"), 32, "no valid data_offsets");
    refuses("{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}," Y("[3,7]") "}", 8,
            "overlaps another one");
    refuses("{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}," Y("[0,4]") "}", 8,
            "overlaps another one");
}

Test(safetensors, refuses_wrong_entries)
{
    refuses(X("F32", "[-4]", "[0,16]"), 16, "a negative or odd shape");
    refuses(X("F32", "[\"4\"]", "[0,16]"), 16, "a negative or odd shape");
    refuses(X("F32", "4", "[0,16]"), 16, "no shape");
    refuses(X("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), 16, "more than 8 dimensions");
    refuses(X("F32", "[4294967296,4294967296]", "[0,0]"), 16, "a shape that is larger than memory");
    refuses(X("F32", "[4503599627370496,1024]", "[0,0]"), 16, "a shape that is larger than memory");
    refuses(X("F8_E4M3", "[4]", "[0,4]"), 16, "elements of type F8_E4M3, which is not supported");
    refuses("{\"x\":{\"dtype\":1,\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "has no dtype");
    refuses("{\"x\":{\"Dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "has no dtype");
    refuses("{\"x\":7}", 16, "is not described by an object");
    refuses("{\"\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 16, "an empty or overlong name");
    refuses("{\"a\\n\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 16, "control characters");
    refuses("{" Y("[0,4]") "," Y("[4,8]") "}", 16, "two tensors are called \"y\"");
    refuses("{}", 16, "this holds no tensors");
    refuses("{\"__metadata__\":{\"format\":\"pt\"}}", 16, "this holds no tensors");
}

Test(safetensors, refuses_wrong_headers)
{
    refuses("", 16, "header is damaged");
    refuses("[]", 16, "header is damaged");
    refuses("{\"x\":", 16, "header is damaged");
    refuses("{} {}", 16, "header is damaged");
    refuses(X("F32", "[4]", "[0,16]") "]", 16, "header is damaged");
    refuses("{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
            16, "header is damaged");
}

Test(safetensors, refuses_lies_about_the_header)
{
    struct make_bytes b = {0};
    struct fmt_tensors list;
    struct s2_err err = {0};
    make_number(&b, (100u << 20) + 1, 8);
    make_text(&b, "{}");
    cr_expect_not(fmt_safetensors_begins(b.data, b.size));
    cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL);
    cr_expect(strstr(err.text, "longer than the format allows"), "%s", err.text);

    err = (struct s2_err){0};
    b.size = 0;
    make_number(&b, 3, 8);
    make_text(&b, "{}");
    cr_expect(fmt_safetensors_begins(b.data, b.size), "begins like one, but is cut off");
    cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL);
    cr_expect(strstr(err.text, "incomplete"), "%s", err.text);

    err = (struct s2_err){0};
    b.size = 7;
    cr_expect_not(fmt_safetensors_begins(b.data, b.size));
    cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL);
    make_free(&b);
}

/* ------------------------------------------------------------------ transformers */

static const struct {
    const char *transformers, *reference;
} pairs[] = {
    {"memory_temporal_positional_encoding", "maskmem_tpos_enc"},
    {"no_memory_embedding", "no_mem_embed"},
    {"no_memory_positional_encoding", "no_mem_pos_enc"},
    {"no_object_pointer", "no_obj_ptr"},
    {"occlusion_spatial_embedding_parameter", "no_obj_embed_spatial"},
    {"vision_encoder.backbone.pos_embed", "image_encoder.trunk.pos_embed"},
    {"vision_encoder.backbone.pos_embed_window", "image_encoder.trunk.pos_embed_window"},
    {"vision_encoder.backbone.patch_embed.projection.weight", "image_encoder.trunk.patch_embed.proj.weight"},
    {"vision_encoder.backbone.blocks.0.layer_norm1.weight", "image_encoder.trunk.blocks.0.norm1.weight"},
    {"vision_encoder.backbone.blocks.47.layer_norm2.bias", "image_encoder.trunk.blocks.47.norm2.bias"},
    {"vision_encoder.backbone.blocks.10.attn.qkv.weight", "image_encoder.trunk.blocks.10.attn.qkv.weight"},
    {"vision_encoder.backbone.blocks.10.attn.proj.bias", "image_encoder.trunk.blocks.10.attn.proj.bias"},
    {"vision_encoder.backbone.blocks.23.mlp.proj_in.weight", "image_encoder.trunk.blocks.23.mlp.layers.0.weight"},
    {"vision_encoder.backbone.blocks.23.mlp.proj_out.bias", "image_encoder.trunk.blocks.23.mlp.layers.1.bias"},
    {"vision_encoder.backbone.blocks.1.proj.weight", "image_encoder.trunk.blocks.1.proj.weight"},
    {"vision_encoder.neck.convs.3.weight", "image_encoder.neck.convs.3.conv.weight"},
    {"mask_downsample.weight", "mask_downsample.weight"},
    {"memory_attention.layers.3.self_attn.q_proj.weight", "memory_attention.layers.3.self_attn.q_proj.weight"},
    {"memory_attention.layers.3.self_attn.o_proj.bias", "memory_attention.layers.3.self_attn.out_proj.bias"},
    {"memory_attention.layers.0.cross_attn_image.v_proj.weight",
     "memory_attention.layers.0.cross_attn_image.v_proj.weight"},
    {"memory_attention.layers.0.cross_attn_image.o_proj.weight",
     "memory_attention.layers.0.cross_attn_image.out_proj.weight"},
    {"memory_attention.layers.2.linear1.weight", "memory_attention.layers.2.linear1.weight"},
    {"memory_attention.layers.2.layer_norm3.bias", "memory_attention.layers.2.norm3.bias"},
    {"memory_attention.layer_norm.weight", "memory_attention.norm.weight"},
    {"memory_encoder.mask_downsampler.layers.0.conv.weight", "memory_encoder.mask_downsampler.encoder.0.weight"},
    {"memory_encoder.mask_downsampler.layers.3.layer_norm.bias", "memory_encoder.mask_downsampler.encoder.10.bias"},
    {"memory_encoder.mask_downsampler.final_conv.weight", "memory_encoder.mask_downsampler.encoder.12.weight"},
    {"memory_encoder.feature_projection.weight", "memory_encoder.pix_feat_proj.weight"},
    {"memory_encoder.memory_fuser.layers.1.scale", "memory_encoder.fuser.layers.1.gamma"},
    {"memory_encoder.memory_fuser.layers.0.depthwise_conv.weight", "memory_encoder.fuser.layers.0.dwconv.weight"},
    {"memory_encoder.memory_fuser.layers.0.layer_norm.weight", "memory_encoder.fuser.layers.0.norm.weight"},
    {"memory_encoder.memory_fuser.layers.0.pointwise_conv2.bias", "memory_encoder.fuser.layers.0.pwconv2.bias"},
    {"memory_encoder.projection.weight", "memory_encoder.out_proj.weight"},
    {"prompt_encoder.not_a_point_embed.weight", "sam_prompt_encoder.not_a_point_embed.weight"},
    {"prompt_encoder.mask_embed.layer_norm1.weight", "sam_prompt_encoder.mask_downscaling.1.weight"},
    {"prompt_encoder.mask_embed.conv3.bias", "sam_prompt_encoder.mask_downscaling.6.bias"},
    {"mask_decoder.transformer.layers.1.cross_attn_token_to_image.o_proj.weight",
     "sam_mask_decoder.transformer.layers.1.cross_attn_token_to_image.out_proj.weight"},
    {"mask_decoder.transformer.layers.1.cross_attn_image_to_token.k_proj.bias",
     "sam_mask_decoder.transformer.layers.1.cross_attn_image_to_token.k_proj.bias"},
    {"mask_decoder.transformer.layers.0.mlp.proj_out.weight",
     "sam_mask_decoder.transformer.layers.0.mlp.layers.1.weight"},
    {"mask_decoder.transformer.layers.0.layer_norm4.weight", "sam_mask_decoder.transformer.layers.0.norm4.weight"},
    {"mask_decoder.transformer.final_attn_token_to_image.o_proj.bias",
     "sam_mask_decoder.transformer.final_attn_token_to_image.out_proj.bias"},
    {"mask_decoder.transformer.layer_norm_final_attn.weight", "sam_mask_decoder.transformer.norm_final_attn.weight"},
    {"mask_decoder.iou_token.weight", "sam_mask_decoder.iou_token.weight"},
    {"mask_decoder.upscale_conv2.weight", "sam_mask_decoder.output_upscaling.3.weight"},
    {"mask_decoder.upscale_layer_norm.bias", "sam_mask_decoder.output_upscaling.1.bias"},
    {"mask_decoder.conv_s1.weight", "sam_mask_decoder.conv_s1.weight"},
    {"mask_decoder.output_hypernetworks_mlps.3.proj_in.weight",
     "sam_mask_decoder.output_hypernetworks_mlps.3.layers.0.weight"},
    {"mask_decoder.output_hypernetworks_mlps.3.layers.0.weight",
     "sam_mask_decoder.output_hypernetworks_mlps.3.layers.1.weight"},
    {"mask_decoder.output_hypernetworks_mlps.3.proj_out.weight",
     "sam_mask_decoder.output_hypernetworks_mlps.3.layers.2.weight"},
    {"mask_decoder.iou_prediction_head.layers.0.bias", "sam_mask_decoder.iou_prediction_head.layers.1.bias"},
    {"mask_decoder.pred_obj_score_head.proj_out.bias", "sam_mask_decoder.pred_obj_score_head.layers.2.bias"},
    {"object_pointer_proj.layers.0.weight", "obj_ptr_proj.layers.1.weight"},
    {"object_pointer_proj.proj_out.weight", "obj_ptr_proj.layers.2.weight"},
    {"temporal_positional_encoding_projection_layer.weight", "obj_ptr_tpos_proj.weight"},
    {"something.else", "something.else"},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };
#define MATRIX    "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"
#define SHARED    "prompt_encoder.shared_embedding.positional_embedding"
#define DUPLICATE "shared_image_embedding.positional_embedding"

static void add(struct fmt_tensors *list, const char *name, int64_t rows, const uint8_t *data)
{
    struct s2_stored t = {.dtype = S2_F16, .ndim = 2, .dim = {rows, 2}, .data = data, .elements = (size_t)rows * 2};
    cr_assert_eq(fmt_tensors_add(list, &t, name, strlen(name), NULL), S2_OK);
}

Test(transformers, renames_to_the_reference)
{
    struct fmt_tensors list = {.path = "f"};
    struct s2_err err = {0};
    for (int i = 0; i < PAIRS; i++) add(&list, pairs[i].transformers, 1, bytes + i);
    cr_assert_eq(fmt_transformers_rename(&list, &err), S2_OK, "%s", err.text);
    cr_assert_eq(list.count, PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        cr_expect_str_eq(list.at[i].name, pairs[i].reference);
        cr_expect_eq(list.at[i].data, bytes + i);
    }
    fmt_tensors_free(&list);
}

Test(transformers, splits_the_point_embeddings)
{
    struct fmt_tensors list = {.path = "f"};
    struct s2_err err = {0};
    add(&list, "prompt_encoder.point_embed.weight", 4, bytes);
    add(&list, pairs[7].transformers, 1, bytes);
    cr_assert_eq(fmt_transformers_rename(&list, &err), S2_OK, "%s", err.text);
    cr_assert_eq(fmt_tensors_index(&list, &err), S2_OK, "%s", err.text);
    cr_expect_eq(list.count, 5);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "sam_prompt_encoder.point_embeddings.%d.weight", i);
        const struct s2_stored *t = fmt_tensors_find(&list, name);
        cr_assert_not_null(t, "%s", name);
        cr_expect(t->ndim == 2 && t->dim[0] == 1 && t->dim[1] == 2 && t->elements == 2);
        cr_expect_eq(t->data, bytes + 4 * i);
    }
    fmt_tensors_free(&list);

    add(&list, "prompt_encoder.point_embed.weight", 3, bytes);
    add(&list, pairs[7].transformers, 1, bytes);
    cr_expect_eq(fmt_transformers_rename(&list, &err), S2_E_MODEL);
    cr_expect(strstr(err.text, "the four point embeddings"), "%s", err.text);
    fmt_tensors_free(&list);
}

Test(transformers, takes_one_of_two_position_matrices)
{
    static const char *const names[][2] = {{SHARED, DUPLICATE}, {DUPLICATE, SHARED}, {SHARED, "a"}, {DUPLICATE, "a"}};
    for (int i = 0; i < 4; i++) {
        struct fmt_tensors list = {.path = "f"};
        struct s2_err err = {0};
        add(&list, pairs[7].transformers, 1, bytes);
        add(&list, names[i][0], 1, bytes);
        add(&list, names[i][1], 1, bytes);
        cr_assert_eq(fmt_transformers_rename(&list, &err), S2_OK, "%s", err.text);
        cr_assert_eq(fmt_tensors_index(&list, &err), S2_OK, "%s", err.text);
        cr_expect_not_null(fmt_tensors_find(&list, MATRIX));
        cr_expect_eq(list.count, i < 2 ? 2 : 3);
        fmt_tensors_free(&list);
    }
}

Test(transformers, other_files_keep_their_names)
{
    struct fmt_tensors list = {.path = "f"};
    struct s2_err err = {0};
    add(&list, "no_memory_embedding", 1, bytes);
    cr_assert_eq(fmt_transformers_rename(&list, &err), S2_OK);
    cr_expect_str_eq(list.at[0].name, "no_memory_embedding");
    add(&list, "vision_encoder.backbone.timm_model.stem.conv1.c.weight", 1, bytes);
    cr_expect_eq(fmt_transformers_rename(&list, &err), S2_E_MODEL);
    cr_expect(strstr(err.text, "EdgeTAM"), "%s", err.text);
    fmt_tensors_free(&list);
}

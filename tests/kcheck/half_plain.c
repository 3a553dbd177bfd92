/* half_plain.c - the oracle behind tensors of 16 bits: a backend to check kcheck itself with where no GPU works. It
 * keeps nothing in 16 bits on the way and takes each tensor only in the type that the contract says. */
#include "kcheck.h"

#include <stdlib.h>

static struct s2_ops plain; /* what is wrapped; its operators need nothing of a backend but its err and skip */

static void check_type(struct s2_backend *be, struct s2_tensor t, enum s2_dtype type)
{
    if (t.data && t.dtype != type) s2_backend_fail(be, S2_E_INTERNAL, "a tensor is %s", s2_dtype_name(t.dtype));
}

/* A copy in f32 with t's strides, given back to `narrow` or freed. */
static struct s2_tensor wide(struct s2_backend *be, struct s2_tensor t)
{
    const struct s2_tensor from = t;
    check_type(be, t, be->act);
    t.dtype = S2_F32;
    if (!t.data) return t;
    if (!(t.data = calloc((size_t)(s2_tokens(t) * t.ld) + 1, sizeof(float)))) exit(7);
    for (int64_t i = 0; !be->skip && i < s2_tokens(t); i++) {
        for (int64_t c = i * t.ld; c < i * t.ld + t.c; c++) {
            ((float *)t.data)[c] = kc_widened(from.data, (size_t)c, from.dtype);
        }
    }
    return t;
}

static void narrow(struct s2_backend *be, struct s2_tensor y, struct s2_tensor from)
{
    const int64_t row = y.ld * (int64_t)s2_dtype_size(y.dtype);
    for (int64_t i = 0; !be->skip && i < s2_tokens(y); i++) {
        kc_narrow((char *)y.data + i * row, (const float *)from.data + i * y.ld, (size_t)y.c, y.dtype);
    }
    free(from.data);
}

static void preprocess(struct s2_backend *be, struct s2_tensor y, const struct s2_image *frame)
{
    const struct s2_tensor to = wide(be, y);
    plain.preprocess(be, to, frame);
    narrow(be, y, to);
}

static void conv(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *c,
                 enum s2_act act)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, x);
    plain.conv(be, to, from, c, act);
    narrow(be, y, to);
    free(from.data);
}

static void max_pool2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, x);
    plain.max_pool2(be, to, from);
    narrow(be, y, to);
    free(from.data);
}

static void upsample2_add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, x);
    plain.upsample2_add(be, to, from);
    narrow(be, y, to);
    free(from.data);
}

static void linear(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *l,
                   enum s2_act act, bool accumulate)
{
    const bool f32 = y.dtype == S2_F32; /* as scores and pointers are */
    const struct s2_tensor to = f32 ? y : wide(be, y), from = wide(be, x);
    plain.linear(be, to, from, l, act, accumulate);
    if (!f32) narrow(be, y, to);
    free(from.data);
}

static void layer_norm(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                       enum s2_act act)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, x);
    plain.layer_norm(be, to, from, norm, act);
    narrow(be, y, to);
    free(from.data);
}

static void mlp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                const struct s2_linear *fc1, enum s2_act act, const struct s2_linear *fc2)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, x);
    plain.mlp(be, to, from, norm, fc1, act, fc2);
    narrow(be, y, to);
    free(from.data);
}

static void add(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b, float s)
{
    const struct s2_tensor to = wide(be, y), first = wide(be, a), second = wide(be, b);
    plain.add(be, to, first, second, s);
    narrow(be, y, to);
    free(first.data);
    free(second.data);
}

static void rope(struct s2_backend *be, struct s2_tensor x, const float *table, int width)
{
    const struct s2_tensor to = wide(be, x);
    plain.rope(be, to, table, width);
    narrow(be, x, to);
}

static void attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, struct s2_tensor k,
                      struct s2_tensor v, int heads)
{
    const struct s2_tensor to = wide(be, y), queries = wide(be, q), keys = wide(be, k), values = wide(be, v);
    plain.attention(be, to, queries, keys, values, heads);
    narrow(be, y, to);
    free(queries.data);
    free(keys.data);
    free(values.data);
}

static void window_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor qkv,
                             const struct s2_linear *lin, int heads, int window, bool pool)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, qkv);
    plain.window_attention(be, to, from, lin, heads, window, pool);
    narrow(be, y, to);
    free(from.data);
}

static void take(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int first)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, x);
    plain.take(be, to, from, first);
    narrow(be, y, to);
    free(from.data);
}

static void concat(struct s2_backend *be, struct s2_tensor y, struct s2_tensor a, struct s2_tensor b)
{
    const struct s2_tensor to = wide(be, y), first = wide(be, a), second = wide(be, b);
    plain.concat(be, to, first, second);
    narrow(be, y, to);
    free(first.data);
    free(second.data);
}

static void scatter(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const int32_t *index)
{
    check_type(be, y, S2_F32), check_type(be, x, S2_F32);
    plain.scatter(be, y, x, index);
}

static void point_tokens(struct s2_backend *be, struct s2_tensor y, const float *points, const float *gauss,
                         const float *embed, int size)
{
    const struct s2_tensor to = wide(be, y);
    plain.point_tokens(be, to, points, gauss, embed, size);
    narrow(be, y, to);
}

static void deconv2(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_linear *l,
                    struct s2_tensor skip, enum s2_act act)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, x), more = wide(be, skip);
    plain.deconv2(be, to, from, l, more, act);
    narrow(be, y, to);
    free(from.data);
    free(more.data);
}

static void mask_logits(struct s2_backend *be, struct s2_tensor y, struct s2_tensor hyper, struct s2_tensor u)
{
    const struct s2_tensor weights = wide(be, hyper), from = wide(be, u);
    check_type(be, y, S2_F32);
    plain.mask_logits(be, y, weights, from);
    free(weights.data);
    free(from.data);
}

static void choose(struct s2_backend *be, struct s2_tensor low, struct s2_tensor token, struct s2_tensor best_iou,
                   struct s2_tensor masks, struct s2_tensor iou, struct s2_tensor score, struct s2_tensor tokens,
                   int first, bool multimask)
{
    const struct s2_tensor to = wide(be, token), from = wide(be, tokens), f32[] = {low, best_iou, masks, iou, score};
    for (size_t i = 0; i < sizeof f32 / sizeof *f32; i++) check_type(be, f32[i], S2_F32);
    plain.choose(be, low, to, best_iou, masks, iou, score, from, first, multimask);
    narrow(be, token, to);
    free(from.data);
}

static void where_absent(struct s2_backend *be, struct s2_tensor x, struct s2_tensor score, const float *vec,
                         bool replace)
{
    const bool f32 = x.dtype == S2_F32; /* as pointers are */
    const struct s2_tensor to = f32 ? x : wide(be, x);
    check_type(be, score, S2_F32);
    plain.where_absent(be, to, score, vec, replace);
    if (!f32) narrow(be, x, to);
}

static void clamp(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, float lo, float hi)
{
    const bool f32 = y.dtype == S2_F32;
    const struct s2_tensor to = f32 ? y : wide(be, y);
    check_type(be, x, S2_F32);
    plain.clamp(be, to, x, lo, hi);
    if (!f32) narrow(be, y, to);
}

static void fill_holes(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, int area)
{
    check_type(be, y, S2_F32), check_type(be, x, S2_F32);
    plain.fill_holes(be, y, x, area);
}

static void video_masks(struct s2_backend *be, const struct s2_video_masks *out, struct s2_tensor low)
{
    check_type(be, low, S2_F32);
    plain.video_masks(be, out, low);
}

static void memory_mask(struct s2_backend *be, struct s2_tensor y, struct s2_tensor low, bool binarize)
{
    const struct s2_tensor to = wide(be, y);
    check_type(be, low, S2_F32);
    plain.memory_mask(be, to, low, binarize);
    narrow(be, y, to);
}

static void bank_store(struct s2_backend *be, const struct s2_bank *bank, const int32_t *slot, const int32_t *ptr_slot,
                       struct s2_tensor mem, struct s2_tensor ptr)
{
    const struct s2_tensor from = wide(be, mem);
    check_type(be, ptr, S2_F32);
    plain.bank_store(be, bank, slot, ptr_slot, from, ptr);
    free(from.data);
}

static void pointer_positions(struct s2_backend *be, struct s2_tensor y, const struct s2_bank_table *table,
                              const struct s2_linear *lin)
{
    check_type(be, y, S2_F32);
    plain.pointer_positions(be, y, table, lin);
}

static void memory_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const struct s2_bank *bank,
                             const struct s2_bank_table *table, const struct s2_linear *kproj, const float *pe,
                             const float *tpos, struct s2_tensor ptr_pos, const float *turn)
{
    const struct s2_tensor to = wide(be, y), from = wide(be, q);
    check_type(be, ptr_pos, S2_F32);
    plain.memory_attention(be, to, from, bank, table, kproj, pe, tpos, ptr_pos, turn);
    narrow(be, y, to);
    free(from.data);
}

struct s2_backend *kc_half_plain_open(enum s2_dtype act, struct s2_err *err)
{
    static struct s2_ops ops;
    struct s2_backend *be = s2_plain_open(err);
    if (!be) return NULL;
    plain = *be->ops;
    ops = plain;
    ops.preprocess = preprocess, ops.conv = conv, ops.max_pool2 = max_pool2, ops.upsample2_add = upsample2_add;
    ops.linear = linear, ops.layer_norm = layer_norm, ops.mlp = mlp, ops.add = add, ops.rope = rope;
    ops.attention = attention, ops.window_attention = window_attention, ops.take = take, ops.concat = concat;
    ops.scatter = scatter, ops.point_tokens = point_tokens, ops.deconv2 = deconv2, ops.mask_logits = mask_logits;
    ops.choose = choose, ops.where_absent = where_absent, ops.clamp = clamp, ops.fill_holes = fill_holes;
    ops.video_masks = video_masks, ops.memory_mask = memory_mask, ops.bank_store = bank_store;
    ops.pointer_positions = pointer_positions, ops.memory_attention = memory_attention;
    be->ops = &ops;
    be->act = act;
    return be;
}

/* bench_decoder.c - the steps of the mask decoder, for one object and for four, at 512 and at 1024 */
#include "kcheck.h"

#define T KC_TESTED

enum { C = 256, INNER = 128, TOKENS = 8 };

static struct kc_linear linears[32];
static int n_linears;

static struct s2_linear linear(int in, int out)
{
    linears[n_linears] = kc_linear(in, out);
    return linears[n_linears++].on[T];
}

static struct s2_projections projections(int inner)
{
    struct s2_projections p = {.q = linear(C, inner)};
    p.k = linear(C, inner), p.v = linear(C, inner), p.out = linear(inner, C);
    return p;
}

static void bench_tokens(int n, struct s2_tensor x, struct s2_tensor prompt, struct s2_norm norm, struct s2_tensor room)
{
    const double rows = TOKENS * n;
    if (kc_bench_wants("token_attention")) {
        const struct s2_projections p = projections(C);
        KC_BENCH("token_attention", 8.0 * rows * C * C, 8.0 * C * C,
                 KC_CALL(T, token_attention, x, x, prompt, &p, &norm, room), "%d x %d tokens", n, TOKENS);
    }
    if (kc_bench_wants("token_mlp")) {
        const struct s2_linear fc1 = linear(C, 2048), fc2 = linear(2048, C);
        KC_BENCH("token_mlp", 4.0 * rows * C * 2048, 4.0 * C * 2048, KC_CALL(T, token_mlp, x, &fc1, &fc2, &norm),
                 "%d x %d tokens", n, TOKENS);
    }
    if (kc_bench_wants("token_heads")) {
        struct s2_linear layer[6][3];
        struct s2_head head[6];
        const struct kc_tensor y = kc_poison(n, 1, 1, 6 * 32);
        for (int i = 0; i < 6; i++) {
            for (int k = 0; k < 3; k++) layer[i][k] = linear(C, k == 2 ? 32 : C);
            head[i] = (struct s2_head){i, layer[i], S2_ACT_NONE, s2_columns(y.on[T], i * 32, 32)};
        }
        KC_BENCH("token_heads", 24.0 * n * C * C, 24.0 * C * C, KC_CALL(T, token_heads, 6, head, x, room),
                 "%d x 6 tokens", n);
    }
}

static void bench_image(int n, int side, struct s2_tensor x, struct s2_tensor prompt, struct s2_norm norm,
                        struct s2_tensor room)
{
    const int N = side * side;
    const struct s2_tensor image = kc_noise(n, 1, N, C, 1).on[T], pe = kc_noise(1, 1, N, C, 1).on[T];
    const double bytes = (double)s2_elements(image) * (double)s2_dtype_size(image.dtype);
    const double products = 4.0 * n * N * C * INNER, scores = 4.0 * n * N * TOKENS * INNER;
    if (kc_bench_wants("token_to_image")) {
        const struct s2_projections p = projections(INNER);
        KC_BENCH("token_to_image", products + scores, 2 * bytes,
                 KC_CALL(T, token_to_image, x, prompt, image, pe, &p, &norm, room), "%d x %d tokens, %d^2", n, TOKENS,
                 side);
    }
    if (kc_bench_wants("image_to_token")) {
        const struct s2_projections p = projections(INNER);
        KC_BENCH("image_to_token", products + scores, 3 * bytes,
                 KC_CALL(T, image_to_token, image, pe, x, prompt, &p, &norm, room), "%d^2, %d x %d tokens", side, n,
                 TOKENS);
    }
    if (kc_bench_wants("upscaled_masks")) {
        const struct s2_linear up1 = linear(C, 4 * 64), up2 = linear(64, 4 * 32);
        const struct kc_norm between = kc_norm(64, 1e-6f);
        const struct kc_tensor s1 = kc_noise(1, 2 * side, 2 * side, 64, 1), s0 = kc_noise(1, 4 * side, 4 * side, 32, 1);
        const struct kc_tensor hyper = kc_noise(n, 1, 4, 32, 1), masks = kc_poison_f32(n, 4, 16 * N, 1);
        KC_BENCH("upscaled_masks", (double)n * N * (2 * C * C + 8 * 64 * 128 + 16 * 8 * 32),
                 2 * bytes + 64.0 * 4 * n * N,
                 KC_CALL(T, upscaled_masks, masks.on[T], hyper.on[T], s2_shape(image, n, side, side, C), &up1, s1.on[T],
                         &between.on[T], &up2, s0.on[T], room),
                 "%d x 4 x %d^2", n, 4 * side);
    }
}

void bench_decoder(void)
{
    static const char *const names[] = {"token_attention", "token_mlp",      "token_heads",
                                        "token_to_image",  "image_to_token", "upscaled_masks"};
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) any = any || kc_bench_wants(names[i]);
    for (int n = 1; any && n <= 4; n += 3) {
        for (int side = 32; side <= 64; side *= 2) {
            const struct s2_tensor x = kc_noise(n, 1, TOKENS, C, 1).on[T], prompt = kc_noise(n, 1, TOKENS, C, 1).on[T];
            const struct kc_tensor room = kc_noise(1, 1, 1, (int)s2_decoder_room(n, TOKENS, side * side), 1);
            const struct kc_norm norm = kc_norm(C, 1e-5f);
            if (side == 32) bench_tokens(n, x, prompt, norm.on[T], room.on[T]);
            bench_image(n, side, x, prompt, norm.on[T], room.on[T]);
            while (n_linears > 0) kc_linear_free(&linears[--n_linears]);
            kc_end();
        }
    }
}

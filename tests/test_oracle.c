/* test_oracle.c - the oracle backend against known answers: frames, masks, prompts. What the other backends
 * are compared with is pinned here: golden bytes of Pillow 12.3, golden values of PyTorch 2.15, small cases
 * worked by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "ops.h"

TestSuite(oracle, .timeout = 60);

static struct s2_backend *open_plain(void)
{
    struct s2_backend *be = s2_plain_open(NULL);
    cr_assert_not_null(be);
    return be;
}

static void close_plain(struct s2_backend *be)
{
    struct s2_err err = {0};
    cr_expect_eq(s2_backend_check(be, &err), S2_OK, "%s", err.text);
    be->ops->close(be);
}

static struct s2_tensor view(float *data, int n, int h, int w, int c)
{
    return (struct s2_tensor){data, S2_F32, n, h, w, c, c};
}

static void expect_floats(const char *what, const float *got, const float *want, int n, double tolerance)
{
    for (int i = 0; i < n; i++) {
        cr_expect(fabs((double)got[i] - want[i]) <= tolerance, "%s: element %d is %.9g, not %.9g", what, i,
                  (double)got[i], (double)want[i]);
    }
}

/* ------------------------------------------------------------------ frames: Pillow's bicubic */

/* Hard edges, so that both passes clip. */
static uint8_t sample(int x, int y, int c)
{
    const bool white = (x * x * 7 + y * y * 13 + x * y * 5 + c * 3) % 11 < 5;
    return white ? 255 : (uint8_t)(x * 50 + y * 30 + c * 10);
}

static void expect_resized(int width, int height, int size, const uint8_t *want)
{
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, deviation[3] = {0.229f, 0.224f, 0.225f};
    struct s2_backend *be = open_plain();
    const size_t stride = (size_t)width * 3 + 5;
    struct s2_image frame = {
        .width = width, .height = height, .stride = stride, .rgb = malloc(stride * (size_t)height)};
    float *y = malloc((size_t)(size * size * 3) * sizeof *y);
    cr_assert(frame.rgb && y);
    for (int i = 0; i < width * height * 3; i++) {
        const int c = i % 3, column = i / 3 % width, row = i / 3 / width;
        frame.rgb[(size_t)row * stride + (size_t)(column * 3 + c)] = sample(column, row, c);
    }
    be->ops->preprocess(be, view(y, 1, size, size, 3), &frame);
    for (int i = 0; i < size * size * 3; i++) {
        const float v = ((float)(want[i] / 255.0) - mean[i % 3]) / deviation[i % 3];
        cr_expect(y[i] == v, "%dx%d -> %d, byte %d is %.3f, not %d", width, height, size, i,
                  255 * ((double)y[i] * deviation[i % 3] + mean[i % 3]), want[i]);
    }
    free(frame.rgb);
    free(y);
    close_plain(be);
}

Test(oracle, pillow_shrinks)
{
    static const uint8_t from_16x9[] = {188, 148, 183, 186, 187, 171, 203, 167, 198, 205, 156, 173, 199, 186, 191, 215,
                                        167, 170, 151, 173, 221, 195, 156, 173, 182, 171, 215, 178, 220, 209, 148, 194,
                                        213, 163, 194, 190, 128, 198, 220, 221, 182, 166, 186, 201, 175, 145, 195, 213};
    expect_resized(16, 9, 4, from_16x9);
}

Test(oracle, pillow_shrinks_one_axis_and_grows_the_other)
{
    static const uint8_t from_5x3[] = {212, 225, 65,  53,  63,  255, 126, 205, 255, 237, 226, 226, 251, 98,  43,  143,
                                       88,  200, 169, 178, 240, 255, 243, 233, 199, 101, 117, 230, 134, 150, 225, 198,
                                       221, 180, 166, 244, 89,  232, 238, 255, 173, 141, 255, 252, 212, 40,  41,  254};
    expect_resized(5, 3, 4, from_5x3);
}

Test(oracle, pillow_skips_an_axis_of_equal_size)
{
    static const uint8_t from_4x6[] = {255, 172, 20,  122, 69,  199, 105, 115, 255, 186, 231, 234, 125, 161, 192, 253,
                                       111, 122, 209, 218, 205, 255, 209, 228, 89,  171, 221, 186, 159, 226, 220, 255,
                                       215, 246, 252, 180, 141, 199, 210, 224, 201, 230, 254, 91,  252, 255, 255, 43};
    expect_resized(4, 6, 4, from_4x6);
}

Test(oracle, pillow_grows)
{
    static const uint8_t from_3x5[] = {
        255, 255, 0,   214, 223, 65,  86,  101, 208, 40,  56,  255, 83,  95,  255, 103, 113, 255, 255, 69,  21,  255,
        73,  46,  222, 76,  100, 185, 92,  164, 132, 118, 237, 106, 130, 255, 124, 168, 174, 162, 155, 159, 243, 114,
        110, 255, 127, 120, 224, 190, 186, 206, 213, 211, 44,  199, 255, 84,  185, 255, 169, 139, 203, 212, 157, 178,
        230, 236, 183, 237, 255, 186, 94,  120, 229, 109, 128, 233, 141, 144, 244, 170, 183, 244, 193, 237, 225, 203,
        255, 216, 109, 255, 132, 148, 244, 144, 229, 193, 172, 255, 192, 204, 255, 239, 232, 255, 255, 245};
    expect_resized(3, 5, 6, from_3x5);
}

/* More than a hundred times as tall as wide: here, and only here, the vertical pass comes first. */
Test(oracle, pillow_takes_the_vertical_pass_first_for_very_tall_frames)
{
    static const uint8_t from_2x201[] = {166, 188, 196, 166, 182, 193, 167, 172, 187, 167, 166, 184,
                                         162, 186, 205, 166, 179, 199, 175, 165, 189, 179, 158, 183,
                                         161, 189, 196, 164, 181, 194, 168, 165, 189, 171, 157, 187,
                                         167, 185, 200, 169, 178, 194, 174, 165, 184, 176, 158, 178};
    expect_resized(2, 201, 4, from_2x201);
}

Test(oracle, a_frame_of_the_right_size_is_copied)
{
    uint8_t same[8 * 8 * 3];
    for (int i = 0; i < 8 * 8 * 3; i++) same[i] = sample(i / 3 % 8, i / 24, i % 3);
    expect_resized(8, 8, 8, same);
}

/* Weights are rounded away from 0, per tap. */
Test(oracle, pillow_coefficients)
{
    int32_t first[5], count[5], coef[5 * 5];
    cr_assert_eq(s2i_bicubic_taps(3, 5), 5);
    s2i_bicubic_table(3, 5, first, count, coef);
    const int32_t want[5][3] = {{4510855, -316551, 0},
                                {2723168, 1658941, -187805},
                                {0, 4194304, 0},
                                {-187805, 1658941, 2723168},
                                {-316551, 4510855, 0}};
    for (int i = 0; i < 5; i++) {
        cr_expect_eq(first[i], i == 4);
        cr_expect_eq(count[i], i % 4 ? 3 : 2);
        cr_expect_arr_eq(coef + 5 * i, want[i], sizeof want[i]);
    }
}

/* ------------------------------------------------------------------ convolutions and pooling */

Test(oracle, convolution_pads_with_zeros_and_steps_by_the_stride)
{
    struct s2_backend *be = open_plain();
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; /* 3 rows of 4 */
    const float w[] = {1, 0, -1, 2, 0, -2, 1, 0, -1}, b[] = {0.5f};
    struct s2_conv conv = {1, 1, 3, 2, 1, 1, NULL};
    be->ops->conv_create(be, &conv, w, b);
    float y[4];
    be->ops->conv(be, view(y, 1, 2, 2, 1), view(x, 1, 3, 4, 1), &conv, S2_ACT_NONE);
    /* top left: taps (0,0) (0,1) / (1,0) (1,1) right of the padding */
    const float want[] = {-(2 * 2 + 6) + 0.5f, (2 * 2 + 6) - (2 * 4 + 8) + 0.5f, -(6 + 2 * 10) + 0.5f,
                          (6 + 2 * 10) - (8 + 2 * 12) + 0.5f};
    expect_floats("conv", y, want, 4, 0);
    be->ops->conv(be, view(y, 1, 2, 2, 1), view(x, 1, 3, 4, 1), &conv, S2_ACT_RELU);
    for (int i = 0; i < 4; i++) cr_expect(y[i] == 0, "ReLU of %g", (double)want[i]);
    be->ops->conv_destroy(be, &conv);
    close_plain(be);
}

Test(oracle, convolution_weights_are_out_in_row_column)
{
    struct s2_backend *be = open_plain();
    float x[] = {1, 10, 2, 20, 3, 30, 4, 40}; /* 2x2, two channels */
    const float w[] = {1, 2, 3, 4, 5, 6, 7, 8, /* out 0: in 0, in 1 */ 0, 0, 0, 1, 0, 1, 0, 0}, b[] = {0, 100};
    struct s2_conv conv = {2, 2, 2, 2, 0, 1, NULL}, depth = {2, 2, 2, 2, 0, 2, NULL};
    be->ops->conv_create(be, &conv, w, b);
    be->ops->conv_create(be, &depth, w, b);
    float y[2];
    be->ops->conv(be, view(y, 1, 1, 1, 2), view(x, 1, 2, 2, 2), &conv, S2_ACT_NONE);
    expect_floats("dense", y, (const float[]){30 + 50 + 120 + 210 + 320, 4 + 20 + 100}, 2, 0);
    be->ops->conv(be, view(y, 1, 1, 1, 2), view(x, 1, 2, 2, 2), &depth, S2_ACT_NONE);
    expect_floats("depthwise", y, (const float[]){30, 50 + 120 + 210 + 320 + 100}, 2, 0);
    be->ops->conv_destroy(be, &conv);
    be->ops->conv_destroy(be, &depth);
    close_plain(be);
}

Test(oracle, pooling_and_upsampling)
{
    struct s2_backend *be = open_plain();
    float x[] = {1, -5, 3, 2, 0, 7, -1, -2}; /* 2 rows of 4 */
    float y[2];
    be->ops->max_pool2(be, view(y, 1, 1, 2, 1), view(x, 1, 2, 4, 1));
    expect_floats("pool", y, (const float[]){7, 3}, 2, 0);
    be->ops->upsample2_add(be, view(x, 1, 2, 4, 1), view(y, 1, 1, 2, 1));
    expect_floats("upsample", x, (const float[]){8, 2, 6, 5, 7, 14, 2, 1}, 8, 0);
    close_plain(be);
}

Test(oracle, transposed_convolution_scatters_two_by_two)
{
    struct s2_backend *be = open_plain();
    float x[] = {1, 2};                                                               /* 1x2, one channel */
    const float w[] = {1, 10, 100, 1000, -1, -10, -100, -1000}, b[8] = {[7] = 0.25f}; /* (dy, dx, 2 channels) */
    struct s2_linear lin;
    be->ops->linear_create(be, &lin, w, b, 1, 8);
    float y[16], skip[16] = {[2] = 5};
    be->ops->deconv2(be, view(y, 1, 2, 4, 2), view(x, 1, 1, 2, 1), &lin, view(NULL, 1, 2, 4, 2), S2_ACT_NONE);
    const float want[] = {1, 10, 100, 1000, 2, 20, 200, 2000, -1, -10, -100, -999.75f, -2, -20, -200, -1999.75f};
    expect_floats("deconv", y, want, 16, 0);
    be->ops->deconv2(be, view(y, 1, 2, 4, 2), view(x, 1, 1, 2, 1), &lin, view(skip, 1, 2, 4, 2), S2_ACT_RELU);
    cr_expect_eq(y[2], 105);
    cr_expect_eq(y[8], 0);
    /* two images, a skip for each */
    be->ops->deconv2(be, view(y, 2, 2, 2, 2), view(x, 2, 1, 1, 1), &lin, view(skip, 2, 2, 2, 2), S2_ACT_NONE);
    cr_expect_eq(y[2], 105);
    cr_expect_eq(y[10], 200);
    be->ops->linear_destroy(be, &lin);
    close_plain(be);
}

/* ------------------------------------------------------------------ prompts */

Test(oracle, points_become_fourier_features)
{
    struct s2_backend *be = open_plain();
    float gauss[256] = {0}, embed[5 * 256], y[4 * 256];
    gauss[0] = 0.25f;       /* channel 0: a quarter turn as x goes from the centre to the right edge */
    gauss[128 + 1] = 0.25f; /* channel 1: the same in y */
    for (int i = 0; i < 5 * 256; i++) embed[i] = (float)(i / 256);
    /* +0.5: 511.5 is the centre of 1024 */
    const float points[] = {1023.5f, 511.5f, 1, 511.5f, -0.5f, 0, 255.5f, 511.5f, 3, 7, 8, -1};
    be->ops->point_tokens(be, view(y, 1, 1, 4, 256), points, gauss, embed, 1024);
    const float *right = y, *top = y + 256, *left_half = y + 512, *nothing = y + 768;
    expect_floats("right, x", (const float[]){right[0], right[1], right[128], right[129]}, (const float[]){2, 1, 1, 2},
                  4, 1e-6);
    expect_floats("top, y", (const float[]){top[0], top[1], top[128], top[129]}, (const float[]){0, -1, 1, 0}, 4, 1e-6);
    expect_floats("left half, x", (const float[]){left_half[0], left_half[128]},
                  (const float[]){3 - (float)M_SQRT1_2, 3 + (float)M_SQRT1_2}, 2, 1e-6);
    for (int i = 0; i < 256; i++) cr_expect_eq(nothing[i], 4);
    close_plain(be);
}

/* ------------------------------------------------------------------ which mask */

struct choice {
    float low[100], token, iou;
};

/* Mask i holds i everywhere, but mask 0: `inner` pixels of 1, `edge` of 0.05, which is not above 0.05, the rest
 * -0.05, which is not above -0.05. Its token holds 10 i. */
static struct choice choose(int inner, int edge, const float iou[4], float score, bool multimask)
{
    struct s2_backend *be = open_plain();
    float masks[400], tokens[5 * 256], token[256], quality[4];
    for (int i = 0; i < 400; i++) masks[i] = (float)(i / 100);
    for (int i = 0; i < 100; i++) masks[i] = i < inner ? 1 : i < inner + edge ? 0.05f : -0.05f;
    for (int i = 0; i < 1280; i++) tokens[i] = (float)(i / 256 * 10 - 10);
    memcpy(quality, iou, sizeof quality);
    struct choice c;
    be->ops->choose(be, view(c.low, 1, 1, 100, 1), view(token, 1, 1, 1, 256), view(&c.iou, 1, 1, 1, 1),
                    view(masks, 1, 4, 100, 1), view(quality, 1, 1, 1, 4), view(&score, 1, 1, 1, 1),
                    view(tokens, 1, 1, 5, 256), 1, multimask);
    c.token = token[255];
    close_plain(be);
    return c;
}

static const float iou_of[4] = {0.9f, 0.2f, 0.7f, 0.7f};

Test(oracle, a_stable_mask_is_kept)
{
    const struct choice c = choose(49, 1, iou_of, 1, false); /* 49 / 50 = 0.98 exactly */
    cr_expect_eq(c.low[0], 1);
    cr_expect_eq(c.low[99], -0.05f);
    cr_expect_eq(c.iou, 0.9f);
    cr_expect_eq(c.token, 0);
}

Test(oracle, an_unstable_mask_gives_way_to_the_best_but_keeps_its_token)
{
    const struct choice c = choose(48, 1, iou_of, 1, false);
    cr_expect_eq(c.low[0], 2, "the first of equals");
    cr_expect_eq(c.iou, 0.7f);
    cr_expect_eq(c.token, 0);
}

Test(oracle, an_empty_mask_is_stable)
{
    const struct choice c = choose(0, 0, iou_of, 1, false);
    cr_expect_eq(c.low[0], -0.05f);
    cr_expect_eq(c.iou, 0.9f);
}

Test(oracle, of_many_masks_the_best_of_the_last_three)
{
    const struct choice c = choose(100, 0, iou_of, 1, true);
    cr_expect_eq(c.low[0], 2);
    cr_expect_eq(c.iou, 0.7f);
    cr_expect_eq(c.token, 20);
}

Test(oracle, an_absent_object_has_no_mask_but_a_token)
{
    const struct choice c = choose(100, 0, iou_of, 0, true);
    for (int i = 0; i < 100; i++) cr_expect_eq(c.low[i], -1024);
    cr_expect_eq(c.token, 20);
    cr_expect_eq(c.iou, 0.7f);
}

/* ------------------------------------------------------------------ logits to masks */

/* What torch's interpolate gives for this map at 6 x 5. */
Test(oracle, video_masks_interpolate_logits_as_torch)
{
    struct s2_backend *be = open_plain();
    float low[] = {1, 2, -3, 4, 5, -6, 7, 8, 0, 1, 2, 3.5f};
    static const float up[6][5] = {{1.0f, 1.7000000477f, -0.5f, -0.9000003338f, 4.0f},
                                   {2.0f, 0.6000000238f, -0.25f, 1.1499997377f, 5.0f},
                                   {4.0f, -1.6000003815f, 0.25f, 5.25f, 7.0f},
                                   {3.75f, -1.8500003815f, 0.75f, 6.0874996185f, 6.875f},
                                   {1.25f, -0.1500000954f, 1.25f, 3.6624999046f, 4.625f},
                                   {0.0f, 0.7000000477f, 1.5f, 2.4500000477f, 3.5f}};
    uint8_t bits[6 * 2], *rows = bits;
    memset(bits, 0xff, sizeof bits);
    const struct s2_video_masks out = {5, 6, 2, false, &rows, NULL};
    be->ops->video_masks(be, &out, view(low, 1, 3, 4, 1));
    for (int y = 0; y < 6; y++) {
        for (int x = 0; x < 5; x++) cr_expect_eq(bits[2 * y] >> (7 - x) & 1, up[y][x] > 0, "(%d, %d)", x, y);
        cr_expect_eq(bits[2 * y] & 7, 0, "bits behind the width");
    }
    /* through memory_mask the values themselves show: 20 sigmoid(v) - 10, at four times the size */
    float four[16 * 16], map[16];
    for (int i = 0; i < 16; i++) map[i] = i % 4 == 1 ? 1 : 0;
    be->ops->memory_mask(be, view(four, 1, 16, 16, 1), view(map, 1, 4, 4, 1), false);
    static const double weight[16] = {0, 0, .125, .375, .625, .875, .875, .625, .375, .125, 0, 0, 0, 0, 0, 0};
    for (int x = 0; x < 16; x++)
        cr_expect_float_eq(four[3 * 16 + x], 20 / (1 + exp(-weight[x])) - 10, 2e-6, "column %d", x);
    be->ops->memory_mask(be, view(four, 1, 16, 16, 1), view(map, 1, 4, 4, 1), true);
    for (int x = 0; x < 16; x++) cr_expect_eq(four[x], weight[x] > 0 ? 10 : -10);
    close_plain(be);
}

Test(oracle, the_owner_is_the_largest_positive_logit_the_first_on_ties)
{
    struct s2_backend *be = open_plain();
    float low[3][4] = {{1, 0, -1, 2}, {1, -1, -2, 3}, {0.5f, 0, -3, 1}};
    uint8_t bits[3], *rows[] = {bits, bits + 1, bits + 2};
    uint16_t owner[4];
    struct s2_video_masks out = {4, 1, 1, false, rows, owner};
    be->ops->video_masks(be, &out, view(&low[0][0], 3, 1, 4, 1));
    const uint16_t want[] = {1, 0, 0, 2};
    cr_expect_arr_eq(owner, want, sizeof want);
    cr_expect(bits[0] == 0x90 && bits[1] == 0x90 && bits[2] == 0x90);
    out.exclusive = true;
    out.owner = NULL;
    be->ops->video_masks(be, &out, view(&low[0][0], 3, 1, 4, 1));
    cr_expect(bits[0] == 0x80 && bits[1] == 0x10 && bits[2] == 0);
    close_plain(be);
}

/* '#' is mask (1), '.' is background (-1), '0' is exactly 0; filled pixels read as 'o'. */
static void expect_filled(const char *map, int width, int area, const char *want)
{
    struct s2_backend *be = open_plain();
    const int n = (int)strlen(map);
    float x[64];
    for (int i = 0; i < n; i++) x[i] = map[i] == '#' ? 1 : map[i] == '.' ? -1 : 0;
    be->ops->fill_holes(be, view(x, 1, n / width, width, 1), view(x, 1, n / width, width, 1), area);
    char got[65] = {0};
    for (int i = 0; i < n; i++)
        got[i] = x[i] == 1 ? '#' : x[i] == -1 ? '.' : x[i] == 0 ? '0' : x[i] == 0.1f ? 'o' : '?';
    cr_expect_str_eq(got, want);
    close_plain(be);
}

Test(oracle, small_holes_are_filled_large_ones_stay)
{
    expect_filled("#####"
                  "#.#.#"
                  "###.#"
                  "#####",
                  5, 1,
                  "#####"
                  "#o#.#"
                  "###.#"
                  "#####");
}

Test(oracle, diagonal_neighbours_are_one_hole)
{
    expect_filled("####"
                  "#.##"
                  "##.#"
                  "#.##",
                  4, 2,
                  "####"
                  "#.##"
                  "##.#"
                  "#.##");
    expect_filled("####"
                  "#.##"
                  "##.#"
                  "#.##",
                  4, 3,
                  "####"
                  "#o##"
                  "##o#"
                  "#o##");
}

Test(oracle, zero_is_background_and_the_border_closes_a_hole)
{
    expect_filled("0.##..", 6, 2, "oo##oo");
    expect_filled("0.##..", 6, 0, "0.##..");
    expect_filled("......", 6, 5, "......");
    /* two arms that meet only at the end: one component of nine */
    expect_filled(".#."
                  ".#."
                  ".#."
                  "...",
                  3, 8,
                  ".#."
                  ".#."
                  ".#."
                  "...");
}

Test(oracle, absence_and_clamping)
{
    struct s2_backend *be = open_plain();
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8}, score[] = {0, 1e-6f}, vec[] = {10, 20}, y[8];
    be->ops->where_absent(be, view(x, 2, 1, 2, 2), view(score, 2, 1, 1, 1), vec, false);
    expect_floats("added", x, (const float[]){11, 22, 13, 24, 5, 6, 7, 8}, 8, 0);
    be->ops->where_absent(be, view(x, 2, 1, 2, 2), view(score, 2, 1, 1, 1), vec, true);
    expect_floats("replaced", x, (const float[]){10, 20, 10, 20, 5, 6, 7, 8}, 8, 0);
    be->ops->clamp(be, view(y, 1, 1, 8, 1), view(x, 1, 1, 8, 1), 6, 10);
    expect_floats("clamped", y, (const float[]){10, 10, 10, 10, 6, 6, 7, 8}, 8, 0);
    close_plain(be);
}

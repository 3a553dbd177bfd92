/* Colour of decoded frames against the formulas of BT.601, BT.709 and BT.2020, and exact copies of RGB. */
#include "video_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/pixdesc.h>

TestSuite(video_color, .init = video_folder_make, .fini = video_folder_remove);

/* ------------------------------------------------------------------ YUV */

struct patch {
    uint16_t yuv[3]; /* at 8 bits; scaled to the depth, with a bit of fraction */
    int depth;
};

static void paint_patch(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    const struct patch *p = ctx;
    (void)frame, (void)x, (void)y;
    for (int k = 0; k < 3; k++) value[k] = (uint16_t)((p->yuv[k] << (p->depth - 8)) + (p->depth > 8 ? k + 1 : 0));
    value[3] = 77;
}

static int clip8(double v)
{
    return v < 0 ? 0 : v > 255 ? 255 : (int)lrint(v);
}

/* Y'CbCr to R'G'B' by ITU-R BT.601 2.5, BT.709 3, BT.2020 4; y, u, v as sample values of `depth` bits. */
static void formula(const char *matrix, bool full, int depth, double y, double u, double v, int rgb[3])
{
    double kr = 0.299, kb = 0.114, unit = 1 << (depth - 8), max = (1 << depth) - 1;
    if (!strcmp(matrix, "bt709")) kr = 0.2126, kb = 0.0722;
    if (!strcmp(matrix, "bt2020nc")) kr = 0.2627, kb = 0.0593;
    double luma = full ? y / max : (y - 16 * unit) / (219 * unit);
    double pb = (u - 128 * unit) / (full ? max : 224 * unit), pr = (v - 128 * unit) / (full ? max : 224 * unit);
    double r = luma + 2 * (1 - kr) * pr, b = luma + 2 * (1 - kb) * pb;
    double g = (luma - kr * r - kb * b) / (1 - kr - kb);
    rgb[0] = clip8(255 * r);
    rgb[1] = clip8(255 * g);
    rgb[2] = clip8(255 * b);
}

static void check_patch(const char *pix_fmt, const char *matrix, bool full, const uint16_t yuv[3])
{
    struct patch p = {.depth = av_pix_fmt_desc_get(av_get_pix_fmt(pix_fmt))->comp[0].depth};
    memcpy(p.yuv, yuv, sizeof(p.yuv));
    struct make_clip m = {.codec = "ffv1", .pix_fmt = pix_fmt, .matrix = matrix, .full = full, .tag_range = true};
    m.frames = 1, m.width = 34, m.height = 18, m.paint = paint_patch, m.ctx = &p;
    struct video_clip *c = video_read(video_make("p.mkv", m), NULL);
    cr_assert_eq(c->n, 1, "%s", c->err.text);
    cr_assert_str_eq(c->info.color_space, matrix);
    cr_assert_str_eq(c->info.color_range, full ? "full" : "limited");
    uint16_t s[4];
    int rgb[3];
    paint_patch(&p, 0, 0, 0, s);
    formula(matrix, full, p.depth, s[0], s[1], s[2], rgb);
    for (int y = 0; y < 18; y++)
        for (int x = 0; x < 34; x++) video_check_pixel(c, 0, x, y, rgb, 1);
    video_free(c);
}

Test(video_color, patches)
{
    static const char *const formats[] = {"yuv420p",     "yuv422p",     "yuv444p",    "yuva420p",
                                          "yuv420p10le", "yuv422p10le", "yuv444p12le"};
    static const char *const matrices[] = {"smpte170m", "bt709", "bt2020nc"};
    static const uint16_t patches[][3] = {{16, 128, 128}, {235, 128, 128}, {81, 90, 240},
                                          {145, 54, 34},  {41, 240, 110},  {120, 150, 100}};
    for (size_t f = 0; f < sizeof(formats) / sizeof(*formats); f++)
        for (size_t m = 0; m < 3; m++)
            for (size_t k = f % 2; k < 6; k += 2)
                for (int full = 0; full < 2; full++) check_patch(formats[f], matrices[m], full, patches[k]);
}

Test(video_color, untagged_is_601_below_720_rows_and_709_above)
{
    static const struct patch p = {{120, 150, 100}, 8};
    static const struct {
        int width, height;
        const char *matrix;
    } sizes[] = {{320, 240, "smpte170m"}, {1278, 718, "smpte170m"}, {64, 720, "bt709"}, {1280, 64, "bt709"}};
    for (size_t i = 0; i < 4; i++) {
        struct make_clip m = {.codec = "ffv1", .pix_fmt = "yuv420p", .frames = 1, .paint = paint_patch, .ctx = &p};
        m.width = sizes[i].width, m.height = sizes[i].height;
        struct video_clip *c = video_read(video_make("u.mkv", m), NULL);
        int rgb[3];
        formula(sizes[i].matrix, false, 8, 120, 150, 100, rgb);
        cr_assert_str_eq(c->info.color_space, sizes[i].matrix);
        video_check_pixel(c, 0, 30, 40, rgb, 1);
        video_free(c);
    }
}

Test(video_color, jpeg_is_full_range_601)
{
    static const struct patch p = {{120, 150, 100}, 8};
    struct make_clip m = {.codec = "mjpeg", .pix_fmt = "yuvj420p", .frames = 1, .paint = paint_patch, .ctx = &p};
    m.width = 1280, m.height = 720;
    struct video_clip *c = video_read(video_make("j.avi", m), NULL);
    int rgb[3];
    formula("smpte170m", true, 8, 120, 150, 100, rgb);
    video_check_pixel(c, 0, 700, 700, rgb, 1);
    video_free(c);
}

/* Blue difference that grows by 4 a column of chroma, red difference by 8 a row. */
static void paint_ramp(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    (void)ctx, (void)frame;
    value[0] = 120;
    value[1] = (uint16_t)(90 + x / 2 * 4);
    value[2] = (uint16_t)(90 + y / 2 * 8);
}

/* Chroma lies on the even columns and between two rows; odd sizes, up to the last row and column. */
Test(video_color, chroma_is_interpolated)
{
    static const int sizes[][2] = {{33, 17}, {32, 16}, {31, 19}, {17, 33}, {1, 1}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        int w = sizes[i][0], h = sizes[i][1];
        struct make_clip m = {.codec = "ffv1", .pix_fmt = "yuv420p", .frames = 1, .paint = paint_ramp};
        m.width = w, m.height = h;
        struct video_clip *c = video_read(video_make("ramp.mkv", m), NULL);
        cr_assert_eq(c->n, 1, "%s", c->err.text);
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++) {
                double column = fmin(x / 2.0, (w - 1) / 2), row = fmin(fmax((y - 0.5) / 2, 0), (h - 1) / 2);
                int rgb[3];
                formula("smpte170m", false, 8, 120, 90 + column * 4, 90 + row * 8, rgb);
                video_check_pixel(c, 0, x, y, rgb, 1);
            }
        video_free(c);
    }
}

/* One field red, the other blue: chroma of one must not bleed into the other. */
static void paint_fields(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    (void)ctx, (void)frame, (void)x;
    /* in 4:2:0, chroma rows belong to the fields in turn: y is twice the chroma row there */
    bool odd_luma = y % 2, odd_chroma = y / 2 % 2;
    value[0] = odd_luma ? 41 : 81;
    value[1] = odd_chroma ? 240 : 90;
    value[2] = odd_chroma ? 110 : 240;
}

Test(video_color, interlaced_chroma_stays_in_its_field)
{
    if (!make_clip_has_encoder("libx264")) cr_skip_test("there is no encoder of interlaced video");
    struct make_clip m = {
        .codec = "libx264", .pix_fmt = "yuv420p", .frames = 3, .paint = paint_fields, .interlaced = true};
    struct video_clip *c = video_read(video_make("i.mkv", m), NULL);
    int red[3], blue[3];
    formula("smpte170m", false, 8, 81, 90, 240, red);
    formula("smpte170m", false, 8, 41, 240, 110, blue);
    cr_assert_eq(c->n, 3);
    for (int y = 0; y < 48; y++) video_check_pixel(c, 1, 20, y, y % 2 ? blue : red, 12);
    video_free(c);
}

/* ------------------------------------------------------------------ RGB, grey, palette */

static void paint_samples(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    int depth = *(const int *)ctx;
    unsigned seed = (unsigned)(x * 131 + y * 7919 + frame);
    for (int k = 0; k < 4; k++) {
        seed = seed * 1664525u + 1013904223u;
        value[k] = (uint16_t)((seed >> 12) & ((1u << depth) - 1));
    }
}

Test(video_color, rgb_and_grey_are_copied_exactly)
{
    static const struct {
        const char *codec, *pix_fmt;
    } kinds[] = {{"ffv1", "gbrp10le"},    {"ffv1", "gbrp12le"},    {"ffv1", "gbrp16le"},     {"ffv1", "bgr0"},
                 {"ffv1", "bgra"},        {"ffv1", "gray"},        {"ffv1", "gray10le"},     {"ffv1", "gray16le"},
                 {"rawvideo", "gbrp"},    {"rawvideo", "rgb24"},   {"rawvideo", "bgr24"},    {"rawvideo", "argb"},
                 {"rawvideo", "rgb48le"}, {"rawvideo", "rgb48be"}, {"rawvideo", "rgba64le"}, {"rawvideo", "ya8"},
                 {"png", "rgb24"},        {"png", "rgba"},         {"png", "gray"},          {"png", "ya8"},
                 {"png", "rgb48be"},      {"png", "gray16be"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(av_get_pix_fmt(kinds[i].pix_fmt));
        int depth = d->comp[0].depth, max = (1 << depth) - 1;
        struct make_clip m = {
            .codec = kinds[i].codec, .pix_fmt = kinds[i].pix_fmt, .frames = 2, .paint = paint_samples};
        m.width = 37, m.height = 21, m.ctx = &depth;
        struct video_clip *c = video_read(video_make("x.nut", m), NULL);
        cr_assert_eq(c->n, 2, "%s: %s", kinds[i].pix_fmt, c->err.text);
        cr_assert_str_eq(c->info.pixel_format, kinds[i].pix_fmt);
        for (int y = 0; y < 21; y++)
            for (int x = 0; x < 37; x++) {
                uint16_t s[4];
                int rgb[3];
                paint_samples(&depth, 1, x, y, s);
                for (int k = 0; k < 3; k++) rgb[k] = (s[d->nb_components <= 2 ? 0 : k] * 510 + max) / (2 * max);
                video_check_pixel(c, 1, x, y, rgb, 0);
            }
        video_free(c);
    }
}

Test(video_color, grey_obeys_its_range)
{
    static const struct patch black = {{16, 0, 0}, 8}, white = {{235, 0, 0}, 8}, middle = {{126, 0, 0}, 8};
    const struct patch *patches[] = {&black, &white, &middle};
    const int want[] = {0, 255, 128};
    for (int i = 0; i < 3; i++) {
        struct make_clip m = {.codec = "ffv1", .pix_fmt = "gray", .frames = 1, .tag_range = true, .paint = paint_patch};
        m.ctx = patches[i];
        struct video_clip *c = video_read(video_make("g.mkv", m), NULL);
        video_check_pixel(c, 0, 10, 10, (int[3]){want[i], want[i], want[i]}, 0);
        video_free(c);
        m.full = true;
        c = video_read(video_make("g.mkv", m), NULL);
        int same = patches[i]->yuv[0];
        video_check_pixel(c, 0, 10, 10, (int[3]){same, same, same}, 0);
        video_free(c);
    }
}

Test(video_color, palette)
{
    static const int depth = 8;
    struct make_clip m = {.codec = "png", .pix_fmt = "pal8", .frames = 1, .paint = paint_samples, .ctx = &depth};
    struct video_clip *c = video_read(video_make("p.mkv", m), NULL);
    cr_assert_str_eq(c->info.pixel_format, "pal8");
    for (int y = 0; y < 48; y++)
        for (int x = 0; x < 64; x++) {
            uint16_t s[4];
            paint_samples(&depth, 0, x, y, s);
            uint32_t argb = make_clip_palette(s[0]);
            video_check_pixel(c, 0, x, y, (int[3]){argb >> 16 & 255, argb >> 8 & 255, argb & 255}, 0);
        }
    video_free(c);
}

Test(video_color, one_bit)
{
    static const int depth = 1;
    static const char *const formats[] = {"monob", "monow"};
    for (int i = 0; i < 2; i++) {
        struct make_clip m = {.codec = "rawvideo", .pix_fmt = formats[i], .frames = 1, .paint = paint_samples};
        m.ctx = &depth;
        struct video_clip *c = video_read(video_make("m.nut", m), NULL);
        cr_assert_eq(c->n, 1, "%s", c->err.text);
        for (int x = 0; x < 64; x++) {
            uint16_t s[4];
            paint_samples(&depth, 0, x, 5, s);
            int v = s[0] == (i == 0) ? 255 : 0;
            video_check_pixel(c, 0, x, 5, (int[3]){v, v, v}, 0);
        }
        video_free(c);
    }
}

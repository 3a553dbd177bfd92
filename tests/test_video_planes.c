/* Planes that need not become RGB: s2_yuv_row against libswscale, what fmt_planes_usable lets through, and clips. */
#include "../formats/video_planes.h"
#include "video_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/pixdesc.h>

TestSuite(video_planes, .init = video_folder_make, .fini = video_folder_remove);

/* Noise, a quarter of it 0 or 255. */
static AVFrame *noise(enum AVPixelFormat format, int width, int height, unsigned seed)
{
    AVFrame *f = av_frame_alloc();
    cr_assert_not_null(f);
    f->format = format, f->width = width, f->height = height;
    f->colorspace = AVCOL_SPC_SMPTE170M, f->color_range = AVCOL_RANGE_MPEG, f->chroma_location = AVCHROMA_LOC_LEFT;
    cr_assert_geq(av_frame_get_buffer(f, 0), 0);
    uint64_t state = seed;
    for (int i = 0; i < 3 && f->buf[i]; i++)
        for (size_t k = 0; k < f->buf[i]->size; k++) {
            state = state * 2862933555777941757u + 3037000493u;
            f->buf[i]->data[k] = state >> 40 & 3 ? (uint8_t)(state >> 50) : state >> 44 & 1 ? 255 : 0;
        }
    return f;
}

static const enum AVPixelFormat formats[] = {AV_PIX_FMT_YUV420P, AV_PIX_FMT_NV12, AV_PIX_FMT_YUVJ420P};
static const enum AVColorSpace spaces[] = {AVCOL_SPC_SMPTE170M, AVCOL_SPC_BT709, AVCOL_SPC_BT2020_NCL, AVCOL_SPC_FCC,
                                           AVCOL_SPC_SMPTE240M};
static const enum AVChromaLocation locations[] = {AVCHROMA_LOC_LEFT, AVCHROMA_LOC_CENTER,     AVCHROMA_LOC_TOPLEFT,
                                                  AVCHROMA_LOC_TOP,  AVCHROMA_LOC_BOTTOMLEFT, AVCHROMA_LOC_BOTTOM};

static void check_equal(AVFrame *f)
{
    struct fmt_convert converter = {0};
    struct s2_yuv planes;
    cr_assert(fmt_planes_of(f, &planes));
    cr_assert(fmt_planes_agree(&converter, f, &planes, f->height), "%dx%d %s, %s, %s, chroma %s", f->width, f->height,
              av_get_pix_fmt_name(f->format), av_color_space_name(f->colorspace), av_color_range_name(f->color_range),
              av_chroma_location_name(f->chroma_location));
    fmt_convert_free(&converter);
}

Test(video_planes, rows_are_what_swscale_makes)
{
    static const int sizes[][2] = {{2, 2},  {2, 40},  {40, 2},  {4, 6},   {6, 4},   {8, 8},
                                   {10, 8}, {62, 46}, {64, 48}, {66, 50}, {130, 34}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t k = 0; k < 3; k++)
            for (size_t m = 0; m < 5; m++)
                for (size_t l = 0; l < 6; l++)
                    for (int full = 0; full < 2; full++) {
                        AVFrame *f = noise(formats[k], sizes[s][0], sizes[s][1], (unsigned)(s * 100 + l));
                        f->colorspace = spaces[m], f->chroma_location = locations[l];
                        f->color_range = full ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
                        check_equal(f);
                        av_frame_free(&f);
                    }
}

Test(video_planes, rows_are_what_swscale_makes_of_large_pictures)
{
    static const int sizes[][2] = {{960, 540}, {1918, 802}, {1920, 1080}};
    for (size_t s = 0; s < 3; s++)
        for (size_t k = 0; k < 2; k++) {
            AVFrame *f = noise(formats[k], sizes[s][0], sizes[s][1], 7);
            f->colorspace = AVCOL_SPC_BT709;
            check_equal(f);
            av_frame_free(&f);
        }
}

/* Each term of the planes counts: where one is a little off, the bytes are others. */
Test(video_planes, a_difference_is_seen)
{
    struct fmt_convert converter = {0};
    AVFrame *f = noise(AV_PIX_FMT_YUV420P, 64, 48, 3);
    struct s2_yuv right, p;
    cr_assert(fmt_planes_of(f, &right));
    cr_assert(fmt_planes_agree(&converter, f, &right, f->height));
    int32_t *const terms[] = {&p.black, &p.gain, &p.v_to_r, &p.v_to_g, &p.u_to_g, &p.u_to_b};
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
        p = right;
        *terms[i] += 24;
        cr_expect_not(fmt_planes_agree(&converter, f, &p, f->height), "term %zu", i);
    }
    p = right, p.chroma_x = 1;
    cr_expect_not(fmt_planes_agree(&converter, f, &p, f->height));
    p = right, p.chroma_y = 0;
    cr_expect_not(fmt_planes_agree(&converter, f, &p, f->height));
    p = right, p.u = right.v, p.v = right.u;
    cr_expect_not(fmt_planes_agree(&converter, f, &p, f->height));
    uint8_t *luma = malloc(64 * 48);
    cr_assert_not_null(luma);
    for (int y = 0; y < 48; y++) memcpy(luma + 64 * y, f->data[0] + y * f->linesize[0], 64);
    luma[64 * 48 - 1] ^= 64; /* the last pixel */
    p = right, p.y = luma, p.y_stride = 64;
    cr_expect_not(fmt_planes_agree(&converter, f, &p, f->height));
    luma[64 * 48 - 1] ^= 64;
    cr_expect(fmt_planes_agree(&converter, f, &p, f->height));
    free(luma);
    av_frame_free(&f);
    fmt_convert_free(&converter);
}

Test(video_planes, only_whole_progressive_420_is_usable)
{
    struct fmt_planes_trial trial = {0};
    static const struct {
        enum AVPixelFormat format;
        int width, height;
        bool usable;
    } cases[] = {{AV_PIX_FMT_YUV420P, 64, 48, true},  {AV_PIX_FMT_NV12, 64, 48, true},
                 {AV_PIX_FMT_YUVJ420P, 64, 48, true}, {AV_PIX_FMT_YUV420P, 63, 48, false},
                 {AV_PIX_FMT_NV12, 64, 47, false},    {AV_PIX_FMT_YUV422P, 64, 48, false},
                 {AV_PIX_FMT_NV21, 64, 48, false},    {AV_PIX_FMT_YUV420P10, 64, 48, false},
                 {AV_PIX_FMT_GBRP, 64, 48, false},    {AV_PIX_FMT_GRAY8, 64, 48, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AVFrame *f = noise(cases[i].format, cases[i].width, cases[i].height, 5);
        cr_expect_eq(fmt_planes_usable(&trial, f, "a"), cases[i].usable, "case %zu", i);
        if (cases[i].usable) {
            f->linesize[0] = -f->linesize[0];
            cr_expect_not(fmt_planes_usable(&trial, f, "a"));
        }
        av_frame_free(&f);
    }
}

/* What was found out holds for its kind of frame, and no other. */
Test(video_planes, each_kind_is_tried)
{
    struct fmt_planes_trial trial = {0};
    AVFrame *f = noise(AV_PIX_FMT_YUV420P, 64, 48, 5);
    cr_assert(fmt_planes_usable(&trial, f, "a"));
    trial.agreed = false;
    cr_expect_not(fmt_planes_usable(&trial, f, "a"));
    f->colorspace = AVCOL_SPC_BT709;
    cr_expect(fmt_planes_usable(&trial, f, "a"));
    trial.agreed = false;
    f->color_range = AVCOL_RANGE_JPEG;
    cr_expect(fmt_planes_usable(&trial, f, "a"));
    trial.agreed = false;
    f->chroma_location = AVCHROMA_LOC_CENTER;
    cr_expect(fmt_planes_usable(&trial, f, "a"));
    av_frame_free(&f);
}

/* ------------------------------------------------------------------ clips */

/* Reads the clip as RGB and, a second time, with planes allowed; returns how many frames came as planes, all frames of
 * both kinds being the same pictures. */
static int compare(const char *path, int frames)
{
    struct video_clip *c = video_read(path, NULL);
    cr_assert_eq(c->n, frames, "%s", c->err.text);
    const int width = c->info.width, height = c->info.height;
    const size_t row = 3 * (size_t)width;
    uint8_t *rgb = malloc(row * (size_t)height);
    cr_assert_not_null(rgb);
    struct fmt_video *v;
    struct s2_err err = {0};
    const struct fmt_video_options options = {.end = -1, .stride = 1, .planes = true};
    cr_assert_eq(fmt_video_open(&v, path, &options, &err), S2_OK);
    struct fmt_frame f = {.image = {.stride = row, .rgb = rgb}};
    int n = 0, as_planes = 0;
    for (bool got = true; !fmt_video_next(v, &f, &got, &err) && got; n++) {
        const struct s2_yuv *p = f.image.yuv;
        for (int y = 0; p && y < height; y++) s2_yuv_row(p, width, height, y, rgb + (size_t)y * row);
        cr_assert_eq(f.index, n);
        cr_assert_arr_eq(rgb, c->frame[n].image.rgb, row * (size_t)height, "%s: frame %d differs", path, n);
        as_planes += p != NULL;
    }
    cr_assert_eq(n, frames, "%s", err.text);
    fmt_video_close(v);
    fmt_frame_release(&f);
    free(rgb);
    video_free(c);
    return as_planes;
}

enum { FRAMES = 12 };

static void paint_noise(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    (void)ctx;
    for (unsigned k = 0; k < 3; k++) {
        unsigned h = (unsigned)(frame * 7919 + y * 104729 + x * 1299709) * 3 + k;
        h = (h ^ h >> 15) * 0x2c1b3c6du;
        value[k] = (h ^ h >> 12) & 255;
    }
    value[3] = 255;
}

Test(video_planes, a_clip_of_planes_is_the_clip_of_rgb)
{
    static const char *const matrices[] = {NULL, "smpte170m", "bt709", "bt2020nc"};
    const char *codec = make_clip_has_encoder("libx264") ? "libx264" : "mpeg4";
    for (size_t i = 0; i < 4; i++) {
        struct make_clip m = {.codec = codec, .frames = FRAMES, .matrix = matrices[i], .pix_fmt = "yuv420p"};
        m.full = m.tag_range = i == 2, m.width = 94, m.height = 62;
        cr_expect_eq(compare(video_make("c.mp4", m), FRAMES), FRAMES);
    }
    struct make_clip m = {.codec = "ffv1", .frames = FRAMES, .pix_fmt = "yuv420p", .paint = paint_noise};
    cr_expect_eq(compare(video_make("n.mkv", m), FRAMES), FRAMES);
    m.codec = "rawvideo", m.pix_fmt = "nv12";
    cr_expect_eq(compare(video_make("n.nut", m), FRAMES), FRAMES);
    m.codec = "mjpeg", m.pix_fmt = "yuvj420p";
    cr_expect_eq(compare(video_make("n.avi", m), FRAMES), FRAMES);
}

Test(video_planes, other_clips_stay_rgb)
{
    const struct make_clip clips[] = {{.codec = "mpeg4", .rotate = 180},
                                      {.codec = "mpeg4", .rotate = 90},
                                      {.codec = "mpeg4", .mirror = true},
                                      {.codec = "ffv1", .pix_fmt = "yuv420p", .width = 63},
                                      {.codec = "ffv1", .pix_fmt = "yuv420p", .height = 47},
                                      {.codec = "ffv1", .pix_fmt = "yuv422p"},
                                      {.codec = "ffv1", .pix_fmt = "yuv420p10le"},
                                      {.codec = "ffv1", .pix_fmt = "bgr0"}};
    for (size_t i = 0; i < sizeof clips / sizeof *clips; i++)
        cr_expect_eq(compare(video_make(i < 3 ? "r.mp4" : "r.mkv", clips[i]), 10), 0, "clip %zu", i);
    struct make_clip fields = {.codec = "mpeg4", .pix_fmt = "yuv420p", .interlaced = true};
    cr_expect_eq(compare(video_make("i.avi", fields), 10), 0);
}

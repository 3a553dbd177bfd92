/* The overlay's pictures: planes that stay as they are, other colours, odd sizes, and what is painted on them. */
#include "../formats/sink.h"
#include "../formats/video_planes.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/frame.h>

TestSuite(overlay_easel);

enum { W = 96, H = 64 };

struct picture {
    uint8_t y[H][W], u[H / 2][W / 2], v[H / 2][W / 2], uv[H / 2][W / 2][2];
    uint16_t owner[H][W];
};

static struct picture *new_picture(void)
{
    struct picture *p = calloc(1, sizeof *p);
    cr_assert_not_null(p);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) p->y[y][x] = (uint8_t)(16 + (x * 5 + y * 11) % 220);
    for (int y = 0; y < H / 2; y++)
        for (int x = 0; x < W / 2; x++) {
            p->uv[y][x][0] = p->u[y][x] = (uint8_t)(90 + (x * 3 + y) % 70);
            p->uv[y][x][1] = p->v[y][x] = (uint8_t)(90 + (x + y * 7) % 70);
        }
    return p;
}

/* As the decoder describes such planes. */
static struct s2_yuv planes_of(const struct picture *p, bool nv12, enum AVColorSpace space)
{
    AVFrame *f = av_frame_alloc();
    struct s2_yuv out;
    f->format = nv12 ? AV_PIX_FMT_NV12 : AV_PIX_FMT_YUV420P;
    f->width = W, f->height = H;
    f->colorspace = space;
    f->data[0] = (uint8_t *)p->y;
    f->data[1] = nv12 ? (uint8_t *)p->uv : (uint8_t *)p->u;
    f->data[2] = nv12 ? NULL : (uint8_t *)p->v;
    f->linesize[0] = W;
    f->linesize[1] = nv12 ? W : W / 2;
    f->linesize[2] = nv12 ? 0 : W / 2;
    cr_assert(fmt_planes_of(f, &out));
    av_frame_free(&f);
    return out;
}

static struct fmt_easel *new_easel(int width, int height, bool bt709)
{
    static struct fmt_object object = {1, NULL};
    const struct fmt_outputs_config c = {
        .width = width, .height = height, .colors.bt709 = bt709, .objects = &object, .n_objects = 1};
    struct fmt_easel *e;
    struct s2_err err = {0};
    cr_assert_eq(fmt_easel_open(&e, &c, &err), S2_OK, "%s", err.text);
    return e;
}

static const AVFrame *paint(struct fmt_easel *e, const struct s2_image *image, const uint16_t *owner)
{
    AVFrame *f = NULL;
    struct s2_err err = {0};
    cr_assert_eq(fmt_easel_paint(e, image, owner, &f, &err), S2_OK, "%s", err.text);
    cr_assert(f && f->format == AV_PIX_FMT_YUV420P);
    return f;
}

static int sample(const AVFrame *f, int c, int x, int y)
{
    return f->data[c][y * f->linesize[c] + x];
}

/* Largest difference in the samples of the rectangle, in pixels. */
static int furthest(const AVFrame *f, const struct picture *p, int x0, int y0, int x1, int y1)
{
    int most = 0;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) {
            const int d[3] = {sample(f, 0, x, y) - p->y[y][x], sample(f, 1, x / 2, y / 2) - p->u[y / 2][x / 2],
                              sample(f, 2, x / 2, y / 2) - p->v[y / 2][x / 2]};
            for (int c = 0; c < 3; c++) most = abs(d[c]) > most ? abs(d[c]) : most;
        }
    return most;
}

Test(overlay_easel, planes_in_its_colours_stay_as_they_are)
{
    struct picture *p = new_picture();
    for (int k = 0; k < 4; k++) {
        const bool nv12 = k & 1, bt709 = k & 2;
        const struct s2_yuv planes = planes_of(p, nv12, bt709 ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M);
        const struct s2_image image = {.width = W, .height = H, .yuv = &planes};
        cr_expect(fmt_planes_are(&planes, bt709));
        cr_expect_not(fmt_planes_are(&planes, !bt709));
        struct fmt_easel *e = new_easel(W, H, bt709);
        cr_expect_eq(furthest(paint(e, &image, (uint16_t *)p->owner), p, 0, 0, W, H), 0, "case %d", k);
        fmt_easel_free(e);
    }
    free(p);
}

/* A rectangle that begins in the middle of chroma samples: there they are tinted by a half. */
Test(overlay_easel, chroma_is_painted_as_far_as_the_pixels_are)
{
    struct picture *p = new_picture();
    memset(p->u, 128, sizeof p->u);
    memset(p->v, 128, sizeof p->v);
    for (int y = 20; y < H; y++)
        for (int x = 31; x < W; x++) p->owner[y][x] = 1;
    const struct s2_yuv planes = planes_of(p, false, AVCOL_SPC_BT709);
    const struct s2_image image = {.width = W, .height = H, .yuv = &planes};
    struct fmt_easel *e = new_easel(W, H, true);
    const AVFrame *f = paint(e, &image, (uint16_t *)p->owner);
    cr_expect_eq(furthest(f, p, 0, 30, 24, H), 0, "painted beside the object");
    const int inside = sample(f, 1, 40, 28) - 128, outside = sample(f, 1, 8, 28) - 128;
    cr_expect_eq(outside, 0);
    cr_expect_gt(inside, 10, "the first colour is blue");
    cr_expect_eq(sample(f, 1, 40, 28), sample(f, 1, 44, 24), "one tint inside");
    cr_expect_lt(sample(f, 2, 40, 28), 128);
    fmt_easel_free(e);
    free(p);
}

/* BT.601 planes for a BT.709 overlay are other numbers of nearly the same colours. */
Test(overlay_easel, other_colours_are_converted)
{
    struct picture *p = new_picture(), *q = new_picture();
    memset(p->y, 120, sizeof p->y);
    memset(p->u, 100, sizeof p->u);
    memset(p->v, 170, sizeof p->v);
    const struct s2_yuv planes = planes_of(p, false, AVCOL_SPC_SMPTE170M);
    uint8_t rgb[H][W][3];
    for (int y = 0; y < H; y++) s2_yuv_row(&planes, W, H, y, rgb[y][0]);
    struct fmt_easel *e = new_easel(W, H, true);
    const AVFrame *f = paint(e, &(struct s2_image){.width = W, .height = H, .yuv = &planes}, (uint16_t *)p->owner);
    /* RGB 188 98 65, and of it Y 114.5, U 104.3, V 168.9 */
    cr_expect(abs(rgb[9][9][0] - 188) < 2 && abs(rgb[9][9][1] - 98) < 2 && abs(rgb[9][9][2] - 65) < 2, "RGB %d %d %d",
              rgb[9][9][0], rgb[9][9][1], rgb[9][9][2]);
    const int y = sample(f, 0, 40, 40), u = sample(f, 1, 20, 20), v = sample(f, 2, 20, 20);
    cr_expect(y != 120 && abs(y - 114) < 2 && abs(u - 104) < 2 && abs(v - 169) < 2, "YUV %d %d %d", y, u, v);
    /* and so are the same pixels as RGB */
    for (int c = 0; c < 3; c++) q->y[0][c] = (uint8_t)sample(f, c, 10, 10);
    f = paint(e, &(struct s2_image){.width = W, .height = H, .stride = 3 * W, .rgb = rgb[0][0]}, (uint16_t *)p->owner);
    for (int c = 0; c < 3; c++) cr_expect_eq(sample(f, c, 10, 10), q->y[0][c]);
    fmt_easel_free(e);
    free(p);
    free(q);
}

Test(overlay_easel, the_edge_of_an_odd_size_is_repeated)
{
    enum { ODD_W = 31, ODD_H = 21 };
    uint8_t rgb[ODD_H][ODD_W][3];
    uint16_t owner[ODD_H][ODD_W] = {{0}};
    for (int y = 0; y < ODD_H; y++)
        for (int x = 0; x < ODD_W; x++) {
            memset(rgb[y][x], x > 20 ? 200 : 60, 3);
            owner[y][x] = y > 12;
        }
    const struct s2_image image = {.width = ODD_W, .height = ODD_H, .stride = 3 * ODD_W, .rgb = rgb[0][0]};
    struct fmt_easel *e = new_easel(ODD_W, ODD_H, false);
    for (int round = 0; round < 2; round++) {
        const AVFrame *f = paint(e, &image, owner[0]);
        cr_assert(f->width == ODD_W + 1 && f->height == ODD_H + 1);
        for (int y = 0; y < ODD_H; y++) cr_expect_eq(sample(f, 0, ODD_W, y), sample(f, 0, ODD_W - 1, y), "row %d", y);
        for (int x = 0; x <= ODD_W; x++)
            cr_expect_eq(sample(f, 0, x, ODD_H), sample(f, 0, x, ODD_H - 1), "column %d", x);
        cr_expect(abs(sample(f, 0, ODD_W, 1) - 188) < 3, "luma of the edge is %d", sample(f, 0, ODD_W, 1));
        cr_expect_gt(sample(f, 1, ODD_W / 2, ODD_H / 2), 135, "chroma of the corner is not painted");
    }
    fmt_easel_free(e);
}

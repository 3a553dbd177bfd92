/* overlay_easel.c - from a frame's picture to a painted 4:2:0 frame.
 *
 * Where the picture came as planes in the overlay's own colours, they are copied: what is not painted over stays as it
 * was decoded. Others are converted from RGB. Chroma is painted at the size of luma, each sample four times; then the
 * four are averaged. */
#include "sink.h"
#include "video_planes.h"

#include <stdlib.h>
#include <string.h>

#include <libavutil/frame.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>

struct fmt_easel {
    int width, height; /* of the frame: even */
    bool bt709;
    struct fmt_painter *painter;
    struct fmt_canvas canvas; /* luma is the frame's, chroma in a buffer of its own */
    uint8_t *chroma;          /* [2][height][width] */
    AVFrame *frame;
    struct SwsContext *from_rgb;
    uint8_t *rgb; /* [height][width], of planes in other colours and of odd pictures; NULL until there are any */
};

/* From RGB. chroma: where its samples lie. */
static struct SwsContext *open_scaler(const struct fmt_easel *e, int chroma)
{
    struct SwsContext *sws =
        fmt_sws_alloc(e->width, e->height, AV_PIX_FMT_RGB24, AV_PIX_FMT_YUV420P, SWS_BILINEAR | SWS_FULL_CHR_H_INP);
    int h, v;
    if (!sws) return NULL;
    fmt_chroma_position(chroma, &h, &v);
    av_opt_set_int(sws, "dst_h_chr_pos", h, 0);
    av_opt_set_int(sws, "dst_v_chr_pos", v, 0);
    const int *yuv = fmt_color_table(e->bt709 ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M);
    return fmt_sws_init(sws, sws_getCoefficients(SWS_CS_DEFAULT), 1, yuv, 0);
}

enum s2_status fmt_easel_open(struct fmt_easel **out, const struct fmt_outputs_config *c, struct s2_err *err)
{
    *out = NULL;
    struct fmt_easel *e = calloc(1, sizeof *e);
    if (!e) return s2_no_memory(err, "the overlay's pictures", sizeof *e);
    e->width = fmt_even(c->width);
    e->height = fmt_even(c->height);
    e->bt709 = c->colors.bt709;
    const size_t pixels = (size_t)e->width * e->height;
    e->chroma = malloc(2 * pixels);
    e->frame = av_frame_alloc();
    if (!e->chroma || !e->frame) goto no_memory;
    e->frame->format = AV_PIX_FMT_YUV420P;
    e->frame->width = e->width;
    e->frame->height = e->height;
    if (av_frame_get_buffer(e->frame, 0) < 0) goto no_memory;
    e->canvas = (struct fmt_canvas){
        .width = c->width,
        .height = c->height,
        .plane = {NULL, e->chroma, e->chroma + pixels},
        .stride = {(size_t)e->frame->linesize[0], (size_t)e->width, (size_t)e->width},
    };
    e->from_rgb = open_scaler(e, c->colors.chroma);
    if (!e->from_rgb) goto no_memory;
    const enum s2_status status =
        fmt_painter_open(&e->painter, c->width, c->height, e->bt709, c->objects, c->n_objects, err);
    if (status) {
        fmt_easel_free(e);
        return status;
    }
    *out = e;
    return S2_OK;
no_memory:
    fmt_easel_free(e);
    return s2_no_memory(err, "the overlay's pictures", pixels * 7 / 2);
}

void fmt_easel_free(struct fmt_easel *e)
{
    if (!e) return;
    fmt_painter_free(e->painter);
    sws_freeContext(e->from_rgb);
    av_frame_free(&e->frame);
    free(e->chroma);
    free(e->rgb);
    free(e);
}

/* ------------------------------------------------------------------ the picture as 4:2:0 */

/* Samples `step` bytes apart. */
static void copy_plane(uint8_t *to, int stride, const uint8_t *from, size_t from_stride, int step, int width,
                       int height)
{
    for (int y = 0; y < height; y++, to += stride, from += from_stride) {
        if (step == 1)
            memcpy(to, from, (size_t)width);
        else
            for (int x = 0; x < width; x++) to[x] = from[x * step];
    }
}

static void copy_planes(const struct fmt_easel *e, const struct s2_yuv *p)
{
    const AVFrame *f = e->frame;
    copy_plane(f->data[0], f->linesize[0], p->y, p->y_stride, 1, e->width, e->height);
    copy_plane(f->data[1], f->linesize[1], p->u, p->chroma_stride, p->chroma_step, e->width / 2, e->height / 2);
    copy_plane(f->data[2], f->linesize[2], p->v, p->chroma_stride, p->chroma_step, e->width / 2, e->height / 2);
}

static void convert_rgb(const struct fmt_easel *e, const uint8_t *rgb, size_t row_bytes)
{
    const int stride = (int)row_bytes;
    sws_scale(e->from_rgb, &rgb, &stride, 0, e->height, e->frame->data, e->frame->linesize);
}

/* The edge of an odd size is repeated. */
static void copy_even(const struct fmt_easel *e, const struct s2_image *image, size_t row_bytes)
{
    for (int y = 0; y < e->height; y++) {
        uint8_t *to = e->rgb + y * row_bytes;
        const uint8_t *from = image->rgb + (size_t)(y < image->height ? y : y - 1) * image->stride;
        memcpy(to, from, 3 * (size_t)image->width);
        if (e->width > image->width) memcpy(to + row_bytes - 3, to + row_bytes - 6, 3);
    }
}

static enum s2_status load(struct fmt_easel *e, const struct s2_image *image, struct s2_err *err)
{
    if (image->yuv && fmt_planes_are(image->yuv, e->bt709)) {
        copy_planes(e, image->yuv);
        return S2_OK;
    }
    if (!image->yuv && image->width == e->width && image->height == e->height) {
        convert_rgb(e, image->rgb, image->stride);
        return S2_OK;
    }
    const size_t row = 3 * (size_t)e->width;
    if (!e->rgb && !(e->rgb = malloc(row * e->height)))
        return s2_no_memory(err, "a picture of the overlay", row * e->height);
    if (!image->yuv) copy_even(e, image, row);
    for (int y = 0; image->yuv && y < e->height; y++) s2_yuv_row(image->yuv, e->width, e->height, y, e->rgb + y * row);
    convert_rgb(e, e->rgb, row);
    return S2_OK;
}

/* ------------------------------------------------------------------ chroma of full size, and back */

enum { BLOCK = 32 }; /* samples: of a length that compilers turn into vector code */

static void spread(uint8_t *to, const uint8_t *from, int n)
{
    uint16_t twice[BLOCK];
    for (; n >= BLOCK; n -= BLOCK, from += BLOCK, to += sizeof twice) {
        for (int i = 0; i < BLOCK; i++) twice[i] = (uint16_t)(from[i] * 0x0101);
        memcpy(to, twice, sizeof twice);
    }
    for (int i = 0; i < n; i++) to[2 * i] = to[2 * i + 1] = from[i];
}

static void average(uint8_t *to, const uint8_t *top, const uint8_t *bottom, int n)
{
    uint16_t a[BLOCK], b[BLOCK];
    for (; n >= BLOCK; n -= BLOCK, to += BLOCK, top += sizeof a, bottom += sizeof b) {
        memcpy(a, top, sizeof a);
        memcpy(b, bottom, sizeof b);
        for (int i = 0; i < BLOCK; i++)
            to[i] = (uint8_t)((uint16_t)((a[i] & 255) + (a[i] >> 8) + (b[i] & 255) + (b[i] >> 8) + 2) >> 2);
    }
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)((top[2 * i] + top[2 * i + 1] + bottom[2 * i] + bottom[2 * i + 1] + 2) >> 2);
}

static void spread_chroma(const struct fmt_easel *e, int c)
{
    const size_t width = (size_t)e->width;
    for (int y = 0; y < e->height / 2; y++) {
        uint8_t *to = e->canvas.plane[c] + 2 * y * width;
        spread(to, e->frame->data[c] + (ptrdiff_t)y * e->frame->linesize[c], e->width / 2);
        memcpy(to + width, to, width);
    }
}

static void average_chroma(const struct fmt_easel *e, int c)
{
    const size_t width = (size_t)e->width;
    for (int y = 0; y < e->height / 2; y++) {
        const uint8_t *top = e->canvas.plane[c] + 2 * y * width;
        average(e->frame->data[c] + (ptrdiff_t)y * e->frame->linesize[c], top, top + width, e->width / 2);
    }
}

/* What was painted at the edge of an odd size, too. */
static void repeat_edge(const struct fmt_easel *e, int c)
{
    const int width = e->canvas.width, height = e->canvas.height;
    const size_t stride = e->canvas.stride[c];
    uint8_t *plane = e->canvas.plane[c];
    for (int y = 0; y < height && e->width > width; y++) plane[y * stride + width] = plane[y * stride + width - 1];
    if (e->height > height) memcpy(plane + height * stride, plane + (height - 1) * stride, (size_t)e->width);
}

enum s2_status fmt_easel_paint(struct fmt_easel *e, const struct s2_image *image, const uint16_t *owner,
                               struct AVFrame **out, struct s2_err *err)
{
    if (av_frame_make_writable(e->frame) < 0)
        return s2_no_memory(err, "a picture of the overlay", (size_t)e->width * e->height * 3 / 2);
    e->canvas.plane[0] = e->frame->data[0];
    e->canvas.stride[0] = (size_t)e->frame->linesize[0];
    const enum s2_status status = load(e, image, err);
    if (status) return status;
    for (int c = 1; c < 3; c++) spread_chroma(e, c);
    fmt_painter_draw(e->painter, &e->canvas, owner);
    for (int c = 0; c < 3; c++) repeat_edge(e, c);
    for (int c = 1; c < 3; c++) average_chroma(e, c);
    *out = e->frame;
    return S2_OK;
}

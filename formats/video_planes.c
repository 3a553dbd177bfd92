/* video_planes.c - see video_planes.h */
#include "video_planes.h"

#include <string.h>

#include <libavutil/imgutils.h>
#include <libavutil/mem.h>
#include <libavutil/pixdesc.h>

enum {
    BAND = 32,    /* rows of a trial */
    NOISE = 16411 /* bytes, then they repeat: a prime number, so that no two rows near each other are alike */
};

/* swscale's rounding of 1/65536 to its 1/8192. */
static int32_t weight_of(int64_t x)
{
    return (int32_t)((x + 4) >> 3);
}

static void set_weights(struct s2_yuv *p, const int *table, bool full)
{
    int64_t weight[4];
    for (int i = 0; i < 4; i++) weight[i] = full ? (int64_t)table[i] * 224 / 255 : table[i];
    p->black = full ? 0 : 16 * 512;
    p->gain = weight_of(full ? 65536 : 65536 * 255 / 219);
    p->v_to_r = weight_of(weight[0]);
    p->u_to_b = weight_of(weight[1]);
    p->u_to_g = weight_of(-weight[2]);
    p->v_to_g = weight_of(-weight[3]);
}

bool fmt_planes_of(const AVFrame *f, struct s2_yuv *out)
{
    const bool together = f->format == AV_PIX_FMT_NV12;
    if (!together && f->format != AV_PIX_FMT_YUV420P && f->format != AV_PIX_FMT_YUVJ420P) return false;
    if (f->width % 2 || f->height % 2 || f->width == 0 || f->height == 0 || fmt_converts_fields(f)) return false;
    if (f->linesize[0] <= 0 || f->linesize[1] <= 0 || (!together && f->linesize[1] != f->linesize[2])) return false;
    int h, v;
    fmt_chroma_position(f->chroma_location, &h, &v);
    *out = (struct s2_yuv){.y = f->data[0],
                           .u = f->data[1],
                           .v = together ? f->data[1] + 1 : f->data[2],
                           .y_stride = (size_t)f->linesize[0],
                           .chroma_stride = (size_t)f->linesize[1],
                           .chroma_step = together ? 2 : 1,
                           .chroma_x = h / 128,
                           .chroma_y = v / 128};
    set_weights(out, fmt_color_table(fmt_color_space(f)), fmt_color_range(f) == AVCOL_RANGE_JPEG);
    return true;
}

bool fmt_planes_are(const struct s2_yuv *p, bool bt709)
{
    struct s2_yuv own;
    set_weights(&own, fmt_color_table(bt709 ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M), false);
    return p->black == own.black && p->gain == own.gain && p->v_to_r == own.v_to_r && p->v_to_g == own.v_to_g &&
           p->u_to_g == own.u_to_g && p->u_to_b == own.u_to_b;
}

bool fmt_planes_copy(AVBufferPool *pool, const AVFrame *f, AVFrame *to)
{
    const int bytes = av_image_get_buffer_size(f->format, f->width, f->height, 1);
    if (bytes < 0 || !(to->buf[0] = av_buffer_pool_get(pool))) return false;
    if (to->buf[0]->size >= (size_t)bytes && av_frame_copy_props(to, f) >= 0) {
        to->format = f->format;
        to->width = f->width;
        to->height = f->height;
        av_image_fill_arrays(to->data, to->linesize, to->buf[0]->data, f->format, f->width, f->height, 1);
        av_image_copy(to->data, to->linesize, (const uint8_t **)f->data, f->linesize, f->format, f->width, f->height);
        return true;
    }
    av_frame_unref(to);
    return false;
}

static bool same_row(const struct s2_yuv *planes, const AVFrame *rgb, int y, uint8_t *row)
{
    const uint8_t *plane[3];
    for (int c = 0; c < 3; c++) plane[c] = rgb->data[(c + 2) % 3] + (ptrdiff_t)y * rgb->linesize[(c + 2) % 3];
    s2_yuv_row(planes, rgb->width, rgb->height, y, row);
    int differ = 0;
    for (int x = 0; x < rgb->width; x++)
        for (int c = 0; c < 3; c++) differ |= plane[c][x] ^ row[3 * x + c];
    return differ == 0;
}

bool fmt_planes_agree(struct fmt_convert *converter, const AVFrame *f, const struct s2_yuv *planes, int band)
{
    AVFrame *rgb = av_frame_alloc();
    uint8_t *row = av_malloc_array((size_t)f->width, 3);
    bool agree = rgb && row && !fmt_convert_frame(converter, f, rgb, NULL) && rgb->format == AV_PIX_FMT_GBRP;
    const int middle = (f->height - band) / 2, last = f->height - band;
    for (int y = 0; agree && y < f->height; y++)
        if (y < band || (y >= middle && y < middle + band) || y >= last) agree = same_row(planes, rgb, y, row);
    av_frame_free(&rgb);
    av_free(row);
    return agree;
}

/* A frame of the same kind whose samples are noise, a quarter of them 0 or 255: what real pictures seldom have, too. */
static AVFrame *noise_like(const AVFrame *f)
{
    AVFrame *noise = av_frame_alloc();
    if (!noise) return NULL;
    noise->format = f->format;
    noise->width = f->width;
    noise->height = f->height;
    if (av_frame_get_buffer(noise, 0) < 0 || av_frame_copy_props(noise, f) < 0) {
        av_frame_free(&noise);
        return NULL;
    }
    uint8_t block[NOISE];
    uint64_t state = 1;
    for (size_t k = 0; k < NOISE; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint8_t sample = (uint8_t)(state >> 56);
        block[k] = state >> 54 & 3 ? sample : sample & 1 ? 255 : 0;
    }
    for (int i = 0; i < AV_NUM_DATA_POINTERS && noise->buf[i]; i++)
        for (size_t k = 0, size = noise->buf[i]->size; k < size; k += NOISE)
            memcpy(noise->buf[i]->data + k, block, size - k < NOISE ? size - k : NOISE);
    return noise;
}

static bool try_out(const AVFrame *f)
{
    struct fmt_convert converter = {0};
    struct s2_yuv planes;
    AVFrame *noise = noise_like(f);
    const bool agreed = noise && fmt_planes_of(noise, &planes) && fmt_planes_agree(&converter, noise, &planes, BAND) &&
                        fmt_planes_of(f, &planes) && fmt_planes_agree(&converter, f, &planes, BAND);
    av_frame_free(&noise);
    fmt_convert_free(&converter);
    return agreed;
}

bool fmt_planes_usable(struct fmt_planes_trial *t, const AVFrame *f, const char *name)
{
    struct s2_yuv planes;
    if (!fmt_planes_of(f, &planes)) return false;
    const struct fmt_planes_trial kind = {.width = f->width,
                                          .height = f->height,
                                          .format = f->format,
                                          .space = fmt_color_space(f),
                                          .range = fmt_color_range(f),
                                          .location = f->chroma_location};
    if (t->tried && t->width == kind.width && t->height == kind.height && t->format == kind.format &&
        t->space == kind.space && t->range == kind.range && t->location == kind.location)
        return t->agreed;
    *t = kind;
    t->tried = true;
    t->agreed = try_out(f);
    s2_log(S2_LOG_DEBUG, "%s: frames are passed on as %s", name,
           t->agreed ? "decoded" : "RGB: libswscale's differs from what their planes would give");
    return t->agreed;
}

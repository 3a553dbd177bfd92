/* mask_read.c - a still as a binary mask.
 *
 * PNG goes through libpng, because the index of a palette pixel is the object id and must survive; everything else
 * through FFmpeg. Both give a raster of samples as they stand in the file, and one rule turns it into bits. */
#include "av_log.h"
#include "stills.h"
#include "video_convert.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/intreadwrite.h>
#include <libavutil/pixdesc.h>
#include <png.h>

struct raster {
    int width, height;
    int channels;     /* 1 grey or index, 2 grey and alpha, 3 RGB, 4 RGB and alpha */
    bool lossy;       /* values near black are noise of the coding, not mask */
    int half;         /* lossy: the least value that counts as set */
    uint16_t *sample; /* [height][width][channels] */
};

static enum s2_status make_raster(struct raster *r, const char *path, int64_t width, int64_t height, int channels,
                                  struct s2_err *err)
{
    size_t n = 0;
    if (width < 1 || height < 1 || width > FMT_MAX_SIDE || height > FMT_MAX_SIDE)
        return s2_fail(err, S2_E_USAGE, "%s: the mask is %lldx%lld; up to %dx%d can be used", path, (long long)width,
                       (long long)height, FMT_MAX_SIDE, FMT_MAX_SIDE);
    r->width = (int)width;
    r->height = (int)height;
    r->channels = channels;
    if (!s2_mul((size_t)width * (size_t)height, (size_t)channels * sizeof(*r->sample), &n) || !(r->sample = malloc(n)))
        return s2_no_memory(err, "a mask picture", n);
    return S2_OK;
}

/* ------------------------------------------------------------------ PNG */

static void png_failed(png_structp png, png_const_charp text)
{
    s2_fail(png_get_error_ptr(png), S2_E_USAGE, "the PNG is damaged: %s", text);
    png_longjmp(png, 1);
}

static void png_warned(png_structp png, png_const_charp text)
{
    (void)png;
    s2_log(S2_LOG_DEBUG, "libpng: %s", text);
}

struct png_reader {
    png_structp png;
    png_infop info;
    png_bytep bytes; /* [height] rows */
    png_bytepp row;
    struct s2_err why; /* libpng's own complaint */
};

static int channels_of(int color)
{
    switch (color) {
    case PNG_COLOR_TYPE_GRAY_ALPHA: return 2;
    case PNG_COLOR_TYPE_RGB: return 3;
    case PNG_COLOR_TYPE_RGB_ALPHA: return 4;
    default: return 1;
    }
}

/* Decodes into rows of bytes. Everything that libpng may jump out of is in here; returns false if it did. */
static bool decode_png(struct png_reader *p, FILE *file, struct raster *r, const char *path, struct s2_err *err)
{
    if (setjmp(png_jmpbuf(p->png))) return false;
    png_init_io(p->png, file);
    png_set_user_limits(p->png, FMT_MAX_SIDE, FMT_MAX_SIDE);
    png_read_info(p->png, p->info);
    png_uint_32 width = png_get_image_width(p->png, p->info), height = png_get_image_height(p->png, p->info);
    if (png_get_bit_depth(p->png, p->info) < 8) png_set_packing(p->png); /* a byte a pixel, values unchanged */
    png_set_interlace_handling(p->png);
    png_read_update_info(p->png, p->info);
    if (make_raster(r, path, width, height, channels_of(png_get_color_type(p->png, p->info)), err)) return false;
    size_t row = png_get_rowbytes(p->png, p->info);
    p->bytes = malloc(row * height);
    p->row = malloc(height * sizeof(*p->row));
    if (!p->bytes || !p->row) {
        s2_no_memory(err, "a mask picture", row * height);
        return false;
    }
    for (png_uint_32 y = 0; y < height; y++) p->row[y] = p->bytes + y * row;
    png_read_image(p->png, p->row);
    png_read_end(p->png, NULL);
    return true;
}

static enum s2_status read_png(const char *path, FILE *file, struct raster *r, struct s2_err *err)
{
    struct png_reader p = {0};
    bool ok = false;
    p.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p.why, png_failed, png_warned);
    if (p.png) p.info = png_create_info_struct(p.png);
    if (!p.info)
        s2_no_memory(err, "the PNG reader", 1 << 16);
    else
        ok = decode_png(&p, file, r, path, err);
    if (ok) {
        size_t values = (size_t)r->width * (size_t)r->channels;
        bool deep = png_get_bit_depth(p.png, p.info) == 16;
        for (int y = 0; y < r->height; y++) {
            const uint8_t *from = p.row[y];
            uint16_t *to = r->sample + (size_t)y * values;
            for (size_t i = 0; i < values; i++) to[i] = deep ? AV_RB16(from + 2 * i) : from[i];
        }
    }
    png_destroy_read_struct(&p.png, &p.info, NULL);
    free(p.bytes);
    free(p.row);
    if (p.why.status) s2_fail(err, p.why.status, "%s: %s", path, p.why.text);
    return ok ? S2_OK : err->status;
}

/* ------------------------------------------------------------------ other pictures */

static enum s2_status read_other(const char *path, struct raster *r, struct s2_err *err)
{
    struct fmt_still_reader reader = {0};
    struct s2_err why = {0};
    bool damaged = false;
    AVFrame *f = av_frame_alloc();
    enum s2_status status = f ? fmt_still_read(&reader, path, f, &damaged, &why) : s2_no_memory(&why, "a frame", 1024);
    if (status == S2_E_INPUT || damaged) {
        status = s2_fail(err, S2_E_USAGE, "%s: %s", path, damaged ? "a part of the mask is missing" : why.text);
        goto done;
    }
    if (status) {
        s2_fail(err, status, "%s", why.text);
        goto done;
    }
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    bool index = d->flags & AV_PIX_FMT_FLAG_PAL;
    bool yuv = d->nb_components >= 3 && !(d->flags & AV_PIX_FMT_FLAG_RGB) && !index;
    if (d->flags & (AV_PIX_FMT_FLAG_BAYER | AV_PIX_FMT_FLAG_FLOAT) || d->comp[0].depth > 16) {
        status = s2_fail(err, S2_E_USAGE, "%s: a mask in pixel format %s is not understood; use a grey or palette PNG",
                         path, d->name);
        goto done;
    }
    /* of YUV only the luma, which is the picture in grey */
    int channels = index || yuv ? 1 : d->nb_components;
    if ((status = make_raster(r, path, f->width, f->height, channels, err))) goto done;
    r->lossy = yuv || reader.decoder->codec_id == AV_CODEC_ID_MJPEG;
    r->half = 1 << (d->comp[0].depth - 1);
    uint16_t *line = calloc((size_t)f->width, sizeof(*line));
    if (!line) status = s2_no_memory(err, "a row of the mask", (size_t)f->width * sizeof(*line));
    for (int y = 0; line && y < f->height; y++)
        for (int c = 0; c < channels; c++) {
            av_read_image_line2(line, (const uint8_t **)f->data, f->linesize, d, 0, y, c, f->width, 0, 2);
            for (int x = 0; x < f->width; x++)
                r->sample[((size_t)y * (size_t)f->width + (size_t)x) * (size_t)channels + (size_t)c] = line[x];
        }
    free(line);
done:
    av_frame_free(&f);
    fmt_still_reader_free(&reader);
    return status;
}

/* ------------------------------------------------------------------ samples to bits */

/* Alpha is the mask where the colour is constant and alpha is not. With both constant the colour decides, but a picture
 * that is transparent all over is empty. */
static bool alpha_is_mask(const struct raster *r)
{
    if (r->channels != 2 && r->channels != 4) return false;
    size_t n = (size_t)r->width * (size_t)r->height, k = (size_t)r->channels;
    bool alpha_varies = false;
    for (size_t i = 1; i < n; i++) {
        const uint16_t *s = r->sample + i * k;
        if (memcmp(s, r->sample, (k - 1) * sizeof(*s))) return false;
        alpha_varies |= s[k - 1] != r->sample[k - 1];
    }
    return alpha_varies || r->sample[k - 1] == 0;
}

static bool has_colors(const struct raster *r)
{
    size_t n = (size_t)r->width * (size_t)r->height, k = (size_t)r->channels;
    for (const uint16_t *s = r->sample; k >= 3 && n > 0; n--, s += k)
        if (s[0] != s[1] || s[0] != s[2]) return true;
    return false;
}

static bool is_inside(const struct raster *r, const uint16_t *s, bool alpha, int value)
{
    int colors = r->channels >= 3 ? 3 : 1;
    if (alpha) {
        s += colors;
        colors = 1;
    }
    if (r->lossy && value < 0) return s[0] >= r->half || (colors == 3 && (s[1] >= r->half || s[2] >= r->half));
    if (value < 0) return s[0] || (colors == 3 && (s[1] || s[2]));
    return s[0] == value && (colors == 1 || (s[1] == value && s[2] == value));
}

static enum s2_status to_bits(const struct raster *r, const char *path, int value, struct s2_bits *out,
                              struct s2_err *err)
{
    bool alpha = alpha_is_mask(r);
    if (value >= 0 && !alpha && has_colors(r))
        return s2_fail(err, S2_E_USAGE,
                       "%s: is a picture in colour; value %d can be picked out of grey or palette masks only", path,
                       value);
    *out = (struct s2_bits){.width = r->width, .height = r->height, .stride = ((size_t)r->width + 7) / 8};
    out->data = calloc((size_t)r->height, out->stride);
    if (!out->data) return s2_no_memory(err, "a mask", (size_t)r->height * out->stride);
    const uint16_t *s = r->sample;
    for (int y = 0; y < r->height; y++) {
        uint8_t *row = out->data + (size_t)y * out->stride;
        for (int x = 0; x < r->width; x++, s += r->channels)
            if (is_inside(r, s, alpha, value)) row[x / 8] = (uint8_t)(row[x / 8] | 0x80 >> x % 8);
    }
    return S2_OK;
}

enum s2_status fmt_mask_read(const char *path, int value, struct s2_bits *out, struct s2_err *err)
{
    struct raster r = {0};
    struct s2_err local = {0};
    uint8_t magic[8] = {0};
    *out = (struct s2_bits){0};
    if (!err) err = &local;
    FILE *file = fopen(path, "rbe");
    if (!file) return s2_fail(err, S2_E_USAGE, "%s: the mask cannot be opened: %s", path, strerror(errno));
    bool png = fread(magic, 1, sizeof(magic), file) == sizeof(magic) && !png_sig_cmp(magic, 0, sizeof(magic));
    rewind(file);
    enum s2_status status = png ? read_png(path, file, &r, err) : read_other(path, &r, err);
    fclose(file);
    if (!status) status = to_bits(&r, path, value, out, err);
    free(r.sample);
    return status;
}

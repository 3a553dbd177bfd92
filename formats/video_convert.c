/* video_convert.c - any pixel format to 8-bit RGB. */
#include "video_convert.h"

#include <string.h>

#include <libavutil/imgutils.h>
#include <libavutil/mem.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>

enum {
    PICTURE_ALIGN = 64, /* bytes of a row; swscale's vector code may write whole vectors */
    SWS_QUALITY = SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP
};

/* Samples that need more than a copy are of these kinds. */
enum kind {
    KIND_RGB8,  /* 8-bit RGB or grey, any layout: the store reads it as it is */
    KIND_TABLE, /* deeper RGB or grey, or limited grey: sample by sample through a table */
    KIND_YUV,   /* swscale to planar RGB, for which it has vector code */
    KIND_OTHER  /* palettes, bits, packed 5:6:5 ...: swscale to packed RGB */
};

int fmt_color_space(const AVFrame *f)
{
    switch (f->colorspace) {
    case AVCOL_SPC_BT709:
    case AVCOL_SPC_FCC:
    case AVCOL_SPC_BT470BG:
    case AVCOL_SPC_SMPTE170M:
    case AVCOL_SPC_SMPTE240M:
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL: return f->colorspace;
    default: return f->height >= 720 || f->width >= 1280 ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M;
    }
}

static bool is_yuvj(int format)
{
    return format == AV_PIX_FMT_YUVJ420P || format == AV_PIX_FMT_YUVJ422P || format == AV_PIX_FMT_YUVJ444P ||
           format == AV_PIX_FMT_YUVJ440P || format == AV_PIX_FMT_YUVJ411P;
}

/* The format without the range that the yuvj names carry. */
static int plain_format(int format)
{
    switch (format) {
    case AV_PIX_FMT_YUVJ420P: return AV_PIX_FMT_YUV420P;
    case AV_PIX_FMT_YUVJ422P: return AV_PIX_FMT_YUV422P;
    case AV_PIX_FMT_YUVJ444P: return AV_PIX_FMT_YUV444P;
    case AV_PIX_FMT_YUVJ440P: return AV_PIX_FMT_YUV440P;
    case AV_PIX_FMT_YUVJ411P: return AV_PIX_FMT_YUV411P;
    default: return format;
    }
}

static bool is_yuv(const AVPixFmtDescriptor *d)
{
    return d->nb_components >= 3 && !(d->flags & (AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BAYER));
}

int fmt_color_range(const AVFrame *f)
{
    if (is_yuvj(f->format)) return AVCOL_RANGE_JPEG;
    if (f->color_range != AVCOL_RANGE_UNSPECIFIED) return f->color_range;
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    return d && is_yuv(d) ? AVCOL_RANGE_MPEG : AVCOL_RANGE_JPEG;
}

static enum kind kind_of(const AVFrame *f, const AVPixFmtDescriptor *d)
{
    const uint64_t odd = AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM | AV_PIX_FMT_FLAG_HWACCEL |
                         AV_PIX_FMT_FLAG_BAYER | AV_PIX_FMT_FLAG_FLOAT;
    if (is_yuv(d)) return KIND_YUV;
    bool grey = d->nb_components <= 2;
    if (d->flags & odd || (!grey && !(d->flags & AV_PIX_FMT_FLAG_RGB))) return KIND_OTHER;
    for (int c = 0; c < (grey ? 1 : 3); c++)
        if (d->comp[c].depth < 8 || d->comp[c].depth > 16 || d->comp[c].depth != d->comp[0].depth) return KIND_OTHER;
    if (d->comp[0].depth > 8 || (grey && fmt_color_range(f) == AVCOL_RANGE_MPEG)) return KIND_TABLE;
    return KIND_RGB8;
}

bool fmt_convert_knows(int format)
{
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(format);
    if (!d || d->flags & AV_PIX_FMT_FLAG_HWACCEL) return false;
    AVFrame f = {.format = format};
    enum kind kind = kind_of(&f, d);
    return kind == KIND_RGB8 || kind == KIND_TABLE || sws_isSupportedInput(plain_format(format)) > 0;
}

/* ------------------------------------------------------------------ pictures of the pool */

static bool take_picture(struct fmt_convert *c, enum AVPixelFormat format, int width, int height, AVFrame *out)
{
    int bytes = av_image_get_buffer_size(format, width, height, PICTURE_ALIGN);
    if (bytes < 0) return false;
    size_t size = (size_t)bytes + PICTURE_ALIGN;
    if (c->pool_size != size) {
        av_buffer_pool_uninit(&c->pool);
        c->pool = av_buffer_pool_init(size, NULL);
        c->pool_size = c->pool ? size : 0;
    }
    if (!c->pool || !(out->buf[0] = av_buffer_pool_get(c->pool))) return false;
    out->format = format;
    out->width = width;
    out->height = height;
    return av_image_fill_arrays(out->data, out->linesize, out->buf[0]->data, format, width, height, PICTURE_ALIGN) >= 0;
}

/* ------------------------------------------------------------------ through a table */

/* level[sample] for samples of `depth` bits; limited range puts black at 16 and white at 235, times 2^(depth-8). */
static bool prepare_levels(struct fmt_convert *c, int depth, bool limited)
{
    if (c->level && c->level_depth == depth && c->level_limited == limited) return true;
    av_freep(&c->level);
    int n = 1 << depth;
    if (!(c->level = av_malloc((size_t)n))) return false;
    int64_t black = limited ? 16 << (depth - 8) : 0;
    int64_t span = limited ? 219 << (depth - 8) : n - 1;
    for (int i = 0; i < n; i++) {
        int64_t v = ((i - black) * 510 + span) / (2 * span);
        c->level[i] = (uint8_t)(i <= black ? 0 : v > 255 ? 255 : v);
    }
    c->level_depth = depth;
    c->level_limited = limited;
    return true;
}

static bool through_table(struct fmt_convert *c, const AVFrame *in, const AVPixFmtDescriptor *d, AVFrame *out)
{
    bool grey = d->nb_components <= 2;
    if (!prepare_levels(c, d->comp[0].depth, grey && fmt_color_range(in) == AVCOL_RANGE_MPEG)) return false;
    if (!c->line && !(c->line = av_malloc_array(FMT_MAX_SIDE, sizeof(*c->line)))) return false;
    if (!take_picture(c, AV_PIX_FMT_RGB24, in->width, in->height, out)) return false;
    for (int y = 0; y < in->height; y++) {
        uint8_t *row = out->data[0] + (ptrdiff_t)y * out->linesize[0];
        for (int k = 0; k < 3; k++) {
            if (k == 0 || !grey)
                av_read_image_line2(c->line, (const uint8_t **)in->data, in->linesize, d, 0, y, k, in->width, 0, 2);
            for (int x = 0; x < in->width; x++) row[3 * x + k] = c->level[c->line[x]];
        }
    }
    return true;
}

/* ------------------------------------------------------------------ through swscale */

void fmt_chroma_position(int location, int *h, int *v)
{
    bool centre = location == AVCHROMA_LOC_CENTER || location == AVCHROMA_LOC_TOP || location == AVCHROMA_LOC_BOTTOM;
    bool top = location == AVCHROMA_LOC_TOPLEFT || location == AVCHROMA_LOC_TOP;
    bool bottom = location == AVCHROMA_LOC_BOTTOMLEFT || location == AVCHROMA_LOC_BOTTOM;
    *h = centre ? 128 : 0;
    *v = top ? 0 : bottom ? 256 : 128;
}

static int sws_matrix(int space)
{
    switch (space) {
    case AVCOL_SPC_BT709: return SWS_CS_ITU709;
    case AVCOL_SPC_FCC: return SWS_CS_FCC;
    case AVCOL_SPC_SMPTE240M: return SWS_CS_SMPTE240M;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL: return SWS_CS_BT2020;
    default: return SWS_CS_ITU601;
    }
}

const int *fmt_color_table(int space)
{
    return sws_getCoefficients(sws_matrix(space));
}

/* swscale stretches chroma to the picture: at odd sizes all of it would lie a little off. So it gets pictures of whole
 * chroma samples, and what is too much is not shown. */
static int whole_chroma(int size, int log2)
{
    return AV_CEIL_RSHIFT(size, log2) << log2;
}

static bool is_cut_chroma(const AVFrame *f, const AVPixFmtDescriptor *d)
{
    return is_yuv(d) && d->flags & AV_PIX_FMT_FLAG_PLANAR &&
           (f->width != whole_chroma(f->width, d->log2_chroma_w) ||
            f->height != whole_chroma(f->height, d->log2_chroma_h));
}

/* in, copied into a picture that has room for whole chroma samples. */
static bool copy_even(struct fmt_convert *c, const AVFrame *in, const AVPixFmtDescriptor *d)
{
    int width = whole_chroma(in->width, d->log2_chroma_w), height = whole_chroma(in->height, d->log2_chroma_h);
    AVFrame *to = c->even;
    if (!to || to->width != width || to->height != height || to->format != in->format) {
        av_frame_free(&c->even);
        if (!(to = c->even = av_frame_alloc())) return false;
        to->width = width;
        to->height = height;
        to->format = in->format;
        if (av_frame_get_buffer(to, 0) < 0) {
            av_frame_free(&c->even);
            return false;
        }
        for (int i = 0; i < AV_NUM_DATA_POINTERS && to->buf[i]; i++) memset(to->buf[i]->data, 0, to->buf[i]->size);
    }
    av_image_copy(to->data, to->linesize, (const uint8_t **)in->data, in->linesize, in->format, in->width, in->height);
    return true;
}

struct SwsContext *fmt_sws_alloc(int width, int height, int from, int to, int flags)
{
    struct SwsContext *sws = sws_alloc_context();
    if (!sws) return NULL;
    av_opt_set_int(sws, "srcw", width, 0);
    av_opt_set_int(sws, "srch", height, 0);
    av_opt_set_int(sws, "src_format", from, 0);
    av_opt_set_int(sws, "dstw", width, 0);
    av_opt_set_int(sws, "dsth", height, 0);
    av_opt_set_int(sws, "dst_format", to, 0);
    av_opt_set_int(sws, "sws_flags", flags, 0);
    av_opt_set_int(sws, "threads", 1, 0);
    return sws;
}

struct SwsContext *fmt_sws_init(struct SwsContext *sws, const int *from, int from_full, const int *to, int to_full)
{
    if (sws_init_context(sws, NULL, NULL) < 0) {
        sws_freeContext(sws);
        return NULL;
    }
    sws_setColorspaceDetails(sws, from, from_full, to, to_full, 0, 1 << 16, 1 << 16);
    return sws;
}

/* A context for whole frames (field < 0), or for the rows of one field. */
static struct SwsContext *make_sws(const struct fmt_convert *c, enum AVPixelFormat to, int field)
{
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(c->format);
    const int full = c->range == AVCOL_RANGE_JPEG, height = field < 0 ? c->height : c->height / 2;
    struct SwsContext *sws = fmt_sws_alloc(c->width, height, plain_format(c->format), to, SWS_QUALITY);
    int h, v;
    if (!sws) return NULL;
    fmt_chroma_position(c->location, &h, &v);
    if (field >= 0) v = field == 0 ? 64 : 192; /* in rows of the field: quarter of a row off the frame's */
    av_opt_set_int(sws, "src_range", full, 0);
    av_opt_set_int(sws, "dst_range", 1, 0);
    if (d->log2_chroma_w) av_opt_set_int(sws, "src_h_chr_pos", h, 0);
    if (d->log2_chroma_h) av_opt_set_int(sws, "src_v_chr_pos", v, 0);
    const int *table = fmt_color_table(c->space);
    return fmt_sws_init(sws, table, full, table, 1);
}

static void free_sws(struct fmt_convert *c)
{
    sws_freeContext(c->whole);
    sws_freeContext(c->field[0]);
    sws_freeContext(c->field[1]);
    c->whole = c->field[0] = c->field[1] = NULL;
}

static bool is_interlaced(const AVFrame *f)
{
#ifdef AV_FRAME_FLAG_INTERLACED
    return f->flags & AV_FRAME_FLAG_INTERLACED;
#else
    return f->interlaced_frame;
#endif
}

bool fmt_converts_fields(const AVFrame *f)
{
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    return d && is_yuv(d) && d->log2_chroma_h == 1 && f->height % 4 == 0 && is_interlaced(f);
}

static bool scale(struct SwsContext **sws, const struct fmt_convert *c, const AVFrame *in, AVFrame *out, int field)
{
    if (!*sws && !(*sws = make_sws(c, out->format, field))) return false;
    int step = field < 0 ? 1 : 2, start = field < 0 ? 0 : field;
    int rows = field < 0 ? in->height : in->height / 2;
    const uint8_t *from[4] = {NULL};
    uint8_t *to[4] = {NULL};
    int from_stride[4] = {0}, to_stride[4] = {0};
    for (int p = 0; p < 4; p++) {
        from_stride[p] = in->linesize[p] * step;
        to_stride[p] = out->linesize[p] * step;
        if (in->data[p]) from[p] = in->data[p] + (ptrdiff_t)start * in->linesize[p];
        if (out->data[p]) to[p] = out->data[p] + (ptrdiff_t)start * out->linesize[p];
    }
    return sws_scale(*sws, from, from_stride, 0, rows, to, to_stride) == rows;
}

static bool through_swscale(struct fmt_convert *c, const AVFrame *in, const AVPixFmtDescriptor *d, AVFrame *out)
{
    const AVFrame *from = in;
    int space = fmt_color_space(in), range = fmt_color_range(in), location = in->chroma_location;
    if (is_cut_chroma(in, d)) {
        if (!copy_even(c, in, d)) return false;
        from = c->even;
    }
    if (c->width != from->width || c->height != from->height || c->format != in->format || c->space != space ||
        c->range != range || c->location != location) {
        free_sws(c);
        c->width = from->width;
        c->height = from->height;
        c->format = in->format;
        c->space = space;
        c->range = range;
        c->location = location;
    }
    if (!take_picture(c, is_yuv(d) ? AV_PIX_FMT_GBRP : AV_PIX_FMT_RGB24, from->width, from->height, out)) return false;
    bool ok = fmt_converts_fields(in) ? scale(&c->field[0], c, from, out, 0) && scale(&c->field[1], c, from, out, 1)
                                      : scale(&c->whole, c, from, out, -1);
    out->width = in->width;
    out->height = in->height;
    return ok;
}

enum s2_status fmt_convert_frame(struct fmt_convert *c, const AVFrame *in, AVFrame *out, struct s2_err *err)
{
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(in->format);
    bool ok = false;
    if (d) switch (kind_of(in, d)) {
        case KIND_RGB8: ok = av_frame_ref(out, in) >= 0; break;
        case KIND_TABLE: ok = through_table(c, in, d, out); break;
        case KIND_YUV:
        case KIND_OTHER: ok = through_swscale(c, in, d, out); break;
        }
    if (ok) return S2_OK;
    return s2_fail(err, S2_E_DEVICE,
                   "a %dx%d frame in pixel format %s could not be converted to RGB; memory may have run out", in->width,
                   in->height, d ? d->name : "unknown");
}

void fmt_convert_free(struct fmt_convert *c)
{
    free_sws(c);
    av_buffer_pool_uninit(&c->pool);
    av_frame_free(&c->even);
    av_freep(&c->line);
    av_freep(&c->level);
    *c = (struct fmt_convert){0};
}

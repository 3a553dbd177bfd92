/* make_clip.c - small synthetic clips: painted, encoded, multiplexed. */
#include "make_clip.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/channel_layout.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>

enum { AUDIO_RATE = 48000, TICKS = 10 /* a frame */ };

struct encoder {
    AVCodecContext *codec;
    AVStream *stream;
    AVFrame *frame;
};

struct maker {
    const struct make_clip *clip;
    AVFormatContext *format;
    struct encoder video, audio;
    AVPacket *packet;
    const char *step; /* what failed, if something did */
};

int64_t make_clip_tick(const struct make_clip *c, int i)
{
    static const int uneven[4] = {0, 4, -3, 2};
    return (int64_t)TICKS * i + (c->vfr ? uneven[i % 4] : 0);
}

bool make_clip_has_encoder(const char *name)
{
    return avcodec_find_encoder_by_name(name);
}

/* ------------------------------------------------------------------ pictures */

void make_clip_rgb(const struct make_clip *c, int frame, int x, int y, int rgb[3])
{
    int side = c->height / 3, left = frame * 4 % c->width, top = c->height / 3;
    if (x < 16 && y < 16)
        rgb[0] = rgb[1] = rgb[2] = frame * 8 % 256;
    else if (x >= left && x < left + side && y >= top && y < top + side)
        rgb[0] = 230, rgb[1] = rgb[2] = 40;
    else {
        rgb[0] = 255 * x / c->width;
        rgb[1] = 255 * y / c->height;
        rgb[2] = 64;
    }
}

uint32_t make_clip_palette(int i)
{
    return 0xff000000u | (uint32_t)i << 16 | (uint32_t)(255 - i) << 8 | (uint32_t)(i * 7 % 256);
}

static uint16_t clip16(double v, int depth)
{
    double max = (1 << depth) - 1;
    return (uint16_t)lrint(v < 0 ? 0 : v > max ? max : v);
}

/* The default picture in the components of the format, by the definition of its matrix. */
static void default_paint(const struct maker *m, const AVPixFmtDescriptor *d, int frame, int x, int y,
                          uint16_t value[4])
{
    const struct make_clip *c = m->clip;
    int rgb[3], depth = d->comp[0].depth;
    make_clip_rgb(c, frame, x, y, rgb);
    value[3] = (uint16_t)((1 << depth) - 1);
    if (d->flags & AV_PIX_FMT_FLAG_RGB) {
        for (int i = 0; i < 3; i++) value[i] = clip16(rgb[i] * ((1 << depth) - 1) / 255.0, depth);
        return;
    }
    bool bt709 = c->matrix && !strcmp(c->matrix, "bt709");
    double kr = bt709 ? 0.2126 : 0.299, kb = bt709 ? 0.0722 : 0.114;
    double luma = kr * rgb[0] + (1 - kr - kb) * rgb[1] + kb * rgb[2];
    double unit = 1 << (depth - 8), ls = c->full ? 1 : 219.0 / 255, cs = c->full ? 1 : 224.0 / 255;
    value[0] = clip16(((c->full ? 0 : 16) + luma * ls) * unit, depth);
    if (d->nb_components <= 2) value[1] = value[3];
    if (d->nb_components <= 2) return;
    value[1] = clip16((128 + (rgb[2] - luma) / 2 / (1 - kb) * cs) * unit, depth);
    value[2] = clip16((128 + (rgb[0] - luma) / 2 / (1 - kr) * cs) * unit, depth);
}

static void paint_frame(const struct maker *m, AVFrame *f, int number)
{
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    bool palette = d->flags & AV_PIX_FMT_FLAG_PAL;
    uint16_t *line = calloc((size_t)f->width, sizeof(*line));
    /* av_write_image_line2 only sets bits */
    for (int i = 0; i < AV_NUM_DATA_POINTERS && f->buf[i]; i++) memset(f->buf[i]->data, 0, f->buf[i]->size);
    for (int i = 0; palette && i < 256; i++) ((uint32_t *)(void *)f->data[1])[i] = make_clip_palette(i);
    for (int k = 0; line && k < (palette ? 1 : d->nb_components); k++) {
        bool chroma = (k == 1 || k == 2) && d->nb_components >= 3;
        int sx = chroma ? d->log2_chroma_w : 0, sy = chroma ? d->log2_chroma_h : 0;
        int width = AV_CEIL_RSHIFT(f->width, sx), height = AV_CEIL_RSHIFT(f->height, sy);
        for (int y = 0; y < height; y++) {
            for (int x = 0; x < width; x++) {
                uint16_t value[4] = {0};
                if (m->clip->paint)
                    m->clip->paint(m->clip->ctx, number, x << sx, y << sy, value);
                else
                    default_paint(m, d, number, x << sx, y << sy, value);
                line[x] = value[k];
            }
            av_write_image_line2(line, f->data, f->linesize, d, 0, y, k, width, 2);
        }
    }
    free(line);
}

/* ------------------------------------------------------------------ encoders */

/* The encoder's first pixel format. */
static enum AVPixelFormat first_format(const AVCodec *codec)
{
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(61, 13, 100)
    const void *list = NULL;
    int n = 0;
    if (avcodec_get_supported_config(NULL, codec, AV_CODEC_CONFIG_PIX_FORMAT, 0, &list, &n) >= 0 && list && n > 0)
        return *(const enum AVPixelFormat *)list;
#else
    if (codec->pix_fmts) return codec->pix_fmts[0];
#endif
    return AV_PIX_FMT_YUV420P;
}

static bool fail(struct maker *m, const char *step)
{
    m->step = step;
    return false;
}

static bool add_matrix(struct maker *m, AVStream *st)
{
    /* quarter turns clockwise as (a, b, c, d) of x' = a x + c y, y' = b x + d y */
    static const int turn[4][4] = {{1, 0, 0, 1}, {0, 1, -1, 0}, {-1, 0, 0, -1}, {0, -1, 1, 0}};
    const int *t = turn[m->clip->rotate / 90 % 4];
    int flip = m->clip->mirror ? -1 : 1;
    int32_t matrix[9] = {t[0] * flip * 65536, t[1] * 65536, 0, t[2] * flip * 65536, t[3] * 65536, 0, 0, 0, 1 << 30};
    if (!m->clip->rotate && !m->clip->mirror) return true;
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 102)
    AVPacketSideData *side = av_packet_side_data_new(&st->codecpar->coded_side_data, &st->codecpar->nb_coded_side_data,
                                                     AV_PKT_DATA_DISPLAYMATRIX, sizeof(matrix), 0);
    uint8_t *to = side ? side->data : NULL;
#else
    uint8_t *to = av_stream_new_side_data(st, AV_PKT_DATA_DISPLAYMATRIX, sizeof(matrix));
#endif
    if (to) memcpy(to, matrix, sizeof(matrix));
    return to ? true : fail(m, "rotation");
}

static void set_video(const struct make_clip *c, AVCodecContext *x, const AVCodec *codec)
{
    x->width = c->width;
    x->height = c->height;
    x->pix_fmt = c->pix_fmt ? av_get_pix_fmt(c->pix_fmt) : first_format(codec);
    x->time_base = (AVRational){1, c->fps * (c->vfr ? TICKS : 1)};
    x->framerate = (AVRational){c->fps, 1};
    x->thread_count = 1;
    if (codec->id == AV_CODEC_ID_MPEG4 || codec->id == AV_CODEC_ID_MJPEG) {
        x->flags |= AV_CODEC_FLAG_QSCALE;
        x->global_quality = 2 * FF_QP2LAMBDA;
    }
    if (codec->id == AV_CODEC_ID_MPEG4) x->max_b_frames = 2;
    if (codec->id == AV_CODEC_ID_MJPEG) x->strict_std_compliance = FF_COMPLIANCE_UNOFFICIAL;
    if (c->gop) x->gop_size = c->gop;
    if (c->matrix) x->colorspace = av_color_space_from_name(c->matrix);
    if (c->tag_range) x->color_range = c->full ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
    if (c->interlaced) x->flags |= AV_CODEC_FLAG_INTERLACED_DCT;
    if (c->interlaced) x->field_order = AV_FIELD_TT;
    av_opt_set(x->priv_data, "preset", "veryfast", 0);
    av_opt_set(x->priv_data, "x265-params", "log-level=error", 0);
}

static bool open_encoder(struct maker *m, struct encoder *e, const AVCodec *codec)
{
    if (m->format->oformat->flags & AVFMT_GLOBALHEADER) e->codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    if (avcodec_open2(e->codec, codec, NULL) < 0) return fail(m, "opening the encoder");
    e->stream = avformat_new_stream(m->format, NULL);
    e->frame = av_frame_alloc();
    if (!e->stream || !e->frame) return fail(m, "memory");
    e->stream->time_base = e->codec->time_base;
    return avcodec_parameters_from_context(e->stream->codecpar, e->codec) >= 0 ? true : fail(m, "parameters");
}

static bool open_video(struct maker *m)
{
    const AVCodec *codec = avcodec_find_encoder_by_name(m->clip->codec);
    if (!codec) return fail(m, "finding the encoder");
    struct encoder *e = &m->video;
    if (!(e->codec = avcodec_alloc_context3(codec))) return fail(m, "memory");
    set_video(m->clip, e->codec, codec);
    if (e->codec->pix_fmt == AV_PIX_FMT_NONE) return fail(m, "the pixel format");
    if (!open_encoder(m, e, codec)) return false;
    e->stream->avg_frame_rate = e->codec->framerate;
    e->frame->width = m->clip->width;
    e->frame->height = m->clip->height;
    e->frame->format = e->codec->pix_fmt;
    e->frame->colorspace = e->codec->colorspace;
    e->frame->color_range = e->codec->color_range;
    if (av_frame_get_buffer(e->frame, 0) < 0) return fail(m, "memory");
    return add_matrix(m, e->stream);
}

static bool open_audio(struct maker *m)
{
    if (!m->clip->audio) return true;
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_MP2);
    struct encoder *e = &m->audio;
    if (!codec || !(e->codec = avcodec_alloc_context3(codec))) return fail(m, "the audio encoder");
    e->codec->sample_fmt = AV_SAMPLE_FMT_S16;
    e->codec->sample_rate = AUDIO_RATE;
    e->codec->bit_rate = 64000;
    e->codec->time_base = (AVRational){1, AUDIO_RATE};
    av_channel_layout_default(&e->codec->ch_layout, 1);
    if (!open_encoder(m, e, codec)) return false;
    e->frame->nb_samples = e->codec->frame_size;
    e->frame->format = e->codec->sample_fmt;
    e->frame->sample_rate = AUDIO_RATE;
    av_channel_layout_copy(&e->frame->ch_layout, &e->codec->ch_layout);
    return av_frame_get_buffer(e->frame, 0) >= 0 ? true : fail(m, "memory");
}

/* ------------------------------------------------------------------ the clip */

/* frame NULL: no more. */
static bool encode(struct maker *m, struct encoder *e, AVFrame *frame)
{
    if (avcodec_send_frame(e->codec, frame) < 0) return fail(m, "encoding");
    for (;;) {
        int ret = avcodec_receive_packet(e->codec, m->packet);
        if (ret == AVERROR(EAGAIN) || ret == AVERROR_EOF) return true;
        if (ret < 0) return fail(m, "encoding");
        if (!m->packet->duration && e == &m->video) m->packet->duration = m->clip->vfr ? TICKS : 1;
        av_packet_rescale_ts(m->packet, e->codec->time_base, e->stream->time_base);
        m->packet->stream_index = e->stream->index;
        if (av_interleaved_write_frame(m->format, m->packet) < 0) return fail(m, "writing");
    }
}

static void mark_interlaced(AVFrame *f)
{
#ifdef AV_FRAME_FLAG_INTERLACED
    f->flags |= AV_FRAME_FLAG_INTERLACED | AV_FRAME_FLAG_TOP_FIELD_FIRST;
#else
    f->interlaced_frame = f->top_field_first = 1;
#endif
}

static bool encode_video(struct maker *m)
{
    AVFrame *f = m->video.frame;
    for (int i = 0; i < m->clip->frames; i++) {
        if (av_frame_make_writable(f) < 0) return fail(m, "memory");
        paint_frame(m, f, i);
        f->pts = make_clip_tick(m->clip, i) / (m->clip->vfr ? 1 : TICKS);
        f->quality = m->video.codec->global_quality;
        if (m->clip->interlaced) mark_interlaced(f);
        if (!encode(m, &m->video, f)) return false;
    }
    return encode(m, &m->video, NULL);
}

static bool encode_audio(struct maker *m)
{
    AVFrame *f = m->audio.frame;
    if (!m->clip->audio) return true;
    int64_t total = (int64_t)m->clip->frames * AUDIO_RATE / m->clip->fps;
    for (int64_t at = 0; at < total; at += f->nb_samples) {
        if (av_frame_make_writable(f) < 0) return fail(m, "memory");
        int16_t *s = (int16_t *)(void *)f->data[0];
        for (int i = 0; i < f->nb_samples; i++)
            s[i] = (int16_t)(8000 * sin((double)(at + i) * 440 * 6.2831853 / AUDIO_RATE));
        f->pts = at;
        if (!encode(m, &m->audio, f)) return false;
    }
    return encode(m, &m->audio, NULL);
}

static bool run(struct maker *m)
{
    const struct make_clip *c = m->clip;
    if (avformat_alloc_output_context2(&m->format, NULL, c->format, c->path) < 0) return fail(m, "the container");
    if (!(m->packet = av_packet_alloc())) return fail(m, "memory");
    if (!open_video(m) || !open_audio(m)) return false;
    if (!(m->format->oformat->flags & AVFMT_NOFILE) && avio_open(&m->format->pb, c->path, AVIO_FLAG_WRITE) < 0)
        return fail(m, "creating the file");
    AVDictionary *options = NULL;
    if (c->options && av_dict_parse_string(&options, c->options, "=", ":", 0) < 0) return fail(m, "container options");
    int ret = avformat_write_header(m->format, &options);
    av_dict_free(&options);
    if (ret < 0) return fail(m, "the header");
    if (!encode_audio(m) || !encode_video(m)) return false;
    return av_write_trailer(m->format) >= 0 ? true : fail(m, "the trailer");
}

static void free_encoder(struct encoder *e)
{
    avcodec_free_context(&e->codec);
    av_frame_free(&e->frame);
}

bool make_clip(const struct make_clip *c, char *why, size_t size)
{
    struct maker m = {.clip = c};
    int level = av_log_get_level();
    av_log_set_level(AV_LOG_ERROR);
    bool ok = run(&m);
    if (!ok) snprintf(why, size, "%s: %s failed", c->path, m.step);
    free_encoder(&m.video);
    free_encoder(&m.audio);
    av_packet_free(&m.packet);
    if (m.format && m.format->pb && !(m.format->oformat->flags & AVFMT_NOFILE)) avio_closep(&m.format->pb);
    avformat_free_context(m.format);
    av_log_set_level(level);
    return ok;
}

#include "clip.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <stdlib.h>

struct scene_clip {
    AVFormatContext *file;
    AVCodecContext *codec;
    AVFrame *frame;
    AVPacket *packet;
    int64_t count;
};

static void release(struct scene_clip *c)
{
    if (c->file) avio_closep(&c->file->pb);
    avformat_free_context(c->file);
    avcodec_free_context(&c->codec);
    av_frame_free(&c->frame);
    av_packet_free(&c->packet);
    free(c);
}

static int open_codec(struct scene_clip *c, int width, int height, int fps)
{
    const AVCodec *ffv1 = avcodec_find_encoder(AV_CODEC_ID_FFV1);
    c->codec = ffv1 ? avcodec_alloc_context3(ffv1) : NULL;
    c->frame = av_frame_alloc();
    c->packet = av_packet_alloc();
    if (!ffv1) return AVERROR_ENCODER_NOT_FOUND;
    if (!c->codec || !c->frame || !c->packet) return AVERROR(ENOMEM);
    c->codec->width = c->frame->width = width;
    c->codec->height = c->frame->height = height;
    c->codec->pix_fmt = AV_PIX_FMT_0RGB32;
    c->frame->format = AV_PIX_FMT_0RGB32;
    c->codec->time_base = (AVRational){1, fps};
    c->codec->framerate = (AVRational){fps, 1};
    if (c->file->oformat->flags & AVFMT_GLOBALHEADER) c->codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    int r = av_frame_get_buffer(c->frame, 0);
    return r < 0 ? r : avcodec_open2(c->codec, ffv1, NULL);
}

int scene_clip_open(struct scene_clip **out, const char *path, int width, int height, int fps)
{
    struct scene_clip *c = calloc(1, sizeof(*c));
    if (!c) return AVERROR(ENOMEM);
    int r = avformat_alloc_output_context2(&c->file, NULL, "matroska", path);
    if (r < 0) goto fail;
    if ((r = open_codec(c, width, height, fps)) < 0) goto fail;
    AVStream *stream = avformat_new_stream(c->file, NULL);
    if (!stream) {
        r = AVERROR(ENOMEM);
        goto fail;
    }
    stream->time_base = c->codec->time_base;
    stream->avg_frame_rate = c->codec->framerate;
    if ((r = avcodec_parameters_from_context(stream->codecpar, c->codec)) < 0) goto fail;
    if ((r = avio_open(&c->file->pb, path, AVIO_FLAG_WRITE)) < 0) goto fail;
    if ((r = avformat_write_header(c->file, NULL)) < 0) goto fail;
    *out = c;
    return 0;
fail:
    release(c);
    return r;
}

/* frame NULL: flush */
static int encode(struct scene_clip *c, const AVFrame *frame)
{
    int r = avcodec_send_frame(c->codec, frame);
    while (r >= 0) {
        r = avcodec_receive_packet(c->codec, c->packet);
        if (r == AVERROR(EAGAIN) || r == AVERROR_EOF) return 0;
        if (r < 0) break;
        av_packet_rescale_ts(c->packet, c->codec->time_base, c->file->streams[0]->time_base);
        r = av_interleaved_write_frame(c->file, c->packet);
    }
    return r;
}

int scene_clip_put(struct scene_clip *c, const uint8_t *rgb)
{
    int r = av_frame_make_writable(c->frame);
    if (r < 0) return r;
    for (int y = 0; y < c->frame->height; y++) {
        uint32_t *row = (uint32_t *)(void *)(c->frame->data[0] + (ptrdiff_t)y * c->frame->linesize[0]);
        for (int x = 0; x < c->frame->width; x++, rgb += 3)
            row[x] = (uint32_t)rgb[0] << 16 | (uint32_t)rgb[1] << 8 | rgb[2];
    }
    c->frame->pts = c->count++;
    return encode(c, c->frame);
}

int scene_clip_close(struct scene_clip *c)
{
    if (!c) return 0;
    int r = encode(c, NULL);
    if (r >= 0) r = av_write_trailer(c->file);
    release(c);
    return r < 0 ? r : 0;
}

/* still_read.c - one picture file to one decoded frame. */
#include "av_log.h"
#include "stills.h"
#include "video_convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/mem.h>

void fmt_still_reader_free(struct fmt_still_reader *r)
{
    avcodec_free_context(&r->decoder);
    av_packet_free(&r->packet);
}

static int open_container(const char *path, AVFormatContext **out)
{
    size_t n = strlen(path) + 6;
    char *url = malloc(n);
    if (!url) return AVERROR(ENOMEM);
    snprintf(url, n, "file:%s", path);
    AVDictionary *options = NULL;
    av_dict_set(&options, "protocol_whitelist", "file", 0);
    av_dict_set(&options, "pattern_type", "none", 0); /* a % in the name of a picture is just that */
    int ret = avformat_open_input(out, url, NULL, &options);
    av_dict_free(&options);
    free(url);
    return ret;
}

/* The first packet of the first video stream. */
static int read_packet(AVFormatContext *format, AVPacket *packet)
{
    for (;;) {
        int ret = av_read_frame(format, packet);
        if (ret < 0) return ret;
        if (format->streams[packet->stream_index]->codecpar->codec_type == AVMEDIA_TYPE_VIDEO) return 0;
        av_packet_unref(packet);
    }
}

static int open_decoder(struct fmt_still_reader *r, const AVCodecParameters *par)
{
    if (r->decoder && r->decoder->codec_id == par->codec_id) {
        avcodec_flush_buffers(r->decoder);
        return 0;
    }
    avcodec_free_context(&r->decoder);
    const AVCodec *codec = avcodec_find_decoder(par->codec_id);
    if (!codec) return AVERROR_DECODER_NOT_FOUND;
    if (!(r->decoder = avcodec_alloc_context3(codec))) return AVERROR(ENOMEM);
    r->decoder->thread_count = 1;
    r->decoder->max_pixels = (int64_t)FMT_MAX_SIDE * FMT_MAX_SIDE;
    return avcodec_open2(r->decoder, codec, NULL);
}

/* strict: errors that the decoder would paint over are failures. */
static int decode_once(struct fmt_still_reader *r, bool strict, AVFrame *out)
{
    r->decoder->err_recognition = AV_EF_CRCCHECK | (strict ? AV_EF_EXPLODE : 0);
    int ret = avcodec_send_packet(r->decoder, r->packet);
    if (ret < 0) return ret;
    if ((ret = avcodec_receive_frame(r->decoder, out)) == AVERROR(EAGAIN)) {
        /* some decoders keep a frame back until they are told that no other follows */
        avcodec_send_packet(r->decoder, NULL);
        ret = avcodec_receive_frame(r->decoder, out);
    }
    return ret == AVERROR_EOF || ret == AVERROR(EAGAIN) ? AVERROR_INVALIDDATA : ret;
}

/* FFmpeg delivers a truncated JPEG without a word; only its strict mode tells, and then delivers nothing. Other
 * decoders are strict about harmless things. */
static int decode(struct fmt_still_reader *r, AVFrame *out, bool *damaged)
{
    bool strict = r->decoder->codec_id == AV_CODEC_ID_MJPEG || r->decoder->codec_id == AV_CODEC_ID_PNG;
    int ret = decode_once(r, strict, out);
    if (ret != AVERROR_INVALIDDATA || !strict) return ret;
    avcodec_flush_buffers(r->decoder);
    ret = decode_once(r, false, out);
    *damaged = ret >= 0;
    return ret;
}

enum s2_status fmt_still_read(struct fmt_still_reader *r, const char *path, AVFrame *out, bool *damaged,
                              struct s2_err *err)
{
    fmt_av_log_route();
    AVFormatContext *format = NULL;
    char text[128];
    *damaged = false;
    if (!r->packet && !(r->packet = av_packet_alloc())) return s2_no_memory(err, "a packet", sizeof(AVPacket));
    int ret = open_container(path, &format);
    if (ret >= 0) ret = read_packet(format, r->packet);
    if (ret >= 0) ret = open_decoder(r, format->streams[r->packet->stream_index]->codecpar);
    if (ret >= 0) ret = decode(r, out, damaged);
    av_packet_unref(r->packet);
    avformat_close_input(&format);
    if (ret == AVERROR(ENOMEM)) return s2_no_memory(err, "a picture", (size_t)1 << 20);
    if (ret < 0) return s2_fail(err, S2_E_INPUT, "the picture cannot be decoded: %s", fmt_av_error(ret, text, 128));
    if (out->width > FMT_MAX_SIDE || out->height > FMT_MAX_SIDE)
        return s2_fail(err, S2_E_INPUT, "the picture is %dx%d; up to %dx%d can be used", out->width, out->height,
                       FMT_MAX_SIDE, FMT_MAX_SIDE);
    if (!fmt_convert_knows(out->format))
        return s2_fail(err, S2_E_INPUT, "the picture has a pixel format that cannot be converted to RGB");
    return S2_OK;
}

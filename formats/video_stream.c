/* video_stream.c - demultiplexing and decoding one video stream, and what was wrong with it. */
#include "video_stream.h"

#include <stdio.h>
#include <string.h>

#include <libavutil/pixdesc.h>

/* Reading goes on behind this many failed reads, and draining behind this many failed frames, in a row. */
enum { MAX_FAILURES = 64 };

static const char *codec_name(const AVCodecParameters *par)
{
    return avcodec_get_name(par->codec_id);
}

const int32_t *fmt_stream_matrix(const AVStream *st, const AVFrame *f)
{
    const size_t bytes = 9 * sizeof(int32_t);
    const AVFrameSideData *of_frame = av_frame_get_side_data(f, AV_FRAME_DATA_DISPLAYMATRIX);
    if (of_frame && of_frame->size >= bytes) return (const int32_t *)of_frame->data;
    if (!st) return NULL;
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 102)
    const AVPacketSideData *side = av_packet_side_data_get(st->codecpar->coded_side_data,
                                                           st->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    return side && side->size >= bytes ? (const int32_t *)side->data : NULL;
#else
    size_t size = 0;
    const uint8_t *data = av_stream_get_side_data(st, AV_PKT_DATA_DISPLAYMATRIX, &size);
    return data && size >= bytes ? (const int32_t *)data : NULL;
#endif
}

/* ------------------------------------------------------------------ open */

static bool is_text_art(enum AVCodecID id)
{
    return id == AV_CODEC_ID_ANSI || id == AV_CODEC_ID_BINTEXT || id == AV_CODEC_ID_XBIN || id == AV_CODEC_ID_IDF;
}

static enum s2_status pick_stream(struct fmt_stream *s, struct s2_err *err)
{
    AVFormatContext *format = s->in->format;
    const char *name = s->in->name;
    char text[128];
    int ret = avformat_find_stream_info(format, NULL);
    if (ret < 0)
        return s2_fail(err, S2_E_INPUT, "%s: its streams cannot be read: %s", name, fmt_av_error(ret, text, 128));
    int best = fmt_input_best_stream(format);
    if (best < 0)
        return s2_fail(err, S2_E_INPUT, "%s: has no video stream%s", name, format->nb_streams ? ", only others" : "");
    for (unsigned i = 0; i < format->nb_streams; i++)
        if ((int)i != best) format->streams[i]->discard = AVDISCARD_ALL;
    s->stream = format->streams[best];
    const AVCodecParameters *par = s->stream->codecpar;
    if (is_text_art(par->codec_id)) return s2_fail(err, S2_E_INPUT, "%s: holds text, not video", name);
    if (par->width > FMT_MAX_SIDE || par->height > FMT_MAX_SIDE)
        return s2_fail(err, S2_E_INPUT, "%s: its frames are %dx%d; up to %dx%d can be used", name, par->width,
                       par->height, FMT_MAX_SIDE, FMT_MAX_SIDE);
    return S2_OK;
}

static enum s2_status open_decoder(struct fmt_stream *s, int threads, struct s2_err *err)
{
    const AVCodecParameters *par = s->stream->codecpar;
    const char *name = s->in->name;
    char text[128];
    const AVCodec *codec = avcodec_find_decoder(par->codec_id);
    if (!codec)
        return s2_fail(err, S2_E_INPUT, "%s: this FFmpeg has no decoder for its video (%s)", name, codec_name(par));
    if (!(s->decoder = avcodec_alloc_context3(codec))) return s2_no_memory(err, "the decoder", sizeof(AVCodecContext));
    int ret = avcodec_parameters_to_context(s->decoder, par);
    s->decoder->opaque = &s->watch;
    s->decoder->pkt_timebase = s->stream->time_base;
    s->decoder->thread_count = threads;
    s->decoder->thread_type = FF_THREAD_FRAME | FF_THREAD_SLICE;
    s->decoder->max_pixels = (int64_t)FMT_MAX_SIDE * FMT_MAX_SIDE;
    if (ret >= 0) ret = avcodec_open2(s->decoder, codec, NULL);
    if (ret >= 0) return S2_OK;
    return s2_fail(err, S2_E_INPUT, "%s: the decoder of its video (%s) cannot be opened: %s", name, codec_name(par),
                   fmt_av_error(ret, text, 128));
}

static struct fmt_clock make_clock(const AVStream *st)
{
    struct fmt_clock c = {.base = st->time_base, .last = -1};
    if (c.base.num <= 0 || c.base.den <= 0) c.base = (AVRational){1, 90000};
    AVRational rate = st->avg_frame_rate.num > 0 && st->avg_frame_rate.den > 0 ? st->avg_frame_rate : st->r_frame_rate;
    if (rate.num <= 0 || rate.den <= 0) rate = (AVRational){25, 1};
    c.ticks = av_rescale_q(1, av_inv_q(rate), c.base);
    c.second = av_rescale_q(1, (AVRational){1, 1}, c.base);
    if (c.ticks < 1) c.ticks = 1;
    if (c.second < 1) c.second = 1;
    return c;
}

static enum s2_status nothing_decoded(const struct fmt_stream *s, struct s2_err *err)
{
    if (s->read_error && s->in->pipe && !s->in->pipe->seekable)
        return s2_fail(
            err, S2_E_INPUT,
            "%s: cannot be read as a stream, probably because its index stands behind its frames; give it as "
            "a file, or put the index first (ffmpeg -i IN -c copy -movflags +faststart OUT)",
            s->in->name);
    if (s->read_error || s->bad_packets || s->corrupt_packets)
        return s2_fail(err, S2_E_INPUT, "%s: no frame of its video (%s) can be decoded; the file is damaged",
                       s->in->name, codec_name(s->stream->codecpar));
    return s2_fail(err, S2_E_INPUT, "%s: its video stream (%s) holds no frame", s->in->name,
                   codec_name(s->stream->codecpar));
}

static bool decode_next(struct fmt_stream *s, AVFrame *out, int64_t *pts);

enum s2_status fmt_stream_open(struct fmt_stream *s, struct fmt_input *in, int threads, struct s2_err *err)
{
    enum s2_status status;
    *s = (struct fmt_stream){.in = in};
    if ((status = pick_stream(s, err)) || (status = open_decoder(s, threads, err))) goto fail;
    in->format->opaque = &s->watch;
    s->clock = make_clock(s->stream);
    s->packet = av_packet_alloc();
    s->first = av_frame_alloc();
    if (!s->packet || !s->first) {
        status = s2_no_memory(err, "a frame", sizeof(AVFrame));
        goto fail;
    }
    if (!decode_next(s, s->first, &s->first_pts)) {
        status = nothing_decoded(s, err);
        goto fail;
    }
    /* a recording may start between key frames: that is no damage */
    if (s->bad_packets || s->corrupt_packets)
        s2_log(S2_LOG_WARN, "%s: %lld packet%s before the first frame cannot be decoded", in->name,
               (long long)(s->bad_packets + s->corrupt_packets), s2_plural(s->bad_packets + s->corrupt_packets));
    s->bad_packets = s->corrupt_packets = 0;
    fmt_av_watch_reset(&s->watch);
    return S2_OK;
fail:
    fmt_stream_close(s);
    return status;
}

void fmt_stream_close(struct fmt_stream *s)
{
    avcodec_free_context(&s->decoder);
    av_packet_free(&s->packet);
    av_frame_free(&s->first);
}

/* ------------------------------------------------------------------ decode */

static bool stopped(const struct fmt_stream *s)
{
    return atomic_load(s->in->stop);
}

/* Gives the decoder one packet of the stream, or tells it that there are no more. */
static void feed(struct fmt_stream *s)
{
    int ret = 0, failures = 0;
    while (!stopped(s)) {
        av_packet_unref(s->packet);
        ret = av_read_frame(s->in->format, s->packet);
        if (ret >= 0 && s->packet->stream_index != s->stream->index) continue;
        if (ret >= 0 || ret == AVERROR_EOF || ret == AVERROR_EXIT) break;
        s->read_error = ret;
        if (++failures == MAX_FAILURES) break;
    }
    if (ret < 0 || stopped(s)) {
        s->packets_end = true;
        avcodec_send_packet(s->decoder, NULL);
        return;
    }
    s->packet_pos = s->packet->pos;
    s->packet_size = s->packet->size;
    if (s->packet->flags & AV_PKT_FLAG_CORRUPT) s->corrupt_packets++;
    if (avcodec_send_packet(s->decoder, s->packet) < 0) s->bad_packets++;
    av_packet_unref(s->packet);
}

static bool decode_next(struct fmt_stream *s, AVFrame *out, int64_t *pts)
{
    int failures = 0;
    while (!s->frames_end && !stopped(s)) {
        int ret = avcodec_receive_frame(s->decoder, out);
        if (ret >= 0) {
            *pts = fmt_clock_next(&s->clock, out->best_effort_timestamp);
            if (out->decode_error_flags || out->flags & AV_FRAME_FLAG_CORRUPT) s->damaged_frames++;
            s->frames++;
            return true;
        }
        bool hungry = ret == AVERROR(EAGAIN), failed = !hungry && ret != AVERROR_EOF;
        if (failed) s->bad_packets++;
        if (failed && ++failures < MAX_FAILURES) continue;
        failures = 0;
        if (s->packets_end || !(hungry || failed))
            s->frames_end = true;
        else
            feed(s);
    }
    return false;
}

bool fmt_stream_read(struct fmt_stream *s, AVFrame *out, int64_t *pts)
{
    if (s->first) {
        av_frame_move_ref(out, s->first);
        av_frame_free(&s->first);
        *pts = s->first_pts;
        return true;
    }
    return decode_next(s, out, pts);
}

/* ------------------------------------------------------------------ damage */

/* Bytes of the file that its index promises but the file does not have, 0 if none. */
static int64_t missing_bytes(const struct fmt_stream *s)
{
    const AVFormatContext *format = s->in->format;
    if (!format->pb || !(format->pb->seekable & AVIO_SEEKABLE_NORMAL) || format->iformat->flags & AVFMT_NOFILE)
        return 0;
    int64_t size = avio_size(format->pb), end = 0;
    if (size <= 0) return 0;
    for (int i = 0; i < avformat_index_get_entries_count(s->stream); i++) {
        const AVIndexEntry *entry = avformat_index_get_entry(s->stream, i);
        if (entry->pos >= 0 && entry->size > 0 && entry->pos < INT64_MAX - entry->size &&
            entry->pos + entry->size > end)
            end = entry->pos + entry->size;
    }
    return end > size ? end - size : 0;
}

/* Bytes behind the last frame of a YUV4MPEG2 stream, whose demultiplexer takes a frame that is cut for the end. */
static int64_t unread_bytes(const struct fmt_stream *s)
{
    const AVFormatContext *format = s->in->format;
    if (strcmp(format->iformat->name, "yuv4mpegpipe") != 0 || s->packet_pos < 0) return 0;
    return avio_tell(format->pb) - (s->packet_pos + s->packet_size);
}

/* visible: frames that show it */
static enum s2_status tell_damage(const struct fmt_stream *s, int64_t visible, struct s2_err *err)
{
    const int64_t lost = s->corrupt_packets + s->bad_packets;
    const char *first = s->watch.first;
    if (!visible && !lost) return S2_OK;
    return s2_fail(err, S2_E_BROKEN,
                   "%s: is damaged: %lld frame%s could be decoded, %lld of them with visible errors, and %lld "
                   "packet%s could not, or not well%s%s",
                   s->in->name, (long long)s->frames, s2_plural(s->frames), (long long)visible, (long long)lost,
                   s2_plural(lost), first[0] ? "; FFmpeg: " : "", first);
}

enum s2_status fmt_stream_damage(const struct fmt_stream *s, struct s2_err *err)
{
    return tell_damage(s, s->damaged_frames, err);
}

enum s2_status fmt_stream_verdict(const struct fmt_stream *s, struct s2_err *err)
{
    const struct fmt_av_watch *w = &s->watch;
    const char *name = s->in->name;
    long long frames = s->frames, missing = missing_bytes(s);
    int64_t concealed = atomic_load(&w->concealed), complaints = atomic_load(&w->decoder_errors);
    char text[128];
    if (missing)
        return s2_fail(err, S2_E_BROKEN,
                       "%s: broke off after %lld frame%s: the file lacks %lld byte%s that its index names", name,
                       frames, s2_plural(frames), missing, s2_plural(missing));
    if (s->packets_end && unread_bytes(s) > 0)
        return s2_fail(err, S2_E_BROKEN, "%s: broke off after %lld frame%s, in the middle of the next one", name,
                       frames, s2_plural(frames));
    if (s->read_error)
        return s2_fail(err, S2_E_BROKEN, "%s: broke off after %lld frame%s: reading failed (%s)", name, frames,
                       s2_plural(frames), fmt_av_error(s->read_error, text, sizeof(text)));
    if (atomic_load(&w->container_errors))
        return s2_fail(err, S2_E_BROKEN, "%s: broke off or is damaged; %lld frame%s could be decoded (FFmpeg: %s)",
                       name, frames, s2_plural(frames), w->first);
    if (tell_damage(s, concealed > s->damaged_frames ? concealed : s->damaged_frames, err)) return err->status;
    if (complaints)
        s2_log(S2_LOG_WARN, "%s: the decoder complained %lld time%s, first: %s; some frames may show errors", name,
               (long long)complaints, s2_plural(complaints), w->first);
    return S2_OK;
}

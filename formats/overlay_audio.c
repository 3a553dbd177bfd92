/* overlay_audio.c - the sound of the overlay: packets of the input's audio stream, copied without decoding.
 *
 * Time is that of the source's first video frame. The input is opened a second time, so only local files have
 * sound; what cannot be copied is left out with a note, the run goes on. */
#include "sink.h"
#include "av_log.h"
#include "video_input.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <libavformat/avformat.h>

struct fmt_audio {
    struct fmt_input input;
    atomic_bool never;         /* nothing interrupts reading a local file */
    AVFormatContext *in, *out; /* in belongs to input */
    AVStream *from, *to;
    AVPacket *packet;
    bool pending; /* packet lies behind the end of the last call */
    bool started, done;
    double origin; /* seconds of the container at the source's first video frame */
};

void fmt_audio_free(struct fmt_audio *a)
{
    if (!a) return;
    av_packet_free(&a->packet);
    fmt_input_close(&a->input);
    free(a);
}

/* A pipe's bytes belong to the video; only a plain file can be read twice. */
static bool open_input(struct fmt_audio *a, const char *path)
{
    struct stat st;
    struct s2_err unused = {0};
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    if (fmt_input_open(&a->input, path, false, &a->never, &unused) || a->input.is_stills) return false;
    a->in = a->input.format;
    return avformat_find_stream_info(a->in, NULL) >= 0;
}

static double seconds(int64_t ticks, const AVStream *stream)
{
    return (double)ticks * av_q2d(stream->time_base);
}

/* Chooses the stream and reads no other; false if there is none. */
static bool choose_stream(struct fmt_audio *a)
{
    int sound = av_find_best_stream(a->in, AVMEDIA_TYPE_AUDIO, -1, -1, NULL, 0);
    if (sound < 0) return false;
    for (unsigned i = 0; i < a->in->nb_streams; i++)
        if ((int)i != sound) a->in->streams[i]->discard = AVDISCARD_ALL;
    a->from = a->in->streams[sound];
    int picture = fmt_input_best_stream(a->in);
    const AVStream *video = picture >= 0 ? a->in->streams[picture] : NULL;
    if (video && video->start_time != AV_NOPTS_VALUE) a->origin = seconds(video->start_time, video);
    return true;
}

struct fmt_audio *fmt_audio_open(const char *input_path, AVFormatContext *muxer)
{
    struct fmt_audio *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->out = muxer;
    a->packet = av_packet_alloc();
    if (!a->packet || !open_input(a, input_path) || !choose_stream(a)) goto none;
    const AVCodecParameters *sound = a->from->codecpar;
    if (avformat_query_codec(muxer->oformat, sound->codec_id, FF_COMPLIANCE_NORMAL) != 1) {
        s2_log(S2_LOG_WARN, "overlay: %s audio does not fit into %s, the overlay is silent; .mkv takes any",
               avcodec_get_name(sound->codec_id), muxer->oformat->name);
        goto none;
    }
    a->to = avformat_new_stream(muxer, NULL);
    if (!a->to || avcodec_parameters_copy(a->to->codecpar, sound) < 0) goto none;
    a->to->codecpar->codec_tag = 0; /* the container has its own */
    a->to->time_base = a->from->time_base;
    return a;
none:
    fmt_audio_free(a);
    return NULL;
}

/* The next packet of the stream; false at the end. */
static bool next_packet(struct fmt_audio *a)
{
    while (!a->pending && !a->done) {
        av_packet_unref(a->packet);
        a->done = av_read_frame(a->in, a->packet) < 0;
        a->pending = !a->done && a->packet->stream_index == a->from->index && a->packet->pts != AV_NOPTS_VALUE;
    }
    return a->pending;
}

static void write_packet(struct fmt_audio *a, double start)
{
    AVPacket *packet = a->packet;
    int64_t shift = llrint((a->origin + start) / av_q2d(a->from->time_base));
    if (packet->dts == AV_NOPTS_VALUE) packet->dts = packet->pts;
    packet->pts -= shift;
    packet->dts -= shift;
    packet->pos = -1;
    packet->stream_index = a->to->index;
    av_packet_rescale_ts(packet, a->from->time_base, a->to->time_base);
    if (av_interleaved_write_frame(a->out, packet) < 0) s2_log(S2_LOG_DEBUG, "overlay: an audio packet was left out");
    a->pending = false;
}

void fmt_audio_copy(struct fmt_audio *a, double start, double end)
{
    if (!a->started && start > 1) {
        int64_t ticks = llrint((a->origin + start) / av_q2d(a->from->time_base));
        av_seek_frame(a->in, a->from->index, ticks, AVSEEK_FLAG_BACKWARD);
    }
    a->started = true;
    while (next_packet(a)) {
        double from = seconds(a->packet->pts, a->from) - a->origin, to = from + seconds(a->packet->duration, a->from);
        if (from >= end) return;
        /* at the very start, one packet before time 0 stays: decoders of AAC and Opus warm up on it */
        if (start > 0 ? from < start : to < -1e-6)
            a->pending = false;
        else
            write_packet(a, start);
    }
}

/* sink_overlay.c - the overlay video: painted frames, encoded to play everywhere, at the source's timing.
 *
 * H.264, 4:2:0, even sizes (an odd picture gets one more column or row, its edge repeated), colours and shape of the
 * pixels as the source has them, but for the matrix, which is BT.709's or BT.601's; MP4 with its index in front. Time 0
 * is the first frame written; frame times are those of the source, so that clips of varying rate and skipped frames
 * keep pace.
 *
 * A container needs room for its index when it is closed. That room is set aside while the file grows, so that
 * a disk that fills up ends the video early instead of making it unreadable. */
#define _GNU_SOURCE /* fallocate */
#include "sink.h"
#include "av_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>

enum {
    DELAY = 256,           /* frames that may be inside the encoder */
    MAX_THREADS = 16,      /* of the encoder */
    PACKET_ROOM = 2 << 20, /* bytes set aside for what is inside encoder and muxer ... */
    INDEX_ROOM = 64 << 10, /* ... and for the container's index, ... */
    INDEX_PER_FRAME = 256, /* ... which grows with every frame */
    ROOM_STEP = 4 << 20
};

struct sink_overlay {
    struct fmt_sink sink; /* first */
    const struct fmt_outputs_config *config;
    const char *path;
    char *part;
    int width, height;                         /* even */
    struct fmt_easel *easel[FMT_SINK_WORKERS]; /* a worker paints a frame while others are at the next ones */
    AVFrame *painted[FMT_SINK_WORKERS];        /* the easels' */

    struct fmt_audio *audio; /* NULL: silent */
    const AVOutputFormat *format;
    AVFormatContext *muxer;
    AVCodecContext *encoder;
    AVStream *stream;
    AVPacket *packet;
    bool broken; /* the encoder or the file failed */
    int room_fd; /* of the same file; -1: no room can be set aside */
    int64_t room_end;

    int64_t frames, packets;     /* into the encoder, out of it */
    int64_t first_pts, last_pts; /* in the encoder's time base */
    double first_time, end_time; /* source seconds of the first frame, and where the last one ends */
    struct {
        int64_t pts, duration;
    } shown[DELAY]; /* of the last frames given to the encoder, by number */
};

static enum s2_status av_failed(struct sink_overlay *s, int code, struct s2_err *err)
{
    char text[128];
    s->broken = true;
    return s2_fail(err, S2_E_OUTPUT, "%s: cannot be written: %s", s->path, fmt_av_error(code, text, sizeof text));
}

/* ------------------------------------------------------------------ containers and encoders */

struct container {
    const char *ending, *muxer;
    bool web; /* VP9 only */
};
static const struct container containers[] = {
    {".mp4", "mp4", false},      {".m4v", "mp4", false},  {".mov", "mov", false},
    {".mkv", "matroska", false}, {".webm", "webm", true},
};

struct choice {
    const char *encoder;
    bool web;
    const char *options; /* key=value:... */
    const char *note;    /* for the log; NULL: the best there is */
};
static const struct choice choices[] = {
    {"libx264", false, "preset=veryfast:crf=18", NULL},
    {"libopenh264", false, "b=8000000", "libx264 is missing, libopenh264 encodes the overlay"},
    {"mpeg4", false, "b=12000000:qmin=2:qmax=6",
     "libx264 is missing, the overlay is MPEG-4 Part 2, which browsers do not play"},
    {"libvpx-vp9", true, "deadline=good:cpu-used=5:row-mt=1:crf=28:b=0", NULL},
    {"libvpx", true, "deadline=good:cpu-used=5:crf=8:b=12000000", "libvpx-vp9 is missing, libvpx encodes the overlay"},
};

static const struct container *container_of(const char *path)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        size_t n = strlen(containers[i].ending);
        if (length > n && strcasecmp(path + length - n, containers[i].ending) == 0) return &containers[i];
    }
    return NULL;
}

static void set_colors(AVCodecContext *e, const struct fmt_outputs_config *c)
{
    e->colorspace = c->colors.bt709 ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M;
    if (c->colors.primaries > 0) e->color_primaries = c->colors.primaries;
    if (c->colors.transfer > 0) e->color_trc = c->colors.transfer;
    e->color_range = AVCOL_RANGE_MPEG;
    e->chroma_sample_location = c->colors.chroma > 0 ? c->colors.chroma : AVCHROMA_LOC_LEFT;
    if (c->aspect_num > 0 && c->aspect_den > 0) e->sample_aspect_ratio = (AVRational){c->aspect_num, c->aspect_den};
}

/* NULL if it is missing or refuses. */
static AVCodecContext *open_encoder(const struct sink_overlay *s, const struct choice *choice)
{
    const struct fmt_outputs_config *c = s->config;
    const AVCodec *codec = avcodec_find_encoder_by_name(choice->encoder);
    AVCodecContext *e = codec ? avcodec_alloc_context3(codec) : NULL;
    if (!e) return NULL;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    e->width = s->width;
    e->height = s->height;
    e->pix_fmt = AV_PIX_FMT_YUV420P;
    e->time_base = (AVRational){c->time_base_num, c->time_base_den};
    if (e->codec_id == AV_CODEC_ID_MPEG4 && c->time_base_den > UINT16_MAX) e->time_base = (AVRational){1, 60000};
    e->framerate = av_d2q(c->fps > 0 ? c->fps : 25, 100000);
    e->gop_size = (int)fmin(250, fmax(12, 2 * (c->fps > 0 ? c->fps : 25))); /* seeking stays quick */
    e->thread_count = cores > MAX_THREADS ? MAX_THREADS : (int)cores;
    set_colors(e, c);
    if (s->format->flags & AVFMT_GLOBALHEADER) e->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    AVDictionary *options = NULL;
    av_dict_parse_string(&options, choice->options, "=", ":", 0);
    if (c->overlay_preset && strcmp(choice->encoder, "libx264") == 0)
        av_dict_set(&options, "preset", c->overlay_preset, 0);
    if (avcodec_open2(e, codec, &options) < 0) avcodec_free_context(&e);
    av_dict_free(&options);
    return e;
}

static enum s2_status choose_encoder(struct sink_overlay *s, bool web, struct s2_err *err)
{
    for (size_t i = 0; i < sizeof choices / sizeof *choices && !s->encoder; i++) {
        if (choices[i].web != web) continue;
        s->encoder = open_encoder(s, &choices[i]);
        if (s->encoder && choices[i].note) s2_log(S2_LOG_WARN, "%s", choices[i].note);
    }
    if (s->encoder) return S2_OK;
    return s2_fail(err, S2_E_OUTPUT, "%s: this FFmpeg has no %s encoder that takes %d x %d pixels; try %s", s->path,
                   web ? "VP9" : "H.264", s->width, s->height, web ? "an .mp4" : "another machine's FFmpeg");
}

/* ------------------------------------------------------------------ open */

static void close_muxer(struct sink_overlay *s)
{
    fmt_audio_free(s->audio);
    s->audio = NULL;
    if (s->muxer) avio_closep(&s->muxer->pb);
    avformat_free_context(s->muxer);
    s->muxer = NULL;
}

/* The file with its header. 0 or an FFmpeg error. */
static int open_muxer(struct sink_overlay *s, bool silent)
{
    const struct fmt_outputs_config *c = s->config;
    size_t size = strlen(s->part) + sizeof "file:";
    char *url = malloc(size); /* "file:", as a colon in the path means no protocol */
    if (!url) return AVERROR(ENOMEM);
    snprintf(url, size, "file:%s", s->part);
    int ret = avformat_alloc_output_context2(&s->muxer, s->format, NULL, url);
    free(url);
    if (ret < 0) return ret;
    s->stream = avformat_new_stream(s->muxer, NULL);
    if (!s->stream) return AVERROR(ENOMEM);
    if ((ret = avcodec_parameters_from_context(s->stream->codecpar, s->encoder)) < 0) return ret;
    s->stream->time_base = s->encoder->time_base;
    s->stream->avg_frame_rate = s->encoder->framerate;
    s->stream->sample_aspect_ratio = s->encoder->sample_aspect_ratio;
    bool has_source = !silent && !c->stills && c->input_path && strcmp(c->input_path, "-") != 0;
    if (has_source) s->audio = fmt_audio_open(c->input_path, s->muxer);
    if ((ret = avio_open(&s->muxer->pb, s->muxer->url, AVIO_FLAG_WRITE)) < 0) return ret;
    AVDictionary *options = NULL;
    av_dict_set(&options, "movflags", "+faststart", 0);
    ret = avformat_write_header(s->muxer, &options);
    av_dict_free(&options);
    return ret < 0 ? ret : 0;
}

static enum s2_status open_file(struct sink_overlay *s, const struct container *container, struct s2_err *err)
{
    s->format = av_guess_format(container->muxer, NULL, NULL);
    if (!s->format)
        return s2_fail(err, S2_E_OUTPUT, "%s: this FFmpeg cannot write %s files", s->path, container->ending);
    enum s2_status status = choose_encoder(s, container->web, err);
    if (status) return status;
    int ret = open_muxer(s, false);
    if (ret < 0 && s->muxer && s->muxer->pb && s->muxer->nb_streams > 1) {
        s2_log(S2_LOG_WARN, "%s: the input's audio does not fit into it, the overlay is silent", s->path);
        close_muxer(s);
        ret = open_muxer(s, true);
    }
    if (ret < 0) return av_failed(s, ret, err);
    s->room_fd = open(s->part, O_WRONLY | O_CLOEXEC);
    return S2_OK;
}

/* ------------------------------------------------------------------ room for the index */

/* Sets `bytes` aside behind the present end of the file; false if the disk or a quota has no room for them. */
static bool set_aside(struct sink_overlay *s, int64_t bytes)
{
    int64_t end = avio_tell(s->muxer->pb) + bytes;
    for (int step = ROOM_STEP; s->room_fd >= 0 && end > s->room_end; step = 0) {
        if (fallocate(s->room_fd, FALLOC_FL_KEEP_SIZE, s->room_end, end + step - s->room_end) == 0) {
            s->room_end = end + step;
        } else if (errno != ENOSPC && errno != EDQUOT) { /* not on this file system */
            close(s->room_fd);
            s->room_fd = -1;
        } else if (step == 0) {
            return false;
        }
    }
    return true;
}

static int64_t index_room(const struct sink_overlay *s)
{
    return INDEX_ROOM + INDEX_PER_FRAME * s->frames;
}

/* What was set aside and not used goes back to the disk. */
static void give_back_room(struct sink_overlay *s)
{
    struct stat st;
    if (s->room_fd < 0) return;
    if (fstat(s->room_fd, &st) == 0 && ftruncate(s->room_fd, st.st_size) != 0)
        s2_log(S2_LOG_DEBUG, "%s: keeps more room on the disk than it needs", s->path);
    close(s->room_fd);
    s->room_fd = -1;
}

/* ------------------------------------------------------------------ frames */

static enum s2_status paint(struct fmt_sink *sink, int worker, const struct fmt_record *r, struct s2_err *err)
{
    struct sink_overlay *s = (struct sink_overlay *)sink;
    return fmt_easel_paint(s->easel[worker], &r->frame.image, r->owner, &s->painted[worker], err);
}

/* Packets that the encoder has ready go into the file. `closing`: the disk is full, only while they fit. */
static enum s2_status write_packets(struct sink_overlay *s, bool closing, struct s2_err *err)
{
    for (;;) {
        int ret = avcodec_receive_packet(s->encoder, s->packet);
        if (ret == AVERROR(EAGAIN) || ret == AVERROR_EOF) return S2_OK;
        if (ret < 0) return av_failed(s, ret, err);
        if (closing && !set_aside(s, s->packet->size + index_room(s))) {
            av_packet_unref(s->packet);
            return fmt_output_failed(err, s->path, "cannot be written", ENOSPC);
        }
        for (int i = 0; i < DELAY && !s->packet->duration; i++)
            if (s->shown[i].pts == s->packet->pts) s->packet->duration = s->shown[i].duration;
        s->packet->stream_index = s->stream->index;
        av_packet_rescale_ts(s->packet, s->encoder->time_base, s->stream->time_base);
        if ((ret = av_interleaved_write_frame(s->muxer, s->packet)) < 0) return av_failed(s, ret, err);
        s->packets++;
    }
}

/* Time of the frame and of its end, from the first frame written. */
static enum s2_status set_time(struct sink_overlay *s, AVFrame *yuv, const struct fmt_frame *f, struct s2_err *err)
{
    const struct fmt_outputs_config *c = s->config;
    const AVRational tick = s->encoder->time_base;
    int64_t pts = av_rescale_q(f->pts, (AVRational){c->time_base_num, c->time_base_den}, tick);
    if (s->frames == 0) {
        s->first_pts = pts;
        s->first_time = f->time;
    }
    pts -= s->first_pts;
    if (s->frames && pts <= s->last_pts)
        return s2_fail(err, S2_E_INTERNAL, "%s: frame %lld came out of display order", s->path, (long long)f->index);
    double duration = f->next_time - f->time;
    if (!isfinite(duration)) duration = c->fps > 0 ? 1 / c->fps : 0.04;
    if (!isfinite(f->next_time) && s->frames) duration = (double)(pts - s->last_pts) * av_q2d(tick);
    s->end_time = f->time + duration;
    s->last_pts = yuv->pts = pts;
    s->shown[s->frames % DELAY].pts = pts;
    s->shown[s->frames % DELAY].duration = llrint(fmax(1, duration / av_q2d(tick)));
    return S2_OK;
}

static enum s2_status encode(struct fmt_sink *sink, int worker, const struct fmt_record *r, struct s2_err *err)
{
    struct sink_overlay *s = (struct sink_overlay *)sink;
    AVFrame *yuv = s->painted[worker];
    if (!set_aside(s, PACKET_ROOM + index_room(s))) return fmt_output_failed(err, s->path, "cannot be written", ENOSPC);
    enum s2_status status = set_time(s, yuv, &r->frame, err);
    if (status) return status;
    int ret = avcodec_send_frame(s->encoder, yuv);
    if (ret < 0) return av_failed(s, ret, err);
    s->frames++;
    status = write_packets(s, false, err);
    if (!status && s->audio) fmt_audio_copy(s->audio, s->first_time, s->end_time);
    return status;
}

/* ------------------------------------------------------------------ the end */

/* The file is closed whatever happened before: it plays as far as it goes. */
static enum s2_status finish(struct fmt_sink *sink, int64_t *kept, struct s2_err *err)
{
    struct sink_overlay *s = (struct sink_overlay *)sink;
    char text[128];
    enum s2_status status = S2_OK;
    *kept = 0;
    if (s->frames == 0) return S2_OK; /* a video needs a frame: no file */
    if (!s->broken && avcodec_send_frame(s->encoder, NULL) >= 0) status = write_packets(s, true, err);
    int ret = av_write_trailer(s->muxer);
    int closed = avio_closep(&s->muxer->pb);
    if (ret >= 0) ret = closed;
    give_back_room(s);
    if (ret >= 0 && rename(s->part, s->path) != 0) ret = AVERROR(errno);
    if (ret < 0)
        return s2_fail(err, S2_E_OUTPUT, "%s: cannot be written: %s", s->path, fmt_av_error(ret, text, sizeof text));
    *kept = s->packets;
    free(s->part);
    s->part = NULL;
    return status;
}

static void free_sink(struct fmt_sink *sink)
{
    struct sink_overlay *s = (struct sink_overlay *)sink;
    close_muxer(s);
    avcodec_free_context(&s->encoder);
    av_packet_free(&s->packet);
    for (int i = 0; i < s->sink.workers; i++) fmt_easel_free(s->easel[i]);
    if (s->room_fd >= 0) close(s->room_fd);
    if (s->part) unlink(s->part);
    free(s->part);
    free(s);
}

enum s2_status fmt_sink_overlay_open(struct fmt_sink **out, const struct fmt_outputs_config *c, struct s2_err *err)
{
    *out = NULL;
    const struct container *container = container_of(c->overlay_path);
    if (!container)
        return s2_fail(err, S2_E_USAGE, "%s: --overlay writes .mp4, .m4v, .mov, .mkv or .webm", c->overlay_path);
    enum s2_status status = fmt_output_check_file(c->overlay_path, c->overwrite, err);
    if (status) return status;
    struct sink_overlay *s = calloc(1, sizeof *s);
    if (!s) return s2_no_memory(err, "the overlay writer", sizeof *s);
    s->sink = (struct fmt_sink){
        .name = "overlay",
        .workers = fmt_sink_workers(),
        .in_order = true,
        .prepare = paint,
        .write = encode,
        .finish = finish,
        .free = free_sink,
    };
    s->config = c;
    s->path = c->overlay_path;
    s->room_fd = -1;
    s->width = fmt_even(c->width);
    s->height = fmt_even(c->height);
    fmt_av_log_route();
    s->part = fmt_output_part(s->path);
    s->packet = av_packet_alloc();
    if (!s->part || !s->packet) status = s2_no_memory(err, "the overlay writer", sizeof *s);
    for (int i = 0; i < s->sink.workers && !status; i++) status = fmt_easel_open(&s->easel[i], c, err);
    if (!status) status = open_file(s, container, err);
    if (status) {
        free_sink(&s->sink);
        return status;
    }
    *out = &s->sink;
    return S2_OK;
}

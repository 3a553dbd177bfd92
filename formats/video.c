/* video.c - fmt_video: clips and stills in, frame by frame. */
#include "video.h"
#include "av_log.h"
#include "video_planes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/pixdesc.h>

/* ------------------------------------------------------------------ what the clip is */

static void set_name(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "unknown");
}

/* FFmpeg lists all names of a container ("mov,mp4,m4a,..."): the file's own extension if it is one of them. */
static void set_container(char *to, size_t size, const char *names, const char *path)
{
    const char *dot = strrchr(path, '.');
    size_t n = dot ? strlen(dot + 1) : 0;
    for (const char *p = names; n && p; p = strchr(p, ','), p = p ? p + 1 : NULL)
        if (!strncmp(p, dot + 1, n) && (p[n] == ',' || p[n] == 0)) {
            set_name(to, size, dot + 1);
            return;
        }
    set_name(to, size, names);
    to[strcspn(to, ",")] = 0;
}

/* What the first decoded frame says. */
static void describe_frame(struct fmt_video *v, const AVFrame *f, const AVStream *st)
{
    struct fmt_video_info *info = &v->info;
    struct fmt_orientation o = fmt_orientation_of(fmt_stream_matrix(st, f));
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    fmt_displayed_size(f, o, &info->width, &info->height);
    info->rotation = fmt_orientation_degrees(o);
    set_name(info->pixel_format, sizeof(info->pixel_format), d ? d->name : NULL);
    const int space = fmt_color_space(f);
    info->colors = (struct fmt_colors){
        .bt709 = space == AVCOL_SPC_BT709 || space == AVCOL_SPC_BT2020_NCL || space == AVCOL_SPC_BT2020_CL,
        .primaries = f->color_primaries,
        .transfer = f->color_trc,
        .chroma = d && d->log2_chroma_w == 1 && d->log2_chroma_h == 1 ? f->chroma_location : 0};
    const AVRational aspect = av_guess_sample_aspect_ratio(v->input.format, (AVStream *)st, (AVFrame *)f);
    info->aspect_num = o.transpose ? aspect.den : aspect.num;
    info->aspect_den = o.transpose ? aspect.num : aspect.den;
    bool is_rgb = d && (d->flags & (AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL) || d->nb_components <= 2);
    set_name(info->color_space, sizeof(info->color_space), is_rgb ? "rgb" : av_color_space_name(space));
    set_name(info->color_range, sizeof(info->color_range), fmt_color_range(f) == AVCOL_RANGE_JPEG ? "full" : "limited");
    if (f->color_trc == AVCOL_TRC_SMPTE2084 || f->color_trc == AVCOL_TRC_ARIB_STD_B67)
        s2_log(S2_LOG_WARN, "%s: is HDR (%s); its frames are used as coded, without tone mapping", v->input.name,
               av_color_transfer_name(f->color_trc));
    if (f->colorspace == AVCOL_SPC_YCGCO || f->colorspace == AVCOL_SPC_ICTCP)
        s2_log(S2_LOG_WARN, "%s: its colour matrix (%s) is not known here; %s is used", v->input.name,
               av_color_space_name(f->colorspace), info->color_space);
}

static void describe_stream(struct fmt_video *v)
{
    struct fmt_video_info *info = &v->info;
    const AVFormatContext *format = v->input.format;
    const AVStream *st = v->stream.stream;
    const AVRational base = v->stream.clock.base;
    AVRational rate = st->avg_frame_rate;
    if (rate.num <= 0 || rate.den <= 0) rate = av_guess_frame_rate(v->input.format, v->stream.stream, NULL);
    info->time_base_num = base.num;
    info->time_base_den = base.den;
    info->fps = rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0;
    info->duration = st->duration > 0       ? (double)st->duration * av_q2d(st->time_base)
                     : format->duration > 0 ? (double)format->duration / AV_TIME_BASE
                                            : -1;
    info->frames_hint = st->nb_frames > 0                     ? st->nb_frames
                        : info->fps > 0 && info->duration > 0 ? llround(info->fps * info->duration)
                                                              : -1;
    info->reopens = !v->input.pipe && (!v->input.is_network || (format->pb && format->pb->seekable));
    for (unsigned i = 0; i < format->nb_streams; i++)
        info->has_audio |= format->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_AUDIO;
    set_container(info->container, sizeof(info->container), format->iformat->name, v->path);
    set_name(info->codec, sizeof(info->codec), avcodec_get_name(st->codecpar->codec_id));
}

static enum s2_status open_stream(struct fmt_video *v, struct s2_err *err)
{
    enum s2_status status = fmt_stream_open(&v->stream, &v->input, v->options.threads, err);
    if (status) return status;
    const AVFrame *f = v->stream.first;
    if (!fmt_convert_knows(f->format))
        return s2_fail(err, S2_E_INPUT, "%s: its pixel format cannot be converted to RGB", v->input.name);
    if (f->width > FMT_MAX_SIDE || f->height > FMT_MAX_SIDE)
        return s2_fail(err, S2_E_INPUT, "%s: its frames are %dx%d; up to %dx%d can be used", v->input.name, f->width,
                       f->height, FMT_MAX_SIDE, FMT_MAX_SIDE);
    describe_stream(v);
    describe_frame(v, f, v->stream.stream);
    return S2_OK;
}

/* ------------------------------------------------------------------ stills */

/* The size comes from the first still that can be decoded; its frame is decoded again by the threads. */
static enum s2_status open_stills(struct fmt_video *v, struct s2_err *err)
{
    const struct fmt_stills *s = &v->input.stills;
    struct fmt_still_reader reader = {0};
    struct s2_err first = {0};
    AVFrame *f = av_frame_alloc();
    bool ok = false, damaged;
    for (size_t i = 0; f && !ok && i < s->count; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s%s", s->folder, s->name[i]);
        av_frame_unref(f);
        ok = !fmt_still_read(&reader, path, f, &damaged, &first);
    }
    if (ok) {
        v->info = (struct fmt_video_info){.time_base_num = 1,
                                          .time_base_den = FMT_STILL_RATE,
                                          .fps = FMT_STILL_RATE,
                                          .frames_hint = (int64_t)s->count,
                                          .duration = (double)s->count / FMT_STILL_RATE,
                                          .is_stills = true,
                                          .reopens = true};
        set_name(v->info.container, sizeof(v->info.container), "stills");
        set_name(v->info.codec, sizeof(v->info.codec), avcodec_get_name(reader.decoder->codec_id));
        describe_frame(v, f, NULL);
    }
    v->still_threads = fmt_video_threads(v->options.threads, 1, FMT_STILL_THREADS);
    fmt_still_reader_free(&reader);
    av_frame_free(&f);
    if (ok) return S2_OK;
    if (!first.status) return s2_no_memory(err, "a frame", sizeof(AVFrame));
    if (s->count == 1) return s2_fail(err, S2_E_INPUT, "%s%s: %s", s->folder, s->name[0], first.text);
    return s2_fail(err, S2_E_INPUT, "%s: none of its %zu frames can be decoded; %s: %s", v->path, s->count, s->name[0],
                   first.text);
}

/* ------------------------------------------------------------------ the interface */

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

enum s2_status fmt_video_open(struct fmt_video **out, const char *path, const struct fmt_video_options *options,
                              struct s2_err *err)
{
    enum s2_status status = S2_OK;
    struct fmt_video *v = calloc(1, sizeof(*v));
    *out = NULL;
    if (!v) return s2_no_memory(err, "the clip", sizeof(*v));
    pthread_mutex_init(&v->damage, NULL);
    pthread_mutex_init(&v->trying, NULL);
    v->options = *options;
    v->options.stride = clamp(options->stride, 1, FMT_FAR);
    v->options.first = clamp(options->first, 0, FMT_FAR);
    v->path = strdup(path);
    v->taken.frame = av_frame_alloc();
    if (!v->path || !v->taken.frame || !fmt_queue_init(&v->decoded, FMT_AHEAD) ||
        !fmt_queue_init(&v->converted, FMT_AHEAD_CONVERTED)) {
        status = s2_no_memory(err, "the clip", sizeof(*v));
        goto fail;
    }
    if ((status = fmt_input_open(&v->input, v->path, options->allow_network, &v->decoded.stop, err))) goto fail;
    if ((status = v->input.is_stills ? open_stills(v, err) : open_stream(v, err))) goto fail;
    if ((status = fmt_video_start(v, err))) goto fail;
    *out = v;
    return S2_OK;
fail:
    fmt_video_close(v);
    return status;
}

const struct fmt_video_info *fmt_video_get_info(const struct fmt_video *v)
{
    return &v->info;
}

static void free_buffer(void *memory, uint8_t *data)
{
    const struct s2_memory *m = memory;
    m->free(m->ctx, data);
}

static AVBufferRef *new_buffer(void *memory, size_t size)
{
    const struct s2_memory *m = memory;
    uint8_t *data = m->alloc(m->ctx, size);
    AVBufferRef *buffer = data ? av_buffer_create(data, size, free_buffer, memory, 0) : NULL;
    if (data && !buffer) m->free(m->ctx, data);
    return buffer;
}

void fmt_video_set_memory(struct fmt_video *v, const struct s2_memory *memory)
{
    const size_t pixels = (size_t)v->info.width * v->info.height;
    atomic_store(&v->planes, av_buffer_pool_init2(pixels * 3 / 2, (void *)memory, new_buffer, NULL));
}

int fmt_video_at_least(struct fmt_video *v, int limit)
{
    if (limit > FMT_QUEUE_SLOTS) limit = FMT_QUEUE_SLOTS;
    if (limit > FMT_AHEAD) fmt_queue_set_ahead(&v->decoded, limit);
    int64_t n = fmt_queue_wait(&v->decoded, limit);
    return n < limit ? (int)n : limit;
}

void fmt_frame_release(struct fmt_frame *f)
{
    if (f->kept) av_frame_free(&f->kept->frame);
    free(f->kept);
    f->kept = NULL;
    f->image.yuv = NULL;
}

/* The planes of a decoded frame, which goes over to `to`. */
static enum s2_status keep_planes(AVFrame *f, const struct s2_yuv *planes, struct fmt_frame *to, struct s2_err *err)
{
    if (!to->kept) to->kept = calloc(1, sizeof *to->kept);
    if (to->kept && !to->kept->frame) to->kept->frame = av_frame_alloc();
    if (!to->kept || !to->kept->frame) return s2_no_memory(err, "a frame", sizeof(AVFrame));
    av_frame_move_ref(to->kept->frame, f);
    to->kept->planes = *planes;
    to->image.yuv = &to->kept->planes;
    return S2_OK;
}

enum s2_status fmt_video_next(struct fmt_video *v, struct fmt_frame *frame, bool *got, struct s2_err *err)
{
    struct fmt_queued *taken = &v->taken;
    struct s2_yuv planes;
    fmt_queue_set_ahead(&v->decoded, FMT_AHEAD);
    if (frame->kept) av_frame_unref(frame->kept->frame);
    frame->image.yuv = NULL;
    *got = fmt_queue_pop(&v->converted, taken);
    if (*got) {
        enum s2_status status = S2_OK;
        frame->image.width = v->info.width;
        frame->image.height = v->info.height;
        if (fmt_planes_of(taken->frame, &planes)) { /* what was converted is never 4:2:0 */
            status = keep_planes(taken->frame, &planes, frame, err);
        } else {
            fmt_convert_store(taken->frame, taken->orientation, &frame->image);
            av_frame_unref(taken->frame);
        }
        frame->index = taken->index;
        frame->pts = taken->pts;
        frame->time = taken->time;
        frame->next_time = taken->next_time;
        frame->stem[0] = 0;
        if (taken->file) fmt_stem(taken->file, frame->stem, sizeof(frame->stem));
        return status;
    }
    const struct s2_err *end = &v->converted.end;
    if (v->end_told || !end->status) return S2_OK;
    v->end_told = true;
    return s2_fail(err, end->status, "%s", end->text);
}

bool fmt_video_ready(struct fmt_video *v)
{
    return fmt_queue_ready(&v->converted);
}

int64_t fmt_video_decoded(const struct fmt_video *v)
{
    return atomic_load(&v->frames_seen);
}

double fmt_video_seconds(const struct fmt_video *v)
{
    return (double)atomic_load(&v->busy_ns) * 1e-9;
}

void fmt_video_close(struct fmt_video *v)
{
    if (!v) return;
    if (v->decoded.ready) fmt_queue_stop(&v->decoded);
    if (v->converted.ready) fmt_queue_stop(&v->converted);
    for (int i = 0; i < v->n_threads; i++) pthread_join(v->thread[i], NULL);
    fmt_stream_close(&v->stream);
    fmt_input_close(&v->input);
    fmt_queue_free(&v->decoded);
    fmt_queue_free(&v->converted);
    AVBufferPool *planes = atomic_load(&v->planes);
    av_buffer_pool_uninit(&planes); /* frames that are still out keep it */
    av_frame_free(&v->taken.frame);
    pthread_mutex_destroy(&v->damage);
    pthread_mutex_destroy(&v->trying);
    free(v->path);
    free(v);
}

int64_t fmt_video_count(const char *path, const struct fmt_video_options *options)
{
    atomic_bool stop = false;
    struct fmt_input in;
    struct s2_err err = {0};
    if (!strcmp(path, "-") || fmt_input_open(&in, path, options->allow_network, &stop, &err)) return -1;
    int64_t count = -1;
    int best = -1;
    if (in.is_stills)
        count = (int64_t)in.stills.count;
    else if (!in.pipe && avformat_find_stream_info(in.format, NULL) >= 0)
        best = fmt_input_best_stream(in.format);
    AVPacket *packet = best >= 0 ? av_packet_alloc() : NULL;
    if (packet) {
        count = 0;
        for (unsigned i = 0; i < in.format->nb_streams; i++)
            if ((int)i != best) in.format->streams[i]->discard = AVDISCARD_ALL;
        while (av_read_frame(in.format, packet) >= 0) {
            count += packet->stream_index == best && !(packet->flags & AV_PKT_FLAG_DISCARD);
            av_packet_unref(packet);
        }
    }
    av_packet_free(&packet);
    fmt_input_close(&in);
    return count;
}

/* video_threads.c - the threads behind an open clip: decoding a container, decoding stills, converting. */
#include "video_index.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

void fmt_displayed_size(const AVFrame *f, struct fmt_orientation o, int *width, int *height)
{
    *width = o.transpose ? f->height : f->width;
    *height = o.transpose ? f->width : f->height;
}

static void add_busy(struct fmt_video *v, double since)
{
    atomic_fetch_add(&v->busy_ns, (int64_t)((s2_now() - since) * 1e9));
}

static bool in_range(const struct fmt_video_options *o, int64_t index)
{
    return index >= o->first && (o->end < 0 || index < o->end) && (index - o->first) % o->stride == 0;
}

static enum s2_status check_size(const struct fmt_video *v, const struct fmt_queued *item, struct s2_err *err)
{
    int width, height;
    fmt_displayed_size(item->frame, item->orientation, &width, &height);
    if (width == v->info.width && height == v->info.height) return S2_OK;
    return s2_fail(err, S2_E_BROKEN,
                   "%s: frame %lld%s%s is %dx%d but the first one is %dx%d; all frames must have one size", v->path,
                   (long long)item->index, item->file ? ", " : "", item->file ? item->file : "", width, height,
                   v->info.width, v->info.height);
}

/* ------------------------------------------------------------------ a container */

/* A frame is handed on when the time of its successor is known: `held` waits for that. */
static void *decode_stream(void *arg)
{
    struct fmt_video *v = arg;
    struct fmt_queued now = {.frame = av_frame_alloc()}, held = {.frame = av_frame_alloc()};
    struct s2_err err = {0}, damage = {0};
    const AVRational base = v->stream.clock.base;
    bool holding = false, open = true, past_end = false;
    int64_t number = 0;
    if (!now.frame || !held.frame) s2_no_memory(&err, "a frame", sizeof(AVFrame));
    for (int64_t index = 0; open && !err.status && !past_end; index++) {
        double start = s2_now();
        if (v->options.end >= 0 && index == v->options.end) fmt_stream_damage(&v->stream, &damage);
        bool got = fmt_stream_read(&v->stream, now.frame, &now.pts);
        add_busy(v, start);
        now.index = index;
        now.time = (double)now.pts * base.num / base.den;
        now.orientation = got ? fmt_orientation_of(fmt_stream_matrix(v->stream.stream, now.frame)) : now.orientation;
        if (holding) {
            held.next_time = got ? now.time : INFINITY;
            open = fmt_queue_push(&v->decoded, number++, &held);
            holding = false;
        }
        if (!got) {
            fmt_stream_verdict(&v->stream, &err);
            break;
        }
        atomic_fetch_add(&v->frames_seen, 1);
        past_end = v->options.end >= 0 && index >= v->options.end;
        if (!past_end && !check_size(v, &now, &err) && in_range(&v->options, index)) {
            AVFrame *spare = held.frame;
            held = now;
            now.frame = spare;
            holding = true;
        }
        av_frame_unref(now.frame);
    }
    if (holding) {
        held.next_time = INFINITY;
        fmt_queue_push(&v->decoded, number++, &held);
    }
    fmt_queue_end(&v->decoded, number, past_end && !err.status ? &damage : &err);
    av_frame_free(&now.frame);
    av_frame_free(&held.frame);
    return NULL;
}

/* The range's frames in descending order; what they are is known from the pass before. */
static enum s2_status deliver_backward(struct fmt_video *v, struct fmt_backward *b, struct fmt_queued *item,
                                       int64_t *number, struct s2_err *err)
{
    const struct fmt_index *x = v->options.backward;
    const int64_t stride = v->options.stride, first = v->options.first;
    const int64_t end = v->options.end >= 0 && v->options.end < x->count ? v->options.end : x->count;
    int64_t high = end > first ? first + (end - 1 - first) / stride * stride : -1;
    while (high >= first) {
        int64_t low = high - (b->capacity - 1) * stride;
        if (low < first) low = first;
        double start = s2_now();
        const enum s2_status status = fmt_backward_fill(b, low, high, err);
        add_busy(v, start);
        if (status) return status;
        for (; high >= low; high -= stride) {
            AVFrame *f = b->frame[(high - low) / stride];
            av_frame_unref(item->frame);
            av_frame_move_ref(item->frame, f);
            item->index = high;
            item->pts = x->frame[high].pts;
            item->time = fmt_index_time(x, high);
            item->next_time = fmt_index_time(x, high + 1);
            item->orientation = fmt_orientation_of(fmt_stream_matrix(v->stream.stream, item->frame));
            atomic_fetch_add(&v->frames_seen, 1);
            if (check_size(v, item, err) || !fmt_queue_push(&v->decoded, (*number)++, item)) return err->status;
        }
    }
    return S2_OK;
}

static void *decode_backward(void *arg)
{
    struct fmt_video *v = arg;
    struct fmt_backward b = {0};
    struct fmt_queued item = {.frame = av_frame_alloc()};
    struct s2_err err = {0};
    int64_t number = 0;
    if (!item.frame) s2_no_memory(&err, "a frame", sizeof(AVFrame));
    if (!err.status && !fmt_backward_init(&b, v, &err)) deliver_backward(v, &b, &item, &number, &err);
    fmt_queue_end(&v->decoded, number, &err);
    fmt_backward_free(&b);
    av_frame_free(&item.frame);
    return NULL;
}

/* ------------------------------------------------------------------ stills */

static void note_damage(struct fmt_video *v, int64_t index, const struct s2_err *err)
{
    pthread_mutex_lock(&v->damage);
    if (!v->damaged_stills++ || index < v->first_damaged) {
        v->first_damaged = index;
        v->first_damage = *err;
    }
    pthread_mutex_unlock(&v->damage);
}

static void stills_verdict(struct fmt_video *v, struct s2_err *err)
{
    pthread_mutex_lock(&v->damage);
    if (v->damaged_stills)
        s2_fail(err, S2_E_BROKEN, "%s: damaged pictures: %lld, first %s: %s", v->path, (long long)v->damaged_stills,
                v->input.stills.name[v->first_damaged], v->first_damage.text);
    pthread_mutex_unlock(&v->damage);
}

/* Decodes still `index` into item. false: it cannot be decoded. */
static bool read_still(struct fmt_video *v, struct fmt_still_reader *reader, int64_t index, struct fmt_queued *item)
{
    const struct fmt_stills *s = &v->input.stills;
    struct s2_err err = {0};
    bool damaged = false;
    char path[4096];
    double start = s2_now();
    snprintf(path, sizeof(path), "%s%s", s->folder, s->name[index]);
    av_frame_unref(item->frame);
    bool ok = !fmt_still_read(reader, path, item->frame, &damaged, &err);
    if (ok && damaged) s2_fail(&err, S2_E_BROKEN, "a part of the picture is missing or damaged");
    if (err.status) note_damage(v, index, &err);
    item->index = item->pts = index;
    item->file = s->name[index];
    item->time = (double)index / FMT_STILL_RATE;
    item->next_time = index + 1 < (int64_t)s->count ? (double)(index + 1) / FMT_STILL_RATE : INFINITY;
    if (ok) item->orientation = fmt_orientation_of(fmt_stream_matrix(NULL, item->frame));
    add_busy(v, start);
    return ok;
}

/* The index of the delivered still of this number; -1 behind the last. */
static int64_t still_of(const struct fmt_video *v, int64_t number)
{
    const int64_t first = v->options.first, stride = v->options.stride, count = (int64_t)v->input.stills.count;
    const int64_t end = v->options.end >= 0 && v->options.end < count ? v->options.end : count;
    const int64_t last = end > first ? first + (end - 1 - first) / stride * stride : -1;
    const int64_t index = v->options.backward ? last - number * stride : first + number * stride;
    return index >= first && index <= last ? index : -1;
}

static void *decode_stills(void *arg)
{
    struct fmt_video *v = arg;
    struct fmt_still_reader reader = {0};
    struct fmt_queued item = {.frame = av_frame_alloc()};
    bool open = true;
    while (open) {
        struct s2_err err = {0};
        int64_t number = atomic_fetch_add(&v->next_still, 1);
        int64_t index = still_of(v, number);
        if (!item.frame) s2_no_memory(&err, "a frame", sizeof(AVFrame));
        bool last = index < 0;
        bool got = !err.status && !last && read_still(v, &reader, index, &item);
        if (got) {
            atomic_fetch_add(&v->frames_seen, 1);
            check_size(v, &item, &err);
        }
        open = !last && !err.status && fmt_queue_push(&v->decoded, number, got ? &item : NULL);
        if (last || err.status) fmt_queue_end(&v->decoded, number, &err);
    }
    av_frame_free(&item.frame);
    fmt_still_reader_free(&reader);
    return NULL;
}

/* ------------------------------------------------------------------ to RGB */

static bool stays_planes(struct fmt_video *v, const struct fmt_queued *q)
{
    const struct fmt_orientation o = q->orientation;
    if (!v->options.planes || o.transpose || o.flip_x || o.flip_y) return false;
    pthread_mutex_lock(&v->trying);
    const bool usable = fmt_planes_usable(&v->trial, q->frame, v->input.name);
    pthread_mutex_unlock(&v->trying);
    return usable;
}

/* Ends the converted frames: in place of the frame that failed, or behind the last. */
static void end_converted(struct fmt_video *v, int64_t number, struct s2_err *err)
{
    const bool last = atomic_fetch_sub(&v->converting, 1) == 1;
    if (err->status) {
        fmt_queue_end(&v->converted, number, err);
    } else if (last) {
        fmt_queue_verdict(&v->decoded, err);
        /* here, not in the thread that finds the end: others may still be decoding what comes before it */
        if (!err->status && v->input.is_stills) stills_verdict(v, err);
        fmt_queue_end(&v->converted, fmt_queue_wait(&v->decoded, 0), err);
    }
}

static void *convert(void *arg)
{
    struct fmt_video *v = arg;
    struct fmt_convert converter = {0};
    struct fmt_queued from = {.frame = av_frame_alloc()}, to = {.frame = av_frame_alloc()};
    struct s2_err err = {0};
    bool open = from.frame && to.frame;
    if (!open) s2_no_memory(&err, "a frame", sizeof(AVFrame));
    while (open && fmt_queue_pop(&v->decoded, &from)) {
        AVFrame *rgb = to.frame;
        to = from;
        to.frame = rgb;
        double start = s2_now();
        AVBufferPool *pool = atomic_load(&v->planes);
        if (!stays_planes(v, &from))
            fmt_convert_frame(&converter, from.frame, to.frame, &err);
        else if (!pool || !fmt_planes_copy(pool, from.frame, to.frame))
            av_frame_move_ref(to.frame, from.frame);
        if (err.status) break;
        av_frame_unref(from.frame);
        add_busy(v, start);
        open = fmt_queue_push(&v->converted, to.number, &to);
    }
    end_converted(v, from.number, &err);
    if (!open || err.status) fmt_queue_stop(&v->decoded);
    av_frame_free(&from.frame);
    av_frame_free(&to.frame);
    fmt_convert_free(&converter);
    return NULL;
}

int fmt_video_threads(int wanted, int cores_each, int most)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN) / cores_each;
    const int n = wanted > 0 ? wanted : (int)cores;
    return n < 1 ? 1 : n > most ? most : n;
}

enum s2_status fmt_video_start(struct fmt_video *v, struct s2_err *err)
{
    const int decoders = v->input.is_stills ? v->still_threads : 1;
    /* one for each four cores: the others decode, paint and encode */
    const int converters = fmt_video_threads(v->options.convert_threads, 4, FMT_CONVERT_THREADS);
    void *(*container)(void *) = v->options.backward ? decode_backward : decode_stream;
    atomic_store(&v->converting, converters);
    for (int i = 0; i < decoders + converters; i++) {
        void *(*run)(void *) = i >= decoders ? convert : v->input.is_stills ? decode_stills : container;
        if (pthread_create(&v->thread[i], NULL, run, v))
            return s2_fail(err, S2_E_DEVICE, "%s: the decoder's threads cannot be started", v->path);
        v->n_threads++;
    }
    return S2_OK;
}

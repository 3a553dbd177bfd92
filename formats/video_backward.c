/* video_backward.c - frames of a container in descending order, see video_index.h. */
#include "video_index.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MISSES = 3, TRIES = 3 };

enum s2_status fmt_backward_init(struct fmt_backward *b, struct fmt_video *v, struct s2_err *err)
{
    *b = (struct fmt_backward){.v = v, .index = v->options.backward, .at_start = true};
    size_t bytes = 1;
    for (int i = 0; i < AV_NUM_DATA_POINTERS && v->stream.first->buf[i]; i++) bytes += v->stream.first->buf[i]->size;
    size_t n = (v->options.backward_bytes ? v->options.backward_bytes : FMT_BACKWARD_BYTES) / bytes;
    b->capacity = n < FMT_BACKWARD_LEAST ? FMT_BACKWARD_LEAST : n > FMT_BACKWARD_MOST ? FMT_BACKWARD_MOST : (int)n;
    for (int i = 0; i < b->capacity; i++)
        if (!(b->frame[i] = av_frame_alloc())) return s2_no_memory(err, "frames", sizeof(AVFrame));
    return S2_OK;
}

void fmt_backward_free(struct fmt_backward *b)
{
    for (int i = 0; i < FMT_BACKWARD_MOST; i++) av_frame_free(&b->frame[i]);
}

/* The frame up to `last` that has this time and is this picture, -1: none. */
static int64_t frame_at(const struct fmt_index *x, int64_t last, int64_t stamp, uint64_t hash)
{
    while (last >= 0 && (x->frame[last].stamp != stamp || x->frame[last].hash != hash)) last--;
    return last;
}

/* Reads on until the wanted frames have come. From the start of the clip frames are told by their count. After seeking
 * the first one is told by its time, and each must be the picture of the first pass: what comes before that (a key
 * frame may need earlier ones) is passed over, behind it nothing else may come. */
static bool collect(struct fmt_backward *b, AVFrame *f, int64_t high, bool from_start)
{
    const struct fmt_index *x = b->index;
    const int64_t stride = b->v->options.stride;
    int64_t next = b->low, at = -1;
    bool known = from_start;
    for (int64_t pts; next <= high && fmt_stream_read(&b->v->stream, f, &pts); av_frame_unref(f)) {
        const uint64_t hash = from_start ? 0 : fmt_picture_hash(f);
        at = known ? at + 1 : frame_at(x, next, f->best_effort_timestamp, hash);
        if (known && !from_start && (at >= x->count || hash != x->frame[at].hash)) break;
        if (!known && f->best_effort_timestamp > x->frame[next].stamp) break; /* too late */
        known = at >= 0;
        if (at < next) continue;
        AVFrame *to = b->frame[(next - b->low) / stride];
        av_frame_unref(to);
        av_frame_move_ref(to, f);
        next += stride;
    }
    av_frame_unref(f);
    return next > high;
}

static bool seek(struct fmt_backward *b, int64_t key)
{
    struct fmt_stream *s = &b->v->stream;
    const int64_t stamp = b->index->frame[key].stamp;
    b->at_start = false;
    if (stamp == AV_NOPTS_VALUE || av_seek_frame(s->in->format, s->stream->index, stamp, AVSEEK_FLAG_BACKWARD) < 0)
        return false;
    avcodec_flush_buffers(s->decoder);
    av_frame_free(&s->first);
    s->packets_end = s->frames_end = false;
    return true;
}

static enum s2_status restart(struct fmt_backward *b, struct s2_err *err)
{
    struct fmt_video *v = b->v;
    if (b->at_start) return S2_OK;
    fmt_stream_close(&v->stream);
    fmt_input_close(&v->input);
    enum s2_status status = fmt_input_open(&v->input, v->path, v->options.allow_network, &v->decoded.stop, err);
    return status ? status : fmt_stream_open(&v->stream, &v->input, v->options.threads, err);
}

static int64_t key_before(const struct fmt_index *x, int64_t frame)
{
    while (frame > 0 && !x->frame[frame].key) frame--;
    return frame;
}

enum s2_status fmt_backward_fill(struct fmt_backward *b, int64_t low, int64_t high, struct s2_err *err)
{
    AVFrame *f = av_frame_alloc();
    if (!f) return s2_no_memory(err, "a frame", sizeof(AVFrame));
    bool found = false;
    b->low = low;
    /* a key frame may need what comes before it (open groups of pictures, gradual refresh): then an earlier one */
    int64_t key = key_before(b->index, low);
    for (int i = 0; i < TRIES && key > 0 && !found && b->misses < MAX_MISSES; i++) {
        found = seek(b, key) && collect(b, f, high, false);
        if (!found) key = key_before(b->index, key - 1);
    }
    enum s2_status status = S2_OK;
    if (!found) {
        if (key > 0 || low > 0)
            s2_log(S2_LOG_DEBUG, "%s: frames %lld to %lld are decoded from the start", b->v->input.name, (long long)low,
                   (long long)high);
        b->misses += key > 0;
        status = restart(b, err);
        b->at_start = false;
        if (!status && !collect(b, f, high, true) && !atomic_load(&b->v->decoded.stop))
            status = s2_fail(err, S2_E_BROKEN, "%s: frames %lld to %lld cannot be read again; has the file changed?",
                             b->v->input.name, (long long)low, (long long)high);
    }
    av_frame_free(&f);
    return status;
}

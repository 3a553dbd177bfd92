/* video_index.c - a pass over a clip that decodes but delivers nothing. */
#include "video_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>

/* 64 bits of FNV-1a over words: frames of one clip are compared with themselves only. */
static uint64_t hash_row(uint64_t h, const uint8_t *p, size_t n)
{
    const uint64_t prime = 0x100000001b3;
    for (uint64_t word; n >= sizeof word; p += sizeof word, n -= sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * prime;
        h ^= h >> 29;
    }
    while (n--) h = (h ^ *p++) * prime;
    return h;
}

uint64_t fmt_picture_hash(const AVFrame *f)
{
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    uint64_t h = 0xcbf29ce484222325;
    int planes = av_pix_fmt_count_planes(f->format);
    for (int p = 0; d && p < planes; p++) {
        int bytes = av_image_get_linesize(f->format, f->width, p);
        int rows = p == 1 || p == 2 ? -(-f->height >> d->log2_chroma_h) : f->height;
        for (int y = 0; bytes > 0 && y < rows; y++)
            h = hash_row(h, f->data[p] + (ptrdiff_t)y * f->linesize[p], (size_t)bytes);
    }
    return h;
}

static bool is_key(const AVFrame *f)
{
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 7, 100)
    return f->flags & AV_FRAME_FLAG_KEY;
#else
    return f->key_frame;
#endif
}

static enum s2_status append(struct fmt_index *x, size_t *capacity, const AVFrame *f, int64_t pts, struct s2_err *err)
{
    if ((size_t)x->count == *capacity) {
        size_t grown = *capacity ? 2 * *capacity : 1024;
        struct fmt_indexed *frame = realloc(x->frame, grown * sizeof *frame);
        if (!frame) return s2_no_memory(err, "the index of the clip", grown * sizeof *frame);
        x->frame = frame;
        *capacity = grown;
    }
    x->frame[x->count++] = (struct fmt_indexed){f->best_effort_timestamp, pts, fmt_picture_hash(f), is_key(f)};
    return S2_OK;
}

/* Up to the range's end and one frame on, whose time ends the last one's. */
static enum s2_status scan(struct fmt_index *x, struct fmt_input *in, const struct fmt_video_options *o,
                           int (*on_frame)(void *ctx, int64_t count), void *ctx, struct s2_err *err)
{
    struct fmt_stream stream;
    enum s2_status status = fmt_stream_open(&stream, in, o->threads, err);
    if (status) return status;
    AVFrame *f = av_frame_alloc();
    size_t capacity = 0;
    int width = 0, height = 0;
    bool stop = false;
    if (!f) status = s2_no_memory(err, "a frame", sizeof(AVFrame));
    x->base = stream.clock.base;
    for (int64_t pts; !status && !(o->end >= 0 && x->count > o->end) && !stop; av_frame_unref(f)) {
        int w, h;
        if (o->end >= 0 && x->count == o->end) fmt_stream_damage(&stream, &x->end);
        if (!fmt_stream_read(&stream, f, &pts)) {
            fmt_stream_verdict(&stream, &x->end);
            break;
        }
        fmt_displayed_size(f, fmt_orientation_of(fmt_stream_matrix(stream.stream, f)), &w, &h);
        if (x->count == 0) width = w, height = h;
        if (w != width || h != height) {
            s2_fail(&x->end, S2_E_BROKEN,
                    "%s: frame %lld is %dx%d but the first one is %dx%d; all frames must have one size", in->name,
                    (long long)x->count, w, h, width, height);
            break;
        }
        status = append(x, &capacity, f, pts, err);
        stop = on_frame(ctx, x->count) != 0;
    }
    av_frame_free(&f);
    fmt_stream_close(&stream);
    return status;
}

enum s2_status fmt_index_build(struct fmt_index **out, const char *path, const struct fmt_video_options *options,
                               int (*on_frame)(void *ctx, int64_t count), void *ctx, struct s2_err *err)
{
    *out = NULL;
    const atomic_bool stop = false;
    struct fmt_input in = {0};
    struct fmt_index *x = calloc(1, sizeof *x);
    if (!x) return s2_no_memory(err, "the index of the clip", sizeof *x);
    enum s2_status status = fmt_input_open(&in, path, options->allow_network, &stop, err);
    if (!status && in.is_stills) {
        x->is_stills = true;
        x->count = (int64_t)in.stills.count;
        x->base = (AVRational){1, FMT_STILL_RATE};
    } else if (!status) {
        status = scan(x, &in, options, on_frame, ctx, err);
    }
    fmt_input_close(&in);
    if (status)
        fmt_index_free(x);
    else
        *out = x;
    return status;
}

int64_t fmt_index_count(const struct fmt_index *x)
{
    return x->count;
}

double fmt_index_time(const struct fmt_index *x, int64_t frame)
{
    if (frame >= x->count) return INFINITY;
    return (double)(x->is_stills ? frame : x->frame[frame].pts) * x->base.num / x->base.den;
}

enum s2_status fmt_index_verdict(const struct fmt_index *x, struct s2_err *err)
{
    return x->end.status ? s2_fail(err, x->end.status, "%s", x->end.text) : S2_OK;
}

void fmt_index_free(struct fmt_index *x)
{
    if (!x) return;
    free(x->frame);
    free(x);
}

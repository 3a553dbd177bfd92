/* av_log.c - FFmpeg's log callback. */
#include "av_log.h"
#include "../engine/base.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/error.h>
#include <libavutil/log.h>

static void note_error(struct fmt_av_watch *w, atomic_int *counter, const char *text)
{
    atomic_fetch_add(counter, 1);
    if (!atomic_flag_test_and_set(&w->taken))
        snprintf(w->first, sizeof(w->first), "%.*s", (int)sizeof(w->first) - 1, text);
}

/* source is the context that logs; its first member is its class. FFmpeg's frame threads log with copies of the
 * decoder's context, which have the same opaque. */
static void watch(void *source, int level, const char *text)
{
    const AVClass *class = source ? *(const AVClass **)source : NULL;
    if (class && class == avformat_get_class()) {
        struct fmt_av_watch *w = ((AVFormatContext *)source)->opaque;
        if (w && level <= AV_LOG_ERROR) note_error(w, &w->container_errors, text);
    }
    if (class && class == avcodec_get_class()) {
        struct fmt_av_watch *w = ((AVCodecContext *)source)->opaque;
        if (w && !strncmp(text, "concealing ", 11))
            note_error(w, &w->concealed, text);
        else if (w && level <= AV_LOG_ERROR)
            note_error(w, &w->decoder_errors, text);
    }
}

static void forward(void *source, int level, const char *format, va_list args)
{
    /* FFmpeg prints a line in pieces; each piece carries whether the next one starts a line */
    static _Thread_local int at_line_start = 1;
    if (level > AV_LOG_INFO) return;
    char line[1024];
    int starts = at_line_start;
    av_log_format_line2(source, level, format, args, line, sizeof(line), &at_line_start);
    line[strcspn(line, "\r\n")] = 0;
    const char *prefix_end = starts && line[0] == '[' ? strstr(line, "] ") : NULL;
    if (!line[0]) return;
    watch(source, level, prefix_end ? prefix_end + 2 : line);
    s2_log(S2_LOG_DEBUG, "FFmpeg: %s", line);
}

static void install(void)
{
    av_log_set_callback(forward);
}

void fmt_av_log_route(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

void fmt_av_watch_reset(struct fmt_av_watch *w)
{
    atomic_store(&w->container_errors, 0);
    atomic_store(&w->decoder_errors, 0);
    atomic_store(&w->concealed, 0);
    atomic_flag_clear(&w->taken);
}

const char *fmt_av_error(int code, char *buf, int size)
{
    if (av_strerror(code, buf, (size_t)size) < 0) snprintf(buf, (size_t)size, "FFmpeg error %d", code);
    return buf;
}

/* av_log.c - FFmpeg's log callback. */
#include "av_log.h"
#include "../engine/base.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <libavutil/error.h>
#include <libavutil/log.h>

static void forward(void *source, int level, const char *format, va_list args)
{
    /* libav prints a line in pieces; each piece carries whether the next one starts a line */
    static _Thread_local int at_line_start = 1;
    if (level > AV_LOG_INFO) return;
    char line[1024];
    av_log_format_line2(source, level, format, args, line, sizeof(line), &at_line_start);
    line[strcspn(line, "\r\n")] = 0;
    if (line[0]) s2_log(S2_LOG_DEBUG, "FFmpeg: %s", line);
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

const char *fmt_av_error(int code, char *buf, int size)
{
    if (av_strerror(code, buf, (size_t)size) < 0) snprintf(buf, (size_t)size, "FFmpeg error %d", code);
    return buf;
}

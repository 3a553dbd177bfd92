/* log.c - see log.h */
#include "log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static enum cmd_verbosity verbosity;
static char bottom[512];
static _Atomic bool muted;

/* Prints a line above the bottom line. Control characters, which names may hold, would break it or steer a terminal. */
static void print(const char *prefix, const char *text)
{
    char line[2048];
    size_t n = 0;
    for (; text[n] && n < sizeof line - 1; n++)
        line[n] = (unsigned char)text[n] < ' ' || text[n] == 127 ? '?' : text[n];
    line[n] = 0;
    pthread_mutex_lock(&mutex);
    fprintf(stderr, "%s%s%s\n%s", bottom[0] ? "\r\033[K" : "", prefix, line, bottom);
    fflush(stderr);
    pthread_mutex_unlock(&mutex);
}

static void vprint(const char *prefix, const char *fmt, va_list args)
{
    char text[1536];
    vsnprintf(text, sizeof text, fmt, args);
    print(prefix, text);
}

static void from_library(void *ctx, enum s2_log_level level, const char *text)
{
    (void)ctx;
    if (muted && level != S2_LOG_DEBUG) return;
    switch (level) {
    case S2_LOG_ERROR: print("sam2track: ", text); break;
    case S2_LOG_WARN: print("sam2track: warning: ", text); break;
    case S2_LOG_INFO:
        if (verbosity >= CMD_VERBOSE) print("sam2track: ", text);
        break;
    case S2_LOG_DEBUG:
        if (verbosity >= CMD_DEBUG) print("sam2track: debug: ", text);
        break;
    }
}

void cmd_log_start(enum cmd_verbosity v)
{
    verbosity = v;
    s2_log_set(from_library, NULL);
}

void cmd_log_mute(bool on)
{
    muted = on;
}

void cmd_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vprint("sam2track: ", fmt, args);
    va_end(args);
}

void cmd_warn(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vprint("sam2track: warning: ", fmt, args);
    va_end(args);
}

void cmd_say(const char *fmt, ...)
{
    if (verbosity == CMD_QUIET) return;
    va_list args;
    va_start(args, fmt);
    vprint("sam2track: ", fmt, args);
    va_end(args);
}

void cmd_log_line(const char *text)
{
    print("", text);
}

void cmd_log_bottom(const char *text)
{
    pthread_mutex_lock(&mutex);
    fputs(bottom[0] ? "\r\033[K" : "", stderr);
    snprintf(bottom, sizeof bottom, "%s", text ? text : "");
    fputs(bottom, stderr);
    fflush(stderr);
    pthread_mutex_unlock(&mutex);
}

/* av_log.h - FFmpeg's own messages go to s2_log at debug level, never to the terminal. */
#ifndef S2_FORMATS_AV_LOG_H
#define S2_FORMATS_AV_LOG_H

/* Installs FFmpeg's log callback, once per process however often it is called. From any thread. */
void fmt_av_log_route(void);

/* The text of an FFmpeg error code into buf of `size` bytes; returns buf. */
const char *fmt_av_error(int code, char *buf, int size);

#endif

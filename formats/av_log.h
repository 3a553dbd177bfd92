/* av_log.h - FFmpeg's own messages go to s2_log at debug level, never to the terminal; and what they tell about a
 * damaged input is counted. */
#ifndef S2_FORMATS_AV_LOG_H
#define S2_FORMATS_AV_LOG_H

#include <stdatomic.h>

/* Installs FFmpeg's log callback, once per process however often it is called. From any thread. */
void fmt_av_log_route(void);

/* Set as `opaque` of an AVFormatContext or a decoder's AVCodecContext: counts what that context complains about. Some
 * damage is told by nothing else: a container that skips what it cannot parse, and a concealed picture whose error
 * flag got lost between FFmpeg's frame threads. */
struct fmt_av_watch {
    atomic_int container_errors;
    atomic_int decoder_errors;
    atomic_int concealed; /* pictures of which a part was made up */
    atomic_flag taken;    /* by the first error, whose text follows */
    char first[160];
};
/* Forgets what was counted. No other thread may be using the contexts. */
void fmt_av_watch_reset(struct fmt_av_watch *);

/* The text of an FFmpeg error code into buf of `size` bytes; returns buf. */
const char *fmt_av_error(int code, char *buf, int size);

#endif

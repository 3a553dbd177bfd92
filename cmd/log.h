/* log.h - the program's voice: everything on stderr goes through here, so that messages and the progress bar
 * do not tear each other apart. Safe to call from any thread. */
#ifndef CMD_LOG_H
#define CMD_LOG_H

#include "../engine/base.h"

enum cmd_verbosity {
    CMD_QUIET = -1, /* warnings and errors */
    CMD_NORMAL,
    CMD_VERBOSE, /* also what the library tells */
    CMD_DEBUG,   /* also FFmpeg's own messages */
};

/* Sends the messages of the library (s2_log) to stderr, too. */
void cmd_log_start(enum cmd_verbosity);
/* Drops the library's messages, while an input is opened again: they were told the first time. */
void cmd_log_mute(bool);

/* "sam2track: TEXT" */
void cmd_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cmd_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* "sam2track: warning: TEXT" */
void cmd_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));  /* not when quiet */

/* A line of text as it stands, for progress lines. */
void cmd_log_line(const char *text);
/* The line at the bottom of a terminal that stays below all messages; NULL takes it away. */
void cmd_log_bottom(const char *text);

#endif

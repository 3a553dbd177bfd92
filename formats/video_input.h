/* video_input.h - what the path of a clip means, and how FFmpeg gets its bytes. */
#ifndef S2_FORMATS_VIDEO_INPUT_H
#define S2_FORMATS_VIDEO_INPUT_H

#include "stills.h"

#include <stdatomic.h>

struct fmt_input {
    const char *name;         /* for sentences; the caller's path, or "standard input" */
    bool is_stills;           /* a folder, a pattern or one picture: see stills */
    struct fmt_stills stills; /* empty if not */
    char *url;                /* else what FFmpeg opens: "file:...", the URL, or the name of the pipe */
    bool is_network;
    int fd;            /* a pipe or other thing that is no regular file, read by our own code; -1: none */
    bool own_fd;       /* closed with the input */
    AVIOContext *pipe; /* reads fd */
    const atomic_bool *stop;
    AVFormatContext *format; /* the open container */
};

/* Finds out what path is and opens it as far as its container's header. *stop set from elsewhere makes blocking reads
 * give up. S2_E_INPUT and a sentence otherwise. */
enum s2_status fmt_input_open(struct fmt_input *, const char *path, bool allow_network, const atomic_bool *stop,
                              struct s2_err *);
void fmt_input_close(struct fmt_input *); /* zeroed struct allowed */

/* The video stream to use: the default or largest one; a cover picture only if there is nothing else. -1: none. */
int fmt_input_best_stream(const AVFormatContext *);

#endif

/* progress.h - how far a run is, on stderr: a bar on a terminal, lines elsewhere, JSON lines on request. */
#ifndef CMD_PROGRESS_H
#define CMD_PROGRESS_H

#include "../engine/base.h"

enum cmd_progress_mode { CMD_PROGRESS_NONE, CMD_PROGRESS_BAR, CMD_PROGRESS_LINES, CMD_PROGRESS_JSON };

struct cmd_progress {
    enum cmd_progress_mode mode;
    const char *stage; /* "track"; "lookahead", "index", "back", "write": other passes */
    int64_t total;     /* frames expected, -1 if unknown */
    int n_objects;
    double start, last; /* s2_now() at the start, at the last thing shown */
    double rate_time;   /* at the begin of the window that fps is measured over */
    int64_t rate_frames;
    double fps;
    bool settled; /* fps is of two seconds or more */
};

/* name: auto, bar, lines, json or none; auto is a bar if stderr is a terminal, else lines. */
enum cmd_progress_mode cmd_progress_mode(const char *name);
void cmd_progress_start(struct cmd_progress *, enum cmd_progress_mode, const char *stage, int64_t total, int n_objects);
/* `done` frames are finished, the last of them source frame `frame`, with `present` objects visible. */
void cmd_progress_frame(struct cmd_progress *, int64_t done, int64_t frame, int present);
/* Takes the bar away; the JSON form writes a last line. */
void cmd_progress_end(struct cmd_progress *, int64_t done);

#endif

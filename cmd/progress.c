/* progress.c - see progress.h */
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "json.h"
#include "log.h"

static const double bar_interval = 0.1, line_interval = 5, json_interval = 0.5; /* seconds */

enum cmd_progress_mode cmd_progress_mode(const char *name)
{
    if (strcmp(name, "bar") == 0) return CMD_PROGRESS_BAR;
    if (strcmp(name, "lines") == 0) return CMD_PROGRESS_LINES;
    if (strcmp(name, "json") == 0) return CMD_PROGRESS_JSON;
    if (strcmp(name, "none") == 0) return CMD_PROGRESS_NONE;
    return isatty(STDERR_FILENO) ? CMD_PROGRESS_BAR : CMD_PROGRESS_LINES;
}

static double interval(enum cmd_progress_mode mode)
{
    return mode == CMD_PROGRESS_BAR ? bar_interval : mode == CMD_PROGRESS_LINES ? line_interval : json_interval;
}

/* Frames a second over the last seconds, so that it follows a clip that becomes heavier, but not each hiccup. */
static void measure(struct cmd_progress *p, double now, int64_t done)
{
    const double seconds = now - p->rate_time;
    if (seconds > 0 && (p->fps == 0 || seconds >= 2)) {
        const double now_fps = (double)(done - p->rate_frames) / seconds;
        p->fps = p->settled ? 0.7 * p->fps + 0.3 * now_fps : now_fps;
        if (seconds >= 2) p->settled = true, p->rate_time = now, p->rate_frames = done;
    }
}

static void clock_text(double seconds, char *text, size_t size)
{
    const long long s = (long long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%lld:%02lld", s / 60, s % 60);
}

static double remaining(const struct cmd_progress *p, int64_t done)
{
    return p->total >= done && p->fps > 0 ? (double)(p->total - done) / p->fps : -1;
}

/* "frame 12/48, 3.1 fps, 0:12 left, 2 of 3 objects" */
static void describe(const struct cmd_progress *p, int64_t done, int present, char *text, size_t size)
{
    char total[32] = "", left[32] = "";
    if (p->total >= done) snprintf(total, sizeof total, "/%" PRId64, p->total);
    if (remaining(p, done) >= 0) {
        char clock[24];
        clock_text(remaining(p, done), clock, sizeof clock);
        snprintf(left, sizeof left, ", %s left", clock);
    }
    static const char *const doing[][2] = {{"lookahead", "looking ahead, "},
                                           {"index", "finding the end, "},
                                           {"back", "on the way back, "},
                                           {"write", "writing, "}};
    const char *what = "";
    for (size_t i = 0; i < sizeof doing / sizeof *doing; i++) {
        if (strcmp(p->stage, doing[i][0]) == 0) what = doing[i][1];
    }
    const bool tracks = !*what || strcmp(p->stage, "back") == 0;
    if (done == 0 || !tracks)
        snprintf(text, size, "%sframe %" PRId64 "%s", what, done, total);
    else
        snprintf(text, size, "%sframe %" PRId64 "%s, %.*f fps%s, %d of %d object%s", what, done, total,
                 p->fps < 10 ? 2 : 1, p->fps, left, present, p->n_objects, p->n_objects == 1 ? "" : "s");
}

static void show_bar(const struct cmd_progress *p, int64_t done, int present)
{
    char text[256], line[512];
    describe(p, done, present, text, sizeof text);
    struct winsize window;
    const int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
    int bar = columns - (int)strlen(text) - 5;
    if (bar > 40) bar = 40;
    if (p->total <= 0 || p->total < done || bar < 8) {
        snprintf(line, sizeof line, "%.*s", columns - 1, text);
    } else {
        char cells[41];
        const int full = (int)(bar * done / p->total);
        for (int i = 0; i < bar; i++) cells[i] = i < full ? '#' : '.';
        cells[bar] = 0;
        snprintf(line, sizeof line, "[%s] %s", cells, text);
    }
    cmd_log_bottom(line);
}

void cmd_progress_start(struct cmd_progress *p, enum cmd_progress_mode mode, const char *stage, int64_t total,
                        int n_objects)
{
    const double now = s2_now();
    *p = (struct cmd_progress){.mode = mode,
                               .stage = stage,
                               .total = total,
                               .n_objects = n_objects,
                               .start = now,
                               .last = now,
                               .rate_time = now};
    if (mode == CMD_PROGRESS_BAR) show_bar(p, 0, 0);
}

static void show_json(const struct cmd_progress *p, int64_t done, int64_t frame, int present, bool last)
{
    struct cmd_json j = {.one_line = true};
    cmd_json_object(&j, NULL);
    cmd_json_string(&j, "stage", p->stage);
    cmd_json_integer(&j, "done", done);
    if (p->total >= done)
        cmd_json_integer(&j, "total", p->total);
    else
        cmd_json_null(&j, "total");
    if (!last) {
        cmd_json_integer(&j, "frame", frame);
        cmd_json_integer(&j, "present", present);
        cmd_json_number(&j, "fps", p->fps, 4);
        if (remaining(p, done) >= 0)
            cmd_json_number(&j, "seconds_left", remaining(p, done), 4);
        else
            cmd_json_null(&j, "seconds_left");
    }
    cmd_json_number(&j, "seconds", s2_now() - p->start, 5);
    cmd_json_bool(&j, "end", last);
    cmd_json_end(&j);
    if (!j.failed) cmd_log_line(j.text.data);
    cmd_json_free(&j);
}

void cmd_progress_frame(struct cmd_progress *p, int64_t done, int64_t frame, int present)
{
    if (p->mode == CMD_PROGRESS_NONE) return;
    const double now = s2_now();
    if (done > 1 && now - p->last < interval(p->mode)) return;
    p->last = now;
    measure(p, now, done);
    if (p->mode == CMD_PROGRESS_BAR) {
        show_bar(p, done, present);
    } else if (p->mode == CMD_PROGRESS_JSON) {
        show_json(p, done, frame, present, false);
    } else if (done > 1) { // a first line after one frame would only say that it began
        char text[256], line[300];
        describe(p, done, present, text, sizeof text);
        snprintf(line, sizeof line, "sam2track: %s", text);
        cmd_log_line(line);
    }
}

void cmd_progress_end(struct cmd_progress *p, int64_t done)
{
    if (p->mode == CMD_PROGRESS_BAR) cmd_log_bottom(NULL);
    if (p->mode == CMD_PROGRESS_JSON) show_json(p, done, 0, 0, true);
    p->mode = CMD_PROGRESS_NONE;
}

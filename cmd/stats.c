/* stats.c - see stats.h */
#include "stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "json.h"
#include "process.h"

void cmd_stats_start(struct cmd_stats *s)
{
    s->first_mask_seconds = -1;
    s->frames = 0;
    s->start = s->end = s->last[0] = s->last[1] = s2_now();
}

double cmd_frame_seconds(double last[2], double now, bool first)
{
    const double seconds = (now - last[1]) / (first ? 1 : 2);
    last[1] = last[0], last[0] = now;
    return seconds;
}

void cmd_stats_frame(struct cmd_stats *s, bool has_object)
{
    const double now = s2_now();
    if (has_object && s->first_mask_seconds < 0) s->first_mask_seconds = cmd_process_seconds();
    s->frame_seconds[s->frames % CMD_STATS_WINDOW] = cmd_frame_seconds(s->last, now, s->frames == 0);
    s->end = now;
    s->frames++;
}

double cmd_stats_fps(const struct cmd_stats *s)
{
    return s->end > s->start ? (double)s->frames / (s->end - s->start) : 0;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double cmd_median(double *v, size_t n)
{
    if (n == 0) return 0;
    qsort(v, n, sizeof *v, compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double cmd_stats_steady(const struct cmd_stats *s)
{
    double v[CMD_STATS_WINDOW];
    int64_t n = s->frames - s->frames / 2; // the first frames have less memory to attend to
    if (n > CMD_STATS_WINDOW) n = CMD_STATS_WINDOW;
    for (int64_t i = 0; i < n; i++) v[i] = s->frame_seconds[(s->frames - 1 - i) % CMD_STATS_WINDOW];
    return cmd_median(v, (size_t)n);
}

static void stages(struct cmd_json *j, const char *key, int n, const char *const *names, const double *seconds)
{
    cmd_json_object(j, key);
    for (int i = 0; i < n; i++) cmd_json_number(j, names[i], seconds[i], 6);
    cmd_json_end(j);
}

static void report(const struct cmd_stats_report *r, struct cmd_json *j)
{
    const struct cmd_stats *s = r->stats;
    const char *const *names;
    const double *seconds;
    int n;
    cmd_json_object(j, NULL);
    cmd_json_string(j, "program", "sam2track");
    cmd_json_string(j, "version", S2_VERSION);
    cmd_json_string(j, "input", r->input);
    cmd_json_string(j, "model", r->model ? r->model->name : NULL);
    cmd_json_integer(j, "size", r->model ? r->model->image_size : 0);
    cmd_json_string(j, "precision", r->precision);
    cmd_json_string(j, "device", r->device);
    cmd_json_string(j, "late_prompts", r->late);
    cmd_json_integer(j, "status", r->status);
    cmd_json_string(j, "direction", r->direction);
    cmd_json_integer(j, "frames", r->finished);
    cmd_json_integer(j, "steps", s->frames);
    cmd_json_integer(j, "objects", r->n_objects);
    cmd_json_number(j, "fps", cmd_stats_fps(s), 6);
    cmd_json_number(j, "steady_ms_per_frame", 1e3 * cmd_stats_steady(s), 6);
    if (s->first_mask_seconds >= 0)
        cmd_json_number(j, "first_mask_seconds", s->first_mask_seconds, 6);
    else
        cmd_json_null(j, "first_mask_seconds");
    cmd_json_number(j, "device_seconds", s->device_seconds, 6);
    cmd_json_number(j, "model_seconds", s->model_seconds, 6);
    cmd_json_number(j, "session_seconds", s->session_seconds, 6);
    cmd_json_number(j, "tracking_seconds", s->end - s->start, 6);
    cmd_json_number(j, "total_seconds", cmd_process_seconds(), 6);
    cmd_json_number(j, "peak_memory_mib", cmd_process_peak_mib(), 6);
    cmd_json_number(j, "spilled_mib", (double)r->spilled / 1048576.0, 6);
    if (r->opened) cmd_device_report(r->opened, j);
    cmd_json_object(j, "seconds");
    n = r->session && s2_session_depth(r->session) == 1 ? s2_session_times(r->session, &names, &seconds) : 0;
    stages(j, "engine", n, names, seconds);
    cmd_json_number(j, "decoder", r->video_seconds, 6);
    stages(j, "outputs", r->n_outputs, r->output_name, r->output_seconds);
    cmd_json_end(j);
    cmd_json_end(j);
}

static enum s2_status write_renamed(struct cmd_json *j, const char *path, struct s2_err *err)
{
    char temporary[4096];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.part%ld", path, (long)getpid()) >= sizeof temporary) {
        return s2_fail(err, S2_E_OUTPUT, "%s: the path is too long", path);
    }
    FILE *f = fopen(temporary, "we");
    if (!f) return s2_fail(err, S2_E_OUTPUT, "%s: cannot be written: %s", path, strerror(errno));
    bool ok = cmd_json_print(j, f);
    ok = fclose(f) == 0 && ok;
    if (!ok || rename(temporary, path)) {
        s2_fail(err, S2_E_OUTPUT, "%s: cannot be written: %s", path, strerror(errno));
        unlink(temporary);
        return S2_E_OUTPUT;
    }
    return S2_OK;
}

enum s2_status cmd_stats_write(const struct cmd_stats_report *r, const char *path, struct s2_err *err)
{
    enum s2_status status = S2_OK;
    struct cmd_json j = {0};
    report(r, &j);
    if (j.failed)
        status = s2_no_memory(err, "the statistics", j.text.size);
    else if (strcmp(path, "-") != 0)
        status = write_renamed(&j, path, err);
    else if (!cmd_json_print(&j, stdout))
        status = s2_fail(err, S2_E_OUTPUT, "the statistics cannot be written to stdout: %s", strerror(errno));
    cmd_json_free(&j);
    return status;
}

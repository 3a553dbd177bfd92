/* paths.c - checks of output paths that formats/ cannot make: it does not know of --stats, the model and the
 * prompts. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "track.h"

static bool is_stdout(const char *path)
{
    return strcmp(path, "-") == 0;
}

/* Two names of one existing file, or one name twice. */
static bool same(const char *a, const char *b)
{
    struct stat s, t;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

/* With --overwrite a slip could replace what the run reads. */
static enum s2_status check_clash(const struct cmd_track_options *o, const char *option, const char *path,
                                  struct s2_err *err)
{
    const char *const read[][2] = {{"INPUT", o->input}, {"--model", o->model}, {"--prompts", o->prompts_file}};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        if (read[i][1] && same(path, read[i][1])) {
            return s2_fail(err, S2_E_USAGE, "%s %s: is the file of %s; give another path", option, path, read[i][0]);
        }
    }
    return S2_OK;
}

/* The folder must be there and writable now, not only when the run has ended. */
static enum s2_status check_stats(const struct cmd_track_options *o, struct s2_err *err)
{
    char folder[4096];
    struct stat s;
    const char *slash = strrchr(o->stats, '/');
    if ((o->rle && same(o->stats, o->rle)) || (o->overlay && same(o->stats, o->overlay))) {
        return s2_fail(err, S2_E_USAGE, "--stats %s: is another output, too; every output needs its own path",
                       o->stats);
    }
    if (lstat(o->stats, &s) == 0) {
        if (!S_ISREG(s.st_mode)) return s2_fail(err, S2_E_OUTPUT, "%s: is not a plain file", o->stats);
        if (!o->overwrite) {
            return s2_fail(err, S2_E_OUTPUT, "%s: exists; give --overwrite to replace it, or another name", o->stats);
        }
    }
    if ((size_t)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - o->stats) + 1 : 1,
                         slash ? o->stats : ".") >= sizeof folder) {
        return s2_fail(err, S2_E_OUTPUT, "%s: the path is too long", o->stats);
    }
    if (access(folder, W_OK | X_OK)) {
        return s2_fail(err, S2_E_OUTPUT, "%s: cannot be written: %s", o->stats, strerror(errno));
    }
    return S2_OK;
}

enum s2_status cmd_track_check_folders(const struct cmd_track_options *o, struct s2_err *err)
{
    const char *const folders[][2] = {{"--png", o->png}, {"--png-objects", o->png_objects}};
    for (size_t i = 0; o->taps && i < sizeof folders / sizeof *folders; i++) {
        if (folders[i][1] && same(o->taps, folders[i][1])) {
            return s2_fail(err, S2_E_USAGE, "%s: is given to %s and to --debug-taps; every output needs its own path",
                           o->taps, folders[i][0]);
        }
    }
    return S2_OK;
}

enum s2_status cmd_track_check_paths(const struct cmd_track_options *o, struct s2_err *err)
{
    const char *const written[][2] = {{"--rle", o->rle}, {"--overlay", o->overlay}, {"--stats", o->stats}};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        if (!written[i][1] || is_stdout(written[i][1])) continue;
        const enum s2_status status = check_clash(o, written[i][0], written[i][1], err);
        if (status) return status;
    }
    return o->stats && !is_stdout(o->stats) ? check_stats(o, err) : S2_OK;
}

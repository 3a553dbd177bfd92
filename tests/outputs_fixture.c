#define _GNU_SOURCE /* nftw */
#include "outputs_fixture.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[200];

void fix_make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.150s/test_outputs.XXXXXX", base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(folder));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void fix_remove_folder(void)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* "<folder>/<name>", in one of a few buffers that are reused in turn. */
const char *fix_in(const char *name)
{
    static char path[8][512];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

bool fix_exists(const char *name)
{
    return access(fix_in(name), F_OK) == 0;
}

void fix_touch(const char *name)
{
    FILE *f = fopen(fix_in(name), "wb");
    cr_assert_not_null(f);
    fputs("old", f);
    fclose(f);
}

char *fix_read_all(const char *name)
{
    static char bytes[1 << 16];
    FILE *f = fopen(fix_in(name), "rb");
    cr_assert_not_null(f, "%s is missing", name);
    size_t n = fread(bytes, 1, sizeof bytes - 1, f);
    fclose(f);
    bytes[n] = 0;
    return bytes;
}

int fix_count_files(const char *name)
{
    char text[600];
    snprintf(text, sizeof text, "ls -A '%s' | wc -l", fix_in(name));
    FILE *f = popen(text, "r");
    int n = -1;
    cr_assert_eq(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

/* ------------------------------------------------------------------ a run */

struct fmt_object fix_objects[2] = {{1, NULL}, {200, NULL}};

rlim_t fix_limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
    return before;
}

struct fmt_outputs_config fix_config(void)
{
    return (struct fmt_outputs_config){.width = FIX_WIDTH,
                                       .height = FIX_HEIGHT,
                                       .objects = fix_objects,
                                       .n_objects = 2,
                                       .time_base_num = 1,
                                       .time_base_den = 15360,
                                       .fps = 30,
                                       .input_path = "clip \"a\".mp4",
                                       .model_name = "sam2.1_tiny",
                                       .precision = "fp32",
                                       .device = "cpu",
                                       .graph = "off",
                                       .overlap = "allow",
                                       .model_size = 1024};
}

struct fmt_outputs *fix_open_run(const struct fmt_outputs_config *c)
{
    struct fmt_outputs *o = NULL;
    struct s2_err err = {0};
    cr_assert_eq(fmt_outputs_open(&o, c, &err), S2_OK, "%s", err.text);
    return o;
}

void fix_open_fails(const struct fmt_outputs_config *c, enum s2_status status, const char *part)
{
    struct fmt_outputs *o = NULL;
    struct s2_err err = {0};
    cr_assert_eq(fmt_outputs_open(&o, c, &err), status, "%d: %s", err.status, err.text);
    cr_assert_null(o);
    cr_assert_not_null(strstr(err.text, part), "%s", err.text);
}

/* Object `which` has this pixel on frame n; 200 starts on frame 1 and covers a part of 1. */
bool fix_inside(int64_t n, int which, int x, int y)
{
    if (which == 0) return x >= 2 + n % 3 && x < 9 && y >= 1 && y < 8;
    return n >= 1 && x >= 6 && y >= 4 && (x + y + n) % 5 != 0;
}

uint16_t fix_owner_at(int64_t n, int x, int y)
{
    return fix_inside(n, 1, x, y) ? 2 : fix_inside(n, 0, x, y) ? 1 : 0;
}

/* false: the run has failed */
bool fix_put_frame(struct fmt_outputs *o, int64_t n, const char *stem)
{
    struct fmt_record *r = fmt_outputs_take(o);
    if (!r) return false;
    r->frame.index = n;
    r->frame.pts = 512 * n;
    r->frame.time = (double)n / 30;
    r->frame.next_time = (double)(n + 1) / 30;
    snprintf(r->frame.stem, sizeof r->frame.stem, "%s", stem);
    memset(r->frame.image.rgb, 90, r->frame.image.stride * FIX_HEIGHT);
    for (int i = 0; i < 2; i++) {
        struct fmt_record_object *object = &r->object[i];
        object->started = i == 0 || n >= 1;
        object->score = i ? -1.5f : 8.31f;
        object->iou = i ? 0.75f : NAN;
        memset(object->bits.data, object->started ? 0 : 0xFF, object->bits.stride * FIX_HEIGHT);
        for (int p = 0; p < FIX_WIDTH * FIX_HEIGHT && object->started; p++)
            if (fix_inside(n, i, p % FIX_WIDTH, p / FIX_WIDTH))
                object->bits.data[p / FIX_WIDTH * object->bits.stride + p % FIX_WIDTH / 8] |=
                    (uint8_t)(0x80 >> p % FIX_WIDTH % 8);
    }
    for (int p = 0; r->owner && p < FIX_WIDTH * FIX_HEIGHT; p++)
        r->owner[p] = fix_owner_at(n, p % FIX_WIDTH, p / FIX_WIDTH);
    fmt_outputs_put(o, r);
    return true;
}

void fix_run_frames(const struct fmt_outputs_config *c, int n)
{
    struct fmt_outputs *o = fix_open_run(c);
    struct s2_err err = {0};
    for (int i = 0; i < n; i++) cr_assert(fix_put_frame(o, i, ""));
    cr_assert_eq(fmt_outputs_finish(o, &err), S2_OK, "%s", err.text);
}

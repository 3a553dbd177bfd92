/* video_fixture.c - temporary clips for the tests of video input. */
#define _XOPEN_SOURCE 700 /* nftw */
#define _DEFAULT_SOURCE
#include "video_fixture.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

void video_folder_make(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%.200s/test_video.XXXXXX", base && *base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(folder));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

void video_folder_remove(void)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *video_path(const char *format, ...)
{
    static char path[8][512];
    static int next;
    char name[200];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    char *to = path[next++ % 8];
    snprintf(to, sizeof(path[0]), "%s/%s", folder, name);
    return to;
}

const char *video_make(const char *name, struct make_clip clip)
{
    char why[600];
    clip.path = video_path("%s", name);
    if (!clip.codec) clip.codec = "mpeg4";
    if (!clip.width) clip.width = 64;
    if (!clip.height) clip.height = 48;
    if (!clip.fps) clip.fps = 25;
    if (!clip.frames) clip.frames = 10;
    if (clip.frames < 0) clip.frames = 0;
    cr_assert(make_clip(&clip, why, sizeof(why)), "%s", why);
    return clip.path;
}

void video_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    cr_assert_eq(fclose(f), 0);
}

uint8_t *video_slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*n + 1);
    cr_assert_not_null(bytes);
    cr_assert_eq(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

const char *video_cut(const char *path, double drop)
{
    size_t n;
    uint8_t *bytes = video_slurp(path, &n);
    const char *cut = video_path("cut-%s", strrchr(path, '/') + 1);
    video_write(cut, bytes, (size_t)((double)n * (1 - drop)));
    free(bytes);
    return cut;
}

struct video_clip *video_read(const char *path, const struct fmt_video_options *options)
{
    struct fmt_video_options defaults = {.end = -1, .stride = 1};
    struct video_clip *c = calloc(1, sizeof(*c));
    struct fmt_video *v;
    cr_assert_not_null(c);
    if ((c->status = fmt_video_open(&v, path, options ? options : &defaults, &c->err))) {
        cr_assert_null(v);
        cr_assert_eq(c->err.status, c->status);
        return c;
    }
    c->info = *fmt_video_get_info(v);
    size_t stride = (size_t)c->info.width * 3;
    for (bool got = true; got; c->n += got) {
        cr_assert_lt(c->n, VIDEO_MAX_FRAMES);
        struct fmt_frame *f = &c->frame[c->n];
        f->image.stride = stride;
        f->image.rgb = malloc(stride * (size_t)c->info.height);
        cr_assert_not_null(f->image.rgb);
        c->status = fmt_video_next(v, f, &got, &c->err);
        cr_assert(!c->status || !got);
        if (!got) free(f->image.rgb);
    }
    /* the end stays the end, and an error is told once */
    bool got = true;
    struct s2_err again = {0};
    cr_assert_eq(fmt_video_next(v, &c->frame[c->n], &got, &again), S2_OK);
    cr_assert(!got);
    c->decoded = fmt_video_decoded(v);
    cr_assert_geq(fmt_video_seconds(v), 0);
    fmt_video_close(v);
    return c;
}

void video_free(struct video_clip *c)
{
    for (int i = 0; i < c->n; i++) free(c->frame[i].image.rgb);
    free(c);
}

const uint8_t *video_pixel(const struct video_clip *c, int frame, int x, int y)
{
    cr_assert_lt(frame, c->n, "there are %d frames: %s", c->n, c->err.text);
    return c->frame[frame].image.rgb + (size_t)y * c->frame[frame].image.stride + (size_t)x * 3;
}

void video_check_pixel(const struct video_clip *c, int frame, int x, int y, const int rgb[3], int tolerance)
{
    const uint8_t *p = video_pixel(c, frame, x, y);
    for (int k = 0; k < 3; k++)
        cr_assert(abs(p[k] - rgb[k]) <= tolerance, "frame %d (%d,%d): %d,%d,%d instead of %d,%d,%d", frame, x, y, p[0],
                  p[1], p[2], rgb[0], rgb[1], rgb[2]);
}

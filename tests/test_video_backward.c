/* Clips read backwards: the same pictures, numbers and times as forward, in the other order. */
#include "video_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../formats/video_index.h"

TestSuite(video_backward, .init = video_folder_make, .fini = video_folder_remove);

static int go_on(void *ctx, int64_t count)
{
    cr_assert_eq(count, ++*(int64_t *)ctx);
    return 0;
}

static struct fmt_index *index_of(const char *path, const struct fmt_video_options *o)
{
    struct fmt_index *x = NULL;
    struct s2_err err = {0};
    int64_t seen = 0;
    cr_assert_eq(fmt_index_build(&x, path, o, go_on, &seen, &err), S2_OK, "%s", err.text);
    return x;
}

static void check_mirrored(const char *path, struct fmt_video_options o)
{
    struct video_clip *a = video_read(path, &o);
    struct fmt_index *x = index_of(path, &o);
    o.backward = x;
    struct video_clip *b = video_read(path, &o);
    cr_assert_eq(b->status, a->info.is_stills ? a->status : S2_OK, "%s: %s", path, b->err.text);
    cr_assert_eq(b->n, a->n, "%s: %d frames, forward %d", path, b->n, a->n);
    cr_assert_gt(a->n, 0);
    cr_assert_eq(fmt_index_verdict(x, NULL), a->info.is_stills ? S2_OK : a->status);
    size_t bytes = (size_t)a->info.width * 3 * (size_t)a->info.height;
    for (int i = 0; i < a->n; i++) {
        const struct fmt_frame *f = &a->frame[i], *g = &b->frame[a->n - 1 - i];
        cr_assert_eq(g->index, f->index);
        cr_assert_eq(g->pts, f->pts);
        cr_assert_eq(g->time, f->time);
        cr_assert_eq(g->next_time, f->next_time, "%s: frame %d ends at %f, forward at %f", path, i, g->next_time,
                     f->next_time);
        cr_assert_str_eq(g->stem, f->stem);
        cr_assert_arr_eq(g->image.rgb, f->image.rgb, bytes, "%s: frame %d differs", path, i);
    }
    video_free(a);
    video_free(b);
    fmt_index_free(x);
}

static void check_ranges(const char *path)
{
    static const struct fmt_video_options ranges[] = {
        {.end = -1, .stride = 1},
        {.end = -1, .stride = 3},
        {.first = 5, .end = 17, .stride = 1},
        {.first = 4, .end = 18, .stride = 5},
        {.first = 11, .end = 12, .stride = 1},
        {.first = 7, .end = 5000, .stride = 4},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        struct fmt_video_options o = ranges[i];
        check_mirrored(path, o);
        o.backward_bytes = 1; /* 8 frames: decoded in parts, from a key frame or from the start */
        check_mirrored(path, o);
    }
}

Test(video_backward, containers)
{
    static const struct {
        const char *name, *codec, *pix_fmt;
        int gop, rotate;
        bool vfr;
    } kinds[] = {
        {"a.mp4", "mpeg4", "yuv420p", 8, 0, false},    {"a.mkv", "mpeg4", "yuv420p", 8, 0, true},
        {"a.avi", "mpeg4", "yuv420p", 8, 0, false},    {"a.ts", "mpeg4", "yuv420p", 8, 0, false},
        {"b.mkv", "ffv1", "bgr0", 5, 0, true},         {"a.nut", "rawvideo", "yuv420p", 1, 0, false},
        {"c.avi", "mjpeg", "yuvj420p", 1, 0, false},   {"c.mkv", "mjpeg", "yuvj422p", 1, 0, true},
        {"d.mp4", "libx264", "yuv420p", 7, 90, false}, {"e.mp4", "libx264", "yuv420p", 250, 0, true},
        {"f.ts", "libx264", "yuv420p", 6, 0, false},   {"d.h264", "libx264", "yuv420p", 6, 0, false},
        {"g.mov", "mpeg4", "yuv420p", 6, 270, false},  {"h.mkv", "mpeg2video", "yuv420p", 9, 0, false},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!make_clip_has_encoder(kinds[i].codec)) continue;
        struct make_clip m = {.codec = kinds[i].codec,
                              .frames = 40,
                              .gop = kinds[i].gop,
                              .pix_fmt = kinds[i].pix_fmt,
                              .rotate = kinds[i].rotate,
                              .vfr = kinds[i].vfr};
        if (strstr(m.pix_fmt, "yuvj")) m.full = true;
        check_ranges(video_make(kinds[i].name, m));
    }
}

Test(video_backward, stills)
{
    const char *path = video_make("f%03d.png", (struct make_clip){.codec = "png", .pix_fmt = "rgb24", .frames = 24});
    check_ranges(path);
    check_ranges(video_path("."));
    video_write(video_path("f%s.png", "009"), "no picture", 10); /* it leaves a gap */
    check_ranges(path);
}

Test(video_backward, a_clip_that_broke_off_ends_at_its_last_frame)
{
    const char *path = video_cut(
        video_make("a.mkv", (struct make_clip){.codec = "ffv1", .pix_fmt = "bgr0", .frames = 30, .gop = 4}), 0.4);
    struct fmt_video_options o = {.end = -1, .stride = 1};
    struct fmt_index *x = index_of(path, &o);
    struct s2_err err = {0};
    int64_t n = fmt_index_count(x);
    cr_assert(n > 5 && n < 30);
    cr_assert_eq(fmt_index_verdict(x, &err), S2_E_BROKEN);
    fmt_index_free(x);
    check_mirrored(path, o);
}

Test(video_backward, times_of_the_index)
{
    struct make_clip m = {.codec = "ffv1", .pix_fmt = "bgr0", .frames = 12, .vfr = true};
    struct fmt_video_options o = {.end = -1, .stride = 1};
    struct fmt_index *x = index_of(video_make("v.mkv", m), &o);
    cr_assert_eq(fmt_index_count(x), 12);
    for (int i = 0; i < 12; i++) cr_assert_float_eq(fmt_index_time(x, i), (double)make_clip_tick(&m, i) / 250, 1e-3);
    cr_assert_eq(fmt_index_time(x, 12), INFINITY);
    fmt_index_free(x);
    o.end = 5;
    x = index_of(video_path("v.mkv"), &o);
    cr_assert_eq(fmt_index_count(x), 6, "one more frame, whose time ends the last one of the range");
    fmt_index_free(x);
}

/* Another file under the name that was read first: its pictures are not taken for the old ones. */
Test(video_backward, a_changed_file_is_noticed)
{
    struct make_clip m = {.codec = "ffv1", .pix_fmt = "bgr0", .frames = 20, .gop = 4};
    struct fmt_video_options o = {.end = -1, .stride = 1};
    const char *path = video_make("v.mkv", m);
    struct fmt_index *x = index_of(path, &o);
    m.frames = 10;
    video_make("v.mkv", m);
    o.backward = x;
    struct video_clip *c = video_read(path, &o);
    cr_assert_eq(c->status, S2_E_BROKEN);
    cr_assert_not_null(strstr(c->err.text, "has the file changed?"), "%s", c->err.text);
    video_free(c);
    fmt_index_free(x);
}

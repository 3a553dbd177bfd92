/* Stills as a clip: folders in natural order, printf patterns, single pictures, damaged ones. */
#include "video_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(stills, .init = video_folder_make, .fini = video_folder_remove);

static void paint_grey(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    (void)frame, (void)x, (void)y;
    value[0] = value[1] = value[2] = (uint16_t) * (const int *)ctx;
    value[3] = 9;
}

/* A picture all of one grey; PNG or JPEG by its name. */
static const char *put_still(const char *name, int grey, const char *pix_fmt, int width, int height)
{
    struct make_clip m = {.codec = strstr(name, ".png") || strstr(name, ".PNG") ? "png" : "mjpeg", .pix_fmt = pix_fmt};
    m.format = "image2", m.options = "update=1", m.frames = 1, m.paint = paint_grey, m.ctx = &grey;
    m.width = width, m.height = height;
    return video_make(name, m);
}

static void put(const char *name, int grey)
{
    put_still(name, grey, "rgb24", 20, 10);
}

struct notes {
    int count;
    char last[512];
};

static void take_note(void *ctx, enum s2_log_level level, const char *text)
{
    struct notes *n = ctx;
    if (level > S2_LOG_INFO) return;
    n->count++;
    snprintf(n->last, sizeof(n->last), "%.500s", text);
}

static void check_order(const struct video_clip *c, const char *const *stems, int n)
{
    cr_assert_eq(c->status, S2_OK, "%s", c->err.text);
    cr_assert_eq(c->n, n);
    for (int i = 0; i < n; i++) {
        cr_assert_str_eq(c->frame[i].stem, stems[i]);
        cr_assert_eq(c->frame[i].index, i);
        cr_assert_eq(c->frame[i].pts, i);
        cr_assert_float_eq(c->frame[i].time, i / 25.0, 1e-9);
        if (i + 1 < n)
            cr_assert_float_eq(c->frame[i].next_time, (i + 1) / 25.0, 1e-9);
        else
            cr_assert_eq(c->frame[i].next_time, INFINITY);
        video_check_pixel(c, i, 10, 5, (int[3]){10 * i, 10 * i, 10 * i}, 0);
    }
}

Test(stills, natural_order_and_stems)
{
    static const char *const stems[] = {"a1", "a2", "a10", "a010b", "b", "b-1", "b-1-2", "b-1-10"};
    struct notes notes = {0};
    mkdir(video_path("f"), 0777);
    mkdir(video_path("f/sub.png"), 0777);
    for (int i = 7; i >= 0; i--) {
        char name[64];
        snprintf(name, sizeof(name), "f/%s.%s", stems[i], i % 2 ? "png" : "PNG");
        put(name, 10 * i);
    }
    video_write(video_path("f/list.txt"), "x", 1);
    video_write(video_path("f/._a1.png"), "x", 1);
    s2_log_set(take_note, &notes);
    struct video_clip *c = video_read(video_path("f"), NULL);
    check_order(c, stems, 8);
    cr_assert_eq(notes.count, 1);
    cr_assert_not_null(strstr(notes.last, "3 entries"), "%s", notes.last);
    cr_assert(c->info.is_stills && c->info.reopens && !c->info.has_audio);
    cr_assert_eq(c->info.frames_hint, 8);
    cr_assert_eq(c->info.fps, 25);
    cr_assert_eq(fmt_video_count(video_path("f"), &(struct fmt_video_options){.end = -1, .stride = 1}), 8);
    s2_log_set(NULL, NULL);
    video_free(c);
}

Test(stills, range_reads_only_what_it_delivers)
{
    mkdir(video_path("f"), 0777);
    for (int i = 0; i < 30; i++) {
        char name[32];
        snprintf(name, sizeof(name), "f/%d.png", i);
        put(name, 5 * i);
    }
    struct video_clip *c = video_read(video_path("f"), &(struct fmt_video_options){.first = 4, .end = 28, .stride = 5});
    cr_assert_eq(c->n, 5);
    cr_assert_eq(c->decoded, 5);
    for (int i = 0; i < 5; i++) {
        int number = 4 + 5 * i;
        char stem[16];
        snprintf(stem, sizeof(stem), "%d", number);
        cr_assert_eq(c->frame[i].index, number);
        cr_assert_str_eq(c->frame[i].stem, stem);
        cr_assert_float_eq(c->frame[i].next_time, (number + 1) / 25.0, 1e-9);
        video_check_pixel(c, i, 3, 3, (int[3]){5 * number, 5 * number, 5 * number}, 0);
    }
    video_free(c);
}

Test(stills, pattern)
{
    static const char *const padded[] = {"f_0098", "f_0099", "f_0100"}, *const plain[] = {"g%8", "g%9", "g%10"};
    struct notes notes = {0};
    put("f_0098.png", 0);
    put("f_0099.png", 10);
    put("f_0100.png", 20);
    put("f_0102.png", 40); /* behind a gap */
    put("f_99.png", 90);
    put("g%8.png", 0);
    put("g%9.png", 10);
    put("g%10.png", 20);
    s2_log_set(take_note, &notes);
    struct video_clip *c = video_read(video_path("f_%%04d.png"), NULL);
    check_order(c, padded, 3);
    cr_assert_eq(notes.count, 1);
    cr_assert_not_null(strstr(notes.last, "101"), "%s", notes.last);
    video_free(c);
    c = video_read(video_path("g%%%%%%d.png"), NULL);
    check_order(c, plain, 3);
    cr_assert_eq(notes.count, 1);
    s2_log_set(NULL, NULL);
    video_free(c);
}

Test(stills, formats_of_pictures)
{
    static const char *const formats[] = {"gray", "rgb24", "rgba", "ya8"};
    mkdir(video_path("f"), 0777);
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof(name), "f/%d.png", i);
        put_still(name, 50, formats[i], 20, 10);
    }
    struct video_clip *c = video_read(video_path("f"), NULL);
    cr_assert_eq(c->n, 4, "%s", c->err.text);
    for (int i = 0; i < 4; i++) video_check_pixel(c, i, 19, 9, (int[3]){50, 50, 50}, 0);
    video_free(c);
}

Test(stills, sizes_must_agree)
{
    mkdir(video_path("f"), 0777);
    put("f/1.png", 0);
    put("f/2.png", 1);
    put_still("f/3.png", 2, "rgb24", 10, 20);
    put("f/4.png", 3);
    struct video_clip *c = video_read(video_path("f"), NULL);
    cr_assert_eq(c->status, S2_E_BROKEN);
    cr_assert_eq(c->n, 2);
    cr_assert_not_null(strstr(c->err.text, "3.png is 10x20 but the first one is 20x10"), "%s", c->err.text);
    video_free(c);
}

Test(stills, equal_stems_are_refused)
{
    mkdir(video_path("f"), 0777);
    put("f/1.png", 0);
    put_still("f/1.jpg", 0, "yuvj420p", 20, 10);
    struct video_clip *c = video_read(video_path("f"), NULL);
    cr_assert_eq(c->status, S2_E_INPUT);
    cr_assert_not_null(strstr(c->err.text, "1.jpg and 1.png"), "%s", c->err.text);
    video_free(c);
}

Test(stills, damaged_ones_are_left_out_and_told)
{
    mkdir(video_path("f"), 0777);
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof(name), "f/%d.png", i);
        put(name, 10 * i);
    }
    video_write(video_path("f/2.png"), "no picture", 10);
    struct video_clip *c = video_read(video_path("f"), NULL);
    cr_assert_eq(c->status, S2_E_BROKEN);
    cr_assert_not_null(strstr(c->err.text, "2.png"), "%s", c->err.text);
    cr_assert_eq(c->n, 5);
    for (int i = 0; i < 5; i++) {
        int number = i < 2 ? i : i + 1;
        cr_assert_eq(c->frame[i].index, number);
        video_check_pixel(c, i, 0, 0, (int[3]){10 * number, 10 * number, 10 * number}, 0);
    }
    video_free(c);
    for (int i = 0; i < 6; i++) video_write(video_path("f/%d.png", i), "", 0);
    c = video_read(video_path("f"), NULL);
    cr_assert_eq(c->status, S2_E_INPUT);
    video_free(c);
}

Test(stills, truncated_jpeg_is_delivered_and_told)
{
    size_t n;
    uint8_t *bytes = video_slurp(
        video_make(
            "a.jpg",
            (struct make_clip){
                .codec = "mjpeg", .frames = 1, .width = 160, .height = 120, .format = "image2", .options = "update=1"}),
        &n);
    video_write(video_path("a.jpg"), bytes, n * 2 / 3);
    struct video_clip *c = video_read(video_path("a.jpg"), NULL);
    cr_assert_eq(c->n, 1);
    cr_assert_eq(c->status, S2_E_BROKEN);
    cr_assert_str_eq(c->frame[0].stem, "a");
    video_free(c);
    free(bytes);
}

Test(stills, one_picture)
{
    put("100%d.v2.png", 70);
    struct video_clip *c = video_read(video_path("100%%d.v2.png"), NULL);
    cr_assert_eq(c->status, S2_OK, "%s", c->err.text);
    cr_assert_eq(c->n, 1);
    cr_assert(c->info.is_stills);
    cr_assert_str_eq(c->frame[0].stem, "100%d.v2");
    video_check_pixel(c, 0, 1, 1, (int[3]){70, 70, 70}, 0);
    video_free(c);
}

Test(stills, pipes_and_folders_are_no_frames, .timeout = 20)
{
    cr_assert_eq(mkdir(video_path("clip"), 0700), 0);
    put("clip/01.png", 100);
    cr_assert_eq(mkfifo(video_path("clip/00.png"), 0600), 0);
    cr_assert_eq(mkdir(video_path("clip/02.png"), 0700), 0);
    cr_assert_eq(symlink("02.png", video_path("clip/03.png")), 0);
    struct video_clip *c = video_read(video_path("clip"), NULL);
    cr_assert_eq(c->status, S2_OK, "%s", c->err.text);
    cr_expect_eq(c->n, 1);
    video_free(c);
}

static void paint_left_dark(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    (void)ctx, (void)frame, (void)y;
    value[0] = x < 16 ? 10 : 240;
    value[1] = value[2] = 128;
}

/* EXIF orientation 6: to be shown turned clockwise by a quarter. */
Test(stills, exif_orientation)
{
    static const uint8_t exif[] = "\xff\xe1\0\x22"
                                  "Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0";
    const size_t size = 36; /* the segment, without what C appends */
    size_t n;
    uint8_t *jpeg = video_slurp(video_make("a.jpg", (struct make_clip){.codec = "mjpeg",
                                                                       .frames = 1,
                                                                       .width = 32,
                                                                       .height = 16,
                                                                       .paint = paint_left_dark,
                                                                       .format = "image2",
                                                                       .options = "update=1"}),
                                &n);
    uint8_t *turned = malloc(n + size);
    memcpy(turned, jpeg, 2);
    memcpy(turned + 2, exif, size);
    memcpy(turned + 2 + size, jpeg + 2, n - 2);
    video_write(video_path("b.jpg"), turned, n + size);
    struct video_clip *c = video_read(video_path("b.jpg"), NULL);
    cr_assert_eq(c->n, 1, "%s", c->err.text);
    cr_assert_eq(c->info.width, 16);
    cr_assert_eq(c->info.height, 32);
    cr_assert_eq(c->info.rotation, 90);
    cr_assert_lt(video_pixel(c, 0, 8, 2)[0], 20);
    cr_assert_gt(video_pixel(c, 0, 8, 29)[0], 230);
    video_free(c);
    free(jpeg);
    free(turned);
}

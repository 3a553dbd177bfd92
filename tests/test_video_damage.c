/* Damaged video: what can be decoded is delivered, and the end says what was wrong. */
#include "video_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(video_damage, .init = video_folder_make, .fini = video_folder_remove);

static const struct make_clip eighty = {.frames = 80, .width = 160, .height = 120, .gop = 10};

static const char *overwrite(const char *path, double at, int n)
{
    size_t size;
    uint8_t *bytes = video_slurp(path, &size);
    for (int i = 0; i < n; i++) bytes[(size_t)((double)size * at) + (size_t)i] ^= (uint8_t)(0xff - i);
    const char *bad = video_path("bad-%s", strrchr(path, '/') + 1);
    video_write(bad, bytes, size);
    free(bytes);
    return bad;
}

static void broken(const char *path, int least, int most)
{
    struct video_clip *c = video_read(path, NULL);
    cr_assert_eq(c->status, S2_E_BROKEN, "%s: status %d after %d frames", path, c->status, c->n);
    cr_assert(c->n >= least && c->n <= most, "%s: %d frames", path, c->n);
    cr_assert_not_null(strstr(c->err.text, strrchr(path, '/')), "%s", c->err.text);
    char count[32];
    snprintf(count, sizeof(count), "%d frames", c->n);
    cr_assert_not_null(strstr(c->err.text, count), "%s", c->err.text);
    for (int i = 0; i < c->n; i++) cr_assert_eq(c->frame[i].index, i);
    video_free(c);
}

Test(video_damage, truncated_containers)
{
    struct make_clip m = eighty;
    m.options = "movflags=faststart";
    broken(video_cut(video_make("fast.mp4", m), 0.4), 40, 60);
    m.options = "movflags=frag_keyframe+empty_moov";
    broken(video_cut(video_make("frag.mp4", m), 0.4), 30, 60);
    m.options = NULL;
    broken(video_cut(video_make("a.mkv", m), 0.4), 40, 60);
    broken(video_cut(video_make("a.avi", m), 0.4), 40, 60);
}

Test(video_damage, without_an_index_there_is_no_clip)
{
    struct video_clip *c = video_read(video_cut(video_make("a.mp4", eighty), 0.4), NULL);
    cr_assert_eq(c->status, S2_E_INPUT);
    cr_assert_not_null(strstr(c->err.text, "header"), "%s", c->err.text);
    video_free(c);
}

Test(video_damage, flipped_bytes)
{
    broken(overwrite(video_make("a.mp4", eighty), 0.5, 40), 75, 80);
    broken(overwrite(video_make("a.avi", eighty), 0.5, 40), 75, 80);
    broken(overwrite(video_make("a.ts", eighty), 0.5, 40), 70, 80);
    struct make_clip m = eighty;
    if (!make_clip_has_encoder("libx264")) return;
    m.codec = "libx264";
    broken(overwrite(video_make("h.mp4", m), 0.4, 300), 70, 80);
}

Test(video_damage, zeroed_stretch)
{
    size_t size;
    struct make_clip m = eighty;
    m.codec = make_clip_has_encoder("libx264") ? "libx264" : "mpeg4";
    const char *path = video_make("a.mp4", m);
    uint8_t *bytes = video_slurp(path, &size);
    memset(bytes + size / 3, 0, size / 5);
    video_write(path, bytes, size);
    free(bytes);
    broken(path, 40, 80);
}

Test(video_damage, range_before_the_damage_is_whole)
{
    struct make_clip m = eighty;
    m.options = "movflags=faststart";
    const char *path = video_cut(video_make("fast.mp4", m), 0.4);
    struct video_clip *c = video_read(path, &(struct fmt_video_options){.end = 20, .stride = 1});
    cr_assert_eq(c->status, S2_OK, "%s", c->err.text);
    cr_assert_eq(c->n, 20);
    video_free(c);
}

/* One thread: where several decode, a frame may be out before FFmpeg marks it. */
Test(video_damage, damage_in_a_range_is_told)
{
    const char *path = overwrite(video_make("a.avi", eighty), 0.5, 40);
    struct fmt_video_options o = {.end = 70, .stride = 1, .threads = 1};
    struct video_clip *c = video_read(path, &o);
    cr_assert_eq(c->status, S2_E_BROKEN, "status %d after %d frames", c->status, c->n);
    cr_assert_not_null(strstr(c->err.text, "is damaged"), "%s", c->err.text);
    cr_assert(c->n >= 65 && c->n <= 70, "%d frames", c->n);
    video_free(c);
    o.end = 20;
    c = video_read(path, &o);
    cr_assert_eq(c->status, S2_OK, "before the damage: %s", c->err.text);
    cr_assert_eq(c->n, 20);
    video_free(c);
}

Test(video_damage, size_change_ends_the_clip)
{
    size_t n, k;
    uint8_t *a = video_slurp(video_make("a.mjpeg", (struct make_clip){.codec = "mjpeg", .frames = 7}), &n);
    uint8_t *b = video_slurp(
        video_make("b.mjpeg", (struct make_clip){.codec = "mjpeg", .frames = 5, .width = 80, .height = 32}), &k);
    uint8_t *both = malloc(n + k);
    memcpy(both, a, n);
    memcpy(both + n, b, k);
    video_write(video_path("both.mjpeg"), both, n + k);
    struct video_clip *c = video_read(video_path("both.mjpeg"), NULL);
    cr_assert_eq(c->status, S2_E_BROKEN);
    cr_assert_eq(c->n, 7);
    cr_assert_not_null(strstr(c->err.text, "frame 7 "), "%s", c->err.text);
    cr_assert_not_null(strstr(c->err.text, "80x32"), "%s", c->err.text);
    cr_assert_not_null(strstr(c->err.text, "64x48"), "%s", c->err.text);
    video_free(c);
    free(a);
    free(b);
    free(both);
}

/* Any byte may be wrong: neither a crash nor a hang, and frames of one size in order. */
Test(video_damage, random_damage_is_survived, .timeout = 60)
{
    static const char *const names[] = {"a.mp4", "a.mkv", "a.avi", "a.ts"};
    unsigned seed = 1;
    for (int i = 0; i < 60; i++) {
        struct make_clip m = {.frames = 12, .gop = 4};
        size_t size;
        const char *path = video_make(names[i % 4], m);
        uint8_t *bytes = video_slurp(path, &size);
        for (int k = 0; k < 1 + i; k++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[(seed >> 8) % size] = (uint8_t)(seed >> 24);
        }
        video_write(path, bytes, i % 3 ? size : size - seed % size / 2);
        free(bytes);
        struct video_clip *c = video_read(path, NULL);
        cr_assert(c->status == S2_OK || c->status == S2_E_INPUT || c->status == S2_E_BROKEN);
        for (int f = 1; f < c->n; f++) {
            cr_assert_eq(c->frame[f].index, f);
            cr_assert_gt(c->frame[f].pts, c->frame[f - 1].pts);
        }
        video_free(c);
    }
}

/* FFmpeg's demultiplexer takes a frame that is cut for the end of the stream. */
Test(video_damage, a_yuv4mpeg_stream_cut_in_a_frame)
{
    struct make_clip m = {.codec = "wrapped_avframe", .format = "yuv4mpegpipe", .pix_fmt = "yuv420p", .frames = 6};
    const char *path = video_make("a.y4m", m);
    size_t size;
    uint8_t *bytes = video_slurp(path, &size);
    const size_t frame = 6 + 64 * 48 * 3 / 2;
    const size_t cuts[] = {1, 5, 1000, frame - 7, frame - 6, frame - 3, frame - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const char *cut = video_path("cut.y4m");
        video_write(cut, bytes, size - cuts[i]);
        broken(cut, 5, 5);
    }
    const size_t whole[] = {0, frame};
    for (size_t i = 0; i < 2; i++) {
        const char *cut = video_path("cut.y4m");
        video_write(cut, bytes, size - whole[i]);
        struct video_clip *c = video_read(cut, NULL);
        cr_assert_eq(c->status, S2_OK, "%s", c->err.text);
        cr_assert_eq(c->n, 6 - (int)i);
        video_free(c);
    }
    free(bytes);
}

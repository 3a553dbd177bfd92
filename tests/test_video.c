/* Video input: frames, times, ranges, rotation, streams, and what is no clip. */
#include "video_fixture.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(video, .init = video_folder_make, .fini = video_folder_remove);

static void check_frames(const struct video_clip *c, const struct make_clip *m, int n, double within)
{
    cr_assert_eq(c->status, S2_OK, "%s", c->err.text);
    cr_assert_eq(c->n, n);
    cr_assert_eq(c->decoded, n);
    for (int i = 0; i < n; i++) {
        const struct fmt_frame *f = &c->frame[i];
        cr_assert_eq(f->index, i);
        cr_assert_float_eq(f->time, (double)make_clip_tick(m, i) / 250, within, "frame %d at %f", i, f->time);
        cr_assert_float_eq(f->time, (double)f->pts * c->info.time_base_num / c->info.time_base_den, 1e-9);
        if (i + 1 < n)
            cr_assert_eq(f->next_time, c->frame[i + 1].time);
        else
            cr_assert_eq(f->next_time, INFINITY);
        cr_assert_str_empty(f->stem);
        /* the grey block says which picture it is */
        int grey = i * 8;
        video_check_pixel(c, i, 8, 8, (int[3]){grey, grey, grey}, 6);
    }
}

Test(video, frames_and_times_of_containers)
{
    static const struct {
        const char *name, *codec;
        double within;
    } kinds[] = {{"a.mp4", "mpeg4", 1e-9}, {"a.mkv", "mpeg4", 1e-3},   {"a.avi", "mpeg4", 1e-9},
                 {"a.ts", "mpeg4", 1e-4},  {"b.mkv", "ffv1", 1e-3},    {"a.nut", "rawvideo", 1e-4},
                 {"c.avi", "mjpeg", 1e-9}, {"d.mp4", "libx264", 1e-9}, {"d.h264", "libx264", 1e-6}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        struct make_clip m = {.codec = kinds[i].codec, .frames = 23, .gop = 8, .pix_fmt = "yuv420p"};
        if (!strcmp(m.codec, "mjpeg")) m.pix_fmt = "yuvj420p", m.full = true;
        if (!make_clip_has_encoder(m.codec)) continue;
        const char *path = video_make(kinds[i].name, m);
        struct video_clip *c = video_read(path, NULL);
        check_frames(c, &m, 23, kinds[i].within);
        cr_assert_eq(c->info.width, 64);
        cr_assert_eq(c->info.height, 48);
        cr_assert_float_eq(c->info.fps, 25, 1e-6, "%s: %f fps", path, c->info.fps);
        cr_assert(c->info.reopens);
        cr_assert_not(c->info.is_stills);
        cr_assert_not(c->info.has_audio);
        cr_assert_eq(fmt_video_count(path, &(struct fmt_video_options){.end = -1, .stride = 1}), 23);
        video_free(c);
    }
}

Test(video, description)
{
    struct video_clip *c = video_read(video_make("a.mp4", (struct make_clip){.frames = 30, .audio = true}), NULL);
    cr_assert_str_eq(c->info.container, "mp4");
    cr_assert_str_eq(c->info.codec, "mpeg4");
    cr_assert_str_eq(c->info.pixel_format, "yuv420p");
    cr_assert_str_eq(c->info.color_space, "smpte170m");
    cr_assert_str_eq(c->info.color_range, "limited");
    cr_assert_eq(c->info.frames_hint, 30);
    cr_assert_float_eq(c->info.duration, 1.2, 0.01);
    cr_assert(c->info.has_audio);
    cr_assert_eq(c->n, 30);
    video_free(c);
}

Test(video, uneven_times_keep_every_frame_once)
{
    struct make_clip m = {.codec = "ffv1", .pix_fmt = "yuv420p", .frames = 20, .vfr = true};
    struct video_clip *c = video_read(video_make("v.mkv", m), NULL);
    check_frames(c, &m, 20, 1e-9);
    video_free(c);
    m.codec = "mpeg4";
    m.audio = true;
    c = video_read(video_make("v.mp4", m), NULL);
    check_frames(c, &m, 20, 1e-9);
    cr_assert(c->info.has_audio);
    video_free(c);
}

Test(video, range_and_stride)
{
    const char *path = video_make("a.mp4", (struct make_clip){.frames = 30});
    struct video_clip *c = video_read(path, &(struct fmt_video_options){.first = 3, .end = 20, .stride = 4});
    static const int want[] = {3, 7, 11, 15, 19};
    cr_assert_eq(c->status, S2_OK);
    cr_assert_eq(c->n, 5);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(c->frame[i].index, want[i]);
        cr_assert_float_eq(c->frame[i].time, want[i] / 25.0, 1e-9);
        cr_assert_float_eq(c->frame[i].next_time, (want[i] + 1) / 25.0, 1e-9);
        int grey = want[i] * 8;
        video_check_pixel(c, i, 8, 8, (int[3]){grey, grey, grey}, 6);
    }
    video_free(c);
    c = video_read(path, &(struct fmt_video_options){.first = 30, .end = -1, .stride = 1});
    cr_assert_eq(c->status, S2_OK);
    cr_assert_eq(c->n, 0);
    cr_assert_eq(c->info.width, 64);
    video_free(c);
    c = video_read(path, &(struct fmt_video_options){.first = 29, .end = 1000, .stride = INT64_MAX});
    cr_assert_eq(c->n, 1);
    cr_assert_eq(c->frame[0].next_time, INFINITY);
    video_free(c);
}

Test(video, known_ahead)
{
    const char *path = video_make("a.mp4", (struct make_clip){.frames = 40});
    static const struct {
        int64_t first, end, stride;
        int limit, want;
    } cases[] = {{0, -1, 1, 16, 16}, {0, 16, 1, 16, 16}, {0, 15, 1, 16, 15}, {30, -1, 1, 16, 10},
                 {0, -1, 3, 16, 14}, {0, -1, 1, 1, 1},   {50, -1, 1, 1, 0},  {0, -1, 1, 99, 16}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fmt_video *v;
        struct s2_err err = {0};
        struct fmt_video_options o = {.first = cases[i].first, .end = cases[i].end, .stride = cases[i].stride};
        cr_assert_eq(fmt_video_open(&v, path, &o, &err), S2_OK);
        cr_assert_eq(fmt_video_at_least(v, cases[i].limit), cases[i].want, "case %zu", i);
        uint8_t rgb[64 * 48 * 3];
        struct fmt_frame f = {.image = {.stride = 64 * 3, .rgb = rgb}};
        int n = 0;
        for (bool got = true; got; n += got) cr_assert_eq(fmt_video_next(v, &f, &got, &err), S2_OK);
        int64_t last = cases[i].end < 0 ? 40 : cases[i].end;
        cr_assert_eq(n, last > cases[i].first ? (last - cases[i].first + cases[i].stride - 1) / cases[i].stride : 0);
        fmt_video_close(v);
    }
}

Test(video, decodes_only_a_little_ahead)
{
    const char *path = video_make("a.mkv", (struct make_clip){.codec = "ffv1", .frames = 100, .pix_fmt = "yuv420p"});
    struct fmt_video *v;
    struct s2_err err = {0};
    cr_assert_eq(fmt_video_open(&v, path,
                                &(struct fmt_video_options){.end = -1, .stride = 1, .threads = 1, .convert_threads = 1},
                                &err),
                 S2_OK);
    usleep(200000);
    int64_t n = fmt_video_decoded(v);
    cr_assert(n >= 4 && n <= 10, "%d frames", (int)n);
    cr_assert_eq(fmt_video_at_least(v, 16), 16);
    usleep(100000);
    cr_assert_leq(fmt_video_decoded(v), 22);
    fmt_video_close(v);
}

/* Several threads convert: the same frames in the same order, up to the same end. */
static void expect_same(const char *path, enum s2_status status)
{
    struct fmt_video_options o = {.end = -1, .stride = 1, .convert_threads = 1};
    struct video_clip *one = video_read(path, &o);
    o.convert_threads = 4;
    struct video_clip *four = video_read(path, &o);
    cr_assert_eq(one->status, status, "%s", one->err.text);
    cr_assert_eq(four->status, status, "%s", four->err.text);
    cr_assert_str_eq(one->err.text, four->err.text);
    cr_assert_eq(one->n, four->n);
    cr_assert_gt(one->n, 4);
    for (int i = 0; i < one->n; i++) {
        const struct fmt_frame *a = &one->frame[i], *b = &four->frame[i];
        cr_assert_eq(a->index, b->index);
        cr_assert_eq(a->pts, b->pts);
        cr_assert_eq(a->time, b->time);
        cr_assert_arr_eq(a->image.rgb, b->image.rgb, a->image.stride * (size_t)one->info.height);
    }
    video_free(one);
    video_free(four);
}

Test(video, several_threads_convert)
{
    const struct make_clip clip = {.codec = "ffv1", .frames = 60, .pix_fmt = "yuv420p"};
    const char *path = video_make("a.mkv", clip);
    expect_same(path, S2_OK);
    size_t n;
    uint8_t *bytes = video_slurp(path, &n);
    video_write(video_path("cut.mkv"), bytes, n * 2 / 3);
    free(bytes);
    expect_same(video_path("cut.mkv"), S2_E_BROKEN);
}

Test(video, one_frame_and_none)
{
    struct make_clip m = {.frames = 1};
    struct video_clip *c = video_read(video_make("one.mp4", m), NULL);
    check_frames(c, &m, 1, 1e-9);
    video_free(c);
    c = video_read(video_make("none.avi", (struct make_clip){.frames = -1}), NULL);
    cr_assert_eq(c->status, S2_E_INPUT);
    video_free(c);
}

Test(video, threads_do_not_change_pixels)
{
    const char *path = video_make("a.mp4", (struct make_clip){.frames = 30, .width = 126, .height = 94});
    struct video_clip *one = video_read(path, &(struct fmt_video_options){.end = -1, .stride = 1, .threads = 1});
    struct video_clip *many = video_read(path, &(struct fmt_video_options){.end = -1, .stride = 1, .threads = 5});
    cr_assert_eq(one->n, 30);
    cr_assert_eq(many->n, 30);
    for (int i = 0; i < 30; i++)
        cr_assert_arr_eq(one->frame[i].image.rgb, many->frame[i].image.rgb, 126 * 94 * 3, "frame %d", i);
    video_free(one);
    video_free(many);
}

/* ------------------------------------------------------------------ rotation */

static const int corner[4][3] = {{220, 30, 30}, {30, 200, 30}, {30, 30, 210}, {200, 200, 30}};

/* Upper left, upper right, lower left, lower right quarter in the colours above. */
static void paint_corners(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    const int *rgb = corner[(x >= 32) + 2 * (y >= 24)];
    (void)ctx, (void)frame;
    double luma = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
    value[0] = (uint16_t)lrint(16 + luma * 219 / 255);
    value[1] = (uint16_t)lrint(128 + (rgb[2] - luma) / 1.772 * 224 / 255);
    value[2] = (uint16_t)lrint(128 + (rgb[0] - luma) / 1.402 * 224 / 255);
}

Test(video, rotation_is_applied)
{
    /* which quarter of the coded picture a player shows upper left, upper right, lower left, lower right */
    static const struct {
        int degrees;
        bool mirror;
        int shown[4], reported;
    } turns[] = {{0, false, {0, 1, 2, 3}, 0},     {90, false, {2, 0, 3, 1}, 90}, {180, false, {3, 2, 1, 0}, 180},
                 {270, false, {1, 3, 0, 2}, 270}, {0, true, {1, 0, 3, 2}, 0},    {90, true, {0, 2, 1, 3}, 90}};
    for (size_t i = 0; i < sizeof(turns) / sizeof(*turns); i++) {
        struct make_clip m = {
            .frames = 2, .rotate = turns[i].degrees, .mirror = turns[i].mirror, .paint = paint_corners};
        struct video_clip *c = video_read(video_make("r.mp4", m), NULL);
        bool upright = turns[i].degrees % 180 == 0;
        int w = upright ? 64 : 48, h = upright ? 48 : 64;
        cr_assert_eq(c->n, 2);
        cr_assert_eq(c->info.width, w);
        cr_assert_eq(c->info.height, h);
        cr_assert_eq(c->frame[0].image.width, w);
        cr_assert_eq(c->info.rotation, turns[i].reported);
        for (int q = 0; q < 4; q++)
            video_check_pixel(c, 1, q % 2 ? w - 4 : 3, q / 2 ? h - 4 : 3, corner[turns[i].shown[q]], 6);
        video_free(c);
    }
}

/* ------------------------------------------------------------------ streams */

/* Runs a child that copies `n` bytes of the file into fd, then waits for `linger` seconds before it closes it. */
static pid_t feed(int fd, const char *path, size_t n, unsigned linger)
{
    pid_t child = fork();
    if (child) return child;
    char *bytes = malloc(n);
    int from = open(path, O_RDONLY);
    ssize_t got = read(from, bytes, n), put = 0;
    while (put < got) {
        ssize_t k = write(fd, bytes + put, (size_t)(got - put));
        if (k <= 0) break;
        put += k;
    }
    if (linger) sleep(linger);
    _exit(0);
}

Test(video, standard_input)
{
    struct make_clip m = {.frames = 50, .gop = 10};
    const char *path = video_make("a.mkv", m);
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = feed(ends[1], path, 1 << 24, 0);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    m.frames = 31; /* the grey block wraps after 32 */
    struct video_clip *c = video_read("-", &(struct fmt_video_options){.end = 31, .stride = 1});
    cr_assert_eq(c->n, 31, "%s", c->err.text);
    cr_assert_not(c->info.reopens);
    for (int i = 0; i < 31; i++) video_check_pixel(c, i, 8, 8, (int[3]){i * 8, i * 8, i * 8}, 6);
    video_free(c);
    close(ends[0]);
    close(STDIN_FILENO);
    waitpid(child, NULL, 0);
    cr_assert_eq(fmt_video_count("-", &(struct fmt_video_options){.end = -1, .stride = 1}), -1);
}

Test(video, standard_input_from_a_file_can_seek)
{
    const char *path = video_make("a.mp4", (struct make_clip){.frames = 12}); /* its index is at the end */
    int fd = open(path, O_RDONLY);
    dup2(fd, STDIN_FILENO);
    struct video_clip *c = video_read("-", NULL);
    cr_assert_eq(c->status, S2_OK, "%s", c->err.text);
    cr_assert_eq(c->n, 12);
    video_free(c);
    close(fd);
}

Test(video, closing_does_not_wait_for_a_stalled_stream)
{
    const char *path = video_make("a.mkv", (struct make_clip){.frames = 200, .width = 320, .height = 240, .gop = 5});
    struct stat st;
    struct fmt_video *v;
    struct s2_err err = {0};
    int ends[2];
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(pipe(ends), 0);
    pid_t child = feed(ends[1], path, (size_t)st.st_size / 2, 20);
    dup2(ends[0], STDIN_FILENO);
    cr_assert_eq(fmt_video_open(&v, "-", &(struct fmt_video_options){.first = 150, .end = -1, .stride = 1}, &err),
                 S2_OK, "%s", err.text);
    usleep(300000); /* the decoder now waits for bytes that do not come */
    double start = s2_now();
    fmt_video_close(v);
    cr_assert_lt(s2_now() - start, 2);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

Test(video, closing_at_any_moment)
{
    const char *path = video_make("a.mp4", (struct make_clip){.frames = 200, .width = 320, .height = 240});
    static uint8_t rgb[320 * 240 * 3];
    for (int frames = 0; frames < 12; frames += 3) {
        struct fmt_video *v;
        struct s2_err err = {0};
        struct fmt_frame f = {.image = {.stride = 320 * 3, .rgb = rgb}};
        bool got;
        cr_assert_eq(fmt_video_open(&v, path, &(struct fmt_video_options){.end = -1, .stride = 1}, &err), S2_OK);
        for (int i = 0; i < frames; i++) cr_assert_eq(fmt_video_next(v, &f, &got, &err), S2_OK);
        double start = s2_now();
        fmt_video_close(v);
        cr_assert_lt(s2_now() - start, 2);
    }
    fmt_video_close(NULL);
}

/* ------------------------------------------------------------------ names and refusals */

Test(video, percent_in_a_real_name)
{
    static const char *const names[] = {"100%.mp4", "a%03d.mp4", "b:c d.mp4"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct video_clip *c = video_read(video_make(names[i], (struct make_clip){.frames = 3}), NULL);
        cr_assert_eq(c->n, 3, "%s", c->err.text);
        video_free(c);
    }
}

static void refused(const char *path, const char *because)
{
    struct video_clip *c = video_read(path, NULL);
    cr_assert_eq(c->status, S2_E_INPUT, "%s: status %d, %d frames", path, c->status, c->n);
    cr_assert_not_null(strstr(c->err.text, because), "%s", c->err.text);
    cr_assert_null(strchr(c->err.text, '\n'));
    video_free(c);
}

Test(video, what_is_no_clip_is_refused_with_a_reason)
{
    static const uint8_t wav[44 + 800] =
        "RIFF\x44\x03\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0data\x20\x03\0";
    uint8_t noise[4096];
    for (size_t i = 0; i < sizeof(noise); i++) noise[i] = (uint8_t)(i * i * 31 + i / 7);
    video_write(video_path("sound.wav"), wav, sizeof(wav));
    video_write(video_path("noise.mp4"), noise, sizeof(noise));
    video_write(video_path("empty.mp4"), noise, 0);
    video_write(video_path("notes.txt"), "one\ntwo\nthree\n", 14);
    char *prose = malloc(4000); /* FFmpeg would draw this as the screen of a terminal */
    for (int i = 0; i < 4000; i++) prose[i] = "plain words\n"[i % 12];
    video_write(video_path("long.txt"), prose, 4000);
    free(prose);
    video_write(video_path("prompts.json"), "{\"prompts\": []}", 15);
    mkdir(video_path("folder"), 0777);
    refused(video_path("missing.mp4"), "no such file");
    refused(video_path("missing%%d.mp4"), "no file matches");
    refused(video_path("sound.wav"), "no video stream");
    refused(video_path("noise.mp4"), "not a video");
    refused(video_path("empty.mp4"), "empty");
    refused(video_path("notes.txt"), "not a video");
    refused(video_path("long.txt"), "");
    refused(video_path("prompts.json"), "not a video");
    refused(video_path("folder"), "no PNG or JPEG");
    refused("http://localhost/a.mp4", "--allow-network");
    refused("rtsp://localhost/a", "--allow-network");
    refused("/dev/null", "not a video");
    if (geteuid()) {
        const char *secret = video_make("secret.mp4", (struct make_clip){.frames = 1});
        chmod(secret, 0);
        refused(secret, "ermission");
    }
}

Test(video, playlists_do_not_reach_the_network)
{
    static const char list[] =
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n";
    video_write(video_path("list.m3u8"), list, sizeof(list) - 1);
    struct video_clip *c = video_read(video_path("list.m3u8"), NULL);
    cr_assert_eq(c->status, S2_E_INPUT);
    video_free(c);
}

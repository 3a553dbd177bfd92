/* The overlay: what is painted where, and the video that comes out of it: frames, times, size, colours, sound. */
#include "../formats/sink.h"
#include "make_clip.h"
#include "outputs_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

TestSuite(overlay, .init = fix_make_folder, .fini = fix_remove_folder, .timeout = 60);

/* ------------------------------------------------------------------ painting */

enum { W = 320, H = 240, GREY = 100 };

enum { STRIDE = W + 5 };

struct scene {
    struct fmt_canvas canvas;
    uint8_t *planes;
    uint16_t *owner;
    struct fmt_painter *painter;
};

static struct fmt_canvas canvas_of(uint8_t *planes, int width, int height, size_t stride)
{
    struct fmt_canvas c = {.width = width, .height = height, .stride = {stride, stride, stride}};
    for (int i = 0; i < 3; i++) c.plane[i] = planes + i * stride * height;
    return c;
}

static struct scene new_scene(const struct fmt_object *objects, size_t n)
{
    struct scene s = {.planes = malloc(3 * STRIDE * H), .owner = calloc(W * H, sizeof(uint16_t))};
    struct s2_err err = {0};
    cr_assert(s.planes && s.owner);
    memset(s.planes, GREY, 3 * STRIDE * H);
    s.canvas = canvas_of(s.planes, W, H, STRIDE);
    cr_assert_eq(fmt_painter_open(&s.painter, W, H, false, objects, n, &err), S2_OK, "%s", err.text);
    return s;
}

static void free_scene(struct scene *s)
{
    fmt_painter_free(s->painter);
    free(s->planes);
    free(s->owner);
}

static void fill(struct scene *s, int x0, int y0, int x1, int y1, uint16_t owner)
{
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) s->owner[y * W + x] = owner;
}

struct pixel {
    uint8_t c[3]; /* YUV */
};

static struct pixel pixel(const struct scene *s, int x, int y)
{
    struct pixel p;
    for (int c = 0; c < 3; c++) p.c[c] = s->canvas.plane[c][(size_t)y * STRIDE + x];
    return p;
}

static int difference(struct pixel a, struct pixel b)
{
    return abs(a.c[0] - b.c[0]) + abs(a.c[1] - b.c[1]) + abs(a.c[2] - b.c[2]);
}

static bool untouched(const struct scene *s, int x, int y)
{
    return difference(pixel(s, x, y), (struct pixel){{GREY, GREY, GREY}}) == 0;
}

static int changed_in(const struct scene *s, int x0, int y0, int x1, int y1)
{
    int n = 0;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) n += !untouched(s, x, y);
    return n;
}

Test(overlay, the_mask_is_tinted_and_the_rest_is_left_alone)
{
    struct fmt_object objects[2] = {{1, NULL}, {7, NULL}};
    struct scene s = new_scene(objects, 2);
    fill(&s, 60, 100, 140, 180, 1);
    fill(&s, 200, 100, 260, 180, 2);
    fill(&s, 10, 200, 20, 210, 9); /* of no object */
    fmt_painter_draw(s.painter, &s.canvas, s.owner);
    cr_assert_eq(changed_in(&s, 66, 106, 134, 174), 68 * 68, "not all of the inside is tinted");
    cr_assert(difference(pixel(&s, 80, 140), pixel(&s, 120, 140)) == 0, "one tint inside");
    cr_assert(difference(pixel(&s, 100, 140), pixel(&s, 230, 140)) > 20, "objects look the same");
    cr_assert_eq(changed_in(&s, 0, 0, 50, H), 0);
    cr_assert_eq(changed_in(&s, 150, 0, 190, H), 0);
    cr_assert_eq(changed_in(&s, 0, 190, W, H), 0);
    cr_assert_eq(changed_in(&s, 0, 0, W, 60), 0);
    /* the outline is stronger than the tint, and lies on the border */
    const struct pixel grey = {{GREY, GREY, GREY}};
    cr_assert_gt(difference(pixel(&s, 60, 140), grey), difference(pixel(&s, 100, 140), grey));
    for (int y = 0; y < 3 * H; y++) /* the padding of the rows is not the painter's */
        for (int i = W; i < STRIDE; i++) cr_assert_eq(s.planes[(size_t)y * STRIDE + i], GREY);
    free_scene(&s);
}

Test(overlay, the_label_stands_above_and_inside_the_frame)
{
    struct fmt_object objects[1] = {{42, "tail"}};
    struct scene s = new_scene(objects, 1);
    fill(&s, 100, 120, 200, 200, 1);
    fmt_painter_draw(s.painter, &s.canvas, s.owner);
    cr_assert_gt(changed_in(&s, 100, 90, 200, 114), 200, "no label above the object");
    uint8_t dark = 255;
    for (int y = 90; y < 114; y++)
        for (int x = 100; x < 200; x++) dark = pixel(&s, x, y).c[0] < dark ? pixel(&s, x, y).c[0] : dark;
    cr_assert_lt(dark, 40, "no dark letters");
    free_scene(&s);

    s = new_scene(objects, 1); /* no room above, nor on the right */
    fill(&s, 312, 0, 320, 8, 1);
    fmt_painter_draw(s.painter, &s.canvas, s.owner);
    cr_assert_gt(changed_in(&s, 270, 0, 320, 30), 300);
    free_scene(&s);
}

Test(overlay, frames_do_not_leak_into_each_other)
{
    struct fmt_object objects[1] = {{1, NULL}};
    struct scene s = new_scene(objects, 1);
    fill(&s, 20, 60, 90, 130, 1);
    fmt_painter_draw(s.painter, &s.canvas, s.owner);
    memset(s.planes, GREY, 3 * STRIDE * H);
    memset(s.owner, 0, W * H * sizeof *s.owner);
    fmt_painter_draw(s.painter, &s.canvas, s.owner);
    cr_assert_eq(changed_in(&s, 0, 0, W, H), 0);
    free_scene(&s);
}

/* Every border and corner of the picture, and more labels than fit: nothing outside is touched. */
Test(overlay, crowded_and_tiny_pictures)
{
    static struct fmt_object objects[300];
    for (int i = 0; i < 300; i++)
        objects[i] = (struct fmt_object){i + 1, i % 2 ? "a longer label than would ever fit ~" : NULL};
    static const int sizes[][2] = {{1, 1}, {2, 7}, {17, 3}, {64, 64}, {5, 200}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int w = sizes[i][0], h = sizes[i][1];
        size_t pixels = (size_t)w * h;
        struct fmt_painter *p;
        uint8_t *planes = malloc(3 * pixels + 16);
        uint16_t *owner = malloc(pixels * sizeof *owner);
        cr_assert(planes && owner);
        memset(planes, GREY, 3 * pixels + 16);
        for (size_t k = 0; k < pixels; k++) owner[k] = (uint16_t)(k * 7 % 301);
        cr_assert_eq(fmt_painter_open(&p, w, h, true, objects, 300, NULL), S2_OK);
        const struct fmt_canvas canvas = canvas_of(planes, w, h, (size_t)w);
        fmt_painter_draw(p, &canvas, owner);
        for (int k = 0; k < 16; k++) cr_assert_eq(planes[3 * pixels + k], GREY);
        fmt_painter_free(p);
        free(planes);
        free(owner);
    }
}

Test(overlay, letters_have_ink_and_width)
{
    struct fmt_letters *l = fmt_letters_open(10);
    cr_assert_not_null(l);
    for (char c = '!'; c <= '~'; c++) {
        uint8_t planes[3 * 40 * 40];
        const struct fmt_canvas canvas = canvas_of(planes, 40, 40, 40);
        memset(planes, 255, sizeof planes);
        fmt_letters_draw(l, &canvas, 10, 10, (char[2]){c, 0}, (uint8_t[3]){0, 0, 0});
        int ink = 0;
        for (size_t i = 0; i < 40 * 40; i++) ink += planes[i] < 200;
        cr_assert_geq(ink, 1, "'%c' is empty", c);
        cr_assert_leq(ink, 100, "'%c' is a blot", c);
    }
    cr_assert_lt(fmt_letters_width(l, "i"), fmt_letters_width(l, "m"));
    cr_assert_eq(fmt_letters_width(l, "\xc3\xa4"), fmt_letters_width(l, "?"), "a character of two bytes is one letter");
    cr_assert_eq(fmt_letters_width(l, ""), 0);
    fmt_letters_free(l);
}

/* ------------------------------------------------------------------ the video */

struct movie {
    int frames, width, height, format, audio_packets;
    enum AVColorSpace space;
    enum AVColorRange range;
    enum AVCodecID codec, audio_codec;
    double time[64], duration, audio_start, audio_end;
    uint8_t corner[3]; /* YUV of the first frame's last pixel */
};

static void read_frames(struct movie *m, AVCodecContext *decoder, const AVStream *st)
{
    AVFrame *frame = av_frame_alloc();
    while (avcodec_receive_frame(decoder, frame) == 0) {
        cr_assert_lt(m->frames, 64);
        if (m->frames == 0)
            for (int c = 0; c < 3; c++) {
                int shift = c ? 1 : 0;
                m->corner[c] =
                    frame->data[c][((frame->height >> shift) - 1) * frame->linesize[c] + (frame->width >> shift) - 1];
            }
        m->time[m->frames++] = (double)frame->pts * av_q2d(st->time_base);
        m->format = frame->format;
        m->width = frame->width;
        m->height = frame->height;
        m->space = frame->colorspace;
        m->range = frame->color_range;
    }
    av_frame_free(&frame);
}

static struct movie read_movie(const char *name)
{
    struct movie m = {.audio_start = INFINITY};
    AVFormatContext *in = NULL;
    cr_assert_eq(avformat_open_input(&in, fix_in(name), NULL, NULL), 0, "%s does not open", name);
    cr_assert_geq(avformat_find_stream_info(in, NULL), 0);
    int best = av_find_best_stream(in, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    cr_assert_geq(best, 0);
    const AVStream *st = in->streams[best];
    AVCodecContext *decoder = avcodec_alloc_context3(avcodec_find_decoder(st->codecpar->codec_id));
    avcodec_parameters_to_context(decoder, st->codecpar);
    cr_assert_eq(avcodec_open2(decoder, NULL, NULL), 0);
    m.codec = st->codecpar->codec_id;
    AVPacket *packet = av_packet_alloc();
    while (av_read_frame(in, packet) == 0) {
        const AVStream *from = in->streams[packet->stream_index];
        if (from == st) {
            avcodec_send_packet(decoder, packet);
            read_frames(&m, decoder, st);
        } else if (from->codecpar->codec_type == AVMEDIA_TYPE_AUDIO) {
            double start = (double)packet->pts * av_q2d(from->time_base);
            double end = start + (double)packet->duration * av_q2d(from->time_base);
            m.audio_codec = from->codecpar->codec_id;
            m.audio_packets++;
            m.audio_start = fmin(m.audio_start, start);
            m.audio_end = fmax(m.audio_end, end);
        }
        av_packet_unref(packet);
    }
    avcodec_send_packet(decoder, NULL);
    read_frames(&m, decoder, st);
    m.duration = (double)in->duration / AV_TIME_BASE;
    av_packet_free(&packet);
    avcodec_free_context(&decoder);
    avformat_close_input(&in);
    return m;
}

static void make(const struct make_clip *clip)
{
    char why[256];
    cr_assert(make_clip(clip, why, sizeof why), "%s", why);
}

/* The run of a tracker that finds the fixture's objects in every frame. */
static enum s2_status overlay_of(const char *input, const char *output, const struct fmt_video_options *options,
                                 int most, struct s2_err *err)
{
    struct fmt_video *video = NULL;
    enum s2_status status = fmt_video_open(&video, input, options, err);
    cr_assert_eq(status, S2_OK, "%s", err->text);
    const struct fmt_video_info *info = fmt_video_get_info(video);
    struct fmt_outputs_config c = fix_config();
    c.overlay_path = output;
    c.input_path = input;
    c.width = info->width;
    c.height = info->height;
    c.time_base_num = info->time_base_num;
    c.time_base_den = info->time_base_den;
    c.fps = info->fps;
    c.colors = info->colors;
    c.aspect_num = info->aspect_num;
    c.aspect_den = info->aspect_den;
    struct fmt_outputs *o = fix_open_run(&c);
    for (bool got = true; got && most--;) {
        struct fmt_record *r = fmt_outputs_take(o);
        if (!r) break;
        cr_assert_eq(fmt_video_next(video, &r->frame, &got, err), S2_OK, "%s", err->text);
        for (int y = 0; y < c.height; y++)
            for (int x = 0; x < c.width; x++) r->owner[y * c.width + x] = x > 20 && x < 50 && y > 20 && y < 40;
        if (got)
            fmt_outputs_put(o, r);
        else
            fmt_outputs_return(o, r);
    }
    fmt_video_close(video);
    return fmt_outputs_finish(o, err);
}

static const struct fmt_video_options whole = {.end = -1, .stride = 1, .threads = 1};

static struct movie overlay_movie(const char *input, const char *output, const struct fmt_video_options *options,
                                  int most)
{
    struct s2_err err = {0};
    cr_assert_eq(overlay_of(fix_in(input), fix_in(output), options, most, &err), S2_OK, "%s", err.text);
    cr_assert_eq(fix_count_files(""), 2, "something temporary is left");
    return read_movie(output);
}

Test(overlay, a_movie_that_plays_everywhere)
{
    make(&(struct make_clip){
        .path = fix_in("in.mp4"), .codec = "mpeg4", .width = 95, .height = 61, .frames = 30, .fps = 25, .audio = true});
    struct movie m = overlay_movie("in.mp4", "out.mp4", &whole, -1);
    cr_assert_eq(m.frames, 30);
    cr_assert(m.width == 96 && m.height == 62, "%d x %d", m.width, m.height);
    cr_assert_eq(m.format, AV_PIX_FMT_YUV420P);
    cr_assert(m.space == AVCOL_SPC_SMPTE170M && m.range == AVCOL_RANGE_MPEG);
    if (avcodec_find_encoder_by_name("libx264")) cr_assert_eq(m.codec, AV_CODEC_ID_H264);
    for (int i = 0; i < 30; i++) cr_assert_float_eq(m.time[i], i / 25.0, 1e-4, "frame %d at %f", i, m.time[i]);
    cr_assert_float_eq(m.duration, 30 / 25.0, 0.03);
    cr_assert_gt(m.audio_packets, 0, "silent");
    cr_assert(m.audio_start < 0.03 && m.audio_end > 1.1 && m.audio_end < 1.3, "sound from %f to %f", m.audio_start,
              m.audio_end);
    /* RGB 252 251 64 in BT.601; BT.709 would have Y 220 */
    cr_assert(abs(m.corner[0] - 213) < 5 && abs(m.corner[1] - 46) < 6 && abs(m.corner[2] - 142) < 6, "YUV %d %d %d",
              m.corner[0], m.corner[1], m.corner[2]);
    const char *head = fix_read_all("out.mp4");
    int moov = 0, mdat = 0;
    for (int i = 0; i < 60000; i++) {
        if (!moov && memcmp(head + i, "moov", 4) == 0) moov = i;
        if (!mdat && memcmp(head + i, "mdat", 4) == 0) mdat = i;
    }
    cr_assert(moov && moov < mdat, "the index is not in front");
}

Test(overlay, varying_frame_times_are_kept)
{
    struct make_clip clip = {
        .path = fix_in("in.mkv"), .codec = "ffv1", .width = 64, .height = 48, .frames = 12, .fps = 20, .vfr = true};
    make(&clip);
    struct movie m = overlay_movie("in.mkv", "out.mp4", &whole, -1);
    cr_assert_eq(m.frames, 12);
    for (int i = 0; i < 12; i++) {
        double time = (double)(make_clip_tick(&clip, i) - make_clip_tick(&clip, 0)) / 200;
        cr_assert_float_eq(m.time[i], time, 0.0011, "frame %d at %f, not %f", i, m.time[i], time);
    }
}

Test(overlay, a_range_starts_at_zero_and_skips_in_step)
{
    make(&(struct make_clip){
        .path = fix_in("in.mkv"), .codec = "mpeg4", .width = 64, .height = 48, .frames = 60, .fps = 25, .audio = true});
    struct movie m =
        overlay_movie("in.mkv", "out.mkv", &(struct fmt_video_options){.first = 10, .end = 50, .stride = 4}, -1);
    cr_assert_eq(m.frames, 10);
    for (int i = 0; i < 10; i++) cr_assert_float_eq(m.time[i], 4 * i / 25.0, 0.0011, "frame %d at %f", i, m.time[i]);
    cr_assert(m.audio_packets > 0 && m.audio_start < 0.06 && m.audio_end > 1.3 && m.audio_end < 1.6,
              "sound from %f to %f", m.audio_start, m.audio_end);
}

Test(overlay, sound_that_does_not_fit_is_left_out)
{
    if (!avcodec_find_encoder_by_name("libvpx-vp9") && !avcodec_find_encoder_by_name("libvpx")) return;
    make(&(struct make_clip){
        .path = fix_in("in.mp4"), .codec = "mpeg4", .width = 64, .height = 48, .frames = 5, .fps = 25, .audio = true});
    struct movie m = overlay_movie("in.mp4", "out.webm", &whole, -1);
    cr_assert_eq(m.frames, 5);
    cr_assert_eq(m.audio_packets, 0, "AAC in WebM");
}

Test(overlay, a_run_that_stops_early_leaves_a_movie)
{
    make(&(struct make_clip){
        .path = fix_in("in.mp4"), .codec = "mpeg4", .width = 64, .height = 48, .frames = 20, .fps = 25});
    struct movie m = overlay_movie("in.mp4", "out.mov", &whole, 3);
    cr_assert_eq(m.frames, 3);
    cr_assert_float_eq(m.duration, 3 / 25.0, 0.01, "%f s", m.duration);
    struct s2_err err = {0};
    cr_assert_eq(overlay_of(fix_in("in.mp4"), fix_in("one.mp4"), &whole, 1, &err), S2_OK, "%s", err.text);
    m = read_movie("one.mp4");
    cr_assert(m.frames == 1 && fabs(m.duration - 1 / 25.0) < 0.001, "%d frames, %f s", m.frames, m.duration);
    cr_assert_eq(overlay_of(fix_in("in.mp4"), fix_in("none.mp4"), &whole, 0, &err), S2_OK, "%s", err.text);
    cr_assert(!fix_exists("none.mp4") && !fix_exists("none.mp4.part"), "a video without a frame");
}

Test(overlay, a_disk_without_room_is_reported)
{
    make(&(struct make_clip){
        .path = fix_in("in.mp4"), .codec = "mpeg4", .width = 320, .height = 240, .frames = 60, .fps = 25});
    const rlim_t before = fix_limit_files(16 << 10);
    struct s2_err err = {0};
    enum s2_status status = overlay_of(fix_in("in.mp4"), fix_in("out.mp4"), &whole, -1, &err);
    fix_limit_files(before);
    cr_assert_eq(status, S2_E_OUTPUT);
    cr_assert_not_null(strstr(err.text, "out.mp4: cannot be written: File too large; nothing of it is kept"), "%s",
                       err.text);
    cr_assert_eq(fix_count_files(""), 1, "half a movie is left");
}

Test(overlay, unknown_endings_are_refused)
{
    struct fmt_outputs_config c = fix_config();
    c.overlay_path = fix_in("out.avi");
    fix_open_fails(&c, S2_E_USAGE, "--overlay writes .mp4");
    c.overlay_path = "-";
    fix_open_fails(&c, S2_E_USAGE, "--overlay writes .mp4");
}

/* Masks from stills: what counts as inside, in each kind of picture. */
#include "video_fixture.h"

#include <criterion/criterion.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(mask_read, .init = video_folder_make, .fini = video_folder_remove);

enum { W = 13, H = 5 };

/* Writes a PNG whose samples are sample(x, y, channel). */
static const char *put_png(const char *name, int color, int depth, int interlace, int (*sample)(int x, int y, int k))
{
    const char *path = video_path("%s", name);
    FILE *file = fopen(path, "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_color palette[256];
    for (int i = 0; i < 256; i++) palette[i] = (png_color){0, 0, 0}; /* colours say nothing */
    png_init_io(png, file);
    png_set_IHDR(png, info, W, H, depth, color, interlace, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (color == PNG_COLOR_TYPE_PALETTE) {
        uint8_t clear[4] = {0, 0, 0, 0};
        png_set_PLTE(png, info, palette, 1 << depth);
        png_set_tRNS(png, info, clear, 2, NULL);
    }
    png_write_info(png, info);
    int channels = png_get_channels(png, info);
    uint8_t rows[H][W * 8] = {{0}};
    png_bytep row[H];
    for (int y = 0; y < H; y++) {
        row[y] = rows[y];
        for (int x = 0; x < W; x++)
            for (int k = 0; k < channels; k++) {
                int v = sample(x, y, k), i = x * channels + k;
                if (depth == 16)
                    rows[y][2 * i] = (uint8_t)(v >> 8), rows[y][2 * i + 1] = (uint8_t)v;
                else
                    rows[y][i] = (uint8_t)v;
            }
    }
    if (depth < 8) png_set_packing(png);
    png_set_interlace_handling(png);
    png_write_image(png, row);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    fclose(file);
    return path;
}

static void check(const char *path, int value, bool (*inside)(int x, int y))
{
    struct s2_bits bits;
    struct s2_err err = {0};
    cr_assert_eq(fmt_mask_read(path, value, &bits, &err), S2_OK, "%s", err.text);
    cr_assert_eq(bits.width, W);
    cr_assert_eq(bits.height, H);
    for (int y = 0; y < H; y++) {
        const uint8_t *row = bits.data + (size_t)y * bits.stride;
        for (int x = 0; x < W; x++)
            cr_assert_eq(row[x / 8] >> (7 - x % 8) & 1, inside(x, y), "%s, value %d: (%d,%d)", path, value, x, y);
        cr_assert_eq(row[W / 8] & (0xff >> W % 8), 0, "bits behind the width");
    }
    free(bits.data);
}

static void refused(const char *path, int value, const char *because)
{
    struct s2_bits bits;
    struct s2_err err = {0};
    cr_assert_eq(fmt_mask_read(path, value, &bits, &err), S2_E_USAGE);
    cr_assert_not_null(strstr(err.text, because), "%s", err.text);
    cr_assert_not_null(strstr(err.text, strrchr(path, '/')), "%s", err.text);
    cr_assert_null(bits.data);
}

static int diagonal4(int x, int y, int k)
{
    return (void)k, (x + y) % 4;
}
static bool not_0(int x, int y)
{
    return (x + y) % 4 != 0;
}
static bool is_2(int x, int y)
{
    return (x + y) % 4 == 2;
}
static bool nowhere(int x, int y)
{
    return (void)x, (void)y, false;
}

Test(mask_read, palette_index_not_its_colour)
{
    for (int interlace = 0; interlace < 2; interlace++) {
        check(put_png("p8.png", PNG_COLOR_TYPE_PALETTE, 8, interlace, diagonal4), -1, not_0);
        check(put_png("p4.png", PNG_COLOR_TYPE_PALETTE, 4, interlace, diagonal4), 2, is_2);
        check(put_png("p2.png", PNG_COLOR_TYPE_PALETTE, 2, interlace, diagonal4), 2, is_2);
        check(put_png("p2.png", PNG_COLOR_TYPE_PALETTE, 2, interlace, diagonal4), 9, nowhere);
    }
}

static int checkers(int x, int y, int k)
{
    return (void)k, (x + y) % 2;
}
static int checkers255(int x, int y, int k)
{
    return 255 * checkers(x, y, k);
}
static int bands16(int x, int y, int k)
{
    return (void)k, x < 4 ? 0 : x < 8 ? 1 : 256 * (y + 1);
}
static bool odd(int x, int y)
{
    return (x + y) % 2;
}
static bool right(int x, int y)
{
    return (void)y, x >= 4;
}
static bool third_band(int x, int y)
{
    return x >= 8 && y == 2;
}

Test(mask_read, grey)
{
    check(put_png("g1.png", PNG_COLOR_TYPE_GRAY, 1, 0, checkers), -1, odd);
    check(put_png("g1.png", PNG_COLOR_TYPE_GRAY, 1, 0, checkers), 1, odd);
    check(put_png("g8.png", PNG_COLOR_TYPE_GRAY, 8, 0, checkers255), -1, odd);
    check(put_png("g8.png", PNG_COLOR_TYPE_GRAY, 8, 0, checkers255), 255, odd);
    check(put_png("g8.png", PNG_COLOR_TYPE_GRAY, 8, 0, diagonal4), 2, is_2);
    check(put_png("g16.png", PNG_COLOR_TYPE_GRAY, 16, 0, bands16), -1, right);
    check(put_png("g16.png", PNG_COLOR_TYPE_GRAY, 16, 0, bands16), 768, third_band);
}

static int cutout(int x, int y, int k)
{
    return k == 3 ? checkers255(x, y, 0) : 90;
}
static int cutout_grey(int x, int y, int k)
{
    return k == 1 ? checkers255(x, y, 0) : 255;
}
static int opaque(int x, int y, int k)
{
    return k == 3 ? 255 : checkers255(x, y, 0);
}
static int opaque_black(int x, int y, int k)
{
    return (void)x, (void)y, k == 3 ? 255 : 0;
}
static int transparent(int x, int y, int k)
{
    return (void)x, (void)y, k == 3 ? 0 : 200;
}
static int red_only(int x, int y, int k)
{
    return k == 0 ? checkers255(x, y, 0) : 0;
}

Test(mask_read, colour_and_alpha)
{
    check(put_png("a.png", PNG_COLOR_TYPE_RGB_ALPHA, 8, 0, cutout), -1, odd);
    check(put_png("a16.png", PNG_COLOR_TYPE_RGB_ALPHA, 16, 0, cutout), -1, odd);
    check(put_png("a.png", PNG_COLOR_TYPE_RGB_ALPHA, 8, 0, cutout), 255, odd);
    check(put_png("ga.png", PNG_COLOR_TYPE_GRAY_ALPHA, 8, 0, cutout_grey), -1, odd);
    check(put_png("o.png", PNG_COLOR_TYPE_RGB_ALPHA, 8, 0, opaque), -1, odd);
    check(put_png("b.png", PNG_COLOR_TYPE_RGB_ALPHA, 8, 0, opaque_black), -1, nowhere);
    check(put_png("t.png", PNG_COLOR_TYPE_RGB_ALPHA, 8, 0, transparent), -1, nowhere);
    check(put_png("r.png", PNG_COLOR_TYPE_RGB, 8, 0, red_only), -1, odd);
    check(put_png("c.png", PNG_COLOR_TYPE_RGB, 8, 0, checkers255), 255, odd);
    refused(put_png("r.png", PNG_COLOR_TYPE_RGB, 8, 0, red_only), 255, "colour");
}

static void paint_halves(const void *ctx, int frame, int x, int y, uint16_t value[4])
{
    (void)frame, (void)y;
    value[0] = x < 4 ? 0 : *(const uint16_t *)ctx;
    value[1] = value[2] = 128;
    value[3] = 255;
}

static const char *put_other(const char *name, const char *codec, const char *pix_fmt, const uint16_t *level)
{
    struct make_clip m = {.codec = codec, .pix_fmt = pix_fmt, .frames = 1, .width = W, .height = H};
    m.paint = paint_halves, m.ctx = level, m.format = codec[0] == 'g' ? "gif" : "image2";
    m.options = codec[0] == 'g' ? NULL : "update=1";
    return video_make(name, m);
}

Test(mask_read, other_pictures)
{
    static const uint16_t white = 255, three = 3;
    check(put_other("m.jpg", "mjpeg", "yuvj444p", &white), -1, right);
    check(put_other("m.bmp", "bmp", "gray", &white), -1, right);
    check(put_other("m.bmp", "bmp", "pal8", &three), 3, right);
    check(put_other("m.tiff", "tiff", "gray16le", &three), 3, right);
}

Test(mask_read, refusals)
{
    size_t n;
    const char *path = put_png("g8.png", PNG_COLOR_TYPE_GRAY, 8, 0, checkers255);
    uint8_t *bytes = video_slurp(path, &n);
    for (size_t cut = 8; cut < n - 12; cut += 3) {
        video_write(video_path("cut.png"), bytes, cut);
        refused(video_path("cut.png"), -1, "damaged");
    }
    memcpy(bytes + 16, "\0\1\0\0", 4); /* width 65536; the checksum is wrong as well */
    video_write(video_path("wide.png"), bytes, n);
    refused(video_path("wide.png"), -1, "");
    free(bytes);
    refused(video_path("missing.png"), -1, "cannot be opened");
    video_write(video_path("text.png"), "no picture at all", 17);
    refused(video_path("text.png"), -1, "cannot be decoded");
    video_write(video_path("empty.png"), "", 0);
    refused(video_path("empty.png"), -1, "cannot be decoded");
}

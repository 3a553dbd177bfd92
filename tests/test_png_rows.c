/* test_png_rows.c - the pixels of mask PNGs: what zlib makes of the stream again, wherever the blank rows lie. */
#include "../formats/png_rows.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct fmt_png_rows rows;

/* picture [n][size], blank rows given as such where `tell` */
static void round_trip(const uint8_t *picture, size_t n, size_t size, bool tell)
{
    static const uint8_t blank[4096];
    fmt_png_rows_begin(&rows);
    for (size_t y = 0; y < n; y++) {
        const uint8_t *row = picture + y * size;
        cr_assert(fmt_png_row(&rows, tell && memcmp(row, blank, size) == 0 ? NULL : row));
    }
    cr_assert(fmt_png_rows_end(&rows));

    uLongf got = (uLongf)(n * (1 + size));
    uint8_t *back = malloc(got + 1);
    cr_assert_eq(uncompress(back, &got, (const Bytef *)rows.stream.data, rows.stream.size), Z_OK); /* checksum too */
    cr_assert_eq(got, n * (1 + size));
    for (size_t y = 0; y < n; y++) {
        cr_assert_eq(back[y * (1 + size)], 0, "filter of row %zu", y);
        cr_assert_arr_eq(back + y * (1 + size) + 1, picture + y * size, size);
    }
    free(back);
}

/* Rows y with a bit y % 64 set have pixels, alike from row to row or noise. */
static void picture_of(uint8_t *picture, size_t n, size_t size, uint64_t filled, bool noise)
{
    memset(picture, 0, n * size);
    for (size_t y = 0; y < n; y++)
        for (size_t x = 0; (filled >> y % 64 & 1) && x < size; x++)
            picture[y * size + x] = (uint8_t)(noise ? rand() : x >= size / 3);
}

Test(png_rows, blank_rows_anywhere)
{
    static const size_t sizes[] = {1, 7, 240, 1920};
    static const uint64_t filled[] = {
        0, ~0ull, 1, 1ull << 63, 1ull << 16, 0xffff0000ffffull, 0x8000000180000001ull, 0xfffe00000001ffffull};
    enum { MOST = 200 };
    uint8_t *picture = malloc((size_t)MOST * 1920);
    srand(7);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        cr_assert(fmt_png_rows_open(&rows, sizes[s]));
        for (size_t f = 0; f < sizeof filled / sizeof *filled; f++)
            for (int k = 0; k < 4; k++) {
                const size_t n = f % 2 ? MOST : 65; /* a stream is used again after longer and shorter ones */
                picture_of(picture, n, sizes[s], filled[f], k & 1);
                round_trip(picture, n, sizes[s], k & 2);
            }
        for (size_t n = 1; n < 40; n++) {
            picture_of(picture, n, sizes[s], 0, false);
            round_trip(picture, n, sizes[s], true);
        }
        fmt_png_rows_free(&rows);
        memset(&rows, 0, sizeof rows);
    }
    free(picture);
}

Test(png_rows, blank_bands_are_short)
{
    cr_assert(fmt_png_rows_open(&rows, 1920));
    fmt_png_rows_begin(&rows);
    for (int y = 0; y < 1080; y++) cr_assert(fmt_png_row(&rows, NULL));
    cr_assert(fmt_png_rows_end(&rows));
    cr_expect_lt(rows.stream.size, 4000, "%zu bytes", rows.stream.size); /* zlib in one go: 2 KB */
    fmt_png_rows_free(&rows);
}

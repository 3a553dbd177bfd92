/* COCO run lengths against known strings, a per-pixel encoder, and themselves. */
#include "../formats/formats.h"
#include "../formats/text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct s2_bits new_bits(int width, int height, size_t pad)
{
    struct s2_bits b = {.width = width, .height = height, .stride = ((size_t)width + 7) / 8 + pad};
    b.data = calloc(b.stride * (size_t)height + 1, 1);
    cr_assert_not_null(b.data);
    return b;
}

static bool get(const struct s2_bits *b, int x, int y)
{
    return b->data[(size_t)y * b->stride + (size_t)x / 8] >> (7 - x % 8) & 1;
}

static void set(struct s2_bits *b, int x, int y)
{
    b->data[(size_t)y * b->stride + (size_t)x / 8] |= (uint8_t)(0x80 >> x % 8);
}

static void put_number(struct fmt_text *t, int64_t x)
{
    for (bool more = true; more;) {
        int c = (int)(x & 31);
        x >>= 5;
        more = c & 16 ? x != -1 : x != 0;
        fmt_text_printf(t, "%c", (more ? c | 32 : c) + 48);
    }
}

/* Pixel by pixel down the columns; at most 2^20 runs. */
static void slow_encode(const struct s2_bits *b, struct fmt_text *t, struct fmt_rle_stats *s)
{
    static int64_t runs[1 << 20];
    size_t n = 0;
    bool value = false;
    int x0 = b->width, y0 = b->height, x1 = -1, y1 = -1;
    *s = (struct fmt_rle_stats){0};
    runs[0] = 0;
    for (int x = 0; x < b->width; x++)
        for (int y = 0; y < b->height; y++) {
            if (get(b, x, y) != value) value = !value, runs[++n] = 0;
            runs[n]++;
            if (!value) continue;
            s->area++;
            x0 = x < x0 ? x : x0, x1 = x > x1 ? x : x1;
            y0 = y < y0 ? y : y0, y1 = y > y1 ? y : y1;
        }
    for (size_t i = 0; i <= n; i++) put_number(t, i > 2 ? runs[i] - runs[i - 2] : runs[i]);
    if (s->area) memcpy(s->bbox, (int[4]){x0, y0, x1 - x0 + 1, y1 - y0 + 1}, sizeof s->bbox);
}

/* Same string, area and box as the slow way, and the same pixels back. */
static void check_mask(const struct s2_bits *b)
{
    struct fmt_text fast = {0}, slow = {0};
    struct fmt_rle_stats a, e;
    struct s2_err err = {0};
    slow_encode(b, &slow, &e);
    cr_assert_eq(fmt_rle_encode(b, &fast, &a, &err), S2_OK, "%s", err.text);
    cr_assert_str_eq(fast.data, slow.data, "%dx%d", b->width, b->height);
    cr_assert_eq(a.area, e.area);
    cr_assert_arr_eq(a.bbox, e.bbox, sizeof a.bbox);

    struct s2_bits back = new_bits(b->width, b->height, 3);
    memset(back.data, 0xAA, back.stride * (size_t)back.height);
    cr_assert(fmt_rle_decode(fast.data, fast.size, &back, &err), "%s", err.text);
    for (int y = 0; y < b->height; y++) {
        const uint8_t *row = back.data + (size_t)y * back.stride, *want = b->data + (size_t)y * b->stride;
        size_t n = ((size_t)b->width + 7) / 8;
        cr_assert_arr_eq(row, want, n, "row %d of %dx%d", y, b->width, b->height);
        cr_assert_eq(row[n], 0xAA, "bytes behind the row are not touched");
    }
    free(back.data);
    fmt_text_free(&fast);
    fmt_text_free(&slow);
}

static uint64_t next_random(uint64_t *x)
{
    return *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
}

Test(rle, known_strings)
{
    static const struct {
        int width, height;
        const char *pixels; /* row-major */
        const char *counts;
        int area, bbox[4];
    } known[] = {
        {4, 3, "000000000000", "<", 0, {0, 0, 0, 0}},
        {4, 3, "111111111111", "0<", 12, {0, 0, 4, 3}},
        {4, 3, "001100010100", "5220O", 4, {1, 0, 3, 3}}, // 5,2,2,2,1
        {1, 1, "1", "01", 1, {0, 0, 1, 1}},
        {1, 1, "0", "1", 0, {0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct s2_bits b = new_bits(known[i].width, known[i].height, 0);
        for (int p = 0; known[i].pixels[p]; p++)
            if (known[i].pixels[p] == '1') set(&b, p % b.width, p / b.width);
        struct fmt_text t = {0};
        struct fmt_rle_stats s;
        cr_assert_eq(fmt_rle_encode(&b, &t, &s, NULL), S2_OK);
        cr_expect_str_eq(t.data, known[i].counts);
        cr_expect_eq(s.area, known[i].area);
        cr_expect_arr_eq(s.bbox, known[i].bbox, sizeof s.bbox, "%zu", i);
        fmt_text_free(&t);
        free(b.data);
    }
    struct s2_bits hd = new_bits(1920, 1080, 0);
    struct fmt_text t = {0};
    cr_assert_eq(fmt_rle_encode(&hd, &t, NULL, NULL), S2_OK);
    cr_expect_str_eq(t.data, "PPYo1");
    fmt_text_free(&t);
    free(hd.data);
}

Test(rle, appends)
{
    struct s2_bits b = new_bits(4, 3, 0);
    struct fmt_text t = {0};
    cr_assert(fmt_text_puts(&t, "\"counts\": "));
    cr_assert_eq(fmt_rle_encode(&b, &t, NULL, NULL), S2_OK);
    cr_expect_str_eq(t.data, "\"counts\": <");
    cr_expect_eq(t.size, strlen(t.data));
    fmt_text_free(&t);
    free(b.data);
}

Test(rle, odd_sizes)
{
    static const int size[][2] = {{1, 1},  {7, 3},    {1, 1000}, {1000, 1}, {4097, 3}, {3, 4097},  {8, 64},
                                  {9, 65}, {17, 128}, {64, 63},  {8, 4160}, {2, 9000}, {257, 129}, {16, 4096}};
    uint64_t x = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (int kind = 0; kind < 7; kind++) {
            struct s2_bits b = new_bits(size[i][0], size[i][1], (size_t)kind);
            for (int py = 0; py < b.height; py++)
                for (int px = 0; px < b.width; px++) {
                    bool corner = (px == 0 || px == b.width - 1) && (py == 0 || py == b.height - 1);
                    bool on = kind == 1 || (kind == 2 && corner) || (kind == 3 && (px + py) % 2) ||
                              (kind == 4 && next_random(&x) % 2) ||
                              (kind == 5 && py >= b.height / 3 && px > b.width / 4) ||
                              (kind == 6 && !(px == b.width / 3 && py == b.height / 2)); // runs over many columns
                    if (on) set(&b, px, py);
                }
            for (int y = 0; kind && y < b.height; y++) // what lies behind a row is not read
                b.data[(size_t)y * b.stride + ((size_t)b.width + 7) / 8] = 0xFF;
            check_mask(&b);
            free(b.data);
        }
}

Test(rle, random_masks)
{
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 3000; i++) {
        struct s2_bits b = new_bits(1 + (int)(next_random(&x) % 90), 1 + (int)(next_random(&x) % 200), 0);
        uint64_t one_in = 1 + next_random(&x) % 50;
        for (int py = 0; py < b.height; py++)
            for (int px = 0; px < b.width; px++)
                if (next_random(&x) % one_in == 0) set(&b, px, py);
        check_mask(&b);
        free(b.data);
    }
}

Test(rle, lists)
{
    struct s2_bits b = new_bits(4, 3, 0), c = new_bits(4, 3, 0);
    struct s2_err err = {0};
    cr_assert(fmt_rle_decode_runs((int64_t[]){5, 2, 2, 2, 1}, 5, &b, &err), "%s", err.text);
    cr_assert(fmt_rle_decode("5220O", 5, &c, &err), "%s", err.text);
    cr_expect_arr_eq(b.data, c.data, 3);
    cr_expect(get(&b, 1, 2) && get(&b, 2, 0) && get(&b, 3, 0) && get(&b, 3, 1) && !get(&b, 3, 2));
    cr_assert(fmt_rle_decode_runs((int64_t[]){0, 6, 0, 6}, 4, &b, &err), "empty runs in between: %s", err.text);
    cr_expect(get(&b, 0, 0) && get(&b, 3, 2));
    free(b.data);
    free(c.data);
}

Test(rle, refused)
{
    static const struct {
        const char *counts, *sentence;
    } bad[] = {
        {"", "the counts cover 0 of the 12 pixels of 4x3"},
        {";", "the counts cover 11 of the 12 pixels of 4x3"},
        {"=", "the counts cover more than the 12 pixels of 4x3"},
        {"<1", "the counts cover more than the 12 pixels of 4x3"},
        {"O", "run 0 of the counts is negative (-1)"},
        {"P", "the counts end in the middle of a number"},
        {"5 ", "byte 1 of the counts (0x20) does not occur in compressed run lengths"},
        {"5\xC3\xBC", "byte 1 of the counts (0xc3) does not occur in compressed run lengths"},
        {"p", "byte 0 of the counts (0x70) does not occur in compressed run lengths"},
        {"oooooooooooooooo", "a number in the counts is too large, before byte 12"},
        {"PPPPPPPPPPP?", "the counts cover more than the 12 pixels of 4x3"},
    };
    struct s2_bits b = new_bits(4, 3, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct s2_err err = {0};
        cr_expect_not(fmt_rle_decode(bad[i].counts, strlen(bad[i].counts), &b, &err), "%s", bad[i].counts);
        cr_expect_eq(err.status, S2_E_USAGE);
        cr_expect_str_eq(err.text, bad[i].sentence);
    }
    struct s2_err err = {0};
    cr_expect_not(fmt_rle_decode("112M", 4, &b, &err), "a difference that goes below zero");
    cr_expect_str_eq(err.text, "run 3 of the counts is negative (-2)");

    int64_t sums[][3] = {{5, -1, 8}, {5, 5, 5}, {5, 5, 1}, {INT64_MAX, INT64_MAX, 2}};
    for (int i = 0; i < 4; i++) cr_expect_not(fmt_rle_decode_runs(sums[i], 3, &b, NULL), "%d", i);
    free(b.data);
}

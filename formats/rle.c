/* rle.c - COCO run lengths: bit masks to pycocotools' compressed strings and back.
 *
 * Runs go down the columns, left to right, and alternate between 0 and 1, starting with 0. In the string each
 * count but the first three is the difference to the count two before it; a number is written in groups of 5
 * bits, low ones first, in two's complement, 32 added where more follow, 48 added to stay printable
 * (rleToString in cocoapi/common/maskApi.c). */
#include "formats.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

enum {
    GROUPS = 12,     /* of 5 bits in a number: 60 bits, more than any picture needs */
    BLOCK_WORDS = 64 /* 64-row words of a column that need no allocation: pictures up to 4096 rows */
};

/* ------------------------------------------------------------------ encode */

struct run_writer {
    struct fmt_text *text;
    size_t count;              /* runs written */
    int64_t end;               /* position behind the last run */
    int64_t previous, earlier; /* the last two counts */
    int64_t area;
};

/* Writes the run that ends before `position`. */
static bool put_run(struct run_writer *w, int64_t position)
{
    if (!fmt_text_reserve(w->text, GROUPS + 1)) return false;
    int64_t run = position - w->end;
    int64_t x = w->count > 2 ? run - w->earlier : run;
    if (w->count & 1) w->area += run;
    w->earlier = w->previous;
    w->previous = run;
    w->end = position;
    w->count++;

    char *p = w->text->data + w->text->size;
    bool more;
    do {
        int group = (int)(x & 31);
        x >>= 5;
        more = group & 16 ? x != -1 : x != 0;
        *p++ = (char)((more ? group | 32 : group) + 48);
    } while (more);
    *p = 0;
    w->text->size = (size_t)(p - w->text->data);
    return true;
}

/* 8 x 8 bits: byte r bit b to byte b bit r (Warren, Hacker's Delight, 7-3). */
static uint64_t transpose8(uint64_t x)
{
    uint64_t t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAu;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCu;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0u;
    return x ^ t ^ (t << 28);
}

/* Columns 8*byte .. 8*byte+7 as words of 64 rows each, row 0 in bit 0: strip[column][words]. */
static void gather_columns(const struct s2_bits *bits, int byte, size_t words, uint64_t *strip)
{
    const uint8_t *p = bits->data + byte;
    for (size_t w = 0; w < words; w++) {
        uint64_t column[8] = {0};
        int rows = bits->height - (int)(64 * w) < 64 ? bits->height - (int)(64 * w) : 64;
        for (int y = 0; y < rows; y += 8) {
            uint64_t x = 0;
            int n = rows - y < 8 ? rows - y : 8;
            for (int r = 0; r < n; r++, p += bits->stride) x |= (uint64_t)*p << (8 * r);
            if (!x) continue;
            x = transpose8(x);
            for (int c = 0; c < 8; c++) column[c] |= (x >> (8 * (7 - c)) & 0xFF) << y;
        }
        for (int c = 0; c < 8; c++) strip[(size_t)c * words + w] = column[c];
    }
}

/* Runs of one column; `value` is the last pixel before it and becomes its own last pixel. */
static bool put_column(struct run_writer *out, const uint64_t *column, int height, int64_t start, uint64_t *value)
{
    uint64_t before = *value;
    for (int y = 0; y < height; y += 64) {
        uint64_t word = column[y / 64];
        int rows = height - y < 64 ? height - y : 64;
        uint64_t change = word ^ (word << 1 | before);
        if (rows < 64) change &= (UINT64_C(1) << rows) - 1;
        for (; change; change &= change - 1)
            if (!put_run(out, start + y + __builtin_ctzll(change))) return false;
        before = word >> (rows - 1) & 1;
    }
    *value = before;
    return true;
}

/* Widens the rows [*top, *bottom) to those set in the column; false if it has none. */
static bool add_rows(const uint64_t *column, size_t words, int *top, int *bottom)
{
    size_t first = 0, last = words;
    while (first < words && !column[first]) first++;
    if (first == words) return false;
    while (!column[last - 1]) last--;
    int y0 = (int)(64 * first) + __builtin_ctzll(column[first]);
    int y1 = (int)(64 * last) - __builtin_clzll(column[last - 1]);
    if (y0 < *top) *top = y0;
    if (y1 > *bottom) *bottom = y1;
    return true;
}

enum s2_status fmt_rle_encode(const struct s2_bits *bits, struct fmt_text *counts, struct fmt_rle_stats *stats,
                              struct s2_err *err)
{
    size_t words = ((size_t)bits->height + 63) / 64;
    uint64_t small[8 * BLOCK_WORDS], *strip = small;
    if (words > BLOCK_WORDS) strip = malloc(8 * words * sizeof *strip);
    if (!strip) return s2_no_memory(err, "columns of a mask", 8 * words * sizeof *strip);

    struct run_writer out = {.text = counts};
    int left = bits->width, right = 0, top = bits->height, bottom = 0;
    uint64_t value = 0;
    bool ok = true;
    for (int x = 0; ok && x < bits->width; x++) {
        if (x % 8 == 0) gather_columns(bits, x / 8, words, strip);
        const uint64_t *column = strip + (size_t)(x % 8) * words;
        ok = put_column(&out, column, bits->height, (int64_t)x * bits->height, &value);
        if (!add_rows(column, words, &top, &bottom)) continue;
        if (x < left) left = x;
        right = x + 1;
    }
    ok = ok && put_run(&out, (int64_t)bits->width * bits->height);
    if (strip != small) free(strip);
    if (!ok) return s2_no_memory(err, "the run lengths of a mask", counts->capacity);

    if (stats) {
        *stats = (struct fmt_rle_stats){.area = out.area};
        if (out.area) {
            const int box[4] = {left, top, right - left, bottom - top};
            memcpy(stats->bbox, box, sizeof box);
        }
    }
    return S2_OK;
}

/* ------------------------------------------------------------------ decode */

struct run_reader {
    struct s2_bits *bits;
    int64_t position, end; /* pixels so far and in all */
    size_t count;          /* runs so far */
};

static struct run_reader start_reading(struct s2_bits *bits)
{
    size_t row = ((size_t)bits->width + 7) / 8;
    for (int y = 0; y < bits->height; y++) memset(bits->data + (size_t)y * bits->stride, 0, row);
    return (struct run_reader){.bits = bits, .end = (int64_t)bits->width * bits->height};
}

static void set_in_column(struct s2_bits *bits, int x, int y0, int y1)
{
    uint8_t *p = bits->data + (size_t)y0 * bits->stride + x / 8, bit = (uint8_t)(0x80 >> x % 8);
    for (int y = y0; y < y1; y++, p += bits->stride) *p |= bit;
}

/* Whole columns [x0, x1), x0 < x1, row by row. */
static void set_columns(struct s2_bits *bits, int x0, int x1)
{
    int first = x0 / 8, last = (x1 - 1) / 8;
    uint8_t from = (uint8_t)(0xFF >> x0 % 8), to = (uint8_t)(0xFF << (7 - (x1 - 1) % 8));
    uint8_t *row = bits->data;
    for (int y = 0; y < bits->height; y++, row += bits->stride) {
        if (first == last) {
            row[first] |= from & to;
            continue;
        }
        row[first] |= from;
        memset(row + first + 1, 0xFF, (size_t)(last - first - 1));
        row[last] |= to;
    }
}

/* Sets pixels [from, to), from < to, counted down the columns. */
static void set_pixels(struct s2_bits *bits, int64_t from, int64_t to)
{
    int height = bits->height;
    int x0 = (int)(from / height), y0 = (int)(from % height), x1 = (int)(to / height), y1 = (int)(to % height);
    if (x0 == x1) {
        set_in_column(bits, x0, y0, y1);
        return;
    }
    if (y0) set_in_column(bits, x0++, y0, height);
    if (x0 < x1) set_columns(bits, x0, x1);
    if (y1) set_in_column(bits, x1, 0, y1);
}

static bool read_run(struct run_reader *r, int64_t run, struct s2_err *err)
{
    if (run < 0) {
        s2_fail(err, S2_E_USAGE, "run %zu of the counts is negative (%lld)", r->count, (long long)run);
        return false;
    }
    if (run > r->end - r->position) {
        s2_fail(err, S2_E_USAGE, "the counts cover more than the %lld pixels of %dx%d", (long long)r->end,
                r->bits->width, r->bits->height);
        return false;
    }
    if (run && r->count & 1) set_pixels(r->bits, r->position, r->position + run);
    r->position += run;
    r->count++;
    return true;
}

static bool all_read(const struct run_reader *r, struct s2_err *err)
{
    if (r->position == r->end) return true;
    s2_fail(err, S2_E_USAGE, "the counts cover %lld of the %lld pixels of %dx%d", (long long)r->position,
            (long long)r->end, r->bits->width, r->bits->height);
    return false;
}

/* One number of the string at *i, advanced behind it. */
static bool read_number(const char *s, size_t length, size_t *i, int64_t *out, struct s2_err *err)
{
    uint64_t x = 0;
    for (int k = 0; k < GROUPS; k++) {
        if (*i == length) {
            s2_fail(err, S2_E_USAGE, "the counts end in the middle of a number");
            return false;
        }
        uint8_t c = (uint8_t)s[*i];
        if (c < 48 || c > 48 + 63) {
            s2_fail(err, S2_E_USAGE, "byte %zu of the counts (0x%02x) does not occur in compressed run lengths", *i, c);
            return false;
        }
        ++*i;
        x |= (uint64_t)((c - 48) & 31) << (5 * k);
        if ((c - 48) & 32) continue;
        if ((c - 48) & 16) x |= UINT64_MAX << (5 * (k + 1));
        *out = (int64_t)x;
        return true;
    }
    s2_fail(err, S2_E_USAGE, "a number in the counts is too large, before byte %zu", *i);
    return false;
}

bool fmt_rle_decode(const char *counts, size_t length, struct s2_bits *out, struct s2_err *err)
{
    struct run_reader r = start_reading(out);
    int64_t previous = 0, earlier = 0;
    for (size_t i = 0; i < length;) {
        int64_t run;
        if (!read_number(counts, length, &i, &run, err)) return false;
        if (r.count > 2) run += earlier;
        if (!read_run(&r, run, err)) return false;
        earlier = previous;
        previous = run;
    }
    return all_read(&r, err);
}

bool fmt_rle_decode_runs(const int64_t *runs, size_t n, struct s2_bits *out, struct s2_err *err)
{
    struct run_reader r = start_reading(out);
    for (size_t i = 0; i < n; i++)
        if (!read_run(&r, runs[i], err)) return false;
    return all_read(&r, err);
}

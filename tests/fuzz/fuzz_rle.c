/* Run lengths: what decodes is inside the picture, counts as many pixels as the runs say, and comes back from the
 * encoder as the same pixels; the canonical string is a fixed point. Input: width, height, which, then the string, or a
 * list of 16-bit runs. */
#include "../../formats/formats.h"
#include "../../formats/text.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                                                                     \
    do {                                                                                                               \
        if (!(x)) abort();                                                                                             \
    } while (0)

/* Every row ends in a guard byte, and the whole lies in its own allocation. */
static struct s2_bits new_bits(int width, int height)
{
    struct s2_bits b = {.width = width, .height = height, .stride = ((size_t)width + 7) / 8 + 1};
    size_t size = b.stride * (size_t)height;
    b.data = malloc(size);
    if (b.data) memset(b.data, 0xA5, size);
    return b;
}

static int64_t count_pixels(const struct s2_bits *b, int box[4])
{
    int64_t area = 0;
    int x0 = b->width, y0 = b->height, x1 = 0, y1 = 0;
    for (int y = 0; y < b->height; y++) {
        const uint8_t *row = b->data + (size_t)y * b->stride;
        REQUIRE(row[b->stride - 1] == 0xA5);
        for (int x = 0; x < 8 * (int)(b->stride - 1); x++) {
            if (!(row[x / 8] >> (7 - x % 8) & 1)) continue;
            REQUIRE(x < b->width);
            area++;
            x0 = x < x0 ? x : x0;
            y0 = y < y0 ? y : y0;
            x1 = x >= x1 ? x + 1 : x1;
            y1 = y >= y1 ? y + 1 : y1;
        }
    }
    memcpy(box, area ? (int[4]){x0, y0, x1 - x0, y1 - y0} : (int[4]){0}, 4 * sizeof *box);
    return area;
}

static void check_round_trip(const struct s2_bits *b)
{
    struct fmt_text text = {0}, again = {0};
    struct fmt_rle_stats stats;
    struct s2_bits back = new_bits(b->width, b->height);
    int box[4];
    REQUIRE(back.data);
    REQUIRE(fmt_rle_encode(b, &text, &stats, NULL) == S2_OK);
    REQUIRE(strlen(text.data) == text.size);
    REQUIRE(stats.area == count_pixels(b, box));
    REQUIRE(!memcmp(box, stats.bbox, sizeof box));
    REQUIRE(fmt_rle_decode(text.data, text.size, &back, NULL));
    REQUIRE(!memcmp(back.data, b->data, b->stride * (size_t)b->height));
    REQUIRE(fmt_rle_encode(&back, &again, NULL, NULL) == S2_OK);
    REQUIRE(!strcmp(again.data, text.data));
    fmt_text_free(&text);
    fmt_text_free(&again);
    free(back.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    int width = 1 + data[0] % 40, height = 1 + data[1] % 200;
    bool list = data[2] & 1;
    data += 3, size -= 3;
    struct s2_bits b = new_bits(width, height);
    REQUIRE(b.data);
    struct s2_err err = {0};
    bool ok;
    if (list) {
        size_t n = size / 2;
        int64_t *runs = malloc((n + 1) * sizeof *runs), sum = 0, ones = 0;
        REQUIRE(runs);
        for (size_t i = 0; i < n; i++) {
            runs[i] = (int16_t)(data[2 * i] | data[2 * i + 1] << 8);
            sum += runs[i];
            if (i % 2) ones += runs[i];
        }
        ok = fmt_rle_decode_runs(runs, n, &b, &err);
        int box[4];
        if (ok) REQUIRE(sum == (int64_t)width * height && ones == count_pixels(&b, box));
        free(runs);
    } else {
        char *counts = malloc(size + 1); // exactly as long as it says
        REQUIRE(counts);
        memcpy(counts, data, size);
        ok = fmt_rle_decode(counts, size, &b, &err);
        free(counts);
    }
    REQUIRE(ok ? err.status == S2_OK : err.status == S2_E_USAGE && err.text[0]);
    if (!ok) { // any picture will do for the encoder: the start of the input as bits
        for (int y = 0; y < height; y++) {
            size_t row = b.stride - 1;
            for (size_t i = 0; i < row; i++)
                b.data[(size_t)y * b.stride + i] = size ? data[((size_t)y * row + i) % size] : 0;
            if (width % 8) b.data[(size_t)y * b.stride + row - 1] &= (uint8_t)(0xFF00 >> width % 8);
        }
    }
    check_round_trip(&b);
    free(b.data);
    return 0;
}

/* Results that wait on disk come back as they were. */
#define _GNU_SOURCE
#include "../formats/formats.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WIDTH = 21, HEIGHT = 11, OBJECTS = 3, SIDE = 16 };

static uint8_t bits[OBJECTS][HEIGHT][3];
static uint16_t owner[HEIGHT][WIDTH];
static struct fmt_record_object objects[OBJECTS];

/* Random blocks; where objects overlap one of them owns the pixel. */
static struct fmt_record make(unsigned seed)
{
    srand(seed);
    memset(bits, 0, sizeof bits);
    memset(owner, 0, sizeof owner);
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = (struct fmt_record_object){
            .started = rand() % 4 > 0,
            .score = (float)rand() / 1e6f - 500,
            .iou = rand() % 3 ? (float)rand() / 1e9f : NAN,
            .bits = {.width = WIDTH, .height = HEIGHT, .stride = 3, .data = &bits[i][0][0]},
        };
        for (int y = 0; y < HEIGHT && objects[i].started; y++)
            for (int x = 0; x < WIDTH; x++) {
                if ((x / 5 + y / 4 + i + (int)seed) % 3 == 0) continue;
                bits[i][y][x / 8] |= (uint8_t)(0x80 >> x % 8);
                if (!owner[y][x] || rand() % 2) owner[y][x] = (uint16_t)(i + 1);
            }
    }
    return (struct fmt_record){.object = objects, .owner = &owner[0][0]};
}

Test(spill, records_come_back_in_any_order)
{
    enum { SLOTS = 40 };
    for (int owners = 0; owners < 2; owners++) {
        struct fmt_spill *s;
        cr_assert_eq(fmt_spill_open(&s, SLOTS, OBJECTS, owners, NULL), S2_OK);
        for (int i = SLOTS - 1; i >= 0; i -= 1 + (i == 7)) {
            struct fmt_record r = make((unsigned)i);
            cr_assert_eq(fmt_spill_put(s, i, &r, NULL), S2_OK);
        }
        cr_assert_gt(fmt_spill_bytes(s), 0);
        for (int i = 0; i < SLOTS; i++) {
            cr_assert_eq(fmt_spill_has(s, i), i != 6);
            if (i == 6) continue;
            make((unsigned)i);
            struct fmt_record_object want[OBJECTS];
            uint8_t want_bits[OBJECTS][HEIGHT][3];
            uint16_t want_owner[HEIGHT][WIDTH];
            memcpy(want, objects, sizeof want);
            memcpy(want_bits, bits, sizeof bits);
            memcpy(want_owner, owner, sizeof owner);
            struct fmt_record r = make(999);
            cr_assert_eq(fmt_spill_get(s, i, &r, NULL), S2_OK);
            cr_assert_arr_eq(bits, want_bits, sizeof bits, "masks of slot %d", i);
            if (owners) cr_assert_arr_eq(owner, want_owner, sizeof owner, "owners of slot %d", i);
            for (int k = 0; k < OBJECTS; k++) {
                cr_assert_eq(objects[k].started, want[k].started);
                cr_assert_arr_eq(&objects[k].score, &want[k].score, sizeof(float));
                cr_assert_arr_eq(&objects[k].iou, &want[k].iou, sizeof(float));
            }
        }
        fmt_spill_free(s);
    }
}

/* What decides about a pixel is exact: cells that are positive or beside a positive one. */
Test(spill, logits_keep_what_shows)
{
    float in[SIDE * SIDE], out[SIDE * SIDE], score, iou;
    struct fmt_spill *s;
    bool got;
    cr_assert_eq(fmt_spill_open(&s, 5, 2, false, NULL), S2_OK);
    cr_assert_eq(fmt_spill_get_logits(s, 3, 1, out, SIDE, &score, &iou, &got, NULL), S2_OK);
    cr_assert_not(got, "nothing was put");
    srand(3);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < SIDE * SIDE; i++) in[i] = (float)(rand() % 1000) - (round % 5 ? 985 : 0);
        cr_assert_eq(fmt_spill_put_logits(s, 3, 1, in, SIDE, 2.5f, NAN, NULL), S2_OK);
        memset(out, 0, sizeof out);
        cr_assert_eq(fmt_spill_get_logits(s, 3, 1, out, SIDE, &score, &iou, &got, NULL), S2_OK);
        cr_assert(got && score == 2.5f && isnan(iou));
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                bool shows = false;
                for (int v = y - 1; v <= y + 1; v++)
                    for (int u = x - 1; u <= x + 1; u++)
                        shows |= v >= 0 && u >= 0 && v < SIDE && u < SIDE && in[v * SIDE + u] > 0;
                cr_assert_eq(out[y * SIDE + x], shows ? in[y * SIDE + x] : -1024.0f);
            }
    }
    cr_assert_eq(fmt_spill_get_logits(s, 3, 0, out, SIDE, &score, &iou, &got, NULL), S2_OK);
    cr_assert_not(got, "the other object has none");
    fmt_spill_free(s);
}

Test(spill, a_folder_that_is_not_there)
{
    struct s2_err err = {0};
    struct fmt_spill *s;
    setenv("TMPDIR", "/nowhere/at/all", 1);
    cr_assert_eq(fmt_spill_open(&s, 5, 1, false, &err), S2_E_OUTPUT);
    cr_assert_null(s);
    cr_assert_not_null(strstr(err.text, "/nowhere/at/all: "), "%s", err.text);
}

Test(spill, a_full_disk)
{
    struct s2_err err = {0};
    struct fmt_spill *s;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){2000, 2000}), 0);
    cr_assert_eq(fmt_spill_open(&s, 1000, OBJECTS, true, NULL), S2_OK);
    int i = 0;
    for (struct fmt_record r = make(0); i < 1000 && fmt_spill_put(s, i, &r, &err) == S2_OK; i++) continue;
    cr_assert(i > 0 && i < 1000);
    cr_assert_eq(err.status, S2_E_OUTPUT);
    cr_assert_not_null(strstr(err.text, "TMPDIR"), "%s", err.text);
    cr_assert_not(fmt_spill_has(s, i));
    struct fmt_record r = make(7);
    cr_assert_eq(fmt_spill_get(s, i - 1, &r, NULL), S2_OK, "what was kept can be read");
    fmt_spill_free(s);
}

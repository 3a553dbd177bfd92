/* The central directory: what torch.save writes, and archives that lie. */
#include "../formats/bytes.h"
#include "../formats/zip.h"
#include "make_checkpoint.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct make_entry entries[] = {
    {"b/data.pkl", "structure", 9},
    {"b/data/0", "0123456789", 10},
    {"b/data/10", "ten", 3},
    {"a", "", 0},
};
enum { N = sizeof entries / sizeof *entries };

/* The k-th occurrence of a record's signature. */
static uint8_t *record(const struct make_bytes *b, const char *signature, int k)
{
    for (size_t i = 0; i + 4 <= b->size; i++)
        if (!memcmp(b->data + i, signature, 4) && k-- == 0) return b->data + i;
    cr_assert_fail("no record");
    return NULL;
}
static uint8_t *central(const struct make_bytes *b, int k)
{
    return record(b, "PK\1\2", k);
}

static void put(uint8_t *p, uint64_t x, int size)
{
    for (int i = 0; i < size; i++) p[i] = (uint8_t)(x >> 8 * i);
}

/* Opens, and reads every entry; the bytes of each lie inside the archive. */
static enum s2_status read_all(const struct make_bytes *b, struct s2_err *err)
{
    struct fmt_zip z;
    enum s2_status status = fmt_zip_open(&z, b->data, b->size, "x.zip", err);
    for (size_t i = 0; i < z.count && !status; i++) {
        const uint8_t *data;
        status = fmt_zip_data(&z, &z.entry[i], &data, err);
        if (!status) cr_assert(data >= b->data && data + z.entry[i].size <= b->data + b->size);
    }
    fmt_zip_close(&z);
    return status;
}

static void refuses(struct make_bytes *b, const char *sentence)
{
    struct s2_err err = {0};
    cr_expect_eq(read_all(b, &err), S2_E_MODEL, "%s", sentence);
    cr_expect(strstr(err.text, sentence), "\"%s\" does not say \"%s\"", err.text, sentence);
    cr_expect(!strncmp(err.text, "x.zip: ", 7), "%s", err.text);
    make_free(b);
}

static struct make_bytes archive(void)
{
    struct make_bytes b = {0};
    make_zip(&b, entries, N);
    return b;
}

Test(zip, finds_entries_and_their_bytes)
{
    struct make_bytes b = archive();
    struct fmt_zip z;
    struct s2_err err = {0};
    cr_assert_eq(fmt_zip_open(&z, b.data, b.size, "x.zip", &err), S2_OK, "%s", err.text);
    cr_expect_eq(z.count, N);
    for (int i = 0; i < N; i++) {
        const uint8_t *data = NULL;
        const struct fmt_zip_entry *e = fmt_zip_find(&z, entries[i].name, strlen(entries[i].name));
        cr_assert_not_null(e, "%s", entries[i].name);
        cr_expect_eq(e->size, entries[i].size);
        cr_assert_eq(fmt_zip_data(&z, e, &data, &err), S2_OK, "%s", err.text);
        cr_expect_eq((data - b.data) % 64, 0);
        cr_expect(!memcmp(data, entries[i].data, e->size));
    }
    cr_expect_null(fmt_zip_find(&z, "b/data/1", 8));
    cr_expect_null(fmt_zip_find(&z, "b/data/", 7));
    cr_expect_null(fmt_zip_find(&z, "", 0));
    fmt_zip_close(&z);
    fmt_zip_close(&z);
    make_free(&b);
}

Test(zip, reads_plain_end_record_and_comment)
{
    struct make_bytes b = archive();
    struct s2_err err = {0};
    uint8_t *locator = record(&b, "PK\6\7", 0), *end = record(&b, "PK\5\6", 0);
    memset(locator, 'x', 20);
    put(end + 20, 5, 2);
    make_text(&b, "hello");
    cr_expect_eq(read_all(&b, &err), S2_OK, "%s", err.text);
    make_free(&b);
}

Test(zip, an_end_record_inside_the_comment_is_none)
{
    struct make_bytes b = archive();
    struct s2_err err = {0};
    put(record(&b, "PK\5\6", 0) + 20, 30, 2);
    make_text(&b, "PK\5\6");
    for (int i = 0; i < 26; i++) make_text(&b, "x");
    cr_expect_eq(read_all(&b, &err), S2_OK, "%s", err.text);
    make_free(&b);
}

Test(zip, reads_zip64_fields_of_entries)
{
    struct make_bytes b = {0};
    struct s2_err err = {0};
    make_zip(&b, entries, 1);
    /* the one record of the directory again, with sizes and offset in an extra field behind another extra field */
    struct make_bytes c = {0};
    size_t directory = (size_t)(central(&b, 0) - b.data), name = strlen(entries[0].name);
    make_put(&c, b.data, directory + 46 + name);
    uint8_t *p = c.data + directory;
    put(p + 20, UINT32_MAX, 4), put(p + 24, UINT32_MAX, 4), put(p + 42, UINT32_MAX, 4);
    put(p + 30, 4 + 2 + 4 + 24, 2);
    make_number(&c, 0x4246, 2), make_number(&c, 2, 2), make_text(&c, "ZZ");
    make_number(&c, 1, 2), make_number(&c, 24, 2);
    make_number(&c, entries[0].size, 8), make_number(&c, entries[0].size, 8), make_number(&c, 0, 8);
    size_t end = c.size;
    make_text(&c, "PK\5\6");
    make_number(&c, 0, 4), make_number(&c, 1, 2), make_number(&c, 1, 2);
    make_number(&c, end - directory, 4), make_number(&c, directory, 4), make_number(&c, 0, 2);
    cr_expect_eq(read_all(&c, &err), S2_OK, "%s", err.text);

    struct make_bytes d = {0};
    make_put(&d, c.data, c.size);
    put(d.data + directory + 46 + name + 6, 2, 2); /* no ZIP64 field any more */
    refuses(&d, "entry \"b/data.pkl\" has a bad ZIP64 field");
    put(c.data + directory + 46 + name + 10 + 16, UINT64_MAX, 8);
    refuses(&c, "entry \"b/data.pkl\" lies outside the file");
    make_free(&b);
}

Test(zip, refuses_every_truncation)
{
    struct make_bytes b = archive();
    size_t whole = b.size;
    for (b.size = 0; b.size < whole; b.size++) {
        struct s2_err err = {0};
        cr_expect_eq(read_all(&b, &err), S2_E_MODEL, "%zu of %zu bytes", b.size, whole);
        cr_expect(strstr(err.text, "incomplete"), "%s", err.text);
    }
    make_free(&b);
}

Test(zip, refuses_a_directory_beyond_the_file)
{
    struct make_bytes b = archive();
    put(record(&b, "PK\6\6", 0) + 48, b.size, 8);
    put(record(&b, "PK\5\6", 0) + 16, b.size, 4);
    refuses(&b, "the central directory lies outside the file");

    b = archive();
    put(record(&b, "PK\6\6", 0) + 48, UINT64_MAX - 10, 8);
    put(record(&b, "PK\5\6", 0) + 16, UINT32_MAX, 4);
    refuses(&b, "the central directory lies outside the file");
}

Test(zip, refuses_a_directory_that_is_too_long)
{
    struct make_bytes b = archive();
    put(record(&b, "PK\6\6", 0) + 40, UINT64_MAX - 100, 8);
    put(record(&b, "PK\5\6", 0) + 12, UINT32_MAX, 4);
    refuses(&b, "the central directory lies outside the file");
}

Test(zip, refuses_zip64_lies)
{
    struct make_bytes b = archive();
    put(record(&b, "PK\6\7", 0) + 8, b.size - 10, 8);
    refuses(&b, "the ZIP64 end record lies outside the file");

    b = archive();
    put(record(&b, "PK\6\7", 0) + 8, UINT64_MAX, 8);
    refuses(&b, "the ZIP64 end record lies outside the file");

    b = archive();
    put(record(&b, "PK\6\7", 0) + 8, 0, 8);
    refuses(&b, "the ZIP64 end record is not where it should be");

    b = archive();
    put(record(&b, "PK\6\6", 0) + 32, N - 1, 8);
    refuses(&b, "contradict");

    b = archive();
    put(record(&b, "PK\6\6", 0) + 32, UINT64_MAX, 8);
    put(record(&b, "PK\5\6", 0) + 10, UINT16_MAX, 2);
    refuses(&b, "the central directory is too short for its entries");
}

Test(zip, refuses_bad_records)
{
    struct make_bytes b = archive();
    memset(central(&b, 1), 'x', 4);
    refuses(&b, "a record of the central directory is missing");

    b = archive();
    put(central(&b, N - 1) + 30, UINT16_MAX, 2);
    refuses(&b, "a record of the central directory is cut off");

    b = archive();
    put(central(&b, 1) + 20, 9, 4);
    refuses(&b, "entry \"b/data/0\" has two different sizes");

    b = archive();
    put(central(&b, 1) + 20, 1 << 20, 4), put(central(&b, 1) + 24, 1 << 20, 4);
    refuses(&b, "entry \"b/data/0\" lies outside the file");

    b = archive();
    put(central(&b, 1) + 42, b.size, 4);
    refuses(&b, "entry \"b/data/0\" lies outside the file");
}

Test(zip, refuses_overlaps_and_duplicates)
{
    struct make_bytes b = archive();
    put(central(&b, 1) + 42, 0, 4);
    refuses(&b, "overlaps the next one");

    b = archive();
    put(central(&b, 0) + 42, 4, 4);
    refuses(&b, "entry \"b/data.pkl\" has another local header");

    b = archive();
    size_t space = fmt_le32(central(&b, 1) + 42) - fmt_le32(central(&b, 0) + 42);
    put(central(&b, 0) + 20, space, 4), put(central(&b, 0) + 24, space, 4);
    refuses(&b, "entry \"b/data.pkl\" overlaps the next one");

    /* fits without the local header's padding, which only the local header tells */
    b = archive();
    space -= 30 + strlen("b/data.pkl");
    put(central(&b, 0) + 20, space, 4), put(central(&b, 0) + 24, space, 4);
    refuses(&b, "entry \"b/data.pkl\" reaches into the next one");

    b = archive();
    memcpy(central(&b, 1) + 46, "b/data/9", 8);
    memcpy(central(&b, 2) + 46, "b/data/00", 9);
    put(central(&b, 1) + 28, 8, 2);
    refuses(&b, "has another local header");

    const struct make_entry twice[] = {{"same", "1", 1}, {"same", "2", 1}};
    b = (struct make_bytes){0};
    make_zip(&b, twice, 2);
    refuses(&b, "entry \"same\" exists twice");
}

Test(zip, refuses_compressed_entries_when_read)
{
    struct make_bytes b = archive();
    put(central(&b, 2) + 10, 8, 2);
    refuses(&b, "entry \"b/data/10\" is compressed or encrypted");

    b = archive();
    put(central(&b, 2) + 8, 1, 2);
    refuses(&b, "entry \"b/data/10\" is compressed or encrypted");
}

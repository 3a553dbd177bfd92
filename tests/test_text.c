/* Growing text, JSON strings and numbers. */
#include "../formats/text.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_string(const char *in, const char *want)
{
    struct fmt_text t = {0};
    cr_assert(fmt_text_json_string(&t, in));
    cr_expect_str_eq(t.data, want);
    cr_expect_eq(t.size, strlen(want));
    fmt_text_free(&t);
}

Test(text, json_strings)
{
    check_string("", "\"\"");
    check_string(NULL, "null");
    check_string("left bike", "\"left bike\"");
    check_string("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
    check_string("\n\r\t\x01\x1f\x7f", "\"\\n\\r\\t\\u0001\\u001f\\u007f\"");
    check_string("Fahrrad \xC3\xBC \xE2\x82\xAC \xF0\x9F\x9A\xB2",
                 "\"Fahrrad \xC3\xBC \xE2\x82\xAC \xF0\x9F\x9A\xB2\"");
    check_string("\xFF", "\"\xEF\xBF\xBD\"");
    check_string("a\xC3", "\"a\xEF\xBF\xBD\"");                               // cut off
    check_string("\xC0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");                 // overlong
    check_string("\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""); // surrogate
    check_string("52203\\", "\"52203\\\\\"");                                 // run lengths hold backslashes
}

Test(text, utf8_lengths)
{
    cr_expect_eq(fmt_utf8_length("a", 1), 1);
    cr_expect_eq(fmt_utf8_length("", 0), 0);
    cr_expect_eq(fmt_utf8_length("\xC3\xBC", 2), 2);
    cr_expect_eq(fmt_utf8_length("\xC3\xBC", 1), 0);
    cr_expect_eq(fmt_utf8_length("\xF4\x8F\xBF\xBF", 4), 4);
    cr_expect_eq(fmt_utf8_length("\xF4\x90\x80\x80", 4), 0, "behind U+10FFFF");
    cr_expect_eq(fmt_utf8_length("\x80", 1), 0);
}

static void check_number(double v, int digits, const char *want)
{
    struct fmt_text t = {0};
    cr_assert(fmt_text_json_number(&t, v, digits));
    cr_expect_str_eq(t.data, want);
    fmt_text_free(&t);
}

Test(text, json_numbers)
{
    check_number(25, 17, "25.0");
    check_number(0, 3, "0.0");
    check_number(-8.25, 4, "-8.25");
    check_number(0.1, 9, "0.1");
    check_number(1e300, 3, "1e+300");
    check_number(NAN, 9, "null");
    check_number(-INFINITY, 9, "null");
}

Test(text, numbers_come_back)
{
    struct fmt_text t = {0};
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 10000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        double v;
        memcpy(&v, &x, sizeof v);
        if (!isfinite(v)) continue;
        fmt_text_clear(&t);
        cr_assert(fmt_text_json_number(&t, v, 17));
        cr_assert_eq(strtod(t.data, NULL), v, "%s", t.data);
    }
    fmt_text_free(&t);
}

Test(text, grows_and_is_reused)
{
    struct fmt_text t = {0};
    for (int i = 0; i < 1000; i++) cr_assert(fmt_text_printf(&t, "%03d,", i));
    cr_expect_eq(t.size, 4000);
    cr_expect_eq(strncmp(t.data + 4 * 999, "999,", 5), 0);
    size_t capacity = t.capacity;
    char *data = t.data;
    fmt_text_clear(&t);
    cr_expect_eq(t.size, 0);
    cr_expect_str_eq(t.data, "");
    cr_assert(fmt_text_append(&t, "a\0b", 3));
    cr_expect_eq(t.size, 3);
    cr_expect_eq(memcmp(t.data, "a\0b", 4), 0, "NUL-terminated");
    cr_expect(t.data == data && t.capacity == capacity, "no new allocation");
    cr_expect_not(fmt_text_reserve(&t, SIZE_MAX), "overflow is refused");
    cr_expect_eq(t.size, 3);
    fmt_text_free(&t);
    fmt_text_free(&t);
    cr_expect_null(t.data);
}

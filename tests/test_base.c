/* test_base.c - number formats, checked sizes, error sentences */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base.h"

TestSuite(base, .timeout = 30);

Test(base, the_first_failure_stays)
{
    struct s2_err err = {0};
    cr_expect_eq(s2_fail(&err, S2_E_MODEL, "%s has no tensor %d.", "a.pt", 3), S2_E_MODEL);
    cr_expect_eq(s2_fail(&err, S2_E_INPUT, "Another."), S2_E_INPUT);
    cr_expect_eq(err.status, S2_E_MODEL);
    cr_expect_str_eq(err.text, "a.pt has no tensor 3.");
    cr_expect_eq(s2_fail(NULL, S2_E_USAGE, "Nobody asks."), S2_E_USAGE);
}

Test(base, a_long_sentence_is_cut)
{
    struct s2_err err = {0};
    char long_text[3000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    s2_fail(&err, S2_E_INPUT, "%s", long_text);
    cr_expect_eq(strlen(err.text), sizeof err.text - 1);
}

Test(base, missing_memory_is_told_in_mib)
{
    struct s2_err err = {0};
    cr_expect_eq(s2_no_memory(&err, "the weights", ((size_t)300 << 20) + 1), S2_E_DEVICE);
    cr_expect_not_null(strstr(err.text, "the weights"));
    cr_expect_not_null(strstr(err.text, "301 MiB"));
}

Test(base, sizes_that_overflow_are_refused)
{
    size_t v = 7;
    cr_expect(!s2_mul(SIZE_MAX / 2, 3, &v));
    cr_expect(!s2_add(SIZE_MAX, 1, &v));
    cr_expect_eq(v, 7);
    cr_expect(s2_mul(1 << 20, 4, &v) && v == 4 << 20);
    cr_expect(s2_add(SIZE_MAX - 1, 1, &v) && v == SIZE_MAX);
}

Test(base, bf16_rounds_to_nearest_even)
{
    cr_expect_eq(s2_bf16(1), 0x3f80);
    cr_expect_eq(s2_bf16(1 + 0x1p-8f), 0x3f80);
    cr_expect_eq(s2_bf16(1 + 0x1.8p-8f), 0x3f81);
    cr_expect_eq(s2_bf16(1 + 3 * 0x1p-8f), 0x3f82);
    cr_expect_eq(s2_bf16(-0.0f), 0x8000);
    cr_expect_eq(s2_bf16(0x1.fffffep127f), 0x7f80, "rounds to infinity");
    cr_expect_eq(s2_bf16(INFINITY), 0x7f80);
    uint32_t low_nan = 0x7f800001;
    float nan;
    memcpy(&nan, &low_nan, sizeof nan);
    cr_expect(isnan(s2_from_bf16(s2_bf16(nan))), "a NaN whose payload is cut off stays one");
    for (uint32_t i = 0; i < 65536; i++) {
        const float f = s2_from_bf16((uint16_t)i);
        cr_assert(isnan(f) || s2_bf16(f) == i, "%04x", i);
    }
}

Test(base, f16_widens_exactly)
{
    cr_expect_eq(s2_from_f16(0x3c00), 1);
    cr_expect_eq(s2_from_f16(0xc500), -5);
    cr_expect_eq(s2_from_f16(0x7bff), 65504);
    cr_expect_eq(s2_from_f16(0x0001), 0x1p-24f);
    cr_expect_eq(s2_from_f16(0x83ff), -1023 * 0x1p-24f);
    cr_expect(s2_from_f16(0x8000) == 0 && signbit(s2_from_f16(0x8000)));
    cr_expect_eq(s2_from_f16(0xfc00), -INFINITY);
    cr_expect(isnan(s2_from_f16(0x7e01)));
}

Test(base, stored_tensors_widen_from_any_address)
{
    char bytes[1 + 3 * sizeof(double)];
    const double doubles[] = {1, -2.5, 0.1};
    const uint16_t halves[] = {0x3c00, 0xc500, 0x0001}, brains[] = {0x3f80, 0xc049, 0};
    struct s2_stored t = {.name = "t", .dtype = S2_F64, .ndim = 1, .dim = {3}, .data = bytes + 1, .elements = 3};
    float out[3];
    memcpy(bytes + 1, doubles, sizeof doubles);
    cr_expect(s2_stored_f32(&t, 1, 2, out));
    cr_expect(out[0] == -2.5f && out[1] == 0.1f);
    memcpy(bytes + 1, halves, sizeof halves);
    t.dtype = S2_F16;
    cr_expect(s2_stored_f32(&t, 0, 3, out));
    cr_expect(out[0] == 1 && out[1] == -5 && out[2] == 0x1p-24f);
    memcpy(bytes + 1, brains, sizeof brains);
    t.dtype = S2_BF16;
    cr_expect(s2_stored_f32(&t, 1, 1, out));
    cr_expect_eq(out[0], -3.140625f);
    t.dtype = S2_I64;
    cr_expect(!s2_stored_f32(&t, 0, 1, out));
}

Test(base, shapes_as_text)
{
    char buf[32], small[6];
    const int64_t dim[] = {96, 3, 7, 7};
    cr_expect_str_eq(s2_shape_text(dim, 4, buf, sizeof buf), "[96,3,7,7]");
    cr_expect_str_eq(s2_shape_text(dim, 0, buf, sizeof buf), "[]");
    cr_expect_str_eq(s2_shape_text(dim, 4, small, sizeof small), "[96,3");
}

static void count_messages(void *ctx, enum s2_log_level level, const char *text)
{
    cr_expect_eq(level, S2_LOG_WARN);
    cr_expect_str_eq(text, "frame 7 is late");
    ++*(int *)ctx;
}

Test(base, messages_go_to_the_callback_or_nowhere)
{
    int messages = 0;
    s2_log(S2_LOG_ERROR, "nobody listens");
    s2_log_set(count_messages, &messages);
    s2_log(S2_LOG_WARN, "frame %d is late", 7);
    s2_log_set(NULL, NULL);
    s2_log(S2_LOG_WARN, "frame %d is late", 8);
    cr_expect_eq(messages, 1);
}

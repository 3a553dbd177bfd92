/* JSON nesting, medians and statistics, warnings about results. */
#include "../cmd/json.h"
#include "../cmd/stats.h"
#include "../cmd/watch.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <string.h>

static void build(struct cmd_json *j)
{
    cmd_json_object(j, NULL);
    cmd_json_string(j, "a\"", "x\ny");
    cmd_json_array(j, "list");
    cmd_json_integer(j, NULL, -3);
    cmd_json_number(j, NULL, NAN, 5);
    cmd_json_bool(j, NULL, true);
    cmd_json_object(j, NULL);
    cmd_json_end(j);
    cmd_json_end(j);
    cmd_json_null(j, "none");
    cmd_json_end(j);
}

Test(cmd_json, nesting_and_commas)
{
    struct cmd_json line = {.one_line = true}, text = {0};
    build(&line);
    cr_expect_str_eq(line.text.data, "{\"a\\\"\": \"x\\ny\", \"list\": [-3, null, true, {}], \"none\": null}");
    cr_expect_not(line.failed);
    build(&text);
    cr_expect_str_eq(text.text.data, "{\n \"a\\\"\": \"x\\ny\",\n \"list\": [\n  -3,\n  null,\n  true,\n  {}\n ],\n "
                                     "\"none\": null\n}");
    cmd_json_free(&line);
    cmd_json_free(&text);
}

Test(cmd_json, what_is_not_closed_is_not_printed)
{
    struct cmd_json j = {0};
    cmd_json_object(&j, NULL);
    cr_expect_not(cmd_json_print(&j, stdout));
    for (int i = 0; i < 40; i++) cmd_json_array(&j, "deep");
    cr_expect(j.failed, "too deep is a failure, not an overflow");
    cmd_json_free(&j);
    struct cmd_json k = {0};
    cmd_json_end(&k);
    cr_expect(k.failed);
    cmd_json_free(&k);
}

Test(stats, medians)
{
    cr_expect_eq(cmd_median((double[]){3, 1, 2}, 3), 2);
    cr_expect_eq(cmd_median((double[]){4, 1, 3, 2}, 4), 2.5);
    cr_expect_eq(cmd_median((double[]){7}, 1), 7);
    cr_expect_eq(cmd_median(NULL, 0), 0);
}

Test(stats, steady_state_is_the_later_half)
{
    struct cmd_stats s = {0};
    cr_expect_eq(cmd_stats_steady(&s), 0);
    for (int i = 0; i < 10; i++) s.frame_seconds[i] = i < 5 ? 9 : i;
    s.frames = 10;
    cr_expect_eq(cmd_stats_steady(&s), 7, "of 5 6 7 8 9");
    for (int i = 0; i < CMD_STATS_WINDOW; i++) s.frame_seconds[i] = 1;
    s.frames = 100000;
    cr_expect_eq(cmd_stats_steady(&s), 1);
}

static struct fmt_record_object result(float score, uint8_t *bits)
{
    return (struct fmt_record_object){.started = true, .score = score, .bits = {16, 4, 2, bits}};
}

Test(watch, warns_of_absence_at_a_prompt_and_of_flooding, .init = cr_redirect_stderr)
{
    struct fmt_object objects[2] = {{.id = 7, .label = "rider"}, {.id = 9}};
    struct cmd_watch w;
    cr_assert_eq(cmd_watch_open(&w, objects, 2, NULL), S2_OK);
    uint8_t none[8] = {0}, some[8] = {1}, all[8];
    memset(all, 255, sizeof all);
    const struct s2_prompt prompts[2] = {{.object = 0}, {.object = 1, .kind = S2_PROMPT_MASK}};
    struct fmt_record_object r[2] = {result(-2.5F, none), result(3, some)};
    cr_expect_eq(cmd_watch_frame(&w, 0, r, prompts, 2), 1);
    r[0] = result(1, some), r[1] = result(3, all);
    cr_expect_eq(cmd_watch_frame(&w, 1, r, NULL, 0), 2);
    r[1] = result(3, some);
    cmd_watch_frame(&w, 2, r, NULL, 0);
    r[1] = result(3, all);
    cmd_watch_frame(&w, 3, r, NULL, 0);
    cmd_watch_close(&w);
    cmd_watch_close(&w);
    fflush(stderr);
    cr_expect_stderr_eq_str(
        "sam2track: warning: object 7 (rider): the model sees no object at its prompt on frame 0 (score -2.50), its "
        "mask is empty\n"
        "sam2track: warning: object 9: its mask suddenly covers 100 % of frame 1: the track is probably lost\n",
        "each is said once");
}

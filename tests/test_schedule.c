/* Which prompts belong to which frame. */
#include "../cmd/schedule.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Prompts on frames (at >= 0) or by time (at < 0: time = -at - 1). */
static struct fmt_prompts make(struct fmt_prompt *q, size_t n, struct fmt_object *objects, size_t n_objects)
{
    for (size_t i = 0; i < n; i++) snprintf(q[i].where, sizeof q[i].where, "prompts[%zu]", i);
    return (struct fmt_prompts){
        .path = "p.json", .objects = objects, .n_objects = n_objects, .prompts = q, .n_prompts = n};
}

static struct fmt_frame frame(int64_t index, double fps, bool last)
{
    return (struct fmt_frame){
        .index = index, .time = (double)index / fps, .next_time = last ? INFINITY : (double)(index + 1) / fps};
}

Test(schedule, range_and_stride_are_checked_before_work)
{
    struct fmt_object objects[1] = {{.id = 1}};
    struct fmt_prompt q[2] = {{.frame = 6}, {.by_time = true, .time = 99}};
    const struct fmt_prompts p = make(q, 2, objects, 1);
    struct s2_err err = {0};
    cr_expect_eq(cmd_schedule_check(&p, 0, -1, 1, CMD_FORWARD, NULL), S2_OK);
    cr_expect_eq(cmd_schedule_check(&p, 0, 7, 3, CMD_FORWARD, NULL), S2_OK);
    cr_expect_eq(cmd_schedule_check(&p, 2, -1, 4, CMD_FORWARD, NULL), S2_OK);
    cr_expect_eq(cmd_schedule_check(&p, 0, 6, 1, CMD_FORWARD, &err), S2_E_USAGE);
    cr_expect_str_eq(err.text,
                     "p.json: prompts[0]: frame 6 is outside the range of --frames; frames count from the start of the "
                     "input, and the first of the range is 0");
    cr_expect_eq(cmd_schedule_check(&p, 7, -1, 1, CMD_FORWARD, NULL), S2_E_USAGE);
    err = (struct s2_err){0};
    cr_expect_eq(cmd_schedule_check(&p, 0, -1, 4, CMD_FORWARD, &err), S2_E_USAGE);
    cr_expect_str_eq(err.text, "p.json: prompts[0]: --stride 4 skips frame 6; the nearest frames it delivers are 4 "
                               "and 8");
}

Test(schedule, capacities_cover_points_boxes_and_times)
{
    struct fmt_object objects[3] = {{.id = 1}, {.id = 2}, {.id = 3}};
    struct fmt_prompt q[] = {
        {.frame = 5, .object = 0, .n_points = 3},
        {.frame = 0, .object = 0, .n_points = 1, .has_box = true},
        {.frame = 5, .object = 0, .n_points = 1},
        {.frame = 5, .object = 1, .n_points = 4},
        {.by_time = true, .time = 1.5, .object = 1, .n_points = 2},
        {.by_time = true, .time = 1.5, .object = 1, .has_box = true},
        {.frame = 9, .object = 2, .kind = S2_PROMPT_MASK},
    };
    const struct fmt_prompts p = make(q, sizeof q / sizeof *q, objects, 3);
    struct cmd_schedule s;
    cr_assert_eq(cmd_schedule_open(&s, &p, NULL), S2_OK);
    cr_expect_eq(s.prompted_frames[0], 2);
    cr_expect_eq(s.prompted_frames[1], 2);
    cr_expect_eq(s.prompted_frames[2], 1);
    cr_expect_eq(s.max_points, 8, "object 2: four on frame 5, and two and a box that may fall on it");
    cmd_schedule_close(&s);
    cmd_schedule_close(&s);
}

Test(schedule, prompts_come_on_their_frame_in_their_order)
{
    struct fmt_object objects[3] = {{.id = 1}, {.id = 2}, {.id = 3}};
    const float xy[2] = {10, 20};
    const int8_t labels[1] = {0};
    struct fmt_prompt q[] = {
        {.frame = 3, .object = 1, .has_box = true, .box = {1, 2, 3, 4}},
        {.by_time = true, .time = 0.3, .object = 2, .kind = S2_PROMPT_STOP},
        {.frame = 1, .object = 0, .n_points = 1, .xy = (float *)xy, .labels = (int8_t *)labels},
        {.frame = 3, .object = 0, .kind = S2_PROMPT_MASK, .mask = {.width = 7}},
    };
    const struct fmt_prompts p = make(q, 4, objects, 3);
    struct cmd_schedule s;
    cr_assert_eq(cmd_schedule_open(&s, &p, NULL), S2_OK);
    for (int pass = 0; pass < 2; pass++) {
        const int want[5] = {0, 1, 0, 3, 0};
        for (int i = 0; i < 5; i++) {
            const struct fmt_frame f = frame(i, 10, i == 4);
            int n;
            cr_assert_eq(cmd_schedule_frame(&s, &f, &n, NULL), S2_OK);
            cr_expect_eq(n, want[i], "frame %d has %d", i, n);
            if (i == 1) {
                cr_expect(s.now[0].object == 0 && s.now[0].n_points == 1 && s.now[0].xy == xy &&
                          s.now[0].labels == labels && !s.now[0].has_box);
            }
            if (i == 3) {
                cr_expect(s.now[0].object == 1 && s.now[0].has_box && s.now[0].box[3] == 4);
                cr_expect_eq(s.now[1].kind, S2_PROMPT_STOP);
                cr_expect(s.now[2].kind == S2_PROMPT_MASK && s.now[2].mask.width == 7);
            }
        }
        cr_expect_eq(s.left, 0);
        cr_expect_eq(cmd_schedule_end(&s, NULL), S2_OK);
        cmd_schedule_rewind(&s, CMD_PASS_ALL);
        cr_expect_eq(s.left, 4);
    }
    cmd_schedule_close(&s);
}

/* What frame 2 at 0.2 s says to these prompts. */
static enum s2_status met(struct fmt_prompt *q, size_t n, struct s2_err *err)
{
    struct fmt_object objects[2] = {{.id = 4}, {.id = 9}};
    const struct fmt_prompts p = make(q, n, objects, 2);
    const struct fmt_frame f = frame(2, 10, false);
    struct cmd_schedule s;
    int taken_now;
    cr_assert_eq(cmd_schedule_open(&s, &p, NULL), S2_OK);
    *err = (struct s2_err){0};
    const enum s2_status status = cmd_schedule_frame(&s, &f, &taken_now, err);
    cmd_schedule_close(&s);
    return status;
}

Test(schedule, a_mask_or_a_stop_stands_alone_even_if_a_time_meets_a_frame_number)
{
    struct s2_err err;
    struct fmt_prompt mask[] = {{.by_time = true, .time = 0.2, .kind = S2_PROMPT_MASK}, {.frame = 2, .n_points = 1}};
    cr_expect_eq(met(mask, 2, &err), S2_E_USAGE);
    cr_expect_str_eq(err.text,
                     "p.json: prompts[1]: a mask stands alone, but prompts[0] prompts object 4 at frame 2 too; "
                     "keep one of them");
    struct fmt_prompt stop[] = {{.frame = 2, .n_points = 1}, {.by_time = true, .time = 0.21, .kind = S2_PROMPT_STOP}};
    cr_expect_eq(met(stop, 2, &err), S2_E_USAGE);
    cr_expect_str_eq(err.text, "p.json: prompts[1]: object 4 is both stopped and prompted at frame 2; see prompts[0]");

    struct fmt_prompt others[] = {{.by_time = true, .time = 0.2, .kind = S2_PROMPT_MASK},
                                  {.frame = 2, .object = 1, .n_points = 1},
                                  {.by_time = true, .time = 0.2, .object = 1, .has_box = true},
                                  {.frame = 3, .n_points = 1}};
    cr_expect_eq(met(others, 4, &err), S2_OK, "%s", err.text);
}

/* The frame that takes a prompt at `time` in a clip of `frames` frames, every stride-th delivered; -1: none. */
static int64_t taken(double time, int frames, double fps, int stride, struct s2_err *err)
{
    struct fmt_object objects[1] = {{.id = 1}};
    struct fmt_prompt q[1] = {{.by_time = true, .time = time}};
    const struct fmt_prompts p = make(q, 1, objects, 1);
    struct cmd_schedule s;
    int64_t at = -1;
    cr_assert_eq(cmd_schedule_open(&s, &p, err), S2_OK);
    for (int i = 0, n; i < frames && !err->status; i += stride) {
        const struct fmt_frame f = frame(i, fps, i == frames - 1);
        cmd_schedule_frame(&s, &f, &n, err);
        if (n) at = i;
    }
    if (!err->status) cmd_schedule_end(&s, err);
    cmd_schedule_close(&s);
    return at;
}

Test(schedule, a_time_means_the_frame_shown_then)
{
    struct s2_err err = {0};
    cr_expect_eq(taken(0, 3, 30, 1, &err), 0);
    cr_expect_eq(taken(0, 1, 30, 1, &err), 0, "a clip of one frame");
    cr_expect_eq(taken(0.0333, 3, 30, 1, &err), 0);
    cr_expect_eq(taken(0.033333, 3, 30, 1, &err), 1, "six decimals of 1/30 s");
    cr_expect_eq(taken(0.05, 3, 30, 1, &err), 1);
    cr_expect_eq(taken(0.099, 3, 30, 1, &err), 2, "the last frame lasts as long as the one before");
    cr_expect_eq(taken(1.02, 60, 30, 10, &err), 30);
    cr_expect_eq(err.status, S2_OK, "%s", err.text);
}

Test(schedule, times_that_no_frame_takes)
{
    struct s2_err err = {0};
    cr_expect_eq(taken(0.2, 3, 30, 1, &err), -1);
    cr_expect_str_eq(err.text,
                     "p.json: prompts[0]: time 0.2 s is past the end: the last frame is shown at 0.0666667 s");
    err = (struct s2_err){0};
    cr_expect_eq(taken(0.25, 60, 10, 2, &err), 2);
    cr_expect_eq(err.status, S2_OK);
    cr_expect_eq(taken(0.35, 60, 10, 2, &err), -1);
    cr_expect_eq(err.status, S2_E_USAGE);
    cr_expect(strstr(err.text, "the frame shown at 0.35 s is not delivered"), "%s", err.text);
}

Test(schedule, a_frame_past_the_end_is_named)
{
    struct fmt_object objects[1] = {{.id = 1}};
    struct fmt_prompt q[1] = {{.frame = 60}};
    const struct fmt_prompts p = make(q, 1, objects, 1);
    struct cmd_schedule s;
    struct s2_err err = {0};
    const struct fmt_frame f = frame(59, 30, true);
    int n;
    cr_assert_eq(cmd_schedule_open(&s, &p, &err), S2_OK);
    cr_assert_eq(cmd_schedule_frame(&s, &f, &n, &err), S2_OK);
    cr_expect_eq(cmd_schedule_end(&s, &err), S2_E_USAGE);
    cr_expect_str_eq(err.text, "p.json: prompts[0]: frame 60 is past the end: the last frame is 59");
    cmd_schedule_close(&s);
}

/* The queue of frames between the threads behind a clip. */
#include "../formats/video_queue.h"

#include <criterion/criterion.h>

TestSuite(video_queue, .timeout = 10);

static void push(struct fmt_queue *q, int64_t number, struct fmt_queued *item)
{
    item->index = 10 * number;
    cr_assert(fmt_queue_push(q, number, item));
}

static struct fmt_queue *queue_of(int n)
{
    static struct fmt_queue q;
    struct fmt_queued item = {.frame = av_frame_alloc()};
    cr_assert_not_null(item.frame);
    cr_assert(fmt_queue_init(&q, FMT_QUEUE_SLOTS));
    for (int i = 0; i < n; i++) push(&q, i, &item);
    av_frame_free(&item.frame);
    return &q;
}

/* What entered leaves, then the queue says why it ended; `number` may have entered long ago. */
static void expect_end(int64_t number)
{
    struct fmt_queue *q = queue_of(3);
    struct s2_err why = {0}, told;
    struct fmt_queued out = {.frame = av_frame_alloc()};
    s2_fail(&why, S2_E_DEVICE, "no memory");
    fmt_queue_verdict(q, &told);
    cr_assert_eq(told.status, S2_OK);
    fmt_queue_end(q, number, &why);
    for (int i = 0; i < 3; i++) {
        cr_assert(fmt_queue_pop(q, &out));
        cr_assert_eq(out.number, i);
        cr_assert_eq(out.index, 10 * i);
    }
    cr_assert_not(fmt_queue_pop(q, &out));
    fmt_queue_verdict(q, &told);
    cr_assert_eq(told.status, S2_E_DEVICE);
    cr_assert_str_eq(told.text, "no memory");
    av_frame_free(&out.frame);
    fmt_queue_free(q);
}

Test(video_queue, ends_behind_the_last)
{
    expect_end(3);
}

Test(video_queue, ends_at_once_where_the_number_has_entered)
{
    expect_end(0);
}

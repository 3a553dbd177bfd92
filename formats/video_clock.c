/* video_clock.c - times of frames: relative to the first, increasing, made up where they are missing. */
#include "video_stream.h"

int64_t fmt_clock_next(struct fmt_clock *c, int64_t stamp)
{
    const int64_t far = INT64_C(1) << 60; /* beyond any clip; keeps the sums below from overflowing */
    int64_t expected = c->last < 0 ? 0 : c->last + c->ticks;
    int64_t now = expected;
    if (stamp != AV_NOPTS_VALUE && stamp > -far && stamp < far) {
        if (!c->known) {
            c->known = true;
            c->offset = stamp - expected;
        }
        now = stamp - c->offset;
    }
    if (now >= far) now = expected;
    if (now <= c->last) {
        bool jump = c->last - now > c->second;
        now = jump ? expected : c->last + 1;
        if (jump) c->offset = stamp - now;
    }
    return c->last = now;
}

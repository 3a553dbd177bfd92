/* bench.c - the clock of kcheck --bench */
#include "kcheck.h"

#include <stdarg.h>
#include <stdio.h>

#define T KC_TESTED

enum { DEVICE_CALLS = 32 };

static struct {
    double started, best, total;
    int runs;
    struct s2_signature program;
} the_clock;

void kc_clock_start(void)
{
    the_clock.best = 1e30;
    the_clock.total = 0;
    the_clock.runs = -1;
    the_clock.program.session++;
}

/* Called before each run: takes the time of the one before. The first run warms up, on a device two more, the second of
 * which records; then at least three runs and a third of a second, on a device a twentieth; the best counts. */
bool kc_clock_more(void)
{
    const struct s2_ops *ops = kc.be[T]->ops;
    const int warming = ops->begin ? 3 : 1;
    if (ops->sync) ops->sync(kc.be[T]);
    const double now = s2_now();
    if (the_clock.runs >= warming) {
        const double spent = (now - the_clock.started) / (ops->begin ? DEVICE_CALLS : 1);
        the_clock.total += now - the_clock.started;
        if (spent < the_clock.best) the_clock.best = spent;
    }
    the_clock.runs++;
    the_clock.started = s2_now();
    const bool more =
        the_clock.runs <= warming + 2 || (the_clock.total < (ops->begin ? 0.05 : 0.3) && the_clock.runs < 1000);
    if (!more && ops->forget) ops->forget(kc.be[T], the_clock.program.session);
    return more;
}

int kc_clock_calls(void)
{
    const struct s2_ops *ops = kc.be[T]->ops;
    if (!ops->begin) return 1;
    return ops->begin(kc.be[T], &the_clock.program, NULL) ? 0 : DEVICE_CALLS;
}

bool kc_clock_again(void)
{
    return kc.be[T]->ops->end && kc.be[T]->ops->end(kc.be[T]);
}

void kc_clock_report(const char *op, double flops, double bytes, const char *fmt, ...)
{
    char shape[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(shape, sizeof shape, fmt, ap);
    va_end(ap);
    printf("%-18s %-44s %9.3f", op, shape, 1e3 * the_clock.best);
    if (flops > 0) {
        printf(" %9.1f", 1e-9 * flops / the_clock.best);
    } else {
        printf(" %9s", "");
    }
    printf(" %9.2f\n", 1e-9 * bytes / the_clock.best);
    fflush(stdout);
}

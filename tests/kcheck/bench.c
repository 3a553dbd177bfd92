/* bench.c - the clock of kcheck --bench */
#include "kcheck.h"

#include <stdarg.h>
#include <stdio.h>

static struct {
    double started, best, total;
    int runs;
} the_clock;

void kc_clock_start(void)
{
    the_clock.best = 1e30;
    the_clock.total = 0;
    the_clock.runs = -1;
}

/* Called before each run: takes the time of the one before. The first run warms up; then at least three runs
 * and a third of a second, the best counts. */
bool kc_clock_more(void)
{
    const double now = s2_now();
    if (the_clock.runs > 0) {
        const double spent = now - the_clock.started;
        the_clock.total += spent;
        if (spent < the_clock.best) the_clock.best = spent;
    }
    the_clock.runs++;
    the_clock.started = s2_now();
    return the_clock.runs <= 3 || (the_clock.total < 0.3 && the_clock.runs < 1000);
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

/* process.c - see process.h */
#include "process.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../engine/base.h"

static double start; /* on the clock of s2_now() */

/* Seconds from exec to now by /proc/self/stat (clock ticks since boot, field 22), 0 if it cannot be told. */
static double age(void)
{
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f) return 0;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *p = strrchr(text, ')'); // the name before it may hold anything
    unsigned long long ticks;
    if (!p || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                     &ticks) != 1) {
        return 0;
    }
    struct timespec t;
    if (clock_gettime(CLOCK_BOOTTIME, &t)) return 0;
    const double seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return seconds > 0 ? seconds : 0;
}

void cmd_process_started(void)
{
    start = s2_now() - age();
}

double cmd_process_seconds(void)
{
    return s2_now() - start;
}

double cmd_process_peak_mib(void)
{
    // ru_maxrss is inherited through exec, so a large parent would show up in it
    long long kib = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmHWM: %lld", &kib) == 1) break;
    }
    if (f) fclose(f);
    struct rusage usage;
    if (kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0) kib = usage.ru_maxrss;
    return (double)kib / 1024;
}

/* ops.c - how a backend records its first failure, names of programs; see ops.h */
#include "ops.h"

#include <stdarg.h>
#include <stdio.h>

void s2_backend_fail(struct s2_backend *be, enum s2_status status, const char *fmt, ...)
{
    be->skip = true;
    if (be->err.status != S2_OK) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(be->err.text, sizeof be->err.text, fmt, ap);
    va_end(ap);
    be->err.status = status;
}

enum s2_status s2_backend_check(const struct s2_backend *be, struct s2_err *err)
{
    if (be->err.status == S2_OK) return S2_OK;
    return s2_fail(err, be->err.status, "%s", be->err.text);
}

const char *s2_program_name(enum s2_program program)
{
    static const char *const names[] = {"image", "track", "results", "prompt", "refine"};
    return names[program];
}

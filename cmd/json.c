/* json.c - see json.h */
#include "json.h"

#include <inttypes.h>

static void check(struct cmd_json *j, bool ok)
{
    if (!ok) j->failed = true;
}

static void line_break(struct cmd_json *j)
{
    if (!j->one_line) check(j, fmt_text_printf(&j->text, "\n%*s", j->depth, ""));
}

static void begin(struct cmd_json *j, const char *key)
{
    if (j->filled) check(j, fmt_text_puts(&j->text, j->one_line ? ", " : ","));
    if (j->depth > 0) line_break(j);
    if (key) {
        check(j, fmt_text_json_string(&j->text, key));
        check(j, fmt_text_puts(&j->text, ": "));
    }
    j->filled = true;
}

static void nest(struct cmd_json *j, const char *key, const char *opening, char closing)
{
    begin(j, key);
    check(j, fmt_text_puts(&j->text, opening));
    if (j->depth == (int)sizeof j->closing) {
        j->failed = true;
        return;
    }
    j->closing[j->depth++] = closing;
    j->filled = false;
}

void cmd_json_object(struct cmd_json *j, const char *key)
{
    nest(j, key, "{", '}');
}

void cmd_json_array(struct cmd_json *j, const char *key)
{
    nest(j, key, "[", ']');
}

void cmd_json_end(struct cmd_json *j)
{
    if (j->depth == 0) {
        j->failed = true;
        return;
    }
    const char closing = j->closing[--j->depth];
    if (j->filled) line_break(j);
    check(j, fmt_text_append(&j->text, &closing, 1));
    j->filled = true;
}

void cmd_json_string(struct cmd_json *j, const char *key, const char *value)
{
    begin(j, key);
    check(j, fmt_text_json_string(&j->text, value));
}

void cmd_json_integer(struct cmd_json *j, const char *key, int64_t value)
{
    begin(j, key);
    check(j, fmt_text_printf(&j->text, "%" PRId64, value));
}

void cmd_json_number(struct cmd_json *j, const char *key, double value, int digits)
{
    begin(j, key);
    check(j, fmt_text_json_number(&j->text, value, digits));
}

void cmd_json_bool(struct cmd_json *j, const char *key, bool value)
{
    begin(j, key);
    check(j, fmt_text_puts(&j->text, value ? "true" : "false"));
}

void cmd_json_null(struct cmd_json *j, const char *key)
{
    begin(j, key);
    check(j, fmt_text_puts(&j->text, "null"));
}

bool cmd_json_print(struct cmd_json *j, FILE *f)
{
    if (j->failed || j->depth != 0) return false;
    fwrite(j->text.data, 1, j->text.size, f);
    fputc('\n', f);
    return fflush(f) == 0 && !ferror(f);
}

void cmd_json_free(struct cmd_json *j)
{
    fmt_text_free(&j->text);
}

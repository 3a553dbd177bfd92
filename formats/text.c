/* text.c - growing text, JSON strings and numbers (RFC 8259). */
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fmt_text_reserve(struct fmt_text *t, size_t more)
{
    if (more >= SIZE_MAX - t->size) return false;
    size_t need = t->size + more + 1;
    if (need <= t->capacity) return true;
    size_t capacity = t->capacity ? t->capacity : 64;
    while (capacity < need) capacity = capacity > SIZE_MAX / 2 ? need : 2 * capacity;
    char *data = realloc(t->data, capacity);
    if (!data) return false;
    t->data = data;
    t->capacity = capacity;
    t->data[t->size] = 0;
    return true;
}

bool fmt_text_append(struct fmt_text *t, const char *bytes, size_t n)
{
    if (!fmt_text_reserve(t, n)) return false;
    if (n) memcpy(t->data + t->size, bytes, n);
    t->size += n;
    t->data[t->size] = 0;
    return true;
}

bool fmt_text_puts(struct fmt_text *t, const char *s)
{
    return fmt_text_append(t, s, strlen(s));
}

bool fmt_text_printf(struct fmt_text *t, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    bool ok = n >= 0 && fmt_text_reserve(t, (size_t)n);
    if (ok) {
        vsnprintf(t->data + t->size, (size_t)n + 1, fmt, again);
        t->size += (size_t)n;
    }
    va_end(again);
    va_end(args);
    return ok;
}

size_t fmt_utf8_length(const char *s, size_t n)
{
    const uint8_t *u = (const uint8_t *)s;
    if (n < 1) return 0;
    if (u[0] < 0x80) return 1;
    if (u[0] < 0xC2 || u[0] > 0xF4) return 0;
    size_t length = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    if (n < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((u[i] & 0xC0) != 0x80) return 0;
    // overlong forms, surrogates and what lies behind U+10FFFF
    bool bad = (u[0] == 0xE0 && u[1] < 0xA0) || (u[0] == 0xED && u[1] > 0x9F) || (u[0] == 0xF0 && u[1] < 0x90) ||
               (u[0] == 0xF4 && u[1] > 0x8F);
    return bad ? 0 : length;
}

bool fmt_text_json_string(struct fmt_text *t, const char *s)
{
    if (!s) return fmt_text_puts(t, "null");
    bool ok = fmt_text_puts(t, "\"");
    size_t n = strlen(s);
    for (size_t i = 0; ok && i < n;) {
        size_t length = fmt_utf8_length(s + i, n - i);
        uint8_t c = (uint8_t)s[i];
        if (!length)
            ok = fmt_text_puts(t, "\xEF\xBF\xBD");
        else if (c == '"' || c == '\\')
            ok = fmt_text_printf(t, "\\%c", c);
        else if (c == '\n')
            ok = fmt_text_puts(t, "\\n");
        else if (c == '\r')
            ok = fmt_text_puts(t, "\\r");
        else if (c == '\t')
            ok = fmt_text_puts(t, "\\t");
        else if (c < 0x20 || c == 0x7F)
            ok = fmt_text_printf(t, "\\u%04x", c);
        else
            ok = fmt_text_append(t, s + i, length);
        i += length ? length : 1;
    }
    return ok && fmt_text_puts(t, "\"");
}

bool fmt_text_json_number(struct fmt_text *t, double v, int digits)
{
    if (!isfinite(v)) return fmt_text_puts(t, "null");
    char text[64];
    snprintf(text, sizeof text, "%.*g", digits < 1 ? 1 : digits > 17 ? 17 : digits, v);
    for (char *p = text; *p; p++)
        if (!strchr("0123456789+-e", *p)) *p = '.'; // the locale's point
    if (!strpbrk(text, ".e")) strcat(text, ".0");
    return fmt_text_puts(t, text);
}

void fmt_text_clear(struct fmt_text *t)
{
    t->size = 0;
    if (t->data) t->data[0] = 0;
}

void fmt_text_free(struct fmt_text *t)
{
    free(t->data);
    *t = (struct fmt_text){0};
}

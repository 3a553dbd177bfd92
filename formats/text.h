/* text.h - building text: a growing struct fmt_text, and JSON strings and numbers in it.
 *
 * Start with a zeroed struct fmt_text. Every append keeps `data` NUL-terminated and returns false when memory
 * ran out; the text is then what it was before the call, or a prefix of the new one, and still valid. The
 * buffer grows by doubling and is kept by fmt_text_clear, so that a text reused from frame to frame stops
 * allocating. */
#ifndef S2_FORMATS_TEXT_H
#define S2_FORMATS_TEXT_H

#include "formats.h"

/* Room for `more` bytes and the NUL behind the present size. */
bool fmt_text_reserve(struct fmt_text *, size_t more);
bool fmt_text_append(struct fmt_text *, const char *bytes, size_t n);
bool fmt_text_puts(struct fmt_text *, const char *s);
bool fmt_text_printf(struct fmt_text *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* s as a JSON string with its quotes: quotes, backslash and control characters escaped, invalid UTF-8
 * replaced by U+FFFD, so that any file name gives valid JSON. NULL gives null. */
bool fmt_text_json_string(struct fmt_text *, const char *s);
/* v with at most `digits` significant digits (1..17), always with a point or exponent ("25.0"), independent
 * of the locale; null if v is not finite. */
bool fmt_text_json_number(struct fmt_text *, double v, int digits);

void fmt_text_clear(struct fmt_text *); /* size 0, memory kept */
void fmt_text_free(struct fmt_text *);  /* zeroed; may be called again */

/* Bytes of the valid UTF-8 sequence at s (n bytes are there), 0 if it is not one (Unicode 15, table 3-7). */
size_t fmt_utf8_length(const char *s, size_t n);

#endif

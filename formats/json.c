/* json.c - a strict, bounded door to cJSON, and sentences about values. */
#include "json.h"
#include "text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ the guard */

struct scan {
    const char *name, *text;
    size_t size, i;
    int depth;
    size_t values;
    struct s2_err *err;
};

static enum s2_status fail_at(const struct scan *s, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum s2_status fail_at(const struct scan *s, size_t at, const char *fmt, ...)
{
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < s->size; i++) {
        column++;
        if ((s->text[i] & 0xC0) == 0x80) column--; // columns count characters
        if (s->text[i] == '\n') line++, column = 1;
    }
    return s2_fail(s->err, S2_E_USAGE, "%s: line %zu, column %zu: %s", s->name, line, column, what);
}

/* A string, the scan standing on its opening quote. */
static enum s2_status scan_string(struct scan *s)
{
    size_t start = s->i++;
    while (s->i < s->size && s->text[s->i] != '"') {
        uint8_t c = (uint8_t)s->text[s->i];
        if (c == '\n') return fail_at(s, start, "the string that starts here has no closing quote on its line");
        if (c < 0x20) return fail_at(s, s->i, "a control character (0x%02x) in a string must be escaped", c);
        if (c == '\\') {
            if (s->size - s->i >= 6 && !memcmp(s->text + s->i, "\\u0000", 6))
                return fail_at(s, s->i, "\\u0000 cannot be part of a string here");
            s->i += 2;
            continue;
        }
        size_t length = fmt_utf8_length(s->text + s->i, s->size - s->i);
        if (!length) return fail_at(s, s->i, "the string is not valid UTF-8 (byte 0x%02x)", c);
        s->i += length;
    }
    if (s->i >= s->size) return fail_at(s, start, "the string that starts here has no closing quote");
    s->i++;
    return S2_OK;
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static bool is_number(const char *p, const char *end)
{
    if (p < end && *p == '-') p++;
    if (p == end || !isdigit((uint8_t)*p)) return false;
    if (*p == '0')
        p++;
    else
        while (p < end && isdigit((uint8_t)*p)) p++;
    if (p < end && *p == '.') {
        const char *digits = ++p;
        while (p < end && isdigit((uint8_t)*p)) p++;
        if (p == digits) return false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        const char *digits = p;
        while (p < end && isdigit((uint8_t)*p)) p++;
        if (p == digits) return false;
    }
    return p == end;
}

static bool equal_word(const char *p, size_t n, const char *word)
{
    if (*p == '-' || *p == '+') p++, n--;
    return n == strlen(word) && !strncasecmp(p, word, n);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool in_word(char c)
{
    return isalnum((uint8_t)c) || (c && strchr("+-._", c));
}

/* A number, true, false, null, or a word that JSON does not know. */
static enum s2_status scan_word(struct scan *s)
{
    const char *p = s->text + s->i;
    size_t start = s->i;
    while (s->i < s->size && in_word(s->text[s->i])) s->i++;
    size_t n = s->i - start;
    if ((n == 4 && (!memcmp(p, "true", 4) || !memcmp(p, "null", 4))) || (n == 5 && !memcmp(p, "false", 5)))
        return S2_OK;
    int shown = n < 40 ? (int)n : 40;
    if (is_number(p, p + n)) {
        if (n < 64) return S2_OK; // cJSON cuts numbers at 63 characters
        return fail_at(s, start, "the number %.*s... has more than 63 characters", shown, p);
    }
    if (equal_word(p, n, "nan") || equal_word(p, n, "infinity") || equal_word(p, n, "inf"))
        return fail_at(s, start, "%.*s is not a number; only finite numbers are allowed", shown, p);
    if (isdigit((uint8_t)*p) || strchr("+-.", *p)) return fail_at(s, start, "%.*s is not a JSON number", shown, p);
    if (equal_word(p, n, "true") || equal_word(p, n, "false") || equal_word(p, n, "null"))
        return fail_at(s, start, "%.*s is written in lower case in JSON", shown, p);
    return fail_at(s, start, "%.*s needs double quotes", shown, p);
}

/* Tokens one by one: what cJSON accepts but JSON does not, and what would be too much. */
static enum s2_status scan_text(struct scan *s)
{
    size_t comma = SIZE_MAX; // where, if it is the last token
    while (s->i < s->size) {
        char c = s->text[s->i];
        enum s2_status status = S2_OK;
        if ((c == ']' || c == '}') && comma != SIZE_MAX) return fail_at(s, comma, "a comma before the closing '%c'", c);
        if (!is_blank(c)) comma = c == ',' ? s->i : SIZE_MAX;
        if (c == '[' || c == '{') {
            if (++s->depth > FMT_JSON_MAX_DEPTH)
                return fail_at(s, s->i, "more than %d levels of brackets", FMT_JSON_MAX_DEPTH);
            s->i++;
        } else if (c == ']' || c == '}') {
            s->depth--;
            s->i++;
        } else if (c == ',' || c == ':') {
            if (++s->values > FMT_JSON_MAX_VALUES)
                return fail_at(s, s->i, "more than %d values; write masks as compressed run lengths",
                               FMT_JSON_MAX_VALUES);
            s->i++;
        } else if (is_blank(c)) {
            s->i++;
        } else if (c == '"') {
            status = scan_string(s);
        } else if (in_word(c)) {
            status = scan_word(s);
        } else if (c == '\'') {
            return fail_at(s, s->i, "strings and keys need double quotes");
        } else if (c == '/' || c == '#') {
            return fail_at(s, s->i, "JSON has no comments");
        } else if (c > 0x20 && c < 0x7F) {
            return fail_at(s, s->i, "'%c' is out of place", c);
        } else {
            return fail_at(s, s->i, "byte 0x%02x is out of place", (uint8_t)c);
        }
        if (status) return status;
    }
    return S2_OK;
}

/* cJSON's opinion on a text whose tokens are all right: something missing or too much between them. */
static enum s2_status fail_syntax(const struct scan *s, size_t at)
{
    size_t end = s->size;
    while (end > 0 && is_blank(s->text[end - 1])) end--;
    while (at < end && is_blank(s->text[at])) at++;
    if (at + 1 >= end && s->depth > 0) return fail_at(s, end, "the text ends here; a closing bracket is missing");
    if (at >= end) at = end - 1;
    size_t before = at;
    while (before > 0 && is_blank(s->text[before - 1])) before--;
    char c = s->text[at], last = before ? s->text[before - 1] : 0;
    if (c == '\\') return fail_at(s, at, "an unknown escape in a string");
    bool value = c == '"' || c == '{' || c == '[' || isalnum((uint8_t)c) || c == '-';
    bool after_value = last == '"' || last == '}' || last == ']' || isalnum((uint8_t)last);
    if (value && after_value) return fail_at(s, at, "a comma or colon is missing before this");
    return fail_at(s, at, "'%c' is out of place", c);
}

enum s2_status fmt_json_parse(cJSON **out, const char *name, const char *text, size_t size, struct s2_err *err)
{
    *out = NULL;
    if (size > FMT_JSON_MAX_BYTES)
        return s2_fail(err, S2_E_USAGE, "%s: is larger than %d MiB", name, FMT_JSON_MAX_BYTES >> 20);
    if (size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) text += 3, size -= 3;
    if (size >= 2 && (!memcmp(text, "\xFF\xFE", 2) || !memcmp(text, "\xFE\xFF", 2)))
        return s2_fail(err, S2_E_USAGE, "%s: is UTF-16; save it as UTF-8", name);
    struct scan s = {.name = name, .text = text, .size = size, .err = err};
    enum s2_status status = scan_text(&s);
    if (status) return status;

    size_t first = 0;
    while (first < size && is_blank(text[first])) first++;
    if (first == size) return s2_fail(err, S2_E_USAGE, "%s: is empty", name);

    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, size, &end, false);
    if (!json) {
        size_t at = end && end >= text && (size_t)(end - text) <= size ? (size_t)(end - text) : size;
        return fail_syntax(&s, at);
    }
    for (first = (size_t)(end - text); first < size; first++) {
        if (is_blank(text[first])) continue;
        cJSON_Delete(json);
        return fail_at(&s, first, "there is more text behind the end of the JSON value");
    }
    *out = json;
    return S2_OK;
}

/* ------------------------------------------------------------------ paths and sentences */

struct fmt_json_path fmt_json_key(const struct fmt_json_path *parent, const char *key)
{
    struct fmt_json_path p;
    if (parent && parent->text[0])
        snprintf(p.text, sizeof p.text, "%.90s.%.30s", parent->text, key);
    else
        snprintf(p.text, sizeof p.text, "%.120s", key);
    return p;
}

struct fmt_json_path fmt_json_index(const struct fmt_json_path *parent, int i)
{
    struct fmt_json_path p;
    snprintf(p.text, sizeof p.text, "%.100s[%d]", parent ? parent->text : "", i);
    return p;
}

enum s2_status fmt_json_fail(struct s2_err *err, const char *name, const struct fmt_json_path *path, const char *fmt,
                             ...)
{
    char what[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (!path || !path->text[0]) return s2_fail(err, S2_E_USAGE, "%s: %s", name, what);
    return s2_fail(err, S2_E_USAGE, "%s: %s: %s", name, path->text, what);
}

/* At most 40 bytes of s, whole characters, control characters replaced. */
static void shorten(char out[48], const char *s)
{
    size_t n = 0, size = strlen(s);
    while (n < size) {
        size_t length = fmt_utf8_length(s + n, size - n);
        if (!length) length = 1;
        if (n + length > 40) break;
        n += length;
    }
    memcpy(out, s, n);
    memcpy(out + n, n < size ? "..." : "", n < size ? 4 : 1);
    for (char *p = out; *p; p++)
        if ((uint8_t)*p < 0x20 || *p == 0x7F) *p = '?';
}

struct fmt_json_found fmt_json_found(const cJSON *v)
{
    struct fmt_json_found f = {"nothing"};
    char s[48];
    if (cJSON_IsString(v)) {
        shorten(s, v->valuestring);
        snprintf(f.text, sizeof f.text, "a string (\"%s\")", s);
    } else if (cJSON_IsNumber(v)) {
        snprintf(f.text, sizeof f.text, "a number (%.10g)", v->valuedouble);
    } else if (v) {
        strcpy(f.text, cJSON_IsArray(v)    ? "an array"
                       : cJSON_IsObject(v) ? "an object"
                       : cJSON_IsTrue(v)   ? "true"
                       : cJSON_IsFalse(v)  ? "false"
                                           : "null");
    }
    return f;
}

/* ------------------------------------------------------------------ objects */

/* Letters to insert, delete or change to make b of a (Levenshtein); words longer than the table count as far. */
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 24 };
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    int row[LONGEST + 1];
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = diagonal + (tolower((uint8_t)a[i - 1]) != tolower((uint8_t)b[j - 1]));
            int step = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = change < step ? change : step;
        }
    }
    return row[m];
}

static enum s2_status unknown_key(const char *key, const char *name, const struct fmt_json_path *path,
                                  const char *const *keys, size_t n, struct s2_err *err)
{
    char list[256] = "", shown[48];
    size_t best = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        if (distance(key, keys[i]) < distance(key, keys[best])) best = i;
        size += (size_t)snprintf(list + size, sizeof list - size, "%s\"%s\"", i ? ", " : "", keys[i]);
        if (size >= sizeof list) break;
    }
    shorten(shown, key);
    if (distance(key, keys[best]) <= (int)strlen(keys[best]) / 2)
        return fmt_json_fail(err, name, path, "unknown key \"%s\"; did you mean \"%s\"?", shown, keys[best]);
    return fmt_json_fail(err, name, path, "unknown key \"%s\"; known are %s", shown, list);
}

enum s2_status fmt_json_keys(const cJSON *object, const char *name, const struct fmt_json_path *path,
                             const char *const *keys, size_t n, struct s2_err *err)
{
    uint64_t seen = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, object)
    {
        size_t i = 0;
        while (i < n && strcmp(v->string, keys[i])) i++;
        if (i == n) return unknown_key(v->string, name, path, keys, n, err);
        if (seen >> i & 1) return fmt_json_fail(err, name, path, "the key \"%s\" occurs twice", keys[i]);
        seen |= UINT64_C(1) << i;
    }
    return S2_OK;
}

const cJSON *fmt_json_get(const cJSON *object, const char *key)
{
    const cJSON *v;
    cJSON_ArrayForEach(v, object) if (v->string && !strcmp(v->string, key)) return v;
    return NULL;
}

/* ------------------------------------------------------------------ numbers */

enum s2_status fmt_json_number(const cJSON *v, const char *name, const struct fmt_json_path *path, double *out,
                               struct s2_err *err)
{
    if (!cJSON_IsNumber(v))
        return fmt_json_fail(err, name, path, "expected a number, found %s", fmt_json_found(v).text);
    if (!isfinite(v->valuedouble)) return fmt_json_fail(err, name, path, "the number is too large to be finite");
    *out = v->valuedouble;
    return S2_OK;
}

enum s2_status fmt_json_integer(const cJSON *v, const char *name, const struct fmt_json_path *path, int64_t least,
                                int64_t most, int64_t *out, struct s2_err *err)
{
    double d;
    enum s2_status status = fmt_json_number(v, name, path, &d, err);
    if (status) return status;
    if (d != floor(d)) return fmt_json_fail(err, name, path, "%.10g is not a whole number", d);
    if (d < (double)least || d > (double)most)
        return fmt_json_fail(err, name, path, "%.15g is not in %lld..%lld", d, (long long)least, (long long)most);
    *out = (int64_t)d;
    return S2_OK;
}

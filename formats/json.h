/* json.h - reading JSON that people wrote: cJSON behind a guard that is as strict as RFC 8259, bounds what a
 * file can cost, and says what is wrong with line and column; and sentences about values with their path. */
#ifndef S2_FORMATS_JSON_H
#define S2_FORMATS_JSON_H

#include "formats.h"

#include <cjson/cJSON.h>

enum {
    FMT_JSON_MAX_BYTES = 64 << 20,
    FMT_JSON_MAX_DEPTH = 32,
    FMT_JSON_MAX_VALUES = 4 << 20, /* cJSON takes about 80 bytes a value */
};

/* Where a value is, "prompts[2].points[0]", for sentences. */
struct fmt_json_path {
    char text[128];
};
struct fmt_json_path fmt_json_key(const struct fmt_json_path *parent, const char *key); /* parent NULL: the root */
struct fmt_json_path fmt_json_index(const struct fmt_json_path *parent, int i);

/* Whole text as one JSON value; a UTF-8 byte order mark in front is skipped. Refuses what cJSON would let pass:
 * NaN and Infinity, numbers like 01, raw control characters and invalid UTF-8 in strings, \u0000, depth, size.
 * On failure *out is NULL and the sentence starts "name: line L, column C: ". Free with cJSON_Delete. */
enum s2_status fmt_json_parse(cJSON **out, const char *name, const char *text, size_t size, struct s2_err *err);

/* S2_E_USAGE with "name: path: ..."; a root path is left out. */
enum s2_status fmt_json_fail(struct s2_err *err, const char *name, const struct fmt_json_path *path, const char *fmt,
                             ...) __attribute__((format(printf, 4, 5)));

/* What a value is, for "expected ..., found %s": `a string ("abc")`, `a number (3)`, `an array`. */
struct fmt_json_found {
    char text[64];
};
struct fmt_json_found fmt_json_found(const cJSON *);

/* Every key of the object must be one of keys[n], and occur once; the sentence suggests the nearest. */
enum s2_status fmt_json_keys(const cJSON *object, const char *name, const struct fmt_json_path *path,
                             const char *const *keys, size_t n, struct s2_err *err);
/* Member of that exact name (cJSON's own look-up ignores case); NULL if there is none. */
const cJSON *fmt_json_get(const cJSON *object, const char *key);

/* A finite number; a whole number in [least, most]. */
enum s2_status fmt_json_number(const cJSON *, const char *name, const struct fmt_json_path *path, double *out,
                               struct s2_err *err);
enum s2_status fmt_json_integer(const cJSON *, const char *name, const struct fmt_json_path *path, int64_t least,
                                int64_t most, int64_t *out, struct s2_err *err);

#endif

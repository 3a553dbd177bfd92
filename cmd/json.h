/* json.h - writing a JSON document: nesting, commas and indentation over the text builder of formats/.
 *
 * Start with a zeroed struct cmd_json, open one object or array, add members (key NULL inside an array), end
 * what was opened, then take .text or cmd_json_print. A failure (memory, nesting deeper than 16) is kept in
 * `failed` and reported once by cmd_json_print. */
#ifndef CMD_JSON_H
#define CMD_JSON_H

#include <stdio.h>

#include "../formats/text.h"

struct cmd_json {
    struct fmt_text text;
    bool one_line; /* set by the caller: no line breaks, for JSON lines */
    bool failed;
    int depth;
    bool filled; /* the innermost object or array has a member already */
    char closing[16];
};

void cmd_json_object(struct cmd_json *, const char *key);
void cmd_json_array(struct cmd_json *, const char *key);
void cmd_json_end(struct cmd_json *);                                        /* of the innermost object or array */
void cmd_json_string(struct cmd_json *, const char *key, const char *value); /* NULL: null */
void cmd_json_integer(struct cmd_json *, const char *key, int64_t value);
void cmd_json_number(struct cmd_json *, const char *key, double value, int digits); /* not finite: null */
void cmd_json_bool(struct cmd_json *, const char *key, bool value);
void cmd_json_null(struct cmd_json *, const char *key);

/* Writes the document and a newline, flushed. false: it failed before, or the stream has an error. */
bool cmd_json_print(struct cmd_json *, FILE *);
void cmd_json_free(struct cmd_json *);

#endif

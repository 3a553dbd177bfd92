/* json FILE [PATH]: checks that FILE (- is stdin) is one JSON value and prints what is at PATH, as
 * .frames[2].objects[0].score: a number, true, false, null or a string as it is, of arrays and objects the number
 * of members. Exit code 1: not JSON, 2: nothing at PATH. For the tests of the command line. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_all(FILE *f)
{
    size_t size = 0, room = 1 << 16;
    char *text = malloc(room);
    while (text) {
        size += fread(text + size, 1, room - size - 1, f);
        if (size < room - 1) break;
        char *more = realloc(text, room *= 2);
        if (!more) free(text);
        text = more;
    }
    if (text) text[size] = 0;
    return text;
}

/* NULL: no such member */
static const cJSON *at(const cJSON *value, char *path)
{
    while (value && *path) {
        if (*path == '[') {
            value = cJSON_GetArrayItem(value, (int)strtol(path + 1, &path, 10));
            if (*path++ != ']') return NULL;
        } else {
            char *name = path + 1, *end = name + strcspn(name, ".["), kept = *end;
            if (*path != '.') return NULL;
            *end = 0;
            value = cJSON_GetObjectItemCaseSensitive(value, name);
            *end = kept;
            path = end;
        }
    }
    return value;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) return fprintf(stderr, "usage: json FILE [PATH]\n"), 2;
    FILE *f = strcmp(argv[1], "-") ? fopen(argv[1], "rb") : stdin;
    char *text = f ? read_all(f) : NULL;
    const char *end = NULL;
    cJSON *all = text ? cJSON_ParseWithOpts(text, &end, 0) : NULL;
    if (!all || end[strspn(end, " \r\n\t")]) return fprintf(stderr, "json: %s is not one JSON value\n", argv[1]), 1;
    const cJSON *value = at(all, argc == 3 ? argv[2] : argv[1] + strlen(argv[1]));
    if (!value) return fprintf(stderr, "json: %s: nothing at %s\n", argv[1], argv[2]), 2;
    if (argc == 3) {
        if (cJSON_IsNumber(value))
            printf("%.9g\n", value->valuedouble);
        else if (cJSON_IsString(value))
            printf("%s\n", value->valuestring);
        else if (cJSON_IsBool(value))
            puts(cJSON_IsTrue(value) ? "true" : "false");
        else if (cJSON_IsNull(value))
            puts("null");
        else
            printf("%d\n", cJSON_GetArraySize(value));
    }
    cJSON_Delete(all);
    free(text);
    return 0;
}

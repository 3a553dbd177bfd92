/* options.c - see options.h */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 30, MAX_WORD = 40 };

bool cmd_parse_int64(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9') return false;
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (*end || errno == ERANGE) return false;
    *out = v;
    return true;
}

/* Edit distance with swaps of neighbours (optimal string alignment); words longer than MAX_WORD are far away. */
static size_t distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    if (n > MAX_WORD || m > MAX_WORD) return SIZE_MAX;
    size_t d[MAX_WORD + 1][MAX_WORD + 1];
    for (size_t i = 0; i <= n; i++) d[i][0] = i;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

const char *cmd_nearest(const char *word, const char *const *words, size_t n)
{
    const size_t length = strlen(word);
    if (length < 2) return NULL;
    const char *best = NULL;
    size_t best_distance = length / 3 > 2 ? length / 3 + 1 : 3;
    for (size_t i = 0; i < n; i++) {
        // an abbreviation counts as one edit, so that "--overw" finds --overwrite
        const size_t d = strncmp(words[i], word, length) == 0 ? 1 : distance(word, words[i]);
        if (d < best_distance) best = words[i], best_distance = d;
    }
    return best;
}

static bool takes_value(const struct cmd_option *o)
{
    return o->kind == CMD_TEXT || o->kind == CMD_INTEGER || o->kind == CMD_CHOICE || o->kind == CMD_CALL;
}

static const char *argument_of(const struct cmd_option *o)
{
    return o->argument ? o->argument : o->choices;
}

static const struct cmd_option *find_long(const struct cmd_command *c, const char *name, size_t length)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const struct cmd_option *o = &c->options[i];
        if (o->name && strlen(o->name) == length && strncmp(o->name, name, length) == 0) return o;
    }
    return NULL;
}

static const struct cmd_option *find_short(const struct cmd_command *c, char letter)
{
    for (size_t i = 0; i < c->n_options; i++) {
        if (c->options[i].letter == letter) return &c->options[i];
    }
    return NULL;
}

static enum s2_status unknown_long(const struct cmd_command *c, const char *name, size_t length, struct s2_err *err)
{
    char word[MAX_WORD + 1] = "";
    if (length <= MAX_WORD) memcpy(word, name, length);
    const char *names[64] = {"help"};
    size_t n = 1;
    for (size_t i = 0; i < c->n_options && n < 64; i++) {
        const struct cmd_option *o = &c->options[i];
        if (o->name && !o->hidden && o->kind != CMD_REFUSED) names[n++] = o->name;
    }
    const char *near = cmd_nearest(word, names, n);
    if (near) { return s2_fail(err, S2_E_USAGE, "unknown option --%.*s; did you mean --%s?", (int)length, name, near); }
    return s2_fail(err, S2_E_USAGE, "unknown option --%.*s; 'sam2track %s --help' lists the options", (int)length, name,
                   c->name);
}

static enum s2_status choose(const struct cmd_option *o, const char *value, struct s2_err *err)
{
    const size_t length = strlen(value);
    for (const char *word = o->choices; word; word = strchr(word, '|') ? strchr(word, '|') + 1 : NULL) {
        if (length > 0 && strcspn(word, "|") == length && strncmp(word, value, length) == 0) {
            *(const char **)o->value = value;
            return S2_OK;
        }
    }
    return s2_fail(err, S2_E_USAGE, "--%s %s: this build supports %s", o->name, value, o->choices);
}

static enum s2_status set(const struct cmd_option *o, const char *value, struct s2_err *err)
{
    int64_t number;
    switch (o->kind) {
    case CMD_FLAG: *(bool *)o->value = true; return S2_OK;
    case CMD_COUNT: ++*(int *)o->value; return S2_OK;
    case CMD_TEXT:
        if (!*value) return s2_fail(err, S2_E_USAGE, "--%s: %s is empty", o->name, o->argument);
        if (o->once && *(const char **)o->value) {
            return s2_fail(err, S2_E_USAGE, "--%s is given twice, as %s and as %s; one is all that a run writes",
                           o->name, *(const char **)o->value, value);
        }
        *(const char **)o->value = value;
        return S2_OK;
    case CMD_INTEGER:
        if (!cmd_parse_int64(value, &number) || number < o->min || number > o->max) {
            return s2_fail(err, S2_E_USAGE, "--%s %s: expected a whole number from %d to %d", o->name, value, o->min,
                           o->max);
        }
        *(int *)o->value = (int)number;
        return S2_OK;
    case CMD_CHOICE: return choose(o, value, err);
    case CMD_CALL: return o->call(o->value, o->name, value, err);
    case CMD_GROUP:
    case CMD_REFUSED: break;
    }
    return s2_fail(err, S2_E_INTERNAL, "--%s has no value to set", o->name);
}

/* The value of an option that takes one and has none attached: the next word. */
static enum s2_status next_word(const struct cmd_option *o, int argc, char **argv, int *i, const char **value,
                                struct s2_err *err)
{
    if (*i + 1 >= argc) return s2_fail(err, S2_E_USAGE, "--%s needs a value (%s)", o->name, argument_of(o));
    *value = argv[++*i];
    if (strncmp(*value, "--", 2) == 0) {
        return s2_fail(err, S2_E_USAGE, "--%s needs a value (%s) but is followed by %s", o->name, argument_of(o),
                       *value);
    }
    return S2_OK;
}

static enum s2_status parse_long(const struct cmd_command *c, int argc, char **argv, int *i, struct s2_err *err)
{
    const char *name = argv[*i] + 2, *value = strchr(name, '=');
    const size_t length = value ? (size_t)(value - name) : strlen(name);
    const struct cmd_option *o = find_long(c, name, length);
    if (!o) return unknown_long(c, name, length, err);
    if (o->kind == CMD_REFUSED) return s2_fail(err, S2_E_USAGE, "--%s: %s", o->name, o->help);
    if (!takes_value(o)) {
        if (value) return s2_fail(err, S2_E_USAGE, "--%s takes no value", o->name);
        return set(o, NULL, err);
    }
    if (value) return set(o, value + 1, err);
    const enum s2_status status = next_word(o, argc, argv, i, &value, err);
    return status ? status : set(o, value, err);
}

static enum s2_status parse_short(const struct cmd_command *c, int argc, char **argv, int *i, bool *help,
                                  struct s2_err *err)
{
    enum s2_status status = S2_OK;
    for (const char *p = argv[*i] + 1; *p && !status; p++) {
        if (*p == 'h') {
            *help = true;
            return S2_OK;
        }
        const struct cmd_option *o = find_short(c, *p);
        if (!o) {
            return s2_fail(err, S2_E_USAGE, "unknown option -%c; 'sam2track %s --help' lists the options", *p, c->name);
        }
        if (!takes_value(o)) {
            status = set(o, NULL, err);
            continue;
        }
        const char *value = p + 1;
        if (!*value) status = next_word(o, argc, argv, i, &value, err);
        return status ? status : set(o, value, err);
    }
    return status;
}

enum s2_status cmd_options_parse(const struct cmd_command *c, int argc, char **argv, int *n_operands, bool *help,
                                 struct s2_err *err)
{
    enum s2_status status = S2_OK;
    bool ended = false;
    *n_operands = 0;
    *help = false;
    for (int i = 0; i < argc && !status && !*help; i++) {
        if (ended || argv[i][0] != '-' || argv[i][1] == 0)
            argv[(*n_operands)++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            ended = true;
        else if (strcmp(argv[i], "--help") == 0)
            *help = true;
        else if (argv[i][1] == '-')
            status = parse_long(c, argc, argv, &i, err);
        else
            status = parse_short(c, argc, argv, &i, help, err);
    }
    return status;
}

static void help_row(const struct cmd_option *o, FILE *f)
{
    char left[128];
    const char *argument = takes_value(o) ? argument_of(o) : NULL;
    const int n = o->letter ? snprintf(left, sizeof left, "  -%c, --%s%s%s", o->letter, o->name, argument ? " " : "",
                                       argument ? argument : "")
                            : snprintf(left, sizeof left, "      --%s%s%s", o->name, argument ? " " : "",
                                       argument ? argument : "");
    if (n + 2 > HELP_COLUMN)
        fprintf(f, "%s\n%*s%s", left, HELP_COLUMN, "", o->help);
    else
        fprintf(f, "%-*s%s", HELP_COLUMN, left, o->help);
    if (o->fallback) {
        if (*o->fallback) fprintf(f, " (default: %s)", o->fallback);
    } else if (o->kind == CMD_INTEGER) {
        fprintf(f, " (default: %d)", *(const int *)o->value);
    } else if (o->kind == CMD_CHOICE && *(const char *const *)o->value) {
        fprintf(f, " (default: %s)", *(const char *const *)o->value);
    }
    fputc('\n', f);
}

void cmd_options_help(const struct cmd_command *c, FILE *f)
{
    fputs(c->summary, f);
    for (size_t i = 0; i < c->n_options; i++) {
        const struct cmd_option *o = &c->options[i];
        if (o->kind == CMD_GROUP)
            fprintf(f, "\n%s:\n", o->help);
        else if (!o->hidden && o->kind != CMD_REFUSED)
            help_row(o, f);
    }
    if (c->notes) fprintf(f, "\n%s", c->notes);
}

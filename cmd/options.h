/* options.h - a declarative option table in the spirit of git's parse-options: one table of rows gives the
 * parser, the error sentences and --help.
 *
 * Accepted forms: --name VALUE, --name=VALUE, -x VALUE, -xVALUE, bundled short flags (-qv), "--" ends the
 * options. An option given again replaces its value unless it is `once`, CMD_CALL options are called each time. */
#ifndef CMD_OPTIONS_H
#define CMD_OPTIONS_H

#include <stdio.h>

#include "../engine/base.h"

enum cmd_option_kind {
    CMD_GROUP,   /* no option: `help` is a heading */
    CMD_FLAG,    /* value: bool *, set to true */
    CMD_COUNT,   /* value: int *, one more each time */
    CMD_TEXT,    /* value: const char **, points into argv */
    CMD_INTEGER, /* value: int *, within min..max */
    CMD_CHOICE,  /* value: const char **, one of the words of `choices`; points into `choices` is never needed:
                    compare with strcmp */
    CMD_CALL,    /* `call` judges the value */
    CMD_REFUSED, /* belongs to the interface but not to this build: always an error, `help` says why */
};

/* Takes the value of option `name`; S2_E_USAGE (or another status) and a sentence if it is not acceptable. */
typedef enum s2_status cmd_option_fn(void *ctx, const char *name, const char *value, struct s2_err *);

struct cmd_option {
    enum cmd_option_kind kind;
    char letter;          /* short form, 0: none */
    const char *name;     /* long form without the dashes */
    const char *argument; /* how --help names the value; NULL for flags and for choices, which show themselves */
    const char *help;     /* one line, lower case, no full stop */
    const char *fallback; /* default as --help shows it; NULL: CHOICE and INTEGER show their present value; "": none */
    void *value;          /* see the kind; CMD_CALL: ctx of call */
    int min, max;         /* CMD_INTEGER */
    const char *choices;  /* CMD_CHOICE: "auto|fp32" */
    cmd_option_fn *call;  /* CMD_CALL */
    bool once;            /* CMD_TEXT: given again is an error, because the first value would be dropped silently */
    bool hidden;          /* parsed, but left out of --help: its only value in this build is the default */
};

struct cmd_command {
    const char *name;    /* "track", for hints in error sentences */
    const char *summary; /* usage lines and a short text, printed above the options */
    const char *notes;   /* printed below the options: examples; may be NULL */
    const struct cmd_option *options;
    size_t n_options;
};

/* Parses argv[0..argc-1] (without program and verb). Operands are moved to the front of argv in their order,
 * *n_operands of them. --help and -h set *help and end the parsing. S2_E_USAGE and a sentence on a mistake. */
enum s2_status cmd_options_parse(const struct cmd_command *, int argc, char **argv, int *n_operands, bool *help,
                                 struct s2_err *);

void cmd_options_help(const struct cmd_command *, FILE *);

/* The word of words[n] nearest to `word` by edit distance, or NULL if none is near. */
const char *cmd_nearest(const char *word, const char *const *words, size_t n);

/* A whole number in decimal, nothing behind it. */
bool cmd_parse_int64(const char *text, int64_t *out);

#endif

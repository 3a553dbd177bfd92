/* The option table: forms, errors, suggestions, help; and the options of `track`. */
#include "../cmd/options.h"
#include "../cmd/track.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct values {
    const char *model, *mode;
    int threads;
    bool quiet;
    int verbose;
    int calls;
    char called_with[32];
};

static enum s2_status on_call(void *ctx, const char *name, const char *value, struct s2_err *err)
{
    struct values *v = ctx;
    v->calls++;
    snprintf(v->called_with, sizeof v->called_with, "%s:%s", name, value);
    return strcmp(value, "bad") ? S2_OK : s2_fail(err, S2_E_DEVICE, "--%s %s: refused", name, value);
}

static enum s2_status parse(struct values *v, int argc, char **argv, int *n, bool *help, struct s2_err *err)
{
    const struct cmd_option rows[] = {
        {CMD_GROUP, .help = "Things"},
        {CMD_TEXT, 'm', "model", "FILE", "a file", .value = &v->model},
        {CMD_CHOICE, 0, "mode", NULL, "a choice", .value = &v->mode, .choices = "auto|fp32"},
        {CMD_INTEGER, 't', "threads", "N", "a number", .value = &v->threads, .min = 0, .max = 64},
        {CMD_FLAG, 'q', "quiet", NULL, "a flag", .value = &v->quiet},
        {CMD_COUNT, 'v', "verbose", NULL, "another", .value = &v->verbose},
        {CMD_CALL, 0, "point", "X,Y", "called each time", .value = v, .call = on_call},
        {CMD_CHOICE, 0, "secret", .value = &v->mode, .choices = "off", .hidden = true},
        {CMD_REFUSED, 0, "resume", .help = "not here"},
    };
    const struct cmd_command c = {"track", "", NULL, rows, sizeof rows / sizeof *rows};
    return cmd_options_parse(&c, argc, argv, n, help, err);
}

#define PARSE(v, n, help, err, ...)                                                                                    \
    parse(v, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__}, n, help, err)

Test(options, all_forms_set_their_values)
{
    struct values v = {.mode = "auto"};
    struct s2_err err = {0};
    int n;
    bool help;
    char *argv[] = {"a", "--model", "m.pt", "-t8", "-vqv", "--mode=fp32", "b", "--point", "-5,3", "--", "--point"};
    cr_assert_eq(parse(&v, 11, argv, &n, &help, &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(v.model, "m.pt");
    cr_expect_str_eq(v.mode, "fp32");
    cr_expect_eq(v.threads, 8);
    cr_expect(v.quiet && !help);
    cr_expect_eq(v.verbose, 2);
    cr_expect_str_eq(v.called_with, "point:-5,3");
    cr_assert_eq(n, 3);
    cr_expect_str_eq(argv[0], "a");
    cr_expect_str_eq(argv[1], "b");
    cr_expect_str_eq(argv[2], "--point", "behind -- everything is an operand");
}

Test(options, the_last_one_counts_and_calls_add_up)
{
    struct values v = {0};
    int n;
    bool help;
    cr_assert_eq(PARSE(&v, &n, &help, NULL, "-m", "a", "--model=b=c", "-", "--point", "1", "--point=2"), S2_OK);
    cr_expect_str_eq(v.model, "b=c");
    cr_expect_eq(v.calls, 2);
    cr_expect_str_eq(v.called_with, "point:2");
    cr_expect_eq(n, 1, "a lone - is an operand");
}

Test(options, help_ends_the_parsing)
{
    struct values v = {0};
    int n;
    bool help;
    cr_assert_eq(PARSE(&v, &n, &help, NULL, "x", "--help", "--nonsense"), S2_OK);
    cr_expect(help);
    cr_assert_eq(PARSE(&v, &n, &help, NULL, "-qh"), S2_OK);
    cr_expect(help);
}

static void expect_error(enum s2_status status, const char *text, int argc, char **argv)
{
    struct values v = {0};
    struct s2_err err = {0};
    int n;
    bool help;
    cr_expect_eq(parse(&v, argc, argv, &n, &help, &err), status);
    cr_expect_str_eq(err.text, text);
}
#define EXPECT_ERROR(status, text, ...)                                                                                \
    expect_error(status, text, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__})

Test(options, mistakes_get_a_sentence)
{
    EXPECT_ERROR(S2_E_USAGE, "unknown option --modle; did you mean --model?", "--modle", "x");
    EXPECT_ERROR(S2_E_USAGE, "unknown option --verb; did you mean --verbose?", "--verb");
    EXPECT_ERROR(S2_E_USAGE, "unknown option --modle; did you mean --model?", "--modle=x");
    EXPECT_ERROR(S2_E_USAGE, "unknown option --zzzzzzzz; 'sam2track track --help' lists the options", "--zzzzzzzz");
    EXPECT_ERROR(S2_E_USAGE, "unknown option -x; 'sam2track track --help' lists the options", "-qx");
    EXPECT_ERROR(S2_E_USAGE, "--model needs a value (FILE)", "-m");
    EXPECT_ERROR(S2_E_USAGE, "--model needs a value (FILE) but is followed by --quiet", "--model", "--quiet");
    EXPECT_ERROR(S2_E_USAGE, "--model: FILE is empty", "--model=");
    EXPECT_ERROR(S2_E_USAGE, "--quiet takes no value", "--quiet=1");
    EXPECT_ERROR(S2_E_USAGE, "--threads 65: expected a whole number from 0 to 64", "--threads", "65");
    EXPECT_ERROR(S2_E_USAGE, "--threads -1: expected a whole number from 0 to 64", "--threads", "-1");
    EXPECT_ERROR(S2_E_USAGE, "--threads 4x: expected a whole number from 0 to 64", "-t4x");
    EXPECT_ERROR(S2_E_USAGE, "--threads : expected a whole number from 0 to 64", "--threads=");
    EXPECT_ERROR(S2_E_USAGE, "--threads 99999999999999999999: expected a whole number from 0 to 64",
                 "--threads=99999999999999999999");
    EXPECT_ERROR(S2_E_USAGE, "--mode fp3: this build supports auto|fp32", "--mode", "fp3");
    EXPECT_ERROR(S2_E_USAGE, "--mode auto|fp32: this build supports auto|fp32", "--mode", "auto|fp32");
    EXPECT_ERROR(S2_E_USAGE, "--resume: not here", "--resume");
    EXPECT_ERROR(S2_E_DEVICE, "--point bad: refused", "--point", "bad");
}

Test(options, suggestions_are_near_or_none)
{
    const char *const words[] = {"png", "png-objects", "overlay", "overlap", "overwrite"};
    cr_expect_str_eq(cmd_nearest("pgn", words, 5), "png", "neighbours swapped");
    cr_expect_str_eq(cmd_nearest("overlays", words, 5), "overlay");
    cr_expect_str_eq(cmd_nearest("png_objects", words, 5), "png-objects");
    cr_expect_null(cmd_nearest("zebra", words, 5));
    cr_expect_null(cmd_nearest("x", words, 5));
    cr_expect_null(cmd_nearest("", words, 5));
    char longest[200];
    memset(longest, 'o', sizeof longest);
    longest[199] = 0;
    cr_expect_null(cmd_nearest(longest, words, 5));
}

Test(options, whole_numbers)
{
    int64_t v;
    cr_expect(cmd_parse_int64("-9223372036854775808", &v) && v == INT64_MIN);
    cr_expect(cmd_parse_int64("007", &v) && v == 7);
    const char *const bad[] = {"", "-", "+1", " 1", "1 ", "0x10", "1.0", "9223372036854775808", "1e3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect_not(cmd_parse_int64(bad[i], &v), "%s", bad[i]);
}

/* ------------------------------------------------------------------ track */

static enum s2_status track(struct cmd_track_options *o, struct s2_err *err, int argc, ...)
{
    char *argv[32] = {"-m", "m.pt", "--point", "1,2", "--rle", "-", "in.mp4"};
    va_list args;
    va_start(args, argc);
    for (int i = 0; i < argc; i++) argv[7 + i] = va_arg(args, char *);
    va_end(args);
    const enum s2_status status = cmd_track_options_parse(o, 7 + argc, argv, err);
    cmd_track_options_free(o);
    return status;
}

static void expect_track_error(enum s2_status status, const char *part, char *option, char *value)
{
    struct cmd_track_options o;
    struct s2_err err = {0};
    cr_expect_eq(track(&o, &err, value ? 2 : 1, option, value), status, "%s %s: %s", option, value, err.text);
    cr_expect(strstr(err.text, part), "%s", err.text);
}

Test(track_options, defaults)
{
    struct cmd_track_options o;
    struct s2_err err = {0};
    cr_assert_eq(track(&o, &err, 0), S2_OK, "%s", err.text);
    cr_expect_str_eq(o.input, "in.mp4");
    cr_expect_eq(o.first, 0);
    cr_expect_eq(o.end, -1);
    cr_expect_eq(o.stride, 1);
    cr_expect_eq(o.fill_holes, 8);
    cr_expect_eq(cmd_track_size(&o), 0);
    cr_expect_eq(cmd_track_late(&o), S2_LATE_REFINE);
    cr_expect(o.tap_frames.all);
}

Test(track_options, ranges_and_strides)
{
    struct cmd_track_options o;
    struct s2_err err = {0};
    cr_assert_eq(track(&o, &err, 4, "--frames", "10:20", "--stride", "3"), S2_OK, "%s", err.text);
    cr_expect_eq(o.first, 10);
    cr_expect_eq(o.end, 20);
    cr_expect_eq(cmd_track_expected(&o, 100), 4, "10, 13, 16, 19");
    cr_expect_eq(cmd_track_expected(&o, 16), 2);
    cr_expect_eq(cmd_track_expected(&o, 5), 0);
    cr_expect_eq(cmd_track_expected(&o, -1), 4);
    cr_assert_eq(track(&o, &err, 2, "--frames", "5:"), S2_OK);
    cr_expect(o.first == 5 && o.end == -1);
    cr_expect_eq(cmd_track_expected(&o, -1), -1);
    cr_assert_eq(track(&o, &err, 2, "--frames", ":7"), S2_OK);
    cr_expect(o.first == 0 && o.end == 7);
    char *bad[] = {"5", "a:b", "-1:4", "1:2:3", ":-2", "1.5:3", "123456789012345678901234567890:"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_track_error(S2_E_USAGE, "expected A:B", "--frames", bad[i]);
    expect_track_error(S2_E_USAGE, "holds no frame", "--frames", "7:7");
    expect_track_error(S2_E_USAGE, "holds no frame", "--frames", ":0");
    expect_track_error(S2_E_USAGE, "from 1 to", "--stride", "0");
}

Test(track_options, values_of_other_builds_are_refused)
{
#ifndef HAVE_CUDA
    expect_track_error(S2_E_DEVICE, "this build has no CUDA backend", "--device", "cuda");
    expect_track_error(S2_E_DEVICE, "this build has no CUDA backend", "--device", "cuda:1");
#else
    expect_track_error(S2_E_USAGE, "the number of the GPU is missing", "--device", "cuda:x");
#endif
    expect_track_error(S2_E_USAGE, "expected auto, cpu, cuda or cuda:N", "--device", "cudada");
    expect_track_error(S2_E_USAGE, "this build supports auto|fp32|bf16|fp16", "--precision", "fp8");
    expect_track_error(S2_E_USAGE, "this build supports auto|on|off", "--graph", "maybe");
    expect_track_error(S2_E_USAGE, "this build supports forward|backward|both", "--direction", "up");
    expect_track_error(S2_E_USAGE, "--resume", "--resume", NULL);
    struct cmd_track_options o;
    struct s2_err err = {0};
    cr_expect_eq(track(&o, &err, 2, "--graph", "on"), S2_OK, "%s", err.text);
    err = (struct s2_err){0};
    cr_expect_eq(track(&o, &err, 4, "--graph", "on", "--device", "cpu"), S2_E_USAGE);
    cr_expect(strstr(err.text, "--graph on needs a GPU"), "%s", err.text);
    err = (struct s2_err){0};
    cr_expect_eq(track(&o, &err, 4, "--graph", "on", "--debug-taps", "d"), S2_E_USAGE);
    cr_expect(strstr(err.text, "contradict"), "%s", err.text);
    err = (struct s2_err){0};
    cr_expect_eq(track(&o, &err, 8, "--device", "cpu", "--precision=fp32", "--graph", "off", "--direction", "backward",
                       "--device=auto"),
                 S2_OK, "%s", err.text);
}

Test(track_options, what_does_not_fit_together)
{
    expect_track_error(S2_E_USAGE, "one INPUT at a time", "second.mp4", NULL);
    expect_track_error(S2_E_USAGE, "not both", "--prompts", "p.json");
    expect_track_error(S2_E_USAGE, "both be stdout", "--stats", "-");
    expect_track_error(S2_E_USAGE, "at least 2", "--max-cond-frames", "1");
    expect_track_error(S2_E_USAGE, "needs --debug-taps", "--debug-tap-frames", "0,1");
    expect_track_error(S2_E_USAGE, "needs --overlay", "--overlay-preset", "ultrafast");
    expect_track_error(S2_E_USAGE, "expected X,Y", "--point", "7");

    struct cmd_track_options o;
    struct s2_err err = {0};
    cr_expect_eq(cmd_track_options_parse(&o, 3, (char *[]){"-m", "m", "in"}, &err), S2_E_USAGE);
    cr_expect(strstr(err.text, "nothing to track"), "%s", err.text);
    cmd_track_options_free(&o);
    err = (struct s2_err){0};
    cr_expect_eq(cmd_track_options_parse(&o, 5, (char *[]){"-m", "m", "-p", "p", "in"}, &err), S2_E_USAGE);
    cr_expect(strstr(err.text, "no output given"), "%s", err.text);
    cmd_track_options_free(&o);
    err = (struct s2_err){0};
    cr_expect_eq(cmd_track_options_parse(&o, 6, (char *[]){"-m", "m", "-p", "-", "--dry-run", "-"}, &err), S2_E_USAGE);
    cr_expect(strstr(err.text, "both be stdin"), "%s", err.text);
    cmd_track_options_free(&o);
}

Test(track_options, tap_frames)
{
    struct cmd_track_options o;
    struct s2_err err = {0};
    char *argv[] = {"-m", "m", "-p", "p", "--debug-taps", "d", "--debug-tap-frames", "0,1,28", "in"};
    cr_assert_eq(cmd_track_options_parse(&o, 9, argv, &err), S2_OK, "%s", err.text);
    cr_assert_eq(o.tap_frames.n, 3);
    cr_expect(o.tap_frames.frame[0] == 0 && o.tap_frames.frame[1] == 1 && o.tap_frames.frame[2] == 28);
    cr_expect_not(o.tap_frames.all);
    cmd_track_options_free(&o);
    char *bad[] = {"", ",", "0,", "0,,1", "a", "-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_track_error(S2_E_USAGE, "expected frame numbers", "--debug-tap-frames", bad[i]);
    }
}

Test(track_options, help_shows_what_exists)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    cmd_track_options_help(f);
    fclose(f);
    cr_expect(strstr(text, "  -m, --model FILE"));
    cr_expect(strstr(text, "--stride N"));
    cr_expect(strstr(text, "(default: 8)"));
    cr_expect(strstr(text, "(default: refine)"));
    cr_expect_null(strstr(text, "--resume"));
    cr_expect(strstr(text, "--device auto|cpu|cuda[:N]"));
    for (const char *line = text; line;) {
        const char *end = strchr(line, '\n');
        cr_expect(!end || end - line <= 120, "%.*s", (int)(end - line), line);
        line = end ? end + 1 : NULL;
    }
    free(text);
}

/* The prompts file, quick prompts, and prompts against the video. */
#include "../formats/formats.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum s2_status parse(struct fmt_prompts *p, const char *json, struct s2_err *err)
{
    *err = (struct s2_err){0};
    return fmt_prompts_parse(p, "prompts.json", json, strlen(json), NULL, err);
}

static bool same_bytes(const void *a, const void *b, size_t n)
{
    return !memcmp(a, b, n);
}

/* A temporary folder with a 4x3 grey mask of the values 0, 3 and 7. */
static char folder[256];

static void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/test_prompts.XXXXXX", base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(folder));
    char path[300];
    snprintf(path, sizeof path, "%s/mask.pgm", folder);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    fwrite("P5\n4 3\n255\n\0\3\0\0\0\3\7\0\0\0\7\0", 1, 23, f);
    fclose(f);
}

static void remove_folder(void)
{
    char command[300];
    static const char *const names[] = {"mask.pgm", "odd#name@2.pgm", "prompts.json", "big.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(command, sizeof command, "%s/%s", folder, names[i]);
        unlink(command);
    }
    rmdir(folder);
}

static char warned[1024];

static void keep_warning(void *ctx, enum s2_log_level level, const char *text)
{
    (void)ctx;
    if (level == S2_LOG_WARN) snprintf(warned, sizeof warned, "%s", text);
}

/* ------------------------------------------------------------------ the file */

Test(prompts, a_whole_file)
{
    const char *json =
        "\xEF\xBB\xBF{\"units\": \"pixels\",\n"
        " \"objects\": [{\"id\": 1, \"label\": \"left \\\"bike\\\" \\u00fc\"}, {\"id\": 7}],\n"
        " \"prompts\": [\n"
        "  {\"frame\": 0, \"object\": 1, \"points\": [[210, 350.5], [250, 220]], \"labels\": [1, 0]},\n"
        "  {\"frame\": 0, \"object\": 7, \"box\": [300, 0, 500, 400]},\n"
        "  {\"frame\": 40, \"object\": 1, \"box\": [10, 20, 90, 80], \"points\": [[50, 60]]},\n"
        "  {\"time\": 2.5, \"object\": 9, \"mask\": {\"size\": [3, 4], \"counts\": \"5220O\"}},\n"
        "  {\"frame\": 90, \"object\": 65535, \"mask\": {\"size\": [3, 4], \"counts\": [5, 2, 2, 2, 1]}},\n"
        "  {\"frame\": 120, \"object\": 7, \"stop\": true}]}";
    struct fmt_prompts p;
    struct s2_err err;
    cr_assert_eq(parse(&p, json, &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(p.path, "prompts.json");
    cr_expect_not(p.normalized);

    cr_assert_eq(p.n_objects, 4);
    cr_expect_eq(p.objects[0].id, 1);
    cr_expect_str_eq(p.objects[0].label, "left \"bike\" \xC3\xBC");
    cr_expect_eq(p.objects[1].id, 7);
    cr_expect_null(p.objects[1].label);
    cr_expect_eq(p.objects[2].id, 9);
    cr_expect_eq(p.objects[3].id, 65535);

    cr_assert_eq(p.n_prompts, 6);
    const struct fmt_prompt *q = p.prompts;
    cr_expect_str_eq(q[0].where, "prompts[0]");
    cr_expect(q[0].kind == S2_PROMPT_POINTS && q[0].frame == 0 && !q[0].by_time && q[0].object == 0);
    cr_assert(q[0].n_points == 2 && !q[0].has_box);
    cr_expect(same_bytes(q[0].xy, (float[]){210, 350.5f, 250, 220}, 16));
    cr_expect(q[0].labels[0] == 1 && q[0].labels[1] == 0);
    cr_expect(q[1].has_box && q[1].n_points == 0 && q[1].object == 1 && q[1].kind == S2_PROMPT_POINTS);
    cr_expect(same_bytes(q[1].box, (float[]){300, 0, 500, 400}, 16));
    cr_expect(q[2].has_box && q[2].n_points == 1 && q[2].labels[0] == 1 && q[2].frame == 40);
    cr_expect(q[3].by_time && q[3].time == 2.5 && q[3].kind == S2_PROMPT_MASK && q[3].object == 2);
    cr_expect(q[3].mask.width == 4 && q[3].mask.height == 3 && q[3].mask_value == -1 && !q[3].mask_path);
    for (int i = 3; i <= 4; i++) { // 5 out, 2 in, 2 out, 2 in, 1 out, down the columns
        cr_expect_eq(q[i].mask.data[0], 0x30);
        cr_expect_eq(q[i].mask.data[q[i].mask.stride], 0x10);
        cr_expect_eq(q[i].mask.data[2 * q[i].mask.stride], 0x40);
    }
    cr_expect(q[5].kind == S2_PROMPT_STOP && q[5].frame == 120 && q[5].object == 1);
    fmt_prompts_free(&p);
    fmt_prompts_free(&p);
    cr_expect(!p.n_prompts && !p.prompts && !p.path);
}

struct bad {
    const char *json, *sentence; /* behind "prompts.json: " */
};

static void check_refused(const struct bad *bad, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct fmt_prompts p;
        struct s2_err err;
        cr_expect_eq(parse(&p, bad[i].json, &err), S2_E_USAGE, "%s", bad[i].json);
        bool prefix = !strncmp(err.text, "prompts.json: ", 14);
        cr_expect(prefix && !strcmp(err.text + 14, bad[i].sentence), "\n%s\n  says: %s\n  not:  %s", bad[i].json,
                  err.text, bad[i].sentence);
        cr_expect(!p.prompts && !p.objects && !p.path, "nothing is left behind");
    }
}
#define CHECK_REFUSED(b) check_refused(b, sizeof(b) / sizeof *(b))

Test(prompts, syntax)
{
    static const struct bad bad[] = {
        {"", "is empty"},
        {" \n", "is empty"},
        {"\xFF\xFE{", "is UTF-16; save it as UTF-8"},
        {"{\"prompts\": [\n  {\"frame\": 0 \"object\": 1}]}",
         "line 2, column 15: a comma or colon is missing before this"},
        {"{\"prompts\": [\n  {\"frame\": 0,}]}", "line 2, column 14: a comma before the closing '}'"},
        {"{\"prompts\": [1,\n]}", "line 1, column 15: a comma before the closing ']'"},
        {"{\"prompts\": [", "line 1, column 14: the text ends here; a closing bracket is missing"},
        {"{\"prompts\": [{\"frame\": 1\n\n", "line 1, column 25: the text ends here; a closing bracket is missing"},
        {"{\"prompts\": []}\n]", "line 2, column 1: there is more text behind the end of the JSON value"},
        {"{} {}", "line 1, column 4: there is more text behind the end of the JSON value"},
        {"{\"prompts\": NaN}", "line 1, column 13: NaN is not a number; only finite numbers are allowed"},
        {"[-Infinity]", "line 1, column 2: -Infinity is not a number; only finite numbers are allowed"},
        {"[01]", "line 1, column 2: 01 is not a JSON number"},
        {"[1.]", "line 1, column 2: 1. is not a JSON number"},
        {"[.5]", "line 1, column 2: .5 is not a JSON number"},
        {"[+5]", "line 1, column 2: +5 is not a JSON number"},
        {"[0x10]", "line 1, column 2: 0x10 is not a JSON number"},
        {"[1e]", "line 1, column 2: 1e is not a JSON number"},
        {"[True]", "line 1, column 2: True is written in lower case in JSON"},
        {"{prompts: []}", "line 1, column 2: prompts needs double quotes"},
        {"{'prompts': []}", "line 1, column 2: strings and keys need double quotes"},
        {"{\"prompts\": [] // all\n}", "line 1, column 16: JSON has no comments"},
        {"{\"prompts\" = []}", "line 1, column 12: '=' is out of place"},
        {"{\"prompts: []}", "line 1, column 2: the string that starts here has no closing quote"},
        {"{\"prompts: []}\n", "line 1, column 2: the string that starts here has no closing quote on its line"},
        {"{\"\xC3\xBC\", \"a\tb\"}", "line 1, column 9: a control character (0x09) in a string must be escaped"},
        {"[\"\xFF\"]", "line 1, column 3: the string is not valid UTF-8 (byte 0xff)"},
        {"[\"a\\u0000b\"]", "line 1, column 4: \\u0000 cannot be part of a string here"},
        {"[\"a\\q\"]", "line 1, column 4: an unknown escape in a string"},
        {"[1}", "line 1, column 3: '}' is out of place"},
        {"[1]]", "line 1, column 4: there is more text behind the end of the JSON value"},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "line 1, column 33: more than 32 levels of brackets"},
        {"[0.0000000000000000000000000000000000000000000000000000000000000001]",
         "line 1, column 2: the number 0.00000000000000000000000000000000000000... has more than 63 characters"},
        {"[\x01]", "line 1, column 2: byte 0x01 is out of place"},
    };
    CHECK_REFUSED(bad);
    struct fmt_prompts p;
    struct s2_err err = {0};
    cr_expect_eq(fmt_prompts_parse(&p, "p", "{\0}", 3, NULL, &err), S2_E_USAGE);
    cr_expect_str_eq(err.text, "p: line 1, column 2: byte 0x00 is out of place");
}

Test(prompts, structure)
{
    static const struct bad bad[] = {
        {"[]", "expected an object with \"prompts\", found an array"},
        {"{}", "\"prompts\" is missing"},
        {"{\"prompts\": []}", "prompts: is empty; give at least one prompt"},
        {"{\"prompts\": {}}", "prompts: expected an array, found an object"},
        {"{\"prompt\": []}", "unknown key \"prompt\"; did you mean \"prompts\"?"},
        {"{\"version\": 1}", "unknown key \"version\"; known are \"units\", \"objects\", \"prompts\""},
        {"{\"prompts\": [], \"prompts\": []}", "the key \"prompts\" occurs twice"},
        {"{\"units\": \"cm\", \"prompts\": []}",
         "units: expected \"pixels\" or \"normalized\", found a string (\"cm\")"},
        {"{\"units\": 1, \"prompts\": []}", "units: expected \"pixels\" or \"normalized\", found a number (1)"},
        {"{\"objects\": {\"1\": \"a\"}, \"prompts\": []}", "objects: expected an array, found an object"},
        {"{\"objects\": [1], \"prompts\": []}", "objects[0]: expected {\"id\", \"label\"}, found a number (1)"},
        {"{\"objects\": [{\"label\": \"a\"}], \"prompts\": []}", "objects[0]: \"id\" is missing"},
        {"{\"objects\": [{\"id\": 1, \"name\": \"a\"}], \"prompts\": []}",
         "objects[0]: unknown key \"name\"; known are \"id\", \"label\""},
        {"{\"objects\": [{\"id\": 1}, {\"id\": 3}, {\"id\": 1}], \"prompts\": []}",
         "objects[2].id: 1 is the id of objects[0] already"},
        {"{\"objects\": [{\"id\": 0}], \"prompts\": []}", "objects[0].id: 0 is not in 1..65535"},
        {"{\"objects\": [{\"id\": 65536}], \"prompts\": []}", "objects[0].id: 65536 is not in 1..65535"},
        {"{\"objects\": [{\"id\": 1e999}], \"prompts\": []}", "objects[0].id: the number is too large to be finite"},
        {"{\"objects\": [{\"id\": 1, \"label\": 5}], \"prompts\": []}",
         "objects[0].label: expected a string, found a number (5)"},
        {"{\"prompts\": [3]}", "prompts[0]: expected an object, found a number (3)"},
        {"{\"prompts\": [{\"frame\": 0}]}", "prompts[0]: \"object\" is missing"},
        {"{\"prompts\": [{\"object\": 1}]}", "prompts[0]: neither \"frame\" nor \"time\" is given"},
        {"{\"prompts\": [{\"frame\": 0, \"time\": 0, \"object\": 1}]}",
         "prompts[0]: both \"frame\" and \"time\" are given; keep one of them"},
        {"{\"prompts\": [{\"frame\": -1, \"object\": 1}]}", "prompts[0].frame: -1 is not in 0..2147483647"},
        {"{\"prompts\": [{\"frame\": 1.5, \"object\": 1}]}", "prompts[0].frame: 1.5 is not a whole number"},
        {"{\"prompts\": [{\"frame\": \"0\", \"object\": 1}]}",
         "prompts[0].frame: expected a number, found a string (\"0\")"},
        {"{\"prompts\": [{\"frame\": null, \"object\": 1}]}", "prompts[0].frame: expected a number, found null"},
        {"{\"prompts\": [{\"time\": -0.5, \"object\": 1}]}",
         "prompts[0].time: -0.5 is negative; the first frame is at 0"},
        {"{\"prompts\": [{\"time\": 1e999, \"object\": 1}]}", "prompts[0].time: the number is too large to be finite"},
        {"{\"prompts\": [{\"time\": 1e10, \"object\": 1}]}", "prompts[0].time: 1e+10 is more than 2147483647 seconds"},
        {"{\"prompts\": [{\"frame\": 0, \"object\": 1}]}",
         "prompts[0]: is no prompt; give \"points\", \"box\", \"mask\" or \"stop\""},
        {"{\"prompts\": [{\"frame\": 0, \"object\": 1, \"lables\": [1]}]}",
         "prompts[0]: unknown key \"lables\"; did you mean \"labels\"?"},
        {"{\"prompts\": [{\"frame\": 0, \"object\": 1, \"Points\": [[1, 1]]}]}",
         "prompts[0]: unknown key \"Points\"; did you mean \"points\"?"},
        {"{\"prompts\": [{\"frame\": 0, \"object\": 1, \"box\": [0, 0, 1, 1], \"box\": [0, 0, 1, 1]}]}",
         "prompts[0]: the key \"box\" occurs twice"},
    };
    CHECK_REFUSED(bad);
}

#define PROMPT(text)     "{\"prompts\": [{\"frame\": 0, \"object\": 1, " text "}]}"
#define NORMALIZED(text) "{\"units\": \"normalized\", \"prompts\": [{\"frame\": 0, \"object\": 1, " text "}]}"

Test(prompts, points_and_boxes)
{
    static const struct bad bad[] = {
        {PROMPT("\"points\": []"), "prompts[0].points: is empty; give at least one [x, y] or leave it out"},
        {PROMPT("\"points\": 5"), "prompts[0].points: expected an array of [x, y], found a number (5)"},
        {PROMPT("\"points\": [210, 350]"), "prompts[0].points[0]: expected [x, y], found a number (210)"},
        {PROMPT("\"points\": [[1, 2], [3]]"), "prompts[0].points[1]: expected [x, y], found an array of 1"},
        {PROMPT("\"points\": [[1, 2, 3]]"), "prompts[0].points[0]: expected [x, y], found an array of 3"},
        {PROMPT("\"points\": [[1, \"2\"]]"), "prompts[0].points[0][1]: expected a number, found a string (\"2\")"},
        {PROMPT("\"points\": [[1, 2], [3, -4.5]]"), "prompts[0].points[1]: y (-4.5) is negative"},
        {PROMPT("\"points\": [[1e999, 2]]"), "prompts[0].points[0][0]: the number is too large to be finite"},
        {PROMPT("\"points\": [[1e300, 2]]"), "prompts[0].points[0]: x is too large"},
        {PROMPT("\"labels\": [1]"), "prompts[0].labels: labels without points"},
        {PROMPT("\"box\": [0, 0, 1, 1], \"labels\": [1]"), "prompts[0].labels: labels without points"},
        {PROMPT("\"points\": [[1, 2], [3, 4], [5, 6]], \"labels\": [1, 0]"),
         "prompts[0].labels: 2 labels for 3 points"},
        {PROMPT("\"points\": [[1, 2]], \"labels\": []"), "prompts[0].labels: 0 labels for 1 point"},
        {PROMPT("\"points\": [[1, 2]], \"labels\": 1"),
         "prompts[0].labels: expected an array of 0 and 1, found a number (1)"},
        {PROMPT("\"points\": [[1, 2]], \"labels\": [2]"),
         "prompts[0].labels[0]: expected 1 (inside) or 0 (outside), found a number (2)"},
        {PROMPT("\"points\": [[1, 2]], \"labels\": [true]"),
         "prompts[0].labels[0]: expected 1 (inside) or 0 (outside), found true"},
        {PROMPT("\"box\": [95, 0, 90, 5]"), "prompts[0].box: x1 (90) is not right of x0 (95)"},
        {PROMPT("\"box\": [0, 7.5, 5, 7.5]"), "prompts[0].box: y1 (7.5) is not below y0 (7.5)"},
        {PROMPT("\"box\": [3, 0, 3.00000001, 5]"), "prompts[0].box: x1 (3) is not right of x0 (3)"},
        {PROMPT("\"box\": [-1, 0, 3, 5]"), "prompts[0].box: x0 (-1) is negative"},
        {PROMPT("\"box\": [1, 0, 3]"), "prompts[0].box: expected [x0, y0, x1, y1], found an array of 3"},
        {PROMPT("\"box\": {\"x\": 1}"), "prompts[0].box: expected [x0, y0, x1, y1], found an object"},
        {PROMPT("\"box\": [1, 0, 3, 1e39]"), "prompts[0].box: y1 is too large"},
        {NORMALIZED("\"points\": [[0.5, 1]]"),
         "prompts[0].points[0]: y (1) is not below 1, and the units are normalized"},
        {NORMALIZED("\"points\": [[210, 0]]"),
         "prompts[0].points[0]: x (210) is not below 1, and the units are normalized"},
        {NORMALIZED("\"box\": [0, 0, 1, 1.5]"), "prompts[0].box: y1 (1.5) is above 1, and the units are normalized"},
        {"{\"prompts\": [{\"frame\": 0, \"object\": 1, \"box\": [0, 0, 1, 1]}, {\"frame\": 0, \"object\": 1, \"box\": "
         "[0, 0, 1, 1]}, {\"frame\": 3, \"object\": 2, \"box\": [95, 0, 90, 5]}]}",
         "prompts[2].box: x1 (90) is not right of x0 (95)"},
    };
    CHECK_REFUSED(bad);
}

Test(prompts, masks_and_stops)
{
    static const struct bad bad[] = {
        {PROMPT("\"mask\": 5"), "prompts[0].mask: expected a path or {\"size\", \"counts\"}, found a number (5)"},
        {PROMPT("\"mask\": \"\""), "prompts[0].mask: is empty; expected the path of a mask"},
        {PROMPT("\"mask\": \"/no/such.png\""),
         "prompts[0].mask: /no/such.png cannot be read: No such file or directory"},
        {PROMPT("\"mask\": \"/\""), "prompts[0].mask: / is a folder"},
        {PROMPT("\"mask\": \"/dev/null\""), "prompts[0].mask: /dev/null is no file"},
        {PROMPT("\"mask\": \"a.png\", \"points\": [[1, 1]]"), "prompts[0]: a mask stands alone; remove \"points\""},
        {PROMPT("\"mask\": \"a.png\", \"box\": [0, 0, 1, 1]"), "prompts[0]: a mask stands alone; remove \"box\""},
        {PROMPT("\"value\": 3"), "prompts[0]: \"value\" without \"mask\""},
        {PROMPT("\"mask\": \"/\", \"value\": -1"), "prompts[0].value: -1 is not in 0..65535"},
        {PROMPT("\"mask\": {\"size\": [3, 4], \"counts\": \"<\"}, \"value\": 1"),
         "prompts[0].value: picks an id out of a mask file only"},
        {PROMPT("\"mask\": {\"size\": [3, 4]}"), "prompts[0].mask: run lengths need \"size\" and \"counts\""},
        {PROMPT("\"mask\": {\"size\": [3, 4], \"count\": \"<\"}"),
         "prompts[0].mask: unknown key \"count\"; did you mean \"counts\"?"},
        {PROMPT("\"mask\": {\"size\": [3], \"counts\": \"<\"}"),
         "prompts[0].mask.size: expected [height, width], found an array"},
        {PROMPT("\"mask\": {\"size\": [0, 4], \"counts\": \"<\"}"), "prompts[0].mask.size[0]: 0 is not in 1..16384"},
        {PROMPT("\"mask\": {\"size\": [65535, 65535], \"counts\": \"<\"}"),
         "prompts[0].mask.size[0]: 65535 is not in 1..16384"},
        {PROMPT("\"mask\": {\"size\": [3, 4], \"counts\": 12}"),
         "prompts[0].mask.counts: expected a string or an array of run lengths, found a number (12)"},
        {PROMPT("\"mask\": {\"size\": [3, 4], \"counts\": \"PPQ7\"}"),
         "prompts[0].mask.counts: the counts cover more than the 12 pixels of 4x3"},
        {PROMPT("\"mask\": {\"size\": [3, 4], \"counts\": \"5\"}"),
         "prompts[0].mask.counts: the counts cover 5 of the 12 pixels of 4x3"},
        {PROMPT("\"mask\": {\"size\": [3, 4], \"counts\": [12, 1.5]}"),
         "prompts[0].mask.counts[1]: 1.5 is not a whole number"},
        {PROMPT("\"mask\": {\"size\": [3, 4], \"counts\": [12, -1]}"),
         "prompts[0].mask.counts[1]: -1 is not in 0..2147483647"},
        {PROMPT("\"mask\": {\"size\": [3, 4], \"counts\": [13]}"),
         "prompts[0].mask.counts: the counts cover more than the 12 pixels of 4x3"},
        {"{\"prompts\": [{\"frame\": 0, \"object\": 1, \"mask\": {\"size\": [3, 4], \"counts\": [12]}},"
         "{\"frame\": 0, \"object\": 2, \"mask\": {\"size\": [4, 3], \"counts\": [12]}}]}",
         "prompts[1].mask.size: [4, 3] is not the size of prompts[0].mask.size, [3, 4]; masks have the size of the "
         "video"},
        {PROMPT("\"stop\": true, \"points\": [[1, 1]]"), "prompts[0]: \"stop\" stands alone; remove \"points\""},
        {PROMPT("\"stop\": true, \"value\": 1"), "prompts[0]: \"stop\" stands alone; remove \"value\""},
        {PROMPT("\"stop\": false"), "prompts[0].stop: expected true, found false"},
        {PROMPT("\"stop\": 1"), "prompts[0].stop: expected true, found a number (1)"},
        {PROMPT("\"stop\": true"), "prompts[0].stop: object 1 is never prompted"},
    };
    CHECK_REFUSED(bad);
}

#define BOX(when, id)  "{" when ", \"object\": " id ", \"box\": [0, 0, 1, 1]}"
#define MASK(when, id) "{" when ", \"object\": " id ", \"mask\": {\"size\": [3, 4], \"counts\": [12]}}"
#define STOP(when, id) "{" when ", \"object\": " id ", \"stop\": true}"
#define AT(n)          "\"frame\": " #n
#define LATER(s)       "\"time\": " #s
#define PROMPTS(list)  "{\"prompts\": [" list "]}"

Test(prompts, together)
{
    static const struct bad bad[] = {
        {PROMPTS(BOX(AT(0), "1") "," STOP(AT(3), "7")), "prompts[1].stop: object 7 is never prompted"},
        {PROMPTS(BOX(AT(3), "7") "," STOP(AT(3), "7")),
         "prompts[1]: object 7 is both stopped and prompted at frame 3; see prompts[0]"},
        {PROMPTS(BOX(AT(0), "7") "," MASK(AT(3), "7") "," BOX(AT(3), "7")),
         "prompts[2]: a mask stands alone, but prompts[1] prompts object 7 at frame 3 too; keep one of them"},
        {PROMPTS(MASK(LATER(0.5), "7") "," BOX(AT(0), "7") "," MASK(LATER(0.5), "7")),
         "prompts[2]: a mask stands alone, but prompts[0] prompts object 7 at 0.5 s too; keep one of them"},
    };
    CHECK_REFUSED(bad);

    static const char *const good[] = {
        PROMPTS(STOP(AT(5), "7") "," BOX(AT(3), "7")),                      // the order in the file does not matter
        PROMPTS(BOX(AT(3), "7") "," STOP(AT(5), "7") "," BOX(AT(9), "7")),  // starts again
        PROMPTS(BOX(LATER(2.5), "7") "," STOP(AT(3), "7")),                 // cannot be told yet
        PROMPTS(MASK(AT(3), "7") "," MASK(AT(3), "8") "," BOX(AT(4), "7")), // other object, other frame
        PROMPTS(BOX(AT(3), "7") "," BOX(AT(3), "7")),                       // add up
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct fmt_prompts p;
        struct s2_err err;
        cr_expect_eq(parse(&p, good[i], &err), S2_OK, "%s: %s", good[i], err.text);
        fmt_prompts_free(&p);
    }
}

Test(prompts, listed_but_never_prompted)
{
    struct fmt_prompts p;
    struct s2_err err;
    s2_log_set(keep_warning, NULL);
    cr_assert_eq(parse(&p,
                       "{\"objects\": [{\"id\": 1}, {\"id\": 4}], "
                       "\"prompts\": [" BOX(AT(0), "1") "]}",
                       &err),
                 S2_OK);
    cr_expect_str_eq(warned, "prompts.json: objects[1]: object 4 is listed but never prompted");
    cr_expect_eq(p.n_objects, 2);
    fmt_prompts_free(&p);
}

Test(prompts, many)
{
    size_t size = 0, capacity = 8 << 20;
    char *json = malloc(capacity);
    size += (size_t)snprintf(json, capacity, "{\"prompts\": [");
    for (int i = 0; i < 50000; i++)
        size +=
            (size_t)snprintf(json + size, capacity - size, "%s{\"frame\": %d, \"object\": %d, \"points\": [[%d, 1.5]]}",
                             i ? "," : "", i / 7, 1 + i % 60000, i);
    size += (size_t)snprintf(json + size, capacity - size, "]}");
    struct fmt_prompts p;
    struct s2_err err = {0};
    cr_assert_eq(fmt_prompts_parse(&p, "many", json, size, NULL, &err), S2_OK, "%s", err.text);
    cr_assert_eq(p.n_prompts, 50000);
    cr_expect_eq(p.n_objects, 50000);
    cr_expect_eq(p.prompts[49999].xy[0], 49999);
    cr_expect_eq(p.objects[p.prompts[123].object].id, 124);
    cr_expect_str_eq(p.prompts[49999].where, "prompts[49999]");
    fmt_prompts_free(&p);
    free(json);
}

Test(prompts, files, .init = make_folder, .fini = remove_folder)
{
    char path[300], want[300];
    snprintf(path, sizeof path, "%s/prompts.json", folder);
    FILE *f = fopen(path, "wb");
    fputs("{\"prompts\": [{\"frame\": 0, \"object\": 1, \"mask\": \"mask.pgm\", \"value\": 3}]}\n", f);
    fclose(f);
    struct fmt_prompts p;
    struct s2_err err = {0};
    cr_assert_eq(fmt_prompts_read(&p, path, &err), S2_OK, "%s", err.text);
    cr_assert_eq(p.n_prompts, 1);
    snprintf(want, sizeof want, "%s/mask.pgm", folder);
    cr_expect_str_eq(p.prompts[0].mask_path, want, "relative to the file");
    cr_expect_eq(p.prompts[0].mask_value, 3);
    cr_assert_eq(fmt_prompts_resolve(&p, 4, 3, -1, &err), S2_OK, "%s", err.text);
    const struct s2_bits *m = &p.prompts[0].mask;
    cr_assert(m->width == 4 && m->height == 3);
    cr_expect(m->data[0] == 0x40 && m->data[m->stride] == 0x40 && m->data[2 * m->stride] == 0);
    cr_assert_eq(fmt_prompts_resolve(&p, 4, 3, -1, &err), S2_OK, "again");
    cr_expect_eq(fmt_prompts_resolve(&p, 4, 4, -1, &err), S2_E_USAGE);
    char sentence[700];
    snprintf(sentence, sizeof sentence, "%s: prompts[0].mask: %s is 4x3, but the video is 4x4", path, want);
    cr_expect_str_eq(err.text, sentence);
    fmt_prompts_free(&p);

    err = (struct s2_err){0};
    cr_expect_eq(fmt_prompts_read(&p, folder, &err), S2_E_USAGE, "a folder");
    cr_expect_not_null(strstr(err.text, "cannot be read: Is a directory"), "%s", err.text);
    err = (struct s2_err){0};
    cr_expect_eq(fmt_prompts_read(&p, "/no/such.json", &err), S2_E_USAGE);
    cr_expect_str_eq(err.text, "/no/such.json: cannot be opened: No such file or directory");
    fmt_prompts_free(&p);

    snprintf(path, sizeof path, "%s/big.json", folder);
    f = fopen(path, "wb");
    cr_assert_eq(ftruncate(fileno(f), (64 << 20) + 1), 0);
    fclose(f);
    err = (struct s2_err){0};
    cr_expect_eq(fmt_prompts_read(&p, path, &err), S2_E_USAGE);
    cr_expect_not_null(strstr(err.text, "big.json: is larger than 64 MiB"), "%s", err.text);
}

/* ------------------------------------------------------------------ quick prompts */

Test(prompts, quick)
{
    struct fmt_prompts p = {0};
    struct s2_err err = {0};
    static const char *const given[][2] = {{"point", "10,20"},        {"point", "30.5,4e1,0"},   {"box", "1,2,3,4@0#1"},
                                           {"point", "5,6,1@12#300"}, {"box", "1,2,3,4@12#301"}, {"point", "7,8#300"},
                                           {"point", "9,9@12#300"}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        cr_assert_eq(fmt_prompts_quick(&p, given[i][0], given[i][1], &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(p.path, "command line");
    cr_assert_eq(p.n_objects, 3);
    cr_expect(p.objects[0].id == 1 && p.objects[1].id == 300 && p.objects[2].id == 301);
    cr_assert_eq(p.n_prompts, 4);
    const struct fmt_prompt *q = p.prompts;
    cr_expect_str_eq(q[0].where, "--point 10,20 --point 30.5,4e1,0 --box 1,2,3,4@0#1");
    cr_assert(q[0].n_points == 2 && q[0].has_box && q[0].frame == 0 && q[0].object == 0);
    cr_expect(same_bytes(q[0].xy, (float[]){10, 20, 30.5f, 40}, 16) && q[0].labels[0] == 1 && q[0].labels[1] == 0);
    cr_expect(same_bytes(q[0].box, (float[]){1, 2, 3, 4}, 16));
    cr_expect(q[1].frame == 12 && q[1].object == 1 && q[1].n_points == 2 && q[1].xy[2] == 9);
    cr_expect(q[2].frame == 12 && q[2].object == 2 && q[2].has_box && q[2].n_points == 0);
    cr_expect(q[3].frame == 0 && q[3].object == 1 && q[3].xy[0] == 7);
    fmt_prompts_free(&p);
}

Test(prompts, quick_refused)
{
    static const struct {
        const char *option, *text, *sentence;
    } bad[] = {
        {"point", "10", "--point 10: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "", "--point : expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "10,20,1,1", "--point 10,20,1,1: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "10, 20", "--point 10, 20: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "nan,20", "--point nan,20: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "0x10,20", "--point 0x10,20: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "10,20@", "--point 10,20@: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "10,20@x", "--point 10,20@x: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "10,20#1@2", "--point 10,20#1@2: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "10,20,", "--point 10,20,: expected X,Y[,0|1][@FRAME][#ID]"},
        {"point", "10,20,2", "--point 10,20,2: the label is 1 (inside) or 0 (outside), not 2"},
        {"point", "-1,20", "--point -1,20: x (-1) is negative"},
        {"point", "1,1e99", "--point 1,1e99: y is too large"},
        {"point", "1,1#0", "--point 1,1#0: id 0 is not in 1..65535"},
        {"point", "1,1#65536", "--point 1,1#65536: id 65536 is not in 1..65535"},
        {"point", "1,1@99999999999999999999",
         "--point 1,1@99999999999999999999: frame 99999999999999999999 is not in 0..2147483647"},
        {"box", "1,2,3", "--box 1,2,3: expected X0,Y0,X1,Y1[@FRAME][#ID]"},
        {"box", "5,2,3,4", "--box 5,2,3,4: x1 (3) is not right of x0 (5)"},
        {"mask", "@3#4", "--mask @3#4: expected FILE[@FRAME][#ID]"},
        {"mask", "/no/such.png@3", "--mask /no/such.png@3: /no/such.png cannot be read: No such file or directory"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fmt_prompts p = {0};
        struct s2_err err = {0};
        cr_expect_eq(fmt_prompts_quick(&p, bad[i].option, bad[i].text, &err), S2_E_USAGE, "%s", bad[i].text);
        cr_expect_str_eq(err.text, bad[i].sentence);
        cr_expect_eq(p.n_prompts, 0);
        fmt_prompts_free(&p);
    }
}

Test(prompts, quick_masks, .init = make_folder, .fini = remove_folder)
{
    char path[300], text[320], odd[300];
    snprintf(path, sizeof path, "%s/mask.pgm", folder);
    snprintf(odd, sizeof odd, "%s/odd#name@2.pgm", folder);
    cr_assert_eq(link(path, odd), 0);
    struct fmt_prompts p = {0};
    struct s2_err err = {0};
    cr_assert_eq(fmt_prompts_quick(&p, "mask", path, &err), S2_OK, "%s", err.text);
    cr_assert_eq(fmt_prompts_quick(&p, "mask", odd, &err), S2_E_USAGE, "a second mask on the frame");
    err = (struct s2_err){0};
    snprintf(text, sizeof text, "%s@17#9", odd);
    cr_assert_eq(fmt_prompts_quick(&p, "mask", text, &err), S2_OK, "%s", err.text);
    cr_assert_eq(p.n_prompts, 2);
    cr_expect_str_eq(p.prompts[1].mask_path, odd);
    cr_expect_eq(p.prompts[1].frame, 17);
    cr_expect_eq(p.objects[p.prompts[1].object].id, 9);
    cr_assert_eq(fmt_prompts_resolve(&p, 4, 3, 18, &err), S2_OK, "%s", err.text);
    const struct s2_bits *m = &p.prompts[1].mask;
    cr_expect(m->data[0] == 0x40 && m->data[m->stride] == 0x60 && m->data[2 * m->stride] == 0x20, "any non-zero");
    fmt_prompts_free(&p);
}

Test(prompts, quick_conflicts)
{
    struct fmt_prompts p;
    struct s2_err err;
    cr_assert_eq(parse(&p, PROMPTS(MASK(AT(3), "7")), &err), S2_OK, "%s", err.text);
    cr_assert_eq(fmt_prompts_quick(&p, "point", "1,1@4#7", &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(p.path, "prompts.json", "they append to a file");
    cr_expect_eq(p.n_prompts, 2);
    cr_assert_eq(fmt_prompts_quick(&p, "box", "1,1,2,2@4#7", &err), S2_OK, "%s", err.text);
    cr_expect_eq(p.n_prompts, 2);
    cr_expect_eq(fmt_prompts_quick(&p, "box", "1,1,2,3@4#7", &err), S2_E_USAGE);
    cr_expect_str_eq(err.text, "--box 1,1,2,3@4#7: object 7 has a box on frame 4 already: --point 1,1@4#7 --box "
                               "1,1,2,2@4#7");
    err = (struct s2_err){0};
    cr_expect_eq(fmt_prompts_quick(&p, "point", "1,1@3#7", &err), S2_E_USAGE);
    cr_expect_str_eq(err.text, "--point 1,1@3#7: a mask stands alone, but prompts[0] prompts object 7 at frame 3 too; "
                               "keep one of them");
    fmt_prompts_free(&p);
}

/* ------------------------------------------------------------------ against the video */

static void check_resolve(const char *json, int width, int height, int64_t frames, const char *sentence)
{
    struct fmt_prompts p;
    struct s2_err err;
    cr_assert_eq(parse(&p, json, &err), S2_OK, "%s: %s", json, err.text);
    enum s2_status status = fmt_prompts_resolve(&p, width, height, frames, &err);
    cr_expect_eq(status, sentence ? S2_E_USAGE : S2_OK, "%s: %s", json, err.text);
    if (sentence) cr_expect_str_eq(err.text, sentence);
    fmt_prompts_free(&p);
}

Test(prompts, against_the_video)
{
    check_resolve(PROMPT("\"points\": [[0, 0], [639.9, 359.9]]"), 640, 360, 1, NULL);
    check_resolve(PROMPT("\"points\": [[0, 0], [640, 0]]"), 640, 360, 1,
                  "prompts.json: prompts[0].points[1]: x (640) is outside the frame: 0 <= x < 640");
    check_resolve(PROMPT("\"points\": [[0, 400.5]]"), 640, 360, 1,
                  "prompts.json: prompts[0].points[0]: y (400.5) is outside the frame: 0 <= y < 360");
    check_resolve(PROMPT("\"box\": [0, 0, 640, 360]"), 640, 360, 1, NULL);
    check_resolve(PROMPT("\"box\": [0, 0, 640, 360.5]"), 640, 360, 1,
                  "prompts.json: prompts[0].box: y1 (360.5) is outside the frame: 0 <= y1 <= 360");
    check_resolve(PROMPTS(BOX(AT(9), "1")), 640, 360, 10, NULL);
    check_resolve(PROMPTS(BOX(AT(9), "1")), 640, 360, 9,
                  "prompts.json: prompts[0].frame: frame 9 is past the end; the video has 9 frames, from 0");
    check_resolve(PROMPTS(BOX(AT(9), "1")), 640, 360, -1, NULL);
    check_resolve(PROMPTS(MASK(AT(0), "1")), 4, 3, -1, NULL);
    check_resolve(PROMPTS(MASK(AT(0), "1")), 3, 4, -1,
                  "prompts.json: prompts[0].mask: the mask is 4x3, but the video is 3x4");
    struct fmt_prompts p = {0};
    struct s2_err err = {0};
    cr_assert_eq(fmt_prompts_quick(&p, "point", "10,20", &err), S2_OK);
    cr_assert_eq(fmt_prompts_quick(&p, "point", "700,20", &err), S2_OK);
    cr_expect_eq(fmt_prompts_resolve(&p, 640, 360, 1, &err), S2_E_USAGE);
    cr_expect_str_eq(err.text, "--point 10,20 --point 700,20: x (700) is outside the frame: 0 <= x < 640");
    fmt_prompts_free(&p);
}

Test(prompts, normalized)
{
    struct fmt_prompts p;
    struct s2_err err;
    cr_assert_eq(parse(&p, NORMALIZED("\"points\": [[0, 0.5], [0.99999994, 0.25]], \"box\": [0, 0, 1, 1]"), &err),
                 S2_OK, "%s", err.text);
    cr_expect(p.normalized);
    cr_assert_eq(fmt_prompts_resolve(&p, 640, 360, 1, &err), S2_OK, "%s", err.text);
    cr_expect_not(p.normalized);
    const float *xy = p.prompts[0].xy;
    cr_expect(xy[0] == 0 && xy[1] == 180 && xy[3] == 90);
    cr_expect(xy[2] < 640 && xy[2] > 639.99f);
    cr_expect(same_bytes(p.prompts[0].box, (float[]){0, 0, 640, 360}, 16));
    cr_assert_eq(fmt_prompts_resolve(&p, 640, 360, 1, &err), S2_OK, "again, in pixels now: %s", err.text);
    cr_expect_eq(xy[1], 180);
    fmt_prompts_free(&p);
}

Test(prompts, empty_mask_warns)
{
    s2_log_set(keep_warning, NULL);
    check_resolve(PROMPTS(MASK(AT(0), "1")), 4, 3, -1, NULL);
    cr_expect_str_eq(warned, "prompts.json: prompts[0]: the mask has no pixel inside; the object starts as absent");
}

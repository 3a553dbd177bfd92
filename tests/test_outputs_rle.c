/* RLE files: that they parse and hold the masks, and what is left when a disk is full or a pipe closed. */
#define _GNU_SOURCE /* F_SETPIPE_SZ */
#include "../formats/sink.h"
#include "outputs_fixture.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(outputs_rle, .init = fix_make_folder, .fini = fix_remove_folder, .timeout = 60);

static const cJSON *field(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    cr_assert_not_null(item, "%s is missing", name);
    return item;
}

static double number(const cJSON *object, const char *name)
{
    cr_assert(cJSON_IsNumber(field(object, name)), "%s", name);
    return field(object, name)->valuedouble;
}

static const char *string(const cJSON *object, const char *name)
{
    cr_assert(cJSON_IsString(field(object, name)), "%s", name);
    return field(object, name)->valuestring;
}

static void check_object(const cJSON *object, int64_t n, int i)
{
    cr_assert_eq(number(object, "id"), fix_objects[i].id);
    cr_assert_float_eq(number(object, "score"), i ? -1.5 : 8.31, 1e-9, "not the shortest digits that read back");
    if (i)
        cr_assert_eq(number(object, "iou"), 0.75);
    else
        cr_assert(cJSON_IsNull(field(object, "iou")));
    const cJSON *segmentation = field(object, "segmentation"), *size = field(segmentation, "size");
    cr_assert_eq(cJSON_GetArrayItem(size, 0)->valueint, FIX_HEIGHT);
    cr_assert_eq(cJSON_GetArrayItem(size, 1)->valueint, FIX_WIDTH);

    uint8_t data[2 * FIX_HEIGHT];
    struct s2_bits bits = {FIX_WIDTH, FIX_HEIGHT, 2, data};
    struct s2_err err = {0};
    const char *counts = string(segmentation, "counts");
    cr_assert(fmt_rle_decode(counts, strlen(counts), &bits, &err), "%s", err.text);
    int area = 0, right = 0;
    for (int y = 0; y < FIX_HEIGHT; y++)
        for (int x = 0; x < FIX_WIDTH; x++) {
            int inside = data[2 * y + x / 8] >> (7 - x % 8) & 1;
            cr_assert_eq(inside, fix_inside(n, i, x, y), "frame %d, object %d, %d %d", (int)n, i, x, y);
            area += inside;
            if (inside && x + 1 > right) right = x + 1;
        }
    const cJSON *bbox = field(object, "bbox");
    cr_assert_eq(number(object, "area"), area);
    cr_assert_eq(cJSON_GetArrayItem(bbox, 0)->valueint + cJSON_GetArrayItem(bbox, 2)->valueint, right);
}

static void check_frame(const cJSON *frame, int64_t n)
{
    cr_assert_eq(number(frame, "frame"), (double)n);
    cr_assert_float_eq(number(frame, "time"), round((double)n / 30 * 1e6) / 1e6, 1e-12);
    const cJSON *list = field(frame, "objects");
    cr_assert_eq(cJSON_GetArraySize(list), n == 0 ? 1 : 2, "object 200 starts on frame 1");
    for (int i = 0; i < cJSON_GetArraySize(list); i++) check_object(cJSON_GetArrayItem(list, i), n, i);
}

static void check_header(const cJSON *header)
{
    cr_assert_str_eq(string(header, "format"), "sam2track-rle");
    cr_assert_eq(number(header, "version"), 1);
    const cJSON *video = field(header, "video"), *model = field(header, "model");
    cr_assert_str_eq(string(video, "path"), "clip \"a\".mp4");
    cr_assert_str_eq(string(video, "time_base"), "1/15360");
    cr_assert(number(video, "width") == FIX_WIDTH && number(video, "height") == FIX_HEIGHT &&
              number(video, "fps") == 30);
    cr_assert_str_eq(string(model, "name"), "sam2.1_tiny");
    cr_assert_eq(number(model, "size"), 1024);
    cr_assert(!strcmp(string(model, "precision"), "fp32") && !strcmp(string(model, "device"), "cpu") &&
              !strcmp(string(model, "graph"), "off"));
    const cJSON *objects = field(header, "objects");
    cr_assert_eq(cJSON_GetArraySize(objects), 2);
    cr_assert_eq(number(cJSON_GetArrayItem(objects, 1), "id"), 200);
}

static cJSON *parse(const char *json)
{
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithOpts(json, &end, false);
    cr_assert_not_null(root, "does not parse: %.60s", json);
    cr_assert(!*end || *end == '\n');
    return root;
}

/* Frames of a document, all checked. */
static int check_document(const char *name)
{
    cJSON *root = parse(fix_read_all(name));
    check_header(root);
    const cJSON *frames = field(root, "frames");
    int n = cJSON_GetArraySize(frames);
    for (int i = 0; i < n; i++) check_frame(cJSON_GetArrayItem(frames, i), i);
    cJSON_Delete(root);
    return n;
}

/* Frames of JSON lines, all checked. */
static int check_lines(char *text)
{
    int n = -1;
    for (char *line = text, *end; *line; line = end + 1, n++) {
        cr_assert_not_null(end = strchr(line, '\n'), "the last line is cut");
        *end = 0;
        cJSON *root = parse(line);
        if (n < 0) {
            check_header(root);
            cr_assert_null(cJSON_GetObjectItem(root, "frames"));
        } else {
            check_frame(root, n);
        }
        cJSON_Delete(root);
    }
    return n;
}

Test(outputs_rle, a_document_is_whole)
{
    struct fmt_outputs_config c = fix_config();
    c.rle_path = fix_in("a.json");
    fix_run_frames(&c, 20);
    cr_assert_eq(check_document("a.json"), 20);
    cr_assert_eq(fix_count_files(""), 1);
}

Test(outputs_rle, a_document_without_frames_is_whole)
{
    struct fmt_outputs_config c = fix_config();
    c.rle_path = fix_in("a.json");
    fix_run_frames(&c, 0);
    cr_assert_eq(check_document("a.json"), 0);
}

Test(outputs_rle, a_document_is_valid_at_any_moment)
{
    struct fmt_outputs_config c = fix_config();
    c.rle_path = fix_in("a.json");
    struct fmt_outputs *o = fix_open_run(&c);
    for (int i = 0; i < 4; i++) fix_put_frame(o, i, "");
    struct stat st;
    for (int i = 0; i < 200 && (stat(fix_in("a.json.part"), &st) || st.st_size < 600); i++) usleep(5000);
    usleep(20000);
    cr_assert_eq(check_document("a.json.part"), 4);
    cr_assert(!fix_exists("a.json"));
    cr_assert_eq(fmt_outputs_finish(o, NULL), S2_OK);
}

Test(outputs_rle, lines_are_whole)
{
    struct fmt_outputs_config c = fix_config();
    c.rle_path = fix_in("a.jsonl");
    fix_run_frames(&c, 9);
    cr_assert_eq(check_lines(fix_read_all("a.jsonl")), 9);
}

Test(outputs_rle, labels_and_model_are_named)
{
    FILE *f = fopen(fix_in("model.pt"), "wb");
    cr_assert_not_null(f);
    fputs("abc", f);
    fclose(f);
    struct fmt_object labelled[2] = {{1, "left \"bike\"\n"}, {200, NULL}};
    struct fmt_outputs_config c = fix_config();
    c.objects = labelled;
    c.model_file = fix_in("model.pt");
    c.rle_path = fix_in("a.json");
    fix_run_frames(&c, 1);
    cJSON *root = parse(fix_read_all("a.json"));
    const cJSON *objects = field(root, "objects");
    cr_assert_str_eq(string(cJSON_GetArrayItem(objects, 0), "label"), "left \"bike\"\n");
    cr_assert_null(cJSON_GetObjectItem(cJSON_GetArrayItem(objects, 1), "label"));
    cr_assert_str_eq(string(field(root, "model"), "sha256"), /* FIPS 180-2, appendix B.1 */
                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    cJSON_Delete(root);
}

Test(outputs_rle, standard_output_gets_lines)
{
    int saved = dup(STDOUT_FILENO), file = open(fix_in("stdout"), O_WRONLY | O_CREAT, 0666);
    cr_assert(saved >= 0 && file >= 0);
    dup2(file, STDOUT_FILENO);
    struct fmt_outputs_config c = fix_config();
    c.rle_path = "-";
    fix_run_frames(&c, 5);
    dup2(saved, STDOUT_FILENO);
    cr_assert_eq(check_lines(fix_read_all("stdout")), 5);
}

/* ------------------------------------------------------------------ failures */

/* Puts frames until the run fails; how many it took. */
static int run_until_failure(struct fmt_outputs *o, int most)
{
    int n = 0;
    while (n < most && fix_put_frame(o, n, "")) n++;
    return n;
}

Test(outputs_rle, a_full_device_is_reported)
{
    struct fmt_outputs_config c = fix_config();
    c.rle_path = "/dev/full";
    c.png_dir = fix_in("maps");
    struct fmt_outputs *o = fix_open_run(&c);
    struct s2_err err = {0};
    cr_assert_lt(run_until_failure(o, 100000), 100000, "take() goes on");
    cr_assert_eq(fmt_outputs_finish(o, &err), S2_E_OUTPUT);
    cr_assert_str_eq(err.text, "/dev/full: cannot be written: No space left on device; nothing of it is kept");
    cr_assert(fix_exists("maps/00000.png"), "another output lost its frames");
}

Test(outputs_rle, a_closed_pipe_is_reported)
{
    int pipes[2], saved = dup(STDOUT_FILENO);
    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(pipe(pipes), 0);
    dup2(pipes[1], STDOUT_FILENO);
    struct fmt_outputs_config c = fix_config();
    c.rle_path = "-";
    struct fmt_outputs *o = fix_open_run(&c);
    struct s2_err err = {0};
    fix_put_frame(o, 0, "");
    char byte;
    cr_assert_eq(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    cr_assert_lt(run_until_failure(o, 100000), 100000);
    cr_assert_eq(fmt_outputs_finish(o, &err), S2_E_OUTPUT);
    dup2(saved, STDOUT_FILENO);
    cr_assert_not_null(strstr(err.text, "standard output: cannot be written: Broken pipe"), "%s", err.text);
}

/* With files limited to `bytes`: frames that the failed run says it kept. */
static int run_into_limit(struct fmt_outputs_config *c, rlim_t bytes)
{
    const rlim_t before = fix_limit_files(bytes);
    struct fmt_outputs *o = fix_open_run(c);
    struct s2_err err = {0};
    cr_assert_lt(run_until_failure(o, 1000), 1000);
    enum s2_status status = fmt_outputs_finish(o, &err);
    fix_limit_files(before);
    cr_assert_eq(status, S2_E_OUTPUT);
    cr_assert_not_null(strstr(err.text, "cannot be written: File too large; "), "%s", err.text);
    return atoi(strstr(err.text, "; ") + 2);
}

/* Every limit in a stretch longer than a frame: the write breaks off at every byte of one. */
Test(outputs_rle, frames_before_a_full_disk_are_kept)
{
    struct fmt_outputs_config c = fix_config();
    c.overwrite = true;
    int fewest = 1000, most = 0;
    for (rlim_t bytes = 2000; bytes < 2400; bytes += 7) {
        c.rle_path = fix_in("a.json");
        int kept = run_into_limit(&c, bytes);
        cr_assert_eq(check_document("a.json"), kept);
        c.rle_path = fix_in("a.jsonl");
        cr_assert_eq(run_into_limit(&c, bytes), check_lines(fix_read_all("a.jsonl")));
        fewest = kept < fewest ? kept : fewest;
        most = kept > most ? kept : most;
    }
    cr_assert(fewest >= 2 && most > fewest, "%d to %d frames", fewest, most);
    cr_assert_eq(fix_count_files(""), 2);
}

/* Nothing fits, and there is room again when the file is to be closed. */
Test(outputs_rle, a_file_without_a_frame_is_not_kept)
{
    struct fmt_outputs_config c = fix_config();
    c.rle_path = fix_in("a.json");
    cr_assert_eq(fmt_outputs_finish(fix_open_run(&c), NULL), S2_OK);
    const rlim_t header = strlen(fix_read_all("a.json"));
    unlink(c.rle_path);
    for (rlim_t bytes = header / 2; bytes < header + 20; bytes += header / 2 + 10) {
        const rlim_t before = fix_limit_files(bytes);
        struct fmt_outputs *o = fix_open_run(&c);
        struct s2_err err = {0};
        cr_assert_lt(run_until_failure(o, 1000), 1000);
        fix_limit_files(before);
        cr_assert_eq(fmt_outputs_finish(o, &err), S2_E_OUTPUT);
        cr_assert_not_null(strstr(err.text, "; nothing of it is kept"), "%s", err.text);
        cr_assert_eq(fix_count_files(""), 0);
    }
}

static void *read_slowly(void *arg)
{
    char *text = malloc(1 << 20);
    size_t size = 0;
    usleep(200000); /* the pipe is full by then */
    for (ssize_t n; (n = read(*(int *)arg, text + size, (1 << 20) - 1 - size)) > 0;) size += (size_t)n;
    text[size] = 0;
    return text;
}

Test(outputs_rle, a_pipe_that_does_not_block_is_waited_for)
{
    int pipes[2], saved = dup(STDOUT_FILENO), frames = 400;
    pthread_t reader;
    void *text;
    cr_assert_eq(pipe(pipes), 0);
    fcntl(pipes[1], F_SETFL, O_NONBLOCK);
    fcntl(pipes[1], F_SETPIPE_SZ, 4096);
    dup2(pipes[1], STDOUT_FILENO);
    close(pipes[1]);
    cr_assert_eq(pthread_create(&reader, NULL, read_slowly, &pipes[0]), 0);
    struct fmt_outputs_config c = fix_config();
    c.rle_path = "-";
    struct fmt_outputs *o = fix_open_run(&c);
    struct s2_err err = {0};
    for (int i = 0; i < frames; i++) fix_put_frame(o, i, "");
    const enum s2_status status = fmt_outputs_finish(o, &err);
    dup2(saved, STDOUT_FILENO);
    pthread_join(reader, &text);
    cr_assert_eq(status, S2_OK, "%s", err.text);
    cr_assert_eq(check_lines(text), frames);
    free(text);
}

/* ------------------------------------------------------------------ the pool */

struct taker {
    struct fmt_outputs *outputs;
    struct fmt_record *taken[64];
    int n;
};

static void *take_all(void *arg)
{
    struct taker *t = arg;
    for (struct fmt_record *r; (r = fmt_outputs_take(t->outputs));) {
        t->taken[__atomic_load_n(&t->n, __ATOMIC_RELAXED)] = r;
        __atomic_add_fetch(&t->n, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static int wait_for(const int *n, int at_least)
{
    for (int i = 0; i < 400 && __atomic_load_n(n, __ATOMIC_ACQUIRE) < at_least; i++) usleep(5000);
    usleep(50000);
    return __atomic_load_n(n, __ATOMIC_ACQUIRE);
}

/* take() waits while all records are out, goes on when one comes back, and ends when an output fails. */
Test(outputs_rle, records_in_flight_are_bounded)
{
    struct fmt_outputs_config c = fix_config();
    c.rle_path = "/dev/full";
    struct taker t = {.outputs = fix_open_run(&c)};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, take_all, &t), 0);
    int all = wait_for(&t.n, 4);
    cr_assert(all >= 4 && all <= 4 + fmt_sink_workers(), "%d records", all);
    for (int i = 0; i < all; i++)
        for (int k = 0; k < i; k++) cr_assert_neq(t.taken[i]->frame.image.rgb, t.taken[k]->frame.image.rgb);
    fmt_outputs_return(t.outputs, t.taken[0]);
    cr_assert_eq(wait_for(&t.n, all + 1), all + 1);
    cr_assert_eq(t.taken[all], t.taken[0]);
    fmt_outputs_put(t.outputs, t.taken[1]);
    pthread_join(thread, NULL);
    fmt_outputs_discard(t.outputs);
}

Test(outputs_rle, times_are_named)
{
    struct fmt_outputs_config c = fix_config();
    c.rle_path = fix_in("a.json");
    c.png_dir = fix_in("maps");
    struct fmt_outputs *o = fix_open_run(&c);
    const char *const *names;
    const double *seconds;
    for (int i = 0; i < 10; i++) fix_put_frame(o, i, "");
    do { /* until both have written something; the suite's limit ends it */
        usleep(1000);
        cr_assert_eq(fmt_outputs_times(o, &names, &seconds), 2);
    } while (seconds[0] <= 0 || seconds[1] <= 0);
    cr_assert(!strcmp(names[0], "png") && !strcmp(names[1], "rle"));
    cr_assert_eq(fmt_outputs_finish(o, NULL), S2_OK);
}

/* sink_rle.c - masks as COCO run lengths in JSON: one document (.json), or a header and a line a frame (.jsonl,
 * and "-" on stdout). Fields: sam2track-formats(5).
 *
 * Memory does not grow with the clip. A document is closed after every frame, and the next frame overwrites the
 * closing brackets, so that the file is valid JSON at any moment; when the disk fills, what fitted before stays.
 * The first mask does not wait for the model's hash: until that is known, there is null and room for it.
 * Stdout and names of pipes or devices get JSON lines without a temporary name. */
#include "sink.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define DOCUMENT_END "\n]}\n"

enum { HASH_ROOM = 64 + 2 }; /* of a SHA-256 with its quotes */

struct strip { /* one worker's */
    struct fmt_text text, counts;
};

struct sink_rle {
    struct fmt_sink sink; /* first */
    const struct fmt_outputs_config *config;
    const char *name; /* for sentences */
    char *part;       /* temporary name; NULL: written straight to a stream */
    bool document;
    int fd;
    int64_t end; /* bytes that stand; a document's closing brackets lie behind */
    bool headed; /* the header is written */
    bool failed; /* something could not be written */
    int64_t frames;
    struct fmt_text header;
    struct strip strip[FMT_SINK_WORKERS];
    pthread_t hasher;
    bool hashing;
    atomic_bool hashed;
    int64_t hash_at; /* where a file has room for the hash; -1: it has none, or the hash stands there */
    char sha256[65]; /* "": not known */
};

/* ------------------------------------------------------------------ text */

static void *hash_model(void *arg)
{
    struct sink_rle *s = arg;
    struct s2_err err = {0};
    if (fmt_checkpoint_sha256(s->config->model_file, s->sha256, &err)) {
        s->sha256[0] = 0;
        s2_log(S2_LOG_WARN, "%s; \"sha256\" is null in %s", err.text, s->name);
    }
    atomic_store(&s->hashed, true);
    return NULL;
}

static void join_hasher(struct sink_rle *s)
{
    if (s->hashing) pthread_join(s->hasher, NULL);
    s->hashing = false;
}

static bool put_key(struct fmt_text *t, const char *key, const char *value)
{
    return fmt_text_puts(t, key) && fmt_text_json_string(t, value);
}

static bool put_hash(struct sink_rle *s, struct fmt_text *t)
{
    bool ok = fmt_text_puts(t, ", \"sha256\": ");
    if (!s->hashing || !s->part) return ok && fmt_text_json_string(t, s->sha256[0] ? s->sha256 : NULL);
    s->hash_at = (int64_t)t->size;
    return ok && fmt_text_printf(t, "%-*s", HASH_ROOM, "null");
}

static bool put_header(struct sink_rle *s, struct fmt_text *t)
{
    const struct fmt_outputs_config *c = s->config;
    const char *gap = s->document ? "\n " : " ";
    bool ok = fmt_text_printf(t, "{\"format\": \"sam2track-rle\", \"version\": 1,%s\"video\": {", gap);
    ok = ok && put_key(t, "\"path\": ", c->input_path);
    ok = ok && fmt_text_printf(t, ", \"width\": %d, \"height\": %d, \"time_base\": \"%d/%d\", \"fps\": ", c->width,
                               c->height, c->time_base_num, c->time_base_den);
    ok = ok && fmt_text_json_number(t, c->fps, 9);
    ok = ok && fmt_text_printf(t, "},%s\"model\": {", gap);
    ok = ok && put_key(t, "\"file\": ", c->model_file) && put_key(t, ", \"name\": ", c->model_name);
    ok = ok && put_hash(s, t) && fmt_text_printf(t, ", \"size\": %d", c->model_size);
    ok = ok && put_key(t, ", \"precision\": ", c->precision) && put_key(t, ", \"device\": ", c->device);
    ok = ok && put_key(t, ", \"graph\": ", c->graph);
    ok = ok && fmt_text_printf(t, "},%s\"objects\": [", gap);
    for (size_t i = 0; i < c->n_objects && ok; i++) {
        ok = fmt_text_printf(t, "%s{\"id\": %d", i ? ", " : "", c->objects[i].id);
        if (ok && c->objects[i].label) ok = put_key(t, ", \"label\": ", c->objects[i].label);
        ok = ok && fmt_text_puts(t, "}");
    }
    ok = ok && fmt_text_puts(t, "]");
    return ok && (s->document ? fmt_text_puts(t, ",\n \"frames\": [" DOCUMENT_END) : fmt_text_puts(t, "}\n"));
}

/* A number that reads back as the same float, with as few digits as that takes. */
static bool put_float(struct fmt_text *t, float value)
{
    int digits = 1;
    for (char text[32]; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return fmt_text_json_number(t, (double)value, digits);
}

static bool put_object(struct strip *strip, int id, const struct fmt_record_object *o)
{
    struct fmt_text *t = &strip->text;
    struct fmt_rle_stats stats;
    fmt_text_clear(&strip->counts);
    if (fmt_rle_encode(&o->bits, &strip->counts, &stats, NULL)) return false;
    bool ok = fmt_text_printf(t, "{\"id\": %d, \"score\": ", id) && put_float(t, o->score);
    ok = ok && fmt_text_puts(t, ", \"iou\": ") && put_float(t, o->iou);
    ok = ok && fmt_text_printf(t, ", \"area\": %lld, \"bbox\": [%d, %d, %d, %d], \"segmentation\": {\"size\": [%d, %d]",
                               (long long)stats.area, stats.bbox[0], stats.bbox[1], stats.bbox[2], stats.bbox[3],
                               o->bits.height, o->bits.width);
    return ok && put_key(t, ", \"counts\": ", strip->counts.data) && fmt_text_puts(t, "}}");
}

/* In a document behind a comma, which the first frame does without. */
static bool put_frame(const struct sink_rle *s, struct strip *strip, const struct fmt_record *r)
{
    struct fmt_text *t = &strip->text;
    bool ok = !s->document || fmt_text_puts(t, ",\n  ");
    ok = ok && fmt_text_printf(t, "{\"frame\": %lld, \"time\": ", (long long)r->frame.index);
    ok = ok && fmt_text_json_number(t, round(r->frame.time * 1e6) / 1e6, 15);
    ok = ok && fmt_text_puts(t, ", \"objects\": [");
    const char *separator = "";
    for (size_t i = 0; i < s->config->n_objects && ok; i++) {
        if (!r->object[i].started) continue;
        ok = fmt_text_puts(t, separator) && put_object(strip, s->config->objects[i].id, &r->object[i]);
        separator = ", ";
    }
    ok = ok && fmt_text_puts(t, "]}");
    return ok && fmt_text_puts(t, s->document ? DOCUMENT_END : "\n");
}

/* ------------------------------------------------------------------ bytes */

/* The text becomes part of the file, whole or not at all. */
static enum s2_status append(struct sink_rle *s, const char *text, size_t size, struct s2_err *err)
{
    int error = fmt_output_write(s->fd, text, size, s->part ? s->end : -1);
    size_t tail = s->document ? strlen(DOCUMENT_END) : 0;
    if (!error) {
        s->end += (int64_t)(size - tail);
        return S2_OK;
    }
    s->failed = true;
    if (s->part && ftruncate(s->fd, s->end) == 0 && s->document && s->headed)
        fmt_output_write(s->fd, DOCUMENT_END, tail, s->end);
    return fmt_output_failed(err, s->name, "cannot be written", error);
}

/* A stream's header has to wait for the hash. */
static enum s2_status write_header(struct sink_rle *s, struct s2_err *err)
{
    if (!s->part) join_hasher(s);
    if (!put_header(s, &s->header)) return s2_no_memory(err, "the header of the RLE output", s->header.capacity);
    enum s2_status status = append(s, s->header.data, s->header.size, err);
    s->headed = status == S2_OK;
    return status;
}

/* Into the room that the header has for it, once it is known. Where that fails null stays, which is true as well. */
static void write_hash(struct sink_rle *s)
{
    char text[HASH_ROOM + 1];
    if (s->hash_at < 0 || !atomic_load(&s->hashed)) return;
    snprintf(text, sizeof text, "\"%s\"", s->sha256);
    if (s->sha256[0]) fmt_output_write(s->fd, text, HASH_ROOM, s->hash_at);
    s->hash_at = -1;
}

static enum s2_status make_text(struct fmt_sink *sink, int worker, const struct fmt_record *r, struct s2_err *err)
{
    struct sink_rle *s = (struct sink_rle *)sink;
    struct strip *strip = &s->strip[worker];
    fmt_text_clear(&strip->text);
    if (put_frame(s, strip, r)) return S2_OK;
    return s2_no_memory(err, "the masks of a frame as RLE", strip->text.capacity);
}

static enum s2_status write_frame(struct fmt_sink *sink, int worker, const struct fmt_record *r, struct s2_err *err)
{
    (void)r;
    struct sink_rle *s = (struct sink_rle *)sink;
    const struct fmt_text *t = &s->strip[worker].text;
    const size_t comma = s->document && s->frames == 0;
    enum s2_status status = s->headed ? S2_OK : write_header(s, err);
    if (!status) status = append(s, t->data + comma, t->size - comma, err);
    if (!status) s->frames++;
    write_hash(s);
    return status;
}

static enum s2_status finish(struct fmt_sink *sink, int64_t *kept, struct s2_err *err)
{
    struct sink_rle *s = (struct sink_rle *)sink;
    if (s->failed && s->frames == 0) { /* the temporary file goes */
        *kept = 0;
        return S2_OK;
    }
    enum s2_status status = s->headed ? S2_OK : write_header(s, err);
    join_hasher(s);
    write_hash(s);
    if (status || !s->part) return status;
    int error = close(s->fd) == 0 ? 0 : errno;
    s->fd = -1;
    if (!error && rename(s->part, s->config->rle_path) != 0) error = errno;
    if (error) {
        *kept = 0;
        return fmt_output_failed(err, s->name, "cannot be written", error);
    }
    free(s->part);
    s->part = NULL;
    return S2_OK;
}

static void free_sink(struct fmt_sink *sink)
{
    struct sink_rle *s = (struct sink_rle *)sink;
    join_hasher(s);
    if (s->fd >= 0 && s->fd != STDOUT_FILENO) close(s->fd);
    if (s->part) unlink(s->part);
    free(s->part);
    fmt_text_free(&s->header);
    for (int i = 0; i < FMT_SINK_WORKERS; i++) {
        fmt_text_free(&s->strip[i].text);
        fmt_text_free(&s->strip[i].counts);
    }
    free(s);
}

/* ------------------------------------------------------------------ open */

static bool ends_with(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

static enum s2_status open_file(struct sink_rle *s, struct s2_err *err)
{
    const char *path = s->config->rle_path;
    struct stat st;
    if (strcmp(path, "-") == 0) {
        s->fd = STDOUT_FILENO;
        s->name = "standard output";
        return S2_OK;
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        s->fd = open(path, O_WRONLY | O_CLOEXEC);
        return s->fd >= 0 ? S2_OK : fmt_output_failed(err, path, "cannot be written", errno);
    }
    s->document = ends_with(path, ".json");
    if (!s->document && !ends_with(path, ".jsonl"))
        return s2_fail(err, S2_E_USAGE,
                       "%s: --rle writes .json (one document), .jsonl (a line a frame) or - (lines on standard output)",
                       path);
    enum s2_status status = fmt_output_check_file(path, s->config->overwrite, err);
    if (status) return status;
    s->part = fmt_output_part(path);
    if (!s->part) return s2_no_memory(err, "a path", strlen(path));
    s->fd = open(s->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return s->fd >= 0 ? S2_OK : fmt_output_failed(err, path, "cannot be written", errno);
}

enum s2_status fmt_sink_rle_open(struct fmt_sink **out, const struct fmt_outputs_config *c, struct s2_err *err)
{
    *out = NULL;
    struct sink_rle *s = calloc(1, sizeof *s);
    if (!s) return s2_no_memory(err, "the RLE writer", sizeof *s);
    s->sink = (struct fmt_sink){
        .name = "rle",
        .workers = fmt_sink_workers(),
        .in_order = true,
        .prepare = make_text,
        .write = write_frame,
        .finish = finish,
        .free = free_sink,
    };
    s->hash_at = -1;
    s->config = c;
    s->name = c->rle_path;
    s->fd = -1;
    enum s2_status status = open_file(s, err);
    if (!status && c->model_file) {
        int error = pthread_create(&s->hasher, NULL, hash_model, s);
        s->hashing = !error;
        if (error) status = s2_fail(err, S2_E_DEVICE, "no thread for hashing the model: %s", strerror(error));
    }
    if (status) {
        free_sink(&s->sink);
        return status;
    }
    *out = &s->sink;
    return S2_OK;
}

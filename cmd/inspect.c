/* inspect.c - what a model, video, folder of frames or prompts file holds, and what is wrong with it.
 *
 * A file's kind is recognised by its content. One list of named facts is printed as text or as JSON. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../engine/engine.h"
#include "../formats/formats.h"
#include "cmd.h"
#include "json.h"
#include "log.h"
#include "options.h"

enum kind { KIND_MODEL, KIND_VIDEO, KIND_FOLDER, KIND_PROMPTS };
static const char *const kind_names[] = {"model", "video", "folder", "prompts"};

struct inspect_options {
    bool json, verbose, allow_network;
};

/* Where facts go: text on stdout at once, or the JSON document. */
struct facts {
    bool as_json;
    struct cmd_json json;
    const char *path; /* text: of the file whose heading is still to be printed, before its first fact */
    enum kind kind;
};

static const char summary[] = "Usage: sam2track inspect [--json] [-v] FILE...\n"
                              "\n"
                              "Tells what a model (.pt, .safetensors), a video, a folder of frames or a prompts file "
                              "holds, and what is wrong\nwith it. FILE is recognised by its content.\n";
static const char notes[] = "Examples:\n"
                            "  sam2track inspect sam2.1_hiera_tiny.pt clip.mp4 prompts.json\n"
                            "  sam2track inspect --json clip.mp4 | jq '.[0].fps'\n"
                            "\n"
                            "Exit codes: 0 all is well, else that of the first file with a fault: 2 prompts, 3 model, "
                            "4 input,\n5 input broke off.\n";

/* ------------------------------------------------------------------ facts */

/* A fact as text comes next. */
static void heading(struct facts *f)
{
    if (f->path) printf("%s: %s\n", f->path, kind_names[f->kind]);
    f->path = NULL;
}

static void fact(struct facts *f, const char *key, const char *value)
{
    if (!f->as_json) heading(f);
    if (f->as_json)
        cmd_json_string(&f->json, key, value);
    else
        printf("  %-17s %s\n", key, value ? value : "unknown");
}

static void fact_integer(struct facts *f, const char *key, int64_t value)
{
    if (!f->as_json) heading(f);
    if (f->as_json)
        cmd_json_integer(&f->json, key, value);
    else
        printf("  %-17s %" PRId64 "\n", key, value);
}

/* Not finite or negative: not known. */
static void fact_number(struct facts *f, const char *key, double value)
{
    if (!f->as_json) heading(f);
    if (!(value >= 0)) value = NAN;
    if (f->as_json)
        cmd_json_number(&f->json, key, value, 9);
    else if (isfinite(value))
        printf("  %-17s %.9g\n", key, value);
    else
        printf("  %-17s unknown\n", key);
}

static void fact_bool(struct facts *f, const char *key, bool value)
{
    if (!f->as_json) heading(f);
    if (f->as_json)
        cmd_json_bool(&f->json, key, value);
    else
        printf("  %-17s %s\n", key, value ? "yes" : "no");
}

static void begin_file(struct facts *f, const char *path, enum kind kind)
{
    if (f->as_json) {
        cmd_json_object(&f->json, NULL);
        cmd_json_string(&f->json, "file", path);
        cmd_json_string(&f->json, "kind", kind_names[kind]);
    } else {
        f->path = path;
        f->kind = kind;
    }
}

static void end_file(struct facts *f, const struct s2_err *err)
{
    fflush(stdout);
    if (err->status) cmd_error("%s", err->text);
    if (!f->as_json) return;
    cmd_json_string(&f->json, "error", err->status ? err->text : NULL);
    cmd_json_end(&f->json);
}

/* ------------------------------------------------------------------ models */

/* The types of the tensors with their numbers, the name alone if there is one type: "float32 300, int64 2". */
static void dtypes_of(const struct s2_source *source, char *text, size_t size)
{
    size_t count[S2_BOOL + 1] = {0}, used = 0;
    struct s2_stored t;
    for (size_t i = 0; i < source->count; i++) {
        if (source->at(source->ctx, i, &t)) count[t.dtype]++;
    }
    text[0] = 0;
    for (int d = 0; d <= S2_BOOL && used < size; d++) {
        if (count[d] == source->count)
            used += (size_t)snprintf(text + used, size - used, "%s", s2_dtype_name((enum s2_dtype)d));
        else if (count[d] > 0)
            used += (size_t)snprintf(text + used, size - used, "%s%s %zu", used ? ", " : "",
                                     s2_dtype_name((enum s2_dtype)d), count[d]);
    }
}

static enum s2_status inspect_model(struct facts *f, const char *path, const struct inspect_options *o,
                                    struct s2_err *err)
{
    struct fmt_checkpoint *checkpoint;
    enum s2_status status = fmt_checkpoint_open(&checkpoint, path, err);
    if (status) return status;
    const struct s2_source *source = fmt_checkpoint_source(checkpoint);
    struct s2_model_info info;
    char dtypes[160], hash[65];
    status = s2_model_identify(source, &info, err);
    if (!status) {
        fact(f, "name", info.name);
        fact(f, "family", info.family == S2_FAMILY_SAM2_1 ? "SAM 2.1" : "SAM 2");
        fact(f, "variant", info.size);
        fact_integer(f, "size", info.native_size);
        fact_integer(f, "parameters", info.parameters);
        fact_integer(f, "blocks", info.blocks);
        fact_integer(f, "embed_dim", info.embed_dim);
        fact_integer(f, "memory_layers", info.memory_layers);
    }
    dtypes_of(source, dtypes, sizeof dtypes);
    fact(f, "container", fmt_checkpoint_container(checkpoint));
    fact_integer(f, "tensors", (int64_t)source->count);
    fact(f, "dtype", dtypes);
    if (o->verbose && !fmt_checkpoint_sha256(path, hash, err)) fact(f, "sha256", hash);
    fmt_checkpoint_close(checkpoint);
    return err->status;
}

/* ------------------------------------------------------------------ video */

/* Decodes every frame. */
static enum s2_status count_frames(struct facts *f, struct fmt_video *video, struct s2_err *err)
{
    const struct fmt_video_info *v = fmt_video_get_info(video);
    struct fmt_frame frame = {.image = {.width = v->width, .height = v->height, .stride = 3 * (size_t)v->width}};
    const size_t bytes = frame.image.stride * (size_t)v->height;
    if (!(frame.image.rgb = malloc(bytes))) return s2_no_memory(err, "a frame", bytes);
    bool got = true;
    double last = 0;
    while (got && !fmt_video_next(video, &frame, &got, err)) last = frame.time;
    fact_integer(f, "frames_decoded", fmt_video_decoded(video));
    fact_number(f, "last_frame_time", last);
    free(frame.image.rgb);
    return err->status;
}

static enum s2_status inspect_video(struct facts *f, const char *path, const struct inspect_options *o,
                                    struct s2_err *err)
{
    struct fmt_video *video;
    const struct fmt_video_options options = {.allow_network = o->allow_network, .end = -1, .stride = 1};
    const enum s2_status status = fmt_video_open(&video, path, &options, err);
    if (status) return status;
    const struct fmt_video_info *v = fmt_video_get_info(video);
    char time_base[32];
    snprintf(time_base, sizeof time_base, "%d/%d", v->time_base_num, v->time_base_den);
    fact_integer(f, "width", v->width);
    fact_integer(f, "height", v->height);
    fact_integer(f, "rotation", v->rotation);
    fact_number(f, "fps", v->fps > 0 ? v->fps : NAN);
    if (v->frames_hint >= 0)
        fact_integer(f, "frames", v->frames_hint);
    else
        fact_number(f, "frames", NAN);
    fact_number(f, "duration", v->duration);
    fact(f, "time_base", time_base);
    fact_bool(f, "stills", v->is_stills);
    fact_bool(f, "audio", v->has_audio);
    fact(f, "container", v->container);
    fact(f, "codec", v->codec);
    fact(f, "pixel_format", v->pixel_format);
    fact(f, "color_space", v->color_space);
    fact(f, "color_range", v->color_range);
    if (o->verbose) count_frames(f, video, err);
    fmt_video_close(video);
    return err->status;
}

/* ------------------------------------------------------------------ prompts */

static void objects(struct facts *f, const struct fmt_prompts *p)
{
    if (f->as_json)
        cmd_json_array(&f->json, "objects");
    else
        heading(f);
    for (size_t i = 0; i < p->n_objects; i++) {
        const struct fmt_object *o = &p->objects[i];
        size_t n = 0;
        for (size_t k = 0; k < p->n_prompts; k++) n += (size_t)p->prompts[k].object == i;
        if (f->as_json) {
            cmd_json_object(&f->json, NULL);
            cmd_json_integer(&f->json, "id", o->id);
            if (o->label) cmd_json_string(&f->json, "label", o->label);
            cmd_json_integer(&f->json, "prompts", (int64_t)n);
            cmd_json_end(&f->json);
        } else {
            printf("  %-17s %d%s%s, %zu prompt%s\n", "object", o->id, o->label ? " " : "", o->label ? o->label : "", n,
                   n == 1 ? "" : "s");
        }
    }
    if (f->as_json) cmd_json_end(&f->json);
}

static enum s2_status inspect_prompts(struct facts *f, const char *path, struct s2_err *err)
{
    struct fmt_prompts p = {0};
    const enum s2_status status = fmt_prompts_read(&p, path, err);
    if (status) return status;
    int64_t first = INT64_MAX, last = -1, kinds[3] = {0}, by_time = 0;
    for (size_t i = 0; i < p.n_prompts; i++) {
        const struct fmt_prompt *q = &p.prompts[i];
        kinds[q->kind]++;
        by_time += q->by_time;
        if (q->by_time) continue;
        if (q->frame < first) first = q->frame;
        if (q->frame > last) last = q->frame;
    }
    fact(f, "units", p.normalized ? "normalized" : "pixels");
    objects(f, &p);
    fact_integer(f, "prompts", (int64_t)p.n_prompts);
    fact_integer(f, "by_points_or_box", kinds[S2_PROMPT_POINTS]);
    fact_integer(f, "by_mask", kinds[S2_PROMPT_MASK]);
    fact_integer(f, "stops", kinds[S2_PROMPT_STOP]);
    if (by_time > 0) fact_integer(f, "by_time", by_time);
    if (last >= 0) {
        fact_integer(f, "first_frame", first);
        fact_integer(f, "last_frame", last);
    }
    fmt_prompts_free(&p);
    return S2_OK;
}

/* ------------------------------------------------------------------ the verb */

static bool ends_with(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

/* By the first bytes; the name decides only where there is nothing to read, or nothing to recognise. */
static enum kind kind_of(const char *path)
{
    const enum kind by_name = ends_with(path, ".pt") || ends_with(path, ".pth") || ends_with(path, ".safetensors")
                                  ? KIND_MODEL
                              : ends_with(path, ".json") ? KIND_PROMPTS
                                                         : KIND_VIDEO;
    struct stat s;
    if (strcmp(path, "-") == 0 || stat(path, &s)) return by_name;
    if (S_ISDIR(s.st_mode)) return KIND_FOLDER;
    unsigned char head[64] = {0};
    FILE *f = fopen(path, "rbe");
    if (!f) return by_name;
    const size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    uint64_t header_size; // of .safetensors, little-endian, then a JSON object
    memcpy(&header_size, head, sizeof header_size);
    if (n > 8 && (memcmp(head, "PK\3\4", 4) == 0 || (head[8] == '{' && header_size < 1 << 28))) return KIND_MODEL;
    size_t i = n >= 3 && memcmp(head, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (i < n && strchr(" \t\r\n", head[i]) && head[i]) i++;
    return i < n && (head[i] == '{' || head[i] == '[') ? KIND_PROMPTS : by_name;
}

static enum s2_status inspect_file(struct facts *f, const char *path, const struct inspect_options *o)
{
    struct s2_err err = {0};
    const enum kind kind = kind_of(path);
    begin_file(f, path, kind);
    switch (kind) {
    case KIND_MODEL: inspect_model(f, path, o, &err); break;
    case KIND_VIDEO:
    case KIND_FOLDER: inspect_video(f, path, o, &err); break;
    case KIND_PROMPTS: inspect_prompts(f, path, &err); break;
    }
    end_file(f, &err);
    return err.status;
}

static enum s2_status inspect_files(const struct inspect_options *o, int n, char **paths)
{
    struct facts f = {.as_json = o->json};
    enum s2_status first = S2_OK;
    if (o->json) cmd_json_array(&f.json, NULL);
    for (int i = 0; i < n; i++) {
        const enum s2_status status = inspect_file(&f, paths[i], o);
        if (!first) first = status;
    }
    if (o->json) {
        cmd_json_end(&f.json);
        if (!cmd_json_print(&f.json, stdout) && !first) {
            cmd_error("the findings cannot be written to stdout: %s", strerror(errno));
            first = S2_E_OUTPUT;
        }
    }
    cmd_json_free(&f.json);
    return first;
}

int cmd_inspect(int argc, char **argv)
{
    struct inspect_options o = {0};
    const struct cmd_option rows[] = {
        {CMD_GROUP, .help = "Options"},
        {CMD_FLAG, 0, "json", NULL, "one JSON array on stdout, an object a file", .value = &o.json},
        {CMD_FLAG, 'v', "verbose", NULL, "also decode every frame, and the SHA-256 of a model", .value = &o.verbose},
        {CMD_FLAG, 0, "allow-network", NULL, "FILE may be a URL", .value = &o.allow_network},
    };
    const struct cmd_command command = {"inspect", summary, notes, rows, sizeof rows / sizeof *rows};
    struct s2_err err = {0};
    int n;
    bool help;
    enum s2_status status = cmd_options_parse(&command, argc, argv, &n, &help, &err);
    if (!status && help) {
        cmd_options_help(&command, stdout);
        return 0;
    }
    if (!status && n == 0) status = s2_fail(&err, S2_E_USAGE, "no FILE given; 'sam2track inspect --help' shows how");
    if (status) {
        cmd_error("%s", err.text);
        return status;
    }
    cmd_log_start(o.verbose ? CMD_VERBOSE : CMD_NORMAL);
    return inspect_files(&o, n, argv);
}

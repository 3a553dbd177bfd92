/* prompts_json.c - the prompts file: JSON to a checked set of prompts. */
#include "json.h"
#include "prompts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

struct reader {
    struct fmt_prompts *out;
    const char *folder;          /* masks are relative to it; NULL: to the working directory */
    int32_t *position;           /* [FMT_MAX_ID + 1]: 1 + position of the object of that id, 0: not seen yet */
    int mask_width, mask_height; /* of the run lengths so far; all belong to one video */
    struct fmt_json_path mask_path;
    size_t mask_bytes;
    struct s2_err *err;
};

#define FAIL(r, at, ...) fmt_json_fail((r)->err, (r)->out->path, at, __VA_ARGS__)

static enum s2_status expect_array(struct reader *r, const cJSON *v, const struct fmt_json_path *path, const char *what)
{
    if (!cJSON_IsArray(v)) return FAIL(r, path, "expected %s, found %s", what, fmt_json_found(v).text);
    return S2_OK;
}

static enum s2_status read_integer(struct reader *r, const cJSON *v, const struct fmt_json_path *path, int64_t least,
                                   int64_t most, int64_t *out)
{
    return fmt_json_integer(v, r->out->path, path, least, most, out, r->err);
}

/* n numbers to float; one beyond float's range becomes infinite, which the coordinate checks refuse. */
static enum s2_status read_floats(struct reader *r, const cJSON *v, const struct fmt_json_path *path, const char *form,
                                  int n, float *out)
{
    enum s2_status status = expect_array(r, v, path, form);
    if (status) return status;
    if (cJSON_GetArraySize(v) != n)
        return FAIL(r, path, "expected %s, found an array of %d", form, cJSON_GetArraySize(v));
    int i = 0;
    const cJSON *e;
    cJSON_ArrayForEach(e, v)
    {
        struct fmt_json_path at = fmt_json_index(path, i);
        double d;
        status = fmt_json_number(e, r->out->path, &at, &d, r->err);
        if (status) return status;
        out[i++] = (float)d;
    }
    return S2_OK;
}

/* ------------------------------------------------------------------ parts of a prompt */

static enum s2_status read_points(struct reader *r, const cJSON *v, const struct fmt_json_path *path,
                                  struct fmt_prompt *q)
{
    enum s2_status status = expect_array(r, v, path, "an array of [x, y]");
    if (status) return status;
    if (!v->child) return FAIL(r, path, "is empty; give at least one [x, y] or leave it out");
    int n = cJSON_GetArraySize(v);
    status = fmt_prompt_reserve_points(r->err, r->out, q, n);
    if (status) return status;
    const cJSON *e;
    cJSON_ArrayForEach(e, v)
    {
        struct fmt_json_path at = fmt_json_index(path, q->n_points);
        status = read_floats(r, e, &at, "[x, y]", 2, q->xy + 2 * q->n_points);
        if (!status) status = fmt_prompt_check_point(r->err, r->out, q, q->n_points);
        if (status) return status;
        q->labels[q->n_points++] = 1;
    }
    return S2_OK;
}

static enum s2_status read_labels(struct reader *r, const cJSON *v, const struct fmt_json_path *path,
                                  struct fmt_prompt *q)
{
    enum s2_status status = expect_array(r, v, path, "an array of 0 and 1");
    if (status) return status;
    if (!q->n_points) return FAIL(r, path, "labels without points");
    if (cJSON_GetArraySize(v) != q->n_points)
        return FAIL(r, path, "%d label%s for %d point%s", cJSON_GetArraySize(v), s2_plural(cJSON_GetArraySize(v)),
                    q->n_points, s2_plural(q->n_points));
    int i = 0;
    const cJSON *e;
    cJSON_ArrayForEach(e, v)
    {
        struct fmt_json_path at = fmt_json_index(path, i);
        if (!cJSON_IsNumber(e) || (e->valuedouble != 0 && e->valuedouble != 1))
            return FAIL(r, &at, "expected 1 (inside) or 0 (outside), found %s", fmt_json_found(e).text);
        q->labels[i++] = e->valuedouble == 1;
    }
    return S2_OK;
}

static enum s2_status read_box(struct reader *r, const cJSON *v, const struct fmt_json_path *path, struct fmt_prompt *q)
{
    enum s2_status status = read_floats(r, v, path, "[x0, y0, x1, y1]", 4, q->box);
    if (status) return status;
    q->has_box = true;
    return fmt_prompt_check_box(r->err, r->out, q);
}

static enum s2_status read_mask_file(struct reader *r, const cJSON *v, const struct fmt_json_path *path,
                                     struct fmt_prompt *q)
{
    const char *name = v->valuestring, *folder = r->folder;
    if (!*name) return FAIL(r, path, "is empty; expected the path of a mask");
    bool as_is = *name == '/' || !folder || !*folder;
    const char *slash = as_is || folder[strlen(folder) - 1] == '/' ? "" : "/";
    size_t size = strlen(name) + (as_is ? 0 : strlen(folder)) + 2;
    q->mask_path = malloc(size);
    if (!q->mask_path) return s2_no_memory(r->err, "a path", size);
    snprintf(q->mask_path, size, "%s%s%s", as_is ? "" : folder, slash, name);
    return fmt_prompt_check_file(r->err, r->out, q);
}

/* [height, width], the same for all masks. */
static enum s2_status read_mask_size(struct reader *r, const cJSON *v, const struct fmt_json_path *path,
                                     struct s2_bits *mask)
{
    if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) != 2)
        return FAIL(r, path, "expected [height, width], found %s", fmt_json_found(v).text);
    int64_t side[2];
    for (int i = 0; i < 2; i++) {
        struct fmt_json_path at = fmt_json_index(path, i);
        enum s2_status status = read_integer(r, i ? v->child->next : v->child, &at, 1, FMT_MAX_MASK_SIDE, &side[i]);
        if (status) return status;
    }
    int height = (int)side[0], width = (int)side[1];
    if (r->mask_width && (width != r->mask_width || height != r->mask_height))
        return FAIL(r, path, "[%d, %d] is not the size of %s, [%d, %d]; masks have the size of the video", height,
                    width, r->mask_path.text, r->mask_height, r->mask_width);
    r->mask_width = width;
    r->mask_height = height;
    r->mask_path = *path;
    *mask = (struct s2_bits){.width = width, .height = height, .stride = ((size_t)width + 7) / 8};
    return S2_OK;
}

static enum s2_status read_run_list(struct reader *r, const cJSON *v, const struct fmt_json_path *path,
                                    struct s2_bits *mask)
{
    enum s2_status status = S2_OK;
    size_t n = 0, size = (size_t)cJSON_GetArraySize(v);
    int64_t *runs = malloc((size + 1) * sizeof *runs);
    if (!runs) return s2_no_memory(r->err, "run lengths", size * sizeof *runs);
    const cJSON *e;
    cJSON_ArrayForEach(e, v)
    {
        struct fmt_json_path at = fmt_json_index(path, (int)n);
        status = read_integer(r, e, &at, 0, INT32_MAX, &runs[n++]);
        if (status) goto done;
    }
    struct s2_err why = {0};
    if (!fmt_rle_decode_runs(runs, n, mask, &why)) status = FAIL(r, path, "%s", why.text);
done:
    free(runs);
    return status;
}

static enum s2_status read_mask_runs(struct reader *r, const cJSON *v, const struct fmt_json_path *path,
                                     struct fmt_prompt *q)
{
    static const char *const keys[] = {"size", "counts"};
    enum s2_status status = fmt_json_keys(v, r->out->path, path, keys, COUNT(keys), r->err);
    if (status) return status;
    const cJSON *size = fmt_json_get(v, "size"), *counts = fmt_json_get(v, "counts");
    if (!size || !counts) return FAIL(r, path, "run lengths need \"size\" and \"counts\"");
    struct fmt_json_path size_path = fmt_json_key(path, "size"), counts_path = fmt_json_key(path, "counts");
    status = read_mask_size(r, size, &size_path, &q->mask);
    if (status) return status;
    if (!cJSON_IsString(counts) && !cJSON_IsArray(counts))
        return FAIL(r, &counts_path, "expected a string or an array of run lengths, found %s",
                    fmt_json_found(counts).text);

    size_t bytes = q->mask.stride * (size_t)q->mask.height;
    r->mask_bytes += bytes;
    if (r->mask_bytes >> 20 >= FMT_MAX_MASK_MIB)
        return FAIL(r, path, "the masks up to here need more than %d MiB", FMT_MAX_MASK_MIB);
    q->mask.data = calloc(bytes, 1);
    if (!q->mask.data) return s2_no_memory(r->err, "a mask", bytes);
    if (cJSON_IsArray(counts)) return read_run_list(r, counts, &counts_path, &q->mask);
    struct s2_err why = {0};
    const char *text = counts->valuestring;
    if (!fmt_rle_decode(text, strlen(text), &q->mask, &why)) return FAIL(r, &counts_path, "%s", why.text);
    return S2_OK;
}

static enum s2_status read_mask(struct reader *r, const cJSON *mask, const cJSON *value,
                                const struct fmt_json_path *path, struct fmt_prompt *q)
{
    struct fmt_json_path mask_path = fmt_json_key(path, "mask"), value_path = fmt_json_key(path, "value");
    q->kind = S2_PROMPT_MASK;
    if (value) {
        int64_t id;
        if (!cJSON_IsString(mask)) return FAIL(r, &value_path, "picks an id out of a mask file only");
        enum s2_status status = read_integer(r, value, &value_path, 0, FMT_MAX_ID, &id);
        if (status) return status;
        q->mask_value = (int)id;
    }
    if (cJSON_IsString(mask)) return read_mask_file(r, mask, &mask_path, q);
    if (cJSON_IsObject(mask)) return read_mask_runs(r, mask, &mask_path, q);
    return FAIL(r, &mask_path, "expected a path or {\"size\", \"counts\"}, found %s", fmt_json_found(mask).text);
}

/* ------------------------------------------------------------------ prompts */

static enum s2_status read_object_id(struct reader *r, const cJSON *v, const struct fmt_json_path *path, int *position)
{
    int64_t id;
    enum s2_status status = read_integer(r, v, path, 1, FMT_MAX_ID, &id);
    if (status) return status;
    if (!r->position[id]) r->position[id] = 1 + fmt_prompts_add_object(r->out, (int)id);
    if (!r->position[id]) return s2_no_memory(r->err, "the objects", sizeof(struct fmt_object));
    *position = r->position[id] - 1;
    return S2_OK;
}

static enum s2_status read_moment(struct reader *r, const cJSON *v, const struct fmt_json_path *path,
                                  struct fmt_prompt *q)
{
    const cJSON *frame = fmt_json_get(v, "frame"), *time = fmt_json_get(v, "time");
    if (!frame && !time) return FAIL(r, path, "neither \"frame\" nor \"time\" is given");
    if (frame && time) return FAIL(r, path, "both \"frame\" and \"time\" are given; keep one of them");
    struct fmt_json_path at = fmt_json_key(path, frame ? "frame" : "time");
    if (frame) return read_integer(r, frame, &at, 0, FMT_MAX_FRAME, &q->frame);
    q->by_time = true;
    enum s2_status status = fmt_json_number(time, r->out->path, &at, &q->time, r->err);
    if (status) return status;
    if (q->time < 0) return FAIL(r, &at, "%.10g is negative; the first frame is at 0", q->time);
    if (q->time > FMT_MAX_FRAME) return FAIL(r, &at, "%.10g is more than %d seconds", q->time, FMT_MAX_FRAME);
    return S2_OK;
}

/* Everything but the moment and the object. */
static enum s2_status read_kind(struct reader *r, const cJSON *v, const struct fmt_json_path *path,
                                struct fmt_prompt *q)
{
    const cJSON *points = fmt_json_get(v, "points"), *labels = fmt_json_get(v, "labels"), *box = fmt_json_get(v, "box");
    const cJSON *mask = fmt_json_get(v, "mask"), *value = fmt_json_get(v, "value"), *stop = fmt_json_get(v, "stop");
    enum s2_status status = S2_OK;
    if (stop) {
        struct fmt_json_path at = fmt_json_key(path, "stop");
        const cJSON *other = points ? points : labels ? labels : box ? box : mask ? mask : value;
        if (other) return FAIL(r, path, "\"stop\" stands alone; remove \"%s\"", other->string);
        if (!cJSON_IsTrue(stop)) return FAIL(r, &at, "expected true, found %s", fmt_json_found(stop).text);
        q->kind = S2_PROMPT_STOP;
        return S2_OK;
    }
    if (mask) {
        const cJSON *other = points ? points : labels ? labels : box;
        if (other) return FAIL(r, path, "a mask stands alone; remove \"%s\"", other->string);
        return read_mask(r, mask, value, path, q);
    }
    if (value) return FAIL(r, path, "\"value\" without \"mask\"");
    if (!points && !box && !labels)
        return FAIL(r, path, "is no prompt; give \"points\", \"box\", \"mask\" or \"stop\"");
    q->kind = S2_PROMPT_POINTS;
    struct fmt_json_path at;
    if (points && (at = fmt_json_key(path, "points"), status = read_points(r, points, &at, q))) return status;
    if (labels && (at = fmt_json_key(path, "labels"), status = read_labels(r, labels, &at, q))) return status;
    if (box && (at = fmt_json_key(path, "box"), status = read_box(r, box, &at, q))) return status;
    return S2_OK;
}

static enum s2_status read_prompt(struct reader *r, const cJSON *v, const struct fmt_json_path *path)
{
    static const char *const keys[] = {"frame", "time", "object", "points", "labels", "box", "mask", "value", "stop"};
    if (!cJSON_IsObject(v)) return FAIL(r, path, "expected an object, found %s", fmt_json_found(v).text);
    enum s2_status status = fmt_json_keys(v, r->out->path, path, keys, COUNT(keys), r->err);
    if (status) return status;
    struct fmt_prompt *q = fmt_prompts_add(r->out);
    if (!q) return s2_no_memory(r->err, "the prompts", r->out->n_prompts * 2 * sizeof *q);
    snprintf(q->where, sizeof q->where, "%.60s", path->text);
    status = read_moment(r, v, path, q);
    if (status) return status;

    const cJSON *object = fmt_json_get(v, "object");
    if (!object) return FAIL(r, path, "\"object\" is missing");
    struct fmt_json_path at = fmt_json_key(path, "object");
    status = read_object_id(r, object, &at, &q->object);
    return status ? status : read_kind(r, v, path, q);
}

/* ------------------------------------------------------------------ the file */

static enum s2_status read_object(struct reader *r, const cJSON *v, const struct fmt_json_path *path)
{
    static const char *const keys[] = {"id", "label"};
    if (!cJSON_IsObject(v)) return FAIL(r, path, "expected {\"id\", \"label\"}, found %s", fmt_json_found(v).text);
    enum s2_status status = fmt_json_keys(v, r->out->path, path, keys, COUNT(keys), r->err);
    if (status) return status;
    const cJSON *id = fmt_json_get(v, "id"), *label = fmt_json_get(v, "label");
    if (!id) return FAIL(r, path, "\"id\" is missing");
    struct fmt_json_path at = fmt_json_key(path, "id");
    size_t before = r->out->n_objects;
    int position;
    status = read_object_id(r, id, &at, &position);
    if (status) return status;
    if (r->out->n_objects == before)
        return FAIL(r, &at, "%d is the id of objects[%d] already", r->out->objects[position].id, position);
    if (!label) return S2_OK;
    at = fmt_json_key(path, "label");
    if (!cJSON_IsString(label)) return FAIL(r, &at, "expected a string, found %s", fmt_json_found(label).text);
    r->out->objects[position].label = strdup(label->valuestring);
    if (!r->out->objects[position].label) return s2_no_memory(r->err, "a label", strlen(label->valuestring));
    return S2_OK;
}

static enum s2_status read_units(struct reader *r, const cJSON *v)
{
    struct fmt_json_path at = fmt_json_key(NULL, "units");
    const char *s = cJSON_IsString(v) ? v->valuestring : "";
    r->out->normalized = !strcmp(s, "normalized");
    if (!r->out->normalized && strcmp(s, "pixels"))
        return FAIL(r, &at, "expected \"pixels\" or \"normalized\", found %s", fmt_json_found(v).text);
    return S2_OK;
}

/* Each element of the array, with its path. */
static enum s2_status read_all(struct reader *r, const cJSON *array, const char *key,
                               enum s2_status (*read)(struct reader *, const cJSON *, const struct fmt_json_path *))
{
    struct fmt_json_path at = fmt_json_key(NULL, key);
    enum s2_status status = expect_array(r, array, &at, "an array");
    int i = 0;
    for (const cJSON *e = status ? NULL : array->child; e && !status; e = e->next) {
        struct fmt_json_path element = fmt_json_index(&at, i++);
        status = read(r, e, &element);
    }
    return status;
}

static enum s2_status read_root(struct reader *r, const cJSON *root)
{
    static const char *const keys[] = {"units", "objects", "prompts"};
    if (!cJSON_IsObject(root))
        return FAIL(r, NULL, "expected an object with \"prompts\", found %s", fmt_json_found(root).text);
    enum s2_status status = fmt_json_keys(root, r->out->path, NULL, keys, COUNT(keys), r->err);
    if (status) return status;
    const cJSON *units = fmt_json_get(root, "units"), *objects = fmt_json_get(root, "objects");
    const cJSON *prompts = fmt_json_get(root, "prompts");
    if (!prompts) return FAIL(r, NULL, "\"prompts\" is missing");
    if (units && (status = read_units(r, units))) return status;
    if (objects && (status = read_all(r, objects, "objects", read_object))) return status;
    status = read_all(r, prompts, "prompts", read_prompt);
    if (status) return status;
    struct fmt_json_path at = fmt_json_key(NULL, "prompts");
    if (!r->out->n_prompts) return FAIL(r, &at, "is empty; give at least one prompt");
    return fmt_prompts_check_together(r->err, r->out);
}

static void warn_unprompted(struct reader *r)
{
    for (size_t i = 0; i < r->out->n_prompts; i++) r->position[r->out->objects[r->out->prompts[i].object].id] = 0;
    for (size_t i = 0; i < r->out->n_objects; i++)
        if (r->position[r->out->objects[i].id])
            s2_log(S2_LOG_WARN, "%s: objects[%zu]: object %d is listed but never prompted", r->out->path, i,
                   r->out->objects[i].id);
}

enum s2_status fmt_prompts_parse(struct fmt_prompts *out, const char *name, const char *json, size_t size,
                                 const char *folder, struct s2_err *err)
{
    *out = (struct fmt_prompts){.path = strdup(name)};
    struct reader r = {.out = out, .folder = folder, .err = err};
    r.position = calloc(FMT_MAX_ID + 1, sizeof *r.position);
    cJSON *root = NULL;
    enum s2_status status = S2_OK;
    if (!out->path || !r.position) status = s2_no_memory(err, "the objects", (FMT_MAX_ID + 1) * sizeof *r.position);
    if (!status) status = fmt_json_parse(&root, name, json, size, err);
    if (!status) status = read_root(&r, root);
    if (!status) warn_unprompted(&r);
    cJSON_Delete(root);
    free(r.position);
    if (status) fmt_prompts_free(out);
    return status;
}

/* The whole stream, at most one byte more than JSON may have. */
static enum s2_status read_stream(FILE *f, const char *name, char **text, size_t *size, struct s2_err *err)
{
    size_t capacity = 0;
    *text = NULL;
    *size = 0;
    do {
        capacity = capacity ? 2 * capacity : 1 << 16;
        char *more = realloc(*text, capacity);
        if (!more) return s2_no_memory(err, "the prompts file", capacity);
        *text = more;
        *size += fread(*text + *size, 1, capacity - *size, f);
    } while (*size == capacity && *size <= FMT_JSON_MAX_BYTES);
    if (ferror(f)) return s2_fail(err, S2_E_USAGE, "%s: cannot be read: %s", name, strerror(errno));
    return S2_OK;
}

enum s2_status fmt_prompts_read(struct fmt_prompts *out, const char *path, struct s2_err *err)
{
    *out = (struct fmt_prompts){0};
    bool is_stdin = !strcmp(path, "-");
    const char *slash = strrchr(path, '/');
    char *folder = is_stdin || !slash ? NULL : strndup(path, (size_t)(slash + 1 - path)), *text = NULL;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    size_t size = 0;
    enum s2_status status;
    if (!f)
        status = s2_fail(err, S2_E_USAGE, "%s: cannot be opened: %s", path, strerror(errno));
    else if (!is_stdin && slash && !folder)
        status = s2_no_memory(err, "a path", strlen(path));
    else
        status = read_stream(f, is_stdin ? "<stdin>" : path, &text, &size, err);
    if (!status) status = fmt_prompts_parse(out, is_stdin ? "<stdin>" : path, text, size, folder, err);
    if (f && !is_stdin) fclose(f);
    free(folder);
    free(text);
    return status;
}

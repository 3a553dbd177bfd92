/* safetensors.c - a length, a JSON header that says where each tensor lies, and the tensors. */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "checkpoint.h"
#include "json.h"

#define MAX_HEADER  (100u << 20) /* the format's own limit */
#define LENGTH_SIZE 8

struct file {
    const char *path;
    const uint8_t *data; /* the tensors' part */
    size_t size;
    struct s2_err *err;
};

struct range {
    size_t begin, end;
    size_t tensor; /* position in the list */
};

static const struct {
    const char *name;
    enum s2_dtype dtype;
} dtypes[] = {
    {"F64", S2_F64}, {"F32", S2_F32}, {"F16", S2_F16}, {"BF16", S2_BF16}, {"I64", S2_I64},
    {"I32", S2_I32}, {"I16", S2_I16}, {"I8", S2_I8},   {"U8", S2_U8},     {"BOOL", S2_BOOL},
};

static enum s2_status damaged(const struct file *f, const char *name, const char *what)
{
    return s2_fail(f->err, S2_E_MODEL, "%s: tensor \"%.80s\" %s; the file is damaged", f->path, name, what);
}

/* A whole number from 0 on that a size can hold; JSON's numbers are doubles, exact up to 2^53. */
static bool whole(const cJSON *n, size_t *out)
{
    if (!cJSON_IsNumber(n) || !(n->valuedouble >= 0) || n->valuedouble > 9007199254740992.0) return false;
    *out = (size_t)n->valuedouble;
    return (double)*out == n->valuedouble;
}

static enum s2_status read_dtype(const struct file *f, const cJSON *entry, struct s2_stored *t)
{
    const char *text = cJSON_GetStringValue(fmt_json_get(entry, "dtype"));
    if (!text) return damaged(f, entry->string, "has no dtype");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, text)) continue;
        t->dtype = dtypes[i].dtype;
        return S2_OK;
    }
    return s2_fail(
        f->err, S2_E_MODEL,
        "%s: tensor \"%.80s\" has elements of type %.20s, which is not supported; save it as float32, float16 or "
        "bfloat16",
        f->path, entry->string, text);
}

static enum s2_status read_shape(const struct file *f, const cJSON *entry, struct s2_stored *t)
{
    const cJSON *shape = fmt_json_get(entry, "shape"), *n;
    if (!cJSON_IsArray(shape)) return damaged(f, entry->string, "has no shape");
    cJSON_ArrayForEach(n, shape)
    {
        size_t dim;
        if (t->ndim == S2_MAX_DIMS) return damaged(f, entry->string, "has more than 8 dimensions");
        if (!whole(n, &dim)) return damaged(f, entry->string, "has a negative or odd shape");
        t->dim[t->ndim++] = (int64_t)dim;
    }
    if (!fmt_shape_elements(t->dim, t->ndim, t->dtype, &t->elements))
        return damaged(f, entry->string, "has a shape that is larger than memory");
    return S2_OK;
}

static enum s2_status read_range(const struct file *f, const cJSON *entry, struct s2_stored *t, struct range *r)
{
    const cJSON *offsets = fmt_json_get(entry, "data_offsets");
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !whole(offsets->child, &r->begin) ||
        !whole(offsets->child->next, &r->end) || r->begin > r->end)
        return damaged(f, entry->string, "has no valid data_offsets");
    if (r->end > f->size)
        return s2_fail(
            f->err, S2_E_MODEL,
            "%s: the file ends in the middle of tensor \"%.80s\": the download or copy is incomplete; fetch it again",
            f->path, entry->string);
    if (r->end - r->begin != t->elements * s2_dtype_size(t->dtype))
        return damaged(f, entry->string, "has a shape that does not fit its data_offsets");
    t->data = f->data + r->begin;
    return S2_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin > y->begin ? 1 : -1;
    return (x->end > y->end) - (x->end < y->end); /* an empty tensor may begin where another one does */
}

/* Gaps between tensors are harmless: some writers align. */
static enum s2_status check_overlaps(const struct file *f, const struct fmt_tensors *t, struct range *range)
{
    qsort(range, t->count, sizeof *range, by_begin);
    for (size_t i = 1; i < t->count; i++)
        if (range[i].begin < range[i - 1].end) return damaged(f, t->at[range[i].tensor].name, "overlaps another one");
    return S2_OK;
}

static enum s2_status read_entries(const struct file *f, struct fmt_tensors *out, const cJSON *header,
                                   struct range *range)
{
    const cJSON *entry;
    enum s2_status status;
    cJSON_ArrayForEach(entry, header)
    {
        struct s2_stored t = {0};
        struct range *r = &range[out->count];
        if (!strcmp(entry->string, "__metadata__")) continue;
        if (!cJSON_IsObject(entry)) return damaged(f, entry->string, "is not described by an object");
        if ((status = read_dtype(f, entry, &t)) || (status = read_shape(f, entry, &t)) ||
            (status = read_range(f, entry, &t, r)))
            return status;
        r->tensor = out->count;
        if ((status = fmt_tensors_add(out, &t, entry->string, strlen(entry->string), f->err))) return status;
    }
    return check_overlaps(f, out, range);
}

static enum s2_status read_header(const struct file *f, struct fmt_tensors *out, const char *text, size_t size)
{
    cJSON *header = NULL;
    struct s2_err json_err = {0};
    struct range *range = NULL;
    enum s2_status status = fmt_json_parse(&header, f->path, text, size, &json_err);
    if (status == S2_E_DEVICE) return s2_fail(f->err, status, "%s", json_err.text);
    if (!status && !cJSON_IsObject(header))
        status = s2_fail(&json_err, S2_E_MODEL, "%s: it is no JSON object", f->path);
    if (status) {
        status = s2_fail(f->err, S2_E_MODEL, "%.800s; the safetensors header is damaged, fetch or save the file again",
                         json_err.text);
        goto done;
    }
    size_t bytes = ((size_t)cJSON_GetArraySize(header) + 1) * sizeof *range;
    range = malloc(bytes);
    status =
        range ? read_entries(f, out, header, range) : s2_no_memory(f->err, "the places of a file's tensors", bytes);
    if (!status && !out->count) status = s2_fail(f->err, S2_E_MODEL, "%s: this holds no tensors", f->path);
done:
    free(range);
    cJSON_Delete(header);
    return status;
}

bool fmt_safetensors_begins(const uint8_t *data, size_t size)
{
    return size > LENGTH_SIZE && data[LENGTH_SIZE] == '{' && fmt_le64(data) <= MAX_HEADER;
}

enum s2_status fmt_safetensors_read(struct fmt_tensors *out, const uint8_t *data, size_t size, struct s2_err *err)
{
    uint64_t header = size >= LENGTH_SIZE ? fmt_le64(data) : UINT64_MAX;
    if (header > MAX_HEADER)
        return s2_fail(err, S2_E_MODEL, "%s: its safetensors header is longer than the format allows", out->path);
    if (header > size - LENGTH_SIZE)
        return s2_fail(err, S2_E_MODEL,
                       "%s: the file ends inside its header: the download or copy is incomplete; fetch it again",
                       out->path);
    const uint8_t *tensors = data + LENGTH_SIZE + header;
    struct file f = {out->path, tensors, size - LENGTH_SIZE - (size_t)header, err};
    enum s2_status status = read_header(&f, out, (const char *)data + LENGTH_SIZE, (size_t)header);
    if (status) fmt_tensors_free(out);
    return status;
}

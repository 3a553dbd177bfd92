/* tensors.c - the list of a checkpoint's tensors, see checkpoint.h. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"

#define MAX_NAME 512

bool fmt_shape_elements(const int64_t *dim, int ndim, enum s2_dtype dtype, size_t *elements)
{
    size_t bytes;
    *elements = 1;
    for (int i = 0; i < ndim; i++)
        if (dim[i] < 0 || !s2_mul(*elements, (size_t)dim[i], elements)) return false;
    return s2_mul(*elements, s2_dtype_size(dtype), &bytes) && bytes <= PTRDIFF_MAX;
}

enum s2_status fmt_tensors_add(struct fmt_tensors *t, const struct s2_stored *tensor, const char *name,
                               size_t name_size, struct s2_err *err)
{
    bool shown = name_size > 0 && name_size <= MAX_NAME;
    for (size_t i = 0; shown && i < name_size; i++) shown = (unsigned char)name[i] >= ' ' && name[i] != 0x7f;
    if (!shown)
        return s2_fail(
            err, S2_E_MODEL,
            "%s: tensor %zu has an empty or overlong name or one with control characters; the file is damaged", t->path,
            t->count);
    if (t->count == t->capacity) {
        size_t larger = t->capacity ? t->capacity * 2 : 1024;
        struct s2_stored *moved = realloc(t->at, larger * sizeof *moved);
        if (!moved) return s2_no_memory(err, "a checkpoint's list of tensors", larger * sizeof *moved);
        t->at = moved;
        t->capacity = larger;
    }
    char *copy = strndup(name, name_size);
    if (!copy) return s2_no_memory(err, "a tensor's name", name_size);
    t->at[t->count] = *tensor;
    t->at[t->count++].name = copy;
    return S2_OK;
}

static bool strip_prefix(struct fmt_tensors *t, const char *prefix)
{
    size_t n = strlen(prefix);
    for (size_t i = 0; i < t->count; i++)
        if (strncmp(t->at[i].name, prefix, n) || !t->at[i].name[n]) return false;
    for (size_t i = 0; i < t->count; i++) {
        char *name = (char *)t->at[i].name;
        memmove(name, name + n, strlen(name + n) + 1);
    }
    return t->count > 0;
}

/* DistributedDataParallel adds "module.", torch.compile "_orig_mod.", in either order. */
void fmt_tensors_strip_prefixes(struct fmt_tensors *t)
{
    while (strip_prefix(t, "module.") || strip_prefix(t, "_orig_mod.")) {}
}

static int by_name(const void *a, const void *b)
{
    const struct s2_stored *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

enum s2_status fmt_tensors_index(struct fmt_tensors *t, struct s2_err *err)
{
    size_t bytes = (t->count + 1) * sizeof *t->by_name;
    free(t->by_name);
    t->by_name = malloc(bytes);
    if (!t->by_name) return s2_no_memory(err, "the index of a checkpoint's tensors", bytes);
    for (size_t i = 0; i < t->count; i++) t->by_name[i] = &t->at[i];
    qsort(t->by_name, t->count, sizeof *t->by_name, by_name);
    for (size_t i = 1; i < t->count; i++)
        if (!strcmp(t->by_name[i - 1]->name, t->by_name[i]->name))
            return s2_fail(err, S2_E_MODEL, "%s: two tensors are called \"%s\"; the file is damaged", t->path,
                           t->by_name[i]->name);
    return S2_OK;
}

const struct s2_stored *fmt_tensors_find(const struct fmt_tensors *t, const char *name)
{
    size_t low = 0, high = t->by_name ? t->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, t->by_name[middle]->name);
        if (order == 0) return t->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void fmt_tensors_free(struct fmt_tensors *t)
{
    for (size_t i = 0; i < t->count; i++) free((char *)t->at[i].name);
    free(t->at);
    free(t->by_name);
    *t = (struct fmt_tensors){.path = t->path};
}

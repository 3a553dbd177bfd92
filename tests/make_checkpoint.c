/* make_checkpoint.c - see make_checkpoint.h. */
#include "make_checkpoint.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "../formats/pickle_opcodes.h"

/* ------------------------------------------------------------------ bytes and files */

void make_put(struct make_bytes *b, const void *data, size_t size)
{
    if (b->capacity - b->size < size) {
        b->capacity = 2 * b->capacity + size;
        if (!(b->data = realloc(b->data, b->capacity))) abort();
    }
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
}

void make_number(struct make_bytes *b, uint64_t x, int size)
{
    for (int i = 0; i < size; i++) make_put(b, &(uint8_t){(uint8_t)(x >> 8 * i)}, 1);
}

void make_text(struct make_bytes *b, const char *text)
{
    make_put(b, text, strlen(text));
}

void make_free(struct make_bytes *b)
{
    free(b->data);
    *b = (struct make_bytes){0};
}

void make_file(const char *path, const struct make_bytes *b)
{
    FILE *f = fopen(path, "wb");
    if (!f || (b->size && fwrite(b->data, 1, b->size, f) != b->size) || fclose(f)) abort();
}

char *make_folder(void)
{
    char path[4096];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/sam2track-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(path)) abort();
    return strdup(path);
}

const char *make_path(const char *folder, const char *name)
{
    static char path[4096 + 300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void make_folder_remove(char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) unlink(make_path(folder, e->d_name));
    if (d) closedir(d);
    rmdir(folder);
    free(folder);
}

static void zeros(struct make_bytes *b, size_t n)
{
    for (size_t i = 0; i < n; i++) make_put(b, "", 1);
}

/* ------------------------------------------------------------------ ZIP */

enum { FLAG_DESCRIPTOR = 8, ALIGNMENT = 64 };

/* Neither CRC nor sizes, which stand behind the data and in the central directory. */
static void local_header(struct make_bytes *b, const struct make_entry *e)
{
    size_t name = strlen(e->name), unpadded = b->size + 30 + name + 4;
    size_t padding = (ALIGNMENT - unpadded % ALIGNMENT) % ALIGNMENT;
    make_text(b, "PK\3\4");
    zeros(b, 2);
    make_number(b, FLAG_DESCRIPTOR, 2);
    zeros(b, 18);
    make_number(b, name, 2);
    make_number(b, 4 + padding, 2);
    make_text(b, e->name);
    make_text(b, "FB");
    make_number(b, padding, 2);
    zeros(b, padding);
}

static void sizes(struct make_bytes *b, const struct make_entry *e)
{
    make_number(b, crc32(0, e->data, (uInt)e->size), 4);
    make_number(b, e->size, 4);
    make_number(b, e->size, 4);
}

static void central_record(struct make_bytes *b, const struct make_entry *e, size_t offset)
{
    make_text(b, "PK\1\2");
    zeros(b, 4);
    make_number(b, FLAG_DESCRIPTOR, 2);
    zeros(b, 6);
    sizes(b, e);
    make_number(b, strlen(e->name), 2);
    zeros(b, 12);
    make_number(b, offset, 4);
    make_text(b, e->name);
}

static void end_records(struct make_bytes *b, size_t n, size_t directory)
{
    size_t end = b->size;
    make_text(b, "PK\6\6");
    make_number(b, 44, 8);
    zeros(b, 12);
    make_number(b, n, 8);
    make_number(b, n, 8);
    make_number(b, end - directory, 8);
    make_number(b, directory, 8);

    make_text(b, "PK\6\7");
    zeros(b, 4);
    make_number(b, end, 8);
    make_number(b, 1, 4);

    make_text(b, "PK\5\6");
    zeros(b, 4);
    make_number(b, n, 2);
    make_number(b, n, 2);
    make_number(b, end - directory, 4);
    make_number(b, directory, 4);
    zeros(b, 2);
}

void make_zip(struct make_bytes *b, const struct make_entry *entry, size_t n)
{
    size_t *offset = calloc(n + 1, sizeof *offset);
    if (!offset) abort();
    for (size_t i = 0; i < n; i++) {
        offset[i] = b->size;
        local_header(b, &entry[i]);
        make_put(b, entry[i].data, entry[i].size);
        make_text(b, "PK\7\10");
        sizes(b, &entry[i]);
    }
    size_t directory = b->size;
    for (size_t i = 0; i < n; i++) central_record(b, &entry[i], offset[i]);
    end_records(b, n, directory);
    free(offset);
}

/* ------------------------------------------------------------------ pickle */

static void op(struct make_bytes *b, enum fmt_pickle_opcode o)
{
    make_number(b, o, 1);
}

static void pickle_text(struct make_bytes *b, const char *text)
{
    op(b, OP_BINUNICODE);
    make_number(b, strlen(text), 4);
    make_text(b, text);
}

static void pickle_integer(struct make_bytes *b, int64_t x)
{
    op(b, OP_LONG1);
    make_number(b, 8, 1);
    make_number(b, (uint64_t)x, 8);
}

static void pickle_global(struct make_bytes *b, const char *module, const char *name, int protocol)
{
    if (protocol >= 4) {
        pickle_text(b, module);
        pickle_text(b, name);
        op(b, OP_STACK_GLOBAL);
        return;
    }
    op(b, OP_GLOBAL);
    make_text(b, module);
    make_text(b, "\n");
    make_text(b, name);
    make_text(b, "\n");
}

static void pickle_ordered_dict(struct make_bytes *b, int protocol)
{
    pickle_global(b, "collections", "OrderedDict", protocol);
    op(b, OP_EMPTY_TUPLE);
    op(b, OP_REDUCE);
}

/* ------------------------------------------------------------------ .pt */

static size_t elements(const struct make_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= (size_t)t->dim[i];
    return n;
}

/* Where a tensor lies: in the storage of the first tensor that shares it. */
struct place {
    size_t storage, offset, numel; /* in elements; numel of the whole storage */
};

static struct place find_place(const struct make_tensor *t, size_t n, size_t i)
{
    struct place p = {i, 0, elements(&t[i])};
    for (size_t k = 0, before = 0; t[i].storage && k < n; k++) {
        if (t[k].storage != t[i].storage) continue;
        if (before == 0) p = (struct place){k, 0, 0};
        if (k == i) p.offset = p.numel;
        p.numel += elements(&t[k]);
        before++;
    }
    return p;
}

static const char *storage_name(enum s2_dtype t)
{
    static const char *const names[] = {"FloatStorage", "HalfStorage", "BFloat16Storage", "DoubleStorage",
                                        "LongStorage",  "IntStorage",  "ShortStorage",    "CharStorage",
                                        "ByteStorage",  "BoolStorage"};
    return names[t];
}

static void pickle_storage(struct make_bytes *b, const char *key, enum s2_dtype dtype, size_t numel, int protocol)
{
    op(b, OP_MARK);
    pickle_text(b, "storage");
    pickle_global(b, "torch", storage_name(dtype), protocol);
    pickle_text(b, key);
    pickle_text(b, "cuda:0");
    pickle_integer(b, (int64_t)numel);
    op(b, OP_TUPLE);
    op(b, OP_BINPERSID);
}

static void pickle_tensor(struct make_bytes *b, const struct make_tensor *t, const char *key, struct place place,
                          const struct make_pt *how)
{
    int64_t stride[S2_MAX_DIMS] = {0}, step = 1;
    for (int i = t->ndim - 1; i >= 0; i--) stride[i] = step, step *= t->dim[i];
    if (how->parameters) {
        pickle_global(b, "torch._utils", "_rebuild_parameter", how->protocol);
        op(b, OP_MARK);
    }
    pickle_global(b, "torch._utils", "_rebuild_tensor_v2", how->protocol);
    op(b, OP_MARK);
    pickle_storage(b, key, t->dtype, place.numel, how->protocol);
    pickle_integer(b, (int64_t)place.offset);
    op(b, OP_MARK);
    for (int i = 0; i < t->ndim; i++) pickle_integer(b, t->dim[i]);
    op(b, OP_TUPLE);
    op(b, OP_MARK);
    for (int i = 0; i < t->ndim; i++) pickle_integer(b, stride[i]);
    op(b, OP_TUPLE);
    op(b, OP_NEWFALSE);
    pickle_ordered_dict(b, how->protocol);
    op(b, OP_TUPLE);
    op(b, OP_REDUCE);
    if (how->parameters) {
        op(b, OP_NEWTRUE);
        pickle_ordered_dict(b, how->protocol);
        op(b, OP_TUPLE);
        op(b, OP_REDUCE);
    }
}

/* A dict of the tensors; storage keys are tensor numbers behind `kind`. */
static void pickle_tensors(struct make_bytes *b, const struct make_tensor *t, size_t n, const struct make_pt *how,
                           const char *kind)
{
    char name[1024], key[32];
    if (how->state_dict)
        pickle_ordered_dict(b, how->protocol);
    else
        op(b, OP_EMPTY_DICT);
    op(b, OP_MARK);
    for (size_t i = 0; i < n; i++) {
        struct place place = find_place(t, n, i);
        snprintf(name, sizeof name, "%s%s", how->prefix ? how->prefix : "", t[i].name);
        snprintf(key, sizeof key, "%s%zu", kind, place.storage);
        pickle_text(b, name);
        pickle_tensor(b, &t[i], key, place, how);
    }
    op(b, OP_SETITEMS);
    if (!how->state_dict) return;
    op(b, OP_EMPTY_DICT);
    pickle_text(b, "_metadata");
    pickle_ordered_dict(b, how->protocol);
    op(b, OP_SETITEM);
    op(b, OP_BUILD);
}

static void pickle_checkpoint(struct make_bytes *b, const struct make_tensor *t, size_t n, const struct make_pt *how)
{
    op(b, OP_PROTO);
    make_number(b, (uint64_t)(how->protocol ? how->protocol : 2), 1);
    if (how->root) {
        op(b, OP_EMPTY_DICT);
        op(b, OP_MARK);
        if (how->optimizer) { /* in front, so that the first tensors of the file are the wrong ones */
            pickle_text(b, "optimizer");
            pickle_tensors(b, t, n, how, "state-");
        }
        pickle_text(b, how->root);
    }
    pickle_tensors(b, t, n, how, "");
    if (how->root) {
        pickle_text(b, "epoch");
        pickle_integer(b, 40);
        op(b, OP_SETITEMS);
    }
    op(b, OP_STOP);
}

/* Bytes of the storage that begins with tensor i. */
static void storage_bytes(struct make_bytes *b, const struct make_tensor *t, size_t n, size_t i, bool optimizer)
{
    for (size_t k = i; k < n; k++) {
        if (k != i && (!t[i].storage || t[k].storage != t[i].storage)) continue;
        size_t bytes = elements(&t[k]) * s2_dtype_size(t[k].dtype);
        for (size_t j = 0; optimizer && j < bytes; j++) make_number(b, 99, 1);
        if (!optimizer) make_put(b, t[k].data, bytes);
    }
}

void make_pt(struct make_bytes *b, const struct make_tensor *t, size_t n, const struct make_pt *how)
{
    struct make_bytes pickle = {0};
    struct make_entry *entry = calloc(2 * n + 3, sizeof *entry);
    if (!entry) abort();
    pickle_checkpoint(&pickle, t, n, how);
    size_t entries = 0;
    entry[entries++] = (struct make_entry){strdup("archive/data.pkl"), pickle.data, pickle.size};
    if (how->byteorder)
        entry[entries++] = (struct make_entry){strdup("archive/byteorder"), how->byteorder, strlen(how->byteorder)};
    size_t first_storage = entries;
    for (size_t i = 0; i < 2 * n; i++) {
        bool optimizer = i >= n;
        struct make_bytes data = {0};
        char name[64];
        if ((optimizer && !how->optimizer) || find_place(t, n, i % n).storage != i % n) continue;
        storage_bytes(&data, t, n, i % n, optimizer);
        snprintf(name, sizeof name, "archive/data/%s%zu", optimizer ? "state-" : "", i % n);
        entry[entries++] = (struct make_entry){strdup(name), data.data, data.size};
    }
    entry[entries++] = (struct make_entry){strdup("archive/version"), "3\n", 2};
    make_zip(b, entry, entries);
    for (size_t i = 0; i < entries; i++) {
        if (i >= first_storage && i + 1 < entries) free((void *)entry[i].data);
        free((char *)entry[i].name);
    }
    free(entry);
    make_free(&pickle);
}

void make_pt_of_pickle(struct make_bytes *b, const void *pickle, size_t size)
{
    uint8_t storage[64];
    for (size_t i = 0; i < sizeof storage; i++) storage[i] = (uint8_t)i;
    const struct make_entry entries[] = {
        {"archive/data.pkl", pickle, size},
        {"archive/data/0", storage, sizeof storage},
    };
    make_zip(b, entries, 2);
}

/* ------------------------------------------------------------------ safetensors */

static void safetensors_header(struct make_bytes *b, const struct make_tensor *t, size_t n)
{
    static const char *const names[] = {"F32", "F16", "BF16", "F64", "I64", "I32", "I16", "I8", "U8", "BOOL"};
    char text[256];
    size_t begin = 0;
    make_text(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < n; i++) {
        size_t end = begin + elements(&t[i]) * s2_dtype_size(t[i].dtype);
        snprintf(text, sizeof text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t[i].name, names[t[i].dtype]);
        make_text(b, text);
        for (int d = 0; d < t[i].ndim; d++) {
            snprintf(text, sizeof text, "%s%lld", d ? "," : "", (long long)t[i].dim[d]);
            make_text(b, text);
        }
        snprintf(text, sizeof text, "],\"data_offsets\":[%zu,%zu]}", begin, end);
        make_text(b, text);
        begin = end;
    }
    make_text(b, "}");
    while (b->size % 8) make_text(b, " ");
}

void make_safetensors(struct make_bytes *b, const struct make_tensor *t, size_t n, const char *header)
{
    struct make_bytes json = {0};
    if (header)
        make_text(&json, header);
    else
        safetensors_header(&json, t, n);
    make_number(b, json.size, 8);
    make_put(b, json.data, json.size);
    for (size_t i = 0; i < n; i++) make_put(b, t[i].data, elements(&t[i]) * s2_dtype_size(t[i].dtype));
    make_free(&json);
}

/* zip.c - see zip.h. */
#include "zip.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"

enum {
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    LOCATOR_SIZE = 20,
    END64_SIZE = 56,
};
#define LOCAL_SIGNATURE   0x04034b50u
#define CENTRAL_SIGNATURE 0x02014b50u
#define END_SIGNATURE     0x06054b50u
#define LOCATOR_SIGNATURE 0x07064b50u
#define END64_SIGNATURE   0x06064b50u
#define FLAG_ENCRYPTED    1u
#define EXTRA_ZIP64       1u

struct directory {
    size_t offset, size, count;
};

static enum s2_status damaged(const struct fmt_zip *z, struct s2_err *err, const char *what)
{
    return s2_fail(err, S2_E_MODEL, "%s: the ZIP archive is damaged (%s); fetch or save the file again", z->path, what);
}

static enum s2_status damaged_entry(const struct fmt_zip *z, const char *name, size_t name_size, struct s2_err *err,
                                    const char *what)
{
    return s2_fail(err, S2_E_MODEL, "%s: the ZIP archive is damaged (entry \"%.*s\" %s); fetch or save the file again",
                   z->path, (int)(name_size < 200 ? name_size : 200), name, what);
}

/* The end record is the last thing in the file but for a comment of up to 64 KiB. */
static const uint8_t *find_end(const uint8_t *data, size_t size)
{
    for (size_t comment = 0; comment <= UINT16_MAX && comment + END_SIZE <= size; comment++) {
        const uint8_t *p = data + size - END_SIZE - comment;
        if (fmt_le32(p) == END_SIGNATURE && fmt_le16(p + 20) == comment) return p;
    }
    return NULL;
}

/* A field of the 32-bit end record either says "see ZIP64" or must tell the same. */
static bool agrees(uint64_t narrow, uint64_t wide, uint64_t see_zip64)
{
    return narrow == see_zip64 || narrow == wide;
}

static enum s2_status read_end(const struct fmt_zip *z, size_t size, struct directory *dir, struct s2_err *err)
{
    const uint8_t *end = find_end(z->data, size);
    if (!end)
        return s2_fail(err, S2_E_MODEL,
                       "%s: the ZIP archive has no end record: the download or copy is incomplete; fetch it again",
                       z->path);
    size_t end_offset = (size_t)(end - z->data);
    uint64_t count = fmt_le16(end + 10), dir_size = fmt_le32(end + 12), dir_offset = fmt_le32(end + 16);

    const uint8_t *locator = end_offset >= LOCATOR_SIZE ? end - LOCATOR_SIZE : NULL;
    if (locator && fmt_le32(locator) == LOCATOR_SIGNATURE) {
        uint64_t offset = fmt_le64(locator + 8);
        size_t space = end_offset - LOCATOR_SIZE;
        if (space < END64_SIZE || offset > space - END64_SIZE)
            return damaged(z, err, "the ZIP64 end record lies outside the file");
        const uint8_t *end64 = z->data + offset;
        if (fmt_le32(end64) != END64_SIGNATURE)
            return damaged(z, err, "the ZIP64 end record is not where it should be");
        uint64_t count64 = fmt_le64(end64 + 32), size64 = fmt_le64(end64 + 40), offset64 = fmt_le64(end64 + 48);
        if (!agrees(count, count64, UINT16_MAX) || !agrees(dir_size, size64, UINT32_MAX) ||
            !agrees(dir_offset, offset64, UINT32_MAX))
            return damaged(z, err, "the ZIP64 and the plain end record contradict each other");
        count = count64, dir_size = size64, dir_offset = offset64;
        end_offset = (size_t)offset;
    }
    if (dir_offset > end_offset || dir_size > end_offset - dir_offset)
        return damaged(z, err, "the central directory lies outside the file");
    if (count > dir_size / CENTRAL_SIZE) return damaged(z, err, "the central directory is too short for its entries");
    *dir = (struct directory){(size_t)dir_offset, (size_t)dir_size, (size_t)count};
    return S2_OK;
}

/* Replaces the fields that say 0xFFFFFFFF by those of the ZIP64 extra field, which holds only these, in order. */
static bool read_zip64_extra(const uint8_t *extra, size_t extra_size, uint64_t *const field[3])
{
    for (size_t at = 0; extra_size - at >= 4;) {
        size_t id = fmt_le16(extra + at), n = fmt_le16(extra + at + 2);
        at += 4;
        if (n > extra_size - at) return false;
        if (id != EXTRA_ZIP64) {
            at += n;
            continue;
        }
        size_t used = 0;
        for (int i = 0; i < 3; i++) {
            if (*field[i] != UINT32_MAX) continue;
            if (n - used < 8) return false;
            *field[i] = fmt_le64(extra + at + used);
            used += 8;
        }
        return true;
    }
    return *field[0] != UINT32_MAX && *field[1] != UINT32_MAX && *field[2] != UINT32_MAX;
}

/* One record of the central directory, space bytes before its end; *taken is the record's length. */
static enum s2_status read_central(const struct fmt_zip *z, const struct directory *dir, const uint8_t *p, size_t space,
                                   struct fmt_zip_entry *e, size_t *taken, struct s2_err *err)
{
    if (space < CENTRAL_SIZE || fmt_le32(p) != CENTRAL_SIGNATURE)
        return damaged(z, err, "a record of the central directory is missing");
    size_t name_size = fmt_le16(p + 28), extra_size = fmt_le16(p + 30), comment_size = fmt_le16(p + 32);
    *taken = CENTRAL_SIZE + name_size + extra_size + comment_size;
    if (*taken > space) return damaged(z, err, "a record of the central directory is cut off");

    const char *name = (const char *)p + CENTRAL_SIZE;
    uint64_t packed = fmt_le32(p + 20), size = fmt_le32(p + 24), offset = fmt_le32(p + 42);
    uint64_t *const fields[3] = {&size, &packed, &offset};
    if (!read_zip64_extra(p + CENTRAL_SIZE + name_size, extra_size, fields))
        return damaged_entry(z, name, name_size, err, "has a bad ZIP64 field");
    bool stored = fmt_le16(p + 10) == 0 && !(fmt_le16(p + 8) & FLAG_ENCRYPTED);
    if (stored && packed != size) return damaged_entry(z, name, name_size, err, "has two different sizes");
    size_t header = LOCAL_SIZE + name_size;
    if (offset > dir->offset || header > dir->offset - offset || packed > dir->offset - offset - header)
        return damaged_entry(z, name, name_size, err, "lies outside the file");
    *e = (struct fmt_zip_entry){name, name_size, (size_t)offset, 0, (size_t)packed, stored};
    return S2_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct fmt_zip_entry *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int compare_names(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static int by_name(const void *a, const void *b)
{
    const struct fmt_zip_entry *x = a, *y = b;
    return compare_names(x->name, x->name_size, y->name, y->name_size);
}

static enum s2_status check_entries(struct fmt_zip *z, const struct directory *dir, struct s2_err *err)
{
    qsort(z->entry, z->count, sizeof *z->entry, by_offset);
    for (size_t i = 0; i < z->count; i++) {
        struct fmt_zip_entry *e = &z->entry[i];
        e->limit = i + 1 < z->count ? z->entry[i + 1].offset : dir->offset;
        if (e->limit - e->offset < LOCAL_SIZE + e->name_size + e->size)
            return damaged_entry(z, e->name, e->name_size, err, "overlaps the next one");
    }
    qsort(z->entry, z->count, sizeof *z->entry, by_name);
    for (size_t i = 1; i < z->count; i++)
        if (by_name(&z->entry[i - 1], &z->entry[i]) == 0)
            return damaged_entry(z, z->entry[i].name, z->entry[i].name_size, err, "exists twice");
    return S2_OK;
}

enum s2_status fmt_zip_open(struct fmt_zip *out, const uint8_t *data, size_t size, const char *path, struct s2_err *err)
{
    struct directory dir = {0};
    enum s2_status status;
    *out = (struct fmt_zip){.data = data, .path = path};
    if ((status = read_end(out, size, &dir, err))) return status;

    out->entry = calloc(dir.count ? dir.count : 1, sizeof *out->entry);
    if (!out->entry) return s2_no_memory(err, "the list of a ZIP archive's entries", dir.count * sizeof *out->entry);
    for (size_t at = 0; out->count < dir.count; out->count++) {
        size_t taken = 0;
        status = read_central(out, &dir, data + dir.offset + at, dir.size - at, &out->entry[out->count], &taken, err);
        if (status) goto fail;
        at += taken;
    }
    if ((status = check_entries(out, &dir, err))) goto fail;
    return S2_OK;
fail:
    fmt_zip_close(out);
    return status;
}

const struct fmt_zip_entry *fmt_zip_find(const struct fmt_zip *z, const char *name, size_t name_size)
{
    struct fmt_zip_entry key = {.name = name, .name_size = name_size};
    return z->count ? bsearch(&key, z->entry, z->count, sizeof key, by_name) : NULL;
}

enum s2_status fmt_zip_data(const struct fmt_zip *z, const struct fmt_zip_entry *e, const uint8_t **data,
                            struct s2_err *err)
{
    if (!e->stored)
        return s2_fail(
            err, S2_E_MODEL,
            "%s: entry \"%.*s\" is compressed or encrypted, which torch.save does not do; save the checkpoint "
            "again with torch.save",
            z->path, (int)(e->name_size < 200 ? e->name_size : 200), e->name);
    const uint8_t *local = z->data + e->offset;
    if (fmt_le32(local) != LOCAL_SIGNATURE || fmt_le16(local + 8) != 0 || fmt_le16(local + 26) != e->name_size ||
        memcmp(local + LOCAL_SIZE, e->name, e->name_size))
        return damaged_entry(z, e->name, e->name_size, err, "has another local header");
    size_t header = LOCAL_SIZE + e->name_size + fmt_le16(local + 28), space = e->limit - e->offset;
    if (header > space || e->size > space - header)
        return damaged_entry(z, e->name, e->name_size, err, "reaches into the next one");
    *data = local + header;
    return S2_OK;
}

void fmt_zip_close(struct fmt_zip *z)
{
    free(z->entry);
    z->entry = NULL;
    z->count = 0;
}

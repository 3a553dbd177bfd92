/* checkpoint.c - opens a checkpoint by its content and hands its tensors to whoever loads weights. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libavutil/mem.h>
#include <libavutil/sha.h>

#include "checkpoint.h"
#include "formats.h"

struct fmt_checkpoint {
    char *path;
    const char *container;
    void *map;
    size_t size;
    struct fmt_tensors tensors;
    struct s2_source source;
    size_t found; /* bytes of the tensors found since pages were dropped */
};

/* Mapped pages count as the process's memory until they are dropped; they can be read again. */
enum { KEPT = 16 << 20 };

static enum s2_status is_directory(const char *path, struct s2_err *err)
{
    char inside[4096];
    snprintf(inside, sizeof inside, "%s/model.safetensors", path);
    bool there = access(inside, R_OK) == 0;
    return s2_fail(err, S2_E_MODEL, "%s: this is a folder; name the checkpoint file in it%s%s", path, there ? ": " : "",
                   there ? inside : "");
}

static enum s2_status map_file(struct fmt_checkpoint *c, struct s2_err *err)
{
    struct stat st;
    enum s2_status status = S2_OK;
    int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO without a writer must not block */
    if (fd < 0 || fstat(fd, &st)) {
        status = s2_fail(err, S2_E_MODEL, "%s: the file cannot be opened: %s", c->path, strerror(errno));
    } else if (S_ISDIR(st.st_mode)) {
        status = is_directory(c->path, err);
    } else if (!S_ISREG(st.st_mode)) {
        status = s2_fail(err, S2_E_MODEL, "%s: this is a pipe or a device; a checkpoint must be a file", c->path);
    } else if (!st.st_size) {
        status = s2_fail(err, S2_E_MODEL, "%s: the file is empty; fetch the checkpoint again", c->path);
    } else {
        c->size = (size_t)st.st_size;
        c->map = mmap(NULL, c->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (c->map == MAP_FAILED) {
            c->map = NULL;
            status = s2_fail(err, S2_E_MODEL, "%s: the file cannot be mapped: %s", c->path, strerror(errno));
        }
    }
    if (fd >= 0) close(fd);
    return status;
}

static enum s2_status read_tensors(struct fmt_checkpoint *c, struct s2_err *err)
{
    if (c->size >= 4 && !memcmp(c->map, "PK\3\4", 4)) {
        c->container = "pt";
        return fmt_pt_read(&c->tensors, c->map, c->size, err);
    }
    if (fmt_safetensors_begins(c->map, c->size)) {
        c->container = "safetensors";
        return fmt_safetensors_read(&c->tensors, c->map, c->size, err);
    }
    return fmt_foreign_file(c->path, c->map, c->size, err);
}

static bool tensor_at(void *ctx, size_t i, struct s2_stored *out)
{
    const struct fmt_checkpoint *c = ctx;
    if (i >= c->tensors.count) return false;
    *out = c->tensors.at[i];
    return true;
}

static bool find_tensor(void *ctx, const char *name, struct s2_stored *out)
{
    struct fmt_checkpoint *c = ctx;
    const struct s2_stored *found = fmt_tensors_find(&c->tensors, name);
    if (!found) return false;
    if (c->found > KEPT) fmt_checkpoint_drop_pages(c);
    c->found += found->elements * s2_dtype_size(found->dtype);
    *out = *found;
    return true;
}

enum s2_status fmt_checkpoint_open(struct fmt_checkpoint **out, const char *path, struct s2_err *err)
{
    enum s2_status status;
    struct fmt_checkpoint *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c || !(c->path = strdup(path))) {
        free(c);
        return s2_no_memory(err, "a checkpoint's description", sizeof *c);
    }
    c->tensors.path = c->path;
    if ((status = map_file(c, err)) || (status = read_tensors(c, err))) goto fail;
    fmt_tensors_strip_prefixes(&c->tensors);
    if ((status = fmt_transformers_rename(&c->tensors, err)) || (status = fmt_tensors_index(&c->tensors, err)))
        goto fail;
    c->source = (struct s2_source){c, c->path, c->tensors.count, tensor_at, find_tensor};
    *out = c;
    return S2_OK;
fail:
    fmt_checkpoint_close(c);
    return status;
}

const struct s2_source *fmt_checkpoint_source(const struct fmt_checkpoint *c)
{
    return &c->source;
}

const char *fmt_checkpoint_container(const struct fmt_checkpoint *c)
{
    return c->container;
}

void fmt_checkpoint_drop_pages(struct fmt_checkpoint *c)
{
    madvise(c->map, c->size, MADV_DONTNEED);
    c->found = 0;
}

void fmt_checkpoint_close(struct fmt_checkpoint *c)
{
    if (!c) return;
    fmt_tensors_free(&c->tensors);
    if (c->map) munmap(c->map, c->size);
    free(c->path);
    free(c);
}

/* ------------------------------------------------------------------ SHA-256 */

#define READ_SIZE ((size_t)1 << 20)

static enum s2_status hash_file(struct AVSHA *sha, uint8_t *block, FILE *f, const char *path, struct s2_err *err)
{
    size_t n;
    while ((n = fread(block, 1, READ_SIZE, f))) av_sha_update(sha, block, n);
    if (ferror(f)) return s2_fail(err, S2_E_MODEL, "%s: the file cannot be read: %s", path, strerror(errno));
    return S2_OK;
}

enum s2_status fmt_checkpoint_sha256(const char *path, char hex[65], struct s2_err *err)
{
    uint8_t digest[32];
    enum s2_status status;
    FILE *f = fopen(path, "rbe");
    struct AVSHA *sha = av_sha_alloc();
    uint8_t *block = malloc(READ_SIZE);
    if (!f) {
        status = s2_fail(err, S2_E_MODEL, "%s: the file cannot be opened: %s", path, strerror(errno));
        goto done;
    }
    if (!sha || !block || av_sha_init(sha, 256) < 0) {
        status = s2_no_memory(err, "the block in which a file is read", READ_SIZE);
        goto done;
    }
    if ((status = hash_file(sha, block, f, path, err))) goto done;
    av_sha_final(sha, digest);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
done:
    free(block);
    av_free(sha);
    if (f) fclose(f);
    return status;
}

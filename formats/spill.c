/* spill.c - results that wait for their turn, in a temporary file without a name.
 *
 * A frame's entry: for each object a struct entry, its run lengths, and those of the pixels it owns where these are
 * others. Logits: a struct sparse, then runs of cells: how many are left out, how many follow, and those. */
#define _GNU_SOURCE /* mkostemp */
#include "sink.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
    float score, iou;
    uint32_t started, bits, owned; /* lengths of the run lengths; owned 0: the same */
};

struct sparse {
    float score, iou;
};

static const float left_out = -1024.0f;

struct fmt_spill {
    int fd;
    char folder[512];
    int64_t slots, end;
    size_t n_objects;
    bool owners;
    struct place {
        int64_t offset; /* -1: nothing */
        size_t size;
    } * frame, *logits; /* [slots], [slots][n_objects], the latter once there are any */
    struct fmt_text text, counts, owned;
    struct s2_bits scratch;
    uint8_t *near; /* [side][side] */
    size_t near_size;
};

/* ------------------------------------------------------------------ the file */

static struct place *places(size_t n)
{
    struct place *p = calloc(n + 1, sizeof *p);
    for (size_t i = 0; p && i < n; i++) p[i].offset = -1;
    return p;
}

static enum s2_status write_text(struct fmt_spill *s, struct place *to, struct s2_err *err)
{
    int error = fmt_output_write(s->fd, s->text.data, s->text.size, s->end);
    if (error)
        return s2_fail(err, S2_E_OUTPUT,
                       "%s: results that wait for the way back cannot be kept there: %s; name another folder by TMPDIR",
                       s->folder, strerror(error));
    *to = (struct place){s->end, s->text.size};
    s->end += (int64_t)s->text.size;
    return S2_OK;
}

static enum s2_status read_text(struct fmt_spill *s, const struct place *from, struct s2_err *err)
{
    fmt_text_clear(&s->text);
    if (!fmt_text_reserve(&s->text, from->size)) return s2_no_memory(err, "results of a frame", from->size);
    for (size_t done = 0; done < from->size;) {
        ssize_t n = pread(s->fd, s->text.data + done, from->size - done, from->offset + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return s2_fail(err, S2_E_OUTPUT, "%s: kept results cannot be read again: %s", s->folder,
                           n ? strerror(errno) : "the file is cut");
        done += (size_t)n;
    }
    s->text.size = from->size;
    return S2_OK;
}

/* ------------------------------------------------------------------ results of a frame */

/* Sets in s->scratch the pixels that the object of position i owns. */
static void owned_bits(struct fmt_spill *s, const uint16_t *owner, size_t i)
{
    struct s2_bits *b = &s->scratch;
    memset(b->data, 0, (size_t)b->height * b->stride);
    for (int y = 0; y < b->height; y++)
        for (int x = 0; x < b->width; x++)
            if (owner[(size_t)y * (size_t)b->width + (size_t)x] == i + 1)
                b->data[(size_t)y * b->stride + (size_t)x / 8] |= (uint8_t)(0x80 >> x % 8);
}

static bool put_object(struct fmt_spill *s, const struct fmt_record *r, size_t i, struct s2_err *err)
{
    const struct fmt_record_object *o = &r->object[i];
    struct fmt_rle_stats stats;
    fmt_text_clear(&s->counts);
    fmt_text_clear(&s->owned);
    if (o->started && fmt_rle_encode(&o->bits, &s->counts, &stats, err)) return false;
    if (o->started && s->owners && s->n_objects > 1) {
        owned_bits(s, r->owner, i);
        if (fmt_rle_encode(&s->scratch, &s->owned, &stats, err)) return false;
        bool same = s->owned.size == s->counts.size && !memcmp(s->owned.data, s->counts.data, s->owned.size);
        if (same) fmt_text_clear(&s->owned);
    }
    const struct entry e = {o->score, o->iou, o->started, (uint32_t)s->counts.size, (uint32_t)s->owned.size};
    return fmt_text_append(&s->text, (const char *)&e, sizeof e) &&
           fmt_text_append(&s->text, s->counts.data, s->counts.size) &&
           fmt_text_append(&s->text, s->owned.data, s->owned.size);
}

static enum s2_status make_scratch(struct fmt_spill *s, const struct s2_bits *like, struct s2_err *err)
{
    if (s->scratch.data) return S2_OK;
    s->scratch = (struct s2_bits){like->width, like->height, like->stride, NULL};
    size_t bytes = (size_t)like->height * like->stride;
    s->scratch.data = malloc(bytes);
    return s->scratch.data ? S2_OK : s2_no_memory(err, "a mask", bytes);
}

enum s2_status fmt_spill_put(struct fmt_spill *s, int64_t slot, const struct fmt_record *r, struct s2_err *err)
{
    enum s2_status status = make_scratch(s, &r->object[0].bits, err);
    fmt_text_clear(&s->text);
    for (size_t i = 0; !status && i < s->n_objects; i++)
        if (!put_object(s, r, i, err)) status = s2_no_memory(err, "results of a frame", s->text.size);
    return status ? status : write_text(s, &s->frame[slot], err);
}

bool fmt_spill_has(const struct fmt_spill *s, int64_t slot)
{
    return s->frame[slot].offset >= 0;
}

static void own(uint16_t *owner, const struct s2_bits *b, size_t i)
{
    for (int y = 0; y < b->height; y++)
        for (int x = 0; x < b->width; x++)
            if (b->data[(size_t)y * b->stride + (size_t)x / 8] >> (7 - x % 8) & 1)
                owner[(size_t)y * (size_t)b->width + (size_t)x] = (uint16_t)(i + 1);
}

enum s2_status fmt_spill_get(struct fmt_spill *s, int64_t slot, struct fmt_record *r, struct s2_err *err)
{
    enum s2_status status = read_text(s, &s->frame[slot], err);
    const char *p = s->text.data;
    const struct s2_bits *like = &r->object[0].bits;
    if (!status) status = make_scratch(s, like, err);
    if (!status && s->owners) memset(r->owner, 0, (size_t)like->width * (size_t)like->height * sizeof *r->owner);
    for (size_t i = 0; !status && i < s->n_objects; i++) {
        struct fmt_record_object *o = &r->object[i];
        struct entry e;
        memcpy(&e, p, sizeof e);
        p += sizeof e;
        o->started = e.started, o->score = e.score, o->iou = e.iou;
        memset(o->bits.data, 0, (size_t)o->bits.height * o->bits.stride);
        if (e.bits && !fmt_rle_decode(p, e.bits, &o->bits, err)) return S2_E_USAGE;
        if (e.owned && !fmt_rle_decode(p + e.bits, e.owned, &s->scratch, err)) return S2_E_USAGE;
        if (s->owners && e.bits) own(r->owner, e.owned ? &s->scratch : &o->bits, i);
        p += e.bits + e.owned;
    }
    return status;
}

/* ------------------------------------------------------------------ logits */

/* Marks the cells whose value shows in an upsampled mask: positive ones and their neighbours. */
static void mark(uint8_t *near, const float *logits, int side)
{
    memset(near, 0, (size_t)side * (size_t)side);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            if (!(logits[y * side + x] > 0)) continue;
            for (int v = y > 0 ? y - 1 : 0; v <= y + 1 && v < side; v++)
                for (int u = x > 0 ? x - 1 : 0; u <= x + 1 && u < side; u++) near[v * side + u] = 1;
        }
}

static bool put_runs(struct fmt_spill *s, const float *logits, uint32_t cells)
{
    for (uint32_t i = 0; i < cells;) {
        uint32_t run[2], first = i;
        while (i < cells && !s->near[i]) i++;
        run[0] = i - first;
        first = i;
        while (i < cells && s->near[i]) i++;
        run[1] = i - first;
        if (!fmt_text_append(&s->text, (const char *)run, sizeof run) ||
            !fmt_text_append(&s->text, (const char *)(logits + first), run[1] * sizeof *logits))
            return false;
    }
    return true;
}

enum s2_status fmt_spill_put_logits(struct fmt_spill *s, int64_t slot, size_t object, const float *logits, int side,
                                    float score, float iou, struct s2_err *err)
{
    size_t cells = (size_t)side * (size_t)side, n = (size_t)s->slots * s->n_objects;
    if (!s->logits && !(s->logits = places(n)))
        return s2_no_memory(err, "an index of results", n * sizeof(struct place));
    if (s->near_size < cells) {
        free(s->near);
        s->near_size = cells;
        if (!(s->near = malloc(cells))) return s2_no_memory(err, "a map of cells", cells);
    }
    const struct sparse head = {score, iou};
    mark(s->near, logits, side);
    fmt_text_clear(&s->text);
    if (!fmt_text_append(&s->text, (const char *)&head, sizeof head) || !put_runs(s, logits, (uint32_t)cells))
        return s2_no_memory(err, "results of a frame", cells * sizeof *logits);
    return write_text(s, &s->logits[(size_t)slot * s->n_objects + object], err);
}

enum s2_status fmt_spill_get_logits(struct fmt_spill *s, int64_t slot, size_t object, float *logits, int side,
                                    float *score, float *iou, bool *got, struct s2_err *err)
{
    size_t cells = (size_t)side * (size_t)side;
    const struct place *from = s->logits ? &s->logits[(size_t)slot * s->n_objects + object] : NULL;
    *got = from && from->offset >= 0;
    if (!*got) return S2_OK;
    enum s2_status status = read_text(s, from, err);
    if (status) return status;
    struct sparse head;
    memcpy(&head, s->text.data, sizeof head);
    *score = head.score, *iou = head.iou;
    const char *p = s->text.data + sizeof head, *end = s->text.data + s->text.size;
    for (size_t i = 0; p < end && i < cells;) {
        uint32_t run[2];
        memcpy(run, p, sizeof run);
        p += sizeof run;
        for (size_t stop = i + run[0]; i < stop; i++) logits[i] = left_out;
        memcpy(logits + i, p, run[1] * sizeof *logits);
        p += run[1] * sizeof *logits;
        i += run[1];
    }
    return S2_OK;
}

/* ------------------------------------------------------------------ open and close */

enum s2_status fmt_spill_open(struct fmt_spill **out, int64_t slots, size_t n_objects, bool owners, struct s2_err *err)
{
    char path[600];
    enum s2_status status;
    const char *folder = getenv("TMPDIR");
    struct fmt_spill *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return s2_no_memory(err, "kept results", sizeof *s);
    *s = (struct fmt_spill){.fd = -1, .slots = slots, .n_objects = n_objects, .owners = owners};
    snprintf(s->folder, sizeof s->folder, "%s", folder && *folder ? folder : "/tmp");
    snprintf(path, sizeof path, "%s/sam2track.XXXXXX", s->folder);
    s->frame = places((size_t)slots);
    if (!s->frame) {
        status = s2_no_memory(err, "an index of results", (size_t)slots * sizeof *s->frame);
        goto fail;
    }
    if ((s->fd = mkostemp(path, O_CLOEXEC)) < 0) {
        status = s2_fail(err, S2_E_OUTPUT,
                         "%s: no file for results that wait for the way back can be made there: %s; name "
                         "another folder by TMPDIR",
                         s->folder, strerror(errno));
        goto fail;
    }
    unlink(path);
    *out = s;
    return S2_OK;
fail:
    fmt_spill_free(s);
    return status;
}

int64_t fmt_spill_bytes(const struct fmt_spill *s)
{
    return s->end;
}

void fmt_spill_free(struct fmt_spill *s)
{
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    free(s->frame), free(s->logits), free(s->near), free(s->scratch.data);
    fmt_text_free(&s->text), fmt_text_free(&s->counts), fmt_text_free(&s->owned);
    free(s);
}

/* sink_png.c - a PNG a frame: id maps (8-bit palette, pixel = object id) and object masks (1-bit grey).
 *
 * Id maps:      DIR/00007.png      of source frame 7, or the still's own stem; palette of PASCAL VOC and DAVIS.
 * Object masks: DIR/ID/00007.png   of every frame and every object; empty while the object is absent, not
 *                                  started or stopped.
 *
 * A file is written under a temporary name in its folder and renamed when whole. DIR is created with its
 * parents. One that holds PNG files is refused without overwrite; with it, numbered PNG files (five digits or
 * more) of an earlier run are removed when the first frame arrives, so that none of them outlives a shorter
 * run. Stills have names of their own: files of the same name are replaced, others stay. */
#include "png_rows.h"
#include "sink.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct page { /* one worker's */
    struct fmt_text bytes;
    struct fmt_png_rows rows;
    uint8_t *row; /* of an id map */
    char path[PATH_MAX], part[PATH_MAX];
};

struct sink_png {
    struct fmt_sink sink; /* first */
    const struct fmt_outputs_config *config;
    const char *dir;
    bool per_object, created;
    uint8_t id_of[UINT16_MAX + 1]; /* of id maps: owner to id */
    png_color color[256];
    struct page page[FMT_SINK_WORKERS];
};

/* ------------------------------------------------------------------ encoding */

/* The bits of an index, lowest first, go to the highest bits of red, green and blue in turn (VOC devkit,
 * VOClabelcolormap.m). */
static void voc_palette(png_color color[256])
{
    for (int i = 0; i < 256; i++) {
        int r = 0, g = 0, b = 0;
        for (int bit = 7, rest = i; rest; bit--, rest >>= 3) {
            r |= (rest & 1) << bit;
            g |= (rest >> 1 & 1) << bit;
            b |= (rest >> 2 & 1) << bit;
        }
        color[i] = (png_color){(png_byte)r, (png_byte)g, (png_byte)b};
    }
}

static void on_bytes(png_structp png, png_bytep bytes, png_size_t n)
{
    if (!fmt_text_append(png_get_io_ptr(png), (const char *)bytes, n)) png_error(png, "out of memory");
}

static void on_flush(png_structp png)
{
    (void)png;
}
static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}
static void on_error(png_structp png, png_const_charp text)
{
    (void)text;
    png_longjmp(png, 1);
}

struct drawing {
    int width, height;
    const png_color *color;     /* of an id map; NULL: 1-bit grey */
    const uint16_t *owner;      /* of an id map */
    const struct s2_bits *bits; /* of an object; NULL: empty */
};

/* The ids of a row of owners, NULL where there is none. */
static const uint8_t *ids_of(const struct sink_png *s, const uint16_t *owner, int width, uint8_t *row)
{
    for (int x = 0, end; x < width; x = end) {
        end = fmt_run_end(owner, x, width);
        if (end - x == width && owner[x] == 0) return NULL;
        memset(row + x, s->id_of[owner[x]], (size_t)(end - x));
    }
    return row;
}

static const uint8_t *bits_or_none(const uint8_t *row, size_t bytes)
{
    return row[0] == 0 && memcmp(row, row + 1, bytes - 1) == 0 ? NULL : row;
}

static bool compress_pixels(const struct sink_png *s, const struct drawing *d, struct page *page)
{
    const size_t bytes = s->per_object ? ((size_t)d->width + 7) / 8 : (size_t)d->width;
    bool ok = fmt_png_rows_begin(&page->rows);
    for (int y = 0; ok && y < d->height; y++)
        ok = fmt_png_row(&page->rows, d->owner  ? ids_of(s, d->owner + (size_t)y * d->width, d->width, page->row)
                                      : d->bits ? bits_or_none(d->bits->data + (size_t)y * d->bits->stride, bytes)
                                                : NULL);
    return ok && fmt_png_rows_end(&page->rows);
}

static void write_picture(png_structp png, png_infop info, const struct sink_png *s, const struct drawing *d,
                          const struct fmt_text *pixels)
{
    png_set_IHDR(png, info, (png_uint_32)d->width, (png_uint_32)d->height, d->owner ? 8 : 1,
                 d->owner ? PNG_COLOR_TYPE_PALETTE : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (d->owner) png_set_PLTE(png, info, s->color, 256);
    png_write_info(png, info);
    png_write_chunk(png, (png_const_bytep) "IDAT", (png_const_bytep)pixels->data, pixels->size);
    png_write_chunk(png, (png_const_bytep) "IEND", NULL, 0);
}

/* Into page->bytes. libpng's errors end here. */
static bool encode(const struct sink_png *s, const struct drawing *d, struct page *page)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    bool ok = false;
    if (info && compress_pixels(s, d, page) && !setjmp(png_jmpbuf(png))) {
        fmt_text_clear(&page->bytes);
        png_set_write_fn(png, &page->bytes, on_bytes, on_flush);
        write_picture(png, info, s, d, &page->rows.stream);
        ok = true;
    }
    png_destroy_write_struct(&png, &info);
    return ok;
}

/* ------------------------------------------------------------------ files */

/* page->bytes to page->path, by way of page->part. */
static enum s2_status save(struct page *page, struct s2_err *err)
{
    int fd = open(page->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int error = fd < 0 ? errno : fmt_output_write(fd, page->bytes.data, page->bytes.size, -1);
    if (fd >= 0 && close(fd) != 0 && !error) error = errno;
    if (!error && rename(page->part, page->path) != 0) error = errno;
    if (!error) return S2_OK;
    if (fd >= 0) unlink(page->part);
    return fmt_output_failed(err, page->path, "cannot be written", error);
}

static enum s2_status write_file(struct sink_png *s, int worker, const char *folder, const struct fmt_frame *frame,
                                 const struct drawing *d, struct s2_err *err)
{
    struct page *page = &s->page[worker];
    char number[32];
    snprintf(number, sizeof number, "%05lld", (long long)frame->index);
    const char *stem = frame->stem[0] ? frame->stem : number;
    int n = snprintf(page->path, sizeof page->path, "%s/%s.png", folder, stem);
    int m = snprintf(page->part, sizeof page->part, "%s/.%d.png.part", folder, worker);
    if (n >= (int)sizeof page->path || m >= (int)sizeof page->part)
        return fmt_output_failed(err, folder, "cannot be written to", ENAMETOOLONG);
    if (frame->stem[0] && !s->config->overwrite && access(page->path, F_OK) == 0)
        return s2_fail(err, S2_E_OUTPUT, "%s: exists already; two input pictures have the same name", page->path);
    if (!encode(s, d, page)) return s2_no_memory(err, "a PNG picture", page->bytes.size);
    return save(page, err);
}

static enum s2_status write_map(struct fmt_sink *sink, int worker, const struct fmt_record *r, struct s2_err *err)
{
    struct sink_png *s = (struct sink_png *)sink;
    const struct drawing d = {s->config->width, s->config->height, .owner = r->owner};
    return write_file(s, worker, s->dir, &r->frame, &d, err);
}

static enum s2_status write_objects(struct fmt_sink *sink, int worker, const struct fmt_record *r, struct s2_err *err)
{
    struct sink_png *s = (struct sink_png *)sink;
    for (size_t i = 0; i < s->config->n_objects; i++) {
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%s/%d", s->dir, s->config->objects[i].id);
        const struct fmt_record_object *object = &r->object[i];
        const struct drawing d = {s->config->width, s->config->height, .bits = object->started ? &object->bits : NULL};
        enum s2_status status = write_file(s, worker, folder, &r->frame, &d, err);
        if (status) return status;
    }
    return S2_OK;
}

/* ------------------------------------------------------------------ folders */

/* Folder and parents; *created says whether the folder itself is new. 0 or errno. */
static int make_folders(const char *dir, bool *created)
{
    char path[PATH_MAX];
    size_t length = strlen(dir);
    if (length >= sizeof path) return ENAMETOOLONG;
    memcpy(path, dir, length + 1);
    for (size_t i = 1; i < length; i++) {
        if (path[i] != '/') continue;
        path[i] = 0;
        const int error = mkdir(path, 0777) == 0 ? 0 : errno;
        if (error && error != EEXIST && access(path, F_OK) != 0) return error;
        path[i] = '/';
    }
    *created = mkdir(path, 0777) == 0;
    if (*created) return 0;
    const int error = errno;
    struct stat st;
    if (stat(path, &st) != 0) return error == EEXIST ? errno : error;
    if (!S_ISDIR(st.st_mode)) return ENOTDIR;
    return access(path, W_OK | X_OK) == 0 ? 0 : errno;
}

static bool is_png(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".png") == 0;
}

static bool is_numbered_png(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    return digits >= 5 && strcmp(name + digits, ".png") == 0;
}

static bool is_number(const char *name)
{
    return *name && !name[strspn(name, "0123456789")];
}

/* What `visit` makes of the entries of a folder, added up. */
typedef int visit_fn(const char *folder, const char *name);
static int visit_folder(const char *folder, visit_fn *visit)
{
    DIR *stream = opendir(folder);
    if (!stream) return 0;
    int sum = 0;
    for (struct dirent *e; (e = readdir(stream));) sum += visit(folder, e->d_name);
    closedir(stream);
    return sum;
}

static int visit_below(const char *folder, const char *name, visit_fn *visit)
{
    char *path = is_number(name) ? fmt_output_join(folder, name) : NULL;
    int sum = path ? visit_folder(path, visit) : 0;
    free(path);
    return sum;
}

static int count_png(const char *folder, const char *name)
{
    (void)folder;
    return is_png(name);
}

static int count_png_below(const char *folder, const char *name)
{
    return visit_below(folder, name, count_png);
}

static int remove_numbered(const char *folder, const char *name)
{
    char *path = is_numbered_png(name) ? fmt_output_join(folder, name) : NULL;
    int removed = path && unlink(path) == 0;
    free(path);
    return removed;
}

static int remove_numbered_below(const char *folder, const char *name)
{
    int removed = visit_below(folder, name, remove_numbered);
    char *path = removed ? fmt_output_join(folder, name) : NULL;
    if (path) rmdir(path); /* of an object that this run may not have; stays if something else is in it */
    free(path);
    return removed;
}

static enum s2_status begin(struct fmt_sink *sink, struct s2_err *err)
{
    struct sink_png *s = (struct sink_png *)sink;
    if (s->config->overwrite && !s->config->stills) {
        int removed = visit_folder(s->dir, s->per_object ? remove_numbered_below : remove_numbered);
        if (removed)
            s2_log(S2_LOG_INFO, "%s: removed %d PNG file%s of an earlier run", s->dir, removed, s2_plural(removed));
    }
    for (size_t i = 0; s->per_object && i < s->config->n_objects; i++) {
        char folder[PATH_MAX];
        bool created;
        int n = snprintf(folder, sizeof folder, "%s/%d", s->dir, s->config->objects[i].id);
        int error = n < (int)sizeof folder ? make_folders(folder, &created) : ENAMETOOLONG;
        if (error) return fmt_output_failed(err, folder, "cannot be written to", error);
    }
    return S2_OK;
}

/* ------------------------------------------------------------------ the sink */

static enum s2_status finish(struct fmt_sink *sink, int64_t *kept, struct s2_err *err)
{
    (void)sink;
    (void)kept;
    (void)err;
    return S2_OK; /* every file is whole since it has its name */
}

static void free_sink(struct fmt_sink *sink)
{
    struct sink_png *s = (struct sink_png *)sink;
    if (s->created) rmdir(s->dir); /* only an empty one goes */
    for (int i = 0; i < FMT_SINK_WORKERS; i++) {
        fmt_text_free(&s->page[i].bytes);
        fmt_png_rows_free(&s->page[i].rows);
        free(s->page[i].row);
    }
    free(s);
}

static enum s2_status check_ids(const struct fmt_outputs_config *c, struct s2_err *err)
{
    for (size_t i = 0; i < c->n_objects; i++)
        if (c->objects[i].id > 255)
            return s2_fail(err, S2_E_USAGE,
                           "%s: an id map has room for ids 1 to 255, not for object %d; use --png-objects or --rle",
                           c->png_dir, c->objects[i].id);
    return S2_OK;
}

static enum s2_status open_sink(struct fmt_sink **out, const struct fmt_outputs_config *c, bool per_object,
                                struct s2_err *err)
{
    *out = NULL;
    const char *dir = per_object ? c->png_objects_dir : c->png_dir;
    enum s2_status status = per_object ? S2_OK : check_ids(c, err);
    if (status) return status;
    int held = c->overwrite ? 0 : visit_folder(dir, per_object ? count_png_below : count_png);
    if (held)
        return s2_fail(err, S2_E_OUTPUT, "%s: holds %d PNG file%s; give --overwrite to replace them, or another folder",
                       dir, held, s2_plural(held));

    struct sink_png *s = calloc(1, sizeof *s);
    if (!s) return s2_no_memory(err, "the PNG writer", sizeof *s);
    s->sink = (struct fmt_sink){
        .name = per_object ? "png-objects" : "png",
        .workers = fmt_sink_workers(),
        .begin = begin,
        .write = per_object ? write_objects : write_map,
        .finish = finish,
        .free = free_sink,
    };
    s->config = c;
    s->dir = dir;
    s->per_object = per_object;
    voc_palette(s->color);
    for (size_t i = 0; !per_object && i < c->n_objects; i++) s->id_of[i + 1] = (uint8_t)c->objects[i].id;
    const size_t width = (size_t)c->width;
    bool ok = true;
    for (int i = 0; i < s->sink.workers; i++)
        ok = ok && fmt_png_rows_open(&s->page[i].rows, per_object ? (width + 7) / 8 : width) &&
             (per_object || (s->page[i].row = malloc(width)));
    int error = ok ? make_folders(dir, &s->created) : 0;
    if (!ok) status = s2_no_memory(err, "rows of a PNG picture", width);
    if (error) status = fmt_output_failed(err, dir, "cannot be written to", error);
    if (status) {
        free_sink(&s->sink);
        return status;
    }
    *out = &s->sink;
    return S2_OK;
}

enum s2_status fmt_sink_png_open(struct fmt_sink **out, const struct fmt_outputs_config *c, struct s2_err *err)
{
    return open_sink(out, c, false, err);
}

enum s2_status fmt_sink_png_objects_open(struct fmt_sink **out, const struct fmt_outputs_config *c, struct s2_err *err)
{
    return open_sink(out, c, true, err);
}

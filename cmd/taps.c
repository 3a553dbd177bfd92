/* taps.c - see taps.h. The .npy header is NumPy's format 1.0 (numpy/lib/format.py). */
#include "taps.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <png.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"

struct cmd_taps {
    const char *dir;
    const struct cmd_tap_frames *frames;
    const struct fmt_object *objects;
    size_t n_objects;
    struct cmd_json scores;
    int n_frames;      /* seen so far */
    int mirrored;      /* frames of a clip that the session sees backwards; 0: forward */
    struct s2_err err; /* the first failure of a tap */
};

static enum s2_status write_error(const char *path, struct s2_err *err)
{
    return s2_fail(err, S2_E_OUTPUT, "%s: cannot be written: %s", path, strerror(errno));
}

/* Makes the folders of path, which ends in a file name or in '/'. */
static enum s2_status make_folders(const char *path, struct s2_err *err)
{
    char part[4096];
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(p - path), path);
        if (mkdir(part, 0777) && errno != EEXIST) return write_error(part, err);
    }
    return S2_OK;
}

/* A path below the folder, its folders made, and the file open for writing; NULL with *err filled. */
static FILE *create(const struct cmd_taps *t, char path[4096], struct s2_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static FILE *create(const struct cmd_taps *t, char path[4096], struct s2_err *err, const char *fmt, ...)
{
    char name[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    if ((size_t)snprintf(path, 4096, "%s/%s", t->dir, name) >= 4096) {
        s2_fail(err, S2_E_OUTPUT, "%s/%s: the path is too long", t->dir, name);
        return NULL;
    }
    if (make_folders(path, err)) return NULL;
    FILE *f = fopen(path, "wbe");
    if (!f) write_error(path, err);
    return f;
}

static enum s2_status finish(FILE *f, const char *path, struct s2_err *err)
{
    const bool ok = !ferror(f);
    if (fclose(f) == 0 && ok) return S2_OK;
    write_error(path, err);
    unlink(path); // no file that is cut
    return S2_E_OUTPUT;
}

static enum s2_status write_npy(FILE *f, const char *path, const float *data, const int64_t *dim, int ndim,
                                struct s2_err *err)
{
    char header[256];
    size_t elements = 1;
    int n = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < ndim; i++) {
        n += snprintf(header + n, sizeof header - (size_t)n, "%s%" PRId64 "%s", i ? " " : "", dim[i],
                      i + 1 < ndim || ndim == 1 ? "," : "");
        elements *= (size_t)dim[i];
    }
    n += snprintf(header + n, sizeof header - (size_t)n, "), }");
    const int length = (10 + n + 1 + 63) / 64 * 64 - 10; // magic and header together are a multiple of 64 bytes
    const uint8_t magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)(length & 255), (uint8_t)(length >> 8)};
    fwrite(magic, 1, sizeof magic, f);
    fprintf(f, "%-*s\n", length - 1, header);
    fwrite(data, sizeof *data, elements, f);
    return finish(f, path, err);
}

static void on_png_error(png_structp png, png_const_charp message)
{
    (void)message;
    longjmp(png_jmpbuf(png), 1);
}

/* A 1-bit grey PNG. Its rows are those of struct s2_bits as they stand. */
static bool write_png(FILE *f, const struct s2_bits *bits)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, on_png_error, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        return false;
    }
    png_init_io(png, f);
    png_set_IHDR(png, info, (png_uint_32)bits->width, (png_uint_32)bits->height, 1, PNG_COLOR_TYPE_GRAY,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int y = 0; y < bits->height; y++) png_write_row(png, bits->data + (size_t)y * bits->stride);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return true;
}

static bool wanted(const struct cmd_tap_frames *f, int frame)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->frame[i] == frame) return true;
    }
    return f->all;
}

static bool is_empty(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) return errno == ENOENT;
    bool empty = true;
    for (const struct dirent *e = readdir(d); e && empty; e = readdir(d)) {
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    }
    closedir(d);
    return empty;
}

enum s2_status cmd_taps_open(struct cmd_taps **out, const char *dir, bool overwrite,
                             const struct cmd_tap_frames *frames, const struct fmt_object *objects, size_t n_objects,
                             struct s2_err *err)
{
    *out = NULL;
    if (!overwrite && !is_empty(dir)) {
        return s2_fail(err, S2_E_OUTPUT, "%s: holds something already; give --overwrite, or another folder", dir);
    }
    struct cmd_taps *t = calloc(1, sizeof *t);
    if (!t) return s2_no_memory(err, "the debug taps", sizeof *t);
    *t = (struct cmd_taps){.dir = dir, .frames = frames, .objects = objects, .n_objects = n_objects};
    cmd_json_object(&t->scores, NULL);
    *out = t;
    return S2_OK;
}

void cmd_taps_mirror(struct cmd_taps *t, int n)
{
    t->mirrored = n;
}

void cmd_taps_tensor(void *ctx, int frame, int object, const char *kind, const char *name, const float *data,
                     const int64_t *dim, int ndim)
{
    struct cmd_taps *t = ctx;
    if (t->mirrored) frame = t->mirrored - 1 - frame;
    if (t->err.status || !wanted(t->frames, frame)) return;
    char path[4096], folder[96];
    if (object < 0)
        snprintf(folder, sizeof folder, "f%05d", frame);
    else
        snprintf(folder, sizeof folder, "f%05d.o%d.%s", frame, t->objects[object].id, kind);
    FILE *f = create(t, path, &t->err, "taps/%s/%s.npy", folder, name);
    if (f) write_npy(f, path, data, dim, ndim, &t->err);
}

static enum s2_status write_object(struct cmd_taps *t, int frame, int object, const struct s2_session *session,
                                   const struct fmt_record_object *result, struct s2_err *err)
{
    char path[4096], key[48];
    const int id = t->objects[object].id;
    int side;
    const float *logits = s2_session_logits(session, object, &side);
    if (!logits) return S2_OK;
    snprintf(key, sizeof key, "%d/%d", id, frame);
    cmd_json_number(&t->scores, key, result->score, 9);

    FILE *f = create(t, path, err, "masks/%d/%05d.png", id, frame);
    if (!f) return err->status;
    const bool ok = write_png(f, &result->bits);
    if (!ok) {
        write_error(path, err);
        fclose(f);
        unlink(path);
        return S2_E_OUTPUT;
    }
    if (finish(f, path, err)) return err->status;

    if (!(f = create(t, path, err, "logits/%d/%05d.npy", id, frame))) return err->status;
    return write_npy(f, path, logits, (const int64_t[]){side, side}, 2, err);
}

enum s2_status cmd_taps_frame(struct cmd_taps *t, int frame, const struct s2_session *session,
                              const struct fmt_record_object *results, struct s2_err *err)
{
    enum s2_status status = S2_OK;
    t->n_frames++;
    if (t->err.status) return s2_fail(err, t->err.status, "%s", t->err.text);
    for (size_t i = 0; i < t->n_objects && !status; i++) {
        if (results[i].started) status = write_object(t, frame, (int)i, session, &results[i], err);
    }
    return status;
}

static enum s2_status write_scores(struct cmd_taps *t, struct s2_err *err)
{
    char path[4096];
    FILE *f = create(t, path, err, "scores.json");
    if (!f) return S2_E_OUTPUT;
    const bool ok = cmd_json_print(&t->scores, f);
    if (fclose(f) == 0 && ok) return S2_OK;
    write_error(path, err);
    unlink(path);
    return S2_E_OUTPUT;
}

enum s2_status cmd_taps_close(struct cmd_taps *t, struct s2_err *err)
{
    if (!t) return S2_OK;
    cmd_json_end(&t->scores);
    const enum s2_status status = t->n_frames > 0 ? write_scores(t, err) : S2_OK;
    cmd_json_free(&t->scores);
    free(t);
    return status;
}

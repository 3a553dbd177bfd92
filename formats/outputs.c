/* outputs.c - the outputs of a run: a pool of frame records, and a writer for each output.
 *
 * The tracker fills a record and puts it; every writer takes the records in the order they were put, and the
 * last one that is through with a record gives it back to the pool. The pool bounds what is in flight: when
 * the writers are slower than the tracker, fmt_outputs_take waits. All buffers are allocated on opening. */
#include "sink.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    POOL = 12,     /* records in flight at most */
    HELD = 4,      /* of them, what the tracker may hold */
    MAX_SINKS = 4, /* one of each kind */
    ROW_ALIGN = 64 /* of picture rows, for the converters' vector code */
};

struct slot {
    struct fmt_record record; /* first: a record's address is its slot's */
    int readers;              /* writers that are not through with it */
};

struct writer {
    struct fmt_outputs *outputs;
    struct fmt_sink *sink;
    int64_t next;    /* number of the put that a thread takes next */
    int64_t turn;    /* of the one that is written next, where they are written in order */
    int64_t written; /* frames that it has written; in the end, that are kept */
    int n_threads, n_started;
    pthread_t thread[FMT_SINK_WORKERS];
    pthread_cond_t work;                      /* a frame was put, or none will be */
    pthread_cond_t turn_of[FMT_SINK_WORKERS]; /* put number n is waited for with n % FMT_SINK_WORKERS */
    struct s2_err error;                      /* why it gave up */
    double seconds;
};

struct fmt_outputs {
    struct fmt_outputs_config config;
    int n_slots; /* what the tracker holds and what the writers of a sink are at */
    struct slot slot[POOL];
    struct slot *unused[POOL];
    int n_unused;
    struct slot *queue[POOL]; /* put number n is at n % POOL: n + POOL cannot be put before all have taken n */
    int64_t n_put;
    bool closing, dropping; /* no more puts; nothing more is written */
    struct writer writer[MAX_SINKS];
    int n_writers;
    struct writer *failed; /* the first one */
    pthread_mutex_t lock;
    pthread_cond_t freed; /* a record is unused, or a writer failed */
    const char *names[MAX_SINKS];
    double seconds[MAX_SINKS];
};

/* ------------------------------------------------------------------ what sinks share */

int fmt_sink_workers(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN) >= 12 ? FMT_SINK_WORKERS : 3;
}

enum s2_status fmt_output_failed(struct s2_err *err, const char *path, const char *what, int error)
{
    return s2_fail(err, S2_E_OUTPUT, "%s: %s: %s", path, what, strerror(error));
}

enum s2_status fmt_output_check_file(const char *path, bool overwrite, struct s2_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        if (errno == ENOENT) return S2_OK;
        return fmt_output_failed(err, path, "cannot be written", errno);
    }
    if (S_ISDIR(st.st_mode)) return s2_fail(err, S2_E_OUTPUT, "%s: is a folder; give the name of a file", path);
    if (!S_ISREG(st.st_mode)) return s2_fail(err, S2_E_OUTPUT, "%s: is not a plain file", path);
    if (overwrite) return S2_OK;
    return s2_fail(err, S2_E_OUTPUT, "%s: exists; give --overwrite to replace it, or another name", path);
}

char *fmt_output_join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + 1 + strlen(name) + 1;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", folder, name);
    return path;
}

char *fmt_output_part(const char *path)
{
    size_t size = strlen(path) + sizeof ".part";
    char *part = malloc(size);
    if (part) snprintf(part, size, "%s.part", path);
    return part;
}

int fmt_run_end(const uint16_t *owner, int x, int width)
{
    const uint64_t four = owner[x] * UINT64_C(0x0001000100010001);
    int end = x + 1;
    for (uint64_t next; end + 4 <= width && (memcpy(&next, owner + end, sizeof next), next == four);) end += 4;
    while (end < width && owner[end] == owner[x]) end++;
    return end;
}

int fmt_output_write(int fd, const char *bytes, size_t n, int64_t offset)
{
    while (n) {
        ssize_t wrote = offset < 0 ? write(fd, bytes, n) : pwrite(fd, bytes, n, offset);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) { /* somebody else's end does not block */
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (wrote < 0) return errno;
        if (wrote == 0) return ENOSPC;
        bytes += wrote;
        n -= (size_t)wrote;
        if (offset >= 0) offset += wrote;
    }
    return 0;
}

/* ------------------------------------------------------------------ paths that would clash */

/* The path without links, "." and ".."; of its longest existing part if it does not exist. NULL: no memory. */
static char *resolve(const char *path)
{
    char *whole = realpath(path, NULL);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    if (whole || length == 0 || (length == 1 && strchr("./", path[0]))) return whole ? whole : strdup(path);

    size_t slash = length;
    while (slash && path[slash - 1] != '/') slash--;
    char *parent = slash ? strndup(path, slash) : strdup(".");
    char *folder = parent ? resolve(parent) : NULL;
    char *name = strndup(path + slash, length - slash);
    char *joined = folder && name ? fmt_output_join(strcmp(folder, "/") ? folder : "", name) : NULL;
    free(parent);
    free(folder);
    free(name);
    return joined;
}

/* Folder that holds the frames of a clip made of stills, resolved. */
static char *stills_folder(const char *input_path)
{
    struct stat st;
    if (stat(input_path, &st) == 0 && S_ISDIR(st.st_mode)) return resolve(input_path);
    char *file = resolve(input_path);
    char *slash = file ? strrchr(file, '/') : NULL;
    if (slash) slash[slash == file] = 0;
    return file;
}

/* The folder of one object must be neither the id maps' folder nor the input's. */
static enum s2_status check_object_folders(const struct fmt_outputs_config *c, const char *maps, const char *frames,
                                           struct s2_err *err)
{
    for (size_t i = 0; i < c->n_objects; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", c->objects[i].id);
        char *folder = fmt_output_join(c->png_objects_dir, id);
        char *path = folder ? resolve(folder) : NULL;
        enum s2_status status = S2_OK;
        if (!path)
            status = s2_no_memory(err, "a path", strlen(c->png_objects_dir));
        else if (maps && strcmp(path, maps) == 0)
            status = s2_fail(err, S2_E_USAGE, "%s: is the folder of --png and of object %d in --png-objects", folder,
                             c->objects[i].id);
        else if (frames && strcmp(path, frames) == 0)
            status = s2_fail(err, S2_E_USAGE, "%s: holds the input; masks there would replace its frames", folder);
        free(path);
        free(folder);
        if (status) return status;
    }
    return S2_OK;
}

/* Two outputs of one path, or one that would replace the input. */
static enum s2_status check_paths(const struct fmt_outputs_config *c, struct s2_err *err)
{
    enum { MAPS, OBJECTS, RLE, OVERLAY, N };
    static const char *const option[N] = {"--png", "--png-objects", "--rle", "--overlay"};
    const char *given[N] = {c->png_dir, c->png_objects_dir, c->rle_path, c->overlay_path};
    if (c->rle_path && strcmp(c->rle_path, "-") == 0) given[RLE] = NULL;
    bool has_input = c->input_path && strcmp(c->input_path, "-") != 0;
    char *path[N] = {0}, *input = NULL, *frames = NULL;
    enum s2_status status = S2_OK;

    for (int i = 0; i < N && !status; i++)
        if (given[i] && !(path[i] = resolve(given[i]))) status = s2_no_memory(err, "a path", strlen(given[i]));
    if (!status && has_input && !(input = resolve(c->input_path)))
        status = s2_no_memory(err, "a path", strlen(c->input_path));
    if (!status && has_input && c->stills && !(frames = stills_folder(c->input_path)))
        status = s2_no_memory(err, "a path", strlen(c->input_path));

    for (int i = 0; i < N && !status; i++) {
        if (!path[i]) continue;
        for (int k = 0; k < i && !status; k++)
            if (path[k] && strcmp(path[i], path[k]) == 0)
                status = s2_fail(err, S2_E_USAGE, "%s: is given to %s and to %s; every output needs its own path",
                                 given[i], option[k], option[i]);
        if (status) break;
        if (input && strcmp(path[i], input) == 0)
            status = s2_fail(err, S2_E_USAGE, "%s: is the input; give %s another path", given[i], option[i]);
        else if (frames && i == MAPS && strcmp(path[i], frames) == 0)
            status = s2_fail(err, S2_E_USAGE, "%s: holds the input; masks there would replace its frames", given[i]);
    }
    if (!status && c->png_objects_dir && (path[MAPS] || frames))
        status = check_object_folders(c, path[MAPS], frames, err);

    for (int i = 0; i < N; i++) free(path[i]);
    free(input);
    free(frames);
    return status;
}

/* ------------------------------------------------------------------ writers */

/* The record that the writer writes next; NULL when none will come. Called with the lock held. */
static struct slot *next_slot(struct writer *w)
{
    struct fmt_outputs *o = w->outputs;
    while (w->next == o->n_put && !o->closing) pthread_cond_wait(&w->work, &o->lock);
    return w->next == o->n_put ? NULL : o->queue[w->next++ % POOL];
}

static void give_back(struct fmt_outputs *o, struct slot *slot)
{
    o->unused[o->n_unused++] = slot;
    pthread_cond_signal(&o->freed);
}

static void fail_writer(struct writer *w, const struct s2_err *err)
{
    w->error = *err;
    if (w->outputs->failed) return;
    w->outputs->failed = w;
    pthread_cond_signal(&w->outputs->freed);
}

typedef enum s2_status part_fn(struct fmt_sink *, int worker, const struct fmt_record *, struct s2_err *);

/* One part of writing a frame, without the lock. Frames after a failed one are let go. */
static void do_part(struct writer *w, part_fn *part, int worker, const struct slot *slot)
{
    struct fmt_outputs *o = w->outputs;
    if (!part || w->error.status || o->dropping) return;
    pthread_mutex_unlock(&o->lock);
    struct s2_err err = {0};
    double start = s2_now();
    enum s2_status status = part(w->sink, worker, &slot->record, &err);
    double seconds = s2_now() - start;
    pthread_mutex_lock(&o->lock);
    w->seconds += seconds;
    if (status) fail_writer(w, &err);
    if (!status && part == w->sink->write) w->written++;
}

/* What the thread that writes put `number` waits on: as many numbers are under way as there are threads. */
static pthread_cond_t *turn_of(struct writer *w, int64_t number)
{
    return &w->turn_of[number % FMT_SINK_WORKERS];
}

static void *write_frames(void *arg)
{
    struct writer *w = arg;
    struct fmt_outputs *o = w->outputs;
    pthread_mutex_lock(&o->lock);
    int worker = w->n_started++;
    for (struct slot *slot; (slot = next_slot(w));) {
        int64_t number = w->next - 1;
        do_part(w, w->sink->prepare, worker, slot);
        while (w->sink->in_order && w->turn != number) pthread_cond_wait(turn_of(w, number), &o->lock);
        do_part(w, w->sink->write, worker, slot);
        pthread_cond_signal(turn_of(w, ++w->turn));
        if (--slot->readers == 0) give_back(o, slot);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Signals stay with the caller's threads: a writer is never interrupted. */
static enum s2_status start_writer(struct writer *w, struct s2_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (!error && w->n_threads < w->sink->workers) {
        error = pthread_create(&w->thread[w->n_threads], NULL, write_frames, w);
        if (!error) w->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return s2_fail(err, S2_E_DEVICE, "no thread for writing %s: %s", w->sink->name, strerror(error));
    return S2_OK;
}

static void join_writers(struct fmt_outputs *o, bool dropping)
{
    pthread_mutex_lock(&o->lock);
    o->closing = true;
    o->dropping = dropping;
    for (int i = 0; i < o->n_writers; i++) pthread_cond_broadcast(&o->writer[i].work);
    pthread_mutex_unlock(&o->lock);
    for (int i = 0; i < o->n_writers; i++)
        while (o->writer[i].n_threads) pthread_join(o->writer[i].thread[--o->writer[i].n_threads], NULL);
}

/* ------------------------------------------------------------------ open */

/* memory: NULL for the heap */
static enum s2_status allocate(void **out, const struct s2_memory *memory, const char *what, size_t rows,
                               size_t row_bytes, struct s2_err *err)
{
    size_t bytes;
    if (!s2_mul(rows, row_bytes, &bytes) || !s2_add(bytes, ROW_ALIGN, &bytes)) return s2_no_memory(err, what, SIZE_MAX);
    bytes -= bytes % ROW_ALIGN;
    *out = memory ? memory->alloc(memory->ctx, bytes) : aligned_alloc(ROW_ALIGN, bytes);
    if (!*out) return s2_no_memory(err, what, bytes);
    return S2_OK;
}

static void release(const struct s2_memory *memory, void *p)
{
    if (p && memory)
        memory->free(memory->ctx, p);
    else
        free(p);
}

static enum s2_status allocate_record(struct fmt_record *r, const struct fmt_outputs_config *c, struct s2_err *err)
{
    size_t width = (size_t)c->width, height = (size_t)c->height;
    struct s2_image *image = &r->frame.image;
    image->width = c->width;
    image->height = c->height;
    image->stride = (3 * width + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    enum s2_status status = allocate((void **)&image->rgb, NULL, "pictures in flight", height, image->stride, err);
    if (!status && (c->png_dir || c->overlay_path))
        status = allocate((void **)&r->owner, c->memory, "id maps in flight", height, width * sizeof *r->owner, err);
    if (status) return status;

    r->object = calloc(c->n_objects + 1, sizeof *r->object);
    if (!r->object) return s2_no_memory(err, "results in flight", c->n_objects * sizeof *r->object);
    for (size_t i = 0; i < c->n_objects; i++) {
        struct s2_bits *bits = &r->object[i].bits;
        bits->width = c->width;
        bits->height = c->height;
        bits->stride = s2_mask_stride(c->width);
        status = allocate((void **)&bits->data, c->memory, "masks in flight", height, bits->stride, err);
        if (status) return status;
        memset(bits->data, 0, height * bits->stride);
    }
    return S2_OK;
}

static void free_record(struct fmt_record *r, const struct fmt_outputs_config *c)
{
    for (size_t i = 0; r->object && i < c->n_objects; i++) release(c->memory, r->object[i].bits.data);
    free(r->object);
    release(c->memory, r->owner);
    free(r->frame.image.rgb);
    fmt_frame_release(&r->frame);
}

typedef enum s2_status open_fn(struct fmt_sink **, const struct fmt_outputs_config *, struct s2_err *);

static enum s2_status add_writer(struct fmt_outputs *o, const char *path, open_fn *open_sink, struct s2_err *err)
{
    if (!path) return S2_OK;
    struct writer *w = &o->writer[o->n_writers];
    enum s2_status status = open_sink(&w->sink, &o->config, err);
    if (status) return status;
    w->outputs = o;
    pthread_cond_init(&w->work, NULL);
    for (int i = 0; i < FMT_SINK_WORKERS; i++) pthread_cond_init(&w->turn_of[i], NULL);
    o->names[o->n_writers++] = w->sink->name;
    return S2_OK;
}

enum s2_status fmt_outputs_open(struct fmt_outputs **out, const struct fmt_outputs_config *config, struct s2_err *err)
{
    *out = NULL;
    struct fmt_outputs *o = calloc(1, sizeof *o);
    if (!o) return s2_no_memory(err, "the outputs", sizeof *o);
    o->config = *config;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->freed, NULL);

    enum s2_status status = check_paths(&o->config, err);
    o->n_slots = HELD + fmt_sink_workers();
    for (int i = 0; i < o->n_slots && !status; i++) {
        status = allocate_record(&o->slot[i].record, &o->config, err);
        o->unused[o->n_unused++] = &o->slot[i];
    }
    if (!status) status = add_writer(o, config->png_dir, fmt_sink_png_open, err);
    if (!status) status = add_writer(o, config->png_objects_dir, fmt_sink_png_objects_open, err);
    if (!status) status = add_writer(o, config->rle_path, fmt_sink_rle_open, err);
    if (!status) status = add_writer(o, config->overlay_path, fmt_sink_overlay_open, err);
    for (int i = 0; i < o->n_writers && !status; i++) status = start_writer(&o->writer[i], err);
    if (status) {
        fmt_outputs_discard(o);
        return status;
    }
    *out = o;
    return S2_OK;
}

/* ------------------------------------------------------------------ the run */

struct fmt_record *fmt_outputs_take(struct fmt_outputs *o)
{
    pthread_mutex_lock(&o->lock);
    while (!o->n_unused && !o->failed) pthread_cond_wait(&o->freed, &o->lock);
    struct slot *slot = o->failed ? NULL : o->unused[--o->n_unused];
    pthread_mutex_unlock(&o->lock);
    return slot ? &slot->record : NULL;
}

static void begin_writers(struct fmt_outputs *o)
{
    for (int i = 0; i < o->n_writers; i++) {
        struct writer *w = &o->writer[i];
        struct s2_err err = {0};
        if (!w->sink->begin || !w->sink->begin(w->sink, &err)) continue;
        pthread_mutex_lock(&o->lock);
        fail_writer(w, &err);
        pthread_mutex_unlock(&o->lock);
    }
}

void fmt_outputs_put(struct fmt_outputs *o, struct fmt_record *record)
{
    if (o->n_put == 0) begin_writers(o);
    struct slot *slot = (struct slot *)record;
    pthread_mutex_lock(&o->lock);
    slot->readers = o->n_writers;
    o->queue[o->n_put++ % POOL] = slot;
    if (slot->readers == 0) give_back(o, slot);
    for (int i = 0; i < o->n_writers; i++) pthread_cond_signal(&o->writer[i].work);
    pthread_mutex_unlock(&o->lock);
}

void fmt_outputs_return(struct fmt_outputs *o, struct fmt_record *record)
{
    pthread_mutex_lock(&o->lock);
    give_back(o, (struct slot *)record);
    pthread_mutex_unlock(&o->lock);
}

int fmt_outputs_times(const struct fmt_outputs *outputs, const char *const **names, const double **seconds)
{
    struct fmt_outputs *o = (struct fmt_outputs *)outputs; /* only the copy of the times changes */
    pthread_mutex_lock(&o->lock);
    for (int i = 0; i < o->n_writers; i++) o->seconds[i] = o->writer[i].seconds;
    pthread_mutex_unlock(&o->lock);
    *names = o->names;
    *seconds = o->seconds;
    return o->n_writers;
}

/* ------------------------------------------------------------------ the end */

/* Idempotent but for the memory of *o itself. */
static void free_outputs(struct fmt_outputs *o)
{
    for (int i = 0; i < o->n_writers; i++) {
        struct writer *w = &o->writer[i];
        w->sink->free(w->sink);
        pthread_cond_destroy(&w->work);
        for (int k = 0; k < FMT_SINK_WORKERS; k++) pthread_cond_destroy(&w->turn_of[k]);
    }
    for (int i = 0; i < o->n_slots; i++) free_record(&o->slot[i].record, &o->config);
    pthread_cond_destroy(&o->freed);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

static enum s2_status tell_failure(const struct writer *w, struct s2_err *err)
{
    if (w->written == 0) return s2_fail(err, w->error.status, "%s; nothing of it is kept", w->error.text);
    return s2_fail(err, w->error.status, "%s; %lld frame%s before it %s kept", w->error.text, (long long)w->written,
                   s2_plural(w->written), w->written == 1 ? "is" : "are");
}

enum s2_status fmt_outputs_finish(struct fmt_outputs *o, struct s2_err *err)
{
    join_writers(o, false);
    for (int i = 0; i < o->n_writers; i++) {
        struct writer *w = &o->writer[i];
        struct s2_err failure = {0};
        if (w->sink->finish(w->sink, &w->written, &failure) && !w->error.status) fail_writer(w, &failure);
    }
    for (int i = 0; i < o->n_writers; i++) {
        struct s2_err more = {0};
        if (!o->writer[i].error.status || o->failed == &o->writer[i]) continue;
        tell_failure(&o->writer[i], &more);
        s2_log(S2_LOG_WARN, "%s", more.text);
    }
    const enum s2_status status = o->failed ? tell_failure(o->failed, err) : S2_OK;
    free_outputs(o);
    return status;
}

void fmt_outputs_discard(struct fmt_outputs *o)
{
    if (!o) return;
    join_writers(o, true);
    free_outputs(o);
}

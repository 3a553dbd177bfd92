/* video_input.c - what the path of a clip means: folder, pattern, pipe, URL or file. */
#include "video_input.h"
#include "av_log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libavutil/mem.h>

enum { PIPE_BUFFER = 1 << 16, POLL_MS = 50 };

static int interrupted(void *ctx)
{
    return atomic_load(((struct fmt_input *)ctx)->stop);
}

/* ------------------------------------------------------------------ pipes */

/* FFmpeg's own pipe protocol blocks in read(); this one looks at `stop` while it waits. */
static int read_pipe(void *ctx, uint8_t *buf, int size)
{
    struct fmt_input *in = ctx;
    for (;;) {
        if (interrupted(in)) return AVERROR_EXIT;
        struct pollfd p = {.fd = in->fd, .events = POLLIN};
        int ready = poll(&p, 1, POLL_MS);
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        if (ready < 0) return AVERROR(errno);
        ssize_t n = read(in->fd, buf, (size_t)size);
        if (n > 0) return (int)n;
        if (n == 0) return AVERROR_EOF;
        if (errno != EINTR && errno != EAGAIN) return AVERROR(errno);
    }
}

/* For a regular file on standard input: then every container works. */
static int64_t seek_fd(void *ctx, int64_t offset, int whence)
{
    struct fmt_input *in = ctx;
    struct stat st;
    if (whence & AVSEEK_SIZE) return fstat(in->fd, &st) ? AVERROR(errno) : st.st_size;
    int64_t at = lseek(in->fd, offset, whence & ~AVSEEK_FORCE);
    return at < 0 ? AVERROR(errno) : at;
}

static enum s2_status open_pipe(struct fmt_input *in, struct s2_err *err)
{
    struct stat st;
    bool regular = !fstat(in->fd, &st) && S_ISREG(st.st_mode);
    uint8_t *buffer = av_malloc(PIPE_BUFFER);
    if (buffer) in->pipe = avio_alloc_context(buffer, PIPE_BUFFER, 0, in, read_pipe, NULL, regular ? seek_fd : NULL);
    if (in->pipe) return S2_OK;
    av_free(buffer);
    return s2_no_memory(err, "the input's buffer", PIPE_BUFFER);
}

/* ------------------------------------------------------------------ what a path is */

static bool has_scheme(const char *path)
{
    if (!isalpha((unsigned char)path[0])) return false;
    size_t i = 1;
    while (isalnum((unsigned char)path[i]) || (path[i] && strchr("+-.", path[i]))) i++;
    return !strncmp(path + i, "://", 3);
}

static enum s2_status set_url(struct fmt_input *in, const char *prefix, const char *path, struct s2_err *err)
{
    size_t n = strlen(prefix) + strlen(path) + 1;
    if (!(in->url = malloc(n))) return s2_no_memory(err, "the path", n);
    snprintf(in->url, n, "%s%s", prefix, path);
    return S2_OK;
}

/* Something that exists: a folder, a regular file, or a pipe. */
static enum s2_status look_at(struct fmt_input *in, const char *path, const struct stat *st, struct s2_err *err)
{
    if (S_ISDIR(st->st_mode)) {
        in->is_stills = true;
        return fmt_stills_folder(&in->stills, path, err);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return s2_fail(err, S2_E_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    if (S_ISREG(st->st_mode)) {
        close(fd);
        if (st->st_size == 0) return s2_fail(err, S2_E_INPUT, "%s: the file is empty", path);
        return set_url(in, "file:", path, err);
    }
    in->fd = fd;
    in->own_fd = true;
    enum s2_status status = set_url(in, "", path, err);
    return status ? status : open_pipe(in, err);
}

static enum s2_status classify(struct fmt_input *in, const char *path, bool allow_network, struct s2_err *err)
{
    struct stat st;
    if (!strcmp(path, "-")) {
        in->name = "standard input";
        in->fd = STDIN_FILENO;
        if (isatty(in->fd))
            return s2_fail(err, S2_E_INPUT, "standard input is a terminal; a video stream must come in");
        enum s2_status status = set_url(in, "", "pipe:0", err);
        return status ? status : open_pipe(in, err);
    }
    if (!stat(path, &st)) return look_at(in, path, &st, err);
    int why = errno;
    if (has_scheme(path)) {
        if (!allow_network)
            return s2_fail(err, S2_E_INPUT, "%s: is a URL; URLs are opened only with --allow-network", path);
        in->is_network = true;
        return set_url(in, "", path, err);
    }
    if (why == ENOENT && fmt_stills_is_pattern(path)) {
        in->is_stills = true;
        return fmt_stills_pattern(&in->stills, path, err);
    }
    if (why == ENOENT) return s2_fail(err, S2_E_INPUT, "%s: there is no such file or folder", path);
    return s2_fail(err, S2_E_INPUT, "%s: cannot be opened: %s", path, strerror(why));
}

/* ------------------------------------------------------------------ containers */

static enum s2_status open_container(struct fmt_input *in, struct s2_err *err)
{
    char text[128];
    if (!(in->format = avformat_alloc_context())) return s2_no_memory(err, "the container", sizeof(AVFormatContext));
    in->format->interrupt_callback = (AVIOInterruptCB){interrupted, in};
    in->format->pb = in->pipe;
    AVDictionary *options = NULL;
    if (!in->is_network) av_dict_set(&options, "protocol_whitelist", "file,pipe", 0);
    av_dict_set(&options, "pattern_type", "none", 0); /* a % in the name of a picture is just that */
    int ret = avformat_open_input(&in->format, in->url, NULL, &options);
    av_dict_free(&options);
    if (ret == AVERROR_INVALIDDATA)
        return s2_fail(err, S2_E_INPUT,
                       "%s: is not a video that FFmpeg can read, or its header is damaged or missing%s", in->name,
                       in->pipe && !in->pipe->seekable ? " (a stream needs its index at the front)" : "");
    if (ret < 0) return s2_fail(err, S2_E_INPUT, "%s: cannot be opened: %s", in->name, fmt_av_error(ret, text, 128));
    return S2_OK;
}

/* A file that holds one picture, by its container and its name: such a file has a name to give to its mask. */
static bool is_picture(const struct fmt_input *in, const char *path)
{
    const char *container = in->format->iformat->name;
    size_t n = strlen(container);
    bool images = !strcmp(container, "image2") || (n > 5 && !strcmp(container + n - 5, "_pipe"));
    return images && !in->pipe && !in->is_network && av_match_ext(path, "png,jpg,jpeg,bmp,webp,tif,tiff,pnm,ppm,pgm");
}

enum s2_status fmt_input_open(struct fmt_input *in, const char *path, bool allow_network, const atomic_bool *stop,
                              struct s2_err *err)
{
    fmt_av_log_route();
    *in = (struct fmt_input){.name = path, .fd = -1, .stop = stop};
    enum s2_status status = classify(in, path, allow_network, err);
    if (!status && !in->is_stills) status = open_container(in, err);
    if (!status && in->format && is_picture(in, path)) {
        avformat_close_input(&in->format);
        in->is_stills = true;
        status = fmt_stills_single(&in->stills, path, err);
    }
    if (status) fmt_input_close(in);
    return status;
}

void fmt_input_close(struct fmt_input *in)
{
    avformat_close_input(&in->format);
    if (in->pipe) av_freep(&in->pipe->buffer);
    avio_context_free(&in->pipe);
    if (in->own_fd) close(in->fd);
    fmt_stills_free(&in->stills);
    free(in->url);
    in->url = NULL;
    in->fd = -1;
    in->own_fd = false;
}

int fmt_input_best_stream(const AVFormatContext *format)
{
    int best = -1;
    int64_t best_score = -1;
    for (unsigned i = 0; i < format->nb_streams; i++) {
        const AVStream *st = format->streams[i];
        const AVCodecParameters *par = st->codecpar;
        if (par->codec_type != AVMEDIA_TYPE_VIDEO) continue;
        int64_t score = (int64_t)par->width * par->height;
        if (st->disposition & AV_DISPOSITION_DEFAULT) score |= INT64_C(1) << 60;
        if (!(st->disposition & (AV_DISPOSITION_ATTACHED_PIC | AV_DISPOSITION_TIMED_THUMBNAILS)))
            score |= INT64_C(1) << 61;
        if (score > best_score) {
            best_score = score;
            best = (int)i;
        }
    }
    return best;
}

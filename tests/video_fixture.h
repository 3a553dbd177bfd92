/* video_fixture.h - what the tests of video input share: a temporary folder, clips made in it, clips read whole. */
#ifndef TESTS_VIDEO_FIXTURE_H
#define TESTS_VIDEO_FIXTURE_H

#include "../formats/formats.h"
#include "make_clip.h"

/* The test's own folder, created by video_folder_make and removed with all it holds by video_folder_remove (the init
 * and fini of a suite). */
void video_folder_make(void);
void video_folder_remove(void);
const char *video_path(const char *format, ...) __attribute__((format(printf, 1, 2))); /* in it; 8 stay valid */

/* A clip with the given fields set; the rest are 64x48, 10 frames, 25 fps, MPEG-4. Fails the test if it cannot be made;
 * returns its path. */
const char *video_make(const char *name, struct make_clip);
void video_write(const char *path, const void *bytes, size_t n);
uint8_t *video_slurp(const char *path, size_t *n); /* malloc'ed */
/* Copies `path` with `drop` of its end cut off, as a share of its size. */
const char *video_cut(const char *path, double drop);

enum { VIDEO_MAX_FRAMES = 256 };

/* All that fmt_video delivers. */
struct video_clip {
    struct fmt_video_info info;
    int n;
    struct fmt_frame frame[VIDEO_MAX_FRAMES]; /* image.rgb: malloc'ed, rows packed */
    enum s2_status status;                    /* of the open or the last call */
    struct s2_err err;
    int64_t decoded;
};
struct video_clip *video_read(const char *path, const struct fmt_video_options *); /* NULL: the defaults */
void video_free(struct video_clip *);
const uint8_t *video_pixel(const struct video_clip *, int frame, int x, int y);
/* Fails the test unless the pixel is within `tolerance` of r, g, b in each channel. */
void video_check_pixel(const struct video_clip *, int frame, int x, int y, const int rgb[3], int tolerance);

#endif

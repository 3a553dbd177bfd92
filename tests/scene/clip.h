/* clip.h - writes RGB frames as a lossless clip: FFV1 in Matroska, which decodes to the same bytes. */
#ifndef SCENE_CLIP_H
#define SCENE_CLIP_H

#include <stdint.h>

struct scene_clip;

/* All return 0, or a negative FFmpeg error code. */
int scene_clip_open(struct scene_clip **out, const char *path, int width, int height, int fps);
int scene_clip_put(struct scene_clip *, const uint8_t *rgb);
/* Flushes, closes and frees; NULL allowed. */
int scene_clip_close(struct scene_clip *);

#endif

/* idmap.h - 8-bit masks as PNG files. */
#ifndef SCENE_IDMAP_H
#define SCENE_IDMAP_H

#include <stdint.h>

/* Palette PNG, pixel = id, one colour an object. 0 or -1. */
int scene_idmap_write(const char *path, const uint8_t *ids, int width, int height);
/* Grey, 1-bit or palette PNG of exactly this size, stored values as they are. 0 or -1. */
int scene_idmap_read(const char *path, uint8_t *ids, int width, int height);

#endif

/* scene.h - a clip whose true masks are known: 96 frames of 640x360 at 24 fps, drawn by formula. A ball rolls
 * behind a van and comes back into view; a bird leaves the frame and returns. Seeded: the same frames, byte
 * for byte, on every machine whose libm rounds alike. */
#ifndef SCENE_H
#define SCENE_H

#include <stdint.h>

enum { SCENE_WIDTH = 640, SCENE_HEIGHT = 360, SCENE_FRAMES = 96, SCENE_FPS = 24 };
/* The values of an id map; 0 is background. */
enum { SCENE_BALL = 1, SCENE_VAN = 2, SCENE_BIRD = 3, SCENE_OBJECTS = 3 };

struct scene;

struct scene *scene_open(void); /* NULL: no memory */
/* Frame t: rgb [height][width][3], ids [height][width] of the visible pixels. Either may be NULL. */
void scene_frame(const struct scene *, int t, uint8_t *rgb, uint8_t *ids);
void scene_close(struct scene *); /* NULL allowed */

#endif

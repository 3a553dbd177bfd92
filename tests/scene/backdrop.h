/* backdrop.h - what stands still in the scene: sky, far hills, a field and a road, painted with value noise. */
#ifndef SCENE_BACKDROP_H
#define SCENE_BACKDROP_H

#include <stdint.h>

struct scene_colour {
    double c[3]; /* red, green, blue; 1 is white */
};

/* 0..255 a channel */
struct scene_colour scene_rgb(int r, int g, int b);
/* a + (b - a) t, t clipped to 0..1 */
struct scene_colour scene_mix(struct scene_colour a, struct scene_colour b, double t);

/* Paints rows x columns samples, f32 [rows][columns][3]: sample (row, column) lies at world coordinates
 * x = (column + 0.5) / per_unit - 0.5 - left, y = (row + 0.5) / per_unit - 0.5. 0 on success, -1: no memory. */
int scene_backdrop(uint32_t seed, int rows, int columns, int per_unit, double left, float *out);

#endif

#include "backdrop.h"

#include "random.h"

#include <math.h>
#include <stdlib.h>

#define LATTICE     64
#define MAX_OCTAVES 5

/* Value noise: random lattices, each of half the amplitude and cell of the one before, that wrap at 64 cells. */
struct noise {
    double cell;
    int octaves;
    double g[MAX_OCTAVES][LATTICE][LATTICE];
};

/* In the order in which the lattices are drawn. */
struct textures {
    struct noise cloud, ridge, hill, field, road, verge;
};

static void noise_draw(struct noise *n, struct scene_random *r, double cell, int octaves)
{
    n->cell = cell;
    n->octaves = octaves;
    for (int o = 0; o < octaves; o++)
        for (int i = 0; i < LATTICE * LATTICE; i++) n->g[o][i / LATTICE][i % LATTICE] = scene_random_next(r);
}

static double noise_at(const struct noise *n, double x, double y)
{
    double out = 0, amp = 1, cell = n->cell;
    for (int o = 0; o < n->octaves; o++) {
        double u = x / cell, v = y / cell;
        double fu = u - floor(u), fv = v - floor(v);
        int i0 = (int)floor(u) & (LATTICE - 1), j0 = (int)floor(v) & (LATTICE - 1);
        int i1 = (i0 + 1) & (LATTICE - 1), j1 = (j0 + 1) & (LATTICE - 1);
        fu = fu * fu * (3 - 2 * fu);
        fv = fv * fv * (3 - 2 * fv);
        const double *top = n->g[o][j0], *low = n->g[o][j1];
        out = out +
              amp * ((top[i0] * (1 - fu) + top[i1] * fu) * (1 - fv) + (low[i0] * (1 - fu) + low[i1] * fu) * fv - 0.5);
        amp *= 0.5;
        cell *= 0.5;
    }
    return out;
}

struct scene_colour scene_rgb(int r, int g, int b)
{
    return (struct scene_colour){{r / 255.0, g / 255.0, b / 255.0}};
}

struct scene_colour scene_mix(struct scene_colour a, struct scene_colour b, double t)
{
    t = t > 0 ? (t < 1 ? t : 1) : 0;
    for (int i = 0; i < 3; i++) a.c[i] = a.c[i] + (b.c[i] - a.c[i]) * t;
    return a;
}

static struct scene_colour road_at(const struct textures *tx, double x, double y)
{
    struct scene_colour c =
        scene_mix(scene_rgb(104, 102, 104), scene_rgb(136, 132, 128), 0.5 + noise_at(&tx->road, x, y * 2.5));
    double along = fmod(x, 90);
    if (along < 0) along += 90;
    if (fabs(y - 322) < 3 && along < 48) c = scene_mix(c, scene_rgb(222, 216, 196), 0.85);
    return c;
}

static struct scene_colour sky_at(const struct textures *tx, double x, double y)
{
    struct scene_colour c = scene_mix(scene_rgb(122, 164, 205), scene_rgb(214, 222, 226), y / 190);
    return scene_mix(c, scene_rgb(246, 246, 244), noise_at(&tx->cloud, x * 0.6, y * 1.6) * 2.2 - 0.35);
}

static struct scene_colour colour_at(const struct textures *tx, double hill_y, double verge_y, double x, double y)
{
    if (y > 276) return road_at(tx, x, y);
    if (y > verge_y)
        return scene_mix(scene_rgb(96, 112, 58), scene_rgb(156, 150, 88), 0.5 + 1.2 * noise_at(&tx->field, x, y * 3));
    if (y > hill_y)
        return scene_mix(scene_rgb(74, 98, 92), scene_rgb(112, 128, 104),
                         (y - hill_y) / 60 + noise_at(&tx->hill, x, y));
    return sky_at(tx, x, y);
}

int scene_backdrop(uint32_t seed, int rows, int columns, int per_unit, double left, float *out)
{
    struct textures *tx = malloc(sizeof(*tx));
    if (!tx) return -1;
    struct scene_random r;
    scene_random_seed(&r, &seed, 1);
    noise_draw(&tx->cloud, &r, 90, 4);
    noise_draw(&tx->ridge, &r, 190, 3);
    noise_draw(&tx->hill, &r, 24, 4);
    noise_draw(&tx->field, &r, 40, 5);
    noise_draw(&tx->road, &r, 22, 5);
    noise_draw(&tx->verge, &r, 60, 4);
#pragma omp parallel for schedule(dynamic, 16)
    for (int column = 0; column < columns; column++) {
        double x = (column + 0.5) / per_unit - 0.5 - left;
        double hill_y = 150 + 60 * noise_at(&tx->ridge, x, 0), verge_y = 196 + 5 * noise_at(&tx->verge, x, 0);
        for (int row = 0; row < rows; row++) {
            struct scene_colour c = colour_at(tx, hill_y, verge_y, x, (row + 0.5) / per_unit - 0.5);
            for (int i = 0; i < 3; i++) out[((size_t)row * columns + column) * 3 + i] = (float)c.c[i];
        }
    }
    free(tx);
    return 0;
}

#include "scene.h"

#include "backdrop.h"
#include "random.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define SEED     7
#define PER_UNIT 2  /* samples a pixel, each way */
#define PAN      40 /* the camera moves this far either way */
#define COLUMNS  ((SCENE_WIDTH + 2 * PAN) * PER_UNIT)
#define ROWS     (SCENE_HEIGHT * PER_UNIT)

struct scene {
    float backdrop[ROWS][COLUMNS][3];
};

struct shadow {
    bool cast;
    double x, y, radius;
};

/* A drawn object at a frame: where it is, and the samples around it that may show it or its shadow. */
struct actor {
    uint8_t id;
    /* Distance from the outline, positive inside; where it is, *colour is set (NULL: not wanted). */
    double (*draw)(const struct actor *, double u, double v, struct scene_colour *colour);
    int t;
    double x, y;
    struct shadow shadow;
    int left, right, top, bottom;                         /* of the body, in samples */
    int shade_left, shade_right, shade_top, shade_bottom; /* of the shadow */
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double clip(double t)
{
    return t > 0 ? smaller(t, 1) : 0;
}

static double round_box(double x, double y, double half_width, double half_height, double r)
{
    double qx = fabs(x) - half_width + r, qy = fabs(y) - half_height + r;
    return r - hypot(larger(qx, 0), larger(qy, 0)) - smaller(larger(qx, qy), 0);
}

#define BALL_RADIUS 29.0

static double draw_ball(const struct actor *b, double u, double v, struct scene_colour *colour)
{
    u /= BALL_RADIUS;
    v /= BALL_RADIUS;
    double d2 = u * u + v * v, inside = (1 - sqrt(d2)) * BALL_RADIUS;
    if (!colour || !(inside > 0)) return inside;
    double z = sqrt(clip(1 - d2)), a = 5.35 * b->t / BALL_RADIUS;
    double stripe = cos(a) * u + sin(a) * v; /* the stripes turn as it rolls */
    struct scene_colour c =
        scene_mix(scene_rgb(226, 96, 40), scene_rgb(244, 226, 196), 0.5 + 6 * (0.16 - fabs(stripe)));
    double light = clip(-0.45 * u - 0.6 * v + 0.66 * z);
    for (int i = 0; i < 3; i++) colour->c[i] = c.c[i] * (0.42 + 0.68 * light) + clip(light - 0.93) * 5;
    return inside;
}

static struct scene_colour wheel_colour(double x, double y, double d, double turn)
{
    double spoke = fabs(sin(2.5 * (atan2(y, x) + turn))) * 4 - 1.4;
    struct scene_colour rim = scene_mix(scene_rgb(176, 176, 180), scene_rgb(70, 70, 76), spoke);
    return scene_mix(scene_rgb(30, 30, 33), rim, 11 - d);
}

#define WHEEL 19.0

static double draw_van(const struct actor *van, double u, double v, struct scene_colour *colour)
{
    static const double wheels[2] = {-46, 46};
    double inside = larger(round_box(u - 6, v + 2, 74, 44, 13), round_box(u + 58, v - 17, 30, 25, 9));
    for (int i = 0; i < 2; i++) inside = larger(inside, WHEEL - hypot(u - wheels[i], v - 40));
    if (!colour || !(inside > 0)) return inside;
    struct scene_colour c = scene_mix(scene_rgb(58, 122, 118), scene_rgb(82, 152, 142), (30 - v) / 90);
    c = scene_mix(c, scene_rgb(232, 232, 222), (3 - fabs(v - 10)) * (u > -86));
    for (int x = -34; x <= 50; x += 42) {
        struct scene_colour glass = scene_mix(scene_rgb(38, 48, 60), scene_rgb(150, 172, 186), (u - x - v - 20) / 34);
        c = scene_mix(c, glass, round_box(u - x, v + 20, 17, 13, 4));
    }
    c = scene_mix(c, scene_rgb(240, 214, 130), 5 - hypot(u + 82, v - 22));
    c = scene_mix(c, scene_rgb(196, 48, 40), 4.5 - hypot(u - 76, v - 16));
    for (int i = 0; i < 2; i++) {
        double d = hypot(u - wheels[i], v - 40);
        if (WHEEL - d > 0) c = wheel_colour(u - wheels[i], v - 40, d, 3.1 * van->t / WHEEL);
    }
    *colour = c;
    return inside;
}

struct point {
    double x, y;
};

/* Distance of (u, v) from the line through a and b. */
static double side(struct point a, struct point b, double u, double v)
{
    double nx = b.y - a.y, ny = a.x - b.x;
    return ((u - a.x) * nx + (v - a.y) * ny) / hypot(nx, ny);
}

/* A triangle from the shoulders p and q to a tip that goes up and down. */
static double wing_inside(struct point p, struct point q, int t, double u, double v)
{
    double flap = sin(2 * M_PI * t / 13);
    struct point tip = {-14, -6 - 44 * flap};
    double turn = (q.x - p.x) * (tip.y - p.y) - (q.y - p.y) * (tip.x - p.x), sign = turn > 0 ? -1 : 1;
    return smaller(smaller(side(p, q, u, v) * sign, side(q, tip, u, v) * sign), side(tip, p, u, v) * sign) + 3;
}

static double draw_bird(const struct actor *bird, double u, double v, struct scene_colour *colour)
{
    const struct point p = {-20, -2}, q = {16, -4};
    double body = (1 - hypot(u / 40, v / 14)) * 14, head = 11 - hypot(u - 36, v + 8);
    double beak = smaller((58 - u) * 0.32 - fabs(v + 7), u - 40);
    double tail = smaller(10 + 0.12 * (-34 - u) - fabs(v - 2 + 0.15 * (u + 34)), smaller(-26 - u, u + 62));
    double wing = wing_inside(p, q, bird->t, u, v),
           inside = larger(larger(larger(larger(body, head), beak), tail), wing);
    if (!colour || !(inside > 0)) return inside;
    struct scene_colour c = scene_mix(scene_rgb(64, 72, 126), scene_rgb(216, 214, 220), (v - 1) / 9);
    c = scene_mix(c, scene_rgb(52, 56, 104), head - 1);
    if (beak > 0 && head < 0) c = scene_rgb(232, 176, 60);
    c = scene_mix(c, scene_rgb(240, 240, 240), 2.6 - hypot(u - 40, v + 10));
    if (wing > 0)
        c = scene_mix(scene_rgb(88, 96, 158), scene_rgb(44, 48, 92),
                      (hypot(u - q.x, v - q.y) - 12) / 34 + 0.25 * sin((u + v) * 0.7));
    *colour = c;
    return inside;
}

/* The samples within r of (x, y); the far end may lie outside the frame. */
static void window(double x, double y, int r, int *left, int *right, int *top, int *bottom)
{
    *left = (int)larger(0, (int)(x - r) * PER_UNIT);
    *right = (int)(x + r) * PER_UNIT;
    *top = (int)larger(0, (int)(y - r) * PER_UNIT);
    *bottom = (int)(y + r) * PER_UNIT;
}

/* From the farthest to the nearest. */
static void place_actors(int t, struct actor a[SCENE_OBJECTS])
{
    double way = M_PI * t / (SCENE_FRAMES - 1);
    double ball_x = 74 + 5.35 * t, van_x = 470 - 3.1 * t;
    a[0] = (struct actor){
        .id = SCENE_BIRD, .draw = draw_bird, .x = 420 + 286 * sin(way), .y = 86 + 14 * sin(3.1 * way + 0.4)};
    a[1] = (struct actor){.id = SCENE_BALL,
                          .draw = draw_ball,
                          .x = ball_x,
                          .y = 258 - 28 * fabs(sin(M_PI * (t + 10) / 24)),
                          .shadow = {true, ball_x, 290 - 1, BALL_RADIUS * 0.9}};
    a[2] = (struct actor){
        .id = SCENE_VAN, .draw = draw_van, .x = van_x, .y = 244 + 1.2 * sin(t * 0.9), .shadow = {true, van_x, 303, 86}};
    const int middle[SCENE_OBJECTS] = {86, 240, 250};
    for (int i = 0; i < SCENE_OBJECTS; i++) {
        a[i].t = t;
        window(a[i].x, middle[i], 100, &a[i].left, &a[i].right, &a[i].top, &a[i].bottom);
        window(a[i].x, middle[i], 110, &a[i].shade_left, &a[i].shade_right, &a[i].shade_top, &a[i].shade_bottom);
    }
}

static void cast_shadow(const struct actor *a, int column, int row, double x, double y, struct scene_colour *c)
{
    if (!a->shadow.cast || column < a->shade_left || column >= a->shade_right || row < a->shade_top ||
        row >= a->shade_bottom)
        return;
    double d = 1 - hypot((x - a->shadow.x - 8) / (a->shadow.radius + 8), (y - a->shadow.y) / 9);
    for (int i = 0; i < 3; i++) c->c[i] *= 1 - 0.5 * clip(d * 2);
}

/* The colour of one sample; returns the id of the object it shows. */
static int sample(const struct scene *s, const struct actor *a, int pan, int column, int row, struct scene_colour *c)
{
    double x = (column + 0.5) / PER_UNIT - 0.5, y = (row + 0.5) / PER_UNIT - 0.5;
    for (int i = 0; i < 3; i++) c->c[i] = s->backdrop[row][column + pan][i];
    for (int k = 0; k < SCENE_OBJECTS; k++) cast_shadow(&a[k], column, row, x, y, c);
    int id = 0;
    for (int k = 0; k < SCENE_OBJECTS; k++) {
        if (column < a[k].left || column >= a[k].right || row < a[k].top || row >= a[k].bottom) continue;
        struct scene_colour own;
        if (!(a[k].draw(&a[k], x - a[k].x, y - a[k].y, &own) > 0)) continue;
        *c = own;
        id = a[k].id;
    }
    return id;
}

/* The object that covers most of a pixel's samples, if that is at least half of them. */
static uint8_t majority(const int votes[SCENE_OBJECTS + 1])
{
    int best = 1;
    for (int k = 2; k <= SCENE_OBJECTS; k++)
        if (votes[k] > votes[best]) best = k;
    return votes[best] * 2 >= PER_UNIT * PER_UNIT ? (uint8_t)best : 0;
}

static void draw_row(const struct scene *s, const struct actor *a, int t, int row, uint8_t *rgb, uint8_t *ids)
{
    int pan = (int)rint((PAN + PAN * sin(2 * M_PI * t / 150)) * PER_UNIT);
    double light = 1.0 + 0.05 * sin(t * 0.13);
    /* The grain is the sum of two fields, one drawn after the other. */
    const uint64_t field = (uint64_t)SCENE_HEIGHT * SCENE_WIDTH * 3;
    struct scene_random first, second;
    scene_random_seed(&first, (const uint32_t[]){SEED, (uint32_t)t}, 2);
    scene_random_skip(&first, (uint64_t)row * SCENE_WIDTH * 3);
    second = first;
    scene_random_skip(&second, field);

    for (int x = 0; x < SCENE_WIDTH; x++) {
        struct scene_colour sum = {{0}};
        int votes[SCENE_OBJECTS + 1] = {0};
        for (int k = 0; k < PER_UNIT * PER_UNIT; k++) {
            struct scene_colour c;
            votes[sample(s, a, pan, x * PER_UNIT + k % PER_UNIT, row * PER_UNIT + k / PER_UNIT, &c)]++;
            for (int i = 0; i < 3; i++) sum.c[i] += c.c[i] * light;
        }
        if (ids) ids[x] = majority(votes);
        for (int i = 0; rgb && i < 3; i++) {
            double grain = (scene_random_next(&first) + scene_random_next(&second) - 1) * 0.02;
            rgb[x * 3 + i] = (uint8_t)(clip(sum.c[i] / (PER_UNIT * PER_UNIT) + grain) * 255 + 0.5);
        }
    }
}

struct scene *scene_open(void)
{
    struct scene *s = malloc(sizeof(*s));
    if (s && scene_backdrop(SEED, ROWS, COLUMNS, PER_UNIT, PAN, &s->backdrop[0][0][0])) {
        free(s);
        return NULL;
    }
    return s;
}

void scene_frame(const struct scene *s, int t, uint8_t *rgb, uint8_t *ids)
{
    struct actor actors[SCENE_OBJECTS];
    place_actors(t, actors);
#pragma omp parallel for schedule(dynamic, 8)
    for (int row = 0; row < SCENE_HEIGHT; row++)
        draw_row(s, actors, t, row, rgb ? rgb + (size_t)row * SCENE_WIDTH * 3 : NULL,
                 ids ? ids + (size_t)row * SCENE_WIDTH : NULL);
}

void scene_close(struct scene *s)
{
    free(s);
}

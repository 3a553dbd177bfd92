/* overlay_draw.c - paints the masks of a frame onto its picture: a tint, an outline and a label for each object.
 *
 * Painted is what YUV has: mixing two colours comes to the same there and in RGB.
 *
 * The outline is a round pen drawn along the border between owners, with a faint dark rim that sets it off from
 * bright pictures. Where the pen passes is collected for the whole frame as ink, closeness to the border and whose
 * colour it has, so that strokes join without seams; then it is blended once. Sizes follow the shorter side of the
 * picture. */
#include "sink.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TINT = 110,    /* of 256: how much of the object's colour covers the picture */
    TEXT_SIZE = 32 /* of a label with its NUL; a longer one is cut */
};

/* RGB. Told apart with the common kinds of colour blindness, bright enough to read on most pictures (after Okabe and
 * Ito, Color Universal Design, with the dark ones lightened). */
static const uint8_t colors[][3] = {
    {64, 178, 255}, {255, 159, 28},  {30, 205, 145}, {245, 110, 185}, {250, 230, 60},
    {240, 85, 55},  {160, 130, 255}, {60, 225, 230}, {185, 230, 70},  {225, 180, 130},
};
static const uint8_t rim_color[3] = {0, 0, 0}, letter_color[3] = {16, 16, 20};
enum { COLORS = sizeof colors / sizeof *colors, COLOR_BITS = 4 };
_Static_assert(COLORS <= 1 << COLOR_BITS, "ink has room for them");

struct shape {            /* of an object on the frame at hand */
    double weight, sum_x; /* of the middles of its rows' runs, by length squared: slivers hardly count */
    int top;
};

struct box {
    int x, y, w, h;
};

/* Closeness to a border, 1..255, times 1 << COLOR_BITS, plus the number of a colour; 0: no ink. Where strokes meet the
 * larger one stays. */
typedef int16_t ink_t; /* signed, for which there are vector instructions everywhere */

struct pen { /* around a border between columns, or between rows */
    int rows, columns;
    int width;          /* of a row: columns, and no ink up to a multiple of PEN_BLOCK */
    ink_t *ink[COLORS]; /* [rows][width] */
};
enum { PEN_BLOCK = 8 }; /* of a length that compilers turn into vector code */

struct fmt_painter {
    int width, height;
    size_t n_objects;
    char (*text)[TEXT_SIZE];
    struct shape *shape;
    struct fmt_letters *letters;
    int letter_height;
    uint8_t color[COLORS][3], rim[3], letter[3]; /* YUV */
    struct box *placed;                          /* labels of the frame at hand */

    int reach;                               /* of the pens, in pixels to each side of a border */
    struct pen down, across;                 /* around a border between columns, between rows */
    uint8_t line_alpha[256], rim_alpha[256]; /* by closeness */
    ink_t *ink;                              /* [reach + height + reach][stride], pixel 0 at reach; 0 between frames */
    size_t stride;                           /* of a row of ink: a pen fits at either side */
    int first_row, end_row;                  /* of the ink on the frame at hand, not before 0 */
};

/* ------------------------------------------------------------------ open */

static void label_text(char *out, const struct fmt_object *object)
{
    if (object->label && *object->label)
        snprintf(out, TEXT_SIZE, "%d %s", object->id, object->label);
    else
        snprintf(out, TEXT_SIZE, "%d", object->id);
}

/* Y of 16 to 235, U and V of 16 to 240 (ITU-R BT.601 and BT.709). */
static void to_yuv(uint8_t yuv[3], const uint8_t rgb[3], bool bt709)
{
    const double red = bt709 ? 0.2126 : 0.299, blue = bt709 ? 0.0722 : 0.114;
    const double y = red * rgb[0] + (1 - red - blue) * rgb[1] + blue * rgb[2];
    yuv[0] = (uint8_t)lrint(16 + 219 * y / 255);
    yuv[1] = (uint8_t)lrint(128 + 112 * (rgb[2] - y) / (1 - blue) / 255);
    yuv[2] = (uint8_t)lrint(128 + 112 * (rgb[0] - y) / (1 - red) / 255);
}

static bool make_pen(struct pen *pen, int reach, double far, bool down)
{
    pen->rows = 2 * reach + down;
    pen->columns = 2 * reach + !down;
    pen->width = (pen->columns + PEN_BLOCK - 1) / PEN_BLOCK * PEN_BLOCK;
    for (int k = 0; k < COLORS; k++) {
        if (!(pen->ink[k] = calloc((size_t)pen->rows * pen->width, sizeof(ink_t)))) return false;
        for (int y = 0; y < pen->rows; y++)
            for (int x = 0; x < pen->columns; x++) {
                const double along = down ? y - reach : x - reach, away = (down ? x : y) - reach + 0.5;
                const long closeness = lrint(255 * fmax(0, 1 - hypot(along, away) / far));
                if (closeness) pen->ink[k][y * pen->width + x] = (ink_t)(closeness << COLOR_BITS | k);
            }
    }
    return true;
}

/* A pen's closeness is 255 on the border and falls to 0 at `far` pixels. */
static bool make_pens(struct fmt_painter *p, double thickness)
{
    double rim = 1 + thickness / 2, far = thickness / 2 + 0.5 + rim;
    p->reach = (int)ceil(far);
    if (!make_pen(&p->down, p->reach, far, true) || !make_pen(&p->across, p->reach, far, false)) return false;
    for (int i = 1; i < 256; i++) {
        double distance = (1 - i / 255.0) * far;
        double line = fmin(1, fmax(0, thickness / 2 + 0.5 - distance));
        double fade = fmax(0, 1 - fmax(0, distance - thickness / 2) / (rim + 0.5));
        p->line_alpha[i] = (uint8_t)lrint(255 * line);
        p->rim_alpha[i] = (uint8_t)lrint(255 * 0.45 * fade);
    }
    return true;
}

enum s2_status fmt_painter_open(struct fmt_painter **out, int width, int height, bool bt709,
                                const struct fmt_object *objects, size_t n_objects, struct s2_err *err)
{
    *out = NULL;
    struct fmt_painter *p = calloc(1, sizeof *p);
    if (!p) return s2_no_memory(err, "the overlay's painter", sizeof *p);
    size_t pixels = (size_t)width * height;
    int side = width < height ? width : height;
    p->width = width;
    p->height = height;
    p->n_objects = n_objects;
    p->letter_height = side < 480 ? 8 : side / 60;
    bool ok = make_pens(p, fmax(2, side / 360.0));
    p->stride = (size_t)width + 2 * p->reach + PEN_BLOCK;
    p->first_row = height;
    ok = ok && (p->letters = fmt_letters_open(p->letter_height));
    ok = ok && (p->text = calloc(n_objects + 1, sizeof *p->text));
    ok = ok && (p->shape = calloc(n_objects + 1, sizeof *p->shape));
    ok = ok && (p->placed = calloc(n_objects + 1, sizeof *p->placed));
    ok = ok && (p->ink = calloc((size_t)height + 2 * p->reach, p->stride * sizeof *p->ink));
    if (!ok) {
        fmt_painter_free(p);
        return s2_no_memory(err, "the overlay's painter", pixels * sizeof *p->ink);
    }
    for (size_t i = 0; i < n_objects; i++) label_text(p->text[i], &objects[i]);
    for (int i = 0; i < COLORS; i++) to_yuv(p->color[i], colors[i], bt709);
    to_yuv(p->rim, rim_color, bt709);
    to_yuv(p->letter, letter_color, bt709);
    *out = p;
    return S2_OK;
}

void fmt_painter_free(struct fmt_painter *p)
{
    if (!p) return;
    fmt_letters_free(p->letters);
    for (int k = 0; k < COLORS; k++) {
        free(p->down.ink[k]);
        free(p->across.ink[k]);
    }
    free(p->text);
    free(p->shape);
    free(p->placed);
    free(p->ink);
    free(p);
}

/* ------------------------------------------------------------------ tint and outline */

static const uint8_t *color_of(const struct fmt_painter *p, unsigned owner)
{
    return p->color[(owner - 1) % COLORS];
}

/* In blocks of a length that compilers turn into vector code. */
static void tint(const struct fmt_canvas *canvas, int x, int y, int n, const uint8_t color[3])
{
    enum { BLOCK = 32 };
    for (int c = 0; c < 3; c++) {
        uint8_t *p = canvas->plane[c] + (size_t)y * canvas->stride[c] + x;
        const uint8_t *const end = p + n;
        const uint16_t add = (uint16_t)(color[c] * TINT + 128);
        for (; end - p >= BLOCK; p += BLOCK)
            for (int i = 0; i < BLOCK; i++) p[i] = (uint8_t)((uint16_t)(p[i] * (256 - TINT) + add) >> 8);
        for (; p < end; p++) *p = (uint8_t)((*p * (256 - TINT) + add) >> 8);
    }
}

static void add_ink(ink_t *restrict to, const ink_t *restrict from, int n)
{
    for (const ink_t *end = from + n; from < end; from += PEN_BLOCK, to += PEN_BLOCK)
        for (int i = 0; i < PEN_BLOCK; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

/* The pen around the border between pixel (x, y) and its right (`down`) or lower neighbour. */
static void draw_border(struct fmt_painter *p, int x, int y, bool down, unsigned owner)
{
    const struct pen *pen = down ? &p->down : &p->across;
    const ink_t *from = pen->ink[(owner - 1) % COLORS];
    const int left = x + down, top = y + !down; /* of the ink: reach to the left and above, and as much of a margin */
    ink_t *to = p->ink + top * p->stride + left;
    for (int j = 0; j < pen->rows; j++, from += pen->width, to += p->stride) add_ink(to, from, pen->width);
    if (top - p->reach < p->first_row) p->first_row = top - p->reach < 0 ? 0 : top - p->reach;
    if (y + 1 + p->reach > p->end_row) p->end_row = y + 1 + p->reach > p->height ? p->height : y + 1 + p->reach;
}

static unsigned known(const struct fmt_painter *p, unsigned owner)
{
    return owner <= p->n_objects ? owner : 0;
}

/* Tints the runs of a row, notes what it adds to each object's shape and draws the borders between runs. */
static void paint_runs(struct fmt_painter *p, const struct fmt_canvas *canvas, const uint16_t *owner, int y)
{
    for (int x = 0, end; x < p->width; x = end) {
        end = fmt_run_end(owner, x, p->width);
        unsigned k = known(p, owner[x]), next = end < p->width ? known(p, owner[end]) : k;
        if (k != next) draw_border(p, end - 1, y, true, k ? k : next);
        if (!k) continue;
        tint(canvas, x, y, end - x, color_of(p, k));
        struct shape *shape = &p->shape[k - 1];
        double weight = (double)(end - x) * (end - x);
        if (shape->weight == 0) shape->top = y;
        shape->weight += weight;
        shape->sum_x += weight * (x + end - 1) / 2;
    }
}

static void draw_borders_below(struct fmt_painter *p, const uint16_t *owner, int y)
{
    enum { BLOCK = 32 };
    const uint16_t *below = owner + p->width;
    for (int x = 0; x < p->width; x += BLOCK) {
        int n = p->width - x < BLOCK ? p->width - x : BLOCK;
        if (memcmp(owner + x, below + x, n * sizeof *owner) == 0) continue;
        for (int i = x; i < x + n; i++) {
            unsigned k = known(p, owner[i]), next = known(p, below[i]);
            if (k != next) draw_border(p, i, y, false, k ? k : next);
        }
    }
}

static uint8_t mixed(int value, int color, int alpha)
{
    return (uint8_t)((value * (255 - alpha) + color * alpha + 127) / 255);
}

void fmt_canvas_blend(const struct fmt_canvas *canvas, int x, int y, const uint8_t color[3], int alpha)
{
    if (!alpha || x < 0 || x >= canvas->width || y < 0 || y >= canvas->height) return;
    for (int c = 0; c < 3; c++) {
        uint8_t *at = canvas->plane[c] + (size_t)y * canvas->stride[c] + x;
        *at = mixed(*at, color[c], alpha);
    }
}

static void blend_row(const struct fmt_painter *p, const struct fmt_canvas *canvas, const uint16_t *owner, int y)
{
    enum { BLOCK = 16 };
    const ink_t *ink = p->ink + (y + p->reach) * p->stride + p->reach;
    for (int x = 0; x < p->width; x++) {
        uint64_t block[BLOCK * sizeof(ink_t) / sizeof(uint64_t)];
        if (x % BLOCK == 0 && x + BLOCK <= p->width) {
            memcpy(block, ink + x, sizeof block);
            if ((block[0] | block[1] | block[2] | block[3]) == 0) {
                x += BLOCK - 1;
                continue;
            }
        }
        if (!ink[x]) continue;
        const unsigned k = known(p, owner[x]), closeness = ink[x] >> COLOR_BITS;
        const uint8_t *line = k ? color_of(p, k) : p->color[ink[x] & ((1 << COLOR_BITS) - 1)];
        for (int c = 0; c < 3; c++) {
            uint8_t *at = canvas->plane[c] + (size_t)y * canvas->stride[c] + x;
            *at = mixed(mixed(*at, p->rim[c], p->rim_alpha[closeness]), line[c], p->line_alpha[closeness]);
        }
    }
}

/* Inside an object the line has its colour, outside that of a near one. Leaves no ink. */
static void blend_outlines(struct fmt_painter *p, const struct fmt_canvas *canvas, const uint16_t *owner)
{
    for (int y = p->first_row; y < p->end_row; y++) blend_row(p, canvas, owner + (size_t)y * p->width, y);
    const int rows = p->end_row > p->first_row ? p->end_row - p->first_row + 2 * p->reach : 0;
    memset(p->ink + p->first_row * p->stride, 0, rows * p->stride * sizeof *p->ink);
    p->first_row = p->height;
    p->end_row = 0;
}

/* ------------------------------------------------------------------ labels */

/* How much of the pixel a rectangle with round corners covers, 0..255; x, y from its top left corner. */
static int rounded(const struct box *b, float radius, int x, int y)
{
    float dx = radius - (float)(x < b->w - 1 - x ? x : b->w - 1 - x) - 0.5f; /* how far into the corner's square */
    float dy = radius - (float)(y < b->h - 1 - y ? y : b->h - 1 - y) - 0.5f;
    if (dx <= 0 || dy <= 0) return 255;
    float inside = radius - sqrtf(dx * dx + dy * dy) + 0.5f;
    return (int)(255 * fminf(1, fmaxf(0, inside)));
}

static void draw_label(const struct fmt_painter *p, const struct fmt_canvas *canvas, const struct box *b,
                       unsigned owner)
{
    const float radius = (float)b->h * 0.28f;
    for (int y = 0; y < b->h; y++)
        for (int x = 0; x < b->w; x++)
            fmt_canvas_blend(canvas, b->x + x, b->y + y, color_of(p, owner), rounded(b, radius, x, y) * 15 / 16);
    int inset = (b->h - p->letter_height) / 2;
    fmt_letters_draw(p->letters, canvas, b->x + inset, b->y + inset, p->text[owner - 1], p->letter);
}

static int clamp(int x, int low, int high)
{
    return x > high ? (high < low ? low : high) : x < low ? low : x;
}

static bool overlap(const struct box *a, const struct box *b)
{
    return a->x < b->x + b->w && b->x < a->x + a->w && a->y < b->y + b->h && b->y < a->y + a->h;
}

/* The first row, from the object's top on, in which it has a pixel between two columns. */
static int top_between(const struct fmt_painter *p, const uint16_t *owner, size_t i, int left, int right)
{
    int y = p->shape[i].top;
    for (; y < p->height; y++)
        for (int x = left < 0 ? 0 : left; x < right && x < p->width; x++)
            if (owner[(size_t)y * p->width + x] == i + 1) return y;
    return p->shape[i].top;
}

/* Above the object's middle, below its top edge where there is no room, and below labels that are there already. */
static struct box place_label(const struct fmt_painter *p, const uint16_t *owner, size_t i, int n_placed)
{
    enum { TRIES = 8 };
    int gap = p->letter_height / 2, height = 2 * p->letter_height;
    struct box b = {.w = fmt_letters_width(p->letters, p->text[i]) + p->letter_height, .h = height};
    b.x = clamp((int)(p->shape[i].sum_x / p->shape[i].weight) - b.w / 2, gap, p->width - gap - b.w);
    int top = top_between(p, owner, i, b.x, b.x + b.w);
    b.y = clamp(top - gap - height >= gap ? top - gap - height : top + gap, gap, p->height - gap - height);
    for (int tries = 0, k = 0; k < n_placed && tries < TRIES; k++) {
        if (!overlap(&b, &p->placed[k])) continue;
        b.y = clamp(p->placed[k].y + height + gap / 2, gap, p->height - gap - height);
        k = -1;
        tries++;
    }
    return b;
}

/* ------------------------------------------------------------------ draw */

void fmt_painter_draw(struct fmt_painter *p, const struct fmt_canvas *canvas, const uint16_t *owner)
{
    memset(p->shape, 0, p->n_objects * sizeof *p->shape);
    for (int y = 0; y < p->height; y++) {
        const uint16_t *row = owner + (size_t)y * p->width;
        paint_runs(p, canvas, row, y);
        if (y + 1 < p->height) draw_borders_below(p, row, y);
    }
    blend_outlines(p, canvas, owner);
    int n_placed = 0;
    for (size_t i = 0; i < p->n_objects; i++) {
        if (p->shape[i].weight == 0) continue;
        p->placed[n_placed] = place_label(p, owner, i, n_placed);
        draw_label(p, canvas, &p->placed[n_placed++], (unsigned)i + 1);
    }
}

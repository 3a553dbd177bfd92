/* overlay_draw.c - paints the masks of a frame onto its picture: a tint, an outline and a label for each object.
 *
 * Painted is what YUV has: mixing two colours comes to the same there and in RGB.
 *
 * The outline is a round pen drawn along the border between owners, with a faint dark rim that sets it off from
 * bright pictures. Where the pen passes is collected for the whole frame as closeness to the border, so that
 * strokes join without seams; then it is blended once. Sizes follow the shorter side of the picture. */
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
static const uint8_t dark[3] = {0, 0, 0}, ink[3] = {16, 16, 20}; /* of rims and of letters */
enum { COLORS = sizeof colors / sizeof *colors };

struct shape {            /* of an object on the frame at hand */
    double weight, sum_x; /* of the middles of its rows' runs, by length squared: slivers hardly count */
    int top;
};

struct box {
    int x, y, w, h;
};

struct fmt_painter {
    int width, height;
    size_t n_objects;
    char (*text)[TEXT_SIZE];
    struct shape *shape;
    struct fmt_letters *letters;
    int letter_height;
    uint8_t color[COLORS][3], dark[3], ink[3]; /* YUV */
    struct box *placed;                        /* labels of the frame at hand */

    int reach;                               /* of the pen, in pixels to each side of a border */
    uint8_t *pen;                            /* [2 * reach + 1][2 * reach]: closeness around a vertical border */
    uint8_t line_alpha[256], rim_alpha[256]; /* by closeness */
    uint8_t *close;                          /* [height][width], 0 = out of reach; all 0 between frames */
    uint16_t *edge;                          /* [height][width], the owner whose border is close */
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

/* The pen's closeness is 255 on the border and falls to 0 at `far` pixels. */
static bool make_pen(struct fmt_painter *p, double thickness)
{
    double rim = 1 + thickness / 2, far = thickness / 2 + 0.5 + rim;
    p->reach = (int)ceil(far);
    p->pen = malloc((size_t)(2 * p->reach + 1) * (2 * p->reach));
    if (!p->pen) return false;
    for (int y = -p->reach; y <= p->reach; y++)
        for (int x = -p->reach + 1; x <= p->reach; x++) {
            double closeness = 1 - hypot(x - 0.5, y) / far;
            p->pen[(y + p->reach) * 2 * p->reach + x + p->reach - 1] = (uint8_t)lrint(255 * fmax(0, closeness));
        }
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
    bool ok = make_pen(p, fmax(2, side / 360.0));
    ok = ok && (p->letters = fmt_letters_open(p->letter_height));
    ok = ok && (p->text = calloc(n_objects + 1, sizeof *p->text));
    ok = ok && (p->shape = calloc(n_objects + 1, sizeof *p->shape));
    ok = ok && (p->placed = calloc(n_objects + 1, sizeof *p->placed));
    ok = ok && (p->close = calloc(pixels, 1)) && (p->edge = malloc(pixels * sizeof *p->edge));
    if (!ok) {
        fmt_painter_free(p);
        return s2_no_memory(err, "the overlay's painter", pixels * 3);
    }
    for (size_t i = 0; i < n_objects; i++) label_text(p->text[i], &objects[i]);
    for (int i = 0; i < COLORS; i++) to_yuv(p->color[i], colors[i], bt709);
    to_yuv(p->dark, dark, bt709);
    to_yuv(p->ink, ink, bt709);
    *out = p;
    return S2_OK;
}

void fmt_painter_free(struct fmt_painter *p)
{
    if (!p) return;
    fmt_letters_free(p->letters);
    free(p->pen);
    free(p->text);
    free(p->shape);
    free(p->placed);
    free(p->close);
    free(p->edge);
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

/* The pen beside the border between pixel (x, y) and its right (or lower) neighbour. */
static void draw_border(struct fmt_painter *p, int x, int y, bool vertical, uint16_t owner)
{
    int r = p->reach, rows = vertical ? 2 * r + 1 : 2 * r, columns = vertical ? 2 * r : 2 * r + 1;
    int left = vertical ? x - r + 1 : x - r, top = vertical ? y - r : y - r + 1;
    size_t row_step = vertical ? columns : 1, column_step = vertical ? 1 : rows;
    int x0 = left < 0 ? -left : 0, x1 = left + columns > p->width ? p->width - left : columns;
    int y0 = top < 0 ? -top : 0, y1 = top + rows > p->height ? p->height - top : rows;
    for (int j = y0; j < y1; j++) {
        size_t at = (size_t)(top + j) * p->width + left;
        const uint8_t *pen = p->pen + j * row_step;
        for (int i = x0; i < x1; i++) {
            if (pen[i * column_step] <= p->close[at + i]) continue;
            p->close[at + i] = pen[i * column_step];
            p->edge[at + i] = owner;
        }
    }
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
        if (k != next) draw_border(p, end - 1, y, true, (uint16_t)(k ? k : next));
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
            if (k != next) draw_border(p, i, y, false, (uint16_t)(k ? k : next));
        }
    }
}

void fmt_canvas_blend(const struct fmt_canvas *canvas, int x, int y, const uint8_t color[3], int alpha)
{
    if (x < 0 || x >= canvas->width || y < 0 || y >= canvas->height) return;
    for (int c = 0; c < 3; c++) {
        uint8_t *at = canvas->plane[c] + (size_t)y * canvas->stride[c] + x;
        *at = (uint8_t)((*at * (255 - alpha) + color[c] * alpha + 127) / 255);
    }
}

/* Inside an object the line has its colour, outside that of the nearest one. Leaves `close` all zero. */
static void blend_outlines(struct fmt_painter *p, const struct fmt_canvas *canvas, const uint16_t *owner)
{
    for (int y = 0; y < p->height; y++) {
        uint8_t *close = p->close + (size_t)y * p->width;
        for (int x = 0; x < p->width; x++) {
            uint64_t many[4];
            if (x + (int)sizeof many <= p->width) {
                memcpy(many, close + x, sizeof many);
                if ((many[0] | many[1] | many[2] | many[3]) == 0) {
                    x += (int)sizeof many - 1;
                    continue;
                }
            }
            if (!close[x]) continue;
            size_t at = (size_t)y * p->width + x;
            unsigned k = known(p, owner[at]);
            fmt_canvas_blend(canvas, x, y, p->dark, p->rim_alpha[close[x]]);
            fmt_canvas_blend(canvas, x, y, color_of(p, k ? k : p->edge[at]), p->line_alpha[close[x]]);
            close[x] = 0;
        }
    }
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
    fmt_letters_draw(p->letters, canvas, b->x + inset, b->y + inset, p->text[owner - 1], p->ink);
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

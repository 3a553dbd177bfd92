/* overlay_letters.c - the lettering of the overlay: printable ASCII as round pen strokes, so that it is smooth at
 * every size.
 *
 * A glyph is a list of strokes separated by spaces; a stroke is a list of points, two characters each (x then y,
 * '0'-'9' 'a'-'i' for 0..18). y 0 is the top of capitals, 5 of small letters, 14 the base line. "~" starts a
 * curve: straight to the middle of its first two points, then bends that touch the middle of every two, then
 * straight to the last (a quadratic B-spline with straight ends). */
#include "sink.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = ' ', LAST = '~', CAPITAL = 14, DEPTH = 18, MAX_SEGMENTS = 96 };
#define PEN   0.95f /* half the width of a stroke, in units of the grid */
#define SPACE 4.0f  /* between letters */
#define BLANK 3.0f  /* between words, more than that */

static const char *const strokes[LAST - FIRST + 1] = {
    ['!' - FIRST] = "0009 0e0e",
    ['#' - FIRST] = "301e 705e 0585 0989",
    ['\'' - FIRST] = "0003",
    ['(' - FIRST] = "~30043a3e",
    [')' - FIRST] = "~00343a0e",
    ['+' - FIRST] = "363c 0969",
    [',' - FIRST] = "1e0g",
    ['-' - FIRST] = "0959",
    ['.' - FIRST] = "0e0e",
    ['/' - FIRST] = "600e",
    ['0' - FIRST] = "~40808e4e0e0040",
    ['1' - FIRST] = "03404e",
    ['2' - FIRST] = "~040080860e 0e8e",
    ['3' - FIRST] = "~0300808737 ~37878e0e0b",
    ['4' - FIRST] = "6e600a8a",
    ['5' - FIRST] = "701006 ~0635858e0e0c",
    ['6' - FIRST] = "~46868e0e0646 ~70010a",
    ['7' - FIRST] = "00803e",
    ['8' - FIRST] = "~40707747171040 ~47878e4e0e0747",
    ['9' - FIRST] = "~408088080040 ~848d1e",
    [':' - FIRST] = "0606 0e0e",
    ['=' - FIRST] = "0767 0b6b",
    ['?' - FIRST] = "~03007076363a 3e3e",
    ['A' - FIRST] = "0e408e 2969",
    ['B' - FIRST] = "000e ~00707707 ~07878e0e",
    ['C' - FIRST] = "~8380000e8e8b",
    ['D' - FIRST] = "000e ~00808e0e",
    ['E' - FIRST] = "70000e7e 0767",
    ['F' - FIRST] = "70000e 0767",
    ['G' - FIRST] = "~8380000e8e88 8848",
    ['H' - FIRST] = "000e 808e 0787",
    ['I' - FIRST] = "000e",
    ['J' - FIRST] = "~606e0e0b",
    ['K' - FIRST] = "000e 8009 368e",
    ['L' - FIRST] = "000e7e",
    ['M' - FIRST] = "0e0058a0ae",
    ['N' - FIRST] = "0e008e80",
    ['O' - FIRST] = "~40808e4e0e0040",
    ['P' - FIRST] = "000e ~00808808",
    ['Q' - FIRST] = "~40808e4e0e0040 5b8f",
    ['R' - FIRST] = "000e ~00808808 388e",
    ['S' - FIRST] = "~83800007878e0e0b",
    ['T' - FIRST] = "0080 404e",
    ['U' - FIRST] = "~000e8e80",
    ['V' - FIRST] = "004e80",
    ['W' - FIRST] = "003e639ec0",
    ['X' - FIRST] = "008e 800e",
    ['Y' - FIRST] = "004780 474e",
    ['Z' - FIRST] = "00800e8e",
    ['[' - FIRST] = "30000e3e",
    [']' - FIRST] = "00303e0e",
    ['_' - FIRST] = "0g7g",
    ['a' - FIRST] = "~45757e4e0e0545 757e",
    ['b' - FIRST] = "000e ~35757e3e0e0535",
    ['c' - FIRST] = "~7775050e7e7c",
    ['d' - FIRST] = "707e ~45757e4e0e0545",
    ['e' - FIRST] = "0979 ~7975050e7e7c",
    ['f' - FIRST] = "~50202e 0555",
    ['g' - FIRST] = "~45757e4e0e0545 ~757i1i",
    ['h' - FIRST] = "000e ~0905757e",
    ['i' - FIRST] = "0101 050e",
    ['j' - FIRST] = "2121 ~252i0i",
    ['k' - FIRST] = "000e 650b 297e",
    ['l' - FIRST] = "000e",
    ['m' - FIRST] = "050e ~0905555e ~5955a5ae",
    ['n' - FIRST] = "050e ~0905757e",
    ['o' - FIRST] = "~45757e4e0e0545",
    ['p' - FIRST] = "050i ~35757e3e0e0535",
    ['q' - FIRST] = "757i ~45757e4e0e0545",
    ['r' - FIRST] = "050e ~090555",
    ['s' - FIRST] = "~676505096a6e0e0c",
    ['t' - FIRST] = "~212e5e 0555",
    ['u' - FIRST] = "~050e7e75 757e",
    ['v' - FIRST] = "053e65",
    ['w' - FIRST] = "052e578ea5",
    ['x' - FIRST] = "057e 750e",
    ['y' - FIRST] = "053e 652i",
    ['z' - FIRST] = "05750e7e",
};

struct segment {
    float x0, y0, x1, y1;
};

struct glyph {
    int width; /* pixels to the next letter */
    uint8_t *ink;
};

struct fmt_letters {
    int cell_width, cell_height; /* of each glyph's picture, [cell_height][cell_width] coverage */
    int margin;                  /* of the picture around the letter */
    int space;                   /* between letters */
    struct glyph glyph[LAST - FIRST + 1];
    uint8_t *ink;
};

/* ------------------------------------------------------------------ strokes to segments */

static float coordinate(char c)
{
    return (float)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static int add_segment(struct segment *out, int n, float x0, float y0, float x1, float y1)
{
    if (n < MAX_SEGMENTS) out[n++] = (struct segment){x0, y0, x1, y1};
    return n;
}

/* Quadratic Bezier curve from a to c, drawn to b. */
static int add_bend(struct segment *out, int n, const float a[2], const float b[2], const float c[2])
{
    enum { STEPS = 6 };
    float x0 = a[0], y0 = a[1];
    for (int i = 1; i <= STEPS; i++) {
        float t = (float)i / STEPS, u = 1 - t;
        float x1 = u * u * a[0] + 2 * u * t * b[0] + t * t * c[0];
        float y1 = u * u * a[1] + 2 * u * t * b[1] + t * t * c[1];
        n = add_segment(out, n, x0, y0, x1, y1);
        x0 = x1;
        y0 = y1;
    }
    return n;
}

static int add_stroke(struct segment *out, int n, const char *s, int length)
{
    bool curve = *s == '~';
    s += curve;
    int points = (length - curve) / 2;
    float from[2] = {coordinate(s[0]), coordinate(s[1])};
    for (int i = 1; i < points; i++) {
        float to[2] = {coordinate(s[2 * i]), coordinate(s[2 * i + 1])};
        float before[2] = {coordinate(s[2 * i - 2]), coordinate(s[2 * i - 1])};
        float middle[2] = {(before[0] + to[0]) / 2, (before[1] + to[1]) / 2};
        if (!curve)
            n = add_segment(out, n, before[0], before[1], to[0], to[1]);
        else if (i == 1)
            n = add_segment(out, n, from[0], from[1], middle[0], middle[1]);
        else
            n = add_bend(out, n, from, before, middle);
        if (curve && i == points - 1) n = add_segment(out, n, middle[0], middle[1], to[0], to[1]);
        memcpy(from, middle, sizeof from);
    }
    return n;
}

static int add_strokes(struct segment *out, const char *s)
{
    int n = 0;
    while (s && *s) {
        int length = (int)strcspn(s, " ");
        n = add_stroke(out, n, s, length);
        s += length;
        s += *s == ' ';
    }
    return n;
}

/* ------------------------------------------------------------------ segments to ink */

static float distance(const struct segment *s, float x, float y)
{
    float dx = s->x1 - s->x0, dy = s->y1 - s->y0, length2 = dx * dx + dy * dy;
    float t = length2 > 0 ? ((x - s->x0) * dx + (y - s->y0) * dy) / length2 : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return hypotf(x - s->x0 - t * dx, y - s->y0 - t * dy);
}

static void draw_glyph(struct fmt_letters *l, struct glyph *glyph, const char *text, float scale)
{
    struct segment segment[MAX_SEGMENTS];
    int n = add_strokes(segment, text);
    float right = n ? 0 : BLANK, pen = PEN * scale < 0.6f ? 0.6f / scale : PEN;
    for (int i = 0; i < n; i++) right = fmaxf(right, fmaxf(segment[i].x0, segment[i].x1));
    glyph->width = (int)lroundf((right + SPACE) * scale);
    for (int y = 0; y < l->cell_height; y++)
        for (int x = 0; x < l->cell_width; x++) {
            float gx = ((float)(x - l->margin) + 0.5f) / scale, gy = ((float)(y - l->margin) + 0.5f) / scale;
            float nearest = INFINITY;
            for (int i = 0; i < n; i++) nearest = fminf(nearest, distance(&segment[i], gx, gy));
            float cover = (pen - nearest) * scale + 0.5f;
            glyph->ink[y * l->cell_width + x] = (uint8_t)(255 * fminf(1, fmaxf(0, cover)));
        }
}

struct fmt_letters *fmt_letters_open(double height)
{
    enum { WIDEST = 12, COUNT = LAST - FIRST + 1 };
    float scale = (float)height / CAPITAL;
    struct fmt_letters *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->space = (int)lroundf(SPACE * scale);
    l->margin = (int)ceilf(PEN * scale) + 1;
    l->cell_width = (int)ceilf(WIDEST * scale) + 2 * l->margin;
    l->cell_height = (int)ceilf(DEPTH * scale) + 2 * l->margin;
    size_t cell = (size_t)l->cell_width * l->cell_height;
    l->ink = malloc(COUNT * cell);
    if (!l->ink) {
        free(l);
        return NULL;
    }
    for (int i = 0; i < COUNT; i++) {
        l->glyph[i].ink = l->ink + i * cell;
        const char *text = strokes[i] || i == 0 ? strokes[i] : strokes['?' - FIRST];
        draw_glyph(l, &l->glyph[i], text, scale);
    }
    return l;
}

void fmt_letters_free(struct fmt_letters *l)
{
    if (!l) return;
    free(l->ink);
    free(l);
}

/* ------------------------------------------------------------------ text */

/* The glyph of the character at *text, which moves on; of a UTF-8 sequence there is one. */
static const struct glyph *next_glyph(const struct fmt_letters *l, const char **text)
{
    unsigned char c = (unsigned char)*(*text)++;
    while (c >= 0x80 && ((unsigned char)**text & 0xC0) == 0x80) ++*text;
    return &l->glyph[(c >= FIRST && c <= LAST ? c : '?') - FIRST];
}

int fmt_letters_width(const struct fmt_letters *l, const char *text)
{
    int width = 0;
    while (*text) width += next_glyph(l, &text)->width;
    return width > l->space ? width - l->space : width;
}

static void draw_ink(const struct fmt_letters *l, const struct glyph *glyph, const struct fmt_canvas *canvas, int left,
                     int top, const uint8_t color[3])
{
    for (int y = 0; y < l->cell_height; y++)
        for (int x = 0; x < l->cell_width; x++) {
            const int ink = glyph->ink[y * l->cell_width + x];
            if (ink) fmt_canvas_blend(canvas, left + x, top + y, color, ink);
        }
}

void fmt_letters_draw(const struct fmt_letters *l, const struct fmt_canvas *canvas, int x, int y, const char *text,
                      const uint8_t color[3])
{
    while (*text) {
        const struct glyph *glyph = next_glyph(l, &text);
        draw_ink(l, glyph, canvas, x - l->margin, y - l->margin, color);
        x += glyph->width;
    }
}

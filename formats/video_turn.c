/* video_turn.c - display matrices, and pictures turned as they are stored. */
#include "video_convert.h"

#include <stdlib.h>
#include <string.h>

#include <libavutil/pixdesc.h>

/* The matrix [a b u; c d v; x y w] takes a decoded position (p, q) to (a p + c q + x, b p + d q + y). */
struct fmt_orientation fmt_orientation_of(const int32_t *m)
{
    if (!m) return (struct fmt_orientation){0};
    int64_t a = m[0], b = m[1], c = m[3], d = m[4];
    bool transpose = llabs(b) + llabs(c) > llabs(a) + llabs(d);
    return transpose ? (struct fmt_orientation){true, c < 0, b < 0} : (struct fmt_orientation){false, a < 0, d < 0};
}

int fmt_orientation_degrees(struct fmt_orientation o)
{
    if (o.transpose) return o.flip_y && !o.flip_x ? 270 : 90;
    return o.flip_x && o.flip_y ? 180 : 0;
}

/* One component of the source as the destination walks it: at + x * dx + y * dy, in displayed coordinates. */
struct walk {
    const uint8_t *at;
    ptrdiff_t dx, dy;
};

static struct walk walk_of(const AVFrame *f, const AVComponentDescriptor *comp, struct fmt_orientation o)
{
    ptrdiff_t step = comp->step, row = f->linesize[comp->plane];
    const uint8_t *at = f->data[comp->plane] + comp->offset;
    /* displayed x runs along decoded rows, or down them when transposed; likewise y */
    struct walk w = {at, o.transpose ? row : step, o.transpose ? step : row};
    int columns = o.transpose ? f->height : f->width, rows = o.transpose ? f->width : f->height;
    if (o.flip_x) w.at += (columns - 1) * w.dx, w.dx = -w.dx;
    if (o.flip_y) w.at += (rows - 1) * w.dy, w.dy = -w.dy;
    return w;
}

static void store_planes(uint8_t *to, const uint8_t *r, const uint8_t *g, const uint8_t *b, int n)
{
    for (int x = 0; x < n; x++) {
        to[3 * x] = r[x];
        to[3 * x + 1] = g[x];
        to[3 * x + 2] = b[x];
    }
}

static void store_strided(uint8_t *to, const uint8_t *r, const uint8_t *g, const uint8_t *b, ptrdiff_t dr, ptrdiff_t dg,
                          ptrdiff_t db, int n)
{
    for (int x = 0; x < n; x++, r += dr, g += dg, b += db) {
        to[3 * x] = *r;
        to[3 * x + 1] = *g;
        to[3 * x + 2] = *b;
    }
}

void fmt_convert_store(const AVFrame *f, struct fmt_orientation o, const struct s2_image *image)
{
    enum { TILE = 64 }; /* columns at a time, so that a transposed walk stays in the cache */
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    bool grey = d->nb_components <= 2;
    struct walk r = walk_of(f, &d->comp[0], o);
    struct walk g = grey ? r : walk_of(f, &d->comp[1], o);
    struct walk b = grey ? r : walk_of(f, &d->comp[2], o);
    bool packed = f->format == AV_PIX_FMT_RGB24 && r.dx == 3;
    bool planes = r.dx == 1 && g.dx == 1 && b.dx == 1;
    int tile = o.transpose ? TILE : image->width;
    for (int x0 = 0; x0 < image->width; x0 += tile) {
        int n = image->width - x0 < tile ? image->width - x0 : tile;
        for (int y = 0; y < image->height; y++) {
            uint8_t *to = image->rgb + (size_t)y * image->stride + (size_t)x0 * 3;
            const uint8_t *pr = r.at + x0 * r.dx + y * r.dy;
            const uint8_t *pg = g.at + x0 * g.dx + y * g.dy;
            const uint8_t *pb = b.at + x0 * b.dx + y * b.dy;
            if (packed)
                memcpy(to, pr, (size_t)n * 3);
            else if (planes)
                store_planes(to, pr, pg, pb, n);
            else
                store_strided(to, pr, pg, pb, r.dx, g.dx, b.dx, n);
        }
    }
}

/* png_rows.h - the pixels of a PNG picture of masks as its IDAT chunk wants them: rows without a filter, compressed by
 * zlib's run-length strategy (PNG specification, 10.1; RFC 1950).
 *
 * Most rows of a mask are blank. Bands of them are compressed once, when the rows are opened, and copied from then
 * on: a band ends on a whole byte and refers to nothing before it, so that such pieces can follow each other. */
#ifndef S2_FORMATS_PNG_ROWS_H
#define S2_FORMATS_PNG_ROWS_H

#include "formats.h"

#include <zlib.h>

struct fmt_png_rows {
    struct fmt_text stream; /* after fmt_png_rows_end: the whole zlib stream */
    z_stream deflate;
    size_t size;    /* bytes of a row */
    uint8_t *row;   /* [1 + size]: filter type 0 and a row */
    bool opened;    /* deflate is to be ended */
    bool unflushed; /* rows have gone into deflate since it was reset */
    int blank;      /* blank rows that are in neither yet */
    uLong adler;    /* of what is in the stream or in deflate */
    struct fmt_text band;
    uLong band_adler;
};

/* size: bytes of a row, at least 1. Of a zeroed structure; false: no memory. Either way fmt_png_rows_free follows. */
bool fmt_png_rows_open(struct fmt_png_rows *, size_t size);
/* A picture: begin, its rows, end. False: no memory. */
bool fmt_png_rows_begin(struct fmt_png_rows *);
/* NULL: a blank row, all 0 */
bool fmt_png_row(struct fmt_png_rows *, const uint8_t *row);
bool fmt_png_rows_end(struct fmt_png_rows *);
void fmt_png_rows_free(struct fmt_png_rows *);

#endif

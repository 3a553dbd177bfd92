/* zip.h - the entries of a ZIP archive that lies in memory (APPNOTE 6.3: central directory, ZIP64).
 *
 * Sizes and places come from the central directory, since torch.save leaves them out of the local headers.
 * Only stored entries can be read; nothing is copied. Entries may not overlap. */
#ifndef S2_FORMATS_ZIP_H
#define S2_FORMATS_ZIP_H

#include "../engine/base.h"

struct fmt_zip_entry {
    const char *name; /* in the archive, not NUL-terminated */
    size_t name_size;
    size_t offset; /* of the local header */
    size_t limit;  /* where the next entry or the central directory begins */
    size_t size;   /* bytes in the archive */
    bool stored;   /* neither compressed nor encrypted */
};

struct fmt_zip {
    const uint8_t *data;
    const char *path; /* for sentences */
    struct fmt_zip_entry *entry;
    size_t count; /* sorted by name */
};

/* Reads the central directory and checks every entry's range. data and path must outlive *out. On failure *out
 * holds nothing. S2_E_MODEL: truncated or damaged. */
enum s2_status fmt_zip_open(struct fmt_zip *out, const uint8_t *data, size_t size, const char *path, struct s2_err *);
/* NULL: no such entry. */
const struct fmt_zip_entry *fmt_zip_find(const struct fmt_zip *, const char *name, size_t name_size);
/* The bytes of an entry, inside the archive. S2_E_MODEL: compressed, or its local header is damaged. */
enum s2_status fmt_zip_data(const struct fmt_zip *, const struct fmt_zip_entry *, const uint8_t **data,
                            struct s2_err *);
void fmt_zip_close(struct fmt_zip *); /* twice is harmless */

#endif

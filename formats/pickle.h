/* pickle.h - a pickle as an inert tree of values. Nothing is imported, constructed or executed: a global is
 * its two names, a call is an object that remembers what would have been called.
 *
 * Values may contain each other in circles; readers of the tree descend a fixed number of levels. Memory is bounded
 * by the pickle's size and by the limits in pickle.c. */
#ifndef S2_FORMATS_PICKLE_H
#define S2_FORMATS_PICKLE_H

#include "../engine/base.h"

enum fmt_pickle_type {
    FMT_PICKLE_NONE,
    FMT_PICKLE_BOOL,
    FMT_PICKLE_INT,
    FMT_PICKLE_BIG_INT, /* beyond 64 bits: its value is not kept */
    FMT_PICKLE_FLOAT,
    FMT_PICKLE_TEXT,
    FMT_PICKLE_BYTES,
    FMT_PICKLE_TUPLE,
    FMT_PICKLE_LIST,
    FMT_PICKLE_SET,
    FMT_PICKLE_DICT,
    FMT_PICKLE_GLOBAL,     /* first: module, second: name (both TEXT) */
    FMT_PICKLE_PERSISTENT, /* first: the persistent id */
    FMT_PICKLE_OBJECT,     /* first: what is called, second: its arguments; may have items. State is dropped */
};

typedef uint32_t fmt_pickle_ref; /* of a value; 0: none */

struct fmt_pickle_value {
    enum fmt_pickle_type type;
    uint32_t size; /* bytes of TEXT, BYTES; items of a container: a pair of a dict counts two */
    union {
        int64_t integer;  /* BOOL, INT */
        double number;    /* FLOAT */
        const char *text; /* TEXT, BYTES: in the pickle, not NUL-terminated */
        struct {
            fmt_pickle_ref first, second; /* GLOBAL, PERSISTENT, OBJECT */
        };
    };
    uint32_t head, tail; /* cells of the items of a container, or of the pairs set on an OBJECT */
};

/* Items are linked cells; those of a dict alternate between key and value. */
struct fmt_pickle_cell {
    fmt_pickle_ref value;
    uint32_t next; /* 0: the last */
};

struct fmt_pickle {
    struct fmt_pickle_value *value; /* [0] is unused */
    struct fmt_pickle_cell *cell;   /* [0] is unused */
    uint32_t values, cells;
    fmt_pickle_ref root;
};

/* data must outlive *out, which holds nothing on failure. name is "FILE: ENTRY", for sentences. S2_E_MODEL: damaged,
 * or with an opcode or in a size that no checkpoint has. */
enum s2_status fmt_pickle_read(struct fmt_pickle *out, const uint8_t *data, size_t size, const char *name,
                               struct s2_err *);
void fmt_pickle_free(struct fmt_pickle *); /* twice is harmless */

/* Item i of a tuple or list; NULL: it has fewer. Walks: for small i. */
const struct fmt_pickle_value *fmt_pickle_item(const struct fmt_pickle *, const struct fmt_pickle_value *, uint32_t i);
/* The value of a text key in a dict or an object with items; NULL: not there. The last one counts. */
const struct fmt_pickle_value *fmt_pickle_lookup(const struct fmt_pickle *, const struct fmt_pickle_value *,
                                                 const char *key);
bool fmt_pickle_is_text(const struct fmt_pickle_value *, const char *text);
bool fmt_pickle_is_global(const struct fmt_pickle *, const struct fmt_pickle_value *, const char *module,
                          const char *name);

#endif

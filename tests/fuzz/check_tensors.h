/* check_tensors.h - what must hold of any list of tensors that a reader returns. */
#ifndef S2_FUZZ_CHECK_TENSORS_H
#define S2_FUZZ_CHECK_TENSORS_H

#include <stdlib.h>
#include <string.h>

#include "../../formats/checkpoint.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)

static inline size_t bytes_of(const struct s2_stored *t)
{
    return t->elements * s2_dtype_size(t->dtype);
}

/* A failure is a sentence about the model, a success none. */
static inline void check_outcome(enum s2_status status, const struct s2_err *err)
{
    CHECK(status == S2_OK || status == S2_E_MODEL);
    CHECK(status == err->status && (status == S2_OK) == (err->text[0] == '\0'));
}

static inline void check_tensors(const struct fmt_tensors *list, const uint8_t *data, size_t size)
{
    static uint8_t copy[4096];
    for (size_t i = 0; i < list->count; i++) {
        const struct s2_stored *t = &list->at[i];
        const uint8_t *p = t->data;
        size_t elements = 1;
        CHECK(t->ndim >= 0 && t->ndim <= S2_MAX_DIMS);
        for (int d = 0; d < t->ndim; d++) {
            CHECK(t->dim[d] >= 0);
            elements *= (size_t)t->dim[d];
        }
        CHECK(elements == t->elements);
        CHECK(p >= data && p <= data + size && bytes_of(t) <= (size_t)(data + size - p));
        memcpy(copy, p, bytes_of(t) < sizeof copy ? bytes_of(t) : sizeof copy);
        CHECK(t->name[0] && fmt_tensors_find(list, t->name) == t);
    }
}

#endif

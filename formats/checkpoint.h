/* checkpoint.h - what the checkpoint readers share: a list of tensors that lie in a mapped file. */
#ifndef S2_FORMATS_CHECKPOINT_H
#define S2_FORMATS_CHECKPOINT_H

#include "../engine/base.h"

struct fmt_tensors {
    const char *path; /* for sentences; set by the caller */
    struct s2_stored *at;
    size_t count, capacity;
    const struct s2_stored **by_name; /* [count], after fmt_tensors_index() */
};

/* Elements of a shape; false: negative, or the bytes overflow. */
bool fmt_shape_elements(const int64_t *dim, int ndim, enum s2_dtype, size_t *elements);

/* Appends a copy of *tensor, and of name_size bytes of name. S2_E_MODEL: a name that cannot be shown. */
enum s2_status fmt_tensors_add(struct fmt_tensors *, const struct s2_stored *tensor, const char *name, size_t name_size,
                               struct s2_err *);
/* Strips prefixes that all names have. */
void fmt_tensors_strip_prefixes(struct fmt_tensors *);
/* Sorts the names for fmt_tensors_find(). S2_E_MODEL: a name occurs twice. */
enum s2_status fmt_tensors_index(struct fmt_tensors *, struct s2_err *);
const struct s2_stored *fmt_tensors_find(const struct fmt_tensors *, const char *name);
/* Leaves the path and an empty list; twice is harmless. */
void fmt_tensors_free(struct fmt_tensors *);

/* The readers fill an empty list from a file's bytes, which must outlive it. S2_E_MODEL and a sentence. */

/* A ZIP archive of torch.save (since PyTorch 1.6): the model part only, storages in place. */
enum s2_status fmt_pt_read(struct fmt_tensors *, const uint8_t *data, size_t size, struct s2_err *);
enum s2_status fmt_safetensors_read(struct fmt_tensors *, const uint8_t *data, size_t size, struct s2_err *);
/* Whether the bytes begin like a safetensors file, whole or not. */
bool fmt_safetensors_begins(const uint8_t *data, size_t size);

/* Names of Hugging Face transformers (Sam2VideoModel) become those of the reference's checkpoint["model"]; other
 * lists stay as they are. Before fmt_tensors_index(). */
enum s2_status fmt_transformers_rename(struct fmt_tensors *, struct s2_err *);

/* S2_E_MODEL and a sentence that says what a file is that is no checkpoint, and what to do. */
enum s2_status fmt_foreign_file(const char *path, const uint8_t *data, size_t size, struct s2_err *);

#endif

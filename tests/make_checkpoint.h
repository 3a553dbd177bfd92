/* make_checkpoint.h - small writers of .pt and .safetensors files as torch.save and safetensors write them, and
 * of their damaged relatives. Out of memory ends the test program. */
#ifndef S2_TESTS_MAKE_CHECKPOINT_H
#define S2_TESTS_MAKE_CHECKPOINT_H

#include "../engine/base.h"

struct make_bytes {
    uint8_t *data;
    size_t size, capacity;
};
void make_put(struct make_bytes *, const void *data, size_t size);
void make_number(struct make_bytes *, uint64_t x, int size); /* little-endian */
void make_text(struct make_bytes *, const char *);
void make_free(struct make_bytes *);
void make_file(const char *path, const struct make_bytes *);
/* A new folder; make_path gives "FOLDER/NAME" until its next call; make_folder_remove takes its files too. */
char *make_folder(void);
const char *make_path(const char *folder, const char *name);
void make_folder_remove(char *folder);

/* ------------------------------------------------------------------ ZIP */

struct make_entry {
    const char *name;
    const void *data;
    size_t size;
};
/* Stored entries, data at multiples of 64, sizes only in the central directory, ZIP64 end records. */
void make_zip(struct make_bytes *, const struct make_entry *, size_t n);

/* ------------------------------------------------------------------ checkpoints */

struct make_tensor {
    const char *name;
    enum s2_dtype dtype;
    int ndim;
    int64_t dim[S2_MAX_DIMS];
    const void *data;
    int storage; /* 0: its own; else tensors of equal number and dtype lie in one, in order */
};

struct make_pt {
    const char *root;   /* key of the model part; NULL: tensors at the top */
    const char *prefix; /* of every tensor's name; NULL: none */
    bool state_dict;    /* an OrderedDict with _metadata instead of a dict */
    bool parameters;    /* tensors wrapped as torch.nn.Parameter */
    bool optimizer;     /* beside the model, tensors of the same names and shapes, all of value 99 */
    int protocol;       /* 2 (also 0) to 5 */
    const char *byteorder;
};
void make_pt(struct make_bytes *, const struct make_tensor *, size_t n, const struct make_pt *);
/* A .pt with this data.pkl, and with one storage "0" of 64 bytes that hold 0, 1, 2 ... */
void make_pt_of_pickle(struct make_bytes *, const void *pickle, size_t size);

/* header: JSON, or NULL for the right one. */
void make_safetensors(struct make_bytes *, const struct make_tensor *, size_t n, const char *header);

#endif

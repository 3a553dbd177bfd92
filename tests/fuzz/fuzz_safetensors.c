/* Any bytes as a .safetensors file: every tensor's bytes lie inside the file, no two overlap, also after renaming. */
#include "../../formats/checkpoint.h"
#include "check_tensors.h"

static void check_apart(const struct fmt_tensors *list)
{
    for (size_t i = 0; i < list->count; i++)
        for (size_t k = 0; k < i; k++) {
            const uint8_t *a = list->at[i].data, *b = list->at[k].data;
            CHECK(a + bytes_of(&list->at[i]) <= b || b + bytes_of(&list->at[k]) <= a);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fmt_tensors list = {.path = "f.safetensors"};
    struct s2_err err = {0};
    enum s2_status status = fmt_safetensors_read(&list, data, size, &err);
    check_outcome(status, &err);
    if (!status) {
        check_apart(&list);
        if (!fmt_transformers_rename(&list, &err) && !fmt_tensors_index(&list, &err)) check_tensors(&list, data, size);
    }
    fmt_tensors_free(&list);
    return 0;
}

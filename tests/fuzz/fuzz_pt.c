/* Any bytes as a .pt archive: every tensor's bytes lie inside the file, and the list is consistent. */
#include "../../formats/checkpoint.h"
#include "check_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fmt_tensors list = {.path = "f.pt"};
    struct s2_err err = {0};
    enum s2_status status = fmt_pt_read(&list, data, size, &err);
    check_outcome(status, &err);
    if (!status) {
        fmt_tensors_strip_prefixes(&list);
        if (!fmt_tensors_index(&list, &err)) check_tensors(&list, data, size);
    }
    fmt_tensors_free(&list);
    return 0;
}

/* Any bytes as a pickle: the tree is well formed whatever they say; and as the structure of a .pt archive: tensors lie
 * inside their storage. */
#include "../../formats/pickle.h"
#include "../make_checkpoint.c"
#include "check_tensors.h"

static void check_value(const struct fmt_pickle *p, const struct fmt_pickle_value *v, const uint8_t *data, size_t size)
{
    bool items = v->type == FMT_PICKLE_OBJECT || (v->type >= FMT_PICKLE_TUPLE && v->type <= FMT_PICKLE_DICT);
    if (v->type == FMT_PICKLE_TEXT || v->type == FMT_PICKLE_BYTES)
        CHECK((const uint8_t *)v->text >= data && v->size <= (size_t)(data + size - (const uint8_t *)v->text));
    if (v->type == FMT_PICKLE_GLOBAL)
        CHECK(p->value[v->first].type == FMT_PICKLE_TEXT && p->value[v->second].type == FMT_PICKLE_TEXT);
    if (v->type == FMT_PICKLE_OBJECT) CHECK(v->first && v->second && v->first < p->values && v->second < p->values);
    if (v->type == FMT_PICKLE_DICT || v->type == FMT_PICKLE_OBJECT) CHECK(v->size % 2 == 0);
    if (!items) return;
    uint32_t n = 0;
    for (uint32_t c = v->head; c; c = p->cell[c].next, n++)
        CHECK(c < p->cells && n < v->size && p->cell[c].value && p->cell[c].value < p->values);
    CHECK(n == v->size);
}

static void check_tree(const uint8_t *data, size_t size)
{
    struct fmt_pickle p;
    struct s2_err err = {0};
    enum s2_status status = fmt_pickle_read(&p, data, size, "f.pt: data.pkl", &err);
    check_outcome(status, &err);
    CHECK(status ? !p.value && !p.cell : p.root && p.root < p.values);
    for (uint32_t i = 1; i < p.values; i++) check_value(&p, &p.value[i], data, size);
    fmt_pickle_free(&p);
}

static void check_archive(const uint8_t *data, size_t size)
{
    struct make_bytes b = {0};
    struct fmt_tensors list = {.path = "f.pt"};
    struct s2_err err = {0};
    make_pt_of_pickle(&b, data, size);
    enum s2_status status = fmt_pt_read(&list, b.data, b.size, &err);
    check_outcome(status, &err);
    if (!status && !fmt_tensors_index(&list, &err)) check_tensors(&list, b.data, b.size);
    fmt_tensors_free(&list);
    make_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_tree(data, size);
    check_archive(data, size);
    return 0;
}

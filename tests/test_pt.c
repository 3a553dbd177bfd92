/* .pt checkpoints: what torch.save writes in all its shapes, and files that are wrong or hostile. */
#include "../formats/checkpoint.h"
#include "../formats/formats.h"
#include "make_checkpoint.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA "tests/data/checkpoints/"

static const float floats[] = {0.5f, -1.0f, 2.0f, 3.25f, 1e-3f, 7.0f};
static const uint16_t halves[] = {0x3c00, 0xc000};                 /* 1, -2 */
static const uint16_t brains[] = {0x3f80, 0xc000, 0x4080, 0x3e80}; /* 1, -2, 4, 0.25 */
static const double doubles[] = {1e10, -0.125};
static const int64_t counter = 1234567890123;

static const struct make_tensor tensors[] = {
    {"image_encoder.trunk.pos_embed", S2_F32, 2, {2, 3}, floats, 0},
    {"half", S2_F16, 3, {1, 2, 1}, halves, 0},
    {"brain", S2_BF16, 2, {1, 4}, brains, 0},
    {"double", S2_F64, 1, {2}, doubles, 0},
    {"tied.a", S2_F32, 1, {2}, floats + 2, 1},
    {"tied.b", S2_F32, 2, {1, 2}, floats + 4, 1},
    {"bn.num_batches_tracked", S2_I64, 0, {0}, &counter, 0},
    {"none", S2_F32, 2, {0, 5}, floats, 0},
};
enum { N = sizeof tensors / sizeof *tensors };

/* Values of a tensor as floats, at most 8. */
static size_t values(const struct s2_stored *t, float *out)
{
    cr_assert_leq(t->elements, 8);
    cr_assert(s2_stored_f32(t, 0, t->elements, out));
    return t->elements;
}

static void expect_tensor(const struct fmt_tensors *list, const struct make_tensor *wanted)
{
    const struct s2_stored *t = fmt_tensors_find(list, wanted->name);
    cr_assert_not_null(t, "%s", wanted->name);
    cr_expect_eq(t->dtype, wanted->dtype, "%s", wanted->name);
    cr_assert_eq(t->ndim, wanted->ndim, "%s", wanted->name);
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++) {
        cr_expect_eq(t->dim[i], wanted->dim[i], "%s", wanted->name);
        n *= (size_t)wanted->dim[i];
    }
    cr_assert_eq(t->elements, n, "%s", wanted->name);
    cr_expect(!memcmp(t->data, wanted->data, n * s2_dtype_size(t->dtype)), "%s", wanted->name);
}

/* What fmt_checkpoint_open does with a file's bytes. */
static enum s2_status read_bytes(struct fmt_tensors *list, const struct make_bytes *b, struct s2_err *err)
{
    *list = (struct fmt_tensors){.path = "f.pt"};
    enum s2_status status = fmt_pt_read(list, b->data, b->size, err);
    if (status) return status;
    fmt_tensors_strip_prefixes(list);
    return fmt_tensors_index(list, err);
}

static void round_trip(struct make_pt how)
{
    struct make_bytes b = {0};
    struct fmt_tensors list;
    struct s2_err err = {0};
    make_pt(&b, tensors, N, &how);
    cr_assert_eq(read_bytes(&list, &b, &err), S2_OK, "%s", err.text);
    cr_expect_eq(list.count, N);
    for (size_t i = 0; i < N; i++) expect_tensor(&list, &tensors[i]);
    const struct s2_stored *a = fmt_tensors_find(&list, "tied.a"), *t = fmt_tensors_find(&list, "tied.b");
    cr_expect_eq((const uint8_t *)t->data - (const uint8_t *)a->data, 8, "one storage holds both");
    fmt_tensors_free(&list);
    make_free(&b);
}

Test(pt, published_file)
{
    round_trip((struct make_pt){.root = "model", .state_dict = true, .byteorder = "little"});
}
Test(pt, state_dict_key)
{
    round_trip((struct make_pt){.root = "state_dict"});
}
Test(pt, model_state_dict_key)
{
    round_trip((struct make_pt){.root = "model_state_dict", .optimizer = true});
}
Test(pt, flat)
{
    round_trip((struct make_pt){.state_dict = true});
}
Test(pt, flat_dict)
{
    round_trip((struct make_pt){.protocol = 4});
}
Test(pt, parameters)
{
    round_trip((struct make_pt){.root = "model", .parameters = true, .protocol = 5});
}
Test(pt, optimizer_is_not_the_model)
{
    round_trip((struct make_pt){.root = "model", .optimizer = true});
}
Test(pt, data_parallel)
{
    round_trip((struct make_pt){.root = "model", .prefix = "module.", .state_dict = true});
}
Test(pt, compiled)
{
    round_trip((struct make_pt){.root = "model", .prefix = "module._orig_mod.", .protocol = 3});
}

Test(pt, other_byte_orders_are_refused)
{
    static const char *const orders[] = {"big", "pdp-11", ""};
    for (int i = 0; i < 3; i++) {
        struct make_bytes b = {0};
        struct fmt_tensors list;
        struct s2_err err = {0};
        make_pt(&b, tensors, N, &(struct make_pt){.root = "model", .byteorder = orders[i]});
        cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL, "%s", orders[i]);
        cr_expect(strstr(err.text, "big-endian"), "%s", err.text);
        fmt_tensors_free(&list);
        make_free(&b);
    }
}

Test(pt, a_prefix_of_some_names_stays)
{
    const struct make_tensor some[] = {
        {"module.x", S2_F32, 1, {2}, floats, 0},
        {"y", S2_F32, 1, {2}, floats, 0},
        {"module.", S2_F32, 1, {2}, floats, 0},
    };
    struct make_bytes b = {0};
    struct fmt_tensors list;
    struct s2_err err = {0};
    for (int i = 0; i < 2; i++) { /* with "y", and with a name that is nothing but the prefix */
        const struct make_tensor two[] = {some[0], some[1 + i]};
        make_pt(&b, two, 2, &(struct make_pt){.root = "model"});
        cr_assert_eq(read_bytes(&list, &b, &err), S2_OK, "%s", err.text);
        cr_expect_not_null(fmt_tensors_find(&list, "module.x"));
        cr_expect_null(fmt_tensors_find(&list, "x"));
        fmt_tensors_free(&list);
        make_free(&b);
    }
}

Test(pt, every_truncation_is_refused)
{
    struct make_bytes b = {0};
    make_pt(&b, tensors, N, &(struct make_pt){.root = "model", .optimizer = true});
    size_t whole = b.size;
    for (b.size = 0; b.size < whole; b.size += 7) {
        struct fmt_tensors list;
        struct s2_err err = {0};
        cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL);
        cr_expect(strstr(err.text, "incomplete"), "%s", err.text);
        fmt_tensors_free(&list);
    }
    make_free(&b);
}

/* ------------------------------------------------------------------ files of torch.save */

static struct fmt_checkpoint *open_data(const char *name)
{
    char path[256];
    struct fmt_checkpoint *c = NULL;
    struct s2_err err = {0};
    snprintf(path, sizeof path, DATA "%s", name);
    cr_assert_eq(fmt_checkpoint_open(&c, path, &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(fmt_checkpoint_container(c), "pt");
    return c;
}

/* A tensor that holds first, first + 1, ... */
static void expect_numbers(const struct fmt_checkpoint *c, const char *name, enum s2_dtype dtype, const char *shape,
                           float first)
{
    struct s2_stored t;
    float v[8];
    char text[64];
    const struct s2_source *s = fmt_checkpoint_source(c);
    cr_assert(s->find(s->ctx, name, &t), "%s", name);
    cr_expect_str_eq(t.name, name);
    cr_expect_eq(t.dtype, dtype, "%s", name);
    cr_expect_str_eq(s2_shape_text(t.dim, t.ndim, text, sizeof text), shape, "%s", name);
    size_t n = values(&t, v);
    for (size_t i = 0; i < n; i++) cr_expect_float_eq(v[i], first + (float)i, 0, "%s[%zu]", name, i);
}

Test(pt, torch_finetune)
{
    struct fmt_checkpoint *c = open_data("finetune.pt");
    cr_expect_eq(fmt_checkpoint_source(c)->count, 3);
    expect_numbers(c, "proj.weight", S2_F32, "[2,3]", 0);
    expect_numbers(c, "proj.bias", S2_F32, "[2]", 10);
    expect_numbers(c, "matrix", S2_F32, "[2,2]", 100);
    fmt_checkpoint_close(c);
}

Test(pt, torch_flat_protocol_4)
{
    struct fmt_checkpoint *c = open_data("flat.pt");
    const struct s2_source *s = fmt_checkpoint_source(c);
    struct s2_stored t;
    cr_expect_eq(s->count, 6);
    expect_numbers(c, "a", S2_F32, "[2,3]", 2);
    expect_numbers(c, "b", S2_F32, "[6]", 4);
    expect_numbers(c, "parameter", S2_F32, "[1,4]", 0.25f);
    expect_numbers(c, "empty", S2_F32, "[0,5]", 0);
    cr_assert(s->find(s->ctx, "double", &t));
    cr_expect_eq(t.dtype, S2_F64);
    double d[2];
    memcpy(d, t.data, sizeof d);
    cr_expect_eq(d[1], 1e10 + 1);
    cr_assert(s->find(s->ctx, "scalar", &t));
    int64_t i;
    memcpy(&i, t.data, sizeof i);
    cr_expect(t.dtype == S2_I64 && t.ndim == 0 && t.elements == 1 && i == -7);
    cr_expect_not(s->find(s->ctx, "version", &t), "it is no tensor");
    fmt_checkpoint_close(c);
}

Test(pt, torch_bf16_protocol_5)
{
    struct fmt_checkpoint *c = open_data("bf16.pt");
    cr_expect_eq(fmt_checkpoint_source(c)->count, 2);
    expect_numbers(c, "x", S2_BF16, "[2,2]", -1);
    expect_numbers(c, "y", S2_F16, "[3]", 0.25f);
    fmt_checkpoint_close(c);
}

static void refuses_data(const char *name, const char *sentence)
{
    char path[256];
    struct fmt_checkpoint *c = NULL;
    struct s2_err err = {0};
    snprintf(path, sizeof path, DATA "%s", name);
    cr_expect_eq(fmt_checkpoint_open(&c, path, &err), S2_E_MODEL, "%s", name);
    cr_expect_null(c);
    cr_expect(strstr(err.text, sentence), "\"%s\" does not say \"%s\"", err.text, sentence);
    cr_expect(!strncmp(err.text, path, strlen(path)), "%s", err.text);
}

Test(pt, torch_files_that_are_refused)
{
    refuses_data("transposed.pt", "tensor \"turned\" is not contiguous");
    refuses_data("complex.pt", "tensor \"wave\" has elements of type ComplexFloatStorage");
    refuses_data("module.pt", "a Python object (torch.nn.modules.linear.Identity) instead of weights");
    refuses_data("other.pt", "(its keys: net, epoch)");
    refuses_data("legacy.pt", "PyTorch before 1.6");
}

/* ------------------------------------------------------------------ hostile structures around 64 bytes of storage */

#define TENSOR(storage, numel, offset, size, stride)                                                                   \
    "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\n" storage "\nU\1"                                          \
    "0U\3cpu" numel "tQ" offset "(" size "t(" stride "t\x89}tR"
#define MODEL(members) "\x80\2}U\5model}(" members "us."
#define MEMBER(tensor) "U\1x" tensor
#define ONE(tensor)    MODEL(MEMBER(tensor))
#define BIG            "\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f"
#define HALF_BIG       "\x8a\x8\0\0\0\0\0\0\0\x40"

static void refuses_pickle(const char *pickle, size_t size, const char *sentence)
{
    struct make_bytes b = {0};
    struct fmt_tensors list;
    struct s2_err err = {0};
    make_pt_of_pickle(&b, pickle, size);
    cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL, "%s", sentence);
    cr_expect(strstr(err.text, sentence), "\"%s\" does not say \"%s\"", err.text, sentence);
    cr_expect(!strncmp(err.text, "f.pt: ", 6), "%s", err.text);
    cr_expect_eq(list.count, 0);
    fmt_tensors_free(&list);
    make_free(&b);
}
#define REFUSES(literal, sentence) refuses_pickle(literal, sizeof literal - 1, sentence)

/* Reads, and expects one tensor of n elements at this byte of the storage. */
static void expect_one(const char *pickle, size_t size, size_t n, size_t byte)
{
    struct make_bytes b = {0};
    struct fmt_tensors list;
    struct s2_err err = {0};
    make_pt_of_pickle(&b, pickle, size);
    cr_assert_eq(read_bytes(&list, &b, &err), S2_OK, "%s", err.text);
    cr_assert_eq(list.count, 1);
    cr_expect_eq(list.at[0].elements, n);
    cr_expect_eq(*(const uint8_t *)list.at[0].data, byte);
    fmt_tensors_free(&list);
    make_free(&b);
}
#define ACCEPTS(literal, n, byte) expect_one(literal, sizeof literal - 1, n, byte)

Test(pt, places_in_a_storage)
{
    ACCEPTS(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "K\4K\4", "K\4K\1")), 16, 0);
    ACCEPTS(ONE(TENSOR("FloatStorage", "K\x10", "K\4", "K\4K\3", "K\3K\1")), 12, 16);
    ACCEPTS(ONE(TENSOR("BFloat16Storage", "K\x20", "K\x1f", "K\1", "K\1")), 1, 62);
    ACCEPTS(ONE(TENSOR("FloatStorage", "K\x10", "K\1", "", "")), 1, 4);
    ACCEPTS(ONE(TENSOR("FloatStorage", "K\1", "K\0", "K\1", "K\1")), 1, 0); /* an entry larger than its storage */
    /* the stride of a dimension of one element says nothing */
    ACCEPTS(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "K\1K\4K\1", "K\x63K\1J\xff\xff\xff\xff")), 4, 0);
}

Test(pt, untyped_storage)
{
    static const char v3[] = ONE("ctorch._utils\n_rebuild_tensor_v3\n((U\7storagectorch.storage\nUntypedStorage\nU\1"
                                 "0U\3cpuK\x40tQ"
                                 "K\3(K\4t(K\1t\x89}ctorch\nfloat32\ntR");
    ACCEPTS(v3, 4, 12);
    REFUSES(ONE("ctorch._utils\n_rebuild_tensor_v3\n((U\7storagectorch.storage\nUntypedStorage\nU\1"
                "0U\3cpuK\x40tQ"
                "K\x10(K\1t(K\1t\x89}ctorch\nfloat32\ntR"),
            "reaches beyond its storage");
    REFUSES(ONE("ctorch._utils\n_rebuild_tensor_v3\n((U\7storagectorch.storage\nUntypedStorage\nU\1"
                "0U\3cpuK\x40tQ"
                "K\0(K\4t(K\1t\x89}ctorch\nfloat8_e4m3fn\ntR"),
            "elements of type float8_e4m3fn");
}

Test(pt, refuses_tensors_beyond_their_storage)
{
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\1", "K\4K\4", "K\4K\1")), "tensor \"x\" reaches beyond its storage");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\x11", "K\0", "K\1")), "reaches beyond its storage");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "J\xff\xff\xff\xff", "K\1", "K\1")), "reaches beyond its storage");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", BIG, "K\1", "K\1")), "reaches beyond its storage");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "N", "K\1", "K\1")), "reaches beyond its storage");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x11", "K\0", "K\1", "K\1")), "a storage that is larger than its entry");
    REFUSES(ONE(TENSOR("DoubleStorage", "K\x10", "K\0", "K\1", "K\1")), "a storage that is larger than its entry");
    REFUSES(ONE(TENSOR("FloatStorage", BIG, "K\0", "K\1", "K\1")), "a storage without a possible size");
    REFUSES(ONE(TENSOR("FloatStorage", "J\xff\xff\xff\xff", "K\0", "K\1", "K\1")), "a storage without a key or a size");
}

Test(pt, refuses_impossible_shapes)
{
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "J\xff\xff\xff\xff", "K\1")), "a negative or odd shape");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "G\0\0\0\0\0\0\0\0", "K\1")), "a negative or odd shape");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", BIG, "K\1")), "a shape that is larger than memory");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", HALF_BIG HALF_BIG, "K\1K\1")),
            "a shape that is larger than memory");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "K\1K\1K\1K\1K\1K\1K\1K\1K\1", "")), "more than 8 dimensions");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "K\2K\2", "K\1")), "a shape and strides of different length");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "K\2K\2", "K\1K\2")), "is not contiguous");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "K\2K\2", "K\4K\1")), "is not contiguous");
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "K\4", "K\0")), "is not contiguous"); /* expand() */
    REFUSES(ONE(TENSOR("FloatStorage", "K\x10", "K\0", "K\4", "N")), "is not contiguous");
}

Test(pt, refuses_tensors_without_storage)
{
    REFUSES(ONE("ctorch._utils\n_rebuild_tensor_v2\n)R"), "has no storage, offset, size and stride");
    REFUSES(ONE("ctorch._utils\n_rebuild_tensor_v2\n(NK\0))tR"), "has no storage");
    REFUSES(ONE("ctorch._utils\n_rebuild_tensor_v2\n(NQK\0))tR"), "has no storage");
    REFUSES(ONE("ctorch._utils\n_rebuild_tensor_v2\n()QK\0))tR"), "has no storage");
    REFUSES(ONE("ctorch._utils\n_rebuild_tensor_v2\n(U\7storage\x85QK\0))tR"), "a storage without a key or a size");
    REFUSES(ONE("ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1zU\3cpuK\1tQK\0))tR"),
            "a storage that is not in the archive");
    REFUSES(ONE("ctorch._utils\n_rebuild_qtensor\n)R"), "is quantized, sparse or distributed");
    REFUSES(ONE(TENSOR("EvalStorage", "K\x10", "K\0", "K\1", "K\1")), "elements of type EvalStorage");
}

Test(pt, refuses_structures_without_weights)
{
    REFUSES("N.", "holds no weights");
    REFUSES("}.", "(its keys: none)");
    REFUSES("K\1.", "holds no weights");
    REFUSES("}U\5model}s.", "(its keys: model)");
    REFUSES("}U\5modelNs.", "(its keys: model)");
    REFUSES("}q\0U\5modelh\0s.", "holds no weights"); /* contains itself */
    REFUSES("}q\0(U\1ah\0h\0h\0u.", "holds no weights");
    REFUSES("cos\nsystem\nU\4true\x85R.", "a Python object (os.system) instead of weights");
    REFUSES("}U\5modelcos\nsystem\nU\4true\x85Rs.", "a Python object (os.system) instead of weights");
    REFUSES(")Q.", "holds no weights");
    REFUSES("", "data.pkl: byte 0");
}

Test(pt, refuses_bad_names)
{
    static const char begin[] = "\x80\2}U\5model}(X",
                      end[] = TENSOR("FloatStorage", "K\x10", "K\0", "K\1", "K\1") "us.";
    struct make_bytes b = {0};
    make_put(&b, begin, sizeof begin - 1);
    make_number(&b, 520, 4);
    for (int i = 0; i < 520; i++) make_text(&b, "n");
    make_put(&b, end, sizeof end - 1);
    refuses_pickle((const char *)b.data, b.size, "overlong name");
    make_free(&b);
    REFUSES(MODEL("U\0" TENSOR("FloatStorage", "K\x10", "K\0", "K\1", "K\1")), "an empty or overlong name");
    REFUSES(MODEL("U\5a\x1b[2J" TENSOR("FloatStorage", "K\x10", "K\0", "K\1", "K\1")), "control characters");
    REFUSES(MODEL("U\3a\0b" TENSOR("FloatStorage", "K\x10", "K\0", "K\1", "K\1")), "control characters");
}

Test(pt, refuses_two_tensors_of_one_name)
{
    static const char pickle[] = MODEL(MEMBER(TENSOR("FloatStorage", "K\x10", "K\0", "K\1", "K\1"))
                                           MEMBER(TENSOR("FloatStorage", "K\x10", "K\1", "K\1", "K\1")));
    struct make_bytes b = {0};
    struct fmt_tensors list;
    struct s2_err err = {0};
    make_pt_of_pickle(&b, pickle, sizeof pickle - 1);
    cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL);
    cr_expect(strstr(err.text, "two tensors are called \"x\""), "%s", err.text);
    fmt_tensors_free(&list);
    make_free(&b);
}

Test(pt, other_archives_are_named)
{
    const struct make_entry script[] = {
        {"m/data.pkl", "N.", 2}, {"m/code/__torch__.py", "", 0}, {"m/constants.pkl", ").", 2}};
    const struct make_entry plain[] = {{"readme.txt", "hello", 5}, {"checkpoints/x/data.pkl", "N.", 2}};
    struct fmt_tensors list;
    struct s2_err err = {0};
    struct make_bytes b = {0};
    make_zip(&b, script, 3);
    cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL);
    cr_expect(strstr(err.text, "TorchScript"), "%s", err.text);
    make_free(&b);

    err = (struct s2_err){0};
    make_zip(&b, plain, 2);
    cr_expect_eq(read_bytes(&list, &b, &err), S2_E_MODEL);
    cr_expect(strstr(err.text, "a ZIP archive without a PyTorch checkpoint"), "%s", err.text);
    make_free(&b);
}

/* pt.c - checkpoints of torch.save: a ZIP archive with the structure in PREFIX/data.pkl and one entry
 * PREFIX/data/KEY a storage (torch/serialization.py). Tensors are calls of torch._utils._rebuild_tensor_v2 on
 * persistent ids that name a storage. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint.h"
#include "pickle.h"
#include "zip.h"

typedef const struct fmt_pickle_value value;

struct pt {
    struct fmt_tensors *out;
    const char *path;
    struct fmt_zip zip;
    struct fmt_pickle pickle;
    const char *prefix; /* of the entries, with the slash */
    size_t prefix_size;
    size_t skipped; /* members of the model part that are no tensors */
    struct s2_err *err;
};

/* A tensor on its way from the pickle: what to call it in sentences, and its storage. */
struct tensor {
    char name[80];
    struct s2_stored stored;
    const uint8_t *storage;
    size_t storage_bytes;
};

static value *at(const struct pt *pt, fmt_pickle_ref ref)
{
    return &pt->pickle.value[ref];
}
static value *item(const struct pt *pt, value *v, uint32_t i)
{
    return fmt_pickle_item(&pt->pickle, v, i);
}

static bool is_global(const struct pt *pt, value *v, const char *module, const char *name)
{
    return fmt_pickle_is_global(&pt->pickle, v, module, name);
}

/* Whether v is a call of module.name. */
static bool is_call(const struct pt *pt, value *v, const char *module, const char *name)
{
    return v && v->type == FMT_PICKLE_OBJECT && is_global(pt, at(pt, v->first), module, name);
}

/* The text of a value for a sentence; "" if it is no text. */
static const char *shown(value *v, char *buf, size_t size)
{
    size_t n = v && v->type == FMT_PICKLE_TEXT ? v->size : 0;
    if (n >= size) n = size - 1;
    for (size_t i = 0; i < n; i++) buf[i] = (unsigned char)v->text[i] < ' ' || v->text[i] == 0x7f ? '?' : v->text[i];
    buf[n] = '\0';
    return buf;
}

static enum s2_status bad_tensor(const struct pt *pt, const struct tensor *t, const char *what)
{
    return s2_fail(pt->err, S2_E_MODEL, "%s: tensor \"%s\" %s", pt->path, t->name, what);
}

static enum s2_status damaged_tensor(const struct pt *pt, const struct tensor *t, const char *what)
{
    return s2_fail(pt->err, S2_E_MODEL, "%s: tensor \"%s\" %s; the file is damaged", pt->path, t->name, what);
}

/* ------------------------------------------------------------------ tensors */

struct dtype_name {
    const char *storage, *dtype;
    enum s2_dtype value;
};

static const struct dtype_name dtypes[] = {
    {"FloatStorage", "float32", S2_F32},  {"HalfStorage", "float16", S2_F16}, {"BFloat16Storage", "bfloat16", S2_BF16},
    {"DoubleStorage", "float64", S2_F64}, {"LongStorage", "int64", S2_I64},   {"IntStorage", "int32", S2_I32},
    {"ShortStorage", "int16", S2_I16},    {"CharStorage", "int8", S2_I8},     {"ByteStorage", "uint8", S2_U8},
    {"BoolStorage", "bool", S2_BOOL},
};

/* torch.FloatStorage or torch.float32. */
static bool find_dtype(const struct pt *pt, value *global, enum s2_dtype *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (is_global(pt, global, "torch", dtypes[i].storage) || is_global(pt, global, "torch", dtypes[i].dtype)) {
            *dtype = dtypes[i].value;
            return true;
        }
    return false;
}

static enum s2_status unknown_dtype(const struct pt *pt, const struct tensor *t, value *global)
{
    char name[64];
    value *text = global && global->type == FMT_PICKLE_GLOBAL ? at(pt, global->second) : NULL;
    return s2_fail(pt->err, S2_E_MODEL,
                   "%s: tensor \"%s\" has elements of type %s, which is not supported; save it as float32, float16 or "
                   "bfloat16",
                   pt->path, t->name, shown(text, name, sizeof name));
}

/* ("storage", torch.FloatStorage, key, location, numel); dtype, if given, is of an untyped storage's elements. */
static enum s2_status find_storage(const struct pt *pt, struct tensor *t, value *storage, value *dtype)
{
    value *id = storage->type == FMT_PICKLE_PERSISTENT ? at(pt, storage->first) : NULL;
    if (!id || id->type != FMT_PICKLE_TUPLE || !fmt_pickle_is_text(item(pt, id, 0), "storage"))
        return damaged_tensor(pt, t, "has no storage");
    value *type = item(pt, id, 1), *key = item(pt, id, 2), *numel = item(pt, id, 4);
    if (!key || key->type != FMT_PICKLE_TEXT || !numel || numel->type != FMT_PICKLE_INT || numel->integer < 0)
        return damaged_tensor(pt, t, "has a storage without a key or a size");
    bool untyped = is_global(pt, type, "torch.storage", "UntypedStorage");
    value *element = untyped ? dtype : type;
    if (!find_dtype(pt, element, &t->stored.dtype)) return unknown_dtype(pt, t, element);
    if (!s2_mul((size_t)numel->integer, untyped ? 1 : s2_dtype_size(t->stored.dtype), &t->storage_bytes))
        return damaged_tensor(pt, t, "has a storage without a possible size");

    char name[1024];
    int length =
        snprintf(name, sizeof name, "%.*sdata/%.*s", (int)pt->prefix_size, pt->prefix, (int)key->size, key->text);
    const struct fmt_zip_entry *e = length < (int)sizeof name ? fmt_zip_find(&pt->zip, name, (size_t)length) : NULL;
    if (!e) return damaged_tensor(pt, t, "has a storage that is not in the archive");
    if (e->size < t->storage_bytes) return damaged_tensor(pt, t, "has a storage that is larger than its entry");
    return fmt_zip_data(&pt->zip, e, &t->storage, pt->err);
}

static enum s2_status read_shape(const struct pt *pt, struct tensor *t, value *size)
{
    if (!size || size->type != FMT_PICKLE_TUPLE) return damaged_tensor(pt, t, "has no shape");
    if (size->size > S2_MAX_DIMS) return damaged_tensor(pt, t, "has more than 8 dimensions");
    t->stored.ndim = (int)size->size;
    for (int i = 0; i < t->stored.ndim; i++) {
        value *n = item(pt, size, (uint32_t)i);
        if (n->type != FMT_PICKLE_INT || n->integer < 0) return damaged_tensor(pt, t, "has a negative or odd shape");
        t->stored.dim[i] = n->integer;
    }
    if (!fmt_shape_elements(t->stored.dim, t->stored.ndim, t->stored.dtype, &t->stored.elements))
        return damaged_tensor(pt, t, "has a shape that is larger than memory");
    return S2_OK;
}

/* Row-major without gaps. The stride of a dimension of one element says nothing, nor do those of an empty tensor. */
static enum s2_status check_strides(const struct pt *pt, const struct tensor *t, value *stride)
{
    if (!stride || stride->type != FMT_PICKLE_TUPLE || stride->size != (uint32_t)t->stored.ndim)
        return damaged_tensor(pt, t, "has a shape and strides of different length");
    int64_t expected = 1;
    for (int i = t->stored.ndim - 1; i >= 0 && t->stored.elements; i--) {
        value *n = item(pt, stride, (uint32_t)i);
        if (t->stored.dim[i] != 1 && (n->type != FMT_PICKLE_INT || n->integer != expected))
            return bad_tensor(pt, t,
                              "is not contiguous (a transposed or sliced view, or channels_last); save it with "
                              ".contiguous()");
        expected *= t->stored.dim[i];
    }
    return S2_OK;
}

/* (storage, offset, size, stride, requires_grad, hooks[, dtype or metadata]) */
static enum s2_status read_tensor(const struct pt *pt, struct tensor *t, value *arguments, bool has_dtype)
{
    enum s2_status status;
    if (arguments->type != FMT_PICKLE_TUPLE || arguments->size < 4 || (has_dtype && arguments->size < 7))
        return damaged_tensor(pt, t, "has no storage, offset, size and stride");
    value *dtype = has_dtype ? item(pt, arguments, 6) : NULL;
    if ((status = find_storage(pt, t, item(pt, arguments, 0), dtype))) return status;
    if ((status = read_shape(pt, t, item(pt, arguments, 2)))) return status;
    if ((status = check_strides(pt, t, item(pt, arguments, 3)))) return status;

    size_t each = s2_dtype_size(t->stored.dtype), numel = t->storage_bytes / each;
    value *offset = item(pt, arguments, 1);
    if (offset->type != FMT_PICKLE_INT || offset->integer < 0 || (size_t)offset->integer > numel ||
        t->stored.elements > numel - (size_t)offset->integer)
        return damaged_tensor(pt, t, "reaches beyond its storage");
    t->stored.data = t->storage + (size_t)offset->integer * each;
    return S2_OK;
}

/* A torch.nn.Parameter is a call whose first argument is the tensor. */
static value *unwrap_parameter(const struct pt *pt, value *v)
{
    bool wrapped = is_call(pt, v, "torch._utils", "_rebuild_parameter") ||
                   is_call(pt, v, "torch._utils", "_rebuild_parameter_with_state");
    return wrapped ? item(pt, at(pt, v->second), 0) : v;
}

/* The name of the function of torch._utils that v calls; NULL: v is no such call. */
static value *rebuilder(const struct pt *pt, value *v)
{
    value *callable = v && v->type == FMT_PICKLE_OBJECT ? at(pt, v->first) : NULL;
    bool of_torch =
        callable && callable->type == FMT_PICKLE_GLOBAL && fmt_pickle_is_text(at(pt, callable->first), "torch._utils");
    return of_torch ? at(pt, callable->second) : NULL;
}

/* One member of the model part. Members that are no tensors (a version, a config) are left out. */
static enum s2_status read_member(struct pt *pt, value *key, value *member)
{
    struct tensor t = {0};
    enum s2_status status;
    member = unwrap_parameter(pt, member);
    value *how = rebuilder(pt, member);
    if (key->type != FMT_PICKLE_TEXT || !how) {
        pt->skipped++;
        return S2_OK;
    }
    shown(key, t.name, sizeof t.name);
    bool v3 = fmt_pickle_is_text(how, "_rebuild_tensor_v3");
    if (!v3 && !fmt_pickle_is_text(how, "_rebuild_tensor_v2") && !fmt_pickle_is_text(how, "_rebuild_tensor"))
        return bad_tensor(pt, &t, "is quantized, sparse or distributed; save it as a plain dense tensor");
    if ((status = read_tensor(pt, &t, at(pt, member->second), v3))) return status;
    return fmt_tensors_add(pt->out, &t.stored, key->text, key->size, pt->err);
}

/* ------------------------------------------------------------------ the model part */

static bool is_dict(const struct pt *pt, value *v)
{
    return v && (v->type == FMT_PICKLE_DICT || is_call(pt, v, "collections", "OrderedDict"));
}

static bool is_tensor(const struct pt *pt, value *v)
{
    return rebuilder(pt, unwrap_parameter(pt, v));
}

static bool has_tensors(const struct pt *pt, value *dict)
{
    const struct fmt_pickle_cell *cell = pt->pickle.cell;
    for (uint32_t c = dict->head; c; c = cell[cell[c].next].next)
        if (is_tensor(pt, at(pt, cell[cell[c].next].value))) return true;
    return false;
}

/* torch.save(model) instead of torch.save(model.state_dict()) stores an object of the model's class. */
static enum s2_status whole_object(const struct pt *pt, value *object)
{
    char module[64], name[64];
    value *class = at(pt, object->first);
    bool named = class->type == FMT_PICKLE_GLOBAL;
    return s2_fail(pt->err, S2_E_MODEL,
                   "%s: this holds a Python object (%s.%s) instead of weights; in Python, save its weights with "
                   "torch.save({\"model\": model.state_dict()}, FILE)",
                   pt->path, shown(named ? at(pt, class->first) : NULL, module, sizeof module),
                   shown(named ? at(pt, class->second) : NULL, name, sizeof name));
}

static enum s2_status no_model(const struct pt *pt, value *root)
{
    char keys[200] = "", key[40];
    size_t used = 0;
    const struct fmt_pickle_cell *cell = pt->pickle.cell;
    if (root->type == FMT_PICKLE_OBJECT && !is_dict(pt, root)) return whole_object(pt, root);
    for (uint32_t c = is_dict(pt, root) ? root->head : 0; c && used + 50 < sizeof keys; c = cell[cell[c].next].next)
        used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%s", used ? ", " : "",
                                 shown(at(pt, cell[c].value), key, sizeof key));
    return s2_fail(
        pt->err, S2_E_MODEL,
        "%s: this holds no weights: there are tensors neither under \"model\" nor \"state_dict\" nor at the top "
        "(its keys: %s); is it a SAM 2 checkpoint?",
        pt->path, used ? keys : "none");
}

/* The dict of weights: never the optimizer's, whose tensors have the same shapes. */
static enum s2_status find_model(const struct pt *pt, value **model)
{
    static const char *const keys[] = {"model", "state_dict", "model_state_dict"};
    value *root = at(pt, pt->pickle.root);
    for (size_t i = 0; is_dict(pt, root) && i < sizeof keys / sizeof *keys; i++) {
        *model = fmt_pickle_lookup(&pt->pickle, root, keys[i]);
        if (is_dict(pt, *model) && has_tensors(pt, *model)) return S2_OK;
        if (i == 0 && *model && (*model)->type == FMT_PICKLE_OBJECT && !is_dict(pt, *model) && !is_tensor(pt, *model))
            return whole_object(pt, *model);
    }
    *model = root;
    return is_dict(pt, root) && has_tensors(pt, root) ? S2_OK : no_model(pt, root);
}

static enum s2_status read_model(struct pt *pt)
{
    value *model = NULL;
    enum s2_status status = find_model(pt, &model);
    if (status) return status;
    const struct fmt_pickle_cell *cell = pt->pickle.cell;
    for (uint32_t c = model->head; c; c = cell[cell[c].next].next) {
        status = read_member(pt, at(pt, cell[c].value), at(pt, cell[cell[c].next].value));
        if (status) return status;
    }
    if (pt->skipped) s2_log(S2_LOG_DEBUG, "%s: ignored %zu entries that are no tensors", pt->path, pt->skipped);
    return S2_OK;
}

/* ------------------------------------------------------------------ the archive */

/* The entry called PREFIX/name, where nothing is known of the prefix but that it has no slash. */
static const struct fmt_zip_entry *find_below_prefix(const struct fmt_zip *z, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < z->count; i++) {
        const struct fmt_zip_entry *e = &z->entry[i];
        const char *slash = memchr(e->name, '/', e->name_size);
        size_t rest = slash ? (size_t)(e->name + e->name_size - slash) - 1 : 0;
        if (slash && rest == n && !memcmp(slash + 1, name, n)) return e;
    }
    return NULL;
}

static enum s2_status check_byteorder(const struct pt *pt)
{
    const uint8_t *text = NULL;
    const struct fmt_zip_entry *e = find_below_prefix(&pt->zip, "byteorder");
    if (!e) return S2_OK;
    enum s2_status status = fmt_zip_data(&pt->zip, e, &text, pt->err);
    if (status || (e->size >= 6 && !memcmp(text, "little", 6))) return status;
    return s2_fail(pt->err, S2_E_MODEL,
                   "%s: this was saved on a big-endian machine; load it with torch.load and save it again on a "
                   "little-endian one",
                   pt->path);
}

static enum s2_status read_archive(struct pt *pt)
{
    const struct fmt_zip_entry *e = find_below_prefix(&pt->zip, "data.pkl");
    if (find_below_prefix(&pt->zip, "constants.pkl"))
        return s2_fail(
            pt->err, S2_E_MODEL,
            "%s: this is a TorchScript program, not a checkpoint; use the checkpoint that it was exported from",
            pt->path);
    if (!e)
        return s2_fail(pt->err, S2_E_MODEL,
                       "%s: this is a ZIP archive without a PyTorch checkpoint in it; unpack it and name the .pt or "
                       ".safetensors file",
                       pt->path);
    pt->prefix = e->name;
    pt->prefix_size = e->name_size - strlen("data.pkl");

    const uint8_t *data = NULL;
    char name[PATH_MAX];
    enum s2_status status;
    snprintf(name, sizeof name, "%s: data.pkl", pt->path);
    if ((status = check_byteorder(pt)) || (status = fmt_zip_data(&pt->zip, e, &data, pt->err))) return status;
    if ((status = fmt_pickle_read(&pt->pickle, data, e->size, name, pt->err))) return status;
    return read_model(pt);
}

enum s2_status fmt_pt_read(struct fmt_tensors *out, const uint8_t *data, size_t size, struct s2_err *err)
{
    struct pt pt = {.out = out, .path = out->path, .err = err};
    enum s2_status status = fmt_zip_open(&pt.zip, data, size, out->path, err);
    if (!status) status = read_archive(&pt);
    fmt_pickle_free(&pt.pickle);
    fmt_zip_close(&pt.zip);
    if (status) fmt_tensors_free(out);
    return status;
}

/* pickle.c - see pickle.h. The stack machine: values are numbered, the stack and the memo hold their numbers. */
#include "pickle.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "pickle_opcodes.h"

/* A checkpoint of the largest model with its optimizer has 60 thousand values in half a MiB. */
#define MAX_PICKLE (64u << 20)
#define MAX_COUNT  (4u << 20) /* values, cells, stack and memo entries, each */

struct refs {
    uint32_t *at;
    uint32_t count, capacity;
};

struct machine {
    struct fmt_pickle *tree;
    uint32_t value_capacity, cell_capacity;
    struct refs stack, marks, memo; /* marks: heights of the stack */
    uint32_t memoized;
    const uint8_t *data;
    size_t size, at, op_at;
    const char *name;
    struct s2_err *err;
};

static enum s2_status damaged(struct machine *m, const char *what)
{
    return s2_fail(m->err, S2_E_MODEL, "%s: byte %zu: %s; the file is damaged or was not written by torch.save",
                   m->name, m->op_at, what);
}

/* Makes room for one more of `count` items of `each` bytes in *array. */
static enum s2_status reserve(struct machine *m, void **array, uint32_t count, uint32_t *capacity, size_t each)
{
    if (count < *capacity) return S2_OK;
    if (count >= MAX_COUNT) return damaged(m, "it has far more values than a checkpoint needs");
    uint32_t larger = *capacity ? *capacity * 2 : 256;
    void *moved = realloc(*array, larger * each);
    if (!moved) return s2_no_memory(m->err, "the values of a pickle", larger * each);
    *array = moved;
    *capacity = larger;
    return S2_OK;
}

static enum s2_status add_ref(struct machine *m, struct refs *r, uint32_t x)
{
    void *array = r->at;
    enum s2_status status = reserve(m, &array, r->count, &r->capacity, sizeof *r->at);
    r->at = array;
    if (status) return status;
    r->at[r->count++] = x;
    return S2_OK;
}

static enum s2_status push(struct machine *m, fmt_pickle_ref ref)
{
    return add_ref(m, &m->stack, ref);
}

static enum s2_status push_value(struct machine *m, struct fmt_pickle_value v)
{
    void *array = m->tree->value;
    enum s2_status status = reserve(m, &array, m->tree->values, &m->value_capacity, sizeof v);
    m->tree->value = array;
    if (status) return status;
    m->tree->value[m->tree->values] = v;
    return push(m, m->tree->values++);
}

static enum s2_status push_integer(struct machine *m, enum fmt_pickle_type type, int64_t x)
{
    return push_value(m, (struct fmt_pickle_value){.type = type, .integer = x});
}

static enum s2_status push_pair(struct machine *m, enum fmt_pickle_type type, fmt_pickle_ref first,
                                fmt_pickle_ref second)
{
    return push_value(m, (struct fmt_pickle_value){.type = type, .first = first, .second = second});
}

/* Height of the stack below which the current mark's owner has its values. */
static uint32_t floor_of(const struct machine *m)
{
    return m->marks.count ? m->marks.at[m->marks.count - 1] : 0;
}

static enum s2_status pop(struct machine *m, fmt_pickle_ref *ref)
{
    if (m->stack.count <= floor_of(m)) return damaged(m, "a value is missing on the stack");
    *ref = m->stack.at[--m->stack.count];
    return S2_OK;
}

static enum s2_status top(struct machine *m, fmt_pickle_ref *ref)
{
    if (m->stack.count <= floor_of(m)) return damaged(m, "a value is missing on the stack");
    *ref = m->stack.at[m->stack.count - 1];
    return S2_OK;
}

static enum s2_status pop_mark(struct machine *m, uint32_t *height)
{
    if (!m->marks.count) return damaged(m, "a mark is missing on the stack");
    *height = m->marks.at[--m->marks.count];
    return S2_OK;
}

/* Moves the stack's values from height `from` on into the container. */
static enum s2_status take_items(struct machine *m, fmt_pickle_ref container, uint32_t from)
{
    struct fmt_pickle *t = m->tree;
    for (uint32_t i = from; i < m->stack.count; i++) {
        void *array = t->cell;
        enum s2_status status = reserve(m, &array, t->cells, &m->cell_capacity, sizeof *t->cell);
        t->cell = array;
        if (status) return status;
        struct fmt_pickle_value *v = &t->value[container];
        t->cell[t->cells] = (struct fmt_pickle_cell){m->stack.at[i], 0};
        if (v->head)
            t->cell[v->tail].next = t->cells;
        else
            v->head = t->cells;
        v->tail = t->cells++;
        v->size++;
    }
    m->stack.count = from;
    return S2_OK;
}

/* Appends the values above `from` to the container that lies right below it. */
static enum s2_status extend(struct machine *m, uint32_t from, enum fmt_pickle_type type)
{
    if (from <= floor_of(m)) return damaged(m, "a container is missing on the stack");
    fmt_pickle_ref container = m->stack.at[from - 1];
    enum fmt_pickle_type is = m->tree->value[container].type;
    if (is != type && is != FMT_PICKLE_OBJECT) return damaged(m, "an item is added to something that has no items");
    if (is == FMT_PICKLE_OBJECT && type != FMT_PICKLE_DICT) { /* objects keep pairs only */
        m->stack.count = from;
        return S2_OK;
    }
    if (type == FMT_PICKLE_DICT && (m->stack.count - from) % 2) return damaged(m, "a key has no value");
    return take_items(m, container, from);
}

static enum s2_status extend_marked(struct machine *m, enum fmt_pickle_type type)
{
    uint32_t from = 0;
    enum s2_status status = pop_mark(m, &from);
    return status ? status : extend(m, from, type);
}

static enum s2_status extend_top(struct machine *m, uint32_t n, enum fmt_pickle_type type)
{
    if (m->stack.count - floor_of(m) < n + 1) return damaged(m, "a value is missing on the stack");
    return extend(m, m->stack.count - n, type);
}

/* Makes a container of the values above `from`. */
static enum s2_status collect(struct machine *m, uint32_t from, enum fmt_pickle_type type)
{
    enum s2_status status = push_value(m, (struct fmt_pickle_value){.type = type});
    if (status) return status;
    fmt_pickle_ref made = m->stack.at[--m->stack.count];
    if ((status = take_items(m, made, from))) return status;
    return push(m, made);
}

static enum s2_status collect_marked(struct machine *m, enum fmt_pickle_type type)
{
    uint32_t from = 0;
    enum s2_status status = pop_mark(m, &from);
    return status ? status : collect(m, from, type);
}

static enum s2_status collect_top(struct machine *m, uint32_t n)
{
    if (m->stack.count - floor_of(m) < n) return damaged(m, "a value is missing on the stack");
    return collect(m, m->stack.count - n, FMT_PICKLE_TUPLE);
}

/* The next n bytes of the pickle. */
static enum s2_status take(struct machine *m, uint64_t n, const uint8_t **p)
{
    if (n > m->size - m->at) return damaged(m, "it ends in the middle of a value");
    *p = m->data + m->at;
    m->at += (size_t)n;
    return S2_OK;
}

/* An unsigned number of n bytes, n <= 8. */
static enum s2_status take_number(struct machine *m, size_t n, uint64_t *x)
{
    const uint8_t *p = NULL;
    enum s2_status status = take(m, n, &p);
    if (status) return status;
    *x = 0;
    for (size_t i = 0; i < n; i++) *x |= (uint64_t)p[i] << 8 * i;
    return S2_OK;
}

/* Text or bytes behind a length of n bytes. */
static enum s2_status push_string(struct machine *m, size_t n, enum fmt_pickle_type type)
{
    uint64_t length = 0;
    const uint8_t *p = NULL;
    enum s2_status status;
    if ((status = take_number(m, n, &length)) || (status = take(m, length, &p))) return status;
    return push_value(m, (struct fmt_pickle_value){.type = type, .text = (const char *)p, .size = (uint32_t)length});
}

static enum s2_status push_unsigned(struct machine *m, size_t n)
{
    uint64_t x = 0;
    enum s2_status status = take_number(m, n, &x);
    return status ? status : push_integer(m, FMT_PICKLE_INT, (int64_t)x);
}

static enum s2_status push_int32(struct machine *m)
{
    uint64_t x = 0;
    enum s2_status status = take_number(m, 4, &x);
    return status ? status : push_integer(m, FMT_PICKLE_INT, (int32_t)(uint32_t)x);
}

/* Two's complement of any length, behind a length of n bytes. */
static enum s2_status push_long(struct machine *m, size_t n)
{
    uint64_t length = 0;
    const uint8_t *p = NULL;
    enum s2_status status;
    if ((status = take_number(m, n, &length)) || (status = take(m, length, &p))) return status;
    if (length > 8) return push_integer(m, FMT_PICKLE_BIG_INT, 0);
    uint64_t x = length && p[length - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)length; i-- > 0;) x = x << 8 | p[i];
    return push_integer(m, FMT_PICKLE_INT, (int64_t)x);
}

static enum s2_status push_float(struct machine *m)
{
    const uint8_t *p = NULL;
    enum s2_status status = take(m, 8, &p);
    if (status) return status;
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    struct fmt_pickle_value v = {.type = FMT_PICKLE_FLOAT};
    memcpy(&v.number, &bits, 8);
    return push_value(m, v);
}

static enum s2_status push_line(struct machine *m)
{
    const uint8_t *p = m->data + m->at, *end = memchr(p, '\n', m->size - m->at);
    if (!end) return damaged(m, "a name has no end");
    m->at += (size_t)(end - p) + 1;
    return push_value(
        m, (struct fmt_pickle_value){.type = FMT_PICKLE_TEXT, .text = (const char *)p, .size = (uint32_t)(end - p)});
}

/* Module and name are the two topmost values. */
static enum s2_status stack_global(struct machine *m)
{
    fmt_pickle_ref module = 0, name = 0;
    enum s2_status status;
    if ((status = pop(m, &name)) || (status = pop(m, &module))) return status;
    if (m->tree->value[module].type != FMT_PICKLE_TEXT || m->tree->value[name].type != FMT_PICKLE_TEXT)
        return damaged(m, "a global has no name");
    return push_pair(m, FMT_PICKLE_GLOBAL, module, name);
}

static enum s2_status global(struct machine *m)
{
    enum s2_status status;
    if ((status = push_line(m)) || (status = push_line(m))) return status;
    return stack_global(m);
}

static enum s2_status persistent(struct machine *m)
{
    fmt_pickle_ref id = 0;
    enum s2_status status = pop(m, &id);
    return status ? status : push_pair(m, FMT_PICKLE_PERSISTENT, id, 0);
}

/* REDUCE, NEWOBJ: what would be called, and its arguments. */
static enum s2_status call(struct machine *m)
{
    fmt_pickle_ref callable = 0, arguments = 0;
    enum s2_status status;
    if ((status = pop(m, &arguments)) || (status = pop(m, &callable))) return status;
    return push_pair(m, FMT_PICKLE_OBJECT, callable, arguments);
}

static enum s2_status drop(struct machine *m)
{
    fmt_pickle_ref dropped;
    return pop(m, &dropped);
}

/* NEWOBJ_EX has keyword arguments on top. */
static enum s2_status call_with_keywords(struct machine *m)
{
    enum s2_status status = drop(m);
    return status ? status : call(m);
}

/* BUILD: the object keeps no state, but must be there. */
static enum s2_status build(struct machine *m)
{
    fmt_pickle_ref object;
    enum s2_status status = drop(m);
    return status ? status : top(m, &object);
}

static enum s2_status duplicate(struct machine *m)
{
    fmt_pickle_ref ref = 0;
    enum s2_status status = top(m, &ref);
    return status ? status : push(m, ref);
}

/* POP takes a value, or the mark if nothing is above it. */
static enum s2_status pop_any(struct machine *m)
{
    uint32_t height = 0;
    if (m->marks.count && m->stack.count == floor_of(m)) return pop_mark(m, &height);
    return drop(m);
}

static enum s2_status pop_to_mark(struct machine *m)
{
    uint32_t height = 0;
    enum s2_status status = pop_mark(m, &height);
    if (!status) m->stack.count = height;
    return status;
}

/* Picklers number the memo from 0 on, so that a number beyond MAX_COUNT is no memo but an attack on memory. */
static enum s2_status memo_put(struct machine *m, uint64_t index)
{
    fmt_pickle_ref ref = 0;
    enum s2_status status = top(m, &ref);
    if (status) return status;
    if (index >= MAX_COUNT || index >= m->size) return damaged(m, "a memo number is out of range");
    while (m->memo.count <= index)
        if ((status = add_ref(m, &m->memo, 0))) return status;
    m->memoized += m->memo.at[index] == 0;
    m->memo.at[index] = ref;
    return S2_OK;
}

static enum s2_status memo_put_numbered(struct machine *m, size_t n)
{
    uint64_t index = 0;
    enum s2_status status = take_number(m, n, &index);
    return status ? status : memo_put(m, index);
}

static enum s2_status memo_get(struct machine *m, size_t n)
{
    uint64_t index = 0;
    enum s2_status status = take_number(m, n, &index);
    if (status) return status;
    if (index >= m->memo.count || !m->memo.at[index]) return damaged(m, "a memo number was never set");
    return push(m, m->memo.at[index]);
}

static enum s2_status protocol(struct machine *m)
{
    uint64_t version = 0;
    enum s2_status status = take_number(m, 1, &version);
    if (status) return status;
    return version < 2 || version > 5 ? damaged(m, "its pickle protocol is not one of 2 to 5") : S2_OK;
}

static enum s2_status frame(struct machine *m)
{
    uint64_t length = 0;
    enum s2_status status = take_number(m, 8, &length);
    if (status) return status;
    return length > m->size - m->at ? damaged(m, "a frame is longer than the file") : S2_OK;
}

static enum s2_status unknown(struct machine *m, unsigned op)
{
    return s2_fail(
        m->err, S2_E_MODEL,
        "%s: byte %zu: opcode 0x%02x does not occur in checkpoints; the file is damaged or was not written by "
        "torch.save",
        m->name, m->op_at, op);
}

static enum s2_status step(struct machine *m, enum fmt_pickle_opcode op)
{
    switch (op) {
    case OP_PROTO: return protocol(m);
    case OP_FRAME: return frame(m);
    case OP_MARK: return add_ref(m, &m->marks, m->stack.count);
    case OP_POP: return pop_any(m);
    case OP_POP_MARK: return pop_to_mark(m);
    case OP_DUP: return duplicate(m);

    case OP_NONE: return push_integer(m, FMT_PICKLE_NONE, 0);
    case OP_NEWTRUE: return push_integer(m, FMT_PICKLE_BOOL, 1);
    case OP_NEWFALSE: return push_integer(m, FMT_PICKLE_BOOL, 0);
    case OP_BININT: return push_int32(m);
    case OP_BININT1: return push_unsigned(m, 1);
    case OP_BININT2: return push_unsigned(m, 2);
    case OP_LONG1: return push_long(m, 1);
    case OP_LONG4: return push_long(m, 4);
    case OP_BINFLOAT: return push_float(m);

    case OP_BINUNICODE: return push_string(m, 4, FMT_PICKLE_TEXT);
    case OP_SHORT_BINUNICODE: return push_string(m, 1, FMT_PICKLE_TEXT);
    case OP_BINUNICODE8: return push_string(m, 8, FMT_PICKLE_TEXT);
    case OP_BINSTRING: return push_string(m, 4, FMT_PICKLE_TEXT);
    case OP_SHORT_BINSTRING: return push_string(m, 1, FMT_PICKLE_TEXT);
    case OP_BINBYTES: return push_string(m, 4, FMT_PICKLE_BYTES);
    case OP_SHORT_BINBYTES: return push_string(m, 1, FMT_PICKLE_BYTES);
    case OP_BINBYTES8: return push_string(m, 8, FMT_PICKLE_BYTES);
    case OP_BYTEARRAY8: return push_string(m, 8, FMT_PICKLE_BYTES);

    case OP_EMPTY_TUPLE: return collect_top(m, 0);
    case OP_TUPLE1: return collect_top(m, 1);
    case OP_TUPLE2: return collect_top(m, 2);
    case OP_TUPLE3: return collect_top(m, 3);
    case OP_TUPLE: return collect_marked(m, FMT_PICKLE_TUPLE);
    case OP_FROZENSET: return collect_marked(m, FMT_PICKLE_SET);
    case OP_EMPTY_LIST: return push_integer(m, FMT_PICKLE_LIST, 0);
    case OP_EMPTY_SET: return push_integer(m, FMT_PICKLE_SET, 0);
    case OP_EMPTY_DICT: return push_integer(m, FMT_PICKLE_DICT, 0);
    case OP_APPEND: return extend_top(m, 1, FMT_PICKLE_LIST);
    case OP_APPENDS: return extend_marked(m, FMT_PICKLE_LIST);
    case OP_ADDITEMS: return extend_marked(m, FMT_PICKLE_SET);
    case OP_SETITEM: return extend_top(m, 2, FMT_PICKLE_DICT);
    case OP_SETITEMS: return extend_marked(m, FMT_PICKLE_DICT);

    case OP_BINPUT: return memo_put_numbered(m, 1);
    case OP_LONG_BINPUT: return memo_put_numbered(m, 4);
    case OP_MEMOIZE: return memo_put(m, m->memoized);
    case OP_BINGET: return memo_get(m, 1);
    case OP_LONG_BINGET: return memo_get(m, 4);

    case OP_GLOBAL: return global(m);
    case OP_STACK_GLOBAL: return stack_global(m);
    case OP_BINPERSID: return persistent(m);
    case OP_REDUCE: return call(m);
    case OP_NEWOBJ: return call(m);
    case OP_NEWOBJ_EX: return call_with_keywords(m);
    case OP_BUILD: return build(m);
    case OP_STOP: return pop(m, &m->tree->root);
    }
    return unknown(m, op);
}

static enum s2_status run(struct machine *m)
{
    /* number 0 means none, for values and cells alike */
    void *cells = NULL;
    enum s2_status status = reserve(m, &cells, 0, &m->cell_capacity, sizeof *m->tree->cell);
    m->tree->cell = cells;
    if (status) return status;
    m->tree->cell[m->tree->cells++] = (struct fmt_pickle_cell){0};
    if ((status = push_integer(m, FMT_PICKLE_NONE, 0)) || (status = drop(m))) return status;
    while (!m->tree->root) {
        const uint8_t *op = NULL;
        m->op_at = m->at;
        if ((status = take(m, 1, &op)) || (status = step(m, *op))) return status;
    }
    return S2_OK;
}

enum s2_status fmt_pickle_read(struct fmt_pickle *out, const uint8_t *data, size_t size, const char *name,
                               struct s2_err *err)
{
    *out = (struct fmt_pickle){0};
    if (size > MAX_PICKLE)
        return s2_fail(err, S2_E_MODEL, "%s: its %zu MiB are far more than a checkpoint's structure needs", name,
                       size >> 20);
    struct machine m = {.tree = out, .data = data, .size = size, .name = name, .err = err};
    enum s2_status status = run(&m);
    free(m.stack.at);
    free(m.marks.at);
    free(m.memo.at);
    if (status) fmt_pickle_free(out);
    return status;
}

void fmt_pickle_free(struct fmt_pickle *p)
{
    free(p->value);
    free(p->cell);
    *p = (struct fmt_pickle){0};
}

const struct fmt_pickle_value *fmt_pickle_item(const struct fmt_pickle *p, const struct fmt_pickle_value *v, uint32_t i)
{
    uint32_t cell = v->head;
    while (cell && i--) cell = p->cell[cell].next;
    return cell ? &p->value[p->cell[cell].value] : NULL;
}

const struct fmt_pickle_value *fmt_pickle_lookup(const struct fmt_pickle *p, const struct fmt_pickle_value *v,
                                                 const char *key)
{
    const struct fmt_pickle_value *found = NULL;
    for (uint32_t at = v->head; at; at = p->cell[p->cell[at].next].next)
        if (fmt_pickle_is_text(&p->value[p->cell[at].value], key)) found = &p->value[p->cell[p->cell[at].next].value];
    return found;
}

bool fmt_pickle_is_text(const struct fmt_pickle_value *v, const char *text)
{
    return v && v->type == FMT_PICKLE_TEXT && v->size == strlen(text) && !memcmp(v->text, text, v->size);
}

bool fmt_pickle_is_global(const struct fmt_pickle *p, const struct fmt_pickle_value *v, const char *module,
                          const char *name)
{
    return v && v->type == FMT_PICKLE_GLOBAL && fmt_pickle_is_text(&p->value[v->first], module) &&
           fmt_pickle_is_text(&p->value[v->second], name);
}

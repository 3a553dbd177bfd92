/* The restricted pickle machine: every opcode's value, and pickles that are wrong or hostile. */
#include "../formats/pickle.h"
#include "make_checkpoint.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define READ(pickle, literal) read_ok(pickle, literal, sizeof literal - 1)

static void read_ok(struct fmt_pickle *p, const char *data, size_t size)
{
    struct s2_err err = {0};
    cr_assert_eq(fmt_pickle_read(p, (const uint8_t *)data, size, "x", &err), S2_OK, "%s", err.text);
}

static const struct fmt_pickle_value *root(const struct fmt_pickle *p)
{
    return &p->value[p->root];
}

static void refuses_bytes(const void *data, size_t size, const char *sentence)
{
    struct fmt_pickle p;
    struct s2_err err = {0};
    cr_expect_eq(fmt_pickle_read(&p, data, size, "f.pt: data.pkl", &err), S2_E_MODEL, "%s", sentence);
    cr_expect(strstr(err.text, sentence), "\"%s\" does not say \"%s\"", err.text, sentence);
    cr_expect(!strncmp(err.text, "f.pt: data.pkl: ", 16), "%s", err.text);
    cr_expect_null(p.value);
    fmt_pickle_free(&p);
}
#define REFUSES(literal, sentence) refuses_bytes(literal, sizeof literal - 1, sentence)

#define EXPECT_VALUE(literal, wanted, field, expected)                                                                 \
    do {                                                                                                               \
        struct fmt_pickle p;                                                                                           \
        READ(&p, literal);                                                                                             \
        cr_expect_eq(root(&p)->type, wanted, "%s", #literal);                                                          \
        cr_expect_eq(root(&p)->field, expected, "%s", #literal);                                                       \
        fmt_pickle_free(&p);                                                                                           \
    } while (0)

Test(pickle, numbers)
{
    EXPECT_VALUE("N.", FMT_PICKLE_NONE, integer, 0);
    EXPECT_VALUE("\x88.", FMT_PICKLE_BOOL, integer, 1);
    EXPECT_VALUE("\x89.", FMT_PICKLE_BOOL, integer, 0);
    EXPECT_VALUE("\x80\2K\xff.", FMT_PICKLE_INT, integer, 255);
    EXPECT_VALUE("M\1\xff.", FMT_PICKLE_INT, integer, 0xff01);
    EXPECT_VALUE("J\xfe\xff\xff\xff.", FMT_PICKLE_INT, integer, -2);
    EXPECT_VALUE("\x8a\0.", FMT_PICKLE_INT, integer, 0);
    EXPECT_VALUE("\x8a\1\xff.", FMT_PICKLE_INT, integer, -1);
    EXPECT_VALUE("\x8a\5\0\0\0\0\1.", FMT_PICKLE_INT, integer, (int64_t)1 << 32);
    EXPECT_VALUE("\x8a\x8\0\0\0\0\0\0\0\x80.", FMT_PICKLE_INT, integer, INT64_MIN);
    EXPECT_VALUE("\x8b\2\0\0\0\1\2.", FMT_PICKLE_INT, integer, 0x201);
    EXPECT_VALUE("\x8a\x9\1\2\3\4\5\6\7\x8\x9.", FMT_PICKLE_BIG_INT, integer, 0);
    EXPECT_VALUE("G\xbf\xf8\0\0\0\0\0\0.", FMT_PICKLE_FLOAT, number, -1.5);
}

static void expect_text(const char *data, size_t size, enum fmt_pickle_type type, const char *text)
{
    struct fmt_pickle p;
    read_ok(&p, data, size);
    cr_expect_eq(root(&p)->type, type);
    cr_assert_eq(root(&p)->size, strlen(text));
    cr_expect(!memcmp(root(&p)->text, text, strlen(text)));
    cr_expect_eq(fmt_pickle_is_text(root(&p), text), type == FMT_PICKLE_TEXT);
    cr_expect_not(fmt_pickle_is_text(root(&p), "ab"));
    fmt_pickle_free(&p);
}
#define EXPECT_TEXT(literal, type, text) expect_text(literal, sizeof literal - 1, type, text)

Test(pickle, texts)
{
    EXPECT_TEXT("X\3\0\0\0abc.", FMT_PICKLE_TEXT, "abc");
    EXPECT_TEXT("\x8c\3abc.", FMT_PICKLE_TEXT, "abc");
    EXPECT_TEXT("\x8d\3\0\0\0\0\0\0\0abc.", FMT_PICKLE_TEXT, "abc");
    EXPECT_TEXT("T\3\0\0\0abc.", FMT_PICKLE_TEXT, "abc");
    EXPECT_TEXT("U\3abc.", FMT_PICKLE_TEXT, "abc");
    EXPECT_TEXT("\x8c\0.", FMT_PICKLE_TEXT, "");
    EXPECT_TEXT("B\3\0\0\0abc.", FMT_PICKLE_BYTES, "abc");
    EXPECT_TEXT("C\3abc.", FMT_PICKLE_BYTES, "abc");
    EXPECT_TEXT("\x8e\3\0\0\0\0\0\0\0abc.", FMT_PICKLE_BYTES, "abc");
    EXPECT_TEXT("\x96\3\0\0\0\0\0\0\0abc.", FMT_PICKLE_BYTES, "abc");
}

/* Items of the root are the integers 0, 1, 2 ... */
static void expect_items(const char *data, size_t size, enum fmt_pickle_type type, uint32_t n)
{
    struct fmt_pickle p;
    read_ok(&p, data, size);
    cr_expect_eq(root(&p)->type, type);
    cr_expect_eq(root(&p)->size, n);
    for (uint32_t i = 0; i < n; i++) {
        cr_assert_not_null(fmt_pickle_item(&p, root(&p), i));
        cr_expect_eq(fmt_pickle_item(&p, root(&p), i)->integer, i);
    }
    cr_expect_null(fmt_pickle_item(&p, root(&p), n));
    fmt_pickle_free(&p);
}
#define EXPECT_ITEMS(literal, type, n) expect_items(literal, sizeof literal - 1, type, n)

Test(pickle, containers)
{
    EXPECT_ITEMS(").", FMT_PICKLE_TUPLE, 0);
    EXPECT_ITEMS("K\0\x85.", FMT_PICKLE_TUPLE, 1);
    EXPECT_ITEMS("K\0K\1\x86.", FMT_PICKLE_TUPLE, 2);
    EXPECT_ITEMS("K\0K\1K\2\x87.", FMT_PICKLE_TUPLE, 3);
    EXPECT_ITEMS("NN(K\0K\1K\2K\3t.", FMT_PICKLE_TUPLE, 4);
    EXPECT_ITEMS("(t.", FMT_PICKLE_TUPLE, 0);
    EXPECT_ITEMS("].", FMT_PICKLE_LIST, 0);
    EXPECT_ITEMS("]K\0a(K\1K\2e(eK\3a.", FMT_PICKLE_LIST, 4);
    EXPECT_ITEMS("}.", FMT_PICKLE_DICT, 0);
    EXPECT_ITEMS("}(K\0K\1K\2K\3uK\4K\5s.", FMT_PICKLE_DICT, 6);
    EXPECT_ITEMS("\x8f(K\0K\1\x90.", FMT_PICKLE_SET, 2);
    EXPECT_ITEMS("(K\0K\1\x91.", FMT_PICKLE_SET, 2);
}

Test(pickle, looks_up_the_last_value_of_a_text_key)
{
    struct fmt_pickle p;
    READ(&p, "}(K\1K\1X\1\0\0\0aK\2X\1\0\0\0bK\3U\1aK\4u.");
    cr_expect_eq(fmt_pickle_lookup(&p, root(&p), "a")->integer, 4);
    cr_expect_eq(fmt_pickle_lookup(&p, root(&p), "b")->integer, 3);
    cr_expect_null(fmt_pickle_lookup(&p, root(&p), "c"));
    fmt_pickle_free(&p);
}

Test(pickle, calls_are_inert)
{
    /* os.system("rm -rf /") as REDUCE: an object that remembers it */
    struct fmt_pickle p;
    READ(&p, "cos\nsystem\nU\x8rm -rf /\x85R.");
    cr_expect_eq(root(&p)->type, FMT_PICKLE_OBJECT);
    cr_expect(fmt_pickle_is_global(&p, &p.value[root(&p)->first], "os", "system"));
    cr_expect_not(fmt_pickle_is_global(&p, &p.value[root(&p)->first], "os", "syste"));
    cr_expect(fmt_pickle_is_text(fmt_pickle_item(&p, &p.value[root(&p)->second], 0), "rm -rf /"));
    fmt_pickle_free(&p);

    READ(&p, "\x80\4\x95\x14\0\0\0\0\0\0\0\x8c\1m\x94\x8c\1n\x94\x93\x94)\x81}N\x86"
             "b.      ");
    cr_expect_eq(root(&p)->type, FMT_PICKLE_OBJECT);
    cr_expect(fmt_pickle_is_global(&p, &p.value[root(&p)->first], "m", "n"));
    cr_expect_eq(root(&p)->size, 0);
    fmt_pickle_free(&p);

    READ(&p, "cm\nn\n)}\x92.");
    cr_expect_eq(root(&p)->type, FMT_PICKLE_OBJECT);
    cr_expect_eq(p.value[root(&p)->second].type, FMT_PICKLE_TUPLE);
    fmt_pickle_free(&p);

    READ(&p, "U\1k\x85Q.");
    cr_expect_eq(root(&p)->type, FMT_PICKLE_PERSISTENT);
    cr_expect_eq(p.value[root(&p)->first].type, FMT_PICKLE_TUPLE);
    fmt_pickle_free(&p);
}

Test(pickle, ordered_dict_keeps_pairs_through_build)
{
    struct fmt_pickle p;
    READ(&p, "ccollections\nOrderedDict\n)R(U\1aK\7u}U\1xNsb.");
    cr_expect_eq(root(&p)->type, FMT_PICKLE_OBJECT);
    cr_expect_eq(fmt_pickle_lookup(&p, root(&p), "a")->integer, 7);
    cr_expect_null(fmt_pickle_lookup(&p, root(&p), "x"));
    fmt_pickle_free(&p);

    READ(&p, "cm\nList\n)R(K\1K\2K\3eU\1aK\7s."); /* list items of an object are dropped, its pairs stay in step */
    cr_expect_eq(fmt_pickle_lookup(&p, root(&p), "a")->integer, 7);
    fmt_pickle_free(&p);
}

Test(pickle, memo_and_stack)
{
    EXPECT_VALUE("K\5q\0000h\0.", FMT_PICKLE_INT, integer, 5);
    EXPECT_VALUE("K\5r\4\0\0\0000j\4\0\0\0.", FMT_PICKLE_INT, integer, 5);
    EXPECT_VALUE("K\5\x94K\6\x94"
                 "0h\1.",
                 FMT_PICKLE_INT, integer, 6);
    EXPECT_VALUE("K\5K\6"
                 "0.",
                 FMT_PICKLE_INT, integer, 5);
    EXPECT_VALUE("K\5(0.", FMT_PICKLE_INT, integer, 5);
    EXPECT_VALUE("K\5(K\6K\7"
                 "1.",
                 FMT_PICKLE_INT, integer, 5);
    EXPECT_ITEMS("]K\0q\0a(h\0001K\1a.", FMT_PICKLE_LIST, 2);
    struct fmt_pickle p;
    READ(&p, "K\7"
             "2\x86.");
    cr_expect_eq(fmt_pickle_item(&p, root(&p), 0), fmt_pickle_item(&p, root(&p), 1));
    fmt_pickle_free(&p);
}

Test(pickle, a_dict_may_contain_itself)
{
    struct fmt_pickle p;
    READ(&p, "}q\0U\4selfh\0s.");
    cr_expect_eq(fmt_pickle_lookup(&p, root(&p), "self"), root(&p));
    fmt_pickle_free(&p);
}

Test(pickle, refuses_missing_values)
{
    REFUSES("", "it ends in the middle of a value");
    REFUSES("N", "it ends in the middle of a value");
    REFUSES("M\1", "byte 0: it ends in the middle of a value");
    REFUSES("NNX\xff\xff\xff\xff"
            "abc",
            "byte 2: it ends in the middle of a value");
    REFUSES("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "abc",
            "it ends in the middle of a value");
    REFUSES("\x8b\xff\xff\xff\xff"
            "abc",
            "it ends in the middle of a value");
    REFUSES("cposix\nsystem", "a name has no end");
    REFUSES(".", "a value is missing on the stack");
    REFUSES("0", "a value is missing on the stack");
    REFUSES("N\x86.", "a value is missing on the stack");
    REFUSES("NR.", "a value is missing on the stack");
    REFUSES("}Ns.", "a value is missing on the stack");
    REFUSES("Na.", "a value is missing on the stack");
    REFUSES("Q.", "a value is missing on the stack");
    REFUSES("q\0.", "a value is missing on the stack");
    REFUSES("t.", "a mark is missing on the stack");
    REFUSES("]e.", "a mark is missing on the stack");
    REFUSES("1.", "a mark is missing on the stack");
    REFUSES("(u.", "a container is missing on the stack");
    REFUSES("h\0.", "a memo number was never set");
    REFUSES("K\1q\3h\2.", "a memo number was never set");
    REFUSES("j\xff\xff\xff\xff.", "a memo number was never set");
}

Test(pickle, a_mark_fences_the_values_below_it)
{
    REFUSES("N(.", "a value is missing on the stack");
    REFUSES("](Na.", "a value is missing on the stack");
    REFUSES("N(2.", "a value is missing on the stack");
    REFUSES("N(q\0.", "a value is missing on the stack");
    REFUSES("N(NR.", "a value is missing on the stack");
    REFUSES("](Nb.", "a value is missing on the stack");
    REFUSES("]((Ne.", "a container is missing on the stack");
}

Test(pickle, refuses_wrong_types)
{
    REFUSES("N(Ne.", "an item is added to something that has no items");
    REFUSES("]NNs.", "an item is added to something that has no items");
    REFUSES("}(Nu.", "a key has no value");
    REFUSES("NU\1n\x93.", "a global has no name");
    REFUSES("\x80\1N.", "its pickle protocol is not one of 2 to 5");
    REFUSES("\x80\6N.", "its pickle protocol is not one of 2 to 5");
    REFUSES("\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", "a frame is longer than the file");
}

Test(pickle, refuses_other_opcodes)
{
    REFUSES("I1\n.", "opcode 0x49 does not occur");            /* INT, protocol 0 */
    REFUSES("Pkey\n.", "opcode 0x50 does not occur");          /* PERSID */
    REFUSES("(ios\nsystem\n.", "opcode 0x69 does not occur");  /* INST */
    REFUSES("(cos\nsystem\no.", "opcode 0x6f does not occur"); /* OBJ */
    REFUSES("\x82\1.", "opcode 0x82 does not occur");          /* EXT1 */
    REFUSES("\x97.", "opcode 0x97 does not occur");            /* NEXT_BUFFER */
    REFUSES("\xff.", "opcode 0xff does not occur");
    REFUSES("\0", "opcode 0x00 does not occur");
}

Test(pickle, deep_nesting_costs_nothing)
{
    enum { DEPTH = 200000 };
    struct make_bytes b = {0};
    struct fmt_pickle p;
    for (int i = 0; i < DEPTH; i++) make_text(&b, "]");
    for (int i = 0; i < DEPTH - 1; i++) make_text(&b, "a");
    make_text(&b, ".");
    read_ok(&p, (const char *)b.data, b.size);
    cr_expect_eq(root(&p)->size, 1);
    cr_expect_eq(p.values, DEPTH + 1);
    fmt_pickle_free(&p);
    make_free(&b);
}

Test(pickle, shared_values_do_not_multiply)
{
    /* twenty lists, each ten times the one before: 10^20 leaves, 20 values */
    struct make_bytes b = {0};
    struct fmt_pickle p;
    make_text(&b, "]");
    for (int i = 0; i < 20; i++) {
        make_text(&b, "q");
        make_number(&b, (uint64_t)i, 1);
        make_text(&b, "0](");
        for (int k = 0; k < 10; k++) make_text(&b, "h"), make_number(&b, (uint64_t)i, 1);
        make_text(&b, "e");
    }
    make_text(&b, ".");
    read_ok(&p, (const char *)b.data, b.size);
    cr_expect_eq(p.values, 22);
    cr_expect_eq(p.cells, 201);
    fmt_pickle_free(&p);
    make_free(&b);
}

Test(pickle, bounds_values_and_memo)
{
    enum { MANY = 5 << 20 };
    struct make_bytes b = {0};
    char *many = malloc(MANY);
    cr_assert_not_null(many);
    memset(many, 'N', MANY);
    make_put(&b, many, MANY);
    make_text(&b, ".");
    refuses_bytes(b.data, b.size, "it has far more values than a checkpoint needs");

    memset(b.data, '(', MANY);
    refuses_bytes(b.data, b.size, "it has far more values than a checkpoint needs");

    memcpy(b.data, "Nr\xff\xff\xff\xff", 6);
    refuses_bytes(b.data, b.size, "a memo number is out of range");
    memcpy(b.data, "Nr\0\0\x48\0", 6); /* 4.5 million, in a pickle of 5 MiB */
    refuses_bytes(b.data, b.size, "a memo number is out of range");
    REFUSES("Nr\xff\xff\xff\x7f.", "a memo number is out of range");
    REFUSES("Nr\x7\0\0\0.", "a memo number is out of range"); /* more than the pickle has bytes */
    free(many);
    make_free(&b);
}

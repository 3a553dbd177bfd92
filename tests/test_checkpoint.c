/* Opening by content, foreign files named in a sentence, SHA-256. */
#include "../formats/formats.h"
#include "make_checkpoint.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const float floats[] = {1.5f, -2.0f, 3.0f};
static const struct make_tensor tensors[] = {
    {"module.b", S2_F32, 1, {2}, floats, 0},
    {"module.a", S2_F32, 2, {1, 3}, floats, 0},
};

static void write_bytes(const char *path, const void *data, size_t size)
{
    struct make_bytes b = {0};
    make_put(&b, data, size);
    make_file(path, &b);
    make_free(&b);
}

static void expect_open(const char *path, const char *container)
{
    struct fmt_checkpoint *c = NULL;
    struct s2_err err = {0};
    struct s2_stored t;
    cr_assert_eq(fmt_checkpoint_open(&c, path, &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(fmt_checkpoint_container(c), container);
    const struct s2_source *s = fmt_checkpoint_source(c);
    cr_expect_str_eq(s->path, path);
    cr_assert_eq(s->count, 2);
    cr_assert(s->at(s->ctx, 0, &t));
    cr_expect_str_eq(t.name, "b");
    cr_expect_not(s->at(s->ctx, 2, &t));
    cr_expect_not(s->find(s->ctx, "module.a", &t));
    cr_assert(s->find(s->ctx, "a", &t));
    cr_expect(!memcmp(t.data, floats, sizeof floats));
    fmt_checkpoint_drop_pages(c);
    cr_expect(!memcmp(t.data, floats, sizeof floats), "dropped pages are read again");
    fmt_checkpoint_close(c);
}

Test(checkpoint, content_counts_not_the_name)
{
    char *folder = make_folder();
    struct make_bytes b = {0};
    make_pt(&b, tensors, 2, &(struct make_pt){.root = "model"});
    make_file(make_path(folder, "a.pt"), &b);
    expect_open(make_path(folder, "a.pt"), "pt");
    make_file(make_path(folder, "a.safetensors"), &b);
    expect_open(make_path(folder, "a.safetensors"), "pt");
    make_free(&b);
    make_safetensors(&b, tensors, 2, NULL);
    make_file(make_path(folder, "b.pt"), &b);
    expect_open(make_path(folder, "b.pt"), "safetensors");
    make_free(&b);
    make_folder_remove(folder);
}

static void expect_refused(const char *path, const char *sentence)
{
    struct fmt_checkpoint *c = NULL;
    struct s2_err err = {0};
    cr_expect_eq(fmt_checkpoint_open(&c, path, &err), S2_E_MODEL, "%s", sentence);
    cr_expect_null(c);
    cr_expect(strstr(err.text, sentence), "\"%s\" does not say \"%s\"", err.text, sentence);
    cr_expect(!strncmp(err.text, path, strlen(path)), "%s", err.text);
    fmt_checkpoint_close(c);
}

#define FOREIGN(bytes, sentence)                                                                                       \
    do {                                                                                                               \
        write_bytes(make_path(folder, "model.pt"), bytes, sizeof bytes - 1);                                           \
        expect_refused(make_path(folder, "model.pt"), sentence);                                                       \
    } while (0)

Test(checkpoint, foreign_files_are_named)
{
    char *folder = make_folder();
    FOREIGN("\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M",
            "this is a checkpoint of PyTorch before 1.6");
    FOREIGN("\x80\4\x95\0\0\0\0\0\0\0\0}.", "this is a plain Python pickle");
    FOREIGN("\x80\2}.", "this is a plain Python pickle");
    FOREIGN("GGUF\3\0\0\0\1\0", "this is a GGUF file");
    FOREIGN("\x08\x07\x12\x07pytorch\x1a\x03"
            "1.9",
            "this is an ONNX model");
    FOREIGN("<!DOCTYPE html>\n<html><head><title>403</title>", "this is a web page");
    FOREIGN("\xef\xbb\xbf \n<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", "this is a web page");
    FOREIGN("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 155906050\n", "git lfs pull");
    FOREIGN("{\"error\":\"Invalid username or password.\"}", "this is a text file");
    FOREIGN("model:\n  _target_: sam2\n", "this is a text file");
    FOREIGN("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "this is an empty ZIP archive");
    FOREIGN("PK\3\4\24\0\10\0\0\0\0\0", "the download or copy is incomplete");
    FOREIGN("\x1f\x8b\x08\0\0\0", "compressed with gzip");
    FOREIGN("\0\0\0\x20"
            "ftypisom",
            "this is a video, not a model");
    FOREIGN("\x89PNG\r\n\x1a\n", "this is a picture, not a model");
    FOREIGN("\1\2\3\4\5\6\7", "neither a PyTorch .pt checkpoint nor a .safetensors file");
    FOREIGN("\x10\0\0\0\0\0\0\0{\"x\":", "the download or copy is incomplete");
    FOREIGN("", "the file is empty");
    FOREIGN("P", "this is a text file");
    FOREIGN("\x80", "neither a PyTorch .pt checkpoint nor a .safetensors file");
    char tar[512] = "archive/data.pkl";
    memcpy(tar + 257, "ustar", 5);
    FOREIGN(tar, "this is a tar archive");
    make_folder_remove(folder);
}

Test(checkpoint, things_that_are_no_files)
{
    char *folder = make_folder();
    expect_refused(make_path(folder, "absent.pt"), "the file cannot be opened: No such file");
    expect_refused(folder, "this is a folder; name the checkpoint file in it");
    write_bytes(make_path(folder, "model.safetensors"), "x", 1);
    expect_refused(folder, "/model.safetensors");
    cr_assert_eq(mkfifo(make_path(folder, "fifo"), 0600), 0);
    expect_refused(make_path(folder, "fifo"), "this is a pipe or a device");
    make_folder_remove(folder);
}

Test(checkpoint, close_of_nothing_is_allowed)
{
    fmt_checkpoint_close(NULL);
}

Test(checkpoint, sha256)
{
    /* FIPS 180-4 test vectors: "abc", and a million times "a" */
    char *folder = make_folder(), hex[65];
    struct s2_err err = {0};
    write_bytes(make_path(folder, "abc"), "abc", 3);
    cr_assert_eq(fmt_checkpoint_sha256(make_path(folder, "abc"), hex, &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");

    char *million = malloc(3000000);
    cr_assert_not_null(million);
    memset(million, 'a', 3000000);
    write_bytes(make_path(folder, "a"), million, 1000000);
    cr_assert_eq(fmt_checkpoint_sha256(make_path(folder, "a"), hex, &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");

    write_bytes(make_path(folder, "a"), million, 3000000); /* several blocks */
    cr_assert_eq(fmt_checkpoint_sha256(make_path(folder, "a"), hex, &err), S2_OK, "%s", err.text);
    cr_expect_str_eq(hex, "2a152c894398719c0570f83fac34ac03a0f6e8e474b995c2403aa5434f7b9dd4");
    free(million);

    cr_expect_eq(fmt_checkpoint_sha256(make_path(folder, "absent"), hex, &err), S2_E_MODEL);
    cr_expect(strstr(err.text, "absent: the file cannot be opened"), "%s", err.text);
    make_folder_remove(folder);
}

/* foreign.c - what people hand over instead of a checkpoint, told by its first bytes. */
#include <ctype.h>
#include <string.h>

#include "checkpoint.h"
#include "text.h"

/* In every sentence: what the file is, and what to do. */
static const struct {
    size_t offset;
    const char *bytes;
    size_t size;
    const char *what;
} signatures[] = {
#define AT(offset, bytes, what)                                                                                        \
    {                                                                                                                  \
        offset, bytes, sizeof bytes - 1, what                                                                          \
    }
    /* LONG1 of the magic number 0x1950a86a20f9469cfc6c (torch/serialization.py) */
    AT(0, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
       "is a checkpoint of PyTorch before 1.6; load it with torch.load and save it again with a recent torch.save"),
    AT(257, "ustar",
       "is a tar archive; unpack it and name the .pt or .safetensors file (a checkpoint of PyTorch before 0.4 must be "
       "saved again with a recent torch.save)"),
    AT(0, "PK\5\6", "is an empty ZIP archive; fetch the checkpoint again"),
    AT(0, "GGUF", "is a GGUF file; use the .pt or .safetensors checkpoint that it was made from"),
    AT(0, "lmgg", "is a GGML file; use the .pt or .safetensors checkpoint that it was made from"),
    AT(0, "tjgg", "is a GGML file; use the .pt or .safetensors checkpoint that it was made from"),
    AT(4, "TFL3", "is a TensorFlow Lite model; use the .pt or .safetensors checkpoint of SAM 2"),
    AT(0, "\x89HDF\r\n\x1a\n", "is an HDF5 file; use the .pt or .safetensors checkpoint of SAM 2"),
    AT(0, "\x93NUMPY", "is a NumPy array; use the .pt or .safetensors checkpoint of SAM 2"),
    AT(0, "\x1f\x8b", "is compressed with gzip; unpack it first"),
    AT(0, "BZh", "is compressed with bzip2; unpack it first"),
    AT(0,
       "\xfd"
       "7zXZ",
       "is compressed with xz; unpack it first"),
    AT(0, "\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it first"),
    AT(0, "7z\xbc\xaf\x27\x1c", "is a 7z archive; unpack it first"),
    AT(0, "Rar!", "is a RAR archive; unpack it first"),
    AT(4, "ftyp", "is a video, not a model; the model goes with -m and the video last"),
    AT(0, "\x1a\x45\xdf\xa3", "is a video, not a model; the model goes with -m and the video last"),
    AT(0, "\x89PNG", "is a picture, not a model; the model goes with -m and the pictures last"),
    AT(0, "\xff\xd8\xff", "is a picture, not a model; the model goes with -m and the pictures last"),
    AT(0,
       "\x7f"
       "ELF",
       "is a program or a TensorRT engine; use the .pt or .safetensors checkpoint of SAM 2"),
    AT(0, "version https://git-lfs",
       "is a Git LFS pointer, not the checkpoint itself; fetch the file with git lfs pull"),
#undef AT
};

static bool has(const uint8_t *data, size_t size, size_t offset, const char *bytes, size_t n)
{
    return size >= offset + n && !memcmp(data + offset, bytes, n);
}

static bool is_pickle(const uint8_t *data, size_t size)
{
    return size > 2 && data[0] == 0x80 && data[1] <= 5;
}

/* ModelProto begins with field 1, the IR version, and goes on with another of its first fields (onnx.proto). */
static bool is_onnx(const uint8_t *data, size_t size)
{
    return size > 3 && data[0] == 0x08 && data[1] > 0 && data[1] < 32 && data[2] &&
           strchr("\x12\x1a\x22\x3a\x42", data[2]);
}

/* UTF-8 without control characters, as far as the first 512 bytes tell. */
static bool is_text(const uint8_t *data, size_t size)
{
    size_t n = size < 512 ? size : 512, step;
    for (size_t i = 0; i < n; i += step) {
        step = fmt_utf8_length((const char *)data + i, size - i);
        if (!step || data[i] == 0x7f || (data[i] < ' ' && !isspace(data[i]))) return false;
    }
    return true;
}

/* An error page or message that was saved under the checkpoint's name, in whatever encoding. */
static bool is_markup(const uint8_t *data, size_t size)
{
    size_t i = has(data, size, 0, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (i < size && isspace(data[i])) i++;
    return i + 1 < size && data[i] == '<' && (isalpha(data[i + 1]) || data[i + 1] == '!' || data[i + 1] == '?');
}

static const char *what_is(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (has(data, size, signatures[i].offset, signatures[i].bytes, signatures[i].size)) return signatures[i].what;
    if (is_pickle(data, size))
        return "is a plain Python pickle, not a checkpoint of torch.save since PyTorch 1.6; load it in Python "
               "and save it with torch.save({\"model\": state_dict}, FILE)";
    if (is_onnx(data, size))
        return "is an ONNX model; use the .pt or .safetensors checkpoint that it was exported from";
    if (is_markup(data, size))
        return "is a web page (an error page or a login form), not a checkpoint; fetch the file again";
    if (is_text(data, size)) return "is a text file, not a checkpoint; name the .pt or .safetensors file";
    return "is neither a PyTorch .pt checkpoint nor a .safetensors file, or its beginning is damaged";
}

enum s2_status fmt_foreign_file(const char *path, const uint8_t *data, size_t size, struct s2_err *err)
{
    return s2_fail(err, S2_E_MODEL, "%s: this %s", path, what_is(data, size));
}

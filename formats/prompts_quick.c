/* prompts_quick.c - prompts on the command line: --point, --box, --mask. */
#include "prompts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct form {
    const char *option, *text;
} forms[] = {
    {"point", "X,Y[,0|1][@FRAME][#ID]"},
    {"box", "X0,Y0,X1,Y1[@FRAME][#ID]"},
    {"mask", "FILE[@FRAME][#ID]"},
};

struct quick {
    const struct fmt_prompts *set;
    const struct form *form;
    struct fmt_prompt prompt;
    int64_t id;
    struct s2_err *err;
};

#define FAIL(k, ...) fmt_prompt_fail((k)->err, (k)->set, &(k)->prompt, "", __VA_ARGS__)

/* A trailing mark and digits, cut off by *size: @FRAME or #ID. *value stays without one. */
static enum s2_status cut_suffix(struct quick *k, const char *text, size_t *size, char mark, int64_t least,
                                 int64_t most, int64_t *value)
{
    size_t i = *size;
    while (i > 0 && isdigit((uint8_t)text[i - 1])) i--;
    if (i == *size || i == 0 || text[i - 1] != mark) return S2_OK;
    int64_t v = 0;
    for (size_t j = i; j < *size && v <= most; j++) v = 10 * v + (text[j] - '0');
    if (v < least || v > most)
        return FAIL(k, "%s %.*s is not in %lld..%lld", mark == '@' ? "frame" : "id", (int)(*size - i), text + i,
                    (long long)least, (long long)most);
    *value = v;
    *size = i - 1;
    return S2_OK;
}

/* A decimal number of n characters; no spaces, hexadecimal, NaN or infinity. */
static bool read_decimal(const char *s, size_t n, float *out)
{
    char buf[64];
    if (n == 0 || n >= sizeof buf) return false;
    for (size_t i = 0; i < n; i++)
        if (!isdigit((uint8_t)s[i]) && !(s[i] && strchr("+-.eE", s[i]))) return false;
    memcpy(buf, s, n);
    buf[n] = 0;
    char *end;
    *out = (float)strtod(buf, &end);
    return end == buf + n;
}

/* Numbers between commas into v[most]; how many, or -1. */
static int read_list(const char *text, size_t size, float *v, int most)
{
    int n = 0;
    for (const char *p = text, *end = text + size;; p++) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma ? comma : end;
        if (n == most || !read_decimal(p, (size_t)(stop - p), &v[n])) return -1;
        n++;
        if (!comma) return n;
        p = comma;
    }
}

static enum s2_status read_point(struct quick *k, const char *text, size_t size)
{
    float v[3];
    int n = read_list(text, size, v, 3);
    if (n != 2 && n != 3) return FAIL(k, "expected %s", k->form->text);
    if (n == 3 && v[2] != 0 && v[2] != 1) return FAIL(k, "the label is 1 (inside) or 0 (outside), not %.7g", v[2]);
    enum s2_status status = fmt_prompt_reserve_points(k->err, k->set, &k->prompt, 1);
    if (status) return status;
    memcpy(k->prompt.xy, v, 2 * sizeof *v);
    k->prompt.labels[0] = n == 3 ? v[2] == 1 : 1;
    k->prompt.n_points = 1;
    return fmt_prompt_check_point(k->err, k->set, &k->prompt, 0);
}

static enum s2_status read_box(struct quick *k, const char *text, size_t size)
{
    if (read_list(text, size, k->prompt.box, 4) != 4) return FAIL(k, "expected %s", k->form->text);
    k->prompt.has_box = true;
    return fmt_prompt_check_box(k->err, k->set, &k->prompt);
}

static enum s2_status read_mask(struct quick *k, const char *text, size_t size)
{
    if (!size) return FAIL(k, "expected %s", k->form->text);
    k->prompt.kind = S2_PROMPT_MASK;
    k->prompt.mask_path = strndup(text, size);
    if (!k->prompt.mask_path) return s2_no_memory(k->err, "a path", size + 1);
    return fmt_prompt_check_file(k->err, k->set, &k->prompt);
}

static void add_name(struct fmt_prompt *q, const char *option, const char *text)
{
    size_t used = strlen(q->where), room = sizeof q->where - used;
    int n = snprintf(q->where + used, room, "%s--%s %s", used ? " " : "", option, text);
    if (n >= (int)room) memcpy(q->where + sizeof q->where - 4, "...", 4);
}

/* Adds k's prompt to an earlier one of its frame and id. */
static enum s2_status merge(struct quick *k, struct fmt_prompt *into, const char *text)
{
    const struct fmt_prompt *q = &k->prompt;
    if (into->kind == S2_PROMPT_MASK || q->kind == S2_PROMPT_MASK)
        return FAIL(k, "a mask stands alone, but %s is for object %lld on frame %lld too", into->where,
                    (long long)k->id, (long long)q->frame);
    if (q->has_box && into->has_box)
        return FAIL(k, "object %lld has a box on frame %lld already: %s", (long long)k->id, (long long)q->frame,
                    into->where);
    if (q->has_box) {
        into->has_box = true;
        memcpy(into->box, q->box, sizeof q->box);
    } else {
        enum s2_status status = fmt_prompt_reserve_points(k->err, k->set, into, q->n_points);
        if (status) return status;
        memcpy(into->xy + 2 * into->n_points, q->xy, 2 * sizeof *q->xy);
        into->labels[into->n_points++] = q->labels[0];
    }
    add_name(into, k->form->option, text);
    return S2_OK;
}

/* Moves k's prompt to the end of the set, its object too if it is new. */
static enum s2_status append(struct quick *k, struct fmt_prompts *set, int object)
{
    if (object < 0) object = fmt_prompts_add_object(set, (int)k->id);
    struct fmt_prompt *q = object < 0 ? NULL : fmt_prompts_add(set);
    if (!q) return s2_no_memory(k->err, "the prompts", sizeof *q);
    *q = k->prompt;
    q->object = object;
    k->prompt = (struct fmt_prompt){.mask_value = -1};
    return fmt_prompts_check_together(k->err, set);
}

static enum s2_status read_argument(struct quick *k, const char *text)
{
    size_t size = strlen(text);
    enum s2_status status = cut_suffix(k, text, &size, '#', 1, FMT_MAX_ID, &k->id);
    if (!status) status = cut_suffix(k, text, &size, '@', 0, FMT_MAX_FRAME, &k->prompt.frame);
    if (status) return status;
    switch (k->form - forms) {
    case 0: return read_point(k, text, size);
    case 1: return read_box(k, text, size);
    default: return read_mask(k, text, size);
    }
}

enum s2_status fmt_prompts_quick(struct fmt_prompts *set, const char *option, const char *text, struct s2_err *err)
{
    struct quick k = {.set = set, .prompt = {.mask_value = -1}, .id = 1, .err = err};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(option, forms[i].option)) k.form = &forms[i];
    if (!k.form) return s2_fail(err, S2_E_INTERNAL, "--%s is no quick prompt", option);
    if (!set->path) set->path = strdup("command line");
    if (!set->path) return s2_no_memory(err, "the prompts", sizeof "command line");
    add_name(&k.prompt, option, text);

    enum s2_status status = read_argument(&k, text);
    if (status) goto done;
    int object = fmt_prompts_find_object(set, (int)k.id);
    struct fmt_prompt *into = NULL;
    for (size_t i = 0; i < set->n_prompts && object >= 0; i++) {
        struct fmt_prompt *q = &set->prompts[i];
        if (fmt_prompt_is_quick(q) && q->object == object && q->frame == k.prompt.frame) into = q;
    }
    status = into ? merge(&k, into, text) : append(&k, set, object);
done:
    fmt_prompt_clear(&k.prompt);
    return status;
}

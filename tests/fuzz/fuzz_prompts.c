/* Prompts: whatever is accepted keeps the promises of formats.h - indices in range, finite coordinates, boxes with
 * an area, labels 0 and 1, ids once each - and whatever is refused has one sentence and leaves nothing behind.
 * Input: the JSON; after a byte 0, quick prompts, one a line. */
#include "../../formats/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                                                                     \
    do {                                                                                                               \
        if (!(x)) abort();                                                                                             \
    } while (0)

static void check_failure(enum s2_status status, const struct s2_err *err)
{
    REQUIRE(status == S2_E_USAGE || status == S2_E_DEVICE);
    REQUIRE(err->status == status);
    REQUIRE(err->text[0] && !strchr(err->text, '\n'));
}

static void check_prompt(const struct fmt_prompts *p, const struct fmt_prompt *q, float right, float bottom)
{
    REQUIRE(q->object >= 0 && (size_t)q->object < p->n_objects);
    REQUIRE(memchr(q->where, 0, sizeof q->where) && q->where[0]);
    REQUIRE(q->by_time ? isfinite(q->time) && q->time >= 0 : q->frame >= 0);
    REQUIRE(q->n_points >= 0 && (q->n_points == 0 || (q->xy && q->labels)));
    for (int i = 0; i < q->n_points; i++) {
        REQUIRE(q->xy[2 * i] >= 0 && q->xy[2 * i] < right);
        REQUIRE(q->xy[2 * i + 1] >= 0 && q->xy[2 * i + 1] < bottom);
        REQUIRE(q->labels[i] == 0 || q->labels[i] == 1);
    }
    if (q->has_box) {
        REQUIRE(q->box[0] >= 0 && q->box[0] < q->box[2] && q->box[2] <= right);
        REQUIRE(q->box[1] >= 0 && q->box[1] < q->box[3] && q->box[3] <= bottom);
    }
    switch (q->kind) {
    case S2_PROMPT_POINTS: REQUIRE((q->n_points || q->has_box) && !q->mask.data && !q->mask_path); break;
    case S2_PROMPT_MASK: REQUIRE(!q->n_points && !q->has_box && (q->mask.data || q->mask_path)); break;
    case S2_PROMPT_STOP: REQUIRE(!q->n_points && !q->has_box && !q->mask.data && !q->mask_path); break;
    }
    if (!q->mask.data) return;
    REQUIRE(q->mask.width > 0 && q->mask.height > 0 && q->mask.stride >= ((size_t)q->mask.width + 7) / 8);
    if (q->mask.width % 8) { // bits behind the width are 0
        uint8_t behind = (uint8_t)(0xFF >> q->mask.width % 8), set = 0;
        for (int y = 0; y < q->mask.height; y++)
            set |= q->mask.data[(size_t)y * q->mask.stride + (size_t)q->mask.width / 8];
        REQUIRE(!(set & behind));
    }
}

static void check_set(const struct fmt_prompts *p, float right, float bottom)
{
    static uint8_t seen[65536];
    REQUIRE(p->n_prompts > 0 && p->n_objects > 0);
    for (size_t i = 0; i < p->n_objects; i++) {
        REQUIRE(p->objects[i].id >= 1 && p->objects[i].id <= 65535 && !seen[p->objects[i].id]);
        seen[p->objects[i].id] = 1;
    }
    for (size_t i = 0; i < p->n_objects; i++) seen[p->objects[i].id] = 0;
    for (size_t i = 0; i < p->n_prompts; i++) check_prompt(p, &p->prompts[i], right, bottom);
}

static void add_quick(struct fmt_prompts *p, const char *lines, size_t size)
{
    static const char *const options[] = {"point", "box", "mask"};
    for (const char *end = lines + size; lines < end;) {
        const char *stop = memchr(lines, '\n', (size_t)(end - lines));
        if (!stop) stop = end;
        char *text = strndup(lines, (size_t)(stop - lines));
        REQUIRE(text);
        struct s2_err err = {0};
        size_t before = p->n_prompts;
        const char *option = options[text[0] ? (text[0] == 'm' ? 2 : text[0] == 'b') : 0];
        enum s2_status status = fmt_prompts_quick(p, option, text[0] ? text + 1 : text, &err);
        if (status) check_failure(status, &err);
        REQUIRE(p->n_prompts <= before + 1);
        free(text);
        lines = stop + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *zero = size ? memchr(text, 0, size) : NULL;
    size_t json_size = zero ? (size_t)(zero - text) : size;
    char *json = malloc(json_size ? json_size : 1); // not terminated, exactly as long as it is
    REQUIRE(json);
    memcpy(json, text, json_size);

    struct fmt_prompts p;
    struct s2_err err = {0};
    enum s2_status status = fmt_prompts_parse(&p, "fuzz.json", json, json_size, "/nonexistent", &err);
    free(json);
    if (status) {
        check_failure(status, &err);
        REQUIRE(!p.prompts && !p.objects && !p.path && !p.n_prompts && !p.n_objects);
    } else {
        check_set(&p, p.normalized ? 1 : INFINITY, p.normalized ? 1 : INFINITY);
    }
    if (zero) add_quick(&p, zero + 1, size - json_size - 1);

    if (p.n_prompts) {
        check_set(&p, p.normalized ? 1 : INFINITY, p.normalized ? 1 : INFINITY);
        int width = 640, height = 360;
        for (size_t i = 0; i < p.n_prompts; i++)
            if (p.prompts[i].mask.data) width = p.prompts[i].mask.width, height = p.prompts[i].mask.height;
        err = (struct s2_err){0};
        status = fmt_prompts_resolve(&p, width, height, 1000, &err);
        if (status) {
            check_failure(status, &err);
        } else {
            check_set(&p, (float)width, (float)height);
            for (size_t i = 0; i < p.n_prompts; i++) REQUIRE(p.prompts[i].by_time || p.prompts[i].frame < 1000);
        }
    }
    fmt_prompts_free(&p);
    fmt_prompts_free(&p);
    return 0;
}

/* watch.c - see watch.h */
#include "watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

enum s2_status cmd_watch_open(struct cmd_watch *w, const struct fmt_object *objects, size_t n, struct s2_err *err)
{
    *w = (struct cmd_watch){.objects = objects, .n_objects = n};
    w->covered = calloc(n + 1, sizeof *w->covered);
    w->warned = calloc(n + 1, sizeof *w->warned);
    if (w->covered && w->warned) return S2_OK;
    cmd_watch_close(w);
    return s2_no_memory(err, "the warnings", n * sizeof *w->covered);
}

/* Share of the pixels that are set. */
static double share(const struct s2_bits *b)
{
    int64_t area = 0;
    const size_t bytes = ((size_t)b->width + 7) / 8;
    for (int y = 0; y < b->height; y++) {
        const uint8_t *row = b->data + (size_t)y * b->stride;
        size_t x = 0;
        for (uint64_t word; x + sizeof word <= bytes; x += sizeof word) {
            memcpy(&word, row + x, sizeof word);
            area += __builtin_popcountll(word);
        }
        for (; x < bytes; x++) area += __builtin_popcount(row[x]);
    }
    return (double)area / ((double)b->width * (double)b->height);
}

static void name_of(const struct fmt_object *o, char *text, size_t size)
{
    if (o->label)
        snprintf(text, size, "object %d (%s)", o->id, o->label);
    else
        snprintf(text, size, "object %d", o->id);
}

static bool prompted(size_t object, const struct s2_prompt *prompts, int n)
{
    for (int i = 0; i < n; i++) {
        if ((size_t)prompts[i].object == object && prompts[i].kind == S2_PROMPT_POINTS) return true;
    }
    return false;
}

int cmd_watch_frame(struct cmd_watch *w, int64_t frame, const struct fmt_record_object *results,
                    const struct s2_prompt *prompts, int n_prompts)
{
    int present = 0;
    for (size_t i = 0; i < w->n_objects; i++) {
        const struct fmt_record_object *r = &results[i];
        const double covered = r->started ? share(&r->bits) : 0;
        const bool is_prompted = prompted(i, prompts, n_prompts);
        char name[128];
        name_of(&w->objects[i], name, sizeof name);
        present += r->started && r->score > 0;
        if (is_prompted && r->started && r->score <= 0) {
            cmd_warn("%s: the model sees no object at its prompt on frame %" PRId64 " (score %.2f), its mask is empty",
                     name, frame, (double)r->score);
        }
        if (!is_prompted && covered > 0.95 && w->covered[i] < 0.5 && !w->warned[i]) {
            cmd_warn("%s: its mask suddenly covers %.0f %% of frame %" PRId64 ": the track is probably lost", name,
                     100 * covered, frame);
            w->warned[i] = true;
        }
        w->covered[i] = covered;
    }
    return present;
}

void cmd_watch_turn(struct cmd_watch *w)
{
    for (size_t i = 0; i < w->n_objects; i++) w->covered[i] = 1;
}

void cmd_watch_close(struct cmd_watch *w)
{
    free(w->covered);
    free(w->warned);
    *w = (struct cmd_watch){0};
}

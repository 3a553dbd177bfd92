/* plan.c - --dry-run: what a run would do, as one JSON document. */
#include <errno.h>
#include <string.h>

#include "json.h"
#include "track.h"

static void input(struct cmd_json *j, const struct cmd_track_options *o, const struct fmt_video_info *v, int64_t frames)
{
    char time_base[32];
    snprintf(time_base, sizeof time_base, "%d/%d", v->time_base_num, v->time_base_den);
    cmd_json_object(j, "input");
    cmd_json_string(j, "path", o->input);
    cmd_json_integer(j, "width", v->width);
    cmd_json_integer(j, "height", v->height);
    cmd_json_integer(j, "rotation", v->rotation);
    if (v->fps > 0)
        cmd_json_number(j, "fps", v->fps, 9);
    else
        cmd_json_null(j, "fps");
    cmd_json_string(j, "time_base", time_base);
    if (frames >= 0)
        cmd_json_integer(j, "frames", frames);
    else
        cmd_json_null(j, "frames");
    cmd_json_bool(j, "stills", v->is_stills);
    cmd_json_string(j, "container", v->container);
    cmd_json_string(j, "codec", v->codec);
    cmd_json_end(j);
}

static void model(struct cmd_json *j, const struct cmd_track_options *o, const struct s2_model_info *m,
                  const char *container, const char *device, const char *precision)
{
    cmd_json_object(j, "model");
    cmd_json_string(j, "file", o->model);
    cmd_json_string(j, "container", container);
    cmd_json_string(j, "name", m->name);
    cmd_json_integer(j, "parameters", m->parameters);
    cmd_json_integer(j, "size", cmd_track_size(o) ? cmd_track_size(o) : m->native_size);
    cmd_json_string(j, "precision", precision);
    cmd_json_string(j, "device", device);
    cmd_json_end(j);
}

static void prompts(struct cmd_json *j, const struct fmt_prompts *p)
{
    static const char *const kinds[] = {
        [S2_PROMPT_POINTS] = "points", [S2_PROMPT_MASK] = "mask", [S2_PROMPT_STOP] = "stop"};
    cmd_json_array(j, "objects");
    for (size_t i = 0; i < p->n_objects; i++) {
        cmd_json_object(j, NULL);
        cmd_json_integer(j, "id", p->objects[i].id);
        if (p->objects[i].label) cmd_json_string(j, "label", p->objects[i].label);
        cmd_json_end(j);
    }
    cmd_json_end(j);
    cmd_json_array(j, "prompts");
    for (size_t i = 0; i < p->n_prompts; i++) {
        const struct fmt_prompt *q = &p->prompts[i];
        cmd_json_object(j, NULL);
        if (q->by_time)
            cmd_json_number(j, "time", q->time, 9);
        else
            cmd_json_integer(j, "frame", q->frame);
        cmd_json_integer(j, "object", p->objects[q->object].id);
        cmd_json_string(j, "kind", kinds[q->kind]);
        if (q->kind == S2_PROMPT_POINTS) {
            cmd_json_integer(j, "points", q->n_points);
            cmd_json_bool(j, "box", q->has_box);
        }
        cmd_json_end(j);
    }
    cmd_json_end(j);
}

static void output(struct cmd_json *j, const char *kind, const char *path)
{
    if (!path) return;
    cmd_json_object(j, NULL);
    cmd_json_string(j, "kind", kind);
    cmd_json_string(j, "path", path);
    cmd_json_end(j);
}

static void options(struct cmd_json *j, const struct cmd_track_options *o)
{
    cmd_json_object(j, "options");
    cmd_json_integer(j, "first", o->first);
    if (o->end >= 0)
        cmd_json_integer(j, "end", o->end);
    else
        cmd_json_null(j, "end");
    cmd_json_integer(j, "stride", o->stride);
    cmd_json_string(j, "direction", o->direction);
    cmd_json_string(j, "late_prompts", o->late);
    cmd_json_string(j, "overlap", o->overlap);
    cmd_json_integer(j, "fill_holes", o->fill_holes);
    cmd_json_integer(j, "max_cond_frames", o->max_cond_frames);
    cmd_json_bool(j, "overwrite", o->overwrite);
    cmd_json_end(j);
}

/* As --progress names them. */
static void passes(struct cmd_json *j, const struct cmd_track_options *o)
{
    const enum cmd_direction d = cmd_track_direction(o);
    cmd_json_array(j, "passes");
    if (d != CMD_FORWARD) cmd_json_string(j, NULL, "index");
    if (cmd_track_late(o) == S2_LATE_LOOKAHEAD) cmd_json_string(j, NULL, "lookahead");
    cmd_json_string(j, NULL, "track");
    if (d == CMD_BOTH) cmd_json_string(j, NULL, "back");
    if (d != CMD_FORWARD) cmd_json_string(j, NULL, "write");
    cmd_json_end(j);
}

enum s2_status cmd_plan_print(const struct cmd_track_options *o, const struct fmt_video_info *v, int64_t frames,
                              const struct s2_model_info *m, const char *container, const char *device,
                              const char *precision, const struct fmt_prompts *p, FILE *f, struct s2_err *err)
{
    struct cmd_json j = {0};
    cmd_json_object(&j, NULL);
    input(&j, o, v, frames);
    model(&j, o, m, container, device, precision);
    prompts(&j, p);
    cmd_json_array(&j, "outputs");
    output(&j, "png", o->png);
    output(&j, "png-objects", o->png_objects);
    output(&j, "rle", o->rle);
    output(&j, "overlay", o->overlay);
    output(&j, "stats", o->stats);
    output(&j, "debug-taps", o->taps);
    cmd_json_end(&j);
    options(&j, o);
    passes(&j, o);
    if (cmd_track_expected(o, frames) >= 0)
        cmd_json_integer(&j, "frames_to_process", cmd_track_expected(o, frames));
    else
        cmd_json_null(&j, "frames_to_process");
    cmd_json_end(&j);
    enum s2_status status = S2_OK;
    if (j.failed)
        status = s2_no_memory(err, "the plan", j.text.size);
    else if (!cmd_json_print(&j, f))
        status = s2_fail(err, S2_E_OUTPUT, "the plan cannot be written to stdout: %s", strerror(errno));
    cmd_json_free(&j);
    return status;
}

/* What a device relies on that records a step's operators and replays them: time is data in the step table, not part
 * of the program, and operators may be issued in more than one round. Shown on the CPU, whose operator table is
 * wrapped. */
#include "../engine/session.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 128, SIDE = SIZE / 4, CELLS = SIDE * SIDE, WIDTH = 96, HEIGHT = 72, FRAMES = 48, CORRECTED = 28 };

/* A recording made on frame FROZEN with the frame's number in it would keep that frame's rows and distances. */
enum { FROZEN = 18, ROOM = 32 };

static struct {
    const struct s2_ops *cpu;
    struct s2_ops ops;
    struct s2_session *session;
    bool corrects, freezes;
    int n_row, n_dist; /* kept on frame FROZEN */
    int32_t row[ROOM];
    float dist[ROOM];
    int uploads; /* of the table, with memories */

    int rounds, round; /* of a program's operators; all but the last are recorded only */
    int begun[5], why_not[5];
} w;

static void keep_or_freeze(const struct s2i_selection *s, int frame)
{
    if (frame == FROZEN) {
        w.n_row = s->counts[0], w.n_dist = s->counts[1];
        cr_assert(w.n_row <= ROOM && w.n_dist <= ROOM);
        memcpy(w.row, s->row, (size_t)w.n_row * sizeof *w.row);
        memcpy(w.dist, s->ptr_dist, (size_t)w.n_dist * sizeof *w.dist);
    }
    if (!w.freezes || frame <= FROZEN) return;
    for (int i = 0; i < s->counts[0] && i < w.n_row; i++) s->row[i] = w.row[i];
    for (int i = 0; i < s->counts[1] && i < w.n_dist; i++) s->ptr_dist[i] = w.dist[i];
}

/* The object was prompted on frame 0 and, if `corrected`, on frame CORRECTED. */
static void expect_true_time(const struct s2i_selection *s, int frame, bool corrected)
{
    const int cond[2] = {0, CORRECTED}, n_cond = corrected && frame > CORRECTED ? 2 : 1;
    int spatial = 0, pointers = 0;
    for (int i = 0; i < n_cond; i++) {
        cr_expect_eq(s->row[spatial], 6, "frame %d, prompted frame %d", frame, cond[i]);
        spatial++;
        cr_expect_float_eq(s->ptr_dist[pointers], (float)(frame - cond[i]) / 15, 1e-6f, "frame %d: age of frame %d: %g",
                           frame, cond[i], 15 * (double)s->ptr_dist[pointers]);
        pointers++;
    }
    for (int d = 6; d >= 1; d--) {
        if (frame - d <= 0 || (n_cond == 2 && frame - d == CORRECTED)) continue;
        cr_expect_eq(s->row[spatial], d - 1, "frame %d, %d back", frame, d);
        spatial++;
    }
    for (int d = 1; d <= 15; d++) {
        if (frame - d <= 0 || (n_cond == 2 && frame - d == CORRECTED)) continue;
        cr_expect_float_eq(s->ptr_dist[pointers], (float)d / 15, 1e-6f, "frame %d, %d back", frame, d);
        pointers++;
    }
    cr_expect_eq(s->counts[0], spatial, "frame %d", frame);
    cr_expect_eq(s->counts[1], pointers, "frame %d", frame);
}

static void upload(struct s2_backend *be, void *dst, const void *host, size_t bytes)
{
    const struct s2_session *s = w.session;
    if (s && dst == s->table.device && s->table.selection.counts[0] > 0) {
        w.uploads++;
        keep_or_freeze(&s->table.selection, s->frame);
        if (!w.freezes) expect_true_time(&s->table.selection, s->frame, w.corrects);
    }
    w.cpu->upload(be, dst, host, bytes);
}

static bool begin(struct s2_backend *be, const struct s2_signature *sig, const char *why_not)
{
    w.begun[sig->program]++;
    w.why_not[sig->program] += why_not != NULL;
    w.round = 1;
    be->skip = !why_not && w.round < w.rounds;
    return false;
}

static bool end(struct s2_backend *be)
{
    const bool again = be->skip;
    be->skip = again && ++w.round < w.rounds;
    return again;
}

struct clip {
    struct s2_model *model;
    struct s2_backend *backend;
    uint8_t rgb[WIDTH * HEIGHT * 3], bits[HEIGHT * WIDTH / 8];
    float logits[FRAMES][CELLS];
};

static void draw(uint8_t *rgb, int frame)
{
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++, rgb += 3) {
            const bool square = x >= frame && x < frame + 24 && y >= 24 && y < 48;
            rgb[0] = (uint8_t)(square ? 220 : 40 + (x ^ y) % 32), rgb[1] = square ? 40 : 90, rgb[2] = (uint8_t)(60 + y);
        }
}

static struct clip *open_clip(void)
{
    struct s2_err err = {0};
    struct clip *c = calloc(1, sizeof *c);
    struct s2_source *weights = s2_seeded_source("mini", 1);
    memset(&w, 0, sizeof w);
    cr_assert(c && weights);
    cr_assert(c->backend = s2_cpu_open(0, S2_F32, &err), "%s", err.text);
    cr_assert_eq(s2_model_load(&c->model, c->backend, weights, SIZE, &err), S2_OK, "%s", err.text);
    s2_seeded_free(weights);
    w.cpu = c->backend->ops;
    w.ops = *w.cpu;
    w.ops.upload = upload;
    c->backend->ops = &w.ops;
    return c;
}

static void close_clip(struct clip *c)
{
    s2_model_free(c->model);
    c->backend->ops->close(c->backend);
    free(c);
}

/* Tracks the square over n frames; with `corrects`, a click corrects it on frame CORRECTED. */
static void run(struct clip *c, int n)
{
    struct s2_err err = {0};
    const int prompted = 2;
    const struct s2_session_config config = {.width = WIDTH,
                                             .height = HEIGHT,
                                             .num_frames = FRAMES,
                                             .n_objects = 1,
                                             .prompted_frames = &prompted,
                                             .max_points = 2,
                                             .fill_hole_area = 8};
    cr_assert_eq(s2_session_open(&w.session, c->model, &config, &err), S2_OK, "%s", err.text);
    for (int t = 0; t < n; t++) {
        const float click[2] = {(float)t + 12, 36};
        const int8_t inside = 1;
        const struct s2_prompt box = {.has_box = true, .box = {0, 24, 23, 47}},
                               point = {.n_points = 1, .xy = click, .labels = &inside};
        const int n_prompts = t == 0 || (w.corrects && t == CORRECTED);
        struct s2_object_result object = {.bits = c->bits};
        struct s2_step_result result = {.bit_stride = WIDTH / 8, .object = &object};
        const struct s2_image image = {.width = WIDTH, .height = HEIGHT, .stride = WIDTH * 3, .rgb = c->rgb};
        int side;
        draw(c->rgb, t);
        cr_assert_eq(s2_session_step(w.session, &image, t ? &point : &box, n_prompts, &result, &err), S2_OK, "%s",
                     err.text);
        const float *logits = s2_session_logits(w.session, 0, &side);
        cr_assert(logits && side == SIDE);
        memcpy(c->logits[t], logits, sizeof c->logits[t]);
    }
    s2_session_free(w.session);
    w.session = NULL;
}

static double difference(const float *a, const float *b)
{
    double most = 0;
    for (int i = 0; i < CELLS; i++) most = fmax(most, fabs((double)a[i] - b[i]));
    return most;
}

/* The smallest over the frames behind CORRECTED of: the largest difference that the time of frame FROZEN makes to a
 * frame's logits. They are around 1 with these weights. */
static double frozen_time_costs(bool with_correction)
{
    struct clip *c = open_clip();
    float(*honest)[CELLS] = malloc(sizeof c->logits);
    double least = INFINITY;
    cr_assert(honest);
    w.corrects = with_correction;
    run(c, FRAMES);
    cr_expect_eq(w.uploads, FRAMES - 1, "the table of every frame with memories is seen once");
    memcpy(honest, c->logits, sizeof c->logits);
    w.freezes = true;
    run(c, FRAMES);
    for (int t = 0; t <= FROZEN; t++)
        cr_expect_eq(difference(honest[t], c->logits[t]), 0, "frame %d: nothing is frozen yet", t);
    for (int t = CORRECTED + 1; t < FRAMES; t++) least = fmin(least, difference(honest[t], c->logits[t]));
    free(honest);
    close_clip(c);
    return least;
}

Test(programs, a_frozen_age_of_the_prompted_frame_changes_masks, .timeout = 300)
{
    const double least = frozen_time_costs(false);
    cr_expect(least > 5e-3, "a frame's logits differ by %g only", least);
}

Test(programs, frozen_rows_after_a_correction_change_masks, .timeout = 300)
{
    const double least = frozen_time_costs(true);
    cr_expect(least > 0.1, "a frame's logits differ by %g only", least);
}

/* Rounds that are only recorded leave no trace. */
Test(programs, rounds_take_effect_once, .timeout = 300)
{
    enum { N = 6 };
    struct clip *c = open_clip();
    float(*once)[CELLS] = malloc(sizeof c->logits);
    cr_assert(once);
    run(c, N);
    memcpy(once, c->logits, sizeof c->logits);
    w.ops.begin = begin, w.ops.end = end;
    for (w.rounds = 1; w.rounds <= 3; w.rounds++) {
        memset(w.begun, 0, sizeof w.begun);
        memset(w.why_not, 0, sizeof w.why_not);
        run(c, N);
        for (int t = 0; t < N; t++)
            cr_expect_eq(difference(once[t], c->logits[t]), 0, "%d rounds, frame %d", w.rounds, t);
        cr_expect_eq(w.begun[S2_PROGRAM_IMAGE], N);
        cr_expect_eq(w.begun[S2_PROGRAM_TRACK], N - 1);
        cr_expect_eq(w.begun[S2_PROGRAM_RESULTS], N);
        cr_expect_eq(w.begun[S2_PROGRAM_PROMPT], 1);
        cr_expect_eq(w.why_not[S2_PROGRAM_PROMPT], 1);
        cr_expect_eq(w.why_not[S2_PROGRAM_IMAGE] + w.why_not[S2_PROGRAM_TRACK] + w.why_not[S2_PROGRAM_RESULTS], 0);
    }
    free(once);
    close_clip(c);
}

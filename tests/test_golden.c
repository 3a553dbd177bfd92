/* The tracker gives what the PyTorch reference gives: the mini model on the demo scene, and every Hiera size with
 * weights from a seed. The files and how they were made: tests/data/README.md. */
#include "../engine/engine.h"
#include "../formats/formats.h"
#include "scene/scene.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA        "tests/data/"
#define MAX_OBJECTS 3

/* A session of a loaded model with the buffers of one step. */
struct tracker {
    struct s2_backend *backend;
    struct s2_model *model;
    struct s2_session *session;
    struct s2_object_result object[MAX_OBJECTS];
    struct s2_step_result result;
    int n, height;
};

static void must(enum s2_status status, const struct s2_err *err)
{
    cr_assert_eq(status, S2_OK, "%s", err->text);
}

static void tracker_open(struct tracker *k, const struct s2_source *weights, int image_size,
                         const struct s2_session_config *config)
{
    struct s2_err err = {0};
    k->n = config->n_objects;
    k->height = config->height;
    k->backend = s2_cpu_open(0, S2_F32, &err);
    cr_assert(k->backend, "%s", err.text);
    must(s2_model_load(&k->model, k->backend, weights, image_size, &err), &err);
    must(s2_session_open(&k->session, k->model, config, &err), &err);
    k->result = (struct s2_step_result){.bit_stride = (size_t)(config->width + 7) / 8, .object = k->object};
    for (int i = 0; i < k->n; i++) {
        k->object[i].bits = calloc((size_t)k->height, k->result.bit_stride);
        cr_assert(k->object[i].bits);
    }
}

static void tracker_step(struct tracker *k, const struct s2_image *image, const struct s2_prompt *prompts, int n)
{
    struct s2_err err = {0};
    must(s2_session_step(k->session, image, prompts, n, &k->result, &err), &err);
}

static void tracker_close(struct tracker *k)
{
    s2_session_free(k->session);
    s2_model_free(k->model);
    k->backend->ops->close(k->backend);
    for (int i = 0; i < k->n; i++) free(k->object[i].bits);
}

/* The last n numbers of a float16 .npy file. */
static float *read_npy(const char *path, size_t n)
{
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s: cannot be read", path);
    uint16_t *half = malloc(n * 2);
    float *out = malloc(n * sizeof(*out));
    cr_assert(half && out);
    cr_assert_eq(fseek(f, -(long)(n * 2), SEEK_END), 0);
    cr_assert_eq(fread(half, 2, n, f), n);
    fclose(f);
    for (size_t i = 0; i < n; i++) out[i] = s2_from_f16(half[i]);
    free(half);
    return out;
}

static cJSON *read_json(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s: cannot be read", path);
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    cJSON *json = cJSON_Parse(text);
    cr_assert(json, "%s: not JSON", path);
    return json;
}

/* got is [side][side], want [side/every][side/every] of it. On a prompted frame nothing but float32 sums and the
 * rounding of the stored numbers to float16 (2^-12) lies between the two: their difference is bounded by 1e-4 of
 * the maximum beside it. Behind memory, which is stored in bfloat16, one bit more or less of a few elements
 * moves single logits further: the root mean square is bounded. */
static void expect_logits(const float *got, int side, const float *want, int every, bool behind_memory,
                          const char *name)
{
    double most = 0, worst = 0, square = 0, difference = 0;
    for (int y = 0; y < side; y += every) {
        for (int x = 0; x < side; x += every) {
            double w = *want++, d = fabs(got[y * side + x] - w);
            most = fmax(most, fabs(w));
            worst = fmax(worst, d - fabs(w) * 0x1p-11);
            square += w * w;
            difference += d * d;
        }
    }
    double rms = sqrt(difference / square);
    cr_expect(behind_memory || worst <= 1e-4 * most, "%s: a logit is off by %g, the largest is %g", name, worst, most);
    cr_expect(rms <= 2e-3, "%s: logits are off by %g of their root mean square", name, rms);
}

static bool bit(const uint8_t *bits, size_t stride, int x, int y)
{
    return bits[(size_t)y * stride + (size_t)x / 8] >> (7 - x % 8) & 1;
}

static double mask_iou(const struct s2_bits *a, const uint8_t *b, size_t b_stride)
{
    int both = 0, either = 0;
    for (int y = 0; y < a->height; y++) {
        for (int x = 0; x < a->width; x++) {
            bool in_a = bit(a->data, a->stride, x, y), in_b = bit(b, b_stride, x, y);
            both += in_a && in_b;
            either += in_a || in_b;
        }
    }
    return either ? (double)both / either : 1;
}

/* ------------------------------------------------------------------ the mini model on the demo scene */

#define MINI        DATA "golden/mini/"
#define MINI_FRAMES 12

static void expect_mini_frame(struct tracker *k, int t, const cJSON *scores)
{
    char path[128], id[12];
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof(id), "%d", i + 1);
        double score = cJSON_GetArrayItem(cJSON_GetObjectItem(scores, id), t)->valuedouble;
        cr_expect(k->object[i].started);
        cr_expect(fabs(k->object[i].score - score) <= 1e-2, "object %d, frame %d: score %g, expected %g", i + 1, t,
                  (double)k->object[i].score, score);

        struct s2_bits want;
        struct s2_err err = {0};
        snprintf(path, sizeof(path), MINI "masks_%d/%05d.png", i + 1, t);
        must(fmt_mask_read(path, -1, &want, &err), &err);
        double iou = mask_iou(&want, k->object[i].bits, k->result.bit_stride);
        cr_expect(iou >= 0.999, "object %d, frame %d: mask IoU %g with the reference's", i + 1, t, iou);
        free(want.data);

        if (t > 2 && t != 10) continue;
        snprintf(path, sizeof(path), MINI "logits_%d_%05d.npy", i + 1, t);
        float *logits = read_npy(path, 128 * 128);
        int side;
        const float *got = s2_session_logits(k->session, i, &side);
        cr_assert(got);
        cr_assert_eq(side, 128);
        expect_logits(got, side, logits, 1, t > 0, path);
        free(logits);
    }
}

Test(golden, mini_model_on_the_scene, .timeout = 300)
{
    struct s2_err err = {0};
    struct fmt_checkpoint *file;
    must(fmt_checkpoint_open(&file, DATA "sam2track-mini.safetensors", &err), &err);
    const int prompted[3] = {1, 1, 1};
    struct tracker k;
    tracker_open(&k, fmt_checkpoint_source(file), 0,
                 &(struct s2_session_config){.width = SCENE_WIDTH,
                                             .height = SCENE_HEIGHT,
                                             .num_frames = SCENE_FRAMES,
                                             .n_objects = 3,
                                             .prompted_frames = prompted,
                                             .max_points = 2});
    fmt_checkpoint_close(file);

    const float bird[2] = {413, 91};
    const int8_t inside = 1;
    const struct s2_prompt prompts[3] = {
        {.object = 0, .has_box = true, .box = {45, 202, 103, 260}},
        {.object = 1, .has_box = true, .box = {382, 198, 550, 303}},
        {.object = 2, .n_points = 1, .xy = bird, .labels = &inside},
    };
    cJSON *golden = read_json(MINI "golden.json");
    struct scene *scene = scene_open();
    uint8_t *rgb = malloc(SCENE_WIDTH * SCENE_HEIGHT * 3);
    cr_assert(scene && rgb);
    for (int t = 0; t < MINI_FRAMES; t++) {
        scene_frame(scene, t, rgb, NULL);
        tracker_step(
            &k, &(struct s2_image){.width = SCENE_WIDTH, .height = SCENE_HEIGHT, .stride = SCENE_WIDTH * 3, .rgb = rgb},
            prompts, t ? 0 : 3);
        expect_mini_frame(&k, t, cJSON_GetObjectItem(golden, "object_score_logits"));
    }
    free(rgb);
    scene_close(scene);
    cJSON_Delete(golden);
    tracker_close(&k);
}

/* ------------------------------------------------------------------ seeded weights */

enum { SEEDED_FRAMES = 3, SEEDED_WIDTH = 320, SEEDED_HEIGHT = 180, SEEDED_SIDE = 32 };

static uint8_t clamp(int v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Frame t of the synthetic clip, integers only: a gradient that drifts, a disc, a rectangle, hash noise. */
static void synthetic(int t, uint8_t *rgb)
{
    const int w = SEEDED_WIDTH, h = SEEDED_HEIGHT;
    const int cx = w * (30 + 2 * t) / 100, cy = h * (40 + t) / 100, r = h / 6;
    const int x0 = w * (70 - t) / 100, y0 = h * (55 - t) / 100;
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++, rgb += 3) {
            uint32_t n = (uint32_t)x * 73856093u ^ (uint32_t)y * 19349663u;
            n = (n ^ n >> 15) * 2246822519u;
            const int noise = (int)((n >> 20) % 25) - 12;
            const bool disc = (x - cx) * (x - cx) + (y - cy) * (y - cy) <= r * r;
            int c[3] = {(x * 255 / w + 3 * t) % 256, y * 255 / h % 256, ((x + y) * 255 / (w + h) + 128) % 256};
            if (disc) memcpy(c, (const int[]){220, 60, 40}, sizeof(c));
            if (x >= x0 && x < x0 + w / 6 && y >= y0 && y < y0 + h / 5)
                memcpy(c, (const int[]){40, 90, 210}, sizeof(c));
            if (disc && (x / 8 + y / 8) % 2 == 0) memcpy(c, (const int[]){250, 180, 60}, sizeof(c));
            for (int i = 0; i < 3; i++) rgb[i] = clamp(c[i] + noise);
        }
    }
}

static void expect_seeded(const char *name)
{
    cJSON *all = read_json(DATA "golden/seeded/scores.json"), *known = cJSON_GetObjectItem(all, name);
    cr_assert(known);
    struct s2_source *weights = s2_seeded_source(cJSON_GetObjectItem(known, "model")->valuestring,
                                                 (uint64_t)cJSON_GetObjectItem(known, "seed")->valueint);
    cr_assert(weights);
    const int prompted[2] = {1, 1};
    struct tracker k;
    tracker_open(&k, weights, 512,
                 &(struct s2_session_config){.width = SEEDED_WIDTH,
                                             .height = SEEDED_HEIGHT,
                                             .num_frames = SEEDED_FRAMES,
                                             .n_objects = 2,
                                             .prompted_frames = prompted,
                                             .max_points = 2,
                                             .fill_hole_area = cJSON_GetObjectItem(known, "fill_holes")->valueint});
    s2_seeded_free(weights);

    char path[128];
    snprintf(path, sizeof(path), DATA "golden/seeded/%s.npy", name);
    const size_t map = SEEDED_SIDE * SEEDED_SIDE;
    float *logits = read_npy(path, SEEDED_FRAMES * 2 * map);
    const float point[2] = {96, 72};
    const int8_t inside = 1;
    const struct s2_prompt prompts[2] = {{.object = 0, .n_points = 1, .xy = point, .labels = &inside},
                                         {.object = 1, .has_box = true, .box = {224, 99, 277, 135}}};
    uint8_t *rgb = malloc(SEEDED_WIDTH * SEEDED_HEIGHT * 3);
    cr_assert(rgb);
    for (int t = 0; t < SEEDED_FRAMES; t++) {
        synthetic(t, rgb);
        tracker_step(
            &k,
            &(struct s2_image){.width = SEEDED_WIDTH, .height = SEEDED_HEIGHT, .stride = SEEDED_WIDTH * 3, .rgb = rgb},
            prompts, t ? 0 : 2);
        const cJSON *scores = cJSON_GetArrayItem(cJSON_GetObjectItem(known, "scores"), t);
        for (int i = 0; i < 2; i++) {
            int side;
            const float *got = s2_session_logits(k.session, i, &side);
            cr_assert(got);
            cr_assert_eq(side, 4 * SEEDED_SIDE);
            snprintf(path, sizeof(path), "%s, frame %d, object %d", name, t, i);
            expect_logits(got, side, logits + (size_t)(t * 2 + i) * map, 4, t > 0, path);
            double score = cJSON_GetArrayItem(scores, i)->valuedouble;
            cr_expect(fabs(k.object[i].score - score) <= 1e-2, "%s: score %g, expected %g", path,
                      (double)k.object[i].score, score);
        }
    }
    free(rgb);
    free(logits);
    cJSON_Delete(all);
    tracker_close(&k);
}

Test(golden, seeded_tiny, .timeout = 300)
{
    expect_seeded("tiny");
}
Test(golden, seeded_tiny_holes_filled, .timeout = 300)
{
    expect_seeded("tiny_filled");
}
Test(golden, seeded_sam2_tiny, .timeout = 300)
{
    expect_seeded("sam2-tiny");
}
Test(golden, seeded_small, .timeout = 300)
{
    expect_seeded("small");
}
Test(golden, seeded_base_plus, .timeout = 300)
{
    expect_seeded("base_plus");
}
Test(golden, seeded_large, .timeout = 300)
{
    expect_seeded("large");
}

/* scene DIR            writes DIR/scene.mkv, DIR/prompts.json and the true masks DIR/truth/00000.png ...
 * scene --iou MASKS    mean IoU of each object with the true masks over the frames that show it; MASKS holds
 *                      a folder an object (1/00000.png ...) or id maps (00000.png ...) */
#include "clip.h"
#include "idmap.h"
#include "scene.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PIXELS (SCENE_WIDTH * SCENE_HEIGHT)

static const char *const names[] = {"", "ball", "van", "bird"};

static int fail(const char *what, const char *path)
{
    fprintf(stderr, "scene: %s %s\n", what, path);
    return 1;
}

/* The pixel of the object that is nearest to its centre: what one would click on. */
static void click(const uint8_t *ids, int id, int *cx, int *cy)
{
    double sx = 0, sy = 0, best = INFINITY;
    int n = 0;
    for (int i = 0; i < PIXELS; i++) {
        if (ids[i] != id) continue;
        sx += i % SCENE_WIDTH;
        sy += i / SCENE_WIDTH;
        n++;
    }
    for (int i = 0; i < PIXELS; i++) {
        double dx = i % SCENE_WIDTH - sx / n, dy = i / SCENE_WIDTH - sy / n;
        if (ids[i] != id || dx * dx + dy * dy >= best) continue;
        best = dx * dx + dy * dy;
        *cx = i % SCENE_WIDTH;
        *cy = i / SCENE_WIDTH;
    }
}

static void box(const uint8_t *ids, int id, int b[4])
{
    b[0] = b[1] = INT_MAX;
    b[2] = b[3] = 0;
    for (int i = 0; i < PIXELS; i++) {
        int x = i % SCENE_WIDTH, y = i / SCENE_WIDTH;
        if (ids[i] != id) continue;
        if (x < b[0]) b[0] = x;
        if (y < b[1]) b[1] = y;
        if (x > b[2]) b[2] = x;
        if (y > b[3]) b[3] = y;
    }
}

/* Boxes for the ball and the van, a click for the bird, on frame 0. */
static int write_prompts(const char *path, const uint8_t *ids)
{
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    fprintf(f, "{\n \"objects\": [");
    for (int id = 1; id <= SCENE_OBJECTS; id++)
        fprintf(f, "%s{\"id\": %d, \"label\": \"%s\"}", id > 1 ? ", " : "", id, names[id]);
    fprintf(f, "],\n \"prompts\": [\n");
    for (int id = SCENE_BALL; id <= SCENE_VAN; id++) {
        int b[4];
        box(ids, id, b);
        fprintf(f, "  {\"frame\": 0, \"object\": %d, \"box\": [%d, %d, %d, %d]},\n", id, b[0], b[1], b[2], b[3]);
    }
    int x = 0, y = 0;
    click(ids, SCENE_BIRD, &x, &y);
    fprintf(f, "  {\"frame\": 0, \"object\": %d, \"points\": [[%d, %d]], \"labels\": [1]}\n ]\n}\n", SCENE_BIRD, x, y);
    return fclose(f) ? -1 : 0;
}

static int render(const struct scene *s, const char *dir, uint8_t *rgb, uint8_t *ids)
{
    char path[PATH_MAX];
    struct scene_clip *clip;
    snprintf(path, sizeof(path), "%s/truth", dir);
    mkdir(dir, 0777);
    mkdir(path, 0777);
    snprintf(path, sizeof(path), "%s/scene.mkv", dir);
    if (scene_clip_open(&clip, path, SCENE_WIDTH, SCENE_HEIGHT, SCENE_FPS)) return fail("cannot write", path);
    bool written = true;
    for (int t = 0; t < SCENE_FRAMES && written; t++) {
        scene_frame(s, t, rgb, ids);
        written = !scene_clip_put(clip, rgb);
        snprintf(path, sizeof(path), "%s/truth/%05d.png", dir, t);
        if (scene_idmap_write(path, ids, SCENE_WIDTH, SCENE_HEIGHT)) written = false;
        snprintf(path, sizeof(path), "%s/prompts.json", dir);
        if (!t && write_prompts(path, ids)) written = false;
    }
    if (scene_clip_close(clip) || !written) return fail("cannot write into", dir);
    return 0;
}

static int report_iou(const struct scene *s, const char *dir, uint8_t *mask, uint8_t *ids)
{
    char path[PATH_MAX];
    double sum[SCENE_OBJECTS + 1] = {0};
    int visible[SCENE_OBJECTS + 1] = {0};
    struct stat st;
    snprintf(path, sizeof(path), "%s/1", dir);
    bool folders = !stat(path, &st);
    for (int t = 0; t < SCENE_FRAMES; t++) {
        scene_frame(s, t, NULL, ids);
        for (int id = 1; id <= SCENE_OBJECTS; id++) {
            snprintf(path, sizeof(path), "%s/%.*s%05d.png", dir, folders ? 2 : 0, &"1/2/3/"[2 * (id - 1)], t);
            if (scene_idmap_read(path, mask, SCENE_WIDTH, SCENE_HEIGHT)) return fail("cannot read", path);
            int both = 0, either = 0, true_area = 0;
            for (int i = 0; i < PIXELS; i++) {
                bool is = ids[i] == id, found = folders ? mask[i] != 0 : mask[i] == id;
                true_area += is;
                both += is && found;
                either += is || found;
            }
            if (!true_area) continue;
            visible[id]++;
            sum[id] += (double)both / either;
        }
    }
    for (int id = 1; id <= SCENE_OBJECTS; id++)
        printf("%s %.3f%s", names[id], sum[id] / visible[id], id < SCENE_OBJECTS ? "  " : "\n");
    return 0;
}

int main(int argc, char **argv)
{
    bool iou = argc == 3 && !strcmp(argv[1], "--iou");
    if (!iou && (argc != 2 || argv[1][0] == '-')) {
        fprintf(stderr, "usage: scene DIR | scene --iou MASKS\n");
        return 2;
    }
    struct scene *s = scene_open();
    uint8_t *rgb = malloc(PIXELS * 3), *ids = malloc(PIXELS);
    int r = 1;
    if (s && rgb && ids)
        r = iou ? report_iou(s, argv[2], rgb, ids) : render(s, argv[1], rgb, ids);
    else
        fprintf(stderr, "scene: out of memory\n");
    free(rgb);
    free(ids);
    scene_close(s);
    return r;
}

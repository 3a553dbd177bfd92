/* The demo scene is the same picture as its Python original: numpy's random doubles, exact frames and masks. */
#include "scene/random.h"
#include "scene/scene.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <zlib.h>

Test(scene, random_doubles_are_numpys)
{
    /* numpy.random.default_rng(seed).random(1000), elements 0, 1, 2 and 999 */
    static const struct {
        uint32_t seed[2];
        int words;
        double first[3], last;
    } known[] = {
        {{7}, 1, {0x1.400c8353e3ca9p-1, 0x1.cb5f9b795e4cdp-1, 0x1.8d26acbf2815fp-1}, 0x1.9f2d57ab76118p-3},
        {{7, 3}, 2, {0x1.f337991374b1ap-1, 0x1.c4e5ff35138ecp-1, 0x1.db135082c6e78p-3}, 0x1.2d07b21b2f87ep-1},
    };
    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++) {
        struct scene_random r, skipped;
        scene_random_seed(&r, known[k].seed, known[k].words);
        skipped = r;
        for (int i = 0; i < 3; i++) cr_expect(scene_random_next(&r) == known[k].first[i]);
        for (int i = 3; i < 999; i++) scene_random_next(&r);
        cr_expect(scene_random_next(&r) == known[k].last);
        scene_random_skip(&skipped, 999);
        cr_expect(scene_random_next(&skipped) == known[k].last);
    }
}

Test(scene, frames_and_masks)
{
    static const struct {
        int t;
        unsigned long rgb, ids; /* CRC-32 */
        int area[SCENE_OBJECTS];
    } known[] = {
        {0, 0x7b19983b, 0x871cf54f, {2667, 15049, 2736}},
        {48, 0xe90c3f10, 0x1be7e8fc, {0, 15061, 0}},
        {95, 0x5df34446, 0xab198447, {2666, 15002, 3444}},
    };
    const unsigned pixels = SCENE_WIDTH * SCENE_HEIGHT;
    struct scene *s = scene_open();
    uint8_t *rgb = malloc(pixels * 3), *ids = malloc(pixels);
    cr_assert(s && rgb && ids);
    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++) {
        scene_frame(s, known[k].t, rgb, ids);
        int area[SCENE_OBJECTS + 1] = {0};
        for (unsigned i = 0; i < pixels; i++) area[ids[i]]++;
        for (int id = 1; id <= SCENE_OBJECTS; id++) cr_expect_eq(area[id], known[k].area[id - 1]);
        cr_expect_eq(crc32(0, ids, pixels), known[k].ids, "masks of frame %d differ", known[k].t);
        cr_expect_eq(crc32(0, rgb, pixels * 3), known[k].rgb, "pixels of frame %d differ", known[k].t);
    }
    scene_close(s);
    free(rgb);
    free(ids);
}

/* random.h - the doubles of numpy.random.default_rng(), so that the scene is the same picture in C and in
 * Python: SeedSequence (numpy's documented entropy hash, after O'Neill's seed_seq_fe) seeding PCG64, the
 * 128-bit LCG with XSL-RR output of O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically
 * Good Algorithms for Random Number Generation" (2014). */
#ifndef SCENE_RANDOM_H
#define SCENE_RANDOM_H

#include <stdint.h>

struct scene_random {
    unsigned __int128 state, increment;
};

/* default_rng(words), 1 <= n <= 4 */
void scene_random_seed(struct scene_random *, const uint32_t *words, int n);
/* The next double in [0, 1): rng.random() */
double scene_random_next(struct scene_random *);
/* As if n doubles had been drawn, in O(log n): Brown, "Random Number Generation with Arbitrary Stride" (1994). */
void scene_random_skip(struct scene_random *, uint64_t n);

#endif

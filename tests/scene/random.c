#include "random.h"

typedef unsigned __int128 u128;

#define POOL 4

static const u128 multiplier = ((u128)0x2360ed051fc65da4u << 64) | 0x4385df649fccf645u;

static uint32_t hash(uint32_t value, uint32_t *key, uint32_t factor)
{
    value ^= *key;
    *key *= factor;
    value *= *key;
    return value ^ value >> 16;
}

static uint32_t mix(uint32_t x, uint32_t y)
{
    uint32_t z = 0xca01f9ddu * x - 0x4973f715u * y;
    return z ^ z >> 16;
}

/* Eight 32-bit words of SeedSequence(words).generate_state(). */
static void seed_words(const uint32_t *words, int n, uint32_t out[8])
{
    uint32_t pool[POOL], key = 0x43b0d7e5u;
    for (int i = 0; i < POOL; i++) pool[i] = hash(i < n ? words[i] : 0, &key, 0x931e8875u);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to) pool[to] = mix(pool[to], hash(pool[from], &key, 0x931e8875u));
    key = 0x8b51f9ddu;
    for (int i = 0; i < 8; i++) out[i] = hash(pool[i % POOL], &key, 0x58f38dedu);
}

static void step(struct scene_random *r)
{
    r->state = r->state * multiplier + r->increment;
}

void scene_random_seed(struct scene_random *r, const uint32_t *words, int n)
{
    uint32_t w[8];
    seed_words(words, n, w);
    uint64_t v[4];
    for (int i = 0; i < 4; i++) v[i] = w[2 * i] | (uint64_t)w[2 * i + 1] << 32;
    r->increment = ((u128)v[2] << 64 | v[3]) << 1 | 1;
    r->state = 0;
    step(r);
    r->state += (u128)v[0] << 64 | v[1];
    step(r);
}

double scene_random_next(struct scene_random *r)
{
    step(r);
    uint64_t x = (uint64_t)(r->state >> 64) ^ (uint64_t)r->state;
    unsigned turn = (unsigned)(r->state >> 122);
    x = x >> turn | x << (-turn & 63);
    return (double)(x >> 11) * 0x1p-53;
}

void scene_random_skip(struct scene_random *r, uint64_t n)
{
    u128 factor = multiplier, add = r->increment, all_factor = 1, all_add = 0;
    for (; n; n >>= 1) {
        if (n & 1) {
            all_factor *= factor;
            all_add = all_add * factor + add;
        }
        add = (factor + 1) * add;
        factor *= factor;
    }
    r->state = all_factor * r->state + all_add;
}

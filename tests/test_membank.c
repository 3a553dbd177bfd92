/* Which memories a frame attends to: the bounded bank against the rule stated on an unbounded history. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/membank.h"

enum { FRAMES = 90, CAP = 64 };

struct history {
    int kind[FRAMES];          /* 0 nothing, 1 tracked, 2 conditioning */
    int order[FRAMES], n_cond; /* conditioning frames as they were prompted */
};

struct expected {
    int spatial[CAP], row[CAP], n_spatial;
    int pointer[CAP], n_pointers;
    float dist[CAP];
};

static int before_by_distance(const int *list, int n, const bool *taken, int t)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || abs(list[i] - t) < abs(list[best] - t))) best = i;
    return best;
}

/* The rule of sam2_base.py with stride 1; back: -1 forward, 1 in reverse. */
static struct expected rule(const struct history *h, int t, int cap, int num_frames, int back)
{
    struct expected e = {.n_spatial = 0};
    int selected[CAP], n = 0;
    bool taken[FRAMES] = {false};
    if (cap == 0 || h->n_cond <= cap) {
        for (int i = 0; i < h->n_cond; i++) selected[n++] = h->order[i], taken[i] = true;
    } else {
        int before = -1, after = -1;
        for (int i = 0; i < h->n_cond; i++) {
            if (h->order[i] < t && (before < 0 || h->order[i] > h->order[before])) before = i;
            if (h->order[i] >= t && (after < 0 || h->order[i] < h->order[after])) after = i;
        }
        if (before >= 0) selected[n++] = h->order[before], taken[before] = true;
        if (after >= 0) selected[n++] = h->order[after], taken[after] = true;
        while (n < cap) {
            int i = before_by_distance(h->order, h->n_cond, taken, t);
            selected[n++] = h->order[i], taken[i] = true;
        }
    }
    bool is_selected[FRAMES] = {false};
    for (int i = 0; i < n; i++) is_selected[selected[i]] = true;
    for (int i = 0; i < n; i++) e.spatial[e.n_spatial] = selected[i], e.row[e.n_spatial++] = 6;
    for (int rel = 6; rel >= 1; rel--) {
        int f = t + back * rel;
        if (f >= 0 && f < FRAMES && h->kind[f] && !is_selected[f])
            e.spatial[e.n_spatial] = f, e.row[e.n_spatial++] = rel - 1;
    }
    int limit = num_frames < 16 ? num_frames : 16;
    for (int i = 0; i < n; i++)
        if ((selected[i] - t) * back >= 0)
            e.pointer[e.n_pointers] = selected[i],
            e.dist[e.n_pointers++] = (float)abs(t - selected[i]) / (float)(limit - 1);
    for (int d = 1; d < limit; d++) {
        int f = t + back * d;
        if (f < 0 || f >= FRAMES) break;
        if (h->kind[f] && !is_selected[f])
            e.pointer[e.n_pointers] = f, e.dist[e.n_pointers++] = (float)d / (float)(limit - 1);
    }
    return e;
}

/* A bank under test, and which frame each slot holds. */
struct rig {
    struct s2i_membank bank;
    int spatial_frame[256], pointer_frame[256];
    int32_t counts[2], slot[CAP], row[CAP], ptr[CAP];
    float dist[CAP];
};

static void open_rig(struct rig *r, int prompted, int cap, bool keep)
{
    memset(r, 0, sizeof *r);
    cr_assert_eq(s2i_membank_init(&r->bank, prompted, cap, keep, false, NULL), S2_OK);
    r->bank.first_slot = 100, r->bank.first_ptr = 50;
}

static void insert(struct rig *r, int t, bool cond, int life)
{
    struct s2i_memory m = s2i_membank_insert(&r->bank, t, cond, life);
    cr_assert(m.slot >= 100 && m.slot < 100 + r->bank.slots, "slot %d out of the object's part", m.slot);
    cr_assert(m.ptr_slot >= 50 && m.ptr_slot < 50 + r->bank.ptr_slots);
    r->spatial_frame[m.slot] = t;
    r->pointer_frame[m.ptr_slot] = t;
}

static void compare(struct rig *r, const struct history *h, int t, int cap, int num_frames)
{
    struct s2i_selection s = {r->counts, r->slot, r->row, r->ptr, r->dist};
    struct expected e = rule(h, t, cap, num_frames, r->bank.backward ? 1 : -1);
    s2i_membank_select(&r->bank, t, num_frames, &s);
    cr_assert_eq(r->counts[0], e.n_spatial, "frame %d: %d spatial memories, expected %d", t, r->counts[0], e.n_spatial);
    cr_assert_eq(r->counts[1], e.n_pointers, "frame %d: %d pointers, expected %d", t, r->counts[1], e.n_pointers);
    for (int i = 0; i < e.n_spatial; i++) {
        cr_assert_eq(r->spatial_frame[r->slot[i]], e.spatial[i], "frame %d, cap %d: memory %d is frame %d, expected %d",
                     t, cap, i, r->spatial_frame[r->slot[i]], e.spatial[i]);
        cr_assert_eq(r->row[i], e.row[i]);
    }
    for (int i = 0; i < e.n_pointers; i++) {
        cr_assert_eq(r->pointer_frame[r->ptr[i]], e.pointer[i]);
        cr_assert_float_eq(r->dist[i], e.dist[i], 1e-6f);
    }
}

Test(membank, one_prompt_grows_to_seven_frames_and_sixteen_pointers)
{
    struct rig r;
    open_rig(&r, 1, 0, false);
    insert(&r, 0, true, 0);
    for (int t = 1; t < 60; t++) {
        struct s2i_selection s = {r.counts, r.slot, r.row, r.ptr, r.dist};
        s2i_membank_select(&r.bank, t, 1000, &s);
        cr_assert_eq(r.counts[0], 1 + (t - 1 < 6 ? t - 1 : 6));
        cr_assert_eq(r.counts[1], 1 + (t - 1 < 15 ? t - 1 : 15));
        cr_assert_eq(r.row[0], 6, "the conditioning frame takes the last row");
        if (t > 1) cr_assert_eq(r.row[r.counts[0] - 1], 0, "the previous frame takes row 0");
        cr_assert_float_eq(r.dist[0], (float)t / 15.0f, 1e-6f, "the conditioning pointer's age keeps growing");
        insert(&r, t, false, 0);
    }
    s2i_membank_free(&r.bank);
}

Test(membank, short_clips_shrink_the_pointer_scale)
{
    struct rig r;
    open_rig(&r, 1, 0, false);
    insert(&r, 0, true, 0);
    struct s2i_selection s = {r.counts, r.slot, r.row, r.ptr, r.dist};
    s2i_membank_select(&r.bank, 1, 5, &s);
    cr_assert_float_eq(r.dist[0], 0.25f, 1e-6f);
    s2i_membank_select(&r.bank, 0, 1, &s); /* a one-frame clip divides by one, not by zero */
    cr_assert(isfinite(r.dist[0]));
    s2i_membank_free(&r.bank);
}

/* Prompts as they come, any cap; the bounded bank never loses what the rule still wants. */
Test(membank, random_causal_histories_follow_the_rule)
{
    srand(7);
    for (int round = 0; round < 400; round++) {
        static const int caps[] = {0, 2, 3, 5};
        int cap = caps[rand() % 4], num_frames = rand() % 4 ? 1000 : 3 + rand() % 14, rate = 2 + rand() % 20;
        struct history h = {.n_cond = 0};
        bool prompt[FRAMES] = {false};
        int prompts = 0;
        for (int t = rand() % 5; t < FRAMES; t++) {
            prompt[t] = prompts == 0 || rand() % rate == 0;
            prompts += prompt[t];
        }
        struct rig r;
        open_rig(&r, prompts, cap, false);
        for (int t = 0; t < FRAMES; t++) {
            if (h.n_cond == 0 && !prompt[t]) continue;
            compare(&r, &h, t, cap, num_frames);
            insert(&r, t, prompt[t], 0);
            h.kind[t] = prompt[t] ? 2 : 1;
            if (prompt[t]) h.order[h.n_cond++] = t;
        }
        s2i_membank_free(&r.bank);
    }
}

/* All prompts known ahead: future conditioning frames give spatial memory, not pointers. */
Test(membank, random_known_prompts_follow_the_rule)
{
    srand(11);
    for (int round = 0; round < 200; round++) {
        int cap = rand() % 2 ? 0 : 2 + rand() % 3;
        struct history h = {.n_cond = 0};
        for (int t = 0; t < FRAMES; t++)
            if (t == 0 || rand() % 12 == 0) h.order[h.n_cond++] = t, h.kind[t] = 2;
        struct rig r;
        open_rig(&r, h.n_cond, cap, true);
        for (int i = 0; i < h.n_cond; i++) insert(&r, h.order[i], true, 0);
        for (int t = 0; t < FRAMES; t++) {
            if (h.kind[t] == 2) continue;
            compare(&r, &h, t, cap, 1000);
            insert(&r, t, false, 0);
            h.kind[t] = 1;
        }
        s2i_membank_free(&r.bank);
    }
}

Test(membank, a_stopped_object_forgets_and_its_next_life_appears)
{
    struct rig r;
    open_rig(&r, 2, 0, true);
    insert(&r, 0, true, 0);
    insert(&r, 20, true, 1); /* known ahead, after a stop at 10 */
    struct s2i_selection s = {r.counts, r.slot, r.row, r.ptr, r.dist};
    s2i_membank_select(&r.bank, 5, 1000, &s);
    cr_assert_eq(r.counts[0], 1);
    cr_assert_eq(r.spatial_frame[r.slot[0]], 0);
    s2i_membank_end_life(&r.bank);
    s2i_membank_select(&r.bank, 21, 1000, &s);
    cr_assert_eq(r.counts[0], 1);
    cr_assert_eq(r.spatial_frame[r.slot[0]], 20);
    cr_assert_eq(r.counts[1], 1);
    s2i_membank_free(&r.bank);
}

/* A forward pass, then the way back from the first prompt: the reference forgets nothing, the bank only what no frame
 * of the way back can see. Later lives do not show in it. */
Test(membank, random_ways_back_follow_the_rule)
{
    srand(13);
    for (int round = 0; round < 400; round++) {
        static const int caps[] = {0, 2, 3, 5};
        int cap = caps[rand() % 4], num_frames = rand() % 4 ? 1000 : 3 + rand() % 14, rate = 2 + rand() % 20;
        int start = rand() % 60, stop = rand() % 2 ? FRAMES : start + 1 + rand() % 30, prompts = 0;
        struct history h = {.n_cond = 0}, later = {.n_cond = 0};
        bool prompt[FRAMES] = {false};
        for (int t = start; t < FRAMES; t++) {
            prompt[t] = t == start || rand() % rate == 0;
            prompts += prompt[t];
        }
        struct rig r;
        memset(&r, 0, sizeof r);
        cr_assert_eq(s2i_membank_init(&r.bank, prompts, cap, false, true, NULL), S2_OK);
        r.bank.first_slot = 100, r.bank.first_ptr = 50;
        for (int t = start; t < FRAMES; t++) {
            if (t == stop) s2i_membank_end_life(&r.bank);
            struct history *now = t < stop ? &h : &later;
            if (now->n_cond == 0 && !prompt[t]) continue;
            compare(&r, now, t, cap, num_frames);
            insert(&r, t, prompt[t], t < stop ? 0 : 1);
            now->kind[t] = prompt[t] ? 2 : 1;
            if (prompt[t]) now->order[now->n_cond++] = t;
        }
        s2i_membank_turn(&r.bank);
        for (int t = start - 1; t >= 0; t--) {
            compare(&r, &h, t, cap, num_frames);
            insert(&r, t, false, 0);
            h.kind[t] = 1;
        }
        s2i_membank_free(&r.bank);
    }
}

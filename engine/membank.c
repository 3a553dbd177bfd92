/* membank.c - see membank.h. */
#include <stdlib.h>
#include <string.h>

#include "membank.h"

/* The first frame of a way back lies one before the start and looks at this many tracked frames behind the start. */
enum { START_SPATIAL = S2_RECENT - 1, START_POINTERS = S2_RECENT_POINTERS - 1 };

enum s2_status s2i_membank_init(struct s2i_membank *b, int prompted, int max_cond, bool keep_cond, bool keep_start,
                                struct s2_err *err)
{
    /* Beyond the cap a conditioning frame is needed only while it lies in the window of recent pointers. */
    int cond = prompted;
    keep_cond |= keep_start;
    if (max_cond && !keep_cond && cond > max_cond + S2_RECENT_POINTERS + 1) cond = max_cond + S2_RECENT_POINTERS + 1;

    b->max_cond = max_cond;
    b->keep_cond = keep_cond;
    b->keep_start = keep_start;
    b->start = -1;
    b->spatial_cap = cond + S2_RECENT;
    b->ptr_cap = cond + S2_RECENT_POINTERS;
    b->slots = b->spatial_cap + (keep_start ? START_SPATIAL : 0);
    b->ptr_slots = b->ptr_cap + (keep_start ? START_POINTERS : 0);
    b->capacity = b->ptr_slots;
    b->memory = calloc((size_t)b->capacity, sizeof *b->memory);
    b->slot_used = calloc((size_t)b->slots, sizeof *b->slot_used);
    b->ptr_used = calloc((size_t)b->ptr_slots, sizeof *b->ptr_used);
    b->chosen = calloc((size_t)b->capacity, sizeof *b->chosen);
    if (!b->memory || !b->slot_used || !b->ptr_used || !b->chosen)
        return s2_no_memory(err, "a memory bank", (size_t)b->capacity * sizeof *b->memory);
    return S2_OK;
}

void s2i_membank_free(struct s2i_membank *b)
{
    free(b->memory), free(b->slot_used), free(b->ptr_used), free(b->chosen);
    b->memory = NULL, b->slot_used = b->ptr_used = NULL, b->chosen = NULL;
}

static int distance(int a, int b)
{
    return a < b ? b - a : a - b;
}

static const struct s2i_memory *find(const struct s2i_membank *b, int frame)
{
    for (int i = 0; i < b->n; i++)
        if (b->memory[i].frame == frame && b->memory[i].life == b->life) return &b->memory[i];
    return NULL;
}

/* Moves `value` to position `to` of list, keeping the order of the others. */
static void move_to(int *list, int to, int end, int value)
{
    int at = to;
    while (at < end - 1 && list[at] != value) at++;
    memmove(&list[to + 1], &list[to], (size_t)(at - to) * sizeof *list);
    list[to] = value;
}

/* Indices of the selected conditioning memories in b->chosen: all of them, or the nearest before t, the nearest
 * from t on, then the others by distance. Returns how many. */
static int choose_cond(const struct s2i_membank *b, int t)
{
    int n = 0, before = -1, after = -1;
    for (int i = 0; i < b->n; i++) {
        const struct s2i_memory *m = &b->memory[i];
        if (!m->cond || m->life != b->life) continue;
        b->chosen[n++] = i;
        if (m->frame < t && (before < 0 || m->frame > b->memory[before].frame)) before = i;
        if (m->frame >= t && (after < 0 || m->frame < b->memory[after].frame)) after = i;
    }
    if (b->max_cond == 0 || (n <= b->max_cond && !b->dropped_cond)) return n;

    int end = n; /* the unchosen ones stay behind the chosen ones */
    n = 0;
    if (before >= 0) move_to(b->chosen, n++, end, before);
    if (after >= 0) move_to(b->chosen, n++, end, after);
    while (n < b->max_cond && n < end) {
        int best = n;
        for (int i = n + 1; i < end; i++)
            if (distance(b->memory[b->chosen[i]].frame, t) < distance(b->memory[b->chosen[best]].frame, t)) best = i;
        move_to(b->chosen, n++, end, b->chosen[best]);
    }
    return n;
}

static bool is_chosen(const struct s2i_membank *b, int n_chosen, const struct s2i_memory *m)
{
    for (int i = 0; i < n_chosen; i++)
        if (&b->memory[b->chosen[i]] == m) return true;
    return false;
}

void s2i_membank_select(const struct s2i_membank *b, int t, int num_frames, struct s2i_selection *s)
{
    int n = choose_cond(b, t), spatial = 0, pointers = 0;
    int reach = num_frames < S2_MAX_POINTERS ? num_frames : S2_MAX_POINTERS;
    int back = b->backward ? 1 : -1; /* towards the frames that came before */
    float scale = (float)(reach > 1 ? reach - 1 : 1);

    for (int i = 0; i < n; i++) {
        s->slot[spatial] = b->memory[b->chosen[i]].slot;
        s->row[spatial++] = S2_NUM_MASKMEM - 1;
    }
    for (int d = S2_RECENT; d >= 1; d--) { /* the row is the rank, far to near */
        const struct s2i_memory *m = find(b, t + back * d);
        if (!m || m->slot < 0 || is_chosen(b, n, m)) continue;
        s->slot[spatial] = m->slot;
        s->row[spatial++] = d - 1;
    }
    for (int i = 0; i < n; i++) { /* pointers of frames still to come are not used */
        const struct s2i_memory *m = &b->memory[b->chosen[i]];
        int age = (m->frame - t) * back;
        if (age < 0) continue;
        s->ptr_slot[pointers] = m->ptr_slot;
        s->ptr_dist[pointers++] = (float)age / scale;
    }
    for (int d = 1; d < reach; d++) {
        const struct s2i_memory *m = find(b, t + back * d);
        if (!m || is_chosen(b, n, m)) continue;
        s->ptr_slot[pointers] = m->ptr_slot;
        s->ptr_dist[pointers++] = (float)d / scale;
    }
    s->counts[0] = spatial;
    s->counts[1] = pointers;
}

static void drop(struct s2i_membank *b, int i)
{
    struct s2i_memory *m = &b->memory[i];
    if (m->slot >= 0) b->slot_used[m->slot - b->first_slot] = false;
    b->ptr_used[m->ptr_slot - b->first_ptr] = false;
    memmove(m, m + 1, (size_t)(b->n - i - 1) * sizeof *m);
    b->n--;
}

/* Whether a way back will need it: `within` frames behind the start. */
static bool kept(const struct s2i_membank *b, const struct s2i_memory *m, int within)
{
    if (!b->keep_start || b->backward || m->life > 0) return false;
    return m->cond || (b->start >= 0 && m->frame <= b->start + within);
}

void s2i_membank_end_life(struct s2i_membank *b)
{
    for (int i = b->n - 1; i >= 0; i--)
        if (b->memory[i].life <= b->life && !kept(b, &b->memory[i], START_POINTERS)) drop(b, i);
    b->dropped_cond = false;
    b->life++;
}

void s2i_membank_turn(struct s2i_membank *b)
{
    for (int i = b->n - 1; i >= 0; i--)
        if (!kept(b, &b->memory[i], START_POINTERS)) drop(b, i);
    b->life = 0;
    b->backward = true;
}

/* Conditioning memories with a frame later than this one's */
static int newer_cond(const struct s2i_membank *b, int frame)
{
    int n = 0;
    for (int i = 0; i < b->n && b->memory[i].cond; i++) n += b->memory[i].frame > frame;
    return n;
}

/* Frames after t look back S2_RECENT_POINTERS frames at most, but for the selected conditioning frames. */
static void evict(struct s2i_membank *b, int t)
{
    for (int i = b->n - 1; i >= 0; i--) {
        struct s2i_memory *m = &b->memory[i];
        bool selectable = m->cond && (b->max_cond == 0 || b->keep_cond || newer_cond(b, m->frame) < b->max_cond);
        int age = 1 + (b->backward ? m->frame - t : t - m->frame); /* on the next frame */
        if (selectable) continue;
        if (age > S2_RECENT_POINTERS && !kept(b, m, START_POINTERS)) {
            b->dropped_cond |= m->cond;
            drop(b, i);
        } else if (!m->cond && m->slot >= 0 && age > S2_RECENT && !kept(b, m, START_SPATIAL)) {
            b->slot_used[m->slot - b->first_slot] = false;
            m->slot = -1;
        }
    }
}

static int claim(bool *used, int n)
{
    for (int i = 0; i < n; i++)
        if (!used[i]) {
            used[i] = true;
            return i;
        }
    return 0; /* not reached: capacities follow from the eviction rule */
}

struct s2i_memory s2i_membank_insert(struct s2i_membank *b, int t, bool cond, int life)
{
    evict(b, t);
    if (cond && life == 0 && (b->start < 0 || t < b->start)) b->start = t;
    int at = 0;
    while (at < b->n && (!cond || b->memory[at].cond)) at++; /* behind the last of its kind */
    memmove(&b->memory[at + 1], &b->memory[at], (size_t)(b->n - at) * sizeof *b->memory);
    b->n++;
    b->memory[at] = (struct s2i_memory){.frame = t,
                                        .cond = cond,
                                        .life = life,
                                        .slot = b->first_slot + claim(b->slot_used, b->slots),
                                        .ptr_slot = b->first_ptr + claim(b->ptr_used, b->ptr_slots)};
    return b->memory[at];
}

/* membank.h - which memories an object has and which of them a frame attends to. Host bookkeeping only: frame
 * numbers and slot indices; the memories themselves lie in s2_bank. Engine-internal.
 * Source: sam2/modeling/sam2_base.py _prepare_memory_conditioned_features, sam2_utils.py
 * select_closest_cond_frames (stride 1, both directions). */
#ifndef S2_MEMBANK_H
#define S2_MEMBANK_H

#include "model.h"

enum { S2_RECENT = S2_NUM_MASKMEM - 1, S2_RECENT_POINTERS = S2_MAX_POINTERS - 1 };

/* One memory: a conditioning (prompted) frame or a tracked one. slot -1: only its pointer is still needed. */
struct s2i_memory {
    int frame;
    bool cond;
    int life; /* an object that is stopped and prompted again starts another life */
    int slot, ptr_slot;
};

struct s2i_membank {
    int max_cond;              /* selection cap K, 0: none */
    bool dropped_cond;         /* there were more prompted frames than the ones still here */
    int life;                  /* only memories of this life are seen */
    bool keep_cond;            /* conditioning frames may lie in the future: never evicted */
    bool keep_start;           /* a way back follows: the first life keeps what it will look at */
    bool backward;             /* on the way back: frames come in descending order */
    int start;                 /* keep_start: the first conditioning frame of the first life, -1: none yet */
    int slots, ptr_slots;      /* capacities */
    int spatial_cap, ptr_cap;  /* memories that a frame attends to, at most */
    int first_slot, first_ptr; /* this object's part of the session's bank */
    int n, capacity;
    struct s2i_memory *memory; /* conditioning frames first, each kind in order of insertion */
    bool *slot_used, *ptr_used;
    int *chosen; /* scratch: [capacity] */
};

/* Room for an object that is prompted on `prompted` frames at most. keep_start implies keep_cond. */
enum s2_status s2i_membank_init(struct s2i_membank *, int prompted, int max_cond, bool keep_cond, bool keep_start,
                                struct s2_err *err);
void s2i_membank_free(struct s2i_membank *);
/* The object's present life ends: its memories go, the next life's (known ahead) become visible. */
void s2i_membank_end_life(struct s2i_membank *);
/* keep_start only: from now on frames before the first conditioning frame come, the nearest first. The first life is
 * seen again, and of its tracked frames those that such a frame can attend to. */
void s2i_membank_turn(struct s2i_membank *);

/* One entry of s2_bank_table, host side; arrays of the session's capacities */
struct s2i_selection {
    int32_t *counts; /* [2] */
    int32_t *slot, *row, *ptr_slot;
    float *ptr_dist;
};
/* What frame t attends to. num_frames: length of the clip (only whether it is below 16 matters). */
void s2i_membank_select(const struct s2i_membank *, int t, int num_frames, struct s2i_selection *);

/* Makes room for frame t's memory and returns its slots (indices into s2_bank). Memories that no later frame
 * can attend to are dropped first. */
struct s2i_memory s2i_membank_insert(struct s2i_membank *, int t, bool cond, int life);

#endif

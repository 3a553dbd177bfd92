/* taps.c - debug taps: intermediate tensors handed out as the reference names and lays them out. */
#include <stdlib.h>
#include <string.h>

#include "session.h"

/* Entry `entry` of t (all of it if -1) as f32 on the host; NULL if there is nothing to do. Free it. */
static float *fetch(const struct s2i_tap_scope *tap, struct s2_tensor t, int entry, size_t *count)
{
    struct s2_backend *be = tap->s->be;
    bool unused = tap->object < 0 && strcmp(tap->kind, "image") != 0; /* padding of a batch */
    if (!tap->s->cfg.tap || be->skip || unused) return NULL;
    if (entry >= 0) t = s2_batch(t, entry, 1);
    *count = (size_t)s2_elements(t);
    size_t size = s2_dtype_size(t.dtype);
    char *raw = malloc(*count * size + 1);
    float *out = malloc(*count * sizeof *out + 1);
    if (raw && out) {
        be->ops->download(be, raw, t.data, *count * size);
        s2i_sync(be);
        struct s2_stored stored = {.name = "", .dtype = t.dtype, .data = raw, .elements = *count};
        s2_stored_f32(&stored, 0, *count, out);
    } else {
        free(out);
        out = NULL;
    }
    free(raw);
    return out;
}

static void give(const struct s2i_tap_scope *tap, const char *name, const float *data, const int64_t *dim, int ndim)
{
    struct s2_session *s = tap->s;
    s->cfg.tap(s->cfg.tap_ctx, s->frame, tap->object, tap->kind, name, data, dim, ndim);
}

void s2i_tap_map(const struct s2i_tap_scope *tap, const char *name, struct s2_tensor t, int entry)
{
    size_t count;
    float *host = fetch(tap, t, entry, &count);
    if (!host) return;
    bool spread = t.h == 1; /* a single token stands for the whole map */
    int64_t h = spread ? tap->s->m->G : t.h, w = spread ? tap->s->m->G : t.w;
    size_t pixels = (size_t)(h * w), channels = (size_t)t.c;
    float *out = malloc(pixels * channels * sizeof *out);
    if (out) {
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < pixels; p++) out[c * pixels + p] = host[spread ? c : p * channels + c];
        give(tap, name, out, (int64_t[]){t.c, h, w}, 3);
    }
    free(out);
    free(host);
}

void s2i_tap_tokens(const struct s2i_tap_scope *tap, const char *name, struct s2_tensor t, int entry)
{
    size_t count;
    float *host = fetch(tap, t, entry, &count);
    if (host) give(tap, name, host, (int64_t[]){(int64_t)t.h * t.w, t.c}, 2);
    free(host);
}

void s2i_tap_vector(const struct s2i_tap_scope *tap, const char *name, struct s2_tensor t, int entry)
{
    size_t count;
    float *host = fetch(tap, t, entry, &count);
    if (host && t.h > 1)
        give(tap, name, host, (int64_t[]){entry < 0 ? t.n : 1, t.h, t.w}, 3);
    else if (host)
        give(tap, name, host, (int64_t[]){(int64_t)count}, 1);
    free(host);
}

void s2i_tap_bank(const struct s2i_tap_scope *tap, int entry, struct s2_tensor pointer_position, int batch_entry)
{
    struct s2_session *s = tap->s;
    struct s2_backend *be = s->be;
    size_t count, n = (size_t)s->m->N, d = S2_MEMORY_DIM;
    float *positions = fetch(tap, pointer_position, batch_entry, &count);
    if (!positions) return;

    const struct s2i_selection *sel = &s->table.selection;
    const int32_t *counts = sel->counts + 2 * entry, *slot = sel->slot + entry * s->table.spatial_cap,
                  *row = sel->row + entry * s->table.spatial_cap, *ptr = sel->ptr_slot + entry * s->table.ptr_cap;
    size_t spatial = (size_t)counts[0], pointers = (size_t)counts[1], tokens = spatial * n + 4 * pointers;
    float *mem = malloc((tokens + 1) * d * sizeof *mem), *pos = malloc((tokens + 1) * d * sizeof *pos);
    float *pe = malloc(n * d * sizeof *pe), tpos[S2_NUM_MASKMEM * S2_MEMORY_DIM];
    uint16_t *raw = malloc(n * d * sizeof *raw);
    if (mem && pos && pe && raw) {
        be->ops->download(be, pe, s->m->pe64, n * d * sizeof *pe);
        be->ops->download(be, tpos, s->m->tpos, sizeof tpos);
        s2i_sync(be);
        for (size_t i = 0; i < spatial; i++) {
            be->ops->download(be, raw, (char *)s->bank.spatial + (size_t)slot[i] * n * d * sizeof *raw,
                              n * d * sizeof *raw);
            s2i_sync(be);
            for (size_t k = 0; k < n * d; k++) {
                mem[i * n * d + k] = s2_from_bf16(raw[k]);
                pos[i * n * d + k] = pe[k] + tpos[(size_t)row[i] * d + k % d];
            }
        }
        for (size_t i = 0; i < pointers; i++) {
            float *m = mem + (spatial * n + 4 * i) * d, *p = pos + (spatial * n + 4 * i) * d;
            be->ops->download(be, m, s->bank.pointers + (size_t)ptr[i] * S2_MODEL_DIM, 4 * d * sizeof *m);
            s2i_sync(be);
            for (size_t k = 0; k < 4 * d; k++) p[k] = positions[i * d + k % d];
        }
        float n_tokens = (float)(4 * pointers);
        give(tap, "mem", mem, (int64_t[]){(int64_t)tokens, (int64_t)d}, 2);
        give(tap, "mem_pos", pos, (int64_t[]){(int64_t)tokens, (int64_t)d}, 2);
        give(tap, "n_ptr_tokens", &n_tokens, NULL, 0);
    }
    free(raw), free(pe), free(pos), free(mem), free(positions);
}

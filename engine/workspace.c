/* workspace.c - the stack of tensors that forward passes allocate from. */
#include "model.h"

struct s2_tensor s2i_tensor(void *data, enum s2_dtype dtype, int n, int h, int w, int c)
{
    return (struct s2_tensor){.data = data, .dtype = dtype, .n = n, .h = h, .w = w, .c = c, .ld = c};
}

static struct s2_tensor take(struct s2i_workspace *ws, enum s2_dtype dtype, int n, int h, int w, int c)
{
    /* While measuring, base is null and the address only has to be a number. */
    void *data = (void *)((uintptr_t)ws->base + ws->used);
    struct s2_tensor t = s2i_tensor(data, dtype, n, h, w, c);
    size_t bytes = (size_t)s2_elements(t) * s2_dtype_size(dtype);

    ws->used += (bytes + 63) / 64 * 64;
    if (ws->used > ws->peak) ws->peak = ws->used;
    return t;
}

struct s2_tensor s2i_act(struct s2i_workspace *ws, int n, int h, int w, int c)
{
    return take(ws, ws->act, n, h, w, c);
}

struct s2_tensor s2i_f32(struct s2i_workspace *ws, int n, int h, int w, int c)
{
    return take(ws, S2_F32, n, h, w, c);
}

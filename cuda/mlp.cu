/* mlp.cu - launches of mlp.cuh: which shapes its kernels take, and how tokens and hidden channels are shared out. */
#include "mlp.cuh"

/* ------------------------------------------------------------------ weights */

/* w [out][in] as right operand in core matrices, one thread a piece of 8 outputs: outputs outermost (a first layer,
 * whose chunks are outputs) or inputs (a second). The outputs are in the order of mlp_channel in runs of `run`. */
template <class T> __global__ void pack(T *to, const T *w, int in, int out, int run, bool second)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x, k = i % in, n = i / in;
    if (n >= out / 8) return;
    const int64_t core = second ? (int64_t)(k / 8) * (out / 8) + n : (int64_t)n * (in / 8) + k / 8;
    const int place = 8 * n % run;
    cu_piece<T, 8> piece;
    for (int e = 0; e < 8; e++)
        piece.v[e] = w[(int64_t)(8 * n - place + mlp_channel(place + e, run)) * in + mlp_channel(k, in)];
    ((cu_piece<T, 8> *)to)[core * 8 + k % 8] = piece;
}

enum kind { NEITHER, FIRST, SECOND };

/* By its shape, what a layer is: one of a perceptron that a kernel takes whole or in part; a first one, too, that makes
 * queries, keys and values of as many channels each. */
static enum kind kind_of(int in, int out)
{
    const int narrow = in < out ? in : out, wide = in < out ? out : in;
    if (wide != 4 * narrow && out != 3 * in) return NEITHER;
    switch (narrow) {
    case 96:
    case 112:
    case 144:
    case 192:
    case 224: return in < out ? FIRST : SECOND;
    case 256: return out == 4 * in ? FIRST : NEITHER;
    case 288:
    case 384:
    case 448:
    case 576: return in < out ? FIRST : NEITHER;
    default: return NEITHER;
    }
}

void *cu_mlp_pack(struct s2_backend *be, const void *w, int in, int out)
{
    const enum kind kind = kind_of(in, out);
    if (be->skip || be->act == S2_F32 || cu_of(be)->cc != 90 || kind == NEITHER) return NULL;
    void *to = be->ops->alloc(be, (size_t)in * (size_t)out * 2);
    if (!to) return NULL;
    const int blocks = cu_blocks((int64_t)in * (out / 8), 256);
    const int run = out == 3 * in && in % 32 ? in : out; /* a chunk, where chunks are no multiples of 32 */
    CU_BY_HALF(be->act, T,
               pack<<<blocks, 256, 0, cu_stream(be)>>>((T *)to, (const T *)w, in, out, run, kind == SECOND));
    CU_LAUNCHED(be, "packing of weights");
    return to;
}

/* ------------------------------------------------------------------ launches */

/* Slots for at most `tiles` tiles beside so many floats; 0: fewer than two fit. */
template <class B> static int slots_for(int limit, int tiles, int floats)
{
    int slots = (limit - 4 * floats - (int)sizeof(mlp_barriers) - 128) / B::TILE_BYTES;
    if (slots > tiles) slots = tiles;
    if (slots > MLP_MAX_SLOTS) slots = MLP_MAX_SLOTS;
    return slots < 2 ? 0 : slots;
}

template <class T>
static mlp_problem<T> problem_of(struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                                 const struct s2_linear *fc1, enum s2_act act)
{
    mlp_problem<T> p = {};
    p.x = (const T *)x.data, p.y = (T *)y.data, p.ldx = x.ld, p.ldy = y.ld, p.tokens = (int)s2_tokens(x);
    if (norm) p.scale = norm->weight, p.shift = norm->bias, p.eps = norm->eps;
    p.w1 = (const T *)cu_linear_packed(fc1), p.b1 = cu_linear_bias(fc1), p.hidden = fc1->out, p.act = act;
    return p;
}

/* false: not worth it, nothing is done */
template <class B> static bool launch_mlp(struct s2_backend *be, mlp_problem<typename B::T> p)
{
    const int sms = cu_of(be)->sm_count, blocks = cu_blocks(p.tokens, 64 * B::GROUPS);
    const int tiles = p.hidden / B::CHUNK * 2, floats = 3 * B::C + p.hidden;
    const int slots = slots_for<B>(cu_shared_limit(be, "mlp"), tiles, floats);
    const bool resident = slots == tiles;
    const int bytes = slots * B::TILE_BYTES + 4 * floats;
    /* every block goes through all weights: where they are not kept, few blocks do so longer than many do products */
    if (!slots || (!resident && 2 * blocks < sms)) return false;
    const int units = resident ? cu_blocks(p.tokens, 64) : blocks, grid = units < sms ? units : sms;
    if (!cu_allow_shared(be, mlp_kernel<B>, bytes, "mlp")) return be->skip;
    cu_launch(be, mlp_kernel<B>, grid, B::THREADS, bytes, p, slots, resident);
    CU_LAUNCHED(be, "mlp");
    return true;
}

template <class B> static bool launch_layer(struct s2_backend *be, const mlp_problem<typename B::T> &p)
{
    const int limit = cu_shared_limit(be, "linear"), sms = cu_of(be)->sm_count;
    const int blocks = cu_blocks(p.tokens, 64 * B::GROUPS), chunks = p.hidden / B::CHUNK;
    /* in between, parts of the outputs are so small that the tokens are normalised too often */
    if (blocks > 1 && p.tokens < 2048) return false;
    int splits = 1;
    int64_t best = INT64_MAX;
    for (int s = 1; s <= chunks; s++) { /* time in chunks: what a block does besides is worth three */
        const int64_t time = (int64_t)cu_blocks((int64_t)blocks * s, sms) * (cu_blocks(chunks, s) + 3);
        if (time < best) best = time, splits = s;
    }
    int floats = 2 * B::C + p.hidden, slots = slots_for<B>(limit, chunks, floats), bytes;
    const bool resident = blocks >= sms && slots == chunks;
    if (!resident) {
        floats = 2 * B::C + cu_blocks(chunks, splits) * B::CHUNK;
        slots = slots_for<B>(limit, chunks, floats);
    }
    if (!slots) return false;
    bytes = slots * B::TILE_BYTES + 4 * floats;
    auto kernel = p.act == S2_ACT_GELU ? mlp_layer_kernel<B, true> : mlp_layer_kernel<B, false>;
    if (!cu_allow_shared(be, kernel, bytes, "linear")) return be->skip;
    const dim3 grid = resident ? dim3((unsigned)sms) : dim3((unsigned)blocks, (unsigned)splits);
    cu_launch(be, kernel, grid, B::THREADS, bytes, p, slots, resident);
    CU_LAUNCHED(be, "linear");
    return true;
}

static bool taken(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                  const struct s2_linear *first)
{
    return cu_of(be)->cc == 90 && y.dtype == be->act && x.dtype == be->act && cu_linear_packed(first) && cu_whole(x) &&
           cu_whole(y) && (!norm || ((size_t)norm->weight | (size_t)norm->bias) % 16 == 0);
}

template <class T> static bool mlp_by_width(struct s2_backend *be, const mlp_problem<T> &p, int c)
{
    switch (c) {
    case 96: return launch_mlp<mlp_blocking<T, 96, 64, 3>>(be, p);
    case 112: return launch_mlp<mlp_blocking<T, 112, 64, 3>>(be, p);
    case 144: return launch_mlp<mlp_blocking<T, 144, 64, 2>>(be, p);
    case 192: return launch_mlp<mlp_blocking<T, 192, 64, 2>>(be, p);
    case 224: return launch_mlp<mlp_blocking<T, 224, 32, 2>>(be, p);
    default: return false;
    }
}

bool cu_mlp_whole(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                  const struct s2_linear *fc1, enum s2_act act, const struct s2_linear *fc2)
{
    const bool known = act == S2_ACT_GELU || act == S2_ACT_RELU;
    if (!known || !taken(be, y, x, norm, fc1) || !cu_linear_packed(fc2)) return false;
    CU_BY_HALF(be->act, T, {
        mlp_problem<T> p = problem_of<T>(y, x, norm, fc1, act);
        p.w2 = (const T *)cu_linear_packed(fc2), p.b2 = cu_linear_bias(fc2);
        return mlp_by_width(be, p, x.c);
    });
}

template <class T> static bool layer_by_width(struct s2_backend *be, const mlp_problem<T> &p, int c)
{
    switch (c) {
    case 96: return launch_layer<mlp_blocking<T, 96, 96, 2>>(be, p);
    case 112: return p.hidden == 3 * c && launch_layer<mlp_blocking<T, 112, 112, 2>>(be, p);
    case 144: return p.hidden == 3 * c && launch_layer<mlp_blocking<T, 144, 144, 2>>(be, p);
    case 192: return launch_layer<mlp_blocking<T, 192, 64, 2>>(be, p);
    case 224: return p.hidden == 3 * c && launch_layer<mlp_blocking<T, 224, 96, 2>>(be, p);
    case 256: return launch_layer<mlp_blocking<T, 256, 64, 2>>(be, p);
    case 288: return launch_layer<mlp_blocking<T, 288, 96, 2>>(be, p);
    case 384: return launch_layer<mlp_blocking<T, 384, 64, 2>>(be, p);
    case 448: return launch_layer<mlp_blocking<T, 448, 64, 2>>(be, p);
    case 576: return launch_layer<mlp_blocking<T, 576, 64, 2>>(be, p);
    default: return false;
    }
}

bool cu_mlp_layer(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_norm *norm,
                  const struct s2_linear *fc1, enum s2_act act)
{
    const bool known = act == S2_ACT_GELU || (act == S2_ACT_NONE && norm); /* the library has the others */
    if (!known || !taken(be, y, x, norm, fc1)) return false;
    CU_BY_HALF(be->act, T, return layer_by_width(be, problem_of<T>(y, x, norm, fc1, act), x.c));
}

/* attention.cu - multi-head attention: self attention of the memory layers, the decoder's two ways, Hiera's global
 * blocks. */
#include "flash_bulk.cuh"
#include "rows.cuh"
#include "flash_f32.cuh"

/* Columns of rows that do not start at multiples of 16 bytes, packed for cp.async. */
template <class T> __global__ void pack_rows(T *to, const T *from, int64_t rows, int c, int ld)
{
    cu_await();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * c) to[i] = from[i / c * ld + i % c];
}

static bool aligned(struct s2_tensor t)
{
    return (uintptr_t)t.data % 16 == 0 && (size_t)t.ld * s2_dtype_size(t.dtype) % 16 == 0;
}

static size_t packed_bytes(struct s2_tensor t)
{
    return aligned(t) ? 0 : cu_rounded((size_t)s2_elements(t) * s2_dtype_size(t.dtype));
}

/* *t, packed to *scratch if it has to be; *scratch moves on */
template <class T> static void pack(struct s2_backend *be, struct s2_tensor *t, char **scratch)
{
    if (aligned(*t) || be->skip) return;
    const size_t bytes = packed_bytes(*t);
    T *to = (T *)*scratch;
    cu_launch(be, pack_rows<T>, cu_blocks(s2_elements(*t), 256), 256, 0, to, (const T *)t->data, s2_tokens(*t), t->c,
              t->ld);
    CU_LAUNCHED(be, "attention");
    t->data = to;
    t->ld = t->c;
    *scratch += bytes;
}

/* One attention: its operands. */
struct attention {
    struct s2_tensor y, q, k, v;
    int heads, d, queries, keys;
};

template <class T> static cu_rows<T> source_of(const struct attention &a)
{
    cu_rows<T> src = {};
    src.q = (const T *)a.q.data, src.k = (const T *)a.k.data, src.v = (const T *)a.v.data, src.y = (T *)a.y.data;
    src.ldq = a.q.ld, src.ldk = a.k.ld, src.ldv = a.v.ld, src.ldy = a.y.ld;
    src.heads = a.heads, src.d = src.dv = a.d, src.queries = a.queries, src.keys = a.keys;
    return src;
}

/* An attention's scratch memory: keys and values as tiles, results of parts of the keys. */
struct workspace {
    char *tiles;
    flash_partial part;
};

/* Packed operands lie behind the rest; the operands are packed. */
template <class T>
static struct workspace prepare(struct s2_backend *be, struct attention &a, int splits, size_t tile_bytes)
{
    const int64_t rows = (int64_t)a.q.n * a.heads * a.queries;
    const size_t tiles = cu_rounded(tile_bytes), partial = cu_rounded(flash_partial_bytes(splits, rows, a.d));
    const size_t bytes = tiles + partial + packed_bytes(a.q) + packed_bytes(a.k) + packed_bytes(a.v);
    char *scratch = bytes ? (char *)cu_scratch(be, bytes) : NULL, *rest = scratch + tiles + partial;
    pack<T>(be, &a.q, &rest);
    pack<T>(be, &a.k, &rest);
    pack<T>(be, &a.v, &rest);
    return {scratch, flash_partial_at(scratch + tiles, splits, rows, a.d)};
}

/* false: the device has too little shared memory for the blocking */
template <class B> static bool attend(struct s2_backend *be, struct attention a)
{
    using Source = cu_rows<typename B::T>;
    if (!flash_fits<B, Source>(be, "attention")) return be->skip;
    const int problems = a.q.n * a.heads;
    const int splits = flash_splits<B, Source>(be, problems, a.queries, a.keys, a.d, "attention");
    const flash_partial part = prepare<typename B::T>(be, a, splits, 0).part;
    flash_launch<B>(be, source_of<typename B::T>(a), part, splits, problems, a.queries, a.keys, "attention");
    return true;
}

/* Many keys on Hopper: keys and values are laid out as tiles first. false: not on this device */
template <class B> static bool attend_bulk(struct s2_backend *be, struct attention a)
{
    using T = typename B::T;
    using Source = cu_rows<T>;
    if (!bulk_fits<B, Source>(be, "attention")) return be->skip;
    const int problems = a.q.n * a.heads, splits = bulk_splits<B>(be, problems, a.queries, a.keys, a.d);
    const size_t key_bytes = bulk_key_bytes<B>(problems, a.keys), value_bytes = bulk_value_bytes<B>(problems, a.keys);
    const struct workspace w = prepare<T>(be, a, splits, key_bytes + value_bytes);
    if (be->skip) return true;
    const Source src = source_of<T>(a);
    T *keys = (T *)w.tiles, *values = (T *)(w.tiles + key_bytes);
    const int tiles = cu_blocks(a.keys, B::BN);
    const dim3 grid(cu_blocks(B::BN * (B::D + B::DV) / 8, 256), tiles, problems);
    cu_launch(be, bulk_tile_rows<B, Source>, grid, 256, 0, src, keys, values, tiles);
    if (!CU_LAUNCHED(be, "attention")) return true;
    bulk_launch<B>(be, src, bulk_tiles<T>{keys, values, tiles}, w.part, splits, problems, "attention");
    return true;
}

/* Heads of up to 32 channels, the decoder's. Few queries, as tokens looking at the image: each warp is a group with
 * keys of its own, and no second launch. Otherwise few keys, as the image looking at tokens. */
template <class T, int D> static void attend_small(struct s2_backend *be, const struct attention &a)
{
    using few_queries = flash_blocking<T, D, D, 1, 1, 16, D == 16 ? 64 : 32, false>;
    using few_keys = flash_blocking<T, D, D, 1, 4, 1, 32, false>;
    if (a.queries <= 64 && a.keys > 128 && attend<few_queries>(be, a)) return;
    attend<few_keys>(be, a);
}

/* Heads of up to 96 channels, Hiera's. 128 queries a block in 4 warps, twice for two halves of the keys: a warp of 32
 * rows reads each key from shared memory half as often as one of 16, and the groups drift apart so that one multiplies
 * while the other takes exponentials. */
template <class T, int D> static void attend_middle(struct s2_backend *be, const struct attention &a)
{
    using hopper = bulk_blocking<T, D, D, 2, 128>;
    using many = flash_blocking<T, D, D, 2, 4, 2, 64, false>;
    using any = flash_blocking<T, D, D, 1, 4, 1, 64, false>;
    if (a.queries >= 256 && a.keys >= 256 && attend_bulk<hopper>(be, a)) return;
    if (a.queries >= 256 && a.keys >= 256 && attend<many>(be, a)) return;
    attend<any>(be, a);
}

/* Up to 256 channels, the memory layers'. 16 rows a warp, or the output would not fit its registers. */
template <class T> static void attend_wide(struct s2_backend *be, const struct attention &a)
{
    using hopper = bulk_blocking<T, 256, 256, 2, 64>;
    using many = flash_blocking<T, 256, 256, 1, 8, 1, 48, true>;
    using any = flash_blocking<T, 256, 256, 1, 4, 1, 32, false>;
    if (a.queries >= 256 && a.keys >= 256 && attend_bulk<hopper>(be, a)) return;
    if (a.queries > 64 && attend<many>(be, a)) return;
    attend<any>(be, a);
}

template <class T> static void attend_typed(struct s2_backend *be, const struct attention &a)
{
    if (a.d <= 16) {
        attend_small<T, 16>(be, a);
    } else if (a.d <= 32) {
        attend_small<T, 32>(be, a);
    } else if (a.d <= 64) {
        attend_middle<T, 64>(be, a);
    } else if (a.d <= 80) {
        attend_middle<T, 80>(be, a);
    } else if (a.d <= 96) {
        attend_middle<T, 96>(be, a);
    } else {
        attend_wide<T>(be, a);
    }
}

template <> void attend_typed<float>(struct s2_backend *be, const struct attention &given)
{
    struct attention a = given;
    const int problems = a.q.n * a.heads, tiles = cu_blocks(a.keys, F32_TILE);
    const int splits = flash_choose_splits((int64_t)cu_blocks(a.queries, F32_TILE) * problems, 2 * cu_of(be)->sm_count,
                                           tiles, 2, a.keys, a.d);
    const flash_partial part = prepare<float>(be, a, splits, 0).part;
    if (be->skip) return;
    flash_f32_launch(be, source_of<float>(a), part, splits, problems, a.queries, "attention");
}

void cu_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, struct s2_tensor k, struct s2_tensor v,
                  int heads)
{
    if (be->skip) return;
    const struct attention a = {y, q, k, v, heads, q.c / heads, q.h * q.w, k.h * k.w};
    if (a.d % 8 != 0 || a.d > 256 || q.n * heads > 65535) {
        s2_backend_fail(
            be, S2_E_INTERNAL,
            "attention of %d x %d heads of %d channels: the CUDA backend takes up to 65535 heads of a multiple "
            "of 8 and at most 256 channels",
            q.n, heads, a.d);
        return;
    }
    CU_BY_TYPE(q.dtype, T, attend_typed<T>(be, a));
}

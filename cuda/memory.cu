/* memory.cu - attention to memories, in three launches: the keys of all present memories are assembled, projected and
 * rotated into scratch memory, their values beside them; then attention with 256 channels of key and 64 of value
 * (flash.cuh) over splits of the keys; then the merge of the splits. Which memories are present is read from the table
 * by the kernels: grids are sized by its capacities, blocks without work return, and the attention cuts up what there
 * is. */
#include "flash_bulk.cuh"
#include "rows.cuh"
#include "flash_f32.cuh"

#define DIM   64  /* channels of a memory */
#define KEY   256 /* channels of a key, and numbers of a pointer */
#define PARTS (KEY / DIM)

/* ------------------------------------------------------------------ keys of memories */

/* The operands of one memory attention. */
struct memories {
    struct s2_bank bank;
    struct s2_bank_table table;
    const float *pe, *tpos, *ptr_pos, *rope;
    const void *weight; /* [KEY][DIM], activation type */
    const float *bias;  /* [KEY] */
    int capacity;       /* keys of an entry */
};

/* What a block projects: TOKENS tokens x * TOKENS .. of entry z, of `span` spatial memories from y * span on; y + 1 ==
 * gridDim.y: of its pointers, as if they were one memory. */
struct stretch {
    bool pointers;
    int first, count;     /* tokens; count <= 0: nothing to do */
    int memory, memories; /* the first memory, and how many */
    int key;              /* of the entry, the first token's of memory 0 */
};

template <int TOKENS> __device__ __forceinline__ stretch stretch_of(const memories &m, int span)
{
    const int b = blockIdx.z, spatial = m.table.counts[2 * b], pointers = m.table.counts[2 * b + 1];
    stretch s = {};
    s.pointers = blockIdx.y + 1 == gridDim.y;
    s.first = blockIdx.x * TOKENS;
    s.count = min(TOKENS, (s.pointers ? pointers * PARTS : m.bank.tokens) - s.first);
    s.memory = s.pointers ? 0 : blockIdx.y * span;
    s.memories = s.pointers ? 1 : min(span, spatial - s.memory);
    s.key = (s.pointers ? spatial * m.bank.tokens : 0) + s.first;
    return s;
}

/* Channels c .. c + N - 1 of token i of memory j of the stretch, and of the position that is added to them. */
template <int N>
__device__ __forceinline__ void read_memory(const memories &m, const stretch &s, int j, int i, int c,
                                            float (&memory)[N], float (&position)[N])
{
    const int token = s.first + i;
    if (s.pointers) {
        const int64_t entry = (int64_t)blockIdx.z * m.table.ptr_cap + token / PARTS;
        const float *from = m.bank.pointers + (int64_t)m.table.ptr_slot[entry] * KEY + token % PARTS * DIM + c;
#pragma unroll
        for (int e = 0; e < N; e++) memory[e] = from[e], position[e] = m.ptr_pos[entry * DIM + c + e];
        return;
    }
    const int64_t entry = (int64_t)blockIdx.z * m.table.spatial_cap + j;
    const __nv_bfloat16 *bank = (const __nv_bfloat16 *)m.bank.spatial;
    const auto from =
        *(const cu_piece<__nv_bfloat16, N> *)(bank + ((int64_t)m.table.slot[entry] * m.bank.tokens + token) * DIM + c);
    const auto pe = *(const cu_piece<float, N> *)(m.pe + (int64_t)token * DIM + c);
    const auto time = *(const cu_piece<float, N> *)(m.tpos + (int64_t)m.table.row[entry] * DIM + c);
#pragma unroll
    for (int e = 0; e < N; e++) memory[e] = cu_f32(from.v[e]), position[e] = pe.v[e] + time.v[e];
}

/* Cosine and sine for channels c, c + 1 of token i. */
__device__ __forceinline__ float2 turn_of(const memories &m, const stretch &s, int i, int c)
{
    return s.pointers ? make_float2(1, 0) : *(const float2 *)(m.rope + (int64_t)(s.first + i) * KEY + c);
}
__device__ __forceinline__ float2 turned(float2 key, float2 turn)
{
    return make_float2(key.x * turn.x - key.y * turn.y, key.x * turn.y + key.y * turn.x);
}

/* Where 8 channels of a key or value go: as rows of an entry's capacity (BN 0), or in tiles of BN keys
 * (flash_bulk.cuh). */
template <class T, int BN> struct places {
    T *keys, *values;
    int capacity; /* of an entry: keys, a multiple of BN */

    template <int WIDTH> static __device__ T *place(T *base, int64_t entry_first, int i, int chunk)
    {
        if constexpr (BN == 0) {
            return base + (entry_first + i) * WIDTH + chunk * 8;
        } else {
            return wgmma_piece<BN>(base + (entry_first + i / BN * BN) * WIDTH, i % BN / 8, i % BN % 8, chunk);
        }
    }
    __device__ uint4 *key(int i, int chunk) const
    {
        return (uint4 *)place<KEY>(keys, (int64_t)blockIdx.z * capacity, i, chunk);
    }
    __device__ uint4 *value(int i, int chunk) const
    {
        return (uint4 *)place<DIM>(values, (int64_t)blockIdx.z * capacity, i, chunk);
    }
};

/* The last tile's values behind the last key: 0, whatever its probability of 0 is multiplied with. By one block an
 * entry */
template <class T, int BN> __device__ __forceinline__ void clear_tail(const memories &m, const places<T, BN> &to)
{
    if constexpr (BN > 0) {
        if (blockIdx.y + 1 != gridDim.y || blockIdx.x > 0) return;
        const int keys = m.table.counts[2 * blockIdx.z] * m.bank.tokens + m.table.counts[2 * blockIdx.z + 1] * PARTS;
        const int pieces = (BN - keys % BN) % BN * (DIM / 8);
        for (int i = threadIdx.x; i < pieces; i += blockDim.x) {
            *to.value(keys + i / (DIM / 8), i % (DIM / 8)) = make_uint4(0, 0, 0, 0);
        }
    }
}

/* Tensor cores: 32 tokens x 64 channels times the matrix, 8 warps of 32 output channels each. A thread keeps its part
 * of the matrix and its rotations over the memories. Keys leave through shared memory, where the matrix was. */
template <class T> struct projection {
    static constexpr int TOKENS = 32, THREADS = 256;
    static constexpr int PITCH = 2 * DIM + 16, OUT_PITCH = 2 * KEY + 16; /* bytes of a row */
    static constexpr int A_BYTES = TOKENS * PITCH, BYTES = A_BYTES + KEY * PITCH;
    static_assert(TOKENS * OUT_PITCH <= KEY * PITCH, "keys lie over the matrix");
    static_assert(TOKENS * DIM / 8 == THREADS, "a thread brings one piece of a memory");
};

template <class T, int BN>
__global__ void __launch_bounds__(projection<T>::THREADS, 2) project_keys(memories m, places<T, BN> to, int span)
{
    cu_await();
    using P = projection<T>;
    __shared__ __align__(16) unsigned char memory[P::BYTES];
    unsigned char *a = memory, *b = memory + P::A_BYTES;
    const stretch s = stretch_of<P::TOKENS>(m, span);
    clear_tail(m, to);
    if (s.count <= 0 || s.memories <= 0) return;
    const int lane = threadIdx.x & 31, channel = (threadIdx.x >> 5) * 32;
    const int token = threadIdx.x / 64 * 8 + threadIdx.x % 8, chunk = threadIdx.x / 8 % 8; /* this thread's piece */

    flash_fetch<KEY, DIM / 8, P::PITCH, P::THREADS>(
        b, KEY, DIM / 8, threadIdx.x,
        [&](unsigned char *at, int row, int piece) { flash_copy16(at, (const T *)m.weight + row * DIM + piece * 8); });
    float2 turn[P::TOKENS / 16][4][2], bias[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int c = channel + i * 8 + (lane & 3) * 2;
        bias[i] = *(const float2 *)(m.bias + c);
#pragma unroll
        for (int t = 0; t < P::TOKENS / 16; t++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int row = t * 16 + r * 8 + (lane >> 2);
                turn[t][i][r] = turn_of(m, s, row < s.count ? row : 0, c);
            }
        }
    }
    flash_copies_wait();
    __syncthreads();
    uint32_t weight[DIM / 16][2][4];
    const uint32_t columns =
        flash_shared(b) + (channel + (lane & 7) + ((lane & 16) >> 1)) * P::PITCH + ((lane >> 3) & 1) * 16;
#pragma unroll
    for (int c = 0; c < DIM / 16; c++) {
        flash_load4(weight[c][0], columns + c * 32);
        flash_load4(weight[c][1], columns + 16 * P::PITCH + c * 32);
    }

    const uint32_t rows = flash_shared(a) + (lane & 15) * P::PITCH + (lane >> 4) * 16;
    for (int j = s.memory; j < s.memory + s.memories; j++) {
        const int key = s.key + j * m.bank.tokens;
        uint32_t value[4] = {}, sum[4] = {};
        if (token < s.count) {
            float one[8], position[8];
            read_memory(m, s, j, token, chunk * 8, one, position);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                value[e] = flash_pack<T>(one[2 * e], one[2 * e + 1]);
                sum[e] = flash_pack<T>(one[2 * e] + position[2 * e], one[2 * e + 1] + position[2 * e + 1]);
            }
            *to.value(key + token, chunk) = make_uint4(value[0], value[1], value[2], value[3]);
        }
        *(uint4 *)(a + token * P::PITCH + chunk * 16) = make_uint4(sum[0], sum[1], sum[2], sum[3]);
        __syncthreads(); /* the operands are there, and the keys of the memory before have left */

        float acc[P::TOKENS / 16][4][4];
#pragma unroll
        for (int t = 0; t < P::TOKENS / 16; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                acc[t][i][0] = acc[t][i][2] = bias[i].x;
                acc[t][i][1] = acc[t][i][3] = bias[i].y;
            }
#pragma unroll
            for (int c = 0; c < DIM / 16; c++) {
                uint32_t x[4];
                flash_load4(x, rows + t * 16 * P::PITCH + c * 32);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    flash_mma<T>(acc[t][i], x, weight[c][i / 2][i % 2 * 2], weight[c][i / 2][i % 2 * 2 + 1]);
            }
        }
#pragma unroll
        for (int t = 0; t < P::TOKENS / 16; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int row = t * 16 + r * 8 + (lane >> 2), c = channel + i * 8 + (lane & 3) * 2;
                    const float2 k = turned(make_float2(acc[t][i][2 * r], acc[t][i][2 * r + 1]), turn[t][i][r]);
                    *(uint32_t *)(b + row * P::OUT_PITCH + c * 2) = flash_pack<T>(k.x, k.y);
                }
            }
        }
        __syncthreads(); /* the keys are there, and the operands used up */
#pragma unroll
        for (int i = threadIdx.x; i < P::TOKENS * KEY / 8; i += P::THREADS) {
            const int row = i / 256 * 8 + i % 8, piece = i / 8 % 32;
            if (row < s.count) *to.key(key + row, piece) = *(const uint4 *)(b + row * P::OUT_PITCH + piece * 16);
        }
    }
}

/* float32: a thread has an output channel, its row of the matrix in registers. */
template <> struct projection<float> {
    static constexpr int TOKENS = 64, THREADS = KEY;
};
template <>
__global__ void __launch_bounds__(projection<float>::THREADS) project_keys<float, 0>(memories m, places<float, 0> to,
                                                                                     int span)
{
    cu_await();
    constexpr int TOKENS = projection<float>::TOKENS;
    __shared__ __align__(16) float a[TOKENS][DIM];
    const stretch s = stretch_of<TOKENS>(m, span);
    if (s.count <= 0 || s.memories <= 0) return;
    const int channel = threadIdx.x;
    float w[DIM];
#pragma unroll
    for (int c = 0; c < DIM; c++) w[c] = ((const float *)m.weight)[channel * DIM + c];
    for (int j = s.memory; j < s.memory + s.memories; j++) {
        const int64_t key_at = (int64_t)blockIdx.z * to.capacity + s.key + j * m.bank.tokens;
        __syncthreads();
        for (int i = threadIdx.x; i < s.count * DIM / 2; i += blockDim.x) {
            const int token = i / (DIM / 2), c = i % (DIM / 2) * 2;
            float value[2], position[2];
            read_memory(m, s, j, token, c, value, position);
            for (int e = 0; e < 2; e++) {
                to.values[(key_at + token) * DIM + c + e] = value[e];
                a[token][c + e] = value[e] + position[e];
            }
        }
        __syncthreads();
        for (int token = 0; token < s.count; token++) {
            float key = 0;
#pragma unroll
            for (int c = 0; c < DIM; c++) key = fmaf(a[token][c], w[c], key);
            key += m.bias[channel];
            const float other = __shfl_xor_sync(0xffffffffu, key, 1);
            const bool odd = channel & 1;
            const float2 pair =
                turned(odd ? make_float2(other, key) : make_float2(key, other), turn_of(m, s, token, channel & ~1));
            to.keys[(key_at + token) * KEY + channel] = odd ? pair.y : pair.x;
        }
    }
}

/* ------------------------------------------------------------------ attention to memories */

/* A memory attention's scratch memory: keys, values, results of parts of the keys. */
struct work {
    char *keys, *values, *partial;
};

static bool work_at(struct s2_backend *be, struct work *w, size_t key_bytes, size_t value_bytes, size_t partial_bytes)
{
    char *scratch = (char *)cu_scratch(be, cu_rounded(key_bytes) + cu_rounded(value_bytes) + partial_bytes);
    if (!scratch) return false;
    w->keys = scratch, w->values = w->keys + cu_rounded(key_bytes), w->partial = w->values + cu_rounded(value_bytes);
    return true;
}

template <class T, int BN>
static bool launch_projection(struct s2_backend *be, const memories &m, int n, T *keys, T *values, int capacity)
{
    using P = projection<T>;
    const int tokens = m.bank.tokens, pointers = m.table.ptr_cap * PARTS;
    const int across = cu_blocks(tokens > pointers ? tokens : pointers, P::TOKENS);
    /* as many memories a block as leave two blocks for each multiprocessor */
    const int blocks = 2 * cu_of(be)->sm_count / (across * n), cap = m.table.spatial_cap;
    const int span = blocks > 1 ? cu_blocks(cap, blocks) : cap;
    const dim3 grid(across, cu_blocks(cap, span) + 1, n);
    cu_launch(be, project_keys<T, BN>, grid, P::THREADS, 0, m, places<T, BN>{keys, values, capacity}, span);
    return CU_LAUNCHED(be, "memory_attention");
}

template <class T> static cu_rows<T> source_of(struct s2_tensor y, struct s2_tensor q, const memories &m)
{
    cu_rows<T> src = {};
    src.q = (const T *)q.data, src.y = (T *)y.data, src.ldq = q.ld, src.ldk = KEY, src.ldv = DIM, src.ldy = y.ld;
    src.heads = 1, src.d = KEY, src.dv = DIM, src.queries = q.h * q.w, src.keys = m.capacity;
    src.counts = m.table.counts, src.weight[0] = m.bank.tokens, src.weight[1] = PARTS;
    return src;
}

/* On Hopper, with keys and values projected into tiles. false: not on this device */
template <class B>
static bool attend_bulk(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const memories &m)
{
    using T = typename B::T;
    if (!bulk_fits<B, cu_rows<T>>(be, "memory_attention")) return be->skip;
    const int n = q.n, tiles = cu_blocks(m.capacity, B::BN);
    const int64_t rows = (int64_t)n * q.h * q.w;
    const int splits = bulk_splits<B>(be, n, q.h * q.w, m.capacity, DIM);
    struct work w;
    if (!work_at(be, &w, bulk_key_bytes<B>(n, m.capacity), bulk_value_bytes<B>(n, m.capacity),
                 flash_partial_bytes(splits, rows, DIM)) ||
        !launch_projection<T, B::BN>(be, m, n, (T *)w.keys, (T *)w.values, tiles * B::BN)) {
        return true;
    }
    bulk_launch<B>(be, source_of<T>(y, q, m), bulk_tiles<T>{(const T *)w.keys, (const T *)w.values, tiles},
                   flash_partial_at(w.partial, splits, rows, DIM), splits, n, "memory_attention");
    return true;
}

/* launch(src, part, splits) after the projection into rows */
template <class T, class Launch>
static void attend_rows(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const memories &m, int splits,
                        Launch launch)
{
    const size_t keys = (size_t)q.n * (size_t)m.capacity * sizeof(T);
    const int64_t rows = (int64_t)q.n * q.h * q.w;
    struct work w;
    if (be->skip || !work_at(be, &w, keys * KEY, keys * DIM, flash_partial_bytes(splits, rows, DIM)) ||
        !launch_projection<T, 0>(be, m, q.n, (T *)w.keys, (T *)w.values, m.capacity)) {
        return;
    }
    cu_rows<T> src = source_of<T>(y, q, m);
    src.k = (const T *)w.keys, src.v = (const T *)w.values;
    launch(src, flash_partial_at(w.partial, splits, rows, DIM), splits);
}

/* false: the device has too little shared memory for the blocking */
template <class B>
static bool attend_flash(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const memories &m)
{
    using T = typename B::T;
    if (!flash_fits<B, cu_rows<T>>(be, "memory_attention")) return be->skip;
    const int queries = q.h * q.w;
    const int parts = flash_splits<B, cu_rows<T>>(be, q.n, queries, m.capacity, DIM, "memory_attention");
    attend_rows<T>(be, y, q, m, parts, [&](const cu_rows<T> &src, flash_partial part, int splits) {
        flash_launch<B>(be, src, part, splits, q.n, queries, m.capacity, "memory_attention");
    });
    return true;
}

/* On Hopper a block takes more queries where there are enough of them. Elsewhere 32 query rows a warp, so that each key
 * read from shared memory serves two products; 8 warps, as many as the registers hold. */
template <class T> static void attend(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const memories &m)
{
    const bool many = q.n * q.h * q.w >= 2048;
    if (many && attend_bulk<bulk_blocking<T, KEY, DIM, 3, 64>>(be, y, q, m)) return;
    if (attend_bulk<bulk_blocking<T, KEY, DIM, 2, 128>>(be, y, q, m)) return;
    if (attend_flash<flash_blocking<T, KEY, DIM, 2, 8, 1, 64, true>>(be, y, q, m)) return;
    attend_flash<flash_blocking<T, KEY, DIM, 2, 2, 1, 32, false>>(be, y, q, m);
}
template <> void attend<float>(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const memories &m)
{
    const int queries = q.h * q.w;
    const int parts = flash_choose_splits((int64_t)cu_blocks(queries, F32_TILE) * q.n, 2 * cu_of(be)->sm_count,
                                          cu_blocks(m.capacity, F32_TILE), 2, m.capacity, DIM);
    attend_rows<float>(be, y, q, m, parts, [&](const cu_rows<float> &src, flash_partial part, int splits) {
        flash_f32_launch(be, src, part, splits, q.n, queries, "memory_attention");
    });
}

void cu_memory_attention(struct s2_backend *be, struct s2_tensor y, struct s2_tensor q, const struct s2_bank *bank,
                         const struct s2_bank_table *table, const struct s2_linear *kproj, const float *pe,
                         const float *tpos, struct s2_tensor ptr_pos, const float *rope)
{
    if (be->skip) return;
    if (bank->dim != DIM || bank->ptr_dim != KEY || kproj->in != DIM || kproj->out != KEY || q.c != KEY || y.c != DIM) {
        s2_backend_fail(be, S2_E_INTERNAL,
                        "memory_attention of memories of %d and keys of %d channels: the CUDA backend takes %d and %d",
                        bank->dim, kproj->out, DIM, KEY);
        return;
    }
    const memories m = {*bank,
                        *table,
                        pe,
                        tpos,
                        (const float *)ptr_pos.data,
                        rope,
                        cu_linear_weight(kproj),
                        cu_linear_bias(kproj),
                        table->spatial_cap * bank->tokens + table->ptr_cap * PARTS};
    CU_BY_TYPE(q.dtype, T, attend<T>(be, y, q, m));
}

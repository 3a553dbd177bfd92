/* patches.cu - Hiera's patch embedding in one kernel: a 7 x 7 convolution of stride 4 over three channels, its bias and
 * the positions (hieradet.py PatchEmbed, Hiera._get_pos_embed).
 *
 * The products are m16n8k16 on tensor cores. A row of the kernel is 21 neighbouring numbers of a row of the picture; 24
 * are taken, one in front and two behind with weights of 0, so that a patch's first number lies at a multiple of 8
 * bytes and no number of a pair in another row. */
#include "flash.cuh"

namespace patches
{
enum {
    K = 7,
    STRIDE = 4,
    PAD = 3,
    C = 3,
    ROW = 24,                    /* numbers of a kernel's row */
    STEPS = (K * ROW + 15) / 16, /* of 16 numbers; half of the last has weights of 0 */
    ACROSS = 16,                 /* outputs of a block */
    DOWN = 8,                    /* a warp each, so that two blocks find registers */
    PICTURE_ROWS = (DOWN - 1) * STRIDE + K,
    WORDS = (ACROSS - 1) * STRIDE * C / 2 + ROW / 2, /* pairs of numbers of a row of the picture */
    PITCH = WORDS,
};
} // namespace patches

/* Where the weight of output `out`, place (ky, kx), channel c goes in the order of the products' right operands. */
static size_t fragment_at(int out, int ky, int kx, int c, int outs)
{
    const int k = ky * patches::ROW + 1 + kx * patches::C + c, step = k / 16, inner = k % 16;
    const int lane = out % 8 * 4 + inner % 8 / 2;
    return ((((size_t)step * (size_t)(outs / 8) + (size_t)(out / 8)) * 32 + (size_t)lane) * 2 + (size_t)(inner / 8)) *
               2 +
           (size_t)(inner % 2);
}

bool cu_patches_take(const struct s2_conv *c)
{
    return c->k == patches::K && c->stride == patches::STRIDE && c->pad == patches::PAD && c->in == patches::C &&
           c->groups == 1 && (c->out == 96 || c->out == 112 || c->out == 144);
}

size_t cu_patches_cells(const struct s2_conv *c)
{
    return (size_t)patches::STEPS * 16 * (size_t)c->out;
}

void cu_patches_pack(const struct s2_conv *c, float *to, const float *w)
{
    for (size_t i = 0; i < cu_patches_cells(c); i++) to[i] = 0;
    for (int o = 0; o < c->out; o++)
        for (int ch = 0; ch < c->in; ch++)
            for (int t = 0; t < c->k * c->k; t++)
                to[fragment_at(o, t / c->k, t % c->k, ch, c->out)] = w[(o * c->in + ch) * c->k * c->k + t];
}

template <int OUT> struct embedding {
    static constexpr int WEIGHT_BYTES = patches::STEPS * 16 * OUT * 2;
    static constexpr int PICTURE_BYTES = patches::PICTURE_ROWS * patches::PITCH * 4;
    static constexpr int OUT_PITCH = 2 * OUT + 16; /* bytes of a row of results */
    static constexpr int OUT_BYTES = patches::DOWN * 16 * OUT_PITCH;
    static constexpr int BYTES = WEIGHT_BYTES + (PICTURE_BYTES > OUT_BYTES ? PICTURE_BYTES : OUT_BYTES);
};

/* y [n][H][W][OUT], pos [H][W][OUT], x [n][4 H][4 W][3] */
template <class T, int OUT>
__global__ void __launch_bounds__(32 * patches::DOWN, 2)
    embed(T *y, const T *x, const uint4 *weights, const float *bias, const T *pos, int H, int W)
{
    using namespace patches;
    using E = embedding<OUT>;
    cu_await();
    extern __shared__ __align__(16) unsigned char embed_memory[];
    const uint2 *weight = (const uint2 *)embed_memory;
    uint32_t *picture = (uint32_t *)(embed_memory + E::WEIGHT_BYTES);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, X = blockIdx.x * ACROSS, Y = blockIdx.y * DOWN;

    x += (int64_t)blockIdx.z * (STRIDE * H) * (STRIDE * W) * C, y += (int64_t)blockIdx.z * H * W * OUT;
    for (int i = threadIdx.x; i < E::WEIGHT_BYTES / 16; i += 32 * DOWN)
        flash_copy16(embed_memory + 16 * i, weights + i);
    const int row_numbers = STRIDE * W * C, first = (X * STRIDE - PAD) * C - 1; /* even */
    for (int i = threadIdx.x; i < PICTURE_ROWS * WORDS; i += 32 * DOWN) {
        const int row = Y * STRIDE - PAD + i / WORDS, at = first + i % WORDS * 2;
        uint32_t word = 0;
        if (row >= 0 && row < STRIDE * H && at >= 0 && at < row_numbers)
            word = *(const uint32_t *)(x + (int64_t)row * row_numbers + at);
        picture[i / WORDS * PITCH + i % WORDS] = word;
    }
    flash_copies_wait();
    __syncthreads();

    float acc[OUT / 8][4];
#pragma unroll
    for (int n = 0; n < OUT / 8; n++) {
        const float2 b = *(const float2 *)(bias + n * 8 + (lane & 3) * 2);
        acc[n][0] = acc[n][2] = b.x, acc[n][1] = acc[n][3] = b.y;
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        uint32_t a[4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int k = min(step * 16 + half * 8, (K - 1) * ROW + ROW - 8); /* behind the kernel: any numbers */
            const uint32_t *from =
                picture + (warp * STRIDE + k / ROW) * PITCH + k % ROW / 2 + (lane >> 2) * (STRIDE * C / 2) + (lane & 3);
            a[2 * half] = from[0], a[2 * half + 1] = from[8 * STRIDE * C / 2];
        }
#pragma unroll
        for (int n = 0; n < OUT / 8; n++) {
            const uint2 b = weight[(step * (OUT / 8) + n) * 32 + lane];
            flash_mma<T>(acc[n], a, b.x, b.y);
        }
    }
    __syncthreads(); /* results lie over the picture */
    unsigned char *mine = embed_memory + E::WEIGHT_BYTES + warp * 16 * E::OUT_PITCH;
    const int row = Y + warp;
#pragma unroll
    for (int n = 0; n < OUT / 8; n++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            *(uint32_t *)(mine + ((lane >> 2) + 8 * r) * E::OUT_PITCH + (n * 8 + (lane & 3) * 2) * 2) =
                flash_pack<T>(acc[n][2 * r], acc[n][2 * r + 1]);
        }
    }
    __syncwarp();
    for (int i = lane; i < 16 * OUT / 8 && row < H; i += 32) {
        const int column = i / (OUT / 8), piece = i % (OUT / 8);
        if (X + column >= W) break;
        const int64_t at = ((int64_t)row * W + X + column) * OUT + piece * 8;
        cu_piece<T, 8> v = *(const cu_piece<T, 8> *)(mine + column * E::OUT_PITCH + piece * 16);
        const cu_piece<T, 8> p = *(const cu_piece<T, 8> *)(pos + at);
#pragma unroll
        for (int e = 0; e < 8; e++) v.v[e] = cu_to<T>(cu_f32(v.v[e]) + cu_f32(p.v[e]));
        *(cu_piece<T, 8> *)(y + at) = v;
    }
}

template <class T, int OUT>
static void launch(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const void *weights,
                   const float *bias, struct s2_tensor pos)
{
    const char *what = "patch_embed";
    const dim3 grid(cu_blocks(y.w, patches::ACROSS), cu_blocks(y.h, patches::DOWN), (unsigned)y.n);
    if (!cu_ok(be,
               cudaFuncSetAttribute(embed<T, OUT>, cudaFuncAttributeMaxDynamicSharedMemorySize, embedding<OUT>::BYTES),
               what))
        return;
    cu_launch(be, embed<T, OUT>, grid, 32 * patches::DOWN, embedding<OUT>::BYTES, (T *)y.data, (const T *)x.data,
              (const uint4 *)weights, bias, (const T *)pos.data, y.h, y.w);
    CU_LAUNCHED(be, what);
}

void cu_patch_embed(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *c,
                    struct s2_tensor pos)
{
    if (be->skip) return;
    const void *weights = cu_conv_patches(c);
    if (!weights || x.w != 4 * y.w || x.h != 4 * y.h || x.w % 2 != 0) {
        s2_compose_patch_embed(be, y, x, c, pos);
        return;
    }
    const float *bias = cu_conv_bias(c);
    CU_BY_HALF(x.dtype, T, {
        if (c->out == 96) launch<T, 96>(be, y, x, weights, bias, pos);
        if (c->out == 112) launch<T, 112>(be, y, x, weights, bias, pos);
        if (c->out == 144) launch<T, 144>(be, y, x, weights, bias, pos);
    });
}

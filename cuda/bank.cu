/* bank.cu - what becomes a memory and how it is stored; the positions of object pointers. */
#include "bilinear.cuh"
#include "launch.cuh"

#define MAX_SINE 256

/* ------------------------------------------------------------------ storing */

template <class T>
__global__ void memory_mask(T *y, const float *low, int n, int h, int w, int low_h, int low_w, bool binarize)
{
    cu_await();
    const int x = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (x >= w) return;
    const struct cu_tap across = cu_bilinear_tap(low_w, w, x), down = cu_bilinear_tap(low_h, h, row);
    for (int b = 0; b < n; b++) {
        const float v = cu_bilinear_at(low + (int64_t)b * low_h * low_w, low_w, down, across);
        const float m = binarize ? (v > 0 ? 1.0f : 0.0f) : cu_act<float>(v, S2_ACT_SIGMOID);
        y[((int64_t)b * h + row) * w + x] = cu_to<T>(fmaf(20.0f, m, -10.0f));
    }
}

void cu_memory_mask(struct s2_backend *be, struct s2_tensor y, struct s2_tensor low, bool binarize)
{
    if (be->skip) return;
    const dim3 grid(cu_blocks(y.w, 128), y.h);
    CU_BY_TYPE(y.dtype, T,
               cu_launch(be, memory_mask<T>, grid, 128, 0, (T *)y.data, (const float *)low.data, y.n, y.h, y.w, low.h,
                         low.w, binarize));
    CU_LAUNCHED(be, "memory_mask");
}

/* Block (x, b): 256 numbers of memory b; block x == 0 stores the pointer as well. */
template <class T>
__global__ void bank_store(struct s2_bank bank, const int32_t *slot, const int32_t *ptr_slot, const T *mem,
                           const float *ptr)
{
    cu_await();
    const int b = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, size = bank.tokens * bank.dim;
    if (slot[b] >= 0 && i < size) {
        const float v = cu_f32(mem[(int64_t)b * size + i]);
        ((__nv_bfloat16 *)bank.spatial)[(int64_t)slot[b] * size + i] = __float2bfloat16_rn(v);
    }
    if (ptr_slot[b] >= 0 && i < bank.ptr_dim) {
        bank.pointers[(int64_t)ptr_slot[b] * bank.ptr_dim + i] = ptr[(int64_t)b * bank.ptr_dim + i];
    }
}

void cu_bank_store(struct s2_backend *be, const struct s2_bank *bank, const int32_t *slot, const int32_t *ptr_slot,
                   struct s2_tensor mem, struct s2_tensor ptr)
{
    if (be->skip) return;
    const int size = bank->tokens * bank->dim;
    const dim3 grid(cu_blocks(size > bank->ptr_dim ? size : bank->ptr_dim, 256), mem.n);
    CU_BY_TYPE(mem.dtype, T,
               cu_launch(be, bank_store<T>, grid, 256, 0, *bank, slot, ptr_slot, (const T *)mem.data,
                         (const float *)ptr.data));
    CU_LAUNCHED(be, "bank_store");
}

/* ------------------------------------------------------------------ positions of pointers */

/* Wavelengths of get_1d_sine_pe (sam2_utils.py), each used twice in a row. */
struct wavelengths {
    float of[MAX_SINE / 4];
};

/* Block (j, b): pointer j of entry b. The position's sines and cosines, times the matrix: a warp an output. */
template <class T>
__global__ void pointer_positions(float *y, struct s2_bank_table table, const T *weight, const float *bias,
                                  struct wavelengths waves, int in, int out)
{
    cu_await();
    __shared__ float sine[MAX_SINE];
    const int j = blockIdx.x, b = blockIdx.y, half = in / 2;
    if (j >= table.counts[2 * b + 1]) return;
    const int64_t at = (int64_t)b * table.ptr_cap + j;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const float angle = __fdiv_rn(table.ptr_dist[at], waves.of[i / 2]);
        sine[i] = sinf(angle);
        sine[half + i] = cosf(angle);
    }
    __syncthreads();
    const int lane = threadIdx.x & 31;
    for (int o = threadIdx.x >> 5; o < out; o += blockDim.x >> 5) {
        float sum = 0;
#pragma unroll 8
        for (int i = lane; i < in; i += 32) sum = fmaf(sine[i], cu_f32(weight[(int64_t)o * in + i]), sum);
        sum = cu_lanes_sum<32>(sum);
        if (lane == 0) y[at * out + o] = sum + bias[o];
    }
}

void cu_pointer_positions(struct s2_backend *be, struct s2_tensor y, const struct s2_bank_table *table,
                          const struct s2_linear *lin)
{
    if (be->skip || s2_elements(y) == 0) return;
    if (!lin) {
        cu_ok(be, cudaMemsetAsync(y.data, 0, (size_t)s2_elements(y) * sizeof(float), cu_stream(be)),
              "pointer_positions");
        return;
    }
    if (lin->in > MAX_SINE || lin->in % 4 != 0) {
        s2_backend_fail(be, S2_E_INTERNAL,
                        "pointer_positions of %d channels: the CUDA backend takes a multiple of 4 and "
                        "at most %d",
                        lin->in, MAX_SINE);
        return;
    }
    struct wavelengths waves;
    for (int i = 0; i < lin->in / 4; i++) waves.of[i] = (float)pow(10000.0, 2.0 * i / (lin->in / 2));
    const dim3 grid(table->ptr_cap, y.n);
    CU_BY_TYPE(be->act, T,
               cu_launch(be, pointer_positions<T>, grid, 1024, 0, (float *)y.data, *table,
                         (const T *)cu_linear_weight(lin), cu_linear_bias(lin), waves, lin->in, lin->out));
    CU_LAUNCHED(be, "pointer_positions");
}

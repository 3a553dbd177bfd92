/* rows.cuh - the Source of flash.cuh for queries, keys and values that are rows of matrices. */
#ifndef S2_ROWS_CUH
#define S2_ROWS_CUH

#include "flash_block.cuh"

/* Problem p is head p % heads of batch entry p / heads. */
template <class T_> struct cu_rows {
    using T = T_;
    static constexpr bool biased = false;
    const T *q, *k, *v;
    T *y;
    int ldq, ldk, ldv, ldy; /* elements from one row to the next */
    int heads, d, dv, queries;
    int keys;              /* rows of a batch entry in k and v */
    const int32_t *counts; /* NULL, or [n][2]: of entry n only the first counts[n] . weight rows are keys */
    int weight[2];

    __device__ void enter(int problem)
    {
        const int64_t entry = problem / heads, head = problem % heads;
        q += entry * queries * ldq + head * d;
        k += entry * keys * ldk + head * d;
        v += entry * keys * ldv + head * dv;
        y += entry * queries * ldy + head * dv;
        if (counts) keys = counts[2 * entry] * weight[0] + counts[2 * entry + 1] * weight[1];
    }
    __device__ void query(void *to, int row, int chunk) const
    {
        flash_copy16(to, q + (int64_t)row * ldq + chunk * (16 / (int)sizeof(T)));
    }
    __device__ void key(void *to, int row, int chunk) const
    {
        flash_copy16(to, k + (int64_t)row * ldk + chunk * (16 / (int)sizeof(T)));
    }
    __device__ void value(void *to, int row, int chunk) const
    {
        flash_copy16(to, v + (int64_t)row * ldv + chunk * (16 / (int)sizeof(T)));
    }
    __device__ float score_bias() const { return 0; }
    __device__ T *out(int row) const { return y + (int64_t)row * ldy; }
};

#endif

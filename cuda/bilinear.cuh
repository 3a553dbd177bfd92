/* bilinear.cuh - sampling a float32 map, torch bilinear with align_corners false: s2i_bilinear_tap and s2i_bilinear_at
 * of engine/common.h. Products are rounded one by one, as the oracle's are: the sign of a value near 0 is a pixel. */
#ifndef S2_BILINEAR_CUH
#define S2_BILINEAR_CUH

#include <cstdint>

#include <cuda_runtime.h>

struct cu_tap {
    int i0, i1;
    float l0, l1;
};

/* Where output i of `out` samples a row of `in`. */
__device__ __forceinline__ struct cu_tap cu_bilinear_tap(int in, int out, int i)
{
    const float ratio = __fdiv_rn((float)in, (float)out);
    const float s = fmaxf(__fsub_rn(__fmul_rn(ratio, (float)i + 0.5f), 0.5f), 0.0f);
    struct cu_tap t;
    t.i0 = min((int)s, in - 1);
    t.i1 = t.i0 + (t.i0 < in - 1);
    t.l1 = fminf(s - (float)t.i0, 1.0f);
    t.l0 = 1.0f - t.l1;
    return t;
}

/* map: rows of w */
__device__ __forceinline__ float cu_bilinear_at(const float *map, int w, struct cu_tap y, struct cu_tap x)
{
    const float *r0 = map + (int64_t)y.i0 * w, *r1 = map + (int64_t)y.i1 * w;
    const float top = __fadd_rn(__fmul_rn(x.l0, r0[x.i0]), __fmul_rn(x.l1, r0[x.i1]));
    const float low = __fadd_rn(__fmul_rn(x.l0, r1[x.i0]), __fmul_rn(x.l1, r1[x.i1]));
    return __fadd_rn(__fmul_rn(y.l0, top), __fmul_rn(y.l1, low));
}

#endif

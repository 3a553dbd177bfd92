/* wgmma.cuh - Hopper's matrix products of a warpgroup (PTX ISA, sm_90a): d[64][N] += a[64][16] b[16][N], b in shared
 * memory, a there too (ss) or in registers (rs).
 *
 * Operands in shared memory lie unswizzled: 8 rows x 16 bytes are 128 bytes in a row, a core matrix. A matrix of
 * [rows][channels] has its 16-byte pieces in the order of wgmma_piece. Read along channels it is the left operand, or
 * the right one whose columns are its rows (keys); read along rows it is the right one whose columns are its channels
 * (values).
 *
 * d is spread over the warpgroup as over the warps of mma.m16n8: d[i][e] is column 8 i + 2 (lane % 4) + e % 2 of row
 * 16 warp + lane / 4 + e / 2 * 8. */
#ifndef S2_WGMMA_CUH
#define S2_WGMMA_CUH

#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_HERE 1
#endif

/* Where channels 8 chunk .. 8 chunk + 7 of row 8 high + low are in a matrix of ROWS rows. */
template <int ROWS, class P> __device__ __forceinline__ P *wgmma_piece(P *matrix, int high, int low, int chunk)
{
    constexpr int size = (int)sizeof(P);
    return matrix + (chunk * (ROWS / 8) + high) * (128 / size) + low * (16 / size);
}

/* Distances in bytes between core matrices: along the 16 of the product, and along rows or columns. */
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t shared, uint32_t inner, uint32_t outer)
{
    return (uint64_t)(shared >> 4 & 0x3fff) | (uint64_t)(inner >> 4) << 16 | (uint64_t)(outer >> 4) << 32;
}

/* The operand so many bytes behind. */
__device__ __forceinline__ uint64_t wgmma_behind(uint64_t operand, uint32_t bytes)
{
    return operand + (bytes >> 4);
}

#ifdef WGMMA_HERE

/* Registers and shared memory written before are seen by the products that follow. */
__device__ __forceinline__ void wgmma_open()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most `left` committed groups are unfinished. */
template <int left> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}
/* What ordinary stores and cp.async brought to shared memory is seen by products, after a barrier. */
__device__ __forceinline__ void wgmma_shared_written()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Keeps the compiler from moving uses of d across a wait. */
template <int TILES> __device__ __forceinline__ void wgmma_settle(float (&d)[TILES][4])
{
#pragma unroll
    for (int i = 0; i < TILES; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) asm volatile("" : "+f"(d[i][e])::"memory");
    }
}

/* keep 0: d is overwritten. */
template <class T, int N> struct wgmma;

#define WGMMA_4(i)   "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define WGMMA_8(i)   WGMMA_4(i), WGMMA_4(i + 1)
#define WGMMA_16(i)  WGMMA_8(i), WGMMA_8(i + 2)
#define WGMMA_32(i)  WGMMA_16(i), WGMMA_16(i + 4)
#define WGMMA_64(i)  WGMMA_32(i), WGMMA_32(i + 8)
#define WGMMA_128(i) WGMMA_64(i), WGMMA_64(i + 16)

/* d as operands */
#define WGMMA_OUT_32  WGMMA_16(0)
#define WGMMA_OUT_64  WGMMA_32(0)
#define WGMMA_OUT_80  WGMMA_32(0), WGMMA_8(8)
#define WGMMA_OUT_96  WGMMA_32(0), WGMMA_16(8)
#define WGMMA_OUT_112 WGMMA_32(0), WGMMA_16(8), WGMMA_8(12)
#define WGMMA_OUT_128 WGMMA_64(0)
#define WGMMA_OUT_144 WGMMA_64(0), WGMMA_8(16)
#define WGMMA_OUT_192 WGMMA_64(0), WGMMA_32(16)
#define WGMMA_OUT_224 WGMMA_64(0), WGMMA_32(16), WGMMA_16(24)
#define WGMMA_OUT_256 WGMMA_128(0)

/* D, X .. R: the names of the operands, those of d and the six behind them. */
#define WGMMA_SHAPE(TYPE, KIND, N, D, X, Y, Z, P, Q, R)                                                                \
    template <> struct wgmma<TYPE, N> {                                                                                \
        static __device__ __forceinline__ void ss(float (&d)[N / 8][4], uint64_t a, uint64_t b, int keep)              \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p, " Z ", 0; wgmma.mma_async.sync.aligned.m64n" #N                \
                         "k16.f32." KIND "." KIND " {" D "}, " X ", " Y ", p, 1, 1, 0, 0;}"                            \
                         : WGMMA_OUT_##N                                                                               \
                         : "l"(a), "l"(b), "r"(keep));                                                                 \
        }                                                                                                              \
        static __device__ __forceinline__ void rs(float (&d)[N / 8][4], const uint32_t a[4], uint64_t b, int keep)     \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p, " R ", 0; wgmma.mma_async.sync.aligned.m64n" #N                \
                         "k16.f32." KIND "." KIND " {" D "}, {" X ", " Y ", " Z ", " P "}, " Q ", p, 1, 1, 1;}"        \
                         : WGMMA_OUT_##N                                                                               \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));                             \
        }                                                                                                              \
    };
#define WGMMA_BOTH(...) WGMMA_SHAPE(__nv_bfloat16, "bf16", __VA_ARGS__) WGMMA_SHAPE(__half, "f16", __VA_ARGS__)

/* "%0, %1, ..." */
#define WGMMA_D16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_D32                                                                                                      \
    WGMMA_D16 ", "                                                                                                     \
              "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_D40                                                                                                      \
    WGMMA_D32 ", "                                                                                                     \
              "%32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_D48                                                                                                      \
    WGMMA_D40 ", "                                                                                                     \
              "%40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_D56                                                                                                      \
    WGMMA_D48 ", "                                                                                                     \
              "%48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_D64                                                                                                      \
    WGMMA_D48 ", "                                                                                                     \
              "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_D72                                                                                                      \
    WGMMA_D64 ", "                                                                                                     \
              "%64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_D96                                                                                                      \
    WGMMA_D72 ", "                                                                                                     \
              "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, "                       \
              "%88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_D112                                                                                                     \
    WGMMA_D96 ", "                                                                                                     \
              "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_D128                                                                                                     \
    WGMMA_D112 ", "                                                                                                    \
               "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

WGMMA_BOTH(32, WGMMA_D16, "%16", "%17", "%18", "%19", "%20", "%21")
WGMMA_BOTH(64, WGMMA_D32, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA_BOTH(80, WGMMA_D40, "%40", "%41", "%42", "%43", "%44", "%45")
WGMMA_BOTH(96, WGMMA_D48, "%48", "%49", "%50", "%51", "%52", "%53")
WGMMA_BOTH(112, WGMMA_D56, "%56", "%57", "%58", "%59", "%60", "%61")
WGMMA_BOTH(128, WGMMA_D64, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA_BOTH(144, WGMMA_D72, "%72", "%73", "%74", "%75", "%76", "%77")
WGMMA_BOTH(192, WGMMA_D96, "%96", "%97", "%98", "%99", "%100", "%101")
WGMMA_BOTH(224, WGMMA_D112, "%112", "%113", "%114", "%115", "%116", "%117")
WGMMA_BOTH(256, WGMMA_D128, "%128", "%129", "%130", "%131", "%132", "%133")

#undef WGMMA_BOTH
#undef WGMMA_SHAPE

#endif
#endif

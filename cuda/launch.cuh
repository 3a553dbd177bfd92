/* launch.cuh - kernels that are set up while the one before them still runs (programmatic dependent launch, CUDA C++
 * programming guide): most of a frame's kernels are short, and so is the time between them. */
#ifndef S2_LAUNCH_CUH
#define S2_LAUNCH_CUH

#include "cu.cuh"

/* First thing in every kernel that cu_launch launches, in all threads: from here on everything launched before is
 * complete, and the next kernel may be set up: one ahead and no more, or the blocks of many would sit where those of
 * the image encoder could run. */
__device__ __forceinline__ void cu_await()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

template <class... Parameters, class... Arguments>
static inline void cu_launch(struct s2_backend *be, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                             Arguments... arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared, config.stream = cu_stream(be);
    config.attrs = &early, config.numAttrs = cu_of(be)->awaits ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

#endif

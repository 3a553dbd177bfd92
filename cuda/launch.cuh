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

/* The most shared memory a block may ask for. */
static inline int cu_shared_limit(struct s2_backend *be, const char *what)
{
    int bytes = 0;
    cu_ok(be, cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, cu_of(be)->device), what);
    return bytes;
}

/* Allows the kernel its shared memory; false: the device cannot run it, or a failure is recorded. */
template <class... Parameters>
static bool cu_allow_shared(struct s2_backend *be, void (*kernel)(Parameters...), int bytes, const char *what)
{
    return bytes <= cu_shared_limit(be, what) &&
           cu_ok(be, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), what);
}

/* In clusters of so many blocks, 1: each for itself */
template <class... Parameters, class... Arguments>
static inline cudaError_t cu_try_launch(struct s2_backend *be, void (*kernel)(Parameters...), dim3 grid, int cluster,
                                        dim3 block, size_t shared, Arguments... arguments)
{
    cudaLaunchAttribute attribute[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared, config.stream = cu_stream(be);
    config.attrs = attribute;
    if (cu_of(be)->awaits) {
        cudaLaunchAttribute *early = &attribute[config.numAttrs++];
        early->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early->val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        cudaLaunchAttribute *size = &attribute[config.numAttrs++];
        size->id = cudaLaunchAttributeClusterDimension;
        size->val.clusterDim.x = (unsigned)cluster, size->val.clusterDim.y = size->val.clusterDim.z = 1;
    }
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

/* Then CU_LAUNCHED */
template <class... Parameters, class... Arguments>
static inline void cu_launch(struct s2_backend *be, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                             Arguments... arguments)
{
    cu_try_launch(be, kernel, grid, 1, block, shared, arguments...);
}

#endif

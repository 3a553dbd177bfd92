/* context.cu - opens a device: stream, memory, the operator table. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "decoder.cuh"

/* The context, code and library state of a process, which no call tells: what is beyond it belongs to others. */
enum { OWN_OVERHEAD_MIB = 1024 };

/* bytes: what was asked for, 0: not known */
static void no_room(struct s2_backend *be, const char *what, size_t bytes)
{
    size_t free_bytes = 0, total = 0;
    char need[64] = "", others[128] = "";
    cudaGetLastError();
    cudaMemGetInfo(&free_bytes, &total);
    const size_t held = cu_of(be)->bytes_now >> 20, gone = (total - free_bytes) >> 20;
    if (bytes) snprintf(need, sizeof need, ": %zu MiB more are needed", (bytes + (1 << 20) - 1) >> 20);
    if (gone > held + OWN_OVERHEAD_MIB)
        snprintf(others, sizeof others,
                 " and other processes about %zu MiB (wait for them, or take another GPU with --device cuda:N)",
                 gone - held);
    s2_backend_fail(be, S2_E_DEVICE,
                    "the GPU has too little memory for %s%s; %zu of %zu MiB are free, this run holds %zu MiB%s; "
                    "--size 512, fewer objects, --max-cond-frames or a smaller model take less",
                    what, need, free_bytes >> 20, total >> 20, held, others);
}

bool cu_ok(struct s2_backend *be, cudaError_t err, const char *what)
{
    if (err == cudaSuccess) return true;
    if (err == cudaErrorMemoryAllocation) {
        no_room(be, what, 0);
    } else {
        s2_backend_fail(be, S2_E_DEVICE, "the GPU failed in %s: %s", what, cudaGetErrorString(err));
    }
    return false;
}

static void count(struct cu_backend *cu, size_t bytes)
{
    cu->bytes_now += bytes;
    if (cu->bytes_now > cu->bytes_peak) cu->bytes_peak = cu->bytes_now;
}

/* Every block carries its size in front, so that free can count it. */
enum { HEADER = 256 };

static void *cu_alloc(struct s2_backend *be, size_t bytes)
{
    char *p = NULL;
    size_t whole = bytes + HEADER;
    if (be->skip) return NULL;
    cudaError_t err = cudaMalloc((void **)&p, whole);
    if (err == cudaErrorMemoryAllocation) {
        no_room(be, "the model and its memories", bytes);
        return NULL;
    }
    if (!cu_ok(be, err, "alloc")) return NULL;
    cu_ok(be, cudaMemcpy(p, &whole, sizeof whole, cudaMemcpyHostToDevice), "alloc");
    count(cu_of(be), whole);
    return p + HEADER;
}

static void cu_free(struct s2_backend *be, void *p)
{
    size_t whole = 0;
    if (!p) return;
    cudaMemcpy(&whole, (char *)p - HEADER, sizeof whole, cudaMemcpyDeviceToHost);
    cudaFree((char *)p - HEADER);
    cu_of(be)->bytes_now -= whole;
}

static void *cu_alloc_host(struct s2_backend *be, size_t bytes)
{
    void *p = NULL;
    if (cudaSetDevice(cu_of(be)->device) == cudaSuccess && cudaMallocHost(&p, bytes ? bytes : 1) == cudaSuccess)
        return p;
    cudaGetLastError(); /* the caller knows what to do without */
    return NULL;
}

static void cu_free_host(struct s2_backend *be, void *p)
{
    (void)be;
    cudaFreeHost(p);
}

static void cu_upload(struct s2_backend *be, void *dst, const void *host, size_t bytes)
{
    if (bytes) cu_ok(be, cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, cu_stream(be)), "upload");
}

static void cu_download(struct s2_backend *be, void *host, const void *src, size_t bytes)
{
    if (bytes) cu_ok(be, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, cu_stream(be)), "download");
}

static void cu_sync(struct s2_backend *be)
{
    for (const struct cu_lane &lane : cu_of(be)->lane) cu_ok(be, cudaStreamSynchronize(lane.stream), "a step");
}

void *cu_scratch(struct s2_backend *be, size_t bytes)
{
    struct cu_backend *cu = cu_of(be);
    struct cu_lane *lane = cu->now;
    if (be->skip) return NULL;
    if (bytes <= lane->scratch_size) return lane->scratch;
    if (cu->recording) {
        s2_backend_fail(be, S2_E_INTERNAL, "an operator needs %zu MiB more while its program is recorded", bytes >> 20);
        return NULL;
    }
    cu_sync(be);
    cu_programs_stale(cu);
    cu_free(be, lane->scratch);
    lane->scratch_size = 0;
    lane->scratch = cu_alloc(be, bytes);
    if (lane->scratch) lane->scratch_size = bytes;
    return lane->scratch;
}

static void cu_close(struct s2_backend *be)
{
    struct cu_backend *cu = cu_of(be);
    if (!be) return;
    for (const struct cu_lane &lane : cu->lane)
        if (lane.stream) cudaStreamSynchronize(lane.stream);
    cu_programs_free(cu);
    cu_steps_free(cu);
    cu_staging_free(cu);
    cu_blas_close(be, cu->blas);
    cu_free(be, cu->frame);
    cu_free(be, cu->axis);
    for (const struct cu_lane &lane : cu->lane) {
        cu_free(be, lane.scratch), cu_free(be, lane.workspace);
        if (lane.stream) cudaStreamDestroy(lane.stream);
    }
    free(cu);
}

static struct s2_ops make_ops(void)
{
    struct s2_ops o;
    memset(&o, 0, sizeof o);
    o.alloc = cu_alloc, o.free = cu_free, o.upload = cu_upload, o.download = cu_download;
    o.alloc_host = cu_alloc_host, o.free_host = cu_free_host, o.sync = cu_sync, o.stage_images = cu_stage_images;
    o.step_begin = cu_step_begin, o.step_end = cu_step_end, o.step_wait = cu_step_wait;
    o.ahead_begin = cu_ahead_begin, o.ahead_end = cu_ahead_end, o.copy = cu_copy, o.mark = cu_mark,
    o.between = cu_between;
    o.begin = cu_begin, o.end = cu_end, o.forget = cu_forget, o.close = cu_close;
    o.linear_create = cu_linear_create, o.linear_destroy = cu_linear_destroy;
    o.conv_create = cu_conv_create, o.conv_destroy = cu_conv_destroy;
    o.preprocess = cu_preprocess, o.conv = cu_conv, o.conv_norm = cu_conv_norm, o.patch_embed = cu_patch_embed,
    o.max_pool2 = cu_max_pool2, o.upsample2_add = cu_upsample2_add;
    o.linear = cu_linear, o.layer_norm = cu_layer_norm, o.norm_linear = cu_norm_linear, o.mlp = cu_mlp, o.add = cu_add,
    o.rope = cu_rope;
    o.attention = cu_attention, o.window_attention = cu_window_attention, o.take = cu_take, o.concat = cu_concat;
    o.scatter = cu_scatter, o.point_tokens = cu_point_tokens, o.deconv2 = cu_deconv2, o.mask_logits = cu_mask_logits;
    o.token_attention = cu_token_attention, o.token_to_image = cu_token_to_image;
    o.token_mlp = cu_token_mlp, o.image_to_token = cu_image_to_token;
    o.token_heads = cu_token_heads, o.upscaled_masks = cu_upscaled_masks;
    o.choose = cu_choose, o.where_absent = cu_where_absent, o.clamp = cu_clamp, o.fill_holes = cu_fill_holes;
    o.video_masks = cu_video_masks, o.memory_mask = cu_memory_mask, o.bank_store = cu_bank_store;
    o.pointer_positions = cu_pointer_positions, o.memory_attention = cu_memory_attention;
    return o;
}

static const struct s2_ops ops = make_ops();

/* What nvcc compiles for, ascending: 800, 900 ... */
static const int archs[] = {__CUDA_ARCH_LIST__};

/* A usable device, or the reason why there is none. */
static bool check_device(struct cu_backend *cu, int device, struct s2_err *err)
{
    int n = 0, runtime = 0;
    cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver) {
        s2_fail(err, S2_E_DEVICE,
                "the NVIDIA driver is missing or older than CUDA %d.%d needs; update it, or use --device cpu",
                CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
        return false;
    }
    if (e != cudaSuccess || n == 0) {
        s2_fail(err, S2_E_DEVICE, "no CUDA device was found (%s); use --device cpu",
                cudaGetErrorString(e == cudaSuccess ? cudaErrorNoDevice : e));
        return false;
    }
    if (device >= n) {
        s2_fail(err, S2_E_DEVICE, "there is no CUDA device %d: this machine has %d, counted from 0", device, n);
        return false;
    }
    e = cudaGetDeviceProperties(&p, device);
    if (e == cudaSuccess) e = cudaSetDevice(device);
    if (e == cudaErrorMemoryAllocation) {
        s2_fail(err, S2_E_DEVICE,
                "CUDA device %d has no memory left for this process, others hold it; wait for them or take another GPU "
                "with --device cuda:N",
                device);
        return false;
    }
    if (e != cudaSuccess) {
        s2_fail(err, S2_E_DEVICE, "CUDA device %d cannot be used: %s", device, cudaGetErrorString(e));
        return false;
    }
    if (p.major < 8) {
        s2_fail(err, S2_E_DEVICE,
                "%s has compute capability %d.%d, and 8.0 is needed (Ampere or newer); use --device cpu", p.name,
                p.major, p.minor);
        return false;
    }
    const int first = archs[0];
    if (100 * p.major + 10 * p.minor < first) {
        s2_fail(err, S2_E_DEVICE,
                "%s has compute capability %d.%d, and this build has code for %d.%d and newer; build with "
                "CUDA_ARCH=%d%d, or use --device cpu",
                p.name, p.major, p.minor, first / 100, first % 100 / 10, p.major, p.minor);
        return false;
    }
    cu->device = device, cu->sm_count = p.multiProcessorCount, cu->cc = 10 * p.major + p.minor;
    cudaRuntimeGetVersion(&runtime);
    snprintf(cu->text, sizeof cu->text, "%s, sm_%d, CUDA %d.%d", p.name, cu->cc, runtime / 1000, runtime % 1000 / 10);
    return true;
}

/* What tracks goes before what runs ahead of it. */
static bool open_lanes(struct s2_backend *be)
{
    struct cu_backend *cu = cu_of(be);
    int least = 0, greatest = 0;
    cu->now = &cu->lane[CU_MAIN];
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    for (int i = 0; i < CU_LANES; i++)
        if (!cu_ok(be,
                   cudaStreamCreateWithPriority(&cu->lane[i].stream, cudaStreamNonBlocking,
                                                i == CU_MAIN ? greatest : least),
                   "opening a stream"))
            return false;
    return true;
}

struct s2_backend *cu_open(const struct cu_options *o, struct s2_err *err)
{
    struct cu_backend *cu = (struct cu_backend *)calloc(1, sizeof *cu);
    if (!cu) {
        s2_no_memory(err, "the backend", sizeof *cu);
        return NULL;
    }
    struct s2_backend *be = &cu->base;
    be->ops = &ops, be->name = "cuda", be->act = o->precision, be->max_batch = 8;
    cu->graph.mode = o->graph;
    if (!check_device(cu, o->device, err)) {
        free(cu);
        return NULL;
    }
    if (open_lanes(be)) {
        cu->awaits = cu_can_await(be);
        if (cu->cc == 90 && !cu->awaits) cu->cc = 80; /* the code for sm_90a was left out of this build */
        cu->blas = cu_blas_open(be);
    }
    if (s2_backend_check(be, err) != S2_OK) {
        cu_close(be);
        return NULL;
    }
    return be;
}

const char *cu_build(void)
{
    static char text[128];
    snprintf(text, sizeof text, "CUDA %d.%d, %s, newer ones through PTX", CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10, CUDA_ARCHS);
    return text;
}

const char *cu_describe(const struct s2_backend *be)
{
    return ((const struct cu_backend *)be)->text;
}

void cu_graph_get_stats(const struct s2_backend *be, struct cu_graph_stats *out)
{
    *out = ((const struct cu_backend *)be)->graph;
}

void cu_times(const struct s2_backend *be, double *busy, double *idle)
{
    *busy = ((const struct cu_backend *)be)->busy;
    *idle = ((const struct cu_backend *)be)->idle;
}

void cu_memory(const struct s2_backend *be, size_t *now, size_t *peak)
{
    *now = ((const struct cu_backend *)be)->bytes_now;
    *peak = ((const struct cu_backend *)be)->bytes_peak;
}

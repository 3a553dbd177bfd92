/* steps.cu - where the streams are: steps on their way, what runs ahead, marks among the operators, how long the device
 * waited. */
#include "cu.cuh"

static bool make(struct s2_backend *be, cudaEvent_t *event, unsigned flags)
{
    return *event || cu_ok(be, cudaEventCreateWithFlags(event, flags), "creating an event");
}

static struct cu_step *at(struct cu_backend *cu, uint64_t step)
{
    return &cu->step[step % S2_MAX_STEPS];
}

uint64_t cu_step_begin(struct s2_backend *be)
{
    struct cu_backend *cu = cu_of(be);
    const uint64_t step = cu->steps++;
    struct cu_step *s = at(cu, step);
    if (!be->skip && make(be, &s->begin, cudaEventDefault) && make(be, &s->end, cudaEventDefault))
        cu_ok(be, cudaEventRecord(s->begin, cu->now->stream), "a step");
    return step;
}

void cu_step_end(struct s2_backend *be, uint64_t step)
{
    if (!be->skip) cu_ok(be, cudaEventRecord(at(cu_of(be), step)->end, cu_stream(be)), "a step");
}

void cu_ahead_begin(struct s2_backend *be)
{
    struct cu_backend *cu = cu_of(be);
    cu->now = &cu->lane[CU_AHEAD];
    if (!be->skip && cu->taken) cu_ok(be, cudaStreamWaitEvent(cu_stream(be), cu->taken, 0), "a step");
}

enum { COPY_THREADS = 256, COPY_PIECES = 4 }; /* of 16 bytes a thread */

struct copies {
    struct {
        char *to;
        const char *from;
        int64_t bytes;
    } part[S2_MAX_COPIES];
};

__global__ void copy(struct copies c)
{
    constexpr int64_t size = sizeof(uint4);
    const auto &p = c.part[blockIdx.y];
    const int64_t first = (int64_t)blockIdx.x * (COPY_THREADS * COPY_PIECES) + threadIdx.x, whole = p.bytes / size;
    uint4 piece[COPY_PIECES];
#pragma unroll
    for (int i = 0; i < COPY_PIECES; i++)
        if (first + i * COPY_THREADS < whole) piece[i] = ((const uint4 *)p.from)[first + i * COPY_THREADS];
#pragma unroll
    for (int i = 0; i < COPY_PIECES; i++)
        if (first + i * COPY_THREADS < whole) ((uint4 *)p.to)[first + i * COPY_THREADS] = piece[i];
    const int64_t rest = size * whole + first;
    if (rest < p.bytes) p.to[rest] = p.from[rest]; /* fewer than 16 bytes */
}

bool cu_can_await(struct s2_backend *be)
{
    cudaFuncAttributes a = {};
    return cu_ok(be, cudaFuncGetAttributes(&a, copy), "reading what the program was built for") && a.ptxVersion >= 90;
}

void cu_copy(struct s2_backend *be, int n, const struct s2_tensor *to, const struct s2_tensor *from)
{
    struct copies c = {};
    int64_t most = 0;
    if (be->skip) return;
    for (int i = 0; i < n; i++) {
        c.part[i] = {(char *)to[i].data, (const char *)from[i].data,
                     s2_elements(to[i]) * (int64_t)s2_dtype_size(to[i].dtype)};
        if (c.part[i].bytes > most) most = c.part[i].bytes;
    }
    const dim3 grid(cu_blocks(most, COPY_THREADS * COPY_PIECES * (int)sizeof(uint4)), (unsigned)n);
    copy<<<grid, COPY_THREADS, 0, cu_stream(be)>>>(c);
    CU_LAUNCHED(be, "taking features over");
}

void cu_ahead_end(struct s2_backend *be, int n, const struct s2_tensor *to, const struct s2_tensor *from)
{
    struct cu_backend *cu = cu_of(be);
    cudaStream_t ahead = cu->lane[CU_AHEAD].stream;
    cu->now = &cu->lane[CU_MAIN];
    if (be->skip || !make(be, &cu->encoded, cudaEventDisableTiming) || !make(be, &cu->taken, cudaEventDisableTiming))
        return;
    if (!cu_ok(be, cudaEventRecord(cu->encoded, ahead), "a step") ||
        !cu_ok(be, cudaStreamWaitEvent(cu_stream(be), cu->encoded, 0), "a step"))
        return;
    cu_copy(be, n, to, from);
    if (!be->skip) cu_ok(be, cudaEventRecord(cu->taken, cu_stream(be)), "a step");
}

static double seconds_between(cudaEvent_t from, cudaEvent_t to)
{
    float ms = 0;
    if (from && to && cudaEventElapsedTime(&ms, from, to) == cudaSuccess) return ms / 1e3;
    cudaGetLastError(); /* one of them was never passed */
    return 0;
}

void cu_step_wait(struct s2_backend *be, uint64_t step)
{
    struct cu_backend *cu = cu_of(be);
    const struct cu_step *s = at(cu, step), *before = at(cu, step - 1);
    if (be->skip || !cu_ok(be, cudaEventSynchronize(s->end), "a step")) return;
    cu->busy += seconds_between(s->begin, s->end);
    if (step > 0) cu->idle += seconds_between(before->end, s->begin);
}

void cu_mark(struct s2_backend *be, int mark)
{
    struct cu_backend *cu = cu_of(be);
    if (be->skip || !make(be, &cu->mark[mark], cudaEventDefault)) return;
    cu_ok(be,
          cudaEventRecordWithFlags(cu->mark[mark], cu->now->stream,
                                   cu->recording ? cudaEventRecordExternal : cudaEventRecordDefault),
          "a mark");
}

double cu_between(struct s2_backend *be, int from, int to)
{
    return seconds_between(cu_of(be)->mark[from], cu_of(be)->mark[to]);
}

void cu_steps_free(struct cu_backend *cu)
{
    for (int i = 0; i < S2_MAX_STEPS; i++) {
        if (cu->step[i].begin) cudaEventDestroy(cu->step[i].begin);
        if (cu->step[i].end) cudaEventDestroy(cu->step[i].end);
    }
    if (cu->encoded) cudaEventDestroy(cu->encoded);
    if (cu->taken) cudaEventDestroy(cu->taken);
    for (int i = 0; i < S2_MAX_MARKS; i++)
        if (cu->mark[i]) cudaEventDestroy(cu->mark[i]);
}

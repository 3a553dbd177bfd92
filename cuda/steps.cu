/* steps.cu - where the stream is: steps on their way, marks among the operators, how long the device waited. */
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
        cu_ok(be, cudaEventRecord(s->begin, cu->stream), "a step");
    return step;
}

void cu_step_end(struct s2_backend *be, uint64_t step)
{
    if (!be->skip) cu_ok(be, cudaEventRecord(at(cu_of(be), step)->end, cu_of(be)->stream), "a step");
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
          cudaEventRecordWithFlags(cu->mark[mark], cu->stream,
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
    for (int i = 0; i < S2_MAX_MARKS; i++)
        if (cu->mark[i]) cudaEventDestroy(cu->mark[i]);
}

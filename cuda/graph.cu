/* graph.cu - programs as CUDA graphs. A graph fixes kernels and addresses, not values: everything that changes from
 * frame to frame lies in device memory (the step table), so a recording stays right for every later frame. The first
 * run of a signature is eager (it sizes the scratch memory and warms the libraries), the second is recorded, the
 * others are replayed. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cu.cuh"

struct cu_program {
    struct cu_program *next;
    struct s2_signature sig;
    cudaGraphExec_t exec; /* NULL: ran eagerly so far */
};

static bool same(const struct s2_signature *a, const struct s2_signature *b)
{
    return a->session == b->session && a->kind == b->kind && a->batch == b->batch && a->outputs == b->outputs;
}

static void eager(struct cu_backend *cu, const char *why, const struct s2_signature *sig)
{
    cu->graph.eager++;
    snprintf(cu->graph.reason, sizeof cu->graph.reason, "%s (program %d, batch %d, outputs %d)", why, sig->kind, sig->batch, sig->outputs);
    if (cu->graph_mode != CU_GRAPH_OFF) s2_log(S2_LOG_DEBUG, "CUDA graph: eager step, %s", cu->graph.reason);
}

bool cu_begin(struct s2_backend *be, const struct s2_signature *sig)
{
    struct cu_backend *cu = cu_of(be);
    if (cu->graph_mode == CU_GRAPH_OFF) {
        eager(cu, "graphs are off", sig);
        return false;
    }
    struct cu_program *p = cu->programs;
    while (p && !same(&p->sig, sig)) p = p->next;
    if (!p) {
        p = (struct cu_program *)calloc(1, sizeof *p);
        if (!p) {
            s2_backend_fail(be, S2_E_DEVICE, "out of memory for a program");
            return false;
        }
        p->sig = *sig, p->next = cu->programs;
        cu->programs = p;
        cu->graph.signatures++;
        eager(cu, "new signature", sig);
        return false;
    }
    if (p->exec) {
        cu->graph.replays++;
        return cu_ok(be, cudaGraphLaunch(p->exec, cu->stream), "replaying a graph");
    }
    cu->recording = cu_ok(be, cudaStreamBeginCapture(cu->stream, cudaStreamCaptureModeThreadLocal), "recording a graph");
    cu->record = p;
    cu->record_start = s2_now();
    return false;
}

void cu_end(struct s2_backend *be)
{
    struct cu_backend *cu = cu_of(be);
    cudaGraph_t graph = NULL;
    if (!cu->recording) return;
    cu->recording = false;
    if (!cu_ok(be, cudaStreamEndCapture(cu->stream, &graph), "recording a graph")) return;
    if (cu_ok(be, cudaGraphInstantiate(&cu->record->exec, graph, 0), "building a graph")) {
        cu->graph.captures++;
        cu_ok(be, cudaGraphLaunch(cu->record->exec, cu->stream), "replaying a graph");
        cu->graph.replays++;
    }
    cudaGraphDestroy(graph);
    cu->graph.capture_seconds += s2_now() - cu->record_start;
}

void cu_programs_stale(struct cu_backend *cu)
{
    for (struct cu_program *p = cu->programs; p; p = p->next) {
        if (p->exec) cudaGraphExecDestroy(p->exec);
        p->exec = NULL;
    }
}

void cu_forget(struct s2_backend *be, uint64_t session)
{
    for (struct cu_program **at = &cu_of(be)->programs; *at;) {
        struct cu_program *p = *at;
        if (p->sig.session != session) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        if (p->exec) cudaGraphExecDestroy(p->exec);
        free(p);
    }
}

void cu_programs_free(struct cu_backend *cu)
{
    while (cu->programs) cu_forget(&cu->base, cu->programs->sig.session);
}

/* graph.cu - programs as CUDA graphs. A graph fixes kernels and addresses, not values: everything that changes from
 * frame to frame lies in device memory (the step table), so a recording stays right for every later frame. A program
 * runs eagerly first, which sizes the scratch memory and warms the libraries. Then it is recorded: with CU_GRAPH_AUTO
 * in place of its second run, and one that cannot be recorded stays eager; with CU_GRAPH_ON at once, in a second round
 * of the same operators, and one that cannot be recorded ends the run. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cu.cuh"

struct cu_program {
    struct cu_program *next;
    struct s2_signature sig;
    cudaGraphExec_t exec; /* NULL: not recorded, or not any more */
    char why_not[160];    /* it cannot be recorded; "": it can, for all that is known */
};

static bool same(const struct s2_signature *a, const struct s2_signature *b)
{
    return a->session == b->session && a->program == b->program && a->batch == b->batch && a->outputs == b->outputs;
}

static bool same(const struct cu_eager *e, const char *why, const struct s2_signature *sig)
{
    return e->program == sig->program && e->batch == sig->batch && e->outputs == sig->outputs &&
           strcmp(e->why, why) == 0;
}

static void count_eager(struct cu_backend *cu, const char *why, const struct s2_signature *sig)
{
    struct cu_graph_stats *g = &cu->graph;
    int i = 0;
    g->eager++;
    while (i < g->n_reasons && !same(&g->reason[i], why, sig)) i++;
    if (i == CU_MAX_REASONS) return;
    struct cu_eager *e = &g->reason[i];
    if (i == g->n_reasons) {
        g->n_reasons++;
        e->program = sig->program, e->batch = sig->batch, e->outputs = sig->outputs;
        snprintf(e->why, sizeof e->why, "%s", why);
    }
    e->count++;
}

static void drop_recording(struct cu_program *p)
{
    if (p->exec) cudaGraphExecDestroy(p->exec);
    p->exec = NULL;
}

static void cannot_record(struct s2_backend *be, struct cu_program *p, const char *why)
{
    struct cu_backend *cu = cu_of(be);
    cudaGetLastError(); /* dealt with */
    drop_recording(p);
    snprintf(p->why_not, sizeof p->why_not, "cannot be recorded: %s", why);
    if (cu->graph.mode == CU_GRAPH_ON) {
        s2_backend_fail(be, S2_E_DEVICE, "--graph on: the program '%s' for %d object%s %s; use --graph auto",
                        s2_program_name(p->sig.program), p->sig.batch, s2_plural(p->sig.batch), p->why_not);
        return;
    }
    count_eager(cu, p->why_not, &p->sig);
    if (!cu->fell_back)
        s2_log(S2_LOG_WARN, "CUDA graphs: the program '%s' %s; it runs kernel by kernel",
               s2_program_name(p->sig.program), p->why_not);
    cu->fell_back = true;
}

/* launch: the recording is made in place of a run, not after one */
static bool start_recording(struct s2_backend *be, struct cu_program *p, bool launch)
{
    struct cu_backend *cu = cu_of(be);
    cu->record_start = s2_now();
    cu->record_launch = launch;
    const cudaError_t e = cudaStreamBeginCapture(cu->now->stream, cudaStreamCaptureModeThreadLocal);
    cu->recording = e == cudaSuccess;
    if (!cu->recording) cannot_record(be, p, cudaGetErrorString(e));
    return cu->recording;
}

bool cu_begin(struct s2_backend *be, const struct s2_signature *sig, const char *why_not)
{
    struct cu_backend *cu = cu_of(be);
    cu->program = NULL;
    if (be->skip) return false;
    if (!why_not && cu->graph.mode == CU_GRAPH_OFF) why_not = "graphs are off";
    if (why_not) {
        count_eager(cu, why_not, sig);
        return false;
    }
    struct cu_program *p = cu->programs;
    while (p && !same(&p->sig, sig)) p = p->next;
    const bool is_new = !p;
    if (is_new) {
        p = (struct cu_program *)calloc(1, sizeof *p);
        if (!p) {
            s2_backend_fail(be, S2_E_DEVICE, "out of memory for a program");
            return false;
        }
        p->sig = *sig, p->next = cu->programs;
        cu->programs = p;
        cu->graph.signatures++;
    }
    if (p->exec) {
        cu->graph.replays++;
        cu_ok(be, cudaGraphLaunch(p->exec, cu->now->stream), "replaying a graph");
        return true;
    }
    cu->program = p;
    if (is_new || p->why_not[0])
        count_eager(cu, is_new ? "first appearance" : p->why_not, sig);
    else
        start_recording(be, p, true);
    return false;
}

bool cu_end(struct s2_backend *be)
{
    struct cu_backend *cu = cu_of(be);
    struct cu_program *p = cu->program;
    cudaGraph_t graph = NULL;
    if (!p) return false;
    if (!cu->recording) return cu->graph.mode == CU_GRAPH_ON && !be->skip && start_recording(be, p, false);

    cu->recording = false;
    cudaError_t e = cudaStreamEndCapture(cu->now->stream, &graph);
    const struct s2_err failure = be->err; /* of an operator, which was only being recorded */
    memset(&be->err, 0, sizeof be->err);
    be->skip = false;
    if (e == cudaSuccess && failure.status == S2_OK) e = cudaGraphInstantiate(&p->exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (e == cudaSuccess && p->exec)
        e = cu->record_launch ? cudaGraphLaunch(p->exec, cu->now->stream) : cudaGraphUpload(p->exec, cu->now->stream);
    cu->graph.capture_seconds += s2_now() - cu->record_start;
    if (e == cudaSuccess && p->exec) {
        cu->graph.captures++;
        cu->graph.replays += cu->record_launch;
        return false;
    }
    cannot_record(be, p, failure.status != S2_OK ? failure.text : cudaGetErrorString(e));
    return !be->skip; /* what should have been replayed is still to be done */
}

void cu_programs_stale(struct cu_backend *cu)
{
    for (struct cu_program *p = cu->programs; p; p = p->next) drop_recording(p);
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
        drop_recording(p);
        free(p);
    }
}

void cu_programs_free(struct cu_backend *cu)
{
    while (cu->programs) cu_forget(&cu->base, cu->programs->sig.session);
}

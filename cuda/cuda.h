/* cuda.h - the CUDA backend: the operator table of ops.h on one GPU. */
#ifndef S2_CUDA_H
#define S2_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "../engine/ops.h"

/* AUTO: programs that repeat are recorded if they can be. ON: every program is recorded at its first appearance; one
 * that cannot be is a failure, S2_E_DEVICE. */
enum cu_graph_mode { CU_GRAPH_AUTO, CU_GRAPH_ON, CU_GRAPH_OFF };

struct cu_options {
    int device;              /* ordinal */
    enum s2_dtype precision; /* S2_BF16, S2_F16 or S2_F32: activations; products accumulate in f32 (no TF32) */
    enum cu_graph_mode graph;
};

/* Opens a device. NULL and S2_E_DEVICE with a sentence: no driver, none or too old a GPU, out of memory. A machine
 * without a driver or without the CUDA libraries gets the sentence, not a crash: both are loaded at this call. */
struct s2_backend *cu_open(const struct cu_options *, struct s2_err *);

/* What it runs on: "NVIDIA H200, sm_90, CUDA 13.0"; valid until close. */
const char *cu_describe(const struct s2_backend *);

/* The toolkit and the architectures of this build: "CUDA 13.0, sm_80 sm_90a, newer ones through PTX". */
const char *cu_build(void);

enum { CU_MAX_REASONS = 16 };

/* Eager runs of one program for one reason */
struct cu_eager {
    enum s2_program program;
    int batch, outputs; /* see s2_signature */
    int64_t count;
    char why[200];
};

/* What became of the programs so far (see s2_ops.begin). */
struct cu_graph_stats {
    enum cu_graph_mode mode;
    int64_t signatures, captures, replays, eager; /* eager: programs that ran operator by operator */
    double capture_seconds;                       /* recording and building graphs */
    int n_reasons;
    struct cu_eager reason[CU_MAX_REASONS]; /* of eager runs, in order of appearance; the first ones */
};
void cu_graph_get_stats(const struct s2_backend *, struct cu_graph_stats *);

/* Seconds the device spent inside steps, and from the end of each to the begin of the next: with nothing to do. */
void cu_times(const struct s2_backend *, double *busy, double *idle);

/* Bytes of device memory the backend holds now, and the most it ever held. */
void cu_memory(const struct s2_backend *, size_t *now, size_t *peak);

#ifdef __cplusplus
}
#endif
#endif

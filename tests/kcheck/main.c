/* main.c - kcheck [--quick] [--bench] [--cuda | --half-plain] [--precision P] [--threads N] [OPERATOR...]: compares, or
 * times, all operators or those named. Closing line: N passed, N failed. */
#include "kcheck.h"
#ifdef HAVE_CUDA
#include "../../cuda/cuda.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*check)(void);
} operators[] = {
    {"preprocess", check_preprocess},
    {"conv", check_conv},
    {"conv_norm", check_conv_norm},
    {"patch_embed", check_patch_embed},
    {"max_pool2", check_max_pool2},
    {"upsample2_add", check_upsample2_add},
    {"linear", check_linear},
    {"layer_norm", check_layer_norm},
    {"norm_linear", check_norm_linear},
    {"mlp", check_mlp},
    {"add", check_add},
    {"rope", check_rope},
    {"attention", check_attention},
    {"window_attention", check_window_attention},
    {"take", check_take},
    {"concat", check_concat},
    {"scatter", check_scatter},
    {"point_tokens", check_point_tokens},
    {"deconv2", check_deconv2},
    {"mask_logits", check_mask_logits},
    {"choose", check_choose},
    {"where_absent", check_where_absent},
    {"clamp", check_clamp},
    {"fill_holes", check_fill_holes},
    {"video_masks", check_video_masks},
    {"token_attention", check_token_attention},
    {"token_to_image", check_token_to_image},
    {"token_mlp", check_token_mlp},
    {"image_to_token", check_image_to_token},
    {"token_heads", check_token_heads},
    {"upscaled_masks", check_upscaled_masks},
    {"memory_mask", check_memory_mask},
    {"bank_store", check_bank_store},
    {"pointer_positions", check_pointer_positions},
    {"memory_attention", check_memory_attention},
};
#define N_OPERATORS (sizeof operators / sizeof *operators)

enum device { CPU, CUDA, HALF_PLAIN };

struct options {
    int threads;
    enum device device;
    enum s2_dtype precision;
    char **names;
    int n_names;
};

static struct options *options;

static bool wanted(const char *name)
{
    for (int i = 0; i < options->n_names; i++) {
        if (strcmp(options->names[i], name) == 0) return true;
    }
    return options->n_names == 0;
}

bool kc_bench_wants(const char *op)
{
    return wanted(op);
}

static int usage(const char *wrong)
{
    fprintf(stderr,
            "kcheck: %s\n"
            "usage: kcheck [--quick] [--bench] [--cuda | --half-plain] [--precision fp32|bf16|fp16] [--threads N] "
            "[OPERATOR...]\n"
            "  --cuda        the first GPU, activations of the precision; default fp32\n"
            "  --half-plain  the oracle behind activations of the precision: a check of kcheck itself\n"
            "  without       the CPU in fp32 on each instruction set and, where it can, in bf16, or in the precision\n"
            "operators:",
            wrong);
    for (size_t i = 0; i < N_OPERATORS; i++) fprintf(stderr, " %s", operators[i].name);
    fprintf(stderr, "\n");
    return 2;
}

static bool is_operator(const char *name)
{
    for (size_t i = 0; i < N_OPERATORS; i++) {
        if (strcmp(operators[i].name, name) == 0) return true;
    }
    return false;
}

static bool precision_of(const char *name, enum s2_dtype *out)
{
    static const struct {
        const char *name;
        enum s2_dtype type;
    } all[] = {{"fp32", S2_F32}, {"bf16", S2_BF16}, {"fp16", S2_F16}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0) *out = all[i].type;
        if (strcmp(all[i].name, name) == 0) return true;
    }
    return false;
}

static void run_checks(void)
{
    for (size_t i = 0; i < N_OPERATORS; i++) {
        if (!wanted(operators[i].name)) continue;
        const int failed = kc.failed;
        kc.op = operators[i].name;
        kc.cases = 0;
        kc.worst = 0;
        const double start = s2_now();
        operators[i].check();
        printf("%-18s %s  %3d cases, largest error %5.1f %% of its tolerance, %.1f s\n", kc.op,
               kc.failed == failed ? "ok    " : "FAILED", kc.cases, 100 * kc.worst, s2_now() - start);
        fflush(stdout);
    }
}

static void close_backends(void)
{
    for (int s = 0; s < KC_SIDES; s++) {
        if (kc.be[s]) kc.be[s]->ops->close(kc.be[s]);
        kc.be[s] = NULL;
    }
}

static const char *describe(void)
{
    if (options->device == HALF_PLAIN) return "oracle";
#ifdef HAVE_CUDA
    if (options->device == CUDA) return cu_describe(kc.be[KC_TESTED]);
#endif
    return s2_cpu_describe(kc.be[KC_TESTED]);
}

#ifdef HAVE_CUDA
static struct s2_backend *open_gpu(struct s2_err *err)
{
    const struct cu_options o = {.precision = options->precision};
    return cu_open(&o, err);
}
#else
static struct s2_backend *open_gpu(struct s2_err *err)
{
    s2_fail(err, S2_E_DEVICE, "this build has no CUDA backend");
    return NULL;
}
#endif

static struct s2_backend *open_device(int threads, struct s2_err *err)
{
    switch (options->device) {
    case CUDA: return open_gpu(err);
    case HALF_PLAIN: return kc_half_plain_open(options->precision, err);
    case CPU: break;
    }
    return s2_cpu_open(threads, options->precision, err);
}

/* The tested device twice: the same bytes are due from both, from a CPU on any number of threads. */
static bool open_backends(struct s2_err *err)
{
    /* more than one thread where it is compared, so that its work is cut */
    kc.be[KC_TESTED] = open_device(kc.bench || options->threads ? options->threads : 3, err);
    if (!kc.be[KC_TESTED]) return false;
    kc.act = kc.be[KC_TESTED]->act;
    kc.gpu = options->device != CPU;
    /* AMX multiplies bf16, for fp32 the two parts of a split number */
    kc.operand = options->device != CPU          ? 0
                 : options->precision == S2_BF16 ? 0x1p-8
                 : strstr(describe(), "AMX")     ? 0x1p-16
                                                 : 0;
    if (kc.bench) return true;
    kc.be[KC_ORACLE] = s2_plain_open(err);
    kc.be[KC_OTHER] = open_device(1, err);
    return kc.be[KC_ORACLE] && kc.be[KC_OTHER];
}

static void run_bench(void)
{
    printf("%s, SAM 2.1 tiny at 1024\n%-18s %-44s %9s %9s %9s\n", describe(), "operator", "shape", "ms", "GFLOP/s",
           "GB/s");
    bench_operators();
}

static bool check_once(struct s2_err *err)
{
    if (!open_backends(err)) return false;
    printf("-- %s, activations %s\n", describe(), s2_dtype_name(kc.act));
    run_checks();
    close_backends();
    return true;
}

/* Everything in bf16 where the machine has it, then on each instruction set, or on the one that is asked for. */
static bool check_instruction_sets(struct s2_err *err)
{
    static const char *const levels[] = {"amx", "avx512", "avx2", "base"};
    if (options->device != CPU || options->precision != S2_F32 || getenv("SAM2TRACK_CPU")) return check_once(err);
    struct s2_backend *half = s2_cpu_open(1, S2_BF16, NULL);
    if (half) {
        half->ops->close(half);
        options->precision = S2_BF16;
        if (!check_once(err)) return false;
        options->precision = S2_F32;
    }
    char before[128] = "";
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        setenv("SAM2TRACK_CPU", levels[i], 1);
        struct s2_backend *be = s2_cpu_open(1, S2_F32, err);
        if (!be) return false;
        const bool another = strcmp(before, s2_cpu_describe(be)) != 0;
        snprintf(before, sizeof before, "%s", s2_cpu_describe(be));
        be->ops->close(be);
        if (another && !check_once(err)) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options o = {.precision = S2_F32, .names = calloc((size_t)argc, sizeof *o.names)};
    if (!o.names) return 7;
    options = &o;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            kc.quick = true;
        } else if (strcmp(argv[i], "--bench") == 0) {
            kc.bench = true;
        } else if (strcmp(argv[i], "--cuda") == 0) {
            o.device = CUDA;
        } else if (strcmp(argv[i], "--half-plain") == 0) {
            o.device = HALF_PLAIN;
        } else if (strcmp(argv[i], "--precision") == 0 && i + 1 < argc) {
            if (!precision_of(argv[++i], &o.precision)) return usage(argv[i]);
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            o.threads = atoi(argv[++i]);
        } else if (is_operator(argv[i])) {
            o.names[o.n_names++] = argv[i];
        } else {
            return usage(argv[i]);
        }
    }
    if (o.device == CPU && o.precision == S2_F16) return usage("fp16 is for --cuda and --half-plain");
    kc.eps = 0x1p-24;
    struct s2_err err = {0};
    const bool ran = kc.bench ? open_backends(&err) : check_instruction_sets(&err);
    if (ran && kc.bench) run_bench();
    close_backends();
    free(o.names);
    if (!ran) {
        fprintf(stderr, "kcheck: %s\n", err.text);
        return (int)err.status;
    }
    if (!kc.bench) printf("%d passed, %d failed\n", kc.passed, kc.failed);
    return kc.failed > 0;
}

/* backend.c - opens the CPU backend: threads, instruction set, scratch memory, the operator table. */
#include "cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

void cpu_no_memory(struct cpu_backend *cpu, const char *what, size_t bytes)
{
    cpu->base.skip = true;
    s2_no_memory(&cpu->base.err, what, bytes);
}

bool cpu_scratch(struct cpu_backend *cpu, size_t shared, size_t local)
{
    shared = aligned(shared);
    local = aligned(local);
    const size_t need = shared + local * (size_t)cpu->threads;
    cpu->shared_size = shared;
    cpu->local_size = local;
    if (need <= cpu->scratch_size) return true;
    free(cpu->scratch);
    cpu->scratch_size = 0;
    cpu->scratch = aligned_alloc(64, need);
    if (!cpu->scratch) {
        cpu_no_memory(cpu, "the scratch of an operator", need);
        return false;
    }
    cpu->scratch_size = need;
    memset(cpu->scratch, 0, need); /* page faults now, not in every frame's first pass */
    return true;
}

int cpu_piece(const struct cpu_backend *cpu, int64_t n, int unit, int most)
{
    const int64_t pieces = 4 * cpu->threads;
    const int64_t size = (n + pieces - 1) / pieces;
    const int piece = size >= most ? most : (int)size;
    return cpu_round_up(piece > 0 ? piece : 1, unit);
}

static void *cpu_alloc(struct s2_backend *be, size_t bytes)
{
    size_t padded;
    void *p = s2_add(bytes, 64, &padded) ? aligned_alloc(64, padded / 64 * 64) : NULL;
    if (!p) cpu_no_memory(cpu_of(be), "tensors", bytes);
    return p;
}

static void cpu_free(struct s2_backend *be, void *p)
{
    (void)be;
    free(p);
}

static void cpu_copy(struct s2_backend *be, void *dst, const void *src, size_t bytes)
{
    if (!be->skip && bytes > 0) memcpy(dst, src, bytes);
}

static void cpu_close(struct s2_backend *be)
{
    if (!be) return;
    free(cpu_of(be)->scratch);
    free(cpu_of(be)->panels);
    free(be);
}

static const struct s2_ops ops = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .linear_create = cpu_linear_create,
    .linear_destroy = cpu_linear_destroy,
    .conv_create = cpu_conv_create,
    .conv_destroy = cpu_conv_destroy,
    .close = cpu_close,
    .preprocess = cpu_preprocess,
    .conv = cpu_conv,
    .conv_norm = s2_compose_conv_norm,
    .patch_embed = s2_compose_patch_embed,
    .max_pool2 = cpu_max_pool2,
    .upsample2_add = cpu_upsample2_add,
    .linear = cpu_linear,
    .layer_norm = cpu_layer_norm,
    .norm_linear = s2_compose_norm_linear,
    .mlp = cpu_mlp,
    .add = cpu_add,
    .rope = cpu_rope,
    .attention = cpu_attention,
    .window_attention = cpu_window_attention,
    .take = cpu_take,
    .concat = cpu_concat,
    .scatter = cpu_scatter,
    .point_tokens = cpu_point_tokens,
    .token_attention = s2_compose_token_attention,
    .token_to_image = s2_compose_token_to_image,
    .token_mlp = s2_compose_token_mlp,
    .image_to_token = s2_compose_image_to_token,
    .token_heads = s2_compose_token_heads,
    .upscaled_masks = s2_compose_upscaled_masks,
    .deconv2 = cpu_deconv2,
    .mask_logits = cpu_mask_logits,
    .choose = cpu_choose,
    .where_absent = cpu_where_absent,
    .clamp = cpu_clamp,
    .fill_holes = cpu_fill_holes,
    .video_masks = cpu_video_masks,
    .memory_mask = cpu_memory_mask,
    .bank_store = cpu_bank_store,
    .pointer_positions = cpu_pointer_positions,
    .memory_attention = cpu_memory_attention,
};

/* The widest instruction set of this machine that the environment does not forbid; NULL: none has the precision. */
static const struct cpu_kern *choose_kern(enum s2_dtype precision)
{
    static const char *const names[] = {"base", "avx2", "avx512"};
    const char *most = getenv("SAM2TRACK_CPU");
    int level = 3;
    for (int i = 0; most && i < 3; i++)
        if (!strcmp(most, names[i])) level = i;
#ifdef __x86_64__
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#ifdef HAVE_AMX
    if (level >= 3 && avx512 && cpu_amx_enable()) return precision == S2_BF16 ? &cpu_kern_amx_bf16 : &cpu_kern_amx;
#endif
    if (precision != S2_F32) return NULL;
    if (level >= 2 && avx512) return &cpu_kern_avx512;
    if (level >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &cpu_kern_avx2;
#endif
    (void)level;
    return precision == S2_F32 ? &cpu_kern_base : NULL;
}

struct s2_backend *s2_cpu_open(int threads, enum s2_dtype precision, struct s2_err *err)
{
    const struct cpu_kern *kern = choose_kern(precision);
    if (!kern) {
        s2_fail(
            err, S2_E_DEVICE,
            "--precision %s needs Intel AMX on the CPU, and the processor, the system or this build does not have it "
            "or SAM2TRACK_CPU forbids it; use fp32",
            precision == S2_BF16 ? "bf16" : s2_dtype_name(precision));
        return NULL;
    }
    struct cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu) {
        s2_no_memory(err, "the backend", sizeof *cpu);
        return NULL;
    }
    cpu->base.ops = &ops;
    cpu->base.name = "cpu";
    cpu->base.act = S2_F32;
    cpu->base.max_batch = 4;
    cpu->kern = kern;
    cpu->threads = threads > 0 ? threads : omp_get_num_procs();
    const size_t panels = kern->affine_size * (size_t)cpu->threads;
    if (panels > 0 && !(cpu->panels = aligned_alloc(64, panels))) {
        s2_no_memory(err, "the backend", panels);
        free(cpu);
        return NULL;
    }
    cpu->base.band_tokens = 512 * (cpu->threads > 2 ? cpu->threads : 2); /* the band's maps stay in the caches */
    snprintf(cpu->text, sizeof cpu->text, "%s, %d thread%s", cpu->kern->name, cpu->threads,
             cpu->threads == 1 ? "" : "s");
    return &cpu->base;
}

const char *s2_cpu_describe(const struct s2_backend *be)
{
    return ((const struct cpu_backend *)be)->text;
}

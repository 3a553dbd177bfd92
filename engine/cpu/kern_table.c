/* kern_table.c - the table of one instruction set. */
#ifdef AMX_SPLIT
#include "amx.h"
#define ROWS(name)       name##_avx512
#define ROW_TILE         (2 * AMX_ROWS)
#define ROW_BLOCK        AMX_BLOCK
#define PERCEPTRON_BLOCK (AMX_PARTS == 1 ? AMX_BLOCK : AMX_BLOCK * 3 / 2)
#define AFFINE_SIZE      AMX_AFFINE_SIZE
#define FEW_KEYS         &cpu_kern_avx512
#else
#include "kern.h"
#include "vec.h"
#define ROWS(name)       K(name)
#define ROW_TILE         TILE_ROWS
#define ROW_BLOCK        (112 / TILE_ROWS * TILE_ROWS)
#define PERCEPTRON_BLOCK ROW_BLOCK
#define AFFINE_SIZE      0
#define FEW_KEYS         NULL
#endif

#if defined(AMX_SPLIT)
#define NAME AMX_SPLIT == 0 ? "AMX in bfloat16" : "AMX"
#elif defined(ISA_avx512)
#define NAME "AVX-512"
#elif defined(ISA_avx2)
#define NAME "AVX2"
#elif defined(__aarch64__)
#define NAME "NEON"
#elif defined(__x86_64__)
#define NAME "SSE2"
#else
#define NAME "plain vectors"
#endif

const struct cpu_kern K(cpu_kern) = {
    .name = NAME,
    .panel = PANEL,
    .rows = ROW_TILE,
    .block = ROW_BLOCK,
    .perceptron_block = PERCEPTRON_BLOCK,
    .pack = ROWS(cpu_pack),
    .product = ROWS(cpu_product),
    .matrix_size = K(cpu_matrix_size),
    .matrix_pack = K(cpu_matrix_pack),
    .affine_size = AFFINE_SIZE,
    .affine = K(cpu_affine),
    .perceptron_size = K(cpu_perceptron_size),
    .perceptron = K(cpu_perceptron),
    .few_keys = FEW_KEYS,
    .keys_size = K(cpu_keys_size),
    .values_size = K(cpu_values_size),
    .keys_pack = K(cpu_keys_pack),
    .values_pack = K(cpu_values_pack),
    .attend_size = K(cpu_attend_size),
    .attend = K(cpu_attend),
    .window_size = ROWS(cpu_window_size),
    .window = ROWS(cpu_window),
    .layer_norm = ROWS(cpu_layer_norm),
    .activate = ROWS(cpu_activate),
    .axpy = ROWS(cpu_axpy),
    .rope = ROWS(cpu_rope),
    .max4 = ROWS(cpu_max4),
    .clamp = ROWS(cpu_clamp),
    .memory_token = ROWS(cpu_memory_token),
    .widen = ROWS(cpu_widen),
    .narrow = ROWS(cpu_narrow),
    .sigmoid20 = ROWS(cpu_sigmoid20),
    .depthwise = ROWS(cpu_depthwise),
    .lerp_across = ROWS(cpu_lerp_across),
    .lerp_down = ROWS(cpu_lerp_down),
    .positive = ROWS(cpu_positive),
    .owned = ROWS(cpu_owned),
    .pack_bits = ROWS(cpu_pack_bits),
    .own = ROWS(cpu_own),
    .resample_across = ROWS(cpu_resample_across),
    .resample_down = ROWS(cpu_resample_down),
};

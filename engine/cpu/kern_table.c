/* kern_table.c - the table of one instruction set. */
#include "kern.h"
#include "vec.h"

#if defined(ISA_avx512)
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
    .rows = TILE_ROWS,
    .pack = K(cpu_pack),
    .product = K(cpu_product),
    .keys_size = K(cpu_keys_size),
    .values_size = K(cpu_values_size),
    .keys_pack = K(cpu_keys_pack),
    .values_pack = K(cpu_values_pack),
    .attend_size = K(cpu_attend_size),
    .attend = K(cpu_attend),
    .window_size = K(cpu_window_size),
    .window = K(cpu_window),
    .layer_norm = K(cpu_layer_norm),
    .activate = K(cpu_activate),
    .axpy = K(cpu_axpy),
    .rope = K(cpu_rope),
    .max4 = K(cpu_max4),
    .clamp = K(cpu_clamp),
    .memory_token = K(cpu_memory_token),
    .widen = K(cpu_widen),
    .narrow = K(cpu_narrow),
    .sigmoid20 = K(cpu_sigmoid20),
    .depthwise = K(cpu_depthwise),
    .lerp_across = K(cpu_lerp_across),
    .lerp_down = K(cpu_lerp_down),
    .positive = K(cpu_positive),
    .owned = K(cpu_owned),
    .pack_bits = K(cpu_pack_bits),
    .own = K(cpu_own),
    .resample_across = K(cpu_resample_across),
    .resample_down = K(cpu_resample_down),
};

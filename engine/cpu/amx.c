/* amx.c - whether AMX may be used: the processor has it, and Linux gives its large register state on request. */
#include "cpu.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* arch/x86/include/uapi/asm/prctl.h; the number of the tiles' state in the extended control register */
enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

static bool processor_has_amx(void)
{
    unsigned a, b, c, d, a1, rest;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__get_cpuid_count(7, 1, &a1, &rest, &rest, &rest)) return false;
    const bool amx_bf16 = d >> 22 & 1, amx_tile = d >> 24 & 1, avx512_bf16 = a1 >> 5 & 1;
    return amx_bf16 && amx_tile && avx512_bf16;
}

bool cpu_amx_enable(void)
{
    return processor_has_amx() && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#else
bool cpu_amx_enable(void)
{
    return false;
}
#endif

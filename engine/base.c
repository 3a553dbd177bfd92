/* base.c - see base.h */
#include "base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum s2_status s2_fail(struct s2_err *err, enum s2_status status, const char *fmt, ...)
{
    if (!err || err->status != S2_OK) return status;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    err->status = status;
    return status;
}

enum s2_status s2_no_memory(struct s2_err *err, const char *what, size_t bytes)
{
    const size_t mib = bytes / (1 << 20) + (bytes % (1 << 20) != 0);
    return s2_fail(err, S2_E_DEVICE, "Not enough memory for %s: %zu MiB could not be allocated.", what, mib);
}

bool s2_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

bool s2_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static s2_log_fn *log_fn;
static void *log_ctx;

void s2_log_set(s2_log_fn *fn, void *ctx)
{
    log_fn = fn;
    log_ctx = ctx;
}

void s2_log(enum s2_log_level level, const char *fmt, ...)
{
    if (!log_fn) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log_fn(log_ctx, level, text);
}

double s2_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

size_t s2_dtype_size(enum s2_dtype t)
{
    switch (t) {
    case S2_F64:
    case S2_I64: return 8;
    case S2_F32:
    case S2_I32: return 4;
    case S2_F16:
    case S2_BF16:
    case S2_I16: return 2;
    case S2_I8:
    case S2_U8:
    case S2_BOOL: return 1;
    }
    return 0;
}

const char *s2_dtype_name(enum s2_dtype t)
{
    switch (t) {
    case S2_F32: return "float32";
    case S2_F16: return "float16";
    case S2_BF16: return "bfloat16";
    case S2_F64: return "float64";
    case S2_I64: return "int64";
    case S2_I32: return "int32";
    case S2_I16: return "int16";
    case S2_I8: return "int8";
    case S2_U8: return "uint8";
    case S2_BOOL: return "bool";
    }
    return "unknown";
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

uint16_t s2_bf16(float x)
{
    const uint32_t u = bits_of(x);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40); /* rounding could carry a NaN into inf */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float s2_from_bf16(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

float s2_from_f16(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, mantissa = x & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    const float subnormal = ldexpf((float)mantissa, -24);
    return sign ? -subnormal : subnormal;
}

bool s2_stored_f32(const struct s2_stored *t, size_t first, size_t n, float *out)
{
    const size_t size = s2_dtype_size(t->dtype);
    const char *src = (const char *)t->data + first * size;
    switch (t->dtype) {
    case S2_F32:
        if (n > 0) memcpy(out, src, n * size);
        return true;
    case S2_F64:
        for (size_t i = 0; i < n; i++) {
            double v;
            memcpy(&v, src + i * size, size);
            out[i] = (float)v;
        }
        return true;
    case S2_F16:
    case S2_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t v;
            memcpy(&v, src + i * size, size);
            out[i] = t->dtype == S2_F16 ? s2_from_f16(v) : s2_from_bf16(v);
        }
        return true;
    case S2_I64:
    case S2_I32:
    case S2_I16:
    case S2_I8:
    case S2_U8:
    case S2_BOOL: break;
    }
    return false;
}

const char *s2_shape_text(const int64_t *dim, int ndim, char *buf, size_t size)
{
    if (size == 0) return buf;
    size_t used = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < ndim && used < size; i++) {
        used += (size_t)snprintf(buf + used, size - used, i ? ",%lld" : "%lld", (long long)dim[i]);
    }
    if (used < size) snprintf(buf + used, size - used, "]");
    return buf;
}

size_t s2_mask_stride(int width)
{
    return ((size_t)width + 31) / 32 * 4;
}

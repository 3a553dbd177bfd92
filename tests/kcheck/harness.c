/* harness.c - memory on all sides, random content, comparison */
#include "kcheck.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY      64
#define CANARY_BYTE 0xa5
#define POISON_BITS 0x7fdedead /* a quiet NaN, and one that is nobody's default in 16 bits either */

struct kc_run kc;

static struct {
    char name[160];
    bool failed;
    struct kc_buffer *buffers;
    void *scratch[4096];
    int n_scratch;
    uint64_t random;
} the_case;

static void out_of_memory(void)
{
    fprintf(stderr, "kcheck: out of memory\n");
    exit(7);
}

/* ------------------------------------------------------------------ random numbers: splitmix64 */

static uint64_t next_random(void)
{
    uint64_t z = the_case.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double kc_uniform(void)
{
    return (double)(next_random() >> 11) * 0x1p-52 - 1;
}

int kc_below(int n)
{
    return (int)(next_random() % (uint64_t)n);
}

/* ------------------------------------------------------------------ cases */

void kc_begin(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(the_case.name, sizeof the_case.name, fmt, ap);
    va_end(ap);
    the_case.failed = false;
    /* seeded by its name: a case does not depend on the ones before it */
    the_case.random = 0xcbf29ce484222325u;
    for (const char *s = the_case.name; *s; s++) { the_case.random = (the_case.random ^ (uint8_t)*s) * 0x100000001b3u; }
}

void kc_fail(const char *fmt, ...)
{
    if (the_case.failed) return;
    the_case.failed = true;
    printf("FAIL  %s, %s: ", kc.op, the_case.name);
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

static const char *side_name(int s)
{
    return s == KC_ORACLE ? "oracle" : s == KC_TESTED ? "tested backend" : "tested backend, one thread";
}

void kc_wait(int side)
{
    if (kc.be[side]->ops->sync) kc.be[side]->ops->sync(kc.be[side]);
}

bool kc_reachable(int side)
{
    return !kc.bench && kc.be[side]->ops->alloc_host != NULL;
}

static char *fetch(const struct kc_buffer *b, int s)
{
    const size_t bytes = b->on[s].bytes + 2 * CANARY;
    char *now = kc_scratch(bytes, 1);
    KC_CALL(s, download, now, b->on[s].base, bytes);
    kc_wait(s);
    return now;
}

static void check_canaries(const struct kc_buffer *b, const char *now, int s)
{
    for (size_t i = 0; i < CANARY; i++) {
        if ((uint8_t)now[i] != CANARY_BYTE) kc_fail("%s wrote %zu bytes before a buffer", side_name(s), CANARY - i);
        if ((uint8_t)now[CANARY + b->on[s].bytes + i] != CANARY_BYTE)
            kc_fail("%s wrote %zu bytes behind a buffer", side_name(s), i);
    }
}

static void check_untouched(const struct kc_buffer *b, int s, const char *how)
{
    const char *now = fetch(b, s);
    check_canaries(b, now, s);
    if (memcmp(now, b->on[s].host, b->on[s].bytes + 2 * CANARY) != 0) kc_fail("%s %s", side_name(s), how);
}

void kc_nothing_done(int side)
{
    for (const struct kc_buffer *b = the_case.buffers; b; b = b->next)
        check_untouched(b, side, "works while it should skip");
}

static void check_backends(void)
{
    KC_EACH(s)
    {
        struct s2_err err = {0};
        if (s2_backend_check(kc.be[s], &err) != S2_OK) {
            kc_fail("%s: %s", side_name(s), err.text);
            kc.be[s]->err = (struct s2_err){0};
            kc.be[s]->skip = false;
        }
    }
}

void kc_end(void)
{
    if (!kc.bench) {
        check_backends();
        for (struct kc_buffer *b = the_case.buffers; b; b = b->next) {
            KC_EACH(s)
            {
                if (!b->checked) check_untouched(b, s, "changed an input");
            }
        }
        kc.cases++;
        *(the_case.failed ? &kc.failed : &kc.passed) += 1;
    }
    while (the_case.buffers) {
        struct kc_buffer *b = the_case.buffers;
        the_case.buffers = b->next;
        KC_EACH(s)(kc_reachable(s) ? kc.be[s]->ops->free_host : kc.be[s]->ops->free)(kc.be[s], b->on[s].base);
        KC_EACH(s) free(b->on[s].host);
        free(b);
    }
    while (the_case.n_scratch > 0) free(the_case.scratch[--the_case.n_scratch]);
}

/* ------------------------------------------------------------------ memory */

void *kc_scratch(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p || the_case.n_scratch == (int)(sizeof the_case.scratch / sizeof *the_case.scratch)) out_of_memory();
    return the_case.scratch[the_case.n_scratch++] = p;
}

static void copy_in(struct kc_copy *copy, int s, const void *content, size_t bytes)
{
    const size_t whole = bytes + 2 * CANARY;
    copy->bytes = bytes;
    copy->host = malloc(whole);
    copy->base = (kc_reachable(s) ? kc.be[s]->ops->alloc_host : kc.be[s]->ops->alloc)(kc.be[s], whole);
    if (!copy->host || !copy->base) out_of_memory();
    memset(copy->host, CANARY_BYTE, whole);
    if (bytes > 0) memcpy(copy->host + CANARY, content, bytes);
    KC_CALL(s, upload, copy->base, copy->host, whole);
}

static struct kc_buffer *new_buffer(void)
{
    struct kc_buffer *b = calloc(1, sizeof *b);
    if (!b) out_of_memory();
    b->next = the_case.buffers;
    return the_case.buffers = b;
}

struct kc_buffer *kc_buffer(const void *content, size_t bytes)
{
    struct kc_buffer *b = new_buffer();
    KC_EACH(s) copy_in(&b->on[s], s, content, bytes);
    return b;
}

void *kc_at(const struct kc_buffer *b, int side)
{
    return b->on[side].base + CANARY;
}

struct kc_buffer *kc_floats(const float *v, size_t n)
{
    return kc_buffer(v, n * sizeof *v);
}

float *kc_random(size_t n, double scale)
{
    float *v = kc_scratch(n, sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = (float)(scale * kc_uniform());
    return v;
}

/* ------------------------------------------------------------------ tensors */

/* narrow: of each side's activation type, else of f32 */
static struct kc_tensor tensor(const float *content, bool narrow, int n, int h, int w, int c)
{
    struct kc_tensor t = {.buffer = new_buffer()};
    const size_t count = (size_t)n * (size_t)h * (size_t)w * (size_t)c;
    float *value = kc_scratch(count, sizeof *value);
    void *stored = kc_scratch(count, sizeof *value);
    for (size_t i = 0; i < count; i++) value[i] = narrow ? kc_rounded(content[i], kc.act) : content[i];
    KC_EACH(s)
    {
        const enum s2_dtype type = narrow ? kc.be[s]->act : S2_F32;
        kc_narrow(stored, value, count, type);
        copy_in(&t.buffer->on[s], s, stored, count * s2_dtype_size(type));
        t.on[s] = (struct s2_tensor){kc_at(t.buffer, s), type, n, h, w, c, c};
    }
    return t;
}

static const float *poison(int n, int h, int w, int c)
{
    const size_t count = (size_t)n * (size_t)h * (size_t)w * (size_t)c;
    const uint32_t bits = POISON_BITS;
    float *v = kc_scratch(count, sizeof *v);
    for (size_t i = 0; i < count; i++) memcpy(v + i, &bits, sizeof bits);
    return v;
}

struct kc_tensor kc_tensor_of(const float *content, int n, int h, int w, int c)
{
    return tensor(content, true, n, h, w, c);
}

struct kc_tensor kc_noise(int n, int h, int w, int c, double scale)
{
    return kc_tensor_of(kc_random((size_t)n * (size_t)h * (size_t)w * (size_t)c, scale), n, h, w, c);
}

struct kc_tensor kc_poison(int n, int h, int w, int c)
{
    return kc_tensor_of(poison(n, h, w, c), n, h, w, c);
}

struct kc_tensor kc_none(int n, int h, int w, int c)
{
    struct kc_tensor t = {0};
    KC_EACH(s) t.on[s] = (struct s2_tensor){NULL, kc.be[s]->act, n, h, w, c, c};
    return t;
}

struct kc_tensor kc_f32_of(const float *content, int n, int h, int w, int c)
{
    return tensor(content, false, n, h, w, c);
}

struct kc_tensor kc_noise_f32(int n, int h, int w, int c, double scale)
{
    return kc_f32_of(kc_random((size_t)n * (size_t)h * (size_t)w * (size_t)c, scale), n, h, w, c);
}

struct kc_tensor kc_poison_f32(int n, int h, int w, int c)
{
    return kc_f32_of(poison(n, h, w, c), n, h, w, c);
}

struct kc_tensor kc_columns(struct kc_tensor t, int first, int count)
{
    KC_EACH(s) t.on[s] = s2_columns(t.on[s], first, count);
    return t;
}

struct kc_tensor kc_batch(struct kc_tensor t, int first, int count)
{
    KC_EACH(s) t.on[s] = s2_batch(t.on[s], first, count);
    return t;
}

struct kc_tensor kc_shape(struct kc_tensor t, int n, int h, int w, int c)
{
    KC_EACH(s) t.on[s] = s2_shape(t.on[s], n, h, w, c);
    return t;
}

/* Place of an element in its buffer, in elements; the same on every side. */
static size_t place(const struct kc_tensor *t, int64_t token, int c)
{
    const struct s2_tensor *v = &t->on[KC_ORACLE];
    return (size_t)((float *)v->data - (float *)kc_at(t->buffer, KC_ORACLE)) + (size_t)(token * v->ld + c);
}

float kc_value(struct kc_tensor t, int64_t token, int c)
{
    return ((const float *)(t.buffer->on[KC_ORACLE].host + CANARY))[place(&t, token, c)];
}

/* ------------------------------------------------------------------ weights */

/* Backends round weights to their activation type when they take them, and may round biases. */
static const float *weights(size_t n, double scale)
{
    float *v = kc_random(n, scale);
    for (size_t i = 0; i < n; i++) v[i] = kc_rounded(v[i], kc.act);
    return v;
}

struct kc_linear kc_linear(int in, int out)
{
    struct kc_linear l = {.in = in, .out = out};
    l.w = weights((size_t)in * (size_t)out, sqrt(3.0 / in));
    l.b = weights((size_t)out, 1);
    KC_EACH(s) KC_CALL(s, linear_create, &l.on[s], l.w, l.b, in, out);
    return l;
}

void kc_linear_free(struct kc_linear *l)
{
    KC_EACH(s) KC_CALL(s, linear_destroy, &l->on[s]);
}

struct kc_conv kc_conv(int in, int out, int k, int stride, int pad, int groups)
{
    const int fan = in / groups * k * k;
    struct kc_conv c = {.w = weights((size_t)out * (size_t)fan, sqrt(3.0 / fan)), .b = weights((size_t)out, 1)};
    KC_EACH(s)
    {
        c.on[s] = (struct s2_conv){in, out, k, stride, pad, groups, NULL};
        KC_CALL(s, conv_create, &c.on[s], c.w, c.b);
    }
    return c;
}

void kc_conv_free(struct kc_conv *c)
{
    KC_EACH(s) KC_CALL(s, conv_destroy, &c->on[s]);
}

struct kc_norm kc_norm(int c, float eps)
{
    struct kc_norm n = {.weight = kc_random((size_t)c, 2), .bias = kc_random((size_t)c, 1)};
    const struct kc_buffer *weight = kc_floats(n.weight, (size_t)c), *bias = kc_floats(n.bias, (size_t)c);
    KC_EACH(s) n.on[s] = (struct s2_norm){c, eps, kc_at(weight, s), kc_at(bias, s)};
    return n;
}

/* ------------------------------------------------------------------ comparison */

/* tolerance NULL: got is what the oracle's value rounds to. Otherwise some number within the tolerance of the oracle's
 * rounds to got. */
static void compare_element(const struct s2_tensor *v, size_t i, float got, float want, const double *tolerance, int s)
{
    if (!tolerance) want = kc_rounded(want, v->dtype);
    const double apart = fabs((double)got - want), half = tolerance ? kc_half_ulp(got, v->dtype) : 0;
    const double difference = apart > half ? apart - half : 0, allowed = tolerance ? *tolerance : 0;
    if (isnan(got) || isnan(want) || difference > allowed) {
        kc_fail("%s: token %zu channel %zu of [%d,%d,%d,%d] is %.9g, oracle %.9g, tolerance %.3g", side_name(s),
                i / (size_t)v->c, i % (size_t)v->c, v->n, v->h, v->w, v->c, (double)got, (double)want, allowed + half);
    } else if (difference > 0 && difference / allowed > kc.worst) {
        kc.worst = difference / allowed;
    }
}

static void compare_side(const struct kc_tensor *y, const double *tolerance, const char *want, int s)
{
    const struct s2_tensor *v = &y->on[s];
    char *now = fetch(y->buffer, s);
    check_canaries(y->buffer, now, s);
    const char *got = now + CANARY, *before = y->buffer->on[s].host + CANARY;
    const float *oracle = (const float *)(want + CANARY);
    const size_t size = s2_dtype_size(v->dtype), count = (size_t)s2_elements(*v), all = y->buffer->on[s].bytes / size;
    bool *inside = kc_scratch(all, sizeof *inside);
    for (size_t i = 0; i < count; i++) {
        const size_t at = place(y, (int64_t)(i / (size_t)v->c), (int)(i % (size_t)v->c));
        inside[at] = true;
        if (!tolerance || tolerance[i] >= 0) {
            compare_element(v, i, kc_widened(got, at, v->dtype), oracle[at], tolerance ? tolerance + i : NULL, s);
        }
    }
    for (size_t i = 0; i < all; i++) {
        if (!inside[i] && memcmp(got + i * size, before + i * size, size) != 0) {
            kc_fail("%s wrote between the channels of its output", side_name(s));
        }
    }
}

void kc_close(struct kc_tensor y, const double *tolerance)
{
    y.buffer->checked = true;
    const char *oracle = fetch(y.buffer, KC_ORACLE);
    KC_EACH(s) compare_side(&y, tolerance, oracle, s);
    const size_t bytes = y.buffer->on[KC_TESTED].bytes + 2 * CANARY;
    if (memcmp(fetch(y.buffer, KC_TESTED), fetch(y.buffer, KC_OTHER), bytes) != 0) {
        kc_fail("another number of threads gives other bytes");
    }
}

void kc_equal(struct kc_tensor y)
{
    kc_close(y, NULL);
}

void kc_equal_bytes(struct kc_buffer *b)
{
    b->checked = true;
    const char *oracle = fetch(b, KC_ORACLE);
    KC_EACH(s)
    {
        const char *now = fetch(b, s);
        check_canaries(b, now, s);
        for (size_t i = 0; i < b->on[s].bytes; i++) {
            if (now[CANARY + i] == oracle[CANARY + i]) continue;
            kc_fail("%s: byte %zu is %02x, oracle %02x", side_name(s), i, (uint8_t)now[CANARY + i],
                    (uint8_t)oracle[CANARY + i]);
            break;
        }
    }
}

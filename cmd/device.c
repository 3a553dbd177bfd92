/* device.c - see device.h. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "log.h"
#ifdef HAVE_CUDA
#include "../cuda/cuda.h"
#endif

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool wants_cuda(const char *device)
{
    return strncmp(device, "cuda", 4) == 0 && (device[4] == 0 || device[4] == ':');
}

static enum s2_status check_no_graph(const struct cmd_device_options *o, struct s2_err *err)
{
    if (!is(o->graph, "on")) return S2_OK;
    return s2_fail(err, S2_E_USAGE, "--graph on needs a GPU, and the run is on the CPU, which has no graphs; use auto");
}

enum s2_status cmd_device_check(const struct cmd_device_options *o, struct s2_err *err)
{
    if (wants_cuda(o->device)) {
#ifndef HAVE_CUDA
        return s2_fail(err, S2_E_DEVICE, "--device %s: this build has no CUDA backend; use --device cpu", o->device);
#endif
        const char *n = o->device + 5;
        if (o->device[4] == ':' && (strspn(n, "0123456789") != strlen(n) || strlen(n) == 0 || strlen(n) > 4)) {
            return s2_fail(err, S2_E_USAGE, "--device %s: the number of the GPU is missing; use cuda or cuda:0",
                           o->device);
        }
        return S2_OK;
    }
    if (!is(o->device, "auto") && !is(o->device, "cpu")) {
        return s2_fail(err, S2_E_USAGE, "--device %s: expected auto, cpu, cuda or cuda:N", o->device);
    }
    if (is(o->device, "cpu") && is(o->precision, "fp16")) {
        return s2_fail(err, S2_E_USAGE,
                       "--precision fp16 needs a GPU; the CPU computes in fp32, and in bf16 if it has Intel AMX");
    }
    return is(o->device, "cpu") ? check_no_graph(o, err) : S2_OK;
}

static enum s2_status open_cpu(const struct cmd_device_options *o, struct cmd_device *d, struct s2_err *err)
{
    if (check_no_graph(o, err)) return err->status;
    if (is(o->precision, "fp16")) {
        return s2_fail(err, S2_E_DEVICE, "--precision fp16 needs a GPU and none can be used; use fp32");
    }
    const bool bf16 = is(o->precision, "bf16");
    if (!(d->backend = s2_cpu_open(o->threads, bf16 ? S2_BF16 : S2_F32, err))) return err->status;
    d->name = "cpu", d->precision = bf16 ? "bf16" : "fp32";
    snprintf(d->text, sizeof d->text, "the CPU (%s)", s2_cpu_describe(d->backend));
    return S2_OK;
}

#ifdef HAVE_CUDA
static enum s2_status open_cuda(const struct cmd_device_options *o, struct cmd_device *d, struct s2_err *err)
{
    d->name = "cuda", d->precision = is(o->precision, "auto") ? "bf16" : o->precision;
    const struct cu_options options = {.device = wants_cuda(o->device) && o->device[4] ? atoi(o->device + 5) : 0,
                                       .precision = is(d->precision, "bf16")   ? S2_BF16
                                                    : is(d->precision, "fp16") ? S2_F16
                                                                               : S2_F32,
                                       .graph = is(o->graph, "off")  ? CU_GRAPH_OFF
                                                : is(o->graph, "on") ? CU_GRAPH_ON
                                                                     : CU_GRAPH_AUTO};
    if (!(d->backend = cu_open(&options, err))) return err->status;
    snprintf(d->text, sizeof d->text, "%s", cu_describe(d->backend));
    return S2_OK;
}
#endif

enum s2_status cmd_device_open(const struct cmd_device_options *o, struct cmd_device *d, struct s2_err *err)
{
#ifdef HAVE_CUDA
    if (wants_cuda(o->device)) return open_cuda(o, d, err);
    if (is(o->device, "auto")) {
        struct s2_err why = {0};
        if (open_cuda(o, d, &why) == S2_OK) return S2_OK;
        s2_log(S2_LOG_INFO, "--device auto takes the CPU: %s", why.text);
    }
#else
    if (is(o->device, "auto")) s2_log(S2_LOG_INFO, "--device auto takes the CPU: this build has no CUDA backend");
#endif
    return open_cpu(o, d, err);
}

#ifdef HAVE_CUDA
static void report_eager(const struct cu_eager *e, struct cmd_json *j)
{
    cmd_json_object(j, NULL);
    cmd_json_string(j, "reason", e->why);
    cmd_json_string(j, "program", s2_program_name(e->program));
    cmd_json_integer(j, "objects", e->batch);
    cmd_json_array(j, "outputs");
    if (e->outputs & S2_OUTPUT_MASKS) cmd_json_string(j, NULL, "masks");
    if (e->outputs & S2_OUTPUT_OWNER) cmd_json_string(j, NULL, "owner");
    cmd_json_end(j);
    cmd_json_integer(j, "count", e->count);
    cmd_json_end(j);
}

static void report_graphs(const struct cu_graph_stats *g, struct cmd_json *j)
{
    static const char *const modes[] = {[CU_GRAPH_AUTO] = "auto", [CU_GRAPH_ON] = "on", [CU_GRAPH_OFF] = "off"};
    cmd_json_object(j, "graph");
    cmd_json_string(j, "mode", modes[g->mode]);
    cmd_json_integer(j, "signatures", g->signatures);
    cmd_json_integer(j, "captures", g->captures);
    cmd_json_number(j, "capture_seconds", g->capture_seconds, 5);
    cmd_json_integer(j, "replays", g->replays);
    cmd_json_integer(j, "eager", g->eager);
    cmd_json_array(j, "eager_reasons");
    for (int i = 0; i < g->n_reasons; i++) report_eager(&g->reason[i], j);
    cmd_json_end(j);
    cmd_json_end(j);
}
#endif

void cmd_device_report(const struct cmd_device *d, struct cmd_json *j)
{
#ifdef HAVE_CUDA
    if (is(d->name, "cuda")) {
        struct cu_graph_stats g;
        size_t now, peak;
        cu_graph_get_stats(d->backend, &g);
        cu_memory(d->backend, &now, &peak);
        double busy, idle;
        cu_times(d->backend, &busy, &idle);
        report_graphs(&g, j);
        cmd_json_number(j, "device_busy_seconds", busy, 6);
        cmd_json_number(j, "device_idle_seconds", idle, 6);
        cmd_json_number(j, "device_memory_mib", (double)peak / 1048576.0, 6);
    }
#endif
    (void)d, (void)j;
}

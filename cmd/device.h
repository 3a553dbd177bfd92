/* device.h - which machine a run computes on, from --device, --precision, --graph and --threads. */
#ifndef CMD_DEVICE_H
#define CMD_DEVICE_H

#include "../engine/engine.h"

struct cmd_device_options {
    const char *device;    /* "auto", "cpu", "cuda" or "cuda:N" */
    const char *precision; /* "auto", "fp32", "bf16", "fp16" */
    const char *graph;     /* "auto", "on" or "off" */
    int threads;
};

/* Checks --device's value and that precision and graph fit it; S2_E_USAGE, or S2_E_DEVICE for a GPU in a build
 * without CUDA. */
enum s2_status cmd_device_check(const struct cmd_device_options *, struct s2_err *);

struct cmd_device {
    struct s2_backend *backend;
    const char *name;      /* "cpu" or "cuda" */
    const char *precision; /* "fp32", "bf16", "fp16" */
    char text[400];        /* "the CPU (AVX-512, 2 threads)", "NVIDIA H200, sm_90, CUDA 13.0" */
};

/* Opens what was asked for; "auto" takes a GPU if one works, else the CPU, and logs why. */
enum s2_status cmd_device_open(const struct cmd_device_options *, struct cmd_device *, struct s2_err *);

/* Appends what only a device knows to a --stats report. */
struct cmd_json;
void cmd_device_report(const struct cmd_device *, struct cmd_json *);

#endif

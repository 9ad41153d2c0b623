/* Processes that use a GPU: `process.<pid> = <bytes>`, of a MIG instance `mig.<id>.process.<pid>`. */
#include "devices.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 256 };
typedef struct { Process found[MOST]; unsigned count; Handle device; } Processes;

static bool take_process(const char *pid, const char *bytes, void *into) {
    Processes *processes = into;
    bool instance = is_instance(processes->device);
    processes->found[processes->count++] = (Process){
        .pid = (unsigned)strtoul(pid, NULL, 10),
        .bytes = strcmp(bytes, "unknown") ? strtoull(bytes, NULL, 0) : NOT_AVAILABLE,
        .gpu_instance = instance ? (unsigned)processes->device->instance : NO_INSTANCE,
        .compute_instance = instance ? 0 : NO_INSTANCE,
    };
    return processes->count < MOST;
}

/* Of a whole GPU, those in its instances too. */
static void find_processes(Handle device, const char *prefix, Processes *processes) {
    processes->device = device;
    state_each(device->gpu, device->instance, prefix, take_process, processes);
    if (is_instance(device)) return;
    int instances[MAX_INSTANCES], count = state_instances(device->gpu, instances);
    for (int i = 0; i < count && processes->count < MOST; i++) {
        processes->device = device_of(device->gpu, instances[i]);
        state_each(device->gpu, instances[i], prefix, take_process, processes);
    }
}

/* Some drivers of the 535 branch wrote longer entries than the header of this version says: `driver.process_bytes = 32`. */
static size_t stride(void) {
    uint64_t bytes;
    return state_number(DRIVER, WHOLE_GPU, "driver.process_bytes", &bytes) == OK ? bytes : sizeof(Process);
}

static Return processes_of(Handle device, const char *prefix, unsigned *count, Process *out) {
    uint64_t listed = 0;
    state_number(device->gpu, WHOLE_GPU, "processes", &listed);
    if (!listed) return NOT_SUPPORTED;
    Processes processes = {.count = 0};
    find_processes(device, prefix, &processes);
    unsigned room = *count;
    *count = processes.count;
    if (processes.count > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < processes.count; i++) {
        memset((char *)out + i * stride(), 0, stride());
        memcpy((char *)out + i * stride(), &processes.found[i], sizeof(Process));
    }
    return OK;
}

#define PROCESSES(function, prefix)                                           \
    EXPORT Return function(Handle device, unsigned *count, Process *out) {    \
        BEGIN_ON(device);                                                     \
        END(processes_of(device, prefix, count, out));                        \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "process.")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "process.")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics_process.")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics_process.")

typedef struct { ProcessUtilization found[MOST]; unsigned count; } Samples;

static bool take_sample(const char *pid, const char *value, void *into) {
    Samples *samples = into;
    ProcessUtilization *sample = &samples->found[samples->count++];
    char *rest;
    *sample = (ProcessUtilization){.pid = (unsigned)strtoul(pid, NULL, 10), .timestamp_us = (uint64_t)realtime_us()};
    sample->sm = (unsigned)strtoul(value, &rest, 10);
    sample->memory = (unsigned)strtoul(rest, &rest, 10);
    sample->encoder = (unsigned)strtoul(rest, &rest, 10);
    sample->decoder = (unsigned)strtoul(rest, &rest, 10);
    return samples->count < MOST;
}

/* `process_utilization.<pid> = <sm> <memory> <encoder> <decoder>` in percent; not with MIG, and NOT_FOUND where all are idle. */
EXPORT Return nvmlDeviceGetProcessUtilization(Handle device, ProcessUtilization *out, unsigned *count, uint64_t since_us) {
    BEGIN_ON(device);
    uint64_t listed = 0, mig = 0;
    state_number(device->gpu, WHOLE_GPU, "processes", &listed);
    state_number(device->gpu, WHOLE_GPU, "mig", &mig);
    if (!listed || mig) END(NOT_SUPPORTED);
    Samples samples = {.count = 0};
    state_each(device->gpu, WHOLE_GPU, "process_utilization.", take_sample, &samples);
    unsigned room = *count;
    *count = samples.count;
    if (!samples.count || since_us > (uint64_t)realtime_us()) END(NOT_FOUND);
    if (!out || samples.count > room) END(INSUFFICIENT_SIZE);
    memcpy(out, samples.found, samples.count * sizeof(ProcessUtilization));
    END(OK);
}

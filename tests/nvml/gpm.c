/* GPM: two samples, and what happened between them. A metric's value is what the state said when the second was taken. */
#include "devices.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct Sample {
    Handle device; /* NULL until it is taken */
    int64_t taken_us;
    unsigned count;
    struct { unsigned id; double value; } metrics[GPM_METRICS];
};

static bool supported(Handle device) {
    uint64_t says = 0;
    return state_number(device->gpu, WHOLE_GPU, "gpm_supported", &says) == OK && says;
}

EXPORT Return nvmlGpmQueryDeviceSupport(Handle device, GpmSupport *out) {
    BEGIN_ON(device);
    if (out->version != 1) END(VERSION_MISMATCH);
    out->supported = supported(device);
    END(state_has(device->gpu, WHOLE_GPU, "gpm_supported") ? OK : NOT_SUPPORTED);
}

EXPORT Return nvmlGpmSampleAlloc(struct Sample **out) {
    BEGIN;
    *out = calloc(1, sizeof **out);
    END(*out ? OK : MEMORY);
}

EXPORT Return nvmlGpmSampleFree(struct Sample *sample) {
    BEGIN;
    free(sample);
    END(OK);
}

static bool take_metric(const char *id, const char *value, void *into) {
    struct Sample *sample = into;
    sample->metrics[sample->count].id = (unsigned)strtoul(id, NULL, 10);
    sample->metrics[sample->count].value = strtod(value, NULL);
    return ++sample->count < GPM_METRICS;
}

static Return take(Handle device, struct Sample *sample) {
    if (!sample) return INVALID_ARGUMENT;
    if (!supported(device)) return NOT_SUPPORTED;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    sample->device = device;
    sample->taken_us = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    sample->count = 0;
    state_each(device->gpu, device->instance, "gpm.", take_metric, sample);
    return OK;
}

EXPORT Return nvmlGpmSampleGet(Handle device, struct Sample *sample) {
    BEGIN_ON(device);
    END(is_instance(device) ? INVALID_ARGUMENT : take(device, sample));
}

EXPORT Return nvmlGpmMigSampleGet(Handle device, unsigned instance, struct Sample *sample) {
    BEGIN_ON(device);
    bool exists = instance < MAX_INSTANCES && state_has(device->gpu, (int)instance, "uuid");
    END(is_instance(device) || !exists ? INVALID_ARGUMENT : take(device_of(device->gpu, (int)instance), sample));
}

static void answer(const struct Sample *sample, GpmMetric *metric) {
    metric->result = NOT_SUPPORTED;
    metric->value = 0;
    for (unsigned i = 0; i < sample->count; i++) {
        if (sample->metrics[i].id != metric->id) continue;
        metric->result = OK;
        metric->value = sample->metrics[i].value;
    }
}

/* Samples that were never taken, are of two devices, or come in the wrong order, are the caller's fault. */
EXPORT Return nvmlGpmMetricsGet(GpmRequest *request) {
    BEGIN;
    const struct Sample *first = request->first, *second = request->second;
    if (request->version != 1) END(VERSION_MISMATCH);
    if (!first || !second || !first->device || first->device != second->device) END(INVALID_ARGUMENT);
    if (first->taken_us >= second->taken_us || request->count > GPM_METRICS) END(INVALID_ARGUMENT);
    Return fault = meet_faults(__func__, second->device->gpu);
    for (unsigned i = 0; fault == OK && i < request->count; i++) answer(second, &request->metrics[i]);
    END(fault);
}

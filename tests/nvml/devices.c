/* Which GPUs and MIG instances there are, and who they are. */
#include "devices.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A handle stays valid, as in the driver, when its GPU is lost. */
static struct Device devices[MAX_GPUS][1 + MAX_INSTANCES];

__attribute__((constructor)) static void number_devices(void) {
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        for (int instance = 0; instance < MAX_INSTANCES; instance++) devices[gpu][instance] = (struct Device){gpu, instance};
        devices[gpu][MAX_INSTANCES] = (struct Device){gpu, WHOLE_GPU};
    }
}

Handle device_of(int gpu, int instance) { return &devices[gpu][instance == WHOLE_GPU ? MAX_INSTANCES : instance]; }

bool is_instance(Handle device) { return device->instance != WHOLE_GPU; }

Return device_number(Handle device, const char *key, uint64_t *out) {
    return state_number(device->gpu, device->instance, key, out);
}

Return device_uint(Handle device, const char *key, unsigned *out) {
    uint64_t number;
    Return result = device_number(device, key, &number);
    if (result == OK) *out = (unsigned)number;
    return result;
}

Return device_text(Handle device, const char *key, char *out, unsigned size) {
    char text[TEXT_SIZE];
    if (!state_text(device->gpu, device->instance, key, text, sizeof text)) return NOT_SUPPORTED;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return OK;
}

/* The GPU at a place in the driver's list, which leaves out those that are gone; -1 past its end. */
static int gpu_at(unsigned place) {
    for (int gpu = 0; gpu < state_gpus(); gpu++)
        if (!state_faults(gpu).gone && place-- == 0) return gpu;
    return -1;
}

static unsigned place_of(int wanted) {
    unsigned place = 0;
    for (int gpu = 0; gpu < wanted; gpu++) place += !state_faults(gpu).gone;
    return place;
}

static Return give_handle(const char *function, int gpu, int instance, Handle *out) {
    if (state_faults(gpu).gone) return NOT_FOUND;
    *out = device_of(gpu, instance);
    return meet_faults(function, gpu);
}

EXPORT Return nvmlDeviceGetCount_v2(unsigned *out) {
    BEGIN;
    *out = place_of(state_gpus());
    END(OK);
}

EXPORT Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *out) {
    BEGIN;
    int gpu = gpu_at(index);
    END(gpu < 0 ? INVALID_ARGUMENT : give_handle(__func__, gpu, WHOLE_GPU, out));
}

EXPORT Return nvmlDeviceGetHandleByUUID(const char *uuid, Handle *out) {
    BEGIN;
    char text[TEXT_SIZE];
    for (int gpu = 0; gpu < state_gpus(); gpu++) {
        if (state_text(gpu, WHOLE_GPU, "uuid", text, sizeof text) && !strcmp(text, uuid))
            END(give_handle(__func__, gpu, WHOLE_GPU, out));
        int instances[MAX_INSTANCES], count = state_instances(gpu, instances);
        for (int i = 0; i < count; i++)
            if (state_text(gpu, instances[i], "uuid", text, sizeof text) && !strcmp(text, uuid))
                END(give_handle(__func__, gpu, instances[i], out));
    }
    END(NOT_FOUND);
}

/* Only the end is compared, since callers write the domain with four digits or with eight. */
static bool same_bus_id(const char *a, const char *b) {
    const char *end_a = strchr(a, ':'), *end_b = strchr(b, ':');
    return end_a && end_b && !strcasecmp(end_a, end_b);
}

EXPORT Return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Handle *out) {
    BEGIN;
    char text[TEXT_SIZE];
    for (int gpu = 0; gpu < state_gpus(); gpu++)
        if (state_text(gpu, WHOLE_GPU, "pci_bus_id", text, sizeof text) && same_bus_id(text, bus_id))
            END(give_handle(__func__, gpu, WHOLE_GPU, out));
    END(NOT_FOUND);
}

EXPORT Return nvmlDeviceGetUUID(Handle device, char *out, unsigned size) {
    BEGIN_ON(device);
    END(device_text(device, "uuid", out, size));
}

/* An instance is named after its GPU and its profile. */
EXPORT Return nvmlDeviceGetName(Handle device, char *out, unsigned size) {
    BEGIN_ON(device);
    Return result = device_text(device_of(device->gpu, WHOLE_GPU), "name", out, size);
    char profile[TEXT_SIZE];
    if (result == OK && is_instance(device) && device_text(device, "profile", profile, sizeof profile) == OK)
        snprintf(out + strlen(out), size - strlen(out), " MIG %s", profile);
    END(result);
}

EXPORT Return nvmlDeviceGetSerial(Handle device, char *out, unsigned size) {
    BEGIN_ON(device);
    END(device_text(device, "serial", out, size));
}

EXPORT Return nvmlDeviceGetIndex(Handle device, unsigned *out) {
    BEGIN_ON(device);
    int instances[MAX_INSTANCES], count = state_instances(device->gpu, instances);
    if (!is_instance(device)) *out = place_of(device->gpu);
    for (int i = 0; is_instance(device) && i < count; i++)
        if (instances[i] == device->instance) *out = (unsigned)i;
    END(OK);
}

EXPORT Return nvmlDeviceGetPciInfo_v3(Handle device, PciInfo *out) {
    BEGIN_ON(device);
    PciInfo info = {0};
    Return result = device_text(device, "pci_bus_id", info.bus_id, sizeof info.bus_id);
    if (result != OK) END(result);
    sscanf(info.bus_id, "%x:%x:%x", &info.domain, &info.bus, &info.device);
    unsigned domain = info.domain & 0xFFFF, bus = info.bus & 0xFF, slot = info.device & 0xFF;
    snprintf(info.bus_id_legacy, sizeof info.bus_id_legacy, "%04x:%02x:%02x.0", domain, bus, slot);
    device_uint(device, "pci_device_id", &info.device_id);
    device_uint(device, "pci_subsystem_id", &info.subsystem_id);
    *out = info;
    END(OK);
}

EXPORT Return nvmlDeviceGetMigMode(Handle device, unsigned *current, unsigned *pending) {
    BEGIN_ON(device);
    Return result = device_uint(device, "mig", current);
    if (result == OK && device_uint(device, "mig_pending", pending) != OK) *pending = *current;
    END(result);
}

EXPORT Return nvmlDeviceGetMaxMigDeviceCount(Handle device, unsigned *out) {
    BEGIN_ON(device);
    if (device_uint(device, "mig_max", out) != OK) *out = 0;
    END(OK);
}

EXPORT Return nvmlDeviceGetMigDeviceHandleByIndex(Handle device, unsigned index, Handle *out) {
    BEGIN_ON(device);
    unsigned mig = 0;
    if (device_uint(device, "mig", &mig) != OK) END(NOT_SUPPORTED);
    int instances[MAX_INSTANCES], count = mig ? state_instances(device->gpu, instances) : 0;
    if (index >= (unsigned)count) END(NOT_FOUND);
    *out = device_of(device->gpu, instances[index]);
    END(OK);
}

EXPORT Return nvmlDeviceIsMigDeviceHandle(Handle device, unsigned *out) {
    BEGIN_ON(device);
    *out = is_instance(device);
    END(OK);
}

EXPORT Return nvmlDeviceGetGpuInstanceId(Handle device, unsigned *out) {
    BEGIN_ON(device);
    if (!is_instance(device)) END(INVALID_ARGUMENT);
    *out = (unsigned)device->instance;
    END(OK);
}

EXPORT Return nvmlDeviceGetComputeInstanceId(Handle device, unsigned *out) {
    BEGIN_ON(device);
    if (!is_instance(device)) END(INVALID_ARGUMENT);
    if (device_uint(device, "compute_instance", out) != OK) *out = 0;
    END(OK);
}

EXPORT Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle device, Handle *out) {
    BEGIN_ON(device);
    if (!is_instance(device)) END(INVALID_ARGUMENT);
    *out = device_of(device->gpu, WHOLE_GPU);
    END(OK);
}

EXPORT Return nvmlDeviceGetAttributes_v2(Handle device, Attributes *out) {
    BEGIN_ON(device);
    if (!is_instance(device)) END(NOT_SUPPORTED);
    uint64_t bytes = 0;
    *out = (Attributes){0};
    device_uint(device, "multiprocessors", &out->multiprocessors);
    device_uint(device, "gpu_slices", &out->gpu_slices);
    device_uint(device, "compute_slices", &out->compute_slices);
    device_number(device, "memory_total", &bytes);
    out->memory_mb = bytes >> 20;
    END(OK);
}

/* Calls that give one value, or a few that belong together. */
#include "devices.h"

#include <stdlib.h>
#include <string.h>

#define UINT_OF(function, key)                            \
    EXPORT Return function(Handle device, unsigned *out) { \
        BEGIN_ON(device);                                 \
        END(device_uint(device, key, out));               \
    }

UINT_OF(nvmlDeviceGetArchitecture, "architecture")
UINT_OF(nvmlDeviceGetMinorNumber, "minor")
UINT_OF(nvmlDeviceGetPowerUsage, "power_mw")
UINT_OF(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
UINT_OF(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
UINT_OF(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_limit_mw")
UINT_OF(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
UINT_OF(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
UINT_OF(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UINT_OF(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
UINT_OF(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
UINT_OF(nvmlDeviceGetPersistenceMode, "persistence_mode")
UINT_OF(nvmlDeviceGetPerformanceState, "performance_state")
UINT_OF(nvmlDeviceGetFanSpeed, "fan_speed")
UINT_OF(nvmlDeviceGetComputeMode, "compute_mode")
UINT_OF(nvmlDeviceGetRetiredPagesPendingStatus, "retired.pending")

static Return throttle_reasons(Handle device, uint64_t *out) { return device_number(device, "throttle_reasons", out); }

EXPORT Return nvmlDeviceGetCurrentClocksEventReasons(Handle device, uint64_t *out) {
    BEGIN_ON(device);
    END(throttle_reasons(device, out));
}

EXPORT Return nvmlDeviceGetCurrentClocksThrottleReasons(Handle device, uint64_t *out) {
    BEGIN_ON(device);
    END(throttle_reasons(device, out));
}

EXPORT Return nvmlDeviceGetTotalEnergyConsumption(Handle device, uint64_t *out) {
    BEGIN_ON(device);
    END(device_number(device, "energy_mj", out));
}

EXPORT Return nvmlDeviceGetUtilizationRates(Handle device, Utilization *out) {
    BEGIN_ON(device);
    Return result = device_uint(device, "utilization_gpu", &out->gpu);
    END(result == OK ? device_uint(device, "utilization_memory", &out->memory) : result);
}

static Return memory(Handle device, MemoryV2 *out) {
    Return result = device_number(device, "memory_total", &out->total);
    out->used = out->reserved = 0;
    device_number(device, "memory_used", &out->used);
    device_number(device, "memory_reserved", &out->reserved);
    if (device_number(device, "memory_free", &out->free) != OK) out->free = out->total - out->used - out->reserved;
    return result;
}

/* The older form has no word for what is reserved, and counts it as used. */
EXPORT Return nvmlDeviceGetMemoryInfo(Handle device, Memory *out) {
    BEGIN_ON(device);
    MemoryV2 now = {0};
    Return result = memory(device, &now);
    *out = (Memory){now.total, now.free, now.used + now.reserved};
    END(result);
}

EXPORT Return nvmlDeviceGetMemoryInfo_v2(Handle device, MemoryV2 *out) {
    BEGIN_ON(device);
    if (out->version != (sizeof(MemoryV2) | 2u << 24)) END(VERSION_MISMATCH);
    END(memory(device, out));
}

EXPORT Return nvmlDeviceGetBAR1MemoryInfo(Handle device, Memory *out) {
    BEGIN_ON(device);
    Return result = device_number(device, "bar1_total", &out->total);
    out->used = 0;
    device_number(device, "bar1_used", &out->used);
    out->free = out->total - out->used;
    END(result);
}

static Return clock_of(Handle device, const char *const keys[4], unsigned domain, unsigned *out) {
    return domain < 4 ? device_uint(device, keys[domain], out) : INVALID_ARGUMENT;
}

EXPORT Return nvmlDeviceGetClockInfo(Handle device, unsigned domain, unsigned *out) {
    static const char *const keys[4] = {"clock_graphics_mhz", "clock_sm_mhz", "clock_memory_mhz", "clock_video_mhz"};
    BEGIN_ON(device);
    END(clock_of(device, keys, domain, out));
}

EXPORT Return nvmlDeviceGetMaxClockInfo(Handle device, unsigned domain, unsigned *out) {
    static const char *const keys[4] = {
        "clock_max_graphics_mhz", "clock_max_sm_mhz", "clock_max_memory_mhz", "clock_max_video_mhz"};
    BEGIN_ON(device);
    END(clock_of(device, keys, domain, out));
}

EXPORT Return nvmlDeviceGetTemperature(Handle device, unsigned sensor, unsigned *out) {
    BEGIN_ON(device);
    END(sensor ? INVALID_ARGUMENT : device_uint(device, "temperature", out));
}

EXPORT Return nvmlDeviceGetTemperatureV(Handle device, TemperatureV1 *out) {
    BEGIN_ON(device);
    if (out->version != (sizeof(TemperatureV1) | 1u << 24)) END(VERSION_MISMATCH);
    END(out->sensor ? INVALID_ARGUMENT : device_uint(device, "temperature", (unsigned *)&out->temperature));
}

EXPORT Return nvmlDeviceGetTemperatureThreshold(Handle device, unsigned threshold, unsigned *out) {
    static const char *const keys[] = {"temperature_threshold.shutdown", "temperature_threshold.slowdown",
                                       "temperature_threshold.memory_max", "temperature_threshold.gpu_max"};
    BEGIN_ON(device);
    END(threshold < 4 ? device_uint(device, keys[threshold], out) : NOT_SUPPORTED);
}

EXPORT Return nvmlDeviceGetViolationStatus(Handle device, unsigned policy, Violation *out) {
    static const char *const keys[12] = {
        [0] = "throttle_ns.power_cap",        [1] = "throttle_ns.thermal",     [2] = "throttle_ns.sync_boost",
        [3] = "throttle_ns.board_limit",      [4] = "throttle_ns.low_utilization", [5] = "throttle_ns.reliability",
        [10] = "throttle_ns.application_clocks", [11] = "throttle_ns.base_clocks"};
    BEGIN_ON(device);
    if (policy >= 12 || !keys[policy]) END(INVALID_ARGUMENT);
    out->reference_ns = (uint64_t)realtime_us() * 1000;
    END(device_number(device, keys[policy], &out->violation_ns));
}

EXPORT Return nvmlDeviceGetTotalEccErrors(Handle device, unsigned kind, unsigned counter, uint64_t *out) {
    static const char *const keys[2][2] = {{"ecc.corrected.volatile", "ecc.corrected.aggregate"},
                                           {"ecc.uncorrected.volatile", "ecc.uncorrected.aggregate"}};
    BEGIN_ON(device);
    END(kind < 2 && counter < 2 ? device_number(device, keys[kind][counter], out) : INVALID_ARGUMENT);
}

EXPORT Return nvmlDeviceGetEccMode(Handle device, unsigned *current, unsigned *pending) {
    BEGIN_ON(device);
    Return result = device_uint(device, "ecc_mode", current);
    if (result == OK) *pending = *current;
    END(result);
}

EXPORT Return nvmlDeviceGetRemappedRows(
    Handle device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    BEGIN_ON(device);
    Return result = device_uint(device, "remapped.correctable", corrected);
    if (result == OK) result = device_uint(device, "remapped.uncorrectable", uncorrected);
    if (result == OK) result = device_uint(device, "remapped.pending", pending);
    END(result == OK ? device_uint(device, "remapped.failure", failure) : result);
}

/* As many made-up addresses as pages are retired. */
static Return retired_pages(Handle device, unsigned cause, unsigned *count, uint64_t *addresses, uint64_t *times) {
    unsigned pages, room = *count;
    if (cause > 1) return INVALID_ARGUMENT;
    Return result = device_uint(device, cause ? "retired.uncorrected" : "retired.corrected", &pages);
    if (result != OK) return result;
    *count = pages;
    if (pages > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < pages; i++) {
        addresses[i] = (uint64_t)(i + 1) << 16;
        if (times) times[i] = 1700000000 + i;
    }
    return OK;
}

EXPORT Return nvmlDeviceGetRetiredPages(Handle device, unsigned cause, unsigned *count, uint64_t *addresses) {
    BEGIN_ON(device);
    END(retired_pages(device, cause, count, addresses, NULL));
}

EXPORT Return nvmlDeviceGetRetiredPages_v2(Handle device, unsigned cause, unsigned *count, uint64_t *addresses, uint64_t *times) {
    BEGIN_ON(device);
    END(retired_pages(device, cause, count, addresses, times));
}

/* Measures for 20 ms, as the driver does: one call per direction makes 40 ms a GPU. */
EXPORT Return nvmlDeviceGetPcieThroughput(Handle device, unsigned counter, unsigned *out) {
    BEGIN_ON(device);
    sleep_ms(PCIE_SAMPLING_MS);
    if (counter > 1) END(INVALID_ARGUMENT);
    END(device_uint(device, counter ? "pcie_rx_kib_per_second" : "pcie_tx_kib_per_second", out));
}

static Return sampled(Handle device, const char *key, unsigned *out, unsigned *period_us) {
    *period_us = 1000000 / 6;
    return device_uint(device, key, out);
}

EXPORT Return nvmlDeviceGetEncoderUtilization(Handle device, unsigned *out, unsigned *period_us) {
    BEGIN_ON(device);
    END(sampled(device, "encoder_utilization", out, period_us));
}

EXPORT Return nvmlDeviceGetDecoderUtilization(Handle device, unsigned *out, unsigned *period_us) {
    BEGIN_ON(device);
    END(sampled(device, "decoder_utilization", out, period_us));
}

EXPORT Return nvmlDeviceGetPowerManagementLimitConstraints(Handle device, unsigned *least, unsigned *most) {
    BEGIN_ON(device);
    Return result = device_uint(device, "power_min_limit_mw", least);
    END(result == OK ? device_uint(device, "power_max_limit_mw", most) : result);
}

EXPORT Return nvmlDeviceGetCudaComputeCapability(Handle device, int *major, int *minor) {
    BEGIN_ON(device);
    char text[TEXT_SIZE], *end;
    Return result = device_text(device_of(device->gpu, WHOLE_GPU), "cuda_capability", text, sizeof text);
    if (result != OK) END(result);
    *major = (int)strtol(text, &end, 10);
    *minor = *end == '.' ? atoi(end + 1) : 0;
    END(OK);
}

static Return driver_text(const char *key, char *out, unsigned size) {
    char text[TEXT_SIZE];
    if (!state_text(DRIVER, WHOLE_GPU, key, text, sizeof text)) return NOT_SUPPORTED;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return OK;
}

EXPORT Return nvmlSystemGetDriverVersion(char *out, unsigned size) {
    BEGIN;
    END(driver_text("driver.version", out, size));
}

EXPORT Return nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    BEGIN;
    END(driver_text("driver.nvml", out, size));
}

static Return cuda_version(int *out) {
    uint64_t version;
    Return result = state_number(DRIVER, WHOLE_GPU, "driver.cuda", &version);
    if (result == OK) *out = (int)version;
    return result;
}

EXPORT Return nvmlSystemGetCudaDriverVersion(int *out) {
    BEGIN;
    END(cuda_version(out));
}

EXPORT Return nvmlSystemGetCudaDriverVersion_v2(int *out) {
    BEGIN;
    END(cuda_version(out));
}

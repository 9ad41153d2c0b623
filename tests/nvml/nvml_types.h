/* Layouts and numbers of the driver library's interface, after nvidia-ml-py 13.615.71 (pynvml.py: its ctypes structures). */
#ifndef NVML_TYPES_H
#define NVML_TYPES_H

#include <stdint.h>

typedef enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    MEMORY = 20,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
} Return;

#define NOT_AVAILABLE UINT64_MAX /* NVML_VALUE_NOT_AVAILABLE: bytes of a process that the driver does not tell */
#define NO_INSTANCE 0xFFFFFFFFu  /* gpuInstanceId where there is no MIG instance */
#define ALL_SCOPES 0xFFFFFFFFu   /* scopeId that asks for the sum of all links */
#define EVENT_XID 8u
#define PCIE_SAMPLING_MS 20 /* nvmlDeviceGetPcieThroughput measures for this long */

typedef struct Device *Handle;

typedef struct { uint64_t total, free, used; } Memory;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version, sensor; int temperature; } TemperatureV1;
typedef struct { uint64_t reference_ns, violation_ns; } Violation;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

typedef enum { TYPE_DOUBLE = 0, TYPE_UINT = 1, TYPE_ULONGLONG = 3 } ValueType;
typedef union { double d; unsigned u; uint64_t ull; } Value;
typedef struct {
    uint32_t id, scope;
    int64_t timestamp_us, latency_us;
    unsigned type, result;
    Value value;
} Field;

typedef struct { unsigned pid; uint64_t bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; uint64_t timestamp_us; unsigned sm, memory, encoder, decoder; } ProcessUtilization;
typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    uint64_t memory_mb;
} Attributes;

#define GPM_METRICS 477
typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { unsigned id, result; double value; const char *short_name, *long_name, *unit; } GpmMetric;
typedef struct { unsigned version, count; struct Sample *first, *second; GpmMetric metrics[GPM_METRICS]; } GpmRequest;

typedef struct { Handle device; uint64_t type, data; unsigned gpu_instance, compute_instance; } Event;

_Static_assert(sizeof(MemoryV2) == 40, "c_nvmlMemory_v2_t");
_Static_assert(sizeof(PciInfo) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(Field) == 40, "c_nvmlFieldValue_t");
_Static_assert(sizeof(Process) == 24, "c_nvmlProcessInfo_v3_t");
_Static_assert(sizeof(ProcessUtilization) == 32, "c_nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(Attributes) == 40, "c_nvmlDeviceAttributes");
_Static_assert(sizeof(GpmRequest) == 19104, "c_nvmlGpmMetricsGet_t");
_Static_assert(sizeof(Event) == 32, "c_nvmlEventData_t");

#endif

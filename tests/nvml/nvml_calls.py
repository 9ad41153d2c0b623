"""Each value of NVML by each call that tells it, under the key that the fake driver has for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml as nvml

Call = Callable[[Any], int]
ALL_LINKS = 0xFFFFFFFF


def field_value(handle: Any, number: int, scope: int = 0) -> int | float:
    """Return one field. NVMLError where the driver says so of the field."""
    (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])
    if answer.nvmlReturn:
        raise nvml.NVMLError(answer.nvmlReturn)
    members = {nvml.NVML_VALUE_TYPE_DOUBLE: "dVal", nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal"}
    return getattr(answer.value, members.get(answer.valueType, "ullVal"))


def gpm_values(
    handle: Any, metrics: Sequence[int], between: Callable[[], None] = lambda: None, instance: int | None = None
) -> list:
    """Return for each metric its value, or the code of its error as an NVMLError, from two samples."""
    request = nvml.c_nvmlGpmMetricsGet_t(version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(metrics))
    request.sample1, request.sample2 = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    for place, metric in enumerate(metrics):
        request.metrics[place].metricId = metric
    try:
        take_sample(handle, request.sample1, instance)
        between()
        take_sample(handle, request.sample2, instance)
        nvml.nvmlGpmMetricsGet(request)
    finally:
        nvml.nvmlGpmSampleFree(request.sample1)
        nvml.nvmlGpmSampleFree(request.sample2)
    answers = request.metrics[: len(metrics)]
    return [type(nvml.NVMLError(answer.nvmlReturn)) if answer.nvmlReturn else answer.value for answer in answers]


def take_sample(handle: Any, sample: Any, instance: int | None = None) -> None:
    if instance is None:
        nvml.nvmlGpmSampleGet(handle, sample)
    else:
        nvml.nvmlGpmMigSampleGet(handle, instance, sample)


def _field(number: int, scope: int = 0) -> Call:
    return lambda handle: field_value(handle, number, scope)


def _clock(kind: int) -> tuple[Call, ...]:
    return (lambda handle: nvml.nvmlDeviceGetClockInfo(handle, kind),)


def _max_clock(kind: int) -> tuple[Call, ...]:
    return (lambda handle: nvml.nvmlDeviceGetMaxClockInfo(handle, kind),)


def _threshold(kind: int) -> tuple[Call, ...]:
    return (lambda handle: nvml.nvmlDeviceGetTemperatureThreshold(handle, kind),)


def _throttled(policy: int, number: int) -> tuple[Call, ...]:
    return (lambda handle: nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime, _field(number))


def _ecc(kind: int, since: int, number: int) -> tuple[Call, ...]:
    return (lambda handle: nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since), _field(number))


def _remapped(place: int, number: int) -> tuple[Call, ...]:
    return (lambda handle: nvml.nvmlDeviceGetRemappedRows(handle)[place], _field(number))


def _retired(cause: int, number: int) -> tuple[Call, ...]:
    return (
        lambda handle: len(nvml.nvmlDeviceGetRetiredPages(handle, cause)),
        lambda handle: len(nvml.nvmlDeviceGetRetiredPages_v2(handle, cause)),
        _field(number),
    )


def _nvlink_error(counter: int, *fields: Call) -> tuple[Call, ...]:
    return (lambda handle: nvml.nvmlDeviceGetNvLinkErrorCounter(handle, 0, counter), *fields)


def _memory(handle: Any) -> Any:
    return nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)


CALLS: dict[str, tuple[Call, ...]] = {
    "pci_device_id": (lambda handle: nvml.nvmlDeviceGetPciInfo(handle).pciDeviceId,),
    "pci_subsystem_id": (lambda handle: nvml.nvmlDeviceGetPciInfo(handle).pciSubSystemId,),
    "architecture": (nvml.nvmlDeviceGetArchitecture,),
    "minor": (nvml.nvmlDeviceGetMinorNumber,),
    "persistence_mode": (nvml.nvmlDeviceGetPersistenceMode,),
    "performance_state": (nvml.nvmlDeviceGetPerformanceState,),
    "compute_mode": (nvml.nvmlDeviceGetComputeMode,),
    "mig": (lambda handle: nvml.nvmlDeviceGetMigMode(handle)[0],),
    "mig_pending": (lambda handle: nvml.nvmlDeviceGetMigMode(handle)[1],),
    "mig_max": (nvml.nvmlDeviceGetMaxMigDeviceCount,),
    "utilization_gpu": (lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,),
    "utilization_memory": (lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).memory,),
    "encoder_utilization": (lambda handle: nvml.nvmlDeviceGetEncoderUtilization(handle)[0],),
    "decoder_utilization": (lambda handle: nvml.nvmlDeviceGetDecoderUtilization(handle)[0],),
    "memory_total": (lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle).total, lambda handle: _memory(handle).total),
    "memory_used": (lambda handle: _memory(handle).used,),
    "memory_reserved": (lambda handle: _memory(handle).reserved,),
    "memory_free": (lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle).free, lambda handle: _memory(handle).free),
    "bar1_total": (lambda handle: nvml.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Total,),
    "bar1_used": (lambda handle: nvml.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Used,),
    "power_mw": (nvml.nvmlDeviceGetPowerUsage, _field(185)),
    "power_instant_mw": (_field(186),),
    "power_limit_mw": (nvml.nvmlDeviceGetEnforcedPowerLimit, nvml.nvmlDeviceGetPowerManagementLimit, _field(190)),
    "power_default_limit_mw": (nvml.nvmlDeviceGetPowerManagementDefaultLimit, _field(189)),
    "power_min_limit_mw": (lambda handle: nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)[0], _field(187)),
    "power_max_limit_mw": (lambda handle: nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)[1], _field(188)),
    "energy_mj": (nvml.nvmlDeviceGetTotalEnergyConsumption, _field(83), _field(191)),
    "clock_graphics_mhz": _clock(nvml.NVML_CLOCK_GRAPHICS),
    "clock_sm_mhz": _clock(nvml.NVML_CLOCK_SM),
    "clock_memory_mhz": _clock(nvml.NVML_CLOCK_MEM),
    "clock_video_mhz": _clock(nvml.NVML_CLOCK_VIDEO),
    "clock_max_graphics_mhz": _max_clock(nvml.NVML_CLOCK_GRAPHICS),
    "clock_max_sm_mhz": _max_clock(nvml.NVML_CLOCK_SM),
    "clock_max_memory_mhz": _max_clock(nvml.NVML_CLOCK_MEM),
    "clock_max_video_mhz": _max_clock(nvml.NVML_CLOCK_VIDEO),
    "fan_speed": (nvml.nvmlDeviceGetFanSpeed,),
    "temperature": (
        lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        lambda handle: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),
    ),
    "temperature_memory": (_field(82),),
    "temperature_threshold.shutdown": _threshold(nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
    "temperature_threshold.slowdown": _threshold(nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    "temperature_threshold.memory_max": _threshold(nvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
    "temperature_threshold.gpu_max": _threshold(nvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX),
    "throttle_reasons": (nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons),
    "throttle_ns.power_cap": _throttled(nvml.NVML_PERF_POLICY_POWER, 74),
    "throttle_ns.thermal": _throttled(nvml.NVML_PERF_POLICY_THERMAL, 75),
    "throttle_ns.sync_boost": _throttled(nvml.NVML_PERF_POLICY_SYNC_BOOST, 76),
    "throttle_ns.board_limit": _throttled(nvml.NVML_PERF_POLICY_BOARD_LIMIT, 77),
    "throttle_ns.low_utilization": _throttled(nvml.NVML_PERF_POLICY_LOW_UTILIZATION, 78),
    "throttle_ns.reliability": _throttled(nvml.NVML_PERF_POLICY_RELIABILITY, 79),
    "throttle_ns.application_clocks": _throttled(nvml.NVML_PERF_POLICY_TOTAL_APP_CLOCKS, 80),
    "throttle_ns.base_clocks": _throttled(nvml.NVML_PERF_POLICY_TOTAL_BASE_CLOCKS, 81),
    "throttle_ns.software_thermal": (_field(269),),
    "throttle_ns.hardware_thermal": (_field(270),),
    "throttle_ns.power_brake": (_field(271),),
    "ecc_mode": (lambda handle: nvml.nvmlDeviceGetEccMode(handle)[0], _field(1), _field(2)),
    "ecc.corrected.volatile": _ecc(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC, 3),
    "ecc.uncorrected.volatile": _ecc(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC, 4),
    "ecc.corrected.aggregate": _ecc(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_AGGREGATE_ECC, 5),
    "ecc.uncorrected.aggregate": _ecc(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_AGGREGATE_ECC, 6),
    "remapped.correctable": _remapped(0, 142),
    "remapped.uncorrectable": _remapped(1, 143),
    "remapped.pending": _remapped(2, 144),
    "remapped.failure": _remapped(3, 145),
    "retired.corrected": _retired(nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, 29),
    "retired.uncorrected": _retired(nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR, 30),
    "retired.pending": (nvml.nvmlDeviceGetRetiredPagesPendingStatus, _field(31)),
    "pcie_tx_bytes": (_field(197),),
    "pcie_rx_bytes": (_field(198),),
    "pcie_tx_kib_per_second": (lambda handle: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES),),
    "pcie_rx_kib_per_second": (lambda handle: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES),),
    "pcie_replays": (nvml.nvmlDeviceGetPcieReplayCounter, _field(94)),
    "pcie_gen": (nvml.nvmlDeviceGetCurrPcieLinkGeneration,),
    "pcie_gen_max": (nvml.nvmlDeviceGetMaxPcieLinkGeneration,),
    "pcie_width": (nvml.nvmlDeviceGetCurrPcieLinkWidth,),
    "pcie_width_max": (nvml.nvmlDeviceGetMaxPcieLinkWidth,),
    "nvlinks": (_field(91),),
    "nvlink_tx_kib": (_field(138, ALL_LINKS),),
    "nvlink_rx_kib": (_field(139, ALL_LINKS),),
    "nvlink_raw_tx_kib": (_field(140, ALL_LINKS),),
    "nvlink_raw_rx_kib": (_field(141, ALL_LINKS),),
    "nvlink_error.replay": _nvlink_error(nvml.NVML_NVLINK_ERROR_DL_REPLAY, _field(52), _field(161), _field(161, ALL_LINKS)),
    "nvlink_error.recovery": _nvlink_error(nvml.NVML_NVLINK_ERROR_DL_RECOVERY, _field(59), _field(162), _field(162, ALL_LINKS)),
    "nvlink_error.crc_flit": _nvlink_error(nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT, _field(38), _field(163), _field(163, ALL_LINKS)),
    "nvlink_error.crc_data": _nvlink_error(nvml.NVML_NVLINK_ERROR_DL_CRC_DATA, _field(45)),
    "recovery_action": (_field(230),),
    "event_types": (nvml.nvmlDeviceGetSupportedEventTypes,),
}
DEFAULTED = frozenset(
    "pci_device_id pci_subsystem_id mig_pending mig_max memory_used memory_reserved memory_free bar1_used".split()
)
"""Keys whose absence leaves the call with a default."""

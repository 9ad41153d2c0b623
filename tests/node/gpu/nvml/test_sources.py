"""The table of sources agrees with nvidia-ml-py, with the catalogue of metrics, and with the page that shows it."""

from __future__ import annotations

import inspect

import pynvml

from helpers import REPOSITORY
from tachoscope_core.metrics import gpu as names
from tachoscope_core.metrics.gpu import GPU_VALUES
from tachoscope_node.gpu.nvml.sources import ALL_LINKS, SOURCES, first_of_each

PAGE = (REPOSITORY / "docs" / "reference" / "gpus.md").read_text()
_ELSEWHERE = {names.GPU_NVLINKS.name, names.GPU_PROCESSES.name}
"""Metrics that more than a number of one call goes into."""


def numbers(prefix: str) -> set[int]:
    return {value for name, value in vars(pynvml).items() if name.startswith(prefix) and isinstance(value, int)}


def test_each_source_is_a_function_a_field_or_a_gpm_metric_that_nvidia_ml_py_has() -> None:
    for source in SOURCES:
        assert [bool(source.call), bool(source.field), bool(source.gpm)].count(True) == 1
        if source.call:
            inspect.signature(getattr(pynvml, source.call)).bind("handle", *source.arguments)
    assert {source.field for source in SOURCES if source.field} <= numbers("NVML_FI_DEV_")
    assert {source.gpm for source in SOURCES if source.gpm} <= numbers("NVML_GPM_METRIC_")


def test_the_arguments_are_those_that_nvml_names() -> None:
    arguments = {(source.call, *source.labels): source.arguments for source in SOURCES if source.arguments}

    assert arguments["nvmlDeviceGetClockInfo", "sm", "current"] == (pynvml.NVML_CLOCK_SM,)
    assert arguments["nvmlDeviceGetMaxClockInfo", "memory", "max"] == (pynvml.NVML_CLOCK_MEM,)
    assert arguments["nvmlDeviceGetTemperature", "gpu"] == (pynvml.NVML_TEMPERATURE_GPU,)
    assert arguments["nvmlDeviceGetMemoryInfo", "reserved"] == (pynvml.nvmlMemory_v2,)
    assert arguments["nvmlDeviceGetViolationStatus", "reliability"] == (pynvml.NVML_PERF_POLICY_RELIABILITY,)
    assert arguments["nvmlDeviceGetTotalEccErrors", "uncorrected", "aggregate"] == (
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_AGGREGATE_ECC,
    )
    assert arguments["nvmlDeviceGetRetiredPages", "uncorrected"] == (pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,)


def test_the_bits_of_throttle_reasons_are_those_that_nvml_names() -> None:
    bits = {source.labels[0]: source.bit for source in SOURCES if source.metric == names.GPU_THROTTLED.name}

    assert tuple(bits) == names.THROTTLE_REASONS
    assert bits == {
        "idle": pynvml.nvmlClocksEventReasonGpuIdle,
        "application_clocks": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
        "power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "hardware_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
        "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "hardware_thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
        "power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
    }


def test_the_labels_are_those_of_the_catalogue() -> None:
    labels = {metric: {source.labels for source in SOURCES if source.metric == metric.name} for metric in GPU_VALUES}

    assert {unit for (unit,) in labels[names.GPU_ACTIVE]} == set(names.GPU_UNITS)
    assert {reason for (reason,) in labels[names.GPU_THROTTLED_SECONDS]} == set(names.THROTTLE_TIMES)


def test_every_metric_of_a_reading_has_a_source() -> None:
    assert {source.metric for source in SOURCES} == {metric.name for metric in GPU_VALUES} - _ELSEWHERE


def test_the_first_source_of_each_value_is_taken_in_the_order_of_the_table() -> None:
    usage = [source for source in SOURCES if source.key == (names.GPU_POWER.name, ("usage",))]

    assert [source.field or source.call for source in usage] == [185, "nvmlDeviceGetPowerUsage"]
    assert first_of_each(usage) == (usage[0],)
    assert first_of_each(usage[1:]) == (usage[1],)


def test_the_page_of_the_collectors_shows_every_source() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `tachoscope_gpu_")]
    for source in SOURCES:
        shown = f"field {source.field}" if source.field else f"GPM {source.gpm}" if source.gpm else f"`{source.call}"
        shown += ", all links" if source.scope == ALL_LINKS else ""
        of_metric = [row for row in rows if row.startswith(f"| `{source.metric}`") and shown in row and source.since in row]
        assert [row for row in of_metric if ", ".join(source.labels) in row], f"{source.key}: {shown}"

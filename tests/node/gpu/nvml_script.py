"""What tests set in the fake driver, in NVML's units, and what the agent must then say, in ours: written down twice, by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import pynvml

from fake_nvml import Driver
from tachoscope_core.metrics import gpu as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.gpu.nvml import collector as gpu_collector
from tachoscope_node.gpu.nvml.collector import GpuCollector
from tachoscope_service.metrics.family import Labels

Key = tuple[str, Labels]
_GIB = 1 << 30

NUMBERS: dict[str, tuple[int, int, Metric, Labels, Callable[[float], float]]] = {
    # key in the fake: value of the first GPU, what each next GPU has more, and what becomes of it
    "utilization_gpu": (53, 2, names.GPU_UTILIZATION, (), lambda percent: percent / 100),
    "utilization_memory": (31, 3, names.GPU_COPY_UTILIZATION, (), lambda percent: percent / 100),
    "memory_total": (80 * _GIB, _GIB, names.GPU_MEMORY_BYTES, ("total",), float),
    "memory_used": (23 * _GIB + 7, 11, names.GPU_MEMORY_BYTES, ("used",), float),
    "memory_reserved": (601 << 20, 13, names.GPU_MEMORY_BYTES, ("reserved",), float),
    "power_mw": (613_127, 101, names.GPU_POWER, ("usage",), lambda milliwatts: milliwatts / 1000),
    "power_limit_mw": (699_001, 103, names.GPU_POWER, ("limit",), lambda milliwatts: milliwatts / 1000),
    "energy_mj": (9_876_543_211, 1009, names.GPU_ENERGY, (), lambda millijoules: millijoules / 1000),
    "clock_sm_mhz": (1755, 15, names.GPU_CLOCK, ("sm", "current"), lambda mhz: mhz * 1e6),
    "clock_memory_mhz": (2617, 1, names.GPU_CLOCK, ("memory", "current"), lambda mhz: mhz * 1e6),
    "clock_max_sm_mhz": (1981, 15, names.GPU_CLOCK, ("sm", "max"), lambda mhz: mhz * 1e6),
    "clock_max_memory_mhz": (2621, 1, names.GPU_CLOCK, ("memory", "max"), lambda mhz: mhz * 1e6),
    "temperature": (61, 1, names.GPU_TEMPERATURE, ("gpu",), float),
    "temperature_memory": (71, 1, names.GPU_TEMPERATURE, ("memory",), float),
    "throttle_ns.power_cap": (3_000_000_007, 17, names.GPU_THROTTLED_SECONDS, ("power_cap",), lambda ns: ns / 1e9),
    "throttle_ns.thermal": (5_000_000_011, 17, names.GPU_THROTTLED_SECONDS, ("thermal",), lambda ns: ns / 1e9),
    "throttle_ns.sync_boost": (7_000_000_013, 17, names.GPU_THROTTLED_SECONDS, ("sync_boost",), lambda ns: ns / 1e9),
    "throttle_ns.board_limit": (11_000_000_017, 17, names.GPU_THROTTLED_SECONDS, ("board_limit",), lambda ns: ns / 1e9),
    "throttle_ns.low_utilization": (13_000_000_019, 17, names.GPU_THROTTLED_SECONDS, ("low_utilization",), lambda ns: ns / 1e9),
    "throttle_ns.reliability": (17_000_000_023, 17, names.GPU_THROTTLED_SECONDS, ("reliability",), lambda ns: ns / 1e9),
    "throttle_ns.software_thermal": (19_000_000_029, 17, names.GPU_THROTTLED_SECONDS, ("software_thermal",), lambda ns: ns / 1e9),
    "throttle_ns.hardware_thermal": (23_000_000_031, 17, names.GPU_THROTTLED_SECONDS, ("hardware_thermal",), lambda ns: ns / 1e9),
    "throttle_ns.power_brake": (29_000_000_037, 17, names.GPU_THROTTLED_SECONDS, ("power_brake",), lambda ns: ns / 1e9),
    "ecc.corrected.volatile": (37, 19, names.GPU_ECC_ERRORS, ("corrected", "volatile"), float),
    "ecc.uncorrected.volatile": (41, 19, names.GPU_ECC_ERRORS, ("uncorrected", "volatile"), float),
    "ecc.corrected.aggregate": (43_000_000_047, 19, names.GPU_ECC_ERRORS, ("corrected", "aggregate"), float),
    "ecc.uncorrected.aggregate": (53, 19, names.GPU_ECC_ERRORS, ("uncorrected", "aggregate"), float),
    "remapped.correctable": (59, 1, names.GPU_REMAPPED_ROWS, ("corrected",), float),
    "remapped.uncorrectable": (67, 1, names.GPU_REMAPPED_ROWS, ("uncorrected",), float),
    "remapped.pending": (1, 0, names.GPU_ROW_REMAP, ("pending",), float),
    "remapped.failure": (0, 0, names.GPU_ROW_REMAP, ("failed",), float),
    "retired.corrected": (2, 1, names.GPU_RETIRED_PAGES, ("corrected",), float),
    "retired.uncorrected": (3, 1, names.GPU_RETIRED_PAGES, ("uncorrected",), float),
    "pcie_tx_bytes": (7_000_000_000_037, 1, names.GPU_PCIE_BYTES, ("transmit",), float),
    "pcie_rx_bytes": (8_000_000_000_041, 1, names.GPU_PCIE_BYTES, ("receive",), float),
    "pcie_replays": (73, 1, names.GPU_PCIE_REPLAYS, (), float),
    "pcie_gen": (3, 0, names.GPU_PCIE_LINK, ("generation", "current"), float),
    "pcie_gen_max": (5, 0, names.GPU_PCIE_LINK, ("generation", "max"), float),
    "pcie_width": (8, 0, names.GPU_PCIE_LINK, ("width", "current"), float),
    "pcie_width_max": (16, 0, names.GPU_PCIE_LINK, ("width", "max"), float),
    "nvlink_tx_kib": (1_000_003, 1, names.GPU_NVLINK_BYTES, ("transmit",), lambda kib: kib * 1024),
    "nvlink_rx_kib": (2_000_003, 1, names.GPU_NVLINK_BYTES, ("receive",), lambda kib: kib * 1024),
    "nvlink_error.crc_flit": (79, 1, names.GPU_NVLINK_ERRORS, ("crc_flit",), float),
    "nvlink_error.crc_data": (83, 1, names.GPU_NVLINK_ERRORS, ("crc_data",), float),
    "nvlink_error.replay": (89, 1, names.GPU_NVLINK_ERRORS, ("replay",), float),
    "nvlink_error.recovery": (97, 1, names.GPU_NVLINK_ERRORS, ("recovery",), float),
    "recovery_action": (2, 0, names.GPU_RECOVERY_ACTION, (), float),
}
GPM: dict[int, tuple[float, Metric, Labels, Callable[[float], float]]] = {
    1: (97.25, names.GPU_ACTIVE, ("graphics",), lambda percent: percent / 100),
    2: (93.5, names.GPU_ACTIVE, ("sm",), lambda percent: percent / 100),
    3: (41.75, names.GPU_ACTIVE, ("sm_occupancy",), lambda percent: percent / 100),
    4: (11.5, names.GPU_ACTIVE, ("integer",), lambda percent: percent / 100),
    5: (61.25, names.GPU_ACTIVE, ("tensor",), lambda percent: percent / 100),
    10: (71.5, names.GPU_ACTIVE, ("dram",), lambda percent: percent / 100),
    11: (1.25, names.GPU_ACTIVE, ("fp64",), lambda percent: percent / 100),
    12: (2.5, names.GPU_ACTIVE, ("fp32",), lambda percent: percent / 100),
    13: (3.75, names.GPU_ACTIVE, ("fp16",), lambda percent: percent / 100),
    20: (1234.5, names.GPU_LINK_RATE, ("pcie", "transmit"), lambda mib: mib * 1048576),
    21: (2345.5, names.GPU_LINK_RATE, ("pcie", "receive"), lambda mib: mib * 1048576),
    60: (34567.5, names.GPU_LINK_RATE, ("nvlink", "receive"), lambda mib: mib * 1048576),
    61: (45678.5, names.GPU_LINK_RATE, ("nvlink", "transmit"), lambda mib: mib * 1048576),
}
REASONS = {"idle": 0, "application_clocks": 1, "power_cap": 1, "hardware_slowdown": 0, "sync_boost": 1, "thermal": 0}
REASONS |= {"hardware_thermal": 1, "power_brake": 0}
REASON_BITS = 0x156
"""The same in NVML's bits: 0x2, 0x4, 0x10, 0x40; 0x100 (display) is not a reason that we show."""
PROCESSES = {4001: 5 * _GIB, 4002: 7 * _GIB, 4003: 11}
SMALL = {"remapped.pending", "remapped.failure", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max", "recovery_action"}
"""Those that do not change from one phase of a load to the next."""


def script(driver: Driver, gpus: int, phase: int = 0) -> None:
    """Set each value that the GPUs of the profile have: another for each GPU, and in each phase."""
    lines: dict[str, Any] = {}
    for gpu in range(gpus):
        for key, (first, more, *_) in NUMBERS.items():
            if driver.value(gpu, key) is not None:
                lines[f"gpu.{gpu}.{key}"] = first + more * gpu + (phase if key not in SMALL else 0)
        for key, value in (("throttle_reasons", REASON_BITS), ("nvlinks_down", "3 5")):
            if driver.value(gpu, {"nvlinks_down": "nvlinks"}.get(key, key)) is not None:
                lines[f"gpu.{gpu}.{key}"] = value
        if driver.value(gpu, "gpm_supported") == "1":
            lines |= {f"gpu.{gpu}.gpm.{number}": value + gpu + phase for number, (value, *_) in GPM.items()}
        lines |= {f"gpu.{gpu}.process.{pid + gpu}": used for pid, used in PROCESSES.items()}
    driver.set(lines)


def expected(driver: Driver, gpu: int) -> dict[Key, float]:
    """Return what is to be said of a whole GPU as the driver is now."""
    said: dict[Key, float] = {}
    for key, (_, _, metric, labels, ours) in NUMBERS.items():
        if (raw := driver.value(gpu, key)) is not None:
            said[metric.name, labels] = ours(int(raw))
    told = {labels[0]: value for (name, labels), value in said.items() if name == names.GPU_MEMORY_BYTES.name}
    said[names.GPU_MEMORY_BYTES.name, ("free",)] = told["total"] - told["used"] - told.get("reserved", 0)
    if driver.value(gpu, "throttle_reasons") is not None:
        said |= {(names.GPU_THROTTLED.name, (reason,)): float(held) for reason, held in REASONS.items()}
    if (links := driver.value(gpu, "nvlinks")) is not None:
        said |= {(names.GPU_NVLINKS.name, ("active",)): float(links) - 2, (names.GPU_NVLINKS.name, ("inactive",)): 2.0}
    if driver.value(gpu, "gpm_supported") == "1" and driver.value(gpu, "mig") != "1":
        for number, (_, metric, labels, ours) in GPM.items():
            said[metric.name, labels] = ours(float(driver.value(gpu, f"gpm.{number}") or 0))
    for sensor, limit, now in (("gpu", "slowdown", "temperature"), ("memory", "memory_max", "temperature_memory")):
        if (threshold := driver.value(gpu, f"temperature_threshold.{limit}")) is not None:
            said[names.GPU_TEMPERATURE_MARGIN.name, (sensor,)] = float(threshold) - float(driver.value(gpu, now) or 0)
    said[names.GPU_PROCESSES.name, ()] = float(len(PROCESSES))
    return said


def flat(values: Any) -> dict[Key, float]:
    """Return a reading's values by metric and labels."""
    return {(metric, labels): value for metric, found in values.items() for labels, value in found.items()}


class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def patience() -> Iterator[None]:
    """Let collectors wait for the driver a hundred times as long as in an agent."""
    with mock.patch.multiple(gpu_collector, ASK_SECONDS=120.0, START_SECONDS=60.0):
        yield


@contextmanager
def collector(driver: Driver, clock: Callable[[], float], *, patient: bool = True, **arguments: Any):  # type: ignore[no-untyped-def]
    """Run a collector on a fake driver in this process.

    patient: on a clock of the test's own, waits for calls as long as they take on a crowded machine; False for those that hang.
    """
    with driver.in_process(), patience() if patient and isinstance(clock, Clock) else nullcontext():
        made = GpuCollector(load=lambda: pynvml, clock=clock, **arguments)
        try:
            yield made
        finally:
            made.close()

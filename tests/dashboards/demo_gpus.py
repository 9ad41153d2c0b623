"""The GPUs of the recorded demo: the fake driver, told once a second what GPUs would do whose processes are the demo's.

A GPU whose rank goes on is busy, one whose rank waits for data is less so, one whose rank stands still or is gone does nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fake_nvml import Driver, Value

BUSY = {"sm": 78.0, "tensor": 46.0, "dram": 52.0, "power": 590.0, "heat": 64.0, "clock": 1755.0}
STARVED = {"sm": 31.0, "tensor": 18.0, "dram": 22.0, "power": 330.0, "heat": 52.0, "clock": 1905.0}
SERVING = {"sm": 42.0, "tensor": 21.0, "dram": 71.0, "power": 410.0, "heat": 57.0, "clock": 1890.0}
IDLE = {"sm": 0.0, "tensor": 0.0, "dram": 0.0, "power": 71.0, "heat": 30.0, "clock": 345.0}
HELD_DOWN = {"sm": 80.0, "tensor": 40.0, "dram": 45.0, "power": 380.0, "heat": 88.0, "clock": 870.0}
GIB = 1 << 30
_IDLE_BIT, _HARDWARE_BITS = 0x1, 0x8 | 0x40
_GPM = {"sm": "gpm.2", "tensor": "gpm.5", "dram": "gpm.10"}


@dataclass
class Gpu:
    """What a GPU has done so far, and what is wrong with it.

    Attributes:
        pid: of the process that has it; 0: none. hot: its clock is held down. counted: its counters by the driver's keys.
        noisy: its links make errors.
    """

    pid: int = 0
    hot: bool = False
    noisy: bool = False
    level: dict[str, float] = field(default_factory=lambda: dict(IDLE))
    counted: dict[str, float] = field(default_factory=dict)

    def count(self, key: str, amount: float) -> None:
        self.counted[key] = self.counted.get(key, 0.0) + amount


class Gpus:
    """The GPUs of a node."""

    def __init__(self, folder: Path, count: int, seed: int) -> None:
        self.driver = Driver(folder)
        self.driver.set(
            {"driver.gpus": count, **{f"gpu.{gpu}.uuid": f"GPU-8a1{seed:05d}-0000-4000-8000-{gpu:012d}" for gpu in range(count)}}
        )
        self.all = [Gpu() for _ in range(count)]
        self._random = random.Random(seed)

    def uuid(self, gpu: int) -> str:
        found = self.driver.value(gpu, "uuid")
        assert found is not None
        return found

    def play(self, seconds: float, doing: Mapping[int, tuple[int, dict[str, float]]]) -> None:
        """Let so many seconds pass.

        Args:
            doing: by GPU, the process that has it, 0 where the driver does not see it, and what it does; the others are idle.
        """
        lines: dict[str, Value] = {}
        for number, gpu in enumerate(self.all):
            pid, wanted = doing.get(number, (0, IDLE))
            if gpu.pid and gpu.pid != pid:
                self.driver.clear_gpu(number, f"process.{gpu.pid}")
            gpu.pid = pid
            lines |= {f"gpu.{number}.{key}": value for key, value in self._second(gpu, wanted, seconds).items()}
        self.driver.set(lines)

    def _second(self, gpu: Gpu, wanted: Mapping[str, float], seconds: float) -> dict[str, Value]:
        is_idle = wanted is IDLE
        wanted = HELD_DOWN if gpu.hot and not is_idle else wanted
        for name, value in wanted.items():  # heat comes and goes slowly, all else at once
            part = 0.08 if name == "heat" else 0.8
            gpu.level[name] += part * (value * self._random.uniform(0.97, 1.03) - gpu.level[name])
        level = gpu.level
        gpu.count("energy_mj", level["power"] * 1e3 * seconds)
        gpu.count("pcie_rx_bytes", level["sm"] * 6e6 * seconds)
        gpu.count("pcie_tx_bytes", level["sm"] * 2e6 * seconds)
        for way in ("nvlink_tx_kib", "nvlink_rx_kib"):
            gpu.count(way, level["sm"] * 1.4e5 * seconds)
        gpu.count("throttle_ns.hardware_thermal", 1e9 * seconds if gpu.hot else 0.0)
        gpu.count("throttle_ns.low_utilization", 1e9 * seconds if is_idle else 0.0)
        gpu.count("pcie_replays", 2.0 * seconds if gpu.noisy else 0.0)
        gpu.count("nvlink_error.replay", 0.2 * seconds if gpu.noisy else 0.0)
        known: dict[str, Value] = {key: round(value) for key, value in gpu.counted.items()}
        known |= {_GPM[name]: round(level[name], 1) for name in _GPM}
        return known | self._gauges(gpu, is_idle=is_idle)

    def _gauges(self, gpu: Gpu, *, is_idle: bool) -> dict[str, Value]:
        level = gpu.level
        memory = 0 if is_idle else 61 * GIB
        found: dict[str, Value] = {
            "utilization_gpu": 0 if is_idle else min(round(level["sm"] * 1.25), 100),
            "memory_used": memory + (4 << 20),
            "power_mw": round(level["power"] * 1000),
            "power_instant_mw": round(level["power"] * 1000),
            "clock_sm_mhz": round(level["clock"]),
            "clock_graphics_mhz": round(level["clock"]),
            "temperature": round(level["heat"]),
            "temperature_memory": round(level["heat"]) + 6,
            "throttle_reasons": (_IDLE_BIT if is_idle else 0) | (_HARDWARE_BITS if gpu.hot else 0),
            "gpm.20": round(level["sm"] * 2.0, 1),
            "gpm.21": round(level["sm"] * 6.0, 1),
            "gpm.60": round(level["sm"] * 140.0, 1),
            "gpm.61": round(level["sm"] * 140.0, 1),
        }
        return found | ({f"process.{gpu.pid}": memory} if gpu.pid else {})

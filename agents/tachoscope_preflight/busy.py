"""Whether others use this host now: a test would disturb them, and they the test."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_node.collectors.collector import NotSupportedError
from tachoscope_node.gpu.nvml import driver as nvml_driver

BUSY_RATIO = 0.25
"""Of all cores, or one core of a host with few."""
_LOOK_SECONDS = 0.5
_FIX = "end it first, or measure all the same with --force"


class Look:
    """A look at what other processes compute, from now on; what this one does meanwhile, such as imports, does not count."""

    def __init__(self) -> None:
        self._began, self._ticks, self._own_seconds = time.monotonic(), _busy_ticks(), time.process_time()

    def busy_cores(self) -> float:
        """Return how many cores worked for others, over half a second at least; 0.0 where /proc/stat cannot be read."""
        time.sleep(max(0.0, self._began + _LOOK_SECONDS - time.monotonic()))
        seconds = (_busy_ticks() - self._ticks) / os.sysconf("SC_CLK_TCK") - (time.process_time() - self._own_seconds)
        return max(0.0, seconds / (time.monotonic() - self._began))


def refuse_if_busy(look: Look) -> None:
    """Check that no other process computes here.

    Raises:
        TachoscopeError: somebody does, or it cannot be known of a GPU.
    """
    if users := _gpu_processes():
        raise TachoscopeError(f"GPU memory is in use: {'; '.join(users)}", fix=_FIX, exit_code=ExitCode.NOT_WELL)
    busy, cores = look.busy_cores(), os.cpu_count() or 1
    if busy > max(BUSY_RATIO * cores, min(1.0, cores / 2)):
        what = f"other processes use {busy:.1f} of {cores} cores"
        raise TachoscopeError(what, fix=_FIX, exit_code=ExitCode.NOT_WELL)


def _busy_ticks() -> int:
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return 0
    return sum(fields[:3]) + sum(fields[5:7])  # user, nice, system, irq, softirq


def _gpu_processes() -> list[str]:
    try:
        nvml = nvml_driver.load()
    except NotSupportedError:
        return []  # without nvidia-ml-py torch finds out when memory is missing
    try:
        driver = nvml_driver.start(nvml)
        try:
            return [line for position in range(driver.count()) for line in _users(driver, position)]
        finally:
            driver.stop()
    except NotSupportedError:
        return []  # no driver is installed
    except nvml.NVMLError as error:
        raise TachoscopeError(f"the NVIDIA driver did not answer: {error}", exit_code=ExitCode.NOT_WELL) from None


def _users(driver: Any, position: int) -> list[str]:
    handle = driver.nvml.nvmlDeviceGetHandleByIndex(position)
    running = driver.nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return [f"GPU {position} by process {process.pid}" for process in running if process.pid != os.getpid()]

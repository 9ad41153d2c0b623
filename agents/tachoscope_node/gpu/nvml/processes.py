"""The processes that compute on a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tachoscope_node.gpu.nvml.driver import UNSUPPORTED, code_of
from tachoscope_node.gpu.reading import GpuProcess

FUNCTIONS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
"""Drivers of the 535 branch filled _v3 with longer entries than nvidia-ml-py reads (github.com/XuehaiPan/nvitop/pull/79); _v2
never changed. Drivers before CUDA 11.6 have _v2 only."""
_MOST_PID = 1 << 22
"""PID_MAX_LIMIT of the kernel, include/linux/threads.h."""


class Processes:
    """The processes of one GPU or MIG instance, by the first function that gives a list that can be true."""

    def __init__(self) -> None:
        self._functions = list(FUNCTIONS)

    def read(self, nvml: Any, handle: Any) -> tuple[GpuProcess, ...] | None:
        """Return the processes, None where the driver does not tell. Raises NVMLError for a GPU or driver that does not work."""
        while self._functions:
            try:
                found = getattr(nvml, self._functions[0])(handle)
            except nvml.NVMLError as error:
                if code_of(error) not in UNSUPPORTED:
                    raise
            else:
                processes = tuple(GpuProcess(entry.pid, entry.usedGpuMemory) for entry in found)
                if can_be_true(processes):
                    return processes
            self._functions.pop(0)
        return None


def can_be_true(processes: Iterable[GpuProcess]) -> bool:
    """Return whether these can be processes: a list read with the wrong size of its entries has pids that no process has."""
    return all(0 < process.pid <= _MOST_PID for process in processes)

"""Xid errors as the driver reports them to its clients: only critical ones, and only from when it was asked to.

The set is looked at without waiting, as DCGM does (github.com/NVIDIA/DCGM, DcgmCacheManager::EventThreadMain): so no call waits
beside the others, and there is no thread to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tachoscope_node.gpu.nvml.driver import UNSUPPORTED, address, code_of
from tachoscope_node.gpu.reading import Gpu

_MOST_AT_A_TIME = 256
"""A GPU that fails may report without an end; the rest is taken the next time."""


@dataclass(frozen=True, slots=True)
class Xid:
    """An Xid error of a GPU."""

    gpu: Gpu
    xid: int


class Events:
    """The set of events of all GPUs. Raises NVMLError where the driver has none."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set = nvml.nvmlEventSetCreate()
        self._gpus: dict[int, Gpu] = {}

    def register(self, handle: Any, gpu: Gpu) -> None:
        """Have the errors of a GPU reported, if it can. Raises NVMLError for a GPU or driver that does not work."""
        nvml, place = self._nvml, address(handle)
        if place not in self._gpus:
            try:
                if nvml.nvmlDeviceGetSupportedEventTypes(handle) & nvml.nvmlEventTypeXidCriticalError:
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._set)
            except nvml.NVMLError as error:
                if code_of(error) not in UNSUPPORTED:
                    raise
        self._gpus[place] = gpu

    def drain(self) -> list[Xid]:
        """Return the errors since the last time."""
        nvml = self._nvml
        found: list[Xid] = []
        while len(found) < _MOST_AT_A_TIME:
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, 0)
            except nvml.NVMLError:  # TIMEOUT: there is none; and of a lost GPU its own reading tells
                break
            gpu = self._gpus.get(address(event.device))
            if gpu is not None:
                found.append(Xid(gpu, int(event.eventData)))
        return found

    def close(self) -> None:
        """Free the driver's set of events. Raises NVMLError."""
        self._nvml.nvmlEventSetFree(self._set)

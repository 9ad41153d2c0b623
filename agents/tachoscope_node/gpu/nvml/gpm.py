"""GPM: how busy the units of the chip were between two samples (Hopper and later). The sample before is kept: nobody sleeps.

GPM does not take the lock of the profilers, so it goes on beside Nsight and CUPTI, and needs no right of its own for whole GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tachoscope_node.gpu.nvml.conversions import converted
from tachoscope_node.gpu.nvml.driver import UNSUPPORTED, code_of
from tachoscope_node.gpu.nvml.sources import GPM, ValueSource

SHORTEST_SECONDS = 0.1
"""Between two samples, by nvml.h: GPM refreshes them no more often."""
LONGEST_SECONDS = 60.0
"""An older sample is dropped: what it would give says nothing of now."""


class Request:
    """One `nvmlGpmMetricsGet_t`, 19 kB, for all samples of a GPU and its instances: not for two threads at a time."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._struct = nvml.c_nvmlGpmMetricsGet_t()
        self._struct.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._struct.numMetrics = len(GPM)
        for position, source in enumerate(GPM):
            self._struct.metrics[position].metricId = source.gpm

    def between(self, first: Any, second: Any) -> list[tuple[ValueSource, float]]:
        """Return what happened between two samples, leaving out the metrics that the GPU cannot tell. Raises NVMLError."""
        self._struct.sample1, self._struct.sample2 = first, second
        self._nvml.nvmlGpmMetricsGet(self._struct)
        metrics = self._struct.metrics
        found = []
        for position, source in enumerate(GPM):
            metric = metrics[position]
            if metric.nvmlReturn == 0 and math.isfinite(value := metric.value):
                found.append((source, converted(value, source.unit)))
        return found


class Gpm:
    """The samples of one GPU or of one MIG instance.

    Args:
        sample: fills a sample. request: may be shared by those that the same thread reads.
    """

    def __init__(self, nvml: Any, sample: Callable[[Any], object], request: Request) -> None:
        self._nvml = nvml
        self._sample = sample
        self._request = request
        self._samples: list[Any] = []
        self._taken = float("-inf")
        self._values: list[tuple[ValueSource, float]] = []

    def read(self, now: float) -> list[tuple[ValueSource, float]]:
        """Return the values since the last reading, nothing the first time. now: monotonic seconds. Raises NVMLError."""
        if now - self._taken < SHORTEST_SECONDS:
            return self._values
        while len(self._samples) < 2:
            self._samples.append(self._nvml.nvmlGpmSampleAlloc())
        before, after = self._samples
        usable = now - self._taken <= LONGEST_SECONDS
        self._taken = float("-inf")  # until all has gone well: a sample that failed is none to reckon from
        self._sample(after)
        self._values = self._request.between(before, after) if usable else []
        self._samples = [after, before]
        self._taken = now
        return self._values

    def close(self) -> None:
        while self._samples:
            self._nvml.nvmlGpmSampleFree(self._samples.pop())


def supported(nvml: Any, handle: Any) -> bool:
    """Return whether a GPU has GPM. Raises NVMLError for a GPU or driver that does not work."""
    try:
        return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except nvml.NVMLError as error:
        if code_of(error) in UNSUPPORTED:  # an older GPU, or a driver that has not the function
            return False
        raise

"""CPU time of the host by mode, from /proc/stat."""

from __future__ import annotations

import os
from typing import Final

from tachoscope_core.metrics.host import CPU_CORES, CPU_SECONDS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import HOST_INTERVAL_SECONDS
from tachoscope_node.common.kernel_files import MalformedError, read
from tachoscope_service.metrics.family import Family

# The columns `guest` and `guest_nice` that follow are left out: `user` and `nice` already contain them.
# https://docs.kernel.org/filesystems/proc.html#miscellaneous-kernel-statistics-in-proc-stat
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_TICKS = os.sysconf("SC_CLK_TCK")
_JITTER_TICKS = 3 * _TICKS
"""`idle` and `iowait` step back a little now and then (the same page says so), which a rate would take for a restart from
zero. A larger step back is shown, as when cores come and go."""


class CpuCollector:
    """Seconds of all cores together by mode, and the number of cores."""

    name = "cpu"
    metrics: Final[tuple[Metric, ...]] = (CPU_SECONDS, CPU_CORES)

    def __init__(self, proc: str = "/proc", *, interval_seconds: float = HOST_INTERVAL_SECONDS) -> None:
        self.interval_seconds = interval_seconds
        self._path = f"{proc}/stat"
        self._last = [0] * len(_MODES)

    def collect(self) -> list[Family]:
        content = read(self._path)
        first = content.split(b"\n", 1)[0]
        fields = first.split()
        if fields[:1] != [b"cpu"] or len(fields) <= len(_MODES):
            raise MalformedError(self._path, 1, first)
        try:
            ticks = [int(field) for field in fields[1 : len(_MODES) + 1]]
        except ValueError as error:
            raise MalformedError(self._path, 1, first) from error
        self._last = [last if 0 < last - now <= _JITTER_TICKS else now for last, now in zip(self._last, ticks, strict=True)]
        seconds = [((mode,), now / _TICKS) for mode, now in zip(_MODES, self._last, strict=True)]
        return [Family(CPU_SECONDS, seconds), Family(CPU_CORES, [((), content.count(b"\ncpu"))])]

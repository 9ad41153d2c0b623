"""Memory of the host from /proc/meminfo, and its major faults and kills from /proc/vmstat."""

from __future__ import annotations

from typing import Final

from tachoscope_core.metrics.host import MAJOR_FAULTS, MEMORY_BYTES, OOM_KILLS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import HOST_INTERVAL_SECONDS
from tachoscope_node.common.kernel_files import MalformedError, read, value
from tachoscope_service.metrics.family import Family, Point

# https://docs.kernel.org/filesystems/proc.html#meminfo; its "kB" are KiB.
_KINDS = (
    ("total", b"MemTotal:"),
    ("free", b"MemFree:"),
    ("available", b"MemAvailable:"),
    ("cached", b"Cached:"),
    ("anonymous", b"AnonPages:"),
    ("shmem", b"Shmem:"),
    ("dirty", b"Dirty:"),
    ("writeback", b"Writeback:"),
    ("swap_total", b"SwapTotal:"),
    ("swap_free", b"SwapFree:"),
)
_EVENTS = ((MAJOR_FAULTS, b"pgmajfault "), (OOM_KILLS, b"oom_kill "))


class MemoryCollector:
    """Bytes of memory by kind; events since the machine started. What an older kernel does not count is left out."""

    name = "memory"
    metrics: Final[tuple[Metric, ...]] = (MEMORY_BYTES, MAJOR_FAULTS, OOM_KILLS)

    def __init__(self, proc: str = "/proc", *, interval_seconds: float = HOST_INTERVAL_SECONDS) -> None:
        self.interval_seconds = interval_seconds
        self._meminfo = f"{proc}/meminfo"
        self._vmstat = f"{proc}/vmstat"

    def collect(self) -> list[Family]:
        content = read(self._meminfo)
        points: list[Point] = []
        for kind, key in _KINDS:
            if (kibibytes := value(self._meminfo, content, key)) is not None:
                points.append(((kind,), kibibytes * 1024))
            elif kind == "total":
                raise MalformedError(self._meminfo, 1, content)
        families = [Family(MEMORY_BYTES, points)]
        content = read(self._vmstat)
        for metric, key in _EVENTS:
            if (events := value(self._vmstat, content, key)) is not None:
                families.append(Family(metric, [((), events)]))
        return families

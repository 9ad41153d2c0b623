"""Pressure stall information of the host, from /proc/pressure."""

from __future__ import annotations

import errno
from typing import Final

from tachoscope_core.metrics.host import PRESSURE_SECONDS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import HOST_INTERVAL_SECONDS, NotSupportedError
from tachoscope_node.common.kernel_files import rows
from tachoscope_service.metrics.family import Family, Point

_RESOURCES = ("cpu", "memory", "io")


class PressureCollector:
    """Seconds in which tasks waited for cpu, memory and io."""

    name = "pressure"
    metrics: Final[tuple[Metric, ...]] = (PRESSURE_SECONDS,)

    def __init__(self, proc: str = "/proc", *, interval_seconds: float = HOST_INTERVAL_SECONDS) -> None:
        self.interval_seconds = interval_seconds
        self._root = f"{proc}/pressure"

    def collect(self) -> list[Family]:
        points: list[Point] = []
        try:
            for resource in _RESOURCES:
                for kind, microseconds in rows(f"{self._root}/{resource}", _total):
                    # For the whole host `full` of the CPU has no meaning: kernels give 0, or before 5.18 noise.
                    # https://docs.kernel.org/accounting/psi.html
                    if (resource, kind) != ("cpu", "full"):
                        points.append(((resource, kind), microseconds / 1e6))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EOPNOTSUPP):
                raise
            raise NotSupportedError(f"the kernel does not record pressure: {self._root} (boot it with psi=1)") from error
        return [Family(PRESSURE_SECONDS, points)]


def _total(line: bytes) -> tuple[str, int]:
    kind, *_, total = line.split()
    return kind.decode(), int(total.removeprefix(b"total="))

"""Memory by time as a picture: what is used of the limit, the largest ranks, and the moment of a kill."""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_core.report.memory import MemoryReport
from tachoscope_core.report.palette import SERIES

_HEIGHT, _WIDTH = 100.0, 1000.0
_HEADROOM = 1.08
_MOST_RANKS = 6


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """A curve: its name, colour, and points of an SVG polyline."""

    name: str
    color: str
    points: str


@dataclass(frozen=True, slots=True)
class MemoryPicture:
    """Curves from `start` to `end` in Unix seconds and from 0 to `most_bytes`; `limit_y` and `kills` are places in it."""

    start: float
    end: float
    most_bytes: float
    limit_y: float | None
    lines: list[MemoryLine]
    kills: list[float]


def picture(memory: MemoryReport | None) -> MemoryPicture | None:
    """Return the picture; None with fewer than two samples."""
    if memory is None or memory.used is None or len(memory.used.times) < 2:
        return None
    used = memory.used
    start = used.times[0]
    end = max([used.times[-1], *(kill.time for kill in memory.kills)])
    most = _HEADROOM * max([used.limit_bytes, *used.used])

    def points(times: list[float], values: list[int]) -> str:
        return " ".join(
            f"{(time - start) / (end - start) * _WIDTH:.1f},{(1 - value / most) * _HEIGHT:.1f}"
            for time, value in zip(times, values, strict=True)
        )

    shown = sorted(memory.ranks, key=lambda one: -max(one.process))[:_MOST_RANKS]
    curves = [MemoryLine("used", "#57606a", points(used.times, used.used))]
    for place, one in enumerate(sorted(shown, key=lambda one: one.rank)):
        held = [sum(row) for row in zip(one.process, one.workers, one.shared, strict=True)]
        curves.append(MemoryLine(f"rank {one.rank}", SERIES[place % len(SERIES)], points(one.times, held)))
    limit_y = (1 - used.limit_bytes / most) * _HEIGHT if used.limit_bytes else None
    kills = [(kill.time - start) / (end - start) * _WIDTH for kill in memory.kills]
    return MemoryPicture(start, end, most, limit_y, curves, kills)

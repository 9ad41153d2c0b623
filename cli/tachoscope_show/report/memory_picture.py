"""Memory by time as a picture: what is used of the limit, the largest ranks, and the moment of a kill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tachoscope_core.jobs.memory_outlook import KNOWN_SECONDS
from tachoscope_core.report.memory import MemoryCurve, MemoryReport
from tachoscope_core.report.palette import SERIES

USED_COLOR = "#57606a"
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
    """Return the picture, in which all of it lies; None where no curve has two samples."""
    if memory is None:
        return None
    shown = sorted(memory.ranks, key=lambda one: -max(held(one), default=0))[:_MOST_RANKS]
    curves = [("used", USED_COLOR, memory.used.times, memory.used.used)] if memory.used is not None else []
    for place, one in enumerate(sorted(shown, key=lambda one: one.rank)):
        curves.append((f"rank {one.rank}", SERIES[place % len(SERIES)], one.times, held(one)))
    if max((len(times) for _, _, times, _ in curves), default=0) < 2:
        return None
    start, end = span(memory)
    limit = memory.used.limit_bytes if memory.used is not None else 0
    most = _HEADROOM * max(limit, 1, *(value for *_, values in curves for value in values))

    def x(time: float) -> float:
        return (time - start) / max(end - start, 1e-9) * _WIDTH

    def y(value: float) -> float:
        return (1 - value / most) * _HEIGHT

    lines = [
        MemoryLine(name, color, " ".join(f"{x(time):.1f},{y(value):.1f}" for time, value in steps_of(times, values, end)))
        for name, color, times, values in curves
    ]
    return MemoryPicture(start, end, most, y(limit) if limit else None, lines, [x(kill.time) for kill in memory.kills])


def held(one: MemoryCurve) -> list[int]:
    """Return what a rank and its loader workers held at each sample."""
    return [sum(row) for row in zip(one.process, one.workers, one.shared, strict=True)]


def span(memory: MemoryReport) -> tuple[float, float]:
    """Return the first and last moment of all that is to be drawn, Unix seconds."""
    times = [time for one in memory.ranks for time in one.times] + (memory.used.times if memory.used is not None else [])
    times += [kill.time for kill in memory.kills]
    return min(times), max(times)


def steps_of(times: Sequence[float], values: Sequence[int], end: float) -> list[tuple[float, int]]:
    """Return the points of a curve that holds each value until the next sample, as samples are taken when something changed.

    The last is held as long as it is known, to the end of the picture at most.
    """
    points = list(zip(times, values, strict=True))
    found = [point for one, other in pairwise(points) for point in (one, (other[0], one[1]))]
    return [*found, *points[-1:], *((min(time + KNOWN_SECONDS, end), value) for time, value in points[-1:])]

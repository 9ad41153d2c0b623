"""The time that a page shows, and how far apart the points of a panel are, as Grafana chooses it.

https://grafana.com/docs/grafana/latest/dashboards/variables/add-template-variables/#__interval
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

SCRAPE_SECONDS = 15.0
"""Between two scrapes, as Grafana's data source has it where nobody changed it: no panel asks for points closer than that."""
MOST_POINTS = 8000
"""A Prometheus gives at most 11,000 a series; as steps are round, there may be a third more than are asked for."""
_FEWER = 4 / 3
MOST_SECONDS = 5 * 366 * 86_400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "M": 2_592_000.0, "y": 31_536_000.0}
_STEPS = (
    *(15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0),
    *(86_400.0, 604_800.0),
)


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when a page looks, in Unix seconds, and how many seconds apart the points of a panel are."""

    start: float
    end: float
    step: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def rate_seconds(self) -> float:
        """Return `$__rate_interval`: so long that a rate has two samples or more at each point."""
        return max(self.step + SCRAPE_SECONDS, 4.0 * SCRAPE_SECONDS)

    def times(self) -> list[float]:
        """Return the times of points: whole multiples of the step, so that they stay where they are as time goes on."""
        first, last = math.floor(self.start / self.step), math.floor(self.end / self.step)
        return [number * self.step for number in range(first, last + 1)]


def at_least(known: Span, interval: str) -> Span:
    """Return the span with steps that are no shorter than the interval that a panel asks for, such as `1m`; nothing: as it is."""
    found = re.fullmatch(r">?(\d+)([smhdw])", interval)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0.0
    step = next((step for step in _STEPS if step >= seconds), seconds)
    return replace(known, step=max(known.step, step))


def span(start: float, end: float, points: int) -> Span:
    """Return the span with at most so many points.

    Raises:
        ValueError: it ends before it starts, or is longer than `MOST_SECONDS`.
    """
    if not 0.0 < end - start <= MOST_SECONDS or start < 0.0:
        raise ValueError("the time range has to end after it starts, and to be at most five years long")
    least = (end - start) / min(max(points, 1), MOST_POINTS) / _FEWER
    step = next((step for step in _STEPS if step >= least), math.ceil(least / _STEPS[-1]) * _STEPS[-1])
    return Span(start, end, step)


def moment(words: str, now: float) -> float:
    """Return the Unix seconds of a time as Grafana's pages write it: `now`, `now-6h`, or Unix milliseconds.

    Raises:
        ValueError: it is none.
    """
    if re.fullmatch(r"\d{1,15}", words):
        return int(words) / 1000.0
    found = re.fullmatch(r"now(?:-(\d{1,9})([smhdwMy]))?", words)
    if found is None:
        raise ValueError(f"{words[:40]!r} is not a time: write now, now-6h or Unix milliseconds")
    return now - (int(found[1]) * _UNITS[found[2]] if found[1] else 0.0)


def words(seconds: float) -> str:
    """Return a length of time as PromQL writes it."""
    return f"{seconds:g}s" if seconds >= 1.0 else f"{max(round(seconds * 1000.0), 1)}ms"

"""Planned maintenance, taken out of time itself: with what is left every length is net, and no state needs to know of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Interval = tuple[float, float]


class NetTime:
    """Maps seconds to seconds outside of maintenance. Windows may overlap; one that does not last is ignored."""

    def __init__(self, windows: Iterable[Interval] = ()) -> None:
        self._windows = merged(windows)
        edges = np.array([edge for window in self._windows for edge in window], dtype=float)
        lengths = np.array([[0.0, end - start] for start, end in self._windows]).reshape(-1)
        self._edges, self._before = edges, np.cumsum(lengths)

    def __call__(self, times: npt.ArrayLike) -> Array:
        """Return each time less the maintenance before it, shape as given."""
        values = np.asarray(times, dtype=float)
        if not len(self._edges):
            return values
        return np.asarray(values - np.interp(values, self._edges, self._before, left=0.0))

    def length(self, start: float, end: float) -> float:
        """Return the seconds between two times that are outside of maintenance; 0 if they are in the wrong order."""
        return float(self(end) - self(start)) if end > start else 0.0

    def excluded(self, start: float, end: float) -> float:
        """Return the seconds of maintenance between two times."""
        return max(end - start, 0.0) - self.length(start, end)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as disjoint ones, in order."""
    found: list[Interval] = []
    for start, end in sorted((start, end) for start, end in intervals if end > start):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def clipped(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """Return the parts of intervals between two times."""
    return [(max(a, start), min(b, end)) for a, b in intervals if min(b, end) > max(a, start)]

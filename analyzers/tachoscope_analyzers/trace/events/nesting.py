"""Which event a host event happened in: the nesting of calls on each thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_core.native import native

Rows = npt.NDArray[np.int64]
MODULE = "tachoscope_analyzers.trace.events._nesting"


def parents(track: npt.NDArray[np.int32], start: Nanoseconds, end: Nanoseconds) -> Rows:
    """Return for each event the index of the innermost event on its track that contains it, -1 for those at the top, shape (N,).

    Of two events with the same span the one that stands first in the file is the outer one. Where events overlap without one
    containing the other (clock disorder), the later one has no parent among those that end within it.
    """
    found = np.empty(len(track), dtype=np.int64)
    module = native(MODULE).module
    if module is not None and module.parents(*map(np.ascontiguousarray, (track, start, end)), found):
        return found
    return parents_in_python(track, start, end)


def parents_in_python(track: npt.NDArray[np.int32], start: Nanoseconds, end: Nanoseconds) -> Rows:
    """Return what `parents` does, without the native module."""
    begin, finish = _keys(track, start, end)
    order = _outer_first(begin, finish)
    track, begin, finish = track[order], begin[order], finish[order]
    depth = _open_before(begin, finish)
    by_depth = np.argsort(depth.astype(np.min_scalar_type(depth.max(initial=0))), kind="stable")  # a radix sort, if 16 bits do
    bounds = np.searchsorted(depth[by_depth], np.arange(depth.max(initial=-1) + 2))
    found = np.full(len(order), -1, dtype=np.int64)
    for level in range(1, len(bounds) - 1):
        outer, inner = by_depth[bounds[level - 1] : bounds[level]], by_depth[bounds[level] : bounds[level + 1]]
        place = np.searchsorted(outer, inner) - 1
        candidate = outer[np.maximum(place, 0)]
        real = (place >= 0) & (track[candidate] == track[inner]) & (finish[candidate] >= finish[inner])
        found[order[inner[real]]] = order[candidate[real]]
    return found


def depths(track: npt.NDArray[np.int32], start: Nanoseconds, end: Nanoseconds) -> Rows:
    """Return for each event how many others of its track are open where it begins, shape (N,): 0 for those at the top."""
    begin, finish = _keys(track, start, end)
    order = _outer_first(begin, finish)
    found = np.zeros(len(order), dtype=np.int64)
    found[order] = _open_before(begin[order], finish[order])
    return found


def _open_before(begin: Nanoseconds, finish: Nanoseconds) -> Rows:
    """Return how many earlier events are still open at each start; sorted, outer ones first."""
    closing = finish > begin  # an empty event has nothing in it
    return np.asarray(np.cumsum(closing) - closing - np.searchsorted(np.sort(finish[closing]), begin, side="right"))


def _keys(track: npt.NDArray[np.int32], start: Nanoseconds, end: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    """Return starts and ends as numbers sorted by track, then time."""
    if not len(start):
        return start, end
    first = start.min()
    start, end, width = start - first, end - first, int(end.max() - first) + 1
    if width * (int(track.max()) + 1) > np.iinfo(np.int64).max:
        moments = distinct(np.concatenate([start, end]))
        start, end, width = np.searchsorted(moments, start), np.searchsorted(moments, end), len(moments)
    base = track.astype(np.int64) * width
    return base + start, base + end


def _outer_first(begin: Nanoseconds, finish: Nanoseconds) -> Rows:
    """Return the order by start, longer ones first. Traces are nearly sorted, so one pass suffices."""
    order = np.argsort(begin, kind="stable")
    together = np.diff(begin[order]) == 0
    with_next, with_last = np.append(together, False), np.append(False, together)
    tied = np.flatnonzero(with_next | with_last)
    rows = order[tied]
    order[tied] = rows[np.lexsort((-finish[rows], begin[rows]))]
    return np.asarray(order)

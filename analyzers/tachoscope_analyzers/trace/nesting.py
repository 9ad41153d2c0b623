"""Which event a host event happened in: the nesting of calls on each thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.times import Nanoseconds

Rows = npt.NDArray[np.int64]


def parents(track: npt.NDArray[np.int32], start: Nanoseconds, end: Nanoseconds) -> Rows:
    """Return for each event the index of the innermost event on its track that contains it, -1 for those at the top, shape (N,).

    Of two events with the same span the one that stands first in the file is the outer one. Where events overlap without one
    containing the other (clock disorder), the later one has no parent among those that end within it.
    """
    count = len(start)
    order = np.lexsort((np.arange(count), -end, start, track))
    depth = _depths(track[order], start[order], end[order])
    found = np.full(count, -1, dtype=np.int64)
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[by_depth], np.arange(depth.max(initial=-1) + 2))
    for level in range(1, len(bounds) - 1):
        outer, inner = by_depth[bounds[level - 1] : bounds[level]], by_depth[bounds[level] : bounds[level + 1]]
        place = np.searchsorted(outer, inner) - 1
        candidate = order[outer[np.maximum(place, 0)]]
        mine = order[inner]
        real = (place >= 0) & (track[candidate] == track[mine]) & (end[candidate] >= end[mine]) & (start[candidate] <= start[mine])
        found[mine[real]] = candidate[real]
    return found


def _depths(track: npt.NDArray[np.int32], start: Nanoseconds, end: Nanoseconds) -> Rows:
    """Return how many events are open when each begins, for events sorted by (track, start, -end)."""
    count = len(start)
    # An event ends before another begins if it ends at or before its start; an empty one is open for those that begin with it
    # and stand after it only if they are empty too, which makes them siblings, so it never counts.
    closing = end > start
    ends_order = np.lexsort((end[closing], track[closing]))
    ended_track, ended = track[closing][ends_order], end[closing][ends_order]
    opened_before = np.concatenate([[0], np.cumsum(closing)])[:count]
    track_first = np.searchsorted(track, track, side="left")
    opened_here = opened_before - opened_before[track_first]
    base = np.searchsorted(ended_track, track, side="left")
    stop = np.searchsorted(ended_track, track, side="right")
    # Ends are sorted within a track, so one search over (track, end) as a combined key does for all tracks.
    closed_here = _search(ended, track, start, base, stop)
    return np.asarray(opened_here - closed_here)


def _search(values: Nanoseconds, key: npt.NDArray[np.int32], value: Nanoseconds, base: Rows, stop: Rows) -> Rows:
    """Return how many of a key's values are at most `value`."""
    counts = np.zeros(len(key), dtype=np.int64)
    edges = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, dtype=np.int64)
    for first, last in zip(edges.tolist(), np.append(edges[1:], len(key))[: len(edges)].tolist(), strict=True):
        counts[first:last] = np.searchsorted(values[base[first] : stop[first]], value[first:last], side="right")
    return counts

"""Arithmetic on sets of time intervals, exact in whole nanoseconds.

A set is a pair of arrays (starts, ends), sorted, disjoint and without empty intervals; `union` makes one from anything.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_core.native import native

MODULE = "tachoscope_analyzers.trace.events._intervals"


class Intervals(msgspec.Struct, frozen=True):
    """Disjoint, sorted, non-empty intervals [start, end), both of shape (I,)."""

    starts: Nanoseconds
    ends: Nanoseconds

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def total(self) -> int:
        """Length of the set in ns."""
        return int((self.ends - self.starts).sum())


EMPTY = Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def union(starts: Nanoseconds, ends: Nanoseconds) -> Intervals:
    """Return the set that any intervals cover, given in any order, overlapping and empty ones too."""
    module = native(MODULE).module
    if module is None:
        return union_in_python(starts, ends)
    found = _new(len(starts))
    if (size := module.unite(*map(_plain, (starts, ends)), *found)) < 0:
        order = np.argsort(starts, kind="stable")
        size = module.unite(*map(_plain, (starts[order], ends[order])), *found)
    return _cut(found, size)


def union_in_python(starts: Nanoseconds, ends: Nanoseconds) -> Intervals:
    """Return what `union` does, without the native module."""
    kept = ends > starts
    starts, ends = starts[kept], ends[kept]
    if not len(starts):
        return EMPTY
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.flatnonzero(np.append(True, starts[1:] > reach[:-1]))
    return Intervals(starts[first], reach[np.append(first[1:] - 1, len(reach) - 1)])


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return the time that is in both sets."""
    if not len(one) or not len(other):
        return EMPTY
    module = native(MODULE).module
    if module is None:
        return intersection_in_python(one, other)
    found = _new(len(one) + len(other))
    return _cut(found, module.intersect(*map(_plain, (one.starts, one.ends, other.starts, other.ends)), *found))


def intersection_in_python(one: Intervals, other: Intervals) -> Intervals:
    """Return what `intersection` does, without the native module."""
    first = np.searchsorted(other.ends, one.starts, side="right")
    last = np.searchsorted(other.starts, one.ends, side="left")
    count = np.maximum(last - first, 0)
    mine = np.repeat(np.arange(len(one)), count)
    theirs = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return Intervals(np.maximum(one.starts[mine], other.starts[theirs]), np.minimum(one.ends[mine], other.ends[theirs]))


def difference(one: Intervals, other: Intervals) -> Intervals:
    """Return the time that is in the first set and not in the second."""
    if not len(one):
        return EMPTY
    return intersection(one, gaps(other, int(one.starts[0]), int(one.ends[-1])))


def gaps(one: Intervals, start: int, end: int) -> Intervals:
    """Return the time between `start` and `end` that is not in the set."""
    starts = np.append(np.int64(start), np.clip(one.ends, start, end))
    ends = np.append(np.clip(one.starts, start, end), np.int64(end))
    kept = ends > starts
    return Intervals(starts[kept], ends[kept])


def within(one: Intervals, start: int, end: int) -> Intervals:
    """Return the part of the set between `start` and `end`."""
    starts, ends = np.clip(one.starts, start, end), np.clip(one.ends, start, end)
    kept = ends > starts
    return Intervals(starts[kept], ends[kept])


def longest(one: Intervals, most: int) -> Intervals:
    """Return the longest intervals of the set, at most so many, in order."""
    if len(one) <= most:
        return one
    kept = np.sort(np.argpartition(one.starts - one.ends, most)[:most])
    return Intervals(one.starts[kept], one.ends[kept])


def covered(one: Intervals, starts: Nanoseconds, ends: Nanoseconds) -> Nanoseconds:
    """Return, for each of any (possibly overlapping) spans, how much of it is in the set, in ns, shape of `starts`."""
    return _before(one, np.maximum(ends, starts)) - _before(one, starts)


def _before(one: Intervals, times: Nanoseconds) -> Nanoseconds:
    """Return the length of the set before each time."""
    if not len(one):
        return np.zeros(np.shape(times), dtype=np.int64)
    module = native(MODULE).module
    if module is None:
        return before_in_python(one, times)
    whole = np.append(np.int64(0), np.cumsum(one.ends - one.starts))
    found = np.empty(len(times), dtype=np.int64)
    module.lengths(*map(_plain, (one.starts, one.ends, whole, times)), found)
    return found


def before_in_python(one: Intervals, times: Nanoseconds) -> Nanoseconds:
    """Return what `_before` does, without the native module."""
    whole = np.append(np.int64(0), np.cumsum(one.ends - one.starts))
    begun = np.searchsorted(one.starts, times, side="right")
    last = np.maximum(begun - 1, 0)
    return np.where(begun > 0, whole[last] + np.minimum(times, one.ends[last]) - one.starts[last], 0)


def _plain(values: Nanoseconds) -> Nanoseconds:
    return np.ascontiguousarray(values, dtype=np.int64)


def _new(size: int) -> tuple[Nanoseconds, Nanoseconds]:
    return np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)


def _cut(found: tuple[Nanoseconds, Nanoseconds], size: int) -> Intervals:
    """Return what was written of two arrays, copied where it would keep much more in memory."""
    starts, ends = found[0][:size], found[1][:size]
    return Intervals(starts, ends) if 2 * size >= len(found[0]) else Intervals(starts.copy(), ends.copy())

"""The order of segments in time, also in a store that was copied without the times at which its objects were written."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tachoscope_core.records import records
from tachoscope_core.storage.store import BrokenObjectError, GoneObjectError, Store, StoredSegment


def in_time(store: Store, segments: Sequence[StoredSegment]) -> list[tuple[float, StoredSegment]]:
    """Return segments in the order of time, with Unix seconds: when each was written.

    If they were all written in less than half of the time that their records cover, they were copied, or shipped at once. Then the
    times are those of their first records, interpolated from the offsets between the first and the last segment of each writer.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    times = [segment.written for segment in segments]
    by_writer: dict[tuple[str, int], list[StoredSegment]] = defaultdict(list)
    for segment in sorted(segments, key=lambda segment: segment.offset):
        by_writer[segment.writer, segment.attempt].append(segment)
    first, last = _begins(store, max(by_writer.values(), key=len))
    if max(times) - min(times) < (last - first) / 2:
        own_times = {segment: time for own in by_writer.values() for segment, time in _interpolated(store, own)}
        times = [own_times[segment] for segment in segments]
    return sorted(zip(times, segments, strict=True), key=lambda pair: (pair[0], pair[1].path))


def _interpolated(store: Store, own: Sequence[StoredSegment]) -> list[tuple[StoredSegment, float]]:
    """Return the segments of a writer, given in the order of their offsets, with the times of their first records."""
    offsets = [segment.offset for segment in own]
    times = np.interp(offsets, [offsets[0], offsets[-1]], _begins(store, own)).tolist()
    return [*zip(own, times, strict=True)]


def _begins(store: Store, own: Sequence[StoredSegment]) -> tuple[float, float]:
    """Return the times of the first records of the first and last segments of a writer; one that cannot be read has none."""
    first, last = _begin(store, own[0]), _begin(store, own[-1])
    known = [time for time in (first, last) if time is not None] or [own[0].written]
    return known[0], known[-1]


def _begin(store: Store, segment: StoredSegment) -> float | None:
    try:
        content = store.read(segment)
    except (BrokenObjectError, GoneObjectError):  # compaction reports it
        return None
    for line in io.BytesIO(content):
        try:
            return records.decode(line).time
        except (records.UnknownKindError, records.MalformedRecordError):
            continue
    return None

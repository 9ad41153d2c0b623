"""Reads the part of a long job that is judged, so that time and memory do not grow with the length of the job."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_analyzers.records.window import moment, no_step_within, within
from tachoscope_core.report.report import JudgedInterval, QualityNote
from tachoscope_core.storage.compacted import CompactedList, CompactedSet, segments_left
from tachoscope_core.storage.store import BrokenObjectError, Store, StoredSegment

MOST_RECORDS = 350_000
"""Number of measurements that are judged at once: two hours of 64 ranks with steps of 2 s, which takes 3 s."""
_LEAST_BYTES_A_RECORD = 25
"""Lower bound for compressed segments (measured on CPU and on an H200: 97 to 128); jobs that are short by it are read whole."""
_LOOKED_BACK_SECONDS = (600.0, 86400.0)
"""How far back the last step of a job is searched: evaluation, traces and the end of the job are recorded after it."""
_SAMPLED = 8
"""Number of segments that are read to estimate the number of records in the others."""


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """How many measurements a store holds of a job over time.

    Attributes:
        begins, ends: of each segment or compacted set, Unix seconds, shape (N,).
        records: number of measurements, shape (N,); an estimate for segments.
    """

    begins: npt.NDArray[np.float64]
    ends: npt.NDArray[np.float64]
    records: npt.NDArray[np.float64]

    @property
    def end(self) -> float:
        """Time of the last record, Unix seconds; 0 without records."""
        return float(self.ends.max(initial=0.0))

    def count(self, start: float, end: float) -> float:
        """Return the estimated number of records in a window."""
        lengths = np.maximum(self.ends - self.begins, 1e-9)
        inside = np.minimum(self.ends, end) - np.maximum(self.begins, start)
        return float((self.records * np.clip(inside / lengths, 0.0, 1.0)).sum())

    def newest_part(self, start: float, end: float, most: float) -> float:
        """Return the earliest time, not before `start`, from which at most `most` records are left until `end`."""
        if self.count(start, end) <= most:
            return start
        low, high = max(start, float(self.begins.min())), end
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.count(middle, end) > most else (low, middle)
        return high


def extent(store: Store, job: str, segments: Sequence[StoredSegment], sets: Sequence[CompactedSet]) -> Extent:
    """Return the extent of a job, from the lists of compacted sets, sizes of segments, and first and last records of writers.

    The time of a segment is interpolated from its offset, because a copied store does not keep the time of writing.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    pieces = [(*_times_of(one.holds), float(one.holds.measurements)) for one in sets]
    if segments:
        bytes_a_record = _bytes_a_record(store, segments)
        firsts, lasts = _ends_of_writers(from_store(store, job, ends_only=True))
        by_writer: dict[str, list[StoredSegment]] = defaultdict(list)
        for segment in sorted(segments, key=lambda segment: segment.offset):
            by_writer[segment.writer].append(segment)
        for writer, own in by_writer.items():
            last = lasts.get(writer, 0.0)
            offsets = [segment.offset for segment in own] + [own[-1].offset + max(own[-1].bytes, 1)]
            times = np.interp(offsets, [0, offsets[-1]], [min(firsts.get(writer, last), last), last]).tolist()
            counts = [segment.bytes / bytes_a_record for segment in own]
            pieces += zip(times, times[1:], counts, strict=False)
    columns = np.array(pieces, dtype=np.float64).reshape(-1, 3).T
    return Extent(*columns)


def _is_surely_short(segments: Sequence[StoredSegment], sets: Sequence[CompactedSet]) -> bool:
    """Return whether a job can be judged at once, by the sizes of its objects alone."""
    of_segments = sum(segment.bytes for segment in segments) / _LEAST_BYTES_A_RECORD
    return of_segments + sum(one.holds.measurements for one in sets) <= MOST_RECORDS


def _bytes_a_record(store: Store, segments: Sequence[StoredSegment]) -> float:
    """Return the mean compressed size of a record, from a sample of segments."""
    bytes_, records = 0, 0
    for segment in segments[:: max(len(segments) // _SAMPLED, 1)]:
        with contextlib.suppress(BrokenObjectError):
            records += store.read(segment).count(b"\n")
            bytes_ += segment.bytes
    return max(bytes_ / max(records, 1), 1.0)


def _ends_of_writers(job: JobRecords) -> tuple[dict[str, float], dict[str, float]]:
    """Return when each writer began and when it wrote last, Unix seconds."""
    first = {writer: float(own.column("time").min()) for writer, own in job.heartbeats.by_writer().items()}
    last = job.steps.last_of_each_writer("time")
    for writer, time in job.heartbeats.last_of_each_writer("time").items():
        last[writer] = max(time, last.get(writer, time))
    for row in (*job.starts, *job.services, *job.requests, *job.engine_windows, *job.ends):
        first[row.writer] = min(row.time, first.get(row.writer, row.time))
        last[row.writer] = max(row.time, last.get(row.writer, row.time))
    return first, last


def _last_step_time(store: Store, job: str, end: float) -> float:
    """Return the end of the last step of a job in Unix seconds, or `end`, the time of its last record, if it has no step."""
    for before in _LOOKED_BACK_SECONDS:
        if steps := from_store(store, job, start=max(end - before, 1.0)).steps:
            return steps.last_time()
    return end


def _times_of(holds: CompactedList) -> tuple[float, float]:
    """Return the times of the first and last step of a set, or of its records if it has no steps."""
    return (holds.steps_begin, holds.steps_end) if holds.steps else (holds.begin, holds.end)


def read_part(
    store: Store,
    job: str,
    *,
    start: float | None = None,
    end: float | None = None,
    last: float | None = None,
    part: int | None = None,
) -> JobRecords:
    """Read a job, or the newest part of a long job; `left_out` then describes the rest.

    Args:
        start, end: window in Unix seconds; None: no limit. last: length of the window in seconds, up to `end` or the last step.
        part: number of measurements to read of a window that has more than `MOST_RECORDS`; None: as many as that.

    Raises:
        TachoscopeError: the store has no such job, or no step in the window.
    """
    segments, _, sets = segments_left(store, job)
    if start is None and end is None and last is None and _is_surely_short(segments, sets):
        return from_store(store, job)
    whole = extent(store, job, segments, sets)
    newest = whole.end + 1.0 if last is None else _last_step_time(store, job, whole.end)
    until = newest if end is None else end
    since = until - last if last is not None else start
    wanted = 0.0 if since is None else since
    first, most = whole.newest_part(wanted, until, MOST_RECORDS), min(part or MOST_RECORDS, MOST_RECORDS)
    if first > wanted:
        first = whole.newest_part(wanted, until, most)
    read = from_store(store, job, start=first or None, end=end)
    if since is None and end is None and first <= wanted:
        return read
    if not read.steps and not read.broken and from_store(store, job, ends_only=True).steps:
        ended = _last_step_time(store, job, whole.end)
        raise no_step_within(job, first, until, first=float(whole.begins.min()), last=ended)
    found = within(read, first, until)
    del read  # frees its steps, which `found` has copies of
    if first <= wanted:
        return found
    count = whole.count(wanted, until)
    note = QualityNote(
        what=f"records before {moment(first)} were not read: there are about {count:,.0f}, and {most:,} are judged at once",
        severity="note",
        means="the report is about what came since; --from and --to choose another part",
    )
    return replace(found, left_out=note, earlier=earlier_intervals(sets, before=first))


def earlier_intervals(sets: Sequence[CompactedSet], *, before: float) -> list[JudgedInterval]:
    """Return the intervals that start before a Unix time; adjacent ones with the same main and critical findings are merged."""
    every = sorted((one for each in sets for one in each.holds.intervals), key=lambda one: (one.start, one.end))
    joined: list[JudgedInterval] = []
    for one in every:
        if one.start >= before:
            break
        if joined and _what_was_found(joined[-1]) == _what_was_found(one):
            joined[-1] = _joined(joined[-1], one)
        else:
            joined.append(one)
    return joined


def _what_was_found(one: JudgedInterval) -> tuple[object, ...]:
    grave = [found for found in one.findings if found.severity == "critical"] or one.findings[:1]
    return (one.attempt, sorted((found.class_, found.severity, str(found.ranks)) for found in grave))


def _joined(one: JudgedInterval, other: JudgedInterval) -> JudgedInterval:
    """Merge two intervals: means weighted by steps, findings of the longer one."""
    part = other.steps / (one.steps + other.steps)
    shares = None
    if one.compute_share is not None and other.compute_share is not None:
        shares = one.compute_share * (1 - part) + other.compute_share * part
    return JudgedInterval(
        start=one.start,
        end=max(one.end, other.end),
        attempt=one.attempt,
        steps=one.steps + other.steps,
        step_seconds=one.step_seconds * (1 - part) + other.step_seconds * part,
        compute_share=shares,
        findings=max(one, other, key=lambda each: each.steps).findings,
    )

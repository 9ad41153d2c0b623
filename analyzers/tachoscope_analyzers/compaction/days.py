"""Compaction: the record objects of a job's past days become a few objects of columns, see `tachoscope_core.storage.compacted`.

It can be killed at any point without losing or duplicating records: objects in columns are written first, then the list that makes
them valid, and only then are the segments removed. A line that the columns cannot represent exactly is kept as a line.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tachoscope_analyzers.compaction.hourly import Judging
from tachoscope_analyzers.compaction.segment_order import in_time
from tachoscope_analyzers.compaction.set_in_making import Compacted, SetInMaking
from tachoscope_analyzers.records.load import JobRecords, starts_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.report.report import Report
from tachoscope_core.storage.compacted import segments_left, stray_objects
from tachoscope_core.storage.store import BrokenObjectError, GoneObjectError, Store, StoredSegment

AT_REST_SECONDS = 3600.0
"""A job without writes for this long is at rest. A day is complete this long after its end, because agents may ship late."""
MOST_STEPS = 4_000_000
"""In a compacted set, which is built in memory: about 150 MB of columns."""


@dataclass(frozen=True, slots=True)
class DueDay:
    """A day of a job that can be compacted.

    Attributes:
        starts: of the processes of the job that are known so far, by which its hours are judged.
    """

    job: str
    day: str
    segments: tuple[StoredSegment, ...]
    starts: tuple[records.JobStarted, ...] = ()


def compact_job(
    store: Store,
    job: str,
    *,
    now: float,
    at_rest_seconds: float = AT_REST_SECONDS,
    judge: Callable[[JobRecords], Sequence[Report]] | None = None,
) -> Compacted:
    """Compact the complete days of a job, or all of it if it is at rest. It can be killed and run again at any time.

    Args:
        now: Unix seconds. judge: returns the reports on an hour of a training, in the order of time; None: hours are not judged.

    Raises:
        TachoscopeError: the store cannot be read or written.
    """
    days = due_days(store, job, now=now, at_rest_seconds=at_rest_seconds, judged=judge is not None)
    return sum((compact_day(store, day, judge) for day in days), Compacted())


def due_days(store: Store, job: str, *, now: float, at_rest_seconds: float = AT_REST_SECONDS, judged: bool = True) -> list[DueDay]:
    """Return the days of a job that can be compacted, after removing what earlier compactions replaced but did not remove.

    Args:
        now: Unix seconds. judged: whether `compact_day` will judge the hours.

    Raises:
        TachoscopeError: the store cannot be read or written.
    """
    # Not by `at_rest_seconds` alone: it says when a job is at rest, and another compaction may still write such objects.
    store.remove(stray_objects(store, job, before=now - max(at_rest_seconds, AT_REST_SECONDS)))
    left, replaced, _ = segments_left(store, job)
    store.remove(segment.path for segment in replaced)
    resting = max((segment.written for segment in left), default=0.0) < now - at_rest_seconds
    last_day = datetime.fromtimestamp(now - at_rest_seconds, UTC).date() - timedelta(days=1)
    by_day: dict[str, list[StoredSegment]] = defaultdict(list)
    for segment in left:
        if resting or date.fromisoformat(segment.day) <= last_day:
            by_day[segment.day].append(segment)
    starts: tuple[records.JobStarted, ...] = ()
    if judged and by_day:
        with contextlib.suppress(TachoscopeError):  # no record can be read, so nothing is judged
            starts = tuple(starts_of(store, job))
    return [DueDay(job, day, tuple(segments), starts) for day, segments in sorted(by_day.items())]


def compact_day(store: Store, due: DueDay, judge: Callable[[JobRecords], Sequence[Report]] | None = None) -> Compacted:
    """Compact a day of a job. Days are independent: they can be compacted at the same time, and on different machines.

    Args:
        judge: see `compact_job`.

    Raises:
        TachoscopeError: the store cannot be read or written.
    """
    found = Compacted()
    judging = Judging(due.job, judge, due.starts) if judge is not None and due.starts else None
    making = SetInMaking(due.job, judging)
    for time, segment in in_time(store, due.segments):
        try:
            making.add(time, segment, store.read(segment))
        except BrokenObjectError as error:
            found += Compacted(broken=(str(error),))
        except GoneObjectError:  # another compaction replaced it
            continue
        if making.steps >= MOST_STEPS:
            found += making.write(store, due.day)
            making = SetInMaking(due.job, judging)
    return found + making.write(store, due.day) if making.segments else found

"""Compaction: the record objects of a job's past days become a few objects of columns, see `tachoscope_core.storage.compacted`.

It can be killed at any point without losing or duplicating records: objects in columns are written first, then the list that makes
them valid, and only then are the segments removed. A line that the columns cannot represent exactly is kept as a line.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from tachoscope_analyzers.records.hourly import Judging
from tachoscope_analyzers.records.load import MEASURED, JobRecords, from_store
from tachoscope_analyzers.records.step_parquet import StepWriter
from tachoscope_analyzers.records.step_table import StepTable, has_columns_for
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.report.report import JudgedInterval, Report
from tachoscope_core.storage.compacted import CompactedList, CompactedWriter, compacted_sets, segments_left, stray_objects
from tachoscope_core.storage.store import BrokenObjectError, GoneObjectError, Store, StoredSegment

AT_REST_SECONDS = 3600.0
"""A job without writes for this long is at rest. A day is complete this long after its end, because agents may ship late."""
MOST_STEPS = 4_000_000
"""In a compacted set, which is built in memory: about 150 MB of columns."""
GROUP_BYTES = 32 << 20
"""Of JSON lines in a row group."""
_GROUP_SECONDS = 3600.0
"""Longest time that a row group covers. Each is judged as one interval, and windows are read in whole row groups."""
_LINE_OBJECT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction: segments replaced, sets written, bytes of their JSON lines, bytes stored, and unreadable objects."""

    segments: int = 0
    sets: int = 0
    json_bytes: int = 0
    stored_bytes: int = 0
    broken: tuple[str, ...] = ()

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.segments + other.segments,
            self.sets + other.sets,
            self.json_bytes + other.json_bytes,
            self.stored_bytes + other.stored_bytes,
            self.broken + other.broken,
        )


@dataclass(frozen=True, slots=True)
class DueDay:
    """A day of a job that can be compacted.

    Attributes:
        segments: in the order in which they were written.
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
    judge: Callable[[JobRecords], Report] | None = None,
) -> Compacted:
    """Compact the complete days of a job, or all of it if it is at rest. It can be killed and run again at any time.

    Args:
        now: Unix seconds. judge: returns the report on an hour of a training; None: hours are not judged.

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
            starts = tuple(from_store(store, job, ends_only=True).starts)
    return [
        DueDay(job, day, tuple(sorted(segments, key=lambda one: (one.written, one.path))), starts)
        for day, segments in sorted(by_day.items())
    ]


def compact_day(store: Store, due: DueDay, judge: Callable[[JobRecords], Report] | None = None) -> Compacted:
    """Compact a day of a job. Days are independent: they can be compacted at the same time, and on different machines.

    Args:
        judge: see `compact_job`.

    Raises:
        TachoscopeError: the store cannot be read or written.
    """
    found = Compacted()
    judging = Judging(due.job, judge, due.starts) if judge is not None and due.starts else None
    making = _SetInMaking(judging)
    for segment in due.segments:
        try:
            making.add(due.job, segment, store.read(segment))
        except BrokenObjectError as error:
            found += Compacted(broken=(str(error),))
        except GoneObjectError:  # another compaction replaced it
            continue
        if making.steps >= MOST_STEPS:
            found += making.write(store, due.job, due.day)
            making = _SetInMaking(judging)
    return found + making.write(store, due.job, due.day) if making.segments else found


@dataclass(slots=True, eq=False)
class _SetInMaking:
    judging: Judging | None = None
    segments: list[StoredSegment] = field(default_factory=list)
    steps: int = 0
    _times: list[float] = field(default_factory=list)
    _step_times: tuple[float, float] = (float("inf"), 0.0)
    _json_bytes: int = 0
    _step_file: StepWriter | None = None
    _rows: list[records.StepDone] = field(default_factory=list)
    _row_bytes: int = 0
    _group_since: float = 0.0
    _beside: list[records.AnyRecord] = field(default_factory=list)
    _intervals: list[JudgedInterval] = field(default_factory=list)
    _measured: list[tuple[float, bytes]] = field(default_factory=list)
    _measured_count: int = 0
    _measured_file: _LineWriter = field(default_factory=lambda: _LineWriter())
    _others: list[bytes] = field(default_factory=list)

    def add(self, job: str, segment: StoredSegment, content: bytes) -> None:
        if self._row_bytes and (self._row_bytes >= GROUP_BYTES or segment.written - self._group_since >= _GROUP_SECONDS):
            self._end_group()
        if not self._row_bytes:
            self._group_since = segment.written
        for line in io.BytesIO(content):
            self._add_line(job, line)
        self.segments.append(segment)
        self._json_bytes += len(content)
        self._row_bytes += len(content)

    def _add_line(self, job: str, line: bytes) -> None:
        try:
            record = records.decode(line)
        except (records.UnknownKindError, records.MalformedRecordError):
            self._others.append(line)
            return
        self._times.append(record.time)
        if len(self._times) > 2:
            self._times = [min(self._times), max(self._times)]
        if (
            isinstance(record, records.StepDone)
            and record.job == job
            and has_columns_for(record)
            and records.encode(record) == line
        ):
            self._rows.append(record)
            return
        if self.judging is not None and record.job == job:
            self._beside.append(record)
        if line.startswith(MEASURED) and line.endswith(b"\n"):
            self._measured.append((record.time, line))
        else:
            self._others.append(line)

    def _end_group(self) -> None:
        """Write what was added since the last group as row groups, and judge it."""
        steps = StepTable.of(self._rows)
        if self.judging is not None:
            self._intervals += self.judging.intervals(steps, self._beside)
        self._rows, self._row_bytes, self._beside = [], 0, []
        if steps:
            self._step_file = self._step_file or StepWriter(steps)
            stored = self._step_file.exactly_stored(steps)
            self._measured += [(row.time, records.encode(row)) for row in steps.take(~stored)]
            self._add_steps(steps.take(stored))
        self._measured_file.add(self._measured)
        self._measured_count += len(self._measured)
        self._measured = []

    def _add_steps(self, steps: StepTable) -> None:
        """Write a row group of steps that the file can hold exactly."""
        if not steps or self._step_file is None:
            return
        self._step_file.add(steps.take(np.lexsort((steps.column("seq"), steps.writer_ranks()))))
        self.steps += len(steps)
        times, (first, last) = steps.column("time"), self._step_times
        self._step_times = (min(first, float(times.min())), max(last, float(times.max())))

    def write(self, store: Store, job: str, day: str) -> Compacted:
        """Write the set and remove the segments that it replaces, unless another compaction replaced some of them already."""
        self._end_group()
        done = {key for one in compacted_sets(store, job) for key in one.replaced()}
        if any((segment.writer, segment.attempt, segment.offset) in done for segment in self.segments):
            return Compacted()
        writers: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for segment in self.segments:
            writers[segment.host, segment.writer, segment.attempt].append(segment.offset)
        replaced = [CompactedWriter(*key, sorted(offsets)) for key, offsets in sorted(writers.items())]
        digest = hashlib.sha256(msgspec.json.encode(replaced)).hexdigest()[:16]
        written = max(segment.written for segment in self.segments)
        name = f"date={day}/{int(written):010d}_{digest}"
        objects = {f"{name}.steps.parquet": self._step_file.end() if self._step_file and self.steps else b""}
        objects[f"{name}.measured.parquet"] = self._measured_file.end() if self._measured_count else b""
        lines = list(_line_objects(self._others))
        objects |= {f"{name}-{number}.jsonl.gz": _packed(content) for number, content in enumerate(lines)}
        holds = CompactedList(
            steps=self.steps,
            measured=self._measured_count,
            line_objects=len(lines),
            begin=min(self._times, default=0.0),
            end=max(self._times, default=0.0),
            written=written,
            json_bytes=self._json_bytes,
            writers=replaced,
            intervals=self._intervals,
            steps_begin=self._step_times[0] if self.steps else 0.0,
            steps_end=self._step_times[1] if self.steps else 0.0,
        )
        objects[f"{name}.json.gz"] = _packed(msgspec.json.encode(holds))  # written last, it makes the set valid
        objects = {key: data for key, data in objects.items() if data}
        for key, data in objects.items():
            store.write_compacted(job, key, data)
        store.remove(segment.path for segment in self.segments)
        return Compacted(len(self.segments), 1, self._json_bytes, sum(map(len, objects.values())))


class _LineWriter:
    """Writes lines with their times into a Parquet file in memory."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()
        self._file: Any = None

    def add(self, rows: Sequence[tuple[float, bytes]]) -> None:
        """Write a row group: lines of one kind and writer beside each other."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not rows:
            return
        schema = pa.schema([("time", pa.float64()), ("line", pa.binary())])
        self._file = self._file or pq.ParquetWriter(
            self._sink, schema, compression="zstd", compression_level=9, use_dictionary=False, version="2.6"
        )
        rows = sorted(rows, key=lambda row: (row[1][: row[1].find(b'"seq"')], row[0]))
        table = pa.table([[time for time, _ in rows], [line for _, line in rows]], schema=schema)
        self._file.write_table(table, row_group_size=len(rows))

    def end(self) -> bytes:
        """Return the file."""
        self._file.close()
        return self._sink.getvalue()


def _line_objects(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the contents of objects of bounded size. A line without newline ends its object, so that it does not join the next."""
    parts: list[bytes] = []
    size = 0
    for line in lines:
        parts.append(line)
        size += len(line)
        if size >= _LINE_OBJECT_BYTES or not line.endswith(b"\n"):
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _packed(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=6, mtime=0)

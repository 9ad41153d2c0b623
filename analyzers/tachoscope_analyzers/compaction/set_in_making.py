"""A compacted set while its segments are added: it is built in memory, a row group at a time, and then written."""

from __future__ import annotations

import gzip
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from tachoscope_analyzers.compaction.hourly import Judging
from tachoscope_analyzers.compaction.segment_lines import lines_of
from tachoscope_analyzers.records.beat_parquet import BeatWriter
from tachoscope_analyzers.records.beat_table import BeatTable, BeatTableBuilder, Heartbeats
from tachoscope_analyzers.records.load import MEASURED
from tachoscope_analyzers.records.parquet_groups import LineWriter
from tachoscope_analyzers.records.step_parquet import StepWriter
from tachoscope_analyzers.records.step_table import StepTable, StepTableBuilder
from tachoscope_core.records import records
from tachoscope_core.report.report import JudgedInterval
from tachoscope_core.storage.compacted import FORM, CompactedList, CompactedWriter, compacted_sets
from tachoscope_core.storage.store import Store, StoredSegment

GROUP_BYTES = 32 << 20
"""Of JSON lines in a row group."""
_GROUP_SECONDS = 3600.0
"""Longest time that a row group covers. Each is judged as one interval, and windows are read in whole row groups."""
_BATCH_STEPS = 5_000
"""Number of decoded steps and of heartbeats that are held before they are converted to columns."""
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


class _Group:
    """What is added between two row groups."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.bytes = 0
        self.beside: list[records.AnyRecord] = []
        self.measured: list[tuple[float, bytes]] = []
        self._steps, self._step_rows = StepTableBuilder(), list[Any]()
        self._beats, self._beat_rows, self._codes = BeatTableBuilder(), list[Any](), list[int]()

    def add_steps(self, rows: list[Any]) -> None:
        """Add `ExactStep`s."""
        self._step_rows += rows
        if len(self._step_rows) >= _BATCH_STEPS:
            self._convert()

    def add_beat(self, row: Any) -> bool:
        """Add an `ExactBeat`, and return whether a table can hold it.

        Raises:
            msgspec.DecodeError: its line is not a record.
        """
        code = self._beats.code_of(row)
        if code is None:
            return False
        self._beat_rows.append(row)
        self._codes.append(code)
        if len(self._beat_rows) >= _BATCH_STEPS:
            self._convert()
        return True

    def steps(self) -> StepTable:
        """Return the steps in the order of adding."""
        self._convert()
        return self._steps.table()

    def beats(self) -> BeatTable[bytes] | None:
        """Return the heartbeats in the order of adding; None: there are none."""
        self._convert()
        return self._beats.table()

    def _convert(self) -> None:
        self._steps.add_exact(self._step_rows)
        self._beats.add(self._beat_rows, self._codes)
        self._step_rows, self._beat_rows, self._codes = [], [], []


class SetInMaking:
    """The records of a job's segments as the objects of a set.

    Attributes:
        segments: that were added. steps: how many the set has columns of.
    """

    def __init__(self, job: str, judging: Judging | None) -> None:
        self._job, self._judging = job, judging
        self.segments: list[StoredSegment] = []
        self.steps = 0
        self._begin, self._end = float("inf"), 0.0
        self._steps_begin, self._steps_end = float("inf"), 0.0
        self._json_bytes = 0
        self._group = _Group(0.0)
        self._intervals: list[JudgedInterval] = []
        self._step_file: StepWriter | None = None
        self._beat_file: BeatWriter | None = None
        self._line_file = LineWriter()
        self._others: list[bytes] = []

    def add(self, time: float, segment: StoredSegment, content: bytes) -> None:
        """Add the lines of a segment; see `in_time` for its time and the order of segments."""
        group = self._group
        if group.bytes and (group.bytes >= GROUP_BYTES or time - group.since >= _GROUP_SECONDS):
            self._end_group()
        if not self._group.bytes:
            self._group.since = time
        found = lines_of(content, self._job)
        self._begin, self._end = min(self._begin, found.begin), max(self._end, found.end)
        self._group.add_steps(found.steps)
        for beat, line in found.beats:
            self._add_beat(beat, line)
        for record, line in found.others:
            self._add_other(record, line)
        self.segments.append(segment)
        self._json_bytes += len(content)
        self._group.bytes += len(content)

    def _add_beat(self, beat: Any, line: bytes) -> None:
        try:
            if not self._group.add_beat(beat):
                self._add_other(records.decode(line), line)
        except msgspec.DecodeError:
            self._others.append(line)

    def _add_other(self, record: records.AnyRecord | None, line: bytes) -> None:
        if record is None:
            self._others.append(line)
            return
        if self._judging is not None and record.job == self._job:
            self._group.beside.append(record)
        if line.startswith(MEASURED) and line.endswith(b"\n"):
            self._group.measured.append((record.time, line))
        else:
            self._others.append(line)

    def _end_group(self) -> None:
        """Write what was added since the last group as row groups, and judge it."""
        group, self._group = self._group, _Group(0.0)
        steps, beats = group.steps(), group.beats()
        if self._judging is not None:
            seen = Heartbeats() if beats is None else Heartbeats.decoded(beats)
            self._intervals += self._judging.intervals(steps, seen, group.beside)
        lines = group.measured
        if steps:
            self._step_file = self._step_file or StepWriter(steps)
            stored = self._step_file.exactly_stored(steps)
            lines += [(row.time, records.encode(row)) for row in steps.take(~stored)]
            self._add_steps(steps.take(stored))
        if beats is not None:
            self._beat_file = self._beat_file or BeatWriter(beats)
            stored = self._beat_file.exactly_stored(beats)
            lines += [(row.time, records.encode(row)) for row in Heartbeats.decoded(beats.take(~stored))]
            if stored.any():
                self._beat_file.add(beats.take(stored).in_order())
        self._line_file.add(lines)

    def _add_steps(self, steps: StepTable) -> None:
        """Write a row group of steps that the file can hold exactly."""
        if not steps or self._step_file is None:
            return
        self._step_file.add(steps.take(np.lexsort((steps.column("seq"), steps.writer_ranks()))))
        self.steps += len(steps)
        times = steps.column("time")
        self._steps_begin = min(self._steps_begin, float(times.min()))
        self._steps_end = max(self._steps_end, float(times.max()))

    def write(self, store: Store, day: str) -> Compacted:
        """Write the set and remove the segments that it replaces, unless another compaction replaced some of them already."""
        self._end_group()
        done = {key for one in compacted_sets(store, self._job) for key in one.replaced()}
        if any((segment.writer, segment.attempt, segment.offset) in done for segment in self.segments):
            return Compacted()
        replaced = self._replaced()
        digest = hashlib.sha256(msgspec.json.encode(replaced)).hexdigest()[:16]
        name = f"date={day}/{int(max(segment.written for segment in self.segments)):010d}_{digest}"
        objects = {f"{name}.steps.parquet": self._step_file.end() if self._step_file and self.steps else b""}
        beats = self._beat_file.rows if self._beat_file else 0
        objects[f"{name}.heartbeats.parquet"] = self._beat_file.end() if self._beat_file and beats else b""
        objects[f"{name}.measured.parquet"] = self._line_file.end() if self._line_file.rows else b""
        lines = list(_line_objects(self._others))
        objects |= {f"{name}-{number}.jsonl.gz": _packed(content) for number, content in enumerate(lines)}
        objects[f"{name}.json.gz"] = _packed(msgspec.json.encode(self._list(replaced, beats, len(lines))))
        objects = {key: data for key, data in objects.items() if data}
        for key, data in objects.items():  # the list last: it makes the set valid
            store.write_compacted(self._job, key, data)
        store.remove(segment.path for segment in self.segments)
        return Compacted(len(self.segments), 1, self._json_bytes, sum(map(len, objects.values())))

    def _replaced(self) -> list[CompactedWriter]:
        writers: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for segment in self.segments:
            writers[segment.host, segment.writer, segment.attempt].append(segment.offset)
        return [CompactedWriter(*key, sorted(offsets)) for key, offsets in sorted(writers.items())]

    def _list(self, replaced: list[CompactedWriter], beats: int, line_objects: int) -> CompactedList:
        return CompactedList(
            form=FORM,
            steps=self.steps,
            heartbeats=beats,
            measured=self._line_file.rows,
            line_objects=line_objects,
            begin=min(self._begin, self._end),
            end=self._end,
            written=max(segment.written for segment in self.segments),
            json_bytes=self._json_bytes,
            writers=replaced,
            intervals=self._intervals,
            steps_begin=self._steps_begin if self.steps else 0.0,
            steps_end=self._steps_end,
        )


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

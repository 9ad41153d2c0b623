"""Reads the records of a whole life in memory that hardly grows with its length.

Everything but measurements is kept. Of steps and heartbeats an index is, and what all of them say together; they are read again
where an analysis asks for them.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records import gpu_samples
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.compacted_part import CompactedPart
from tachoscope_analyzers.records.life_heartbeats import HeartbeatIndex, LifeHeartbeats
from tachoscope_analyzers.records.life_steps import LifeSteps, StepsInMemory, StoredSteps
from tachoscope_analyzers.records.load import (
    MOST_LISTINGS,
    JobRecords,
    assembled,
    decoded,
    from_store,
    released_shards,
    source_of,
    with_counters,
)
from tachoscope_analyzers.records.step_table import StepTable, StepTableBuilder
from tachoscope_core.records import records
from tachoscope_core.redaction import redact
from tachoscope_core.storage.compacted import CompactedSet, segments_left
from tachoscope_core.storage.store import BrokenObjectError, GoneObjectError, Store, StoredSegment

Progress = Callable[[float], None]
"""Is told which part of the work is done, 0 to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class LifeRecords:
    """The records of all attempts of a job.

    Attributes:
        job: of a job that was read whole, all of them. Else all but measurements; the first and last steps of each process, its
            heartbeats as one, and of its other measurements the last one of each kind.
        steps, heartbeats: all of them, as they are asked for.
    """

    job: JobRecords
    steps: LifeSteps
    heartbeats: LifeHeartbeats


def of_job(job: JobRecords) -> LifeRecords:
    """Return the records of a job that was read whole."""
    heartbeats = LifeHeartbeats(lambda _: [job.heartbeats])
    heartbeats.add(job.heartbeats)
    return LifeRecords(job, StepsInMemory(job.steps), heartbeats)


def with_life(store: Store, job: str, analysis: Callable[[LifeRecords], _Result], *, progress: Progress | None = None) -> _Result:
    """Read a job from a store and return what an analysis makes of it: again, if objects were compacted in the meantime.

    Args:
        progress: is told which part was read, before the analysis begins.

    Raises:
        TachoscopeError: the store has no such job, or cannot be read.
    """
    for _ in range(MOST_LISTINGS):
        with contextlib.suppress(GoneObjectError):
            return analysis(of_store(store, job, progress=progress))
    return analysis(of_store(store, job, progress=progress, skip_gone=True))


def of_store(store: Store, job: str, *, progress: Progress | None = None, skip_gone: bool = False) -> LifeRecords:
    """Read a job from a store.

    Args:
        progress: is told which part was read. skip_gone: go on without objects that were compacted or removed after they were
            listed; else that is an error.

    Raises:
        GoneObjectError: an object was compacted or removed after it was listed. What is returned raises it as well, where it reads.
        TachoscopeError: the store has no such job, or cannot be read.
    """
    segments, _, sets = segments_left(store, job)
    reading = _Reading(store, job, skip_gone=skip_gone)
    reading.read(segments, sets, progress or (lambda _: None))
    if not reading.found_any:
        return of_job(from_store(store, job))  # which says why
    return reading.life({segment.writer: segment.host for segment in segments}, sets)


_Row = TypeVar("_Row", bound=records.Record)
_Result = TypeVar("_Result")
_Content = TypeVar("_Content", bytes, StepTable, Heartbeats)

_MEASURED_KINDS = (records.CollectiveDone, records.MemorySampled, records.RequestDone, records.EngineWindow)
"""Beside steps and heartbeats the records that do not describe their writer, and of which there are many."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """An object of lines by its path, or a row group of a compacted set by its number, and what it holds."""

    path: str = ""
    part: CompactedPart | None = None
    group: int = 0
    holds: Literal["lines", "steps", "heartbeats"] = "lines"

    def content(self, store: Store) -> bytes:
        """Return the piece's lines, uncompressed."""
        return store.read_lines(self.path) if self.part is None else b"".join(self.part.line_groups([self.group]))


class _Pieces:
    """The pieces of a job, by the number that they were read as."""

    def __init__(self, store: Store, job: str) -> None:
        self._store = store
        self._job = job
        self._pieces: list[_Piece] = []

    def add(self, piece: _Piece) -> int:
        """Keep a piece and return its number, from 0."""
        self._pieces.append(piece)
        return len(self._pieces) - 1

    def steps(self, places: Iterable[int]) -> Iterator[tuple[int, StepTable]]:
        """Yield the steps of some pieces in the order of their numbers, as they were recorded, with the number of the piece."""
        for part, group in groupby(sorted(places), key=lambda place: self._part_of(place, "steps")):
            if part is None:
                for place in group:
                    builder = StepTableBuilder()
                    for rows in self._again(place, records.StepDone):
                        builder.add(rows)
                    yield place, builder.table()
            else:  # its row groups have their numbers in the order of the pieces
                own = list(group)
                yield from zip(own, part.step_groups([self._pieces[place].group for place in own]), strict=True)

    def heartbeats(self, places: Iterable[int]) -> Iterator[Heartbeats]:
        """Yield the heartbeats of the pieces with these numbers, read once more, some at a time."""
        for part, group in groupby(sorted(places), key=lambda place: self._part_of(place, "heartbeats")):
            if part is None:
                for place in group:
                    yield from map(Heartbeats.of, self._again(place, records.Heartbeat))
            else:
                yield from part.heartbeat_groups([self._pieces[place].group for place in group])

    def _part_of(self, place: int, holds: str) -> CompactedPart | None:
        piece = self._pieces[place]
        return piece.part if piece.holds == holds else None

    def _again(self, place: int, kind: type[_Row]) -> Iterator[list[_Row]]:
        """Yield the records of one kind, some at a time, without decoding what is of another kind for sure."""
        content, own = self._pieces[place].content(self._store), f'{{"kind":"{kind.__name__}"'.encode()
        lines = b"".join(line for line in io.BytesIO(content) if line.startswith(own) or not line.startswith(b'{"kind":"'))
        for batch in decoded([lines], Counter()):
            yield [row for row in batch if isinstance(row, kind) and row.job == self._job]


class _SeenSeqs:
    """Which records were read already: a bit for each number of a process, in pieces, as numbers are foreign input."""

    _PLACES = 4096

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], npt.NDArray[np.uint8]] = {}

    def are_new(self, writer: str, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which numbers of a process were not read before, of equal ones the first."""
        new = np.zeros(len(seqs), dtype=bool)
        pieces, places = np.divmod(seqs, self._PLACES)
        for piece in np.unique(pieces).tolist():
            rows = np.flatnonzero(pieces == piece)
            own, first = np.unique(places[rows], return_index=True)
            packed = self._seen.get((writer, piece))
            seen = np.zeros(self._PLACES, np.uint8) if packed is None else np.unpackbits(packed)
            new[rows[first]] = seen[own] == 0
            seen[own] = 1
            self._seen[writer, piece] = np.packbits(seen)
        return new


class _Reading:
    """Takes the objects of a job one after the other."""

    def __init__(self, store: Store, job: str, *, skip_gone: bool) -> None:
        self._store, self._job, self._skip_gone = store, job, skip_gone
        self._pieces = _Pieces(store, job)
        self._steps = StoredSteps(self._pieces)
        self._beats_of = HeartbeatIndex()
        self._heartbeats = LifeHeartbeats(lambda windows: self._pieces.heartbeats(self._beats_of.places(windows)))
        self._others: dict[tuple[str, int], records.AnyRecord] = {}
        self._last_measured: dict[tuple[type, str], records.AnyRecord] = {}
        self._seen = _SeenSeqs()
        self._measured = self._duplicates = 0
        self._counts: Counter[str] = Counter()
        self._broken: list[str] = []

    @property
    def found_any(self) -> bool:
        """Whether any record of the job was read."""
        return self._steps.any or bool(self._others) or self._measured > 0

    def read(self, segments: Sequence[StoredSegment], sets: Sequence[CompactedSet], progress: Progress) -> None:
        """Read segments and compacted sets, and tell `progress` the part that is done, 0 to 1, by bytes."""
        total = sum(segment.bytes for segment in segments) + sum(map(_packed_bytes, sets))
        done = 0.0
        for segment in segments:
            self._add_object(segment.path)
            progress((done := done + segment.bytes) / max(total, 1))
        for one in sets:
            for path in one.line_paths:
                self._add_object(path)
            whole = max(one.holds.measurements, 1)
            for count in self._add_groups(CompactedPart(self._store, one)):
                done += _packed_bytes(one) * count / whole
                progress(min(done / max(total, 1), 1.0))

    def life(self, hosts: dict[str, str], sets: Sequence[CompactedSet]) -> LifeRecords:
        """Return what was read. hosts: by writer."""
        self._steps.close()
        edges, beats = self._steps.edges, self._heartbeats.together()
        others = [row for _, row in sorted(self._others.items())]
        duplicates = self._duplicates + self._steps.duplicates
        path = f"{redact(self._store.url)}: jobs/{self._job}"
        source = source_of(path, self._counts, duplicates=duplicates, implausible=self._steps.implausible)
        found = assembled(self._job, source, [*others, *self._last_measured.values()], Heartbeats.of(beats.values()), edges)
        count = len(others) + self._measured + sum(self._steps.counts.values())
        hosts = hosts | {writer.writer: writer.host for one in sets for writer in one.holds.writers}
        job = replace(
            found,
            source=msgspec.structs.replace(found.source, records=count, broken_objects=len(self._broken)),
            broken=self._broken,
            released=released_shards(self._store, self._job) if found.quarantined else {},
            gpus=gpu_samples.of_job(self._store, found.starts, edges, hosts),
        )
        return LifeRecords(with_counters(self._store, job, hosts.values()), self._steps, self._heartbeats)

    def _add_object(self, path: str) -> None:
        for content in self._readable(self._store.read_lines(one) for one in [path]):
            self._add_lines(_Piece(path), content)

    def _add_groups(self, part: CompactedPart) -> Iterator[int]:
        """Take the row groups of a set; yield how many records each has."""
        for group, content in enumerate(self._readable(part.lines_of_measurements())):
            yield self._add_lines(_Piece(part=part, group=group), content)
        for group, beats in enumerate(self._readable(part.heartbeats())):
            if beats.job == self._job:
                self._add_beats(beats, self._pieces.add(_Piece(part=part, group=group, holds="heartbeats")))
            yield len(beats)
        for group, steps in enumerate(self._readable(part.steps())):
            if steps.job == self._job:
                self._steps.add(self._pieces.add(_Piece(part=part, group=group, holds="steps")), steps)
            yield len(steps)

    def _readable(self, contents: Iterator[_Content]) -> Iterator[_Content]:
        """Yield contents until one cannot be read."""
        try:
            yield from contents
        except BrokenObjectError as error:
            self._broken.append(str(error))
        except GoneObjectError as error:
            if not self._skip_gone:
                raise
            self._broken.append(str(error))

    def _add_lines(self, piece: _Piece, content: bytes) -> int:
        place = self._pieces.add(piece)
        builder, count = StepTableBuilder(), 0
        for batch in decoded([content], self._counts):
            own = [row for row in batch if row.job == self._job]
            builder.add([row for row in own if isinstance(row, records.StepDone)])
            self._add_beats(Heartbeats.of(row for row in own if isinstance(row, records.Heartbeat)), place)
            self._add_others([row for row in own if not isinstance(row, records.StepDone | records.Heartbeat)])
            count += len(own)
        self._steps.add(place, builder.table())
        return count

    def _add_beats(self, beats: Heartbeats, place: int) -> None:
        kept = np.zeros(len(beats), dtype=bool)
        for code, writer in enumerate(beats.names["writer"]):
            rows = np.flatnonzero(beats.column("writer") == code)
            kept[rows] = self._seen.are_new(writer, beats.column("seq")[rows])
        new = beats.take(kept)
        self._measured += len(new)
        self._duplicates += len(beats) - len(new)
        self._heartbeats.add(new)
        self._beats_of.add(place, new)

    def _add_others(self, rows: Sequence[records.AnyRecord]) -> None:
        measured: dict[str, list[records.AnyRecord]] = defaultdict(list)
        for row in rows:
            if isinstance(row, _MEASURED_KINDS):
                measured[row.writer].append(row)
            else:
                self._duplicates += (row.writer, row.seq) in self._others
                self._others[row.writer, row.seq] = row
        for writer, own in measured.items():
            new = self._seen.are_new(writer, np.array([row.seq for row in own]))
            self._measured += int(new.sum())
            self._duplicates += int((~new).sum())
            for row in itertools.compress(own, new.tolist()):
                last = self._last_measured.setdefault((type(row), writer), row)
                if row.time > last.time:
                    self._last_measured[type(row), writer] = row


def _packed_bytes(one: CompactedSet) -> float:
    """Return about how many bytes the segments of a set had."""
    return one.holds.json_bytes / 6

"""Compacted records: those of a job and day in a few objects, in place of the thousands of segments that agents shipped.

`jobs/<job>/compacted/date=<day>/<id>.json.gz` lists the segments that a compacted set replaces. Next to it are
`<id>.steps.parquet` and `<id>.heartbeats.parquet`, both in columns; `<id>.measured.parquet`, other measurements as JSON lines; and
`<id>-<number>.jsonl.gz`, all other records. The list is written last. Objects without a list belong to an unfinished compaction,
and readers ignore them. Readers also ignore segments that a list names, so these can be removed at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.base import Count, UnixSeconds
from tachoscope_core.report.report import JudgedInterval
from tachoscope_core.storage.store import Store, StoredSegment, unpacked, written_time

_LIST = ".json.gz"
FORM = 2
"""Of the sets that are written. In form 1, heartbeats are JSON lines, and all phases of a step are columns of their own."""
MOST_LINE_OBJECTS = 10_000
"""Of a set. A list is foreign input, as records are."""


class CompactedWriter(msgspec.Struct, frozen=True):
    """Segments of one writer and attempt that a set replaces, by their offsets."""

    host: str
    writer: str
    attempt: int
    offsets: list[int]


class CompactedList(msgspec.Struct, frozen=True):
    """What a compacted set holds.

    Attributes:
        form: how the objects are to be read; those of an older form can be read.
        steps, heartbeats, measured: number of rows in the Parquet objects; an object without rows does not exist.
        line_objects: number of objects with JSON lines.
        begin, end: Unix seconds of its first and last record. written: when the last of its segments was written.
        steps_begin, steps_end: Unix seconds at which its first and its last step ended; 0: it has none.
        json_bytes: of the lines that the segments held. intervals: how the training went, hour by hour.
    """

    steps: Count
    measured: Count
    line_objects: Annotated[int, Meta(ge=0, le=MOST_LINE_OBJECTS)]
    begin: UnixSeconds
    end: UnixSeconds
    written: UnixSeconds
    json_bytes: Count
    writers: list[CompactedWriter]
    form: Count = 1
    heartbeats: Count = 0
    steps_begin: UnixSeconds = 0.0
    steps_end: UnixSeconds = 0.0
    intervals: list[JudgedInterval] = []

    @property
    def measurements(self) -> int:
        """Number of rows in all Parquet objects."""
        return self.steps + self.heartbeats + self.measured


@dataclass(frozen=True, slots=True)
class CompactedSet:
    """A compacted set of a job: where it lies, without the suffixes of its objects, and what it holds."""

    path: str
    holds: CompactedList

    @property
    def steps_path(self) -> str:
        """Where the Parquet file of steps is in the store."""
        return f"{self.path}.steps.parquet"

    @property
    def heartbeats_path(self) -> str:
        """Where the Parquet file of heartbeats is in the store."""
        return f"{self.path}.heartbeats.parquet"

    @property
    def measured_path(self) -> str:
        """The object of other measurements."""
        return f"{self.path}.measured.parquet"

    @property
    def line_paths(self) -> list[str]:
        """The objects of all other records."""
        return [f"{self.path}-{number}.jsonl.gz" for number in range(self.holds.line_objects)]

    @property
    def list_path(self) -> str:
        """The object that says what the set holds."""
        return self.path + _LIST

    def replaced(self, writers: Collection[str] | None = None) -> Iterable[tuple[str, int, int]]:
        """Yield writer, attempt and offset of each segment that the set replaces, of all writers or of some."""
        chosen = (one for one in self.holds.writers if writers is None or one.writer in writers)
        return ((one.writer, one.attempt, offset) for one in chosen for offset in one.offsets)


def compacted_sets(store: Store, job: str) -> list[CompactedSet]:
    """Return the compacted sets of a job, the oldest first.

    Raises:
        TachoscopeError: the store cannot be read, or a list is broken.
    """
    paths = store.find(f"jobs/{job}/compacted")
    return [CompactedSet(path.removesuffix(_LIST), _list(store, path)) for path in paths if path.endswith(_LIST)]


def _list(store: Store, path: str) -> CompactedList:
    try:
        found = msgspec.json.decode(unpacked(store.files.cat_file(path)), type=CompactedList)
    except Exception as error:  # each object store has its own
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None
    if found.form > FORM:
        raise TachoscopeError(
            f"{path} in store {store.url} was written by a newer version of tachoscope", fix="install that version or a later one"
        )
    return found


def segments_left(store: Store, job: str) -> tuple[list[StoredSegment], list[StoredSegment], list[CompactedSet]]:
    """Return the segments that no compacted set replaces, replaced segments that are not removed yet, and the sets.

    Segments are listed before sets, so a segment that is removed in between is in one of the sets.
    """
    segments = list(store.segments(job))
    sets = compacted_sets(store, job)
    writers = {segment.writer for segment in segments}
    replaced = {key for one in sets for key in one.replaced(writers)}
    left: tuple[list[StoredSegment], list[StoredSegment]] = ([], [])
    for segment in segments:
        left[(segment.writer, segment.attempt, segment.offset) in replaced].append(segment)
    return *left, sets


def all_segments(store: Store, job: str) -> list[StoredSegment]:
    """Return all segments that a job ever had in the store; those that are compacted have the path of their set's list."""
    segments, _, sets = segments_left(store, job)
    for one in sets:
        hosts = {(who.writer, who.attempt): who.host for who in one.holds.writers}
        segments += [
            StoredSegment(one.list_path, hosts[writer, attempt], writer, attempt, offset)
            for writer, attempt, offset in one.replaced()
        ]
    return segments


def last_attempt(store: Store, job: str) -> int:
    """Return the highest attempt of a job that the store knows, or -1."""
    return max((segment.attempt for segment in all_segments(store, job)), default=-1)


def stray_objects(store: Store, job: str, *, before: float) -> list[str]:
    """Return the objects of unfinished compactions that were written before a Unix time; newer ones may still be in progress."""
    entries = store.find(f"jobs/{job}/compacted")
    listed = {path.removesuffix(_LIST) for path in entries if path.endswith(_LIST)}
    return [path for path, entry in entries.items() if _set_path(path) not in listed and written_time(entry) < before]


def _set_path(path: str) -> str:
    """Return an object's path without its suffix."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.partition('.')[0].partition('-')[0]}"

"""Reads a compacted set of records: all of it, what may belong to a window, or single row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from tachoscope_analyzers.records.beat_parquet import read_beats
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.parquet_groups import Wanted, read_lines
from tachoscope_analyzers.records.step_parquet import read_steps
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.compacted import CompactedSet
from tachoscope_core.storage.store import BrokenObjectError, GoneObjectError, Store

_Rows = TypeVar("_Rows")

LONGEST_STEP_SECONDS = 7200.0
"""A step belongs to the window that contains its middle, so it may end half as long after the window."""


@dataclass(frozen=True, slots=True)
class CompactedPart:
    """A compacted set, and which of its measurements to read.

    Attributes:
        start, end: window in Unix seconds; None: no limit. last_seconds: only those of so many seconds up to the last one.
        missing: the error for an object of the set that does not exist.
    """

    store: Store
    set: CompactedSet
    start: float | None = None
    end: float | None = None
    last_seconds: float | None = None
    missing: type[TachoscopeError] = GoneObjectError

    def lines_of_writers(self) -> Iterator[bytes]:
        """Yield the lines of records that describe their writer."""
        for path in self.set.line_paths:
            try:
                yield self.store.read_lines(path)
            except GoneObjectError as error:
                raise self.missing(str(error)) from None

    def lines_of_measurements(self) -> Iterator[bytes]:
        """Yield the lines of measurements that are not in columns, by row group."""
        yield from self._rows(self.set.holds.measured, self.set.measured_path, read_lines, self.set.holds.end)

    def heartbeats(self) -> Iterator[Heartbeats]:
        """Yield the heartbeats that are in columns, by row group."""
        yield from self._rows(self.set.holds.heartbeats, self.set.heartbeats_path, read_beats, self.set.holds.end)

    def steps(self) -> Iterator[StepTable]:
        """Yield tables of steps, by row group."""
        yield from self._rows(self.set.holds.steps, self.set.steps_path, read_steps, self.set.holds.steps_end)

    def step_groups(self, groups: Collection[int]) -> Iterator[StepTable]:
        """Yield the steps of row groups in the order of their numbers: how many tables `steps` yields before, of a whole set."""
        return self._groups(self.set.steps_path, read_steps, groups)

    def heartbeat_groups(self, groups: Collection[int]) -> Iterator[Heartbeats]:
        """Yield the heartbeats of row groups in the order of their numbers; see `step_groups`."""
        return self._groups(self.set.heartbeats_path, read_beats, groups)

    def line_groups(self, groups: Collection[int]) -> Iterator[bytes]:
        """Yield the lines of row groups of measurements in the order of their numbers."""
        return self._groups(self.set.measured_path, read_lines, groups)

    def _rows(self, count: int, path: str, read: Callable[[Any, Wanted], Iterator[_Rows]], end: float) -> Iterator[_Rows]:
        """Yield the wanted row groups of an object of which the last row is of `end`, Unix seconds."""
        if count and self._wanted:
            since = self.start if self.last_seconds is None else end - self.last_seconds
            with self._opened(path) as file:
                yield from read(file, Wanted(since, self.end))

    def _groups(self, path: str, read: Callable[[Any, Wanted], Iterator[_Rows]], groups: Collection[int]) -> Iterator[_Rows]:
        with self._opened(path) as file:
            yield from read(file, Wanted(groups=groups))

    @property
    def _wanted(self) -> bool:
        holds = self.set.holds
        return (self.start is None or holds.end >= self.start) and (
            self.end is None or holds.begin <= self.end + LONGEST_STEP_SECONDS / 2
        )

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        try:
            with self.store.files.open(path, "rb") as file:
                yield file
        except FileNotFoundError:
            raise self.missing(f"{path} in store {self.store.url} no longer exists") from None
        except (OSError, ValueError) as error:
            raise BrokenObjectError(f"could not read {path} in store {self.store.url}: {error}") from None

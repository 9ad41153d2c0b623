"""Reads a compacted set of records: all of it, what may belong to a window, or single row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tachoscope_analyzers.records import step_parquet
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.compacted import CompactedSet
from tachoscope_core.storage.store import BrokenObjectError, GoneObjectError, Store


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

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of records that describe their writer, then those of measurements other than steps."""
        yield from self.lines_of_writers()
        yield from self.lines_of_measurements()

    def lines_of_writers(self) -> Iterator[bytes]:
        """Yield the lines of records that describe their writer."""
        for path in self.set.line_paths:
            try:
                yield self.store.read_lines(path)
            except GoneObjectError as error:
                raise self.missing(str(error)) from None

    def lines_of_measurements(self) -> Iterator[bytes]:
        """Yield the lines of measurements other than steps by row group."""
        if self.set.holds.measured and self._wanted:
            with self._opened(self.set.measured_path) as file:
                since = self._since(self.set.holds.end)
                yield from step_parquet.read_lines(file, start=since, end=self.end)

    def steps(self) -> Iterator[StepTable]:
        """Yield tables of steps."""
        if self.set.holds.steps and self._wanted:
            with self._opened(self.set.steps_path) as file:
                since = self._since(self.set.holds.steps_end)
                yield from step_parquet.read_steps(file, start=since, end=self.end)

    def step_groups(self, groups: Collection[int]) -> Iterator[StepTable]:
        """Yield the steps of row groups in the order of their numbers: how many tables `steps` yields before, of a whole set."""
        with self._opened(self.set.steps_path) as file:
            yield from step_parquet.read_steps(file, groups=groups)

    def line_groups(self, groups: Collection[int]) -> Iterator[bytes]:
        """Yield the lines of row groups of measurements in the order of their numbers."""
        with self._opened(self.set.measured_path) as file:
            yield from step_parquet.read_lines(file, groups=groups)

    def _since(self, end: float) -> float | None:
        return self.start if self.last_seconds is None else end - self.last_seconds

    @property
    def _wanted(self) -> bool:
        holds = self.set.holds
        return (self.start is None or holds.end >= self.start) and (self.end is None or holds.begin <= self.end)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        try:
            with self.store.files.open(path, "rb") as file:
                yield file
        except FileNotFoundError:
            raise self.missing(f"{path} in store {self.store.url} is not there any more") from None
        except (OSError, ValueError) as error:
            raise BrokenObjectError(f"could not read {path} in store {self.store.url}: {error}") from None

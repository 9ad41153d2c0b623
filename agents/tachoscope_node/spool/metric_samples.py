"""Metric samples for the store: SLOs can be reported from them with no Prometheus at all.

They collect in a file beside the journal, which survives the agent, and go to the store as one object when it is old or large.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tachoscope_core.errors import TachoscopeError, not_written
from tachoscope_core.storage.store import Store
from tachoscope_service.metrics.family import Family, Histogram

MAX_FILE_BYTES = 8 << 20
MAX_KEPT_BYTES = 64 << 20
_encoder = msgspec.json.Encoder()


def lines(families: Sequence[Family], unix_seconds: float) -> bytes:
    """Return one JSON line for each family with points: its name, the names of its labels, and label values with the value.

    A histogram's value is `{"counts": [...], "sum": ...}`, counts by bucket (not cumulative), the last above all bounds; with
    `"bounds": [...]` where they are not all of the metric's.
    """
    return b"".join(_encoder.encode(_line(family, unix_seconds)) + b"\n" for family in families if family.points)


def _line(family: Family, unix_seconds: float) -> dict[str, Any]:
    points = [(labels, _histogram(value) if isinstance(value, Histogram) else value) for labels, value in family.points]
    return {"time": round(unix_seconds, 3), "name": family.metric.name, "labels": family.metric.labels, "points": points}


def _histogram(value: Histogram) -> dict[str, Any]:
    bounds = {} if value.bounds is None else {"bounds": value.bounds}
    return {"counts": value.counts, "sum": value.sum, **bounds}


class Samples:
    """Appends samples to files in a directory and ships whole files. Methods raise TachoscopeError and lose nothing but what cannot
    be written at all.

    Attributes:
        directory: where the files are. dropped: files given up because the store was away for too long.
        failing: why the store did not take the last file, or nothing.
    """

    def __init__(self, directory: Path, store: Store, node: str, *, max_age_seconds: float) -> None:
        self.directory = directory
        self._store = store
        self._node = node
        self._max_age_seconds = max_age_seconds
        self._current: Path | None = None
        self._began = 0.0
        self.dropped = 0
        self.failing = ""

    def append(self, families: Sequence[Family], *, now: float, unix_seconds: float) -> None:
        """Add a sample of all families; `now` is monotonic."""
        if self._current is None:
            self._current, self._began = self.directory / f"{int(unix_seconds)}-{uuid.uuid4()}.jsonl", now
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._current.open("ab") as file:
                file.write(lines(families, unix_seconds))
            full = self._current.stat().st_size >= MAX_FILE_BYTES
        except OSError as error:
            self._current = None
            raise not_written(self.directory, error) from None
        if full or now - self._began >= self._max_age_seconds:
            self._current = None

    def finish(self) -> None:
        """Close the current file, so that it is shipped too."""
        self._current = None

    def ship(self) -> int:
        """Ship the files that are complete, also those of an agent that was killed; return how many."""
        shipped = 0
        files = [path for path in sorted(self.directory.glob("*.jsonl")) if path != self._current]
        self._give_up(files)
        for path in files:
            began, _, _ = path.name.partition("-")
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            if whole:
                at = float(began) if began.isdigit() else time.time()
                self._write(path.stem, at, whole)
            path.unlink()
            shipped += 1
        return shipped

    def _write(self, name: str, at: float, content: bytes) -> None:
        try:
            self._store.write_samples(host=self._node, name=name, time=at, lines=content)
        except TachoscopeError as error:
            self.failing = str(error)
            raise
        self.failing = ""

    def unshipped_count(self) -> int:
        """Return how many files the store does not have yet."""
        return len(list(self.directory.glob("*.jsonl")))

    def _give_up(self, files: list[Path]) -> None:
        while files and sum(path.stat().st_size for path in files) > MAX_KEPT_BYTES:
            files.pop(0).unlink()
            self.dropped += 1

"""Turns what the training thread leaves here into records, and appends them to the spool.

The training thread only puts a finished step into a queue; the sampler's thread encodes and writes it within a tenth of a second. A
write on the training thread would cost three times the rest of the probe, since after a step's computing nothing of it is left
in the processor's caches (docs/develop/measurements.md).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tachoscope.process.identity import Identity
from tachoscope.spool.writer import SpoolWriter
from tachoscope.timing.finished_step import FinishedStep
from tachoscope_core.records import records
from tachoscope_core.records.records import PHASES

MAX_QUEUED_STEPS = 100_000
MAX_EARLY = 1_000
_INVALID = (TypeError, ValueError, OverflowError, RecursionError)
"""What a field that a record cannot hold raises."""


_PendingRecord = tuple[type[records.Record], dict[str, Any], float, int]
"""Kind and fields of a record beside its envelope, and when it was made, in Unix seconds and monotonic nanoseconds. A plain
tuple: a service makes thousands a second."""


class Outbox:
    """The records of one process: one writer, one spool. No method raises for a spool that cannot be written.

    All records pass through one queue, which one thread at a time writes. A signal handler of the job may call tachoscope while
    the thread that it interrupted writes: what it adds to the queue is then written by that thread, or at the next flush.

    Args:
        waits: records are kept until `start`, and dropped if it never comes.
    """

    def __init__(self, identity: Identity, directory: Path, *, waits: bool = False) -> None:
        self.writer = str(uuid.uuid4())
        self.rank = self.local_rank = 0
        self.attempt = identity.attempt
        self._identity = identity
        self._spool = SpoolWriter(directory, self.writer)
        self._seq = 0
        self._lock = threading.Lock()
        self._writing_thread = 0
        self._queue: deque[tuple[FinishedStep, dict[str, float]] | list[_PendingRecord]] = deque()
        self.take_steps: Callable[[], list[FinishedStep]] = list
        """Returns steps that ended before those that are put: the compiled machine keeps them itself."""
        self._overflow = self._unwritable = 0
        self._why = ""
        self._early: list[_PendingRecord] | None = [] if waits else None

    @property
    def dropped(self) -> int:
        """Records that could not be written so far."""
        return self._spool.dropped + self._overflow + self._unwritable

    @property
    def error(self) -> str:
        """Why the last record was dropped."""
        return self._spool.error or self._why or "too many steps waited to be written"

    def put(self, step: FinishedStep, device_seconds: dict[str, float]) -> None:
        """Queue a step. The training thread does no more."""
        self._queue_earlier_steps()
        self._queue_step(step, device_seconds)

    def _queue_earlier_steps(self) -> None:
        for step in self.take_steps():
            self._queue_step(step, {})

    def _queue_step(self, step: FinishedStep, device_seconds: dict[str, float]) -> None:
        if len(self._queue) < MAX_QUEUED_STEPS:
            self._queue.append((step, device_seconds))
        else:
            self._overflow += 1

    def flush(self, *, wait: bool = True) -> None:
        """Write all that is queued; without `wait`, only if no other thread is writing."""
        if not wait and self._lock.locked():
            return
        thread = threading.get_ident()
        if self._writing_thread == thread:  # a signal handler, on top of the call that holds the lock
            return
        with self._lock:  # and not `acquire`: what a signal handler raises right after that would leave it locked
            self._writing_thread = thread
            try:
                self._write_queued()
            finally:
                self._writing_thread = 0

    def write(self, kind: type[records.Record], **fields: Any) -> None:
        """Write a record of `kind` with the envelope of this moment."""
        self._queue.append([(kind, fields, time.time(), time.monotonic_ns())])
        self.flush()

    def write_all(self, rows: Iterable[tuple[type[records.Record], int, dict[str, Any]]]) -> None:
        """Write records of earlier moments, each at its monotonic nanoseconds, by one system call."""
        offset = time.time() - time.monotonic()
        self._queue.append([(kind, fields, offset + moment / 1e9, moment) for kind, moment, fields in rows])
        self.flush()

    @property
    def early_steps(self) -> list[tuple[type[records.Record], dict[str, Any]]]:
        return [(kind, fields) for kind, fields, _, _ in self._early or ()]

    def start(self, **fields: Any) -> None:
        """Write the process's `JobStarted`, and then what was kept, with the times at which that was."""
        self.write(records.JobStarted, **fields)

    def close(self) -> None:
        """Release the spool."""
        self._spool.close()

    def _write_queued(self) -> None:
        offset = time.time() - time.monotonic()
        self._queue_earlier_steps()
        while self._queue:
            queued = self._queue.popleft()
            if isinstance(queued, list):
                self._append(self._due(queued))
            else:
                step, device_seconds = queued
                self._append([(records.StepDone, _fields_of(step, device_seconds), offset + step.end / 1e9, step.end)])

    def _due(self, rows: list[_PendingRecord]) -> list[_PendingRecord]:
        """Return the rows to write: none before `JobStarted`, which is followed by those kept for it."""
        if self._early is None:
            return rows
        if rows and rows[0][0] is records.JobStarted:
            early, self._early = self._early, None
            return rows + early
        self._early += rows[: max(0, MAX_EARLY - len(self._early))]
        return []

    def _append(self, rows: list[_PendingRecord]) -> None:
        envelope = self._envelope()
        made = [one for row in rows if (one := self._record(row, envelope)) is not None]
        try:
            lines, text = len(made), records.encode_all(made)
        except _INVALID:  # in one of them
            each = [line for one in made if (line := self._line(one))]
            lines, text = len(each), b"".join(each)
        if lines:
            self._spool.append(text, lines=lines)

    def _record(self, row: _PendingRecord, envelope: dict[str, Any]) -> records.Record | None:
        """Return a record with its own envelope; None, and counted as dropped, if it has a field that is not known."""
        kind, fields, envelope["time"], envelope["monotonic_ns"] = row
        envelope["seq"] = self._seq
        self._seq += 1
        try:
            return kind(**(envelope | fields))
        except _INVALID as error:
            self._refuse(kind, error)
            return None

    def _line(self, made: records.Record) -> bytes:
        """Return a record as a line; empty, and counted as dropped, if a field is invalid."""
        try:
            return records.encode(made)
        except _INVALID as error:
            self._refuse(type(made), error)
            return b""

    def _refuse(self, kind: type[records.Record], error: Exception) -> None:
        self._unwritable += 1
        self._why = f"{kind.__name__}: {error}"

    def _envelope(self) -> dict[str, Any]:
        """Return what the envelopes of all records have in common now."""
        return {
            "job": self._identity.job,
            "attempt": self._identity.attempt,
            "writer": self.writer,
            "rank": self.rank,
            "local_rank": self.local_rank,
            "host": self._identity.host,
        }


def _fields_of(step: FinishedStep, device_seconds: dict[str, float]) -> dict[str, Any]:
    delay = {}
    if step.step_delay is not None and step.backward_delay is not None:
        delay = {"step": step.step_delay / 1e9, "backward": step.backward_delay / 1e9}
    cpu = step.cpu or []
    return {
        "step": step.number,
        "wall_seconds": step.wall_total / 1e9,
        "phase_seconds": {name: value / 1e9 for name, value in zip(PHASES, step.wall, strict=True) if value},
        "cpu_seconds": {name: used / 1e9 for name, used, value in zip(PHASES, cpu, step.wall, strict=False) if value},
        "run_delay_seconds": delay,
        "device_seconds": device_seconds,
        "samples": step.samples,
        "tokens": step.tokens,
        "backward_calls": step.backward_calls,
        "elements": step.elements,
    }

"""Turns what the training thread leaves here into records, and appends them to the spool.

The training thread only puts a finished step into a queue; the sampler's thread encodes and writes it within a tenth of a second. A
write on the training thread would cost three times the rest of the probe, since after a step's computing nothing of it is left
in the processor's caches (docs/measurements.md).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tachoscope.identity import Identity
from tachoscope.spool_writer import SpoolWriter
from tachoscope_core import records
from tachoscope_core.records import PHASES

MAX_QUEUED_STEPS = 100_000
MAX_EARLY = 1_000


class FinishedStep(NamedTuple):
    """A step as the training thread leaves it, in nanoseconds.

    `wall` and `cpu` are by phase; `cpu` and the delays are None in a step whose CPU clocks were not read.
    """

    number: int
    end: int
    wall_total: int
    wall: list[int]
    cpu: list[int] | None
    step_delay: int | None
    backward_delay: int | None
    samples: int
    tokens: int
    backward_calls: int = 1
    elements: int = 0


class Outbox:
    """The records of one process: one writer, one spool. No method raises for a spool that cannot be written.

    Args:
        waits: records are kept until `start`, and dropped if it never comes.
    """

    def __init__(self, identity: Identity, directory: Path, *, waits: bool = False) -> None:
        self.writer = str(uuid.uuid4())
        self.rank = self.local_rank = 0
        self._identity = identity
        self._spool = SpoolWriter(directory, self.writer)
        self._seq = 0
        self._lock = threading.Lock()
        self._queue: deque[tuple[FinishedStep, dict[str, float]]] = deque()
        self._overflow = 0
        self._early: list[tuple[type[records.Record], float, int, dict[str, Any]]] | None = [] if waits else None

    @property
    def dropped(self) -> int:
        """Records that could not be written so far."""
        return self._spool.dropped + self._overflow

    @property
    def error(self) -> str:
        """Why the last record was dropped."""
        return self._spool.error or "too many steps waited to be written"

    def put(self, step: FinishedStep, device_seconds: dict[str, float]) -> None:
        """Queue a step; this is all that the training thread does."""
        if len(self._queue) < MAX_QUEUED_STEPS:
            self._queue.append((step, device_seconds))
        else:
            self._overflow += 1

    def flush(self, *, wait: bool = True) -> None:
        """Write all queued steps; without `wait`, not if another thread is at it."""
        if self._lock.acquire(blocking=wait):
            try:
                offset = time.time() - time.monotonic()
                while self._queue:
                    step, device_seconds = self._queue.popleft()
                    self._append(_record(self._envelope(offset + step.end / 1e9, step.end), step, device_seconds))
            finally:
                self._lock.release()

    def write(self, kind: type[records.Record], **fields: Any) -> None:
        """Write a record of `kind` at this moment; the envelope is added."""
        now, monotonic = time.time(), time.monotonic_ns()
        with self._lock:
            if self._early is None:
                self._append(kind(**self._envelope(now, monotonic), **fields))
            elif len(self._early) < MAX_EARLY:
                self._early.append((kind, now, monotonic, fields))

    def write_all(self, rows: Iterable[tuple[type[records.Record], int, dict[str, Any]]]) -> None:
        """Write records of earlier moments, each at its monotonic nanoseconds, by one system call."""
        offset = time.time() - time.monotonic()
        with self._lock:
            lines = [
                records.encode(kind(**self._envelope(offset + moment / 1e9, moment), **fields)) for kind, moment, fields in rows
            ]
            self._spool.append(b"".join(lines), lines=len(lines))

    @property
    def early(self) -> list[tuple[type[records.Record], dict[str, Any]]]:
        """What is kept for `start`."""
        return [(kind, fields) for kind, _, _, fields in self._early or ()]

    def start(self, **fields: Any) -> None:
        """Write the process's `JobStarted`, and then what was kept, with the times at which that was."""
        with self._lock:
            self._append(records.JobStarted(**self._envelope(time.time(), time.monotonic_ns()), **fields))
            early, self._early = self._early or [], None
            for kind, moment, monotonic, kept in early:
                self._append(kind(**self._envelope(moment, monotonic), **kept))

    def close(self) -> None:
        """Release the spool."""
        self._spool.close()

    def _append(self, record: records.Record) -> None:
        self._spool.append(records.encode(record))

    def _envelope(self, unix_seconds: float, monotonic_ns: int) -> dict[str, Any]:
        self._seq += 1
        return {
            "job": self._identity.job,
            "attempt": self._identity.attempt,
            "writer": self.writer,
            "seq": self._seq - 1,
            "rank": self.rank,
            "local_rank": self.local_rank,
            "host": self._identity.host,
            "time": unix_seconds,
            "monotonic_ns": monotonic_ns,
        }


def _record(envelope: dict[str, Any], step: FinishedStep, device_seconds: dict[str, float]) -> records.StepDone:
    delay = {}
    if step.step_delay is not None and step.backward_delay is not None:
        delay = {"step": step.step_delay / 1e9, "backward": step.backward_delay / 1e9}
    cpu = step.cpu or []
    return records.StepDone(
        **envelope,
        step=step.number,
        wall_seconds=step.wall_total / 1e9,
        phase_seconds={name: value / 1e9 for name, value in zip(PHASES, step.wall, strict=True) if value},
        cpu_seconds={name: used / 1e9 for name, used, value in zip(PHASES, cpu, step.wall, strict=False) if value},
        run_delay_seconds=delay,
        device_seconds=device_seconds,
        samples=step.samples,
        tokens=step.tokens,
        backward_calls=step.backward_calls,
        elements=step.elements,
    )

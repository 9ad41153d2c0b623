"""Recorded runs of the lab, written into a spool again at the pace at which they were recorded, as if they happened now."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tachoscope.spool.writer import SpoolWriter
from tachoscope_core.records import records
from tachoscope_core.records.base import Record
from tachoscope_core.storage.store import Store

_TIMES = ("time", "gone_time", "seen_time", "since_time", "process_time", "deadline")
"""Fields that hold Unix seconds."""
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Played:
    """A run under a name of its own; its records in the order in which they were written."""

    job: str
    rows: tuple[Record, ...]

    @property
    def seconds(self) -> float:
        """From its first record to its last."""
        return self.rows[-1].time - self.rows[0].time


def written(run: Played, spool: Path) -> dict[str, SpoolWriter]:
    """Write a run at once, as if its last record were of now; return its writers, which live until they are closed."""
    last, writers = run.rows[-1], {row.writer: SpoolWriter(_folder(run, spool), row.writer) for row in run.rows}
    seconds, nanoseconds = time.time() - last.time, time.monotonic_ns() - last.monotonic_ns
    for row in run.rows:
        writers[row.writer].append(records.encode(_moved(row, run.job, seconds, nanoseconds)))
    return writers


def made(job: str, seconds: int, ranks: int = 2) -> Played:
    """Return a run of steps of a second in which rank 1 waits for its data."""
    rows: list[Record] = []
    for rank in range(ranks):
        who = {"job": job, "attempt": 0, "writer": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{job}-{rank}")), "rank": rank}
        who |= {"local_rank": rank, "host": "node-1"}
        places = iter({"seq": seq} | who for seq in itertools.count())

        def row(kind: type[Record], at: float, **fields: Any) -> None:
            rows.append(kind(**next(places), time=1e9 + at, monotonic_ns=round((1e6 + at) * 1e9), **fields))  # noqa: B023

        row(records.JobStarted, 0.0, world_size=ranks, pid=1, cpu_threads=1, cpu_count=2)
        for step in range(1, seconds + 1):
            phases = {"data_wait": 0.3 if rank == 1 else 0.02, "forward": 0.4 + 0.01 * (step % 3)}
            phases["backward"] = 1.0 - sum(phases.values())
            row(records.StepDone, step, step=step, wall_seconds=1.0, phase_seconds=phases, cpu_seconds=phases | {"data_wait": 0.0})
            if step % 5 == 0:
                row(records.Heartbeat, step + 0.1, step=step, phase="forward", window_seconds=5.0)
        row(records.JobEnded, seconds + 0.2, steps=seconds, status="completed")
    return Played(job, tuple(sorted(rows, key=lambda one: (one.time, one.writer, one.seq))))


def recorded(run: Path, job: str = "lab") -> Played:
    """Return a run that the lab kept in a folder."""
    store, rows = Store(str(run / "store")), []
    for segment in store.segments(job):
        rows += [records.decode(line) for line in store.read(segment).splitlines(keepends=True)]
    return Played(run.name.replace("+", "-and-"), tuple(sorted(rows, key=lambda row: (row.time, row.writer, row.seq))))


class Player:
    """Plays runs, all from the same moment on, in a thread."""

    def __init__(self, runs: Sequence[Played], spool: Path) -> None:
        self._runs, self._spool = runs, spool
        self._thread = threading.Thread(target=self._play, name="player", daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def goes_on(self) -> bool:
        """Return whether it plays. Raises what it failed with."""
        if self.error is not None:
            raise self.error
        return self._thread.is_alive()

    def _play(self) -> None:
        try:
            self._write(time.time(), time.monotonic_ns())
        except Exception as error:
            self.error = error

    def _write(self, now: float, now_ns: int) -> None:
        rows = sorted(((row.time - run.rows[0].time, run, row) for run in self._runs for row in run.rows), key=lambda one: one[0])
        left = Counter((run.job, row.writer) for _, run, row in rows)
        writers: dict[tuple[str, str], SpoolWriter] = {}
        for due, run, row in rows:
            while time.monotonic_ns() - now_ns < due * 1e9:
                time.sleep(_LOOK_SECONDS)
            key = (run.job, row.writer)
            if key not in writers:
                writers[key] = SpoolWriter(_folder(run, self._spool), row.writer)
            first = run.rows[0]
            writers[key].append(records.encode(_moved(row, run.job, now - first.time, now_ns - first.monotonic_ns)))
            left[key] -= 1
            if not left[key]:
                writers[key].close()


def _folder(run: Played, spool: Path) -> Path:
    folder = spool / f"run-{run.job}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _moved(row: Record, job: str, seconds: float, nanoseconds: int) -> Record:
    """Return a record of another time and job; the process that writes it is this one."""
    times = {name: getattr(row, name) + seconds for name in _TIMES if getattr(row, name, 0.0)}
    process = {"pid": os.getpid()} if isinstance(row, records.JobStarted) else {}
    return msgspec.structs.replace(row, job=job, monotonic_ns=row.monotonic_ns + nanoseconds, **times, **process)

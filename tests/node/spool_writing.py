"""A process that writes a spool. Many processes of tests are one, and import no more than it needs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tachoscope.spool.writer import SpoolWriter
from tachoscope_core.records import records


class Process:
    """A training process, as its spool shows it: one writer, its records in order. `time` and clock are the host's unless given."""

    def __init__(
        self, directory: Path, *, job: str = "job", rank: int = 0, world_size: int = 1, attempt: int = 0, **spool: Any
    ) -> None:
        self.writer = str(uuid.uuid4())
        self.spool = SpoolWriter(directory, self.writer, **spool)
        self.seq = 0
        self.step_number = 0
        self._who = {"job": job, "rank": rank, "local_rank": rank, "attempt": attempt, "host": "node-1", "writer": self.writer}
        self._world_size = world_size
        self.unix_clock: Callable[[], float] = time.time
        self.clock: Callable[[], float] = time.monotonic

    def envelope(self, **changes: Any) -> dict[str, Any]:
        self.seq += 1
        now = {"seq": self.seq - 1, "time": self.unix_clock(), "monotonic_ns": round(self.clock() * 1e9)}
        return self._who | now | changes

    def write(self, kind: type[records.Record], **fields: Any) -> bool:
        return self.spool.append(records.encode(kind(**self.envelope(), **fields)))

    def start(self, pid: int = 0) -> None:
        self.write(records.JobStarted, world_size=self._world_size, pid=pid)

    def step(self, **phases: float) -> None:
        phases = phases or {"forward": 0.01}
        self.step_number += 1
        self.write(records.StepDone, step=self.step_number, wall_seconds=sum(phases.values()), phase_seconds=phases)

    def end(self, status: str = "left") -> None:
        self.write(records.JobEnded, status=status)
        self.spool.close()

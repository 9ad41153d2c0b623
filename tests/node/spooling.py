"""What the agent's tests share: processes that write a spool, an agent of one's own, and what the store then holds."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tachoscope.spool.writer import SpoolWriter
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_node.agent import Agent
from tachoscope_node.config.load import load
from tachoscope_service.common.log import Log


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


def agent_of(tmp_path: Path, *, clock: Callable[[], float] = time.monotonic, **config: Any) -> Agent:
    """Return an agent with spool, store and state in `tmp_path`."""
    places = {name: str(tmp_path / name) for name in ("spool", "store", "state")}
    defaults = {"node": "node-1", "sample_seconds": 0.0, "flush": {"seconds": 0.001}}
    return Agent(load(None, **places | defaults | config), Log(logging.getLogger("test")), clock=clock)


class FakeClock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pass_seconds(agent: Agent, clock: FakeClock, seconds: int) -> None:
    """Let the agent work, once a second."""
    for _ in range(seconds):
        clock.now += 1.0
        agent.tick()
        agent.ship()


def stored(store: Store | Path, job: str = "job") -> Counter[tuple[str, int]]:
    """Return how often the store has each record of the job's ranks, by writer and number, in all its objects."""
    opened = store if isinstance(store, Store) else Store(str(store))
    found: Counter[tuple[str, int]] = Counter()
    for segment in opened.segments(job):
        for line in opened.read(segment).splitlines():
            record = records.decode(line)
            found[record.writer, record.seq] += record.rank >= 0  # what watches from outside has its say as well
    return +found


def assert_once(store: Store | Path, processes: list[Process], job: str = "job") -> None:
    """Every record that the processes wrote is in the store, exactly once."""
    assert stored(store, job) == Counter({(process.writer, seq): 1 for process in processes for seq in range(process.seq)})


def value(agent: Agent, name: str, *labels: str) -> float:
    """Return the value of one series."""
    family = next(family for family in agent.families() if family.metric.name == name)
    return next(point for at, point in family.points if at == labels)  # type: ignore[return-value]

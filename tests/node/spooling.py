"""What the agent's tests share: an agent of one's own, and what the store holds of the processes that wrote a spool."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spool_writing import Process
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_node.agent import Agent
from tachoscope_node.config.load import load
from tachoscope_service.common.log import Log


def agent_of(
    tmp_path: Path, *, clock: Callable[[], float] = time.monotonic, unix_clock: Callable[[], float] = time.time, **config: Any
) -> Agent:
    """Return an agent with spool, store and state in `tmp_path`."""
    places = {name: str(tmp_path / name) for name in ("spool", "store", "state")}
    defaults = {"node": "node-1", "sample_seconds": 0.0, "flush": {"seconds": 0.001}}
    return Agent(load(None, **places | defaults | config), Log(logging.getLogger("test")), clock=clock, unix_clock=unix_clock)


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

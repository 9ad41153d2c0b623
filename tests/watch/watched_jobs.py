"""Jobs as their agents ship them into a store: records of the last seconds, planted to be well, slow, or hung."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tachoscope_core.records import records
from tachoscope_core.storage.node_status import NodeStatus
from tachoscope_core.storage.store import Store
from tachoscope_node.config.settings import Limits
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.jobs.status import jobs_status

Phases = Callable[[int, int], dict[str, float]]
HEARTBEAT_SECONDS = 5.0
MONOTONIC_SECONDS = 1e6
"""What the hosts' monotonic clocks show at the first `now` of the job."""


def even(step: int, rank: int) -> dict[str, float]:
    """A step of a second in which all ranks do the same, a little unlike from step to step."""
    return {"data_wait": 0.02, "forward": 0.4 + 0.01 * (step % 3), "backward": 0.5, "optimizer": 0.05}


def slow_input(culprit: int) -> Phases:
    """Rank `culprit` waits 0.4 s for its data, and all others wait for it in backward."""

    def phases(step: int, rank: int) -> dict[str, float]:
        late = {"data_wait": 0.42} if rank == culprit else {"backward": 0.9}
        return even(step, rank) | late

    return phases


class PlantedJob:
    """A job of several hosts, two ranks each, whose last record is of `now`, Unix seconds, which may go on."""

    def __init__(self, folder: Path | str, name: str, *, ranks: int = 4, now: float | None = None) -> None:
        self.store, self.name, self.ranks = Store(str(folder)), name, ranks
        self.now = time.time() if now is None else now
        self._boot = self.now - MONOTONIC_SECONDS
        self.writers = [str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}-{rank}")) for rank in range(ranks)]
        self.lines: list[list[bytes]] = [[] for _ in range(ranks)]
        self.seq = [0] * ranks
        self.shipped = [0] * ranks
        self.step = 0
        self.nodes = {self.host(rank): JobRegistry(Limits()) for rank in range(ranks)}

    def host(self, rank: int) -> str:
        return f"node-{rank // 2}"

    def write(self, kind: type[Any], rank: int, at: float, **fields: Any) -> None:
        envelope = {
            "job": self.name,
            "attempt": 0,
            "writer": self.writers[rank],
            "seq": self.seq[rank],
            "rank": rank,
            "local_rank": rank % 2,
            "host": self.host(rank),
            "time": at,
            "monotonic_ns": round((at - self._boot) * 1e9),
        }
        self.seq[rank] += 1
        self.lines[rank].append(records.encode(kind(**envelope, **fields)))

    def start(self, at: float, **fields: Any) -> None:
        for rank in range(self.ranks):
            self.write(records.JobStarted, rank, at, world_size=self.ranks, pid=1000 + rank, cpu_threads=1, cpu_count=2, **fields)

    def steps(self, since: float, until: float, phases: Phases = even) -> float:
        """Write steps and heartbeats of a time; return when the last step ended."""
        end, beat = since, since
        while True:
            rows = [phases(self.step + 1, rank) for rank in range(self.ranks)]
            wall = max(sum(row.values()) for row in rows)
            if end + wall > until:
                return end
            end, self.step = end + wall, self.step + 1
            for rank, row in enumerate(rows):
                waits = max(0.0, row["backward"] - 0.5)
                self.write(
                    records.StepDone,
                    rank,
                    end,
                    step=self.step,
                    wall_seconds=wall,
                    phase_seconds=row | {"backward": row["backward"] + wall - sum(row.values())},
                    cpu_seconds=row | {"backward": row["backward"] - waits, "data_wait": 0.0},
                    run_delay_seconds={"step": 0.0, "backward": 0.0},
                    backward_calls=1,
                )
            if end >= beat:
                self.beats(beat, beat, "forward")
                beat += HEARTBEAT_SECONDS

    def beats(self, since: float, until: float, phase: str, ranks: tuple[int, ...] | None = None) -> None:
        """Write heartbeats of ranks that are in a phase all that time."""
        while since <= until:
            for rank in ranks if ranks is not None else range(self.ranks):
                self.write(records.Heartbeat, rank, since, step=self.step, phase=phase, window_seconds=HEARTBEAT_SECONDS)
            since += HEARTBEAT_SECONDS

    def ship(self, at: float | None = None, flush_seconds: float = 5.0) -> None:
        """Put into the store what was written since the last time, and what the nodes know from it, as if at a time."""
        self._count()
        self.tell(at, flush_seconds)
        for rank, lines in enumerate(self.lines):
            if not lines:
                continue
            data = b"".join(lines)
            path = self.store.write(
                self.name,
                host=self.host(rank),
                writer=self.writers[rank],
                attempt=0,
                offset=self.shipped[rank],
                time=self.now if at is None else at,
                lines=data,
            )
            self.shipped[rank] += len(data)
            lines.clear()
            if at is not None:
                os.utime(path, (at, at))
                os.utime(Path(path).parent, (at, at))

    def _count(self) -> None:
        """Have the nodes count what was written, in the order in which their agents read it: a look a record."""
        written = [(msgspec.json.decode(line)["time"], rank, line) for rank, lines in enumerate(self.lines) for line in lines]
        for time_, rank, line in sorted(written, key=lambda one: one[0]):
            node = self.nodes[self.host(rank)]
            node.open_window(time_)
            node.apply(self.host(rank), self.writers[rank], self.name, [line], self.now - self._boot)
        for node in self.nodes.values():
            node.settle()
            node.open_window(self.now)

    def tell(self, at: float | None = None, flush_seconds: float = 5.0) -> None:
        """Write what the nodes know, as their agents do, but for each job an object of its own."""
        for host, known in self.nodes.items():
            jobs = jobs_status(known.jobs.values(), lambda _: None, now=self.now - self._boot, unix_seconds=self.now)
            document = msgspec.json.encode(NodeStatus(host, self.now, 5.0, flush_seconds, jobs))
            path = self.store.write_node(f"{host}-{self.name}", document)
            if at is not None:
                os.utime(path, (at, at))


def well(folder: Path | str, name: str, *, phases: Phases = even, ranks: int = 4, now: float | None = None) -> PlantedJob:
    """Ship a job that has trained for 100 s and goes on."""
    job = PlantedJob(folder, name, ranks=ranks, now=now)
    job.start(job.now - 101)
    job.steps(job.now - 100, job.now, phases)
    job.ship(now)
    return job


def standing(
    folder: Path, name: str, *, seconds: float = 60.0, phases: dict[int, str], silent: tuple[int, ...] = (), before: float = 50.0
) -> PlantedJob:
    """Ship a job of four ranks that finished no step for so long; `phases` are where its ranks are; silent ones write nothing."""
    job = PlantedJob(folder, name)
    job.start(job.now - seconds - before - 1)
    end = job.steps(job.now - seconds - before, job.now - seconds)
    for rank in range(job.ranks):
        if rank not in silent:
            job.beats(end + 2, job.now, phases[rank], (rank,))
    job.ship()
    return job


def counted(call: Callable[..., Any], name: str, asked: Counter[str]) -> Callable[..., Any]:
    """Return a function that is counted by its name each time it is called."""

    def count(*words: Any, **more: Any) -> Any:
        asked[name] += 1
        return call(*words, **more)

    return count

"""The jobs that run now, put together from what the nodes say of their parts: their ranks on all hosts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

import msgspec

from tachoscope_core.jobs.hang_rule import SILENT_SECONDS
from tachoscope_core.owner import Owner
from tachoscope_core.storage import node_status
from tachoscope_core.storage.ledger_rows import RankRows
from tachoscope_core.storage.node_status import HangStatus, NodeStatus, RankStatus
from tachoscope_core.storage.store import Store
from tachoscope_watch.ledgers import JobLedgers, Part

LATE_OBJECTS = 3.0
"""A node that wrote nothing for so many times its interval, and `SILENT_SECONDS` more, is not there any longer."""
_LATEST_SECONDS = 600.0
"""The status of a node that wrote none for so long is ignored."""
_MOST_OWNERS = 10_000
_OWNER_SECONDS = 60.0
"""Between two looks in an object store for the owner of a job that has none: an agent writes it with the first records."""


class LiveRank(msgspec.Struct, frozen=True):
    """A rank, and the node that it is on. `silent`: it, or its node, wrote nothing for long."""

    node: str
    status: RankStatus
    silent: bool


class LiveJob(msgspec.Struct, frozen=True):
    """A job by what its nodes said last; of its newest attempt only.

    Attributes:
        time: of the newest word, Unix seconds. flush_seconds: how late records may be in the store.
        ended: `completed` or `failed`, as who launched it said; empty: nobody did. ranks: in their order.
        state_seconds: by ledger state, of all ranks and attempts together. events: number of records that are not measurements.
        rows: of the last two minutes.
        hang_limit_seconds: the longest that a node allows it to be without a step; 0.0: not known.
        hang: that a node which has all its ranks says it is in; None: no such node says so, or it wrote nothing for long.
        namespace: of its owner in Kubernetes; empty: it has none.
        scheduler_job: id of the Slurm job that it runs in; empty: no node says so.
    """

    job: str
    time: float
    flush_seconds: float
    attempt: int
    world_size: int
    ended: str
    ranks: list[LiveRank]
    state_seconds: dict[str, float]
    events: int
    rows: list[RankRows]
    hang_limit_seconds: float = 0.0
    hang: HangStatus | None = None
    namespace: str = ""
    scheduler_job: str = ""

    @property
    def state(self) -> str:
        """How the job stands, whether it hangs or not: running, completed, failed, or unknown where its nodes are silent."""
        running = [rank for rank in self.ranks if not rank.status.ended]
        if running:
            return "unknown" if all(rank.silent for rank in running) else "running"
        return self.ended or ("completed" if all(rank.status.ended == "left" for rank in self.ranks) else "failed")


def live_jobs(nodes: Iterable[NodeStatus], now: float, ledgers: JobLedgers) -> dict[str, LiveJob]:
    """Return the jobs of all nodes by name.

    Args:
        now: Unix seconds by the watch's clock; a node's own clock tells how long its ranks have been silent.
        ledgers: merge what the nodes counted.
    """
    parts: dict[str, list[Part]] = {}
    for node in nodes:
        for part in node.jobs:
            parts.setdefault(part.job, []).append((node, part))
    ledgers.merge(parts)
    return {job: _joined(job, found, now, ledgers.state_seconds(job)) for job, found in parts.items()}


def _joined(job: str, parts: list[Part], now: float, state_seconds: dict[str, float]) -> LiveJob:
    events = sum(part.events for _, part in parts)
    attempt = max(part.attempt for _, part in parts)
    parts = [(node, part) for node, part in parts if part.attempt == attempt]
    ends = {part.ended for _, part in parts if part.ended}
    ranks = [LiveRank(node.node, rank, _is_silent(node, rank, now)) for node, part in parts for rank in part.ranks]
    return LiveJob(
        job,
        max(node.time for node, _ in parts),
        max(node.flush_seconds for node, _ in parts),
        attempt,
        max(part.world_size for _, part in parts),
        "failed" if "failed" in ends else next(iter(ends), ""),
        sorted(ranks, key=lambda rank: rank.status.rank),
        state_seconds,
        events,
        [rows for _, part in parts for rows in part.rows],
        max(part.hang_limit_seconds for _, part in parts),
        next((part.hang for node, part in parts if part.hang is not None and part.hang.all_seen and not _is_gone(node, now)), None),
        scheduler_job=next((part.scheduler_job for _, part in parts if part.scheduler_job), ""),
    )


def _is_silent(node: NodeStatus, rank: RankStatus, now: float) -> bool:
    return _is_gone(node, now) or node.time - rank.record_time > SILENT_SECONDS


def _is_gone(node: NodeStatus, now: float) -> bool:
    return now - node.time > LATE_OBJECTS * node.every_seconds + SILENT_SECONDS


class NodeReader:
    """Reads what the nodes of a store say, again and again.

    Args:
        warn: gets a line of what cannot be read.

    Attributes:
        statuses: what each node last said of itself, without its jobs.
    """

    def __init__(self, store: Store, warn: Callable[[str], None] = lambda _: None) -> None:
        self._store = store
        self._warn = warn
        self._owners: dict[str, Owner] = {}
        self._without: dict[str, float] = {}
        self._ledgers = JobLedgers(store, warn)
        self.statuses: list[NodeStatus] = []

    def live_jobs(self, now: float) -> dict[str, LiveJob]:
        """Return the jobs that run, or ended lately, by name.

        Raises:
            TachoscopeError: the store cannot be read.
        """
        read = node_status.read_all(self._store, since=now - _LATEST_SECONDS, owner_of=self._owner)
        if read.faults:
            others = f"; and {len(read.faults) - 1} more" if len(read.faults) > 1 else ""
            self._warn(f"what a node says is left out: {read.faults[0]}{others}")
        found = live_jobs(read.nodes, now, self._ledgers)
        self.statuses = [msgspec.structs.replace(node, jobs=[]) for node in read.nodes]
        self._without = {job: asked for job, asked in self._without.items() if job in found}
        owners = {job: self._owners[job].namespace for job in found if job in self._owners}
        return {job: msgspec.structs.replace(one, namespace=owners.get(job, "")) for job, one in found.items()}

    def _owner(self, job: str) -> Owner | None:
        """Return a job's owner, asked for until there is one: it never changes."""
        if job in self._owners:
            return self._owners[job]
        if not self._store.local and time.monotonic() - self._without.get(job, -math.inf) < _OWNER_SECONDS:
            return None
        owner = self._store.owner(job)
        if owner is None:
            self._without[job] = time.monotonic()
            return None
        if len(self._owners) >= _MOST_OWNERS:
            self._owners.clear()
        self._owners[job] = owner
        return owner

"""What the agents counted of each job, merged over all its nodes and from one look to the next; and the last minute of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import ledger_rows
from tachoscope_core.storage.ledger_rows import WINDOW_SECONDS, RankRows
from tachoscope_core.storage.node_status import JobStatus, NodeStatus
from tachoscope_core.storage.store import Store

Part = tuple[NodeStatus, JobStatus]
"""What a node says of a job."""

_WINDOWS = 6
_LEAST_STEPS = 3
MOVED_SHARE = 0.02
"""Of the job's time in a state: what moved by more is news."""
MOVED_SHARE_OF_RANK = 0.1
MOVED_STEP_RATIO = 1.05


@dataclass(frozen=True, slots=True)
class RecentTime:
    """What the ranks of a job did in the last minute of which there are rows.

    Attributes:
        until: Unix seconds at which it ended. shares: of all ranks' time by ledger state. of_ranks: the same of each rank.
        step_seconds: rank-seconds a step.
    """

    until: float

    shares: Mapping[str, float]
    of_ranks: Mapping[int, Mapping[str, float]]
    step_seconds: float


def recent_time(rows: Iterable[RankRows], attempt: int) -> RecentTime | None:
    """Return what the ranks of an attempt did lately; None: too few steps ended in a minute to tell."""
    seconds: dict[int, dict[str, float]] = {}
    steps = last = 0
    for own in rows:
        if own.attempt != attempt or not own.windows or not ledger_rows.is_whole(own):
            continue
        since = sum(window <= own.windows[-1] - _WINDOWS for window in own.windows)
        ended = sum(own.steps[since:])
        if ended < _LEAST_STEPS:
            return None
        steps, last = steps + ended, max(last, own.windows[-1])
        seconds[own.rank] = {state: sum(tenths[since:]) / 10 for state, tenths in own.tenths.items()}
    total: dict[str, float] = {}
    for each in seconds.values():
        for state, value in each.items():
            total[state] = total.get(state, 0.0) + value
    if not steps:
        return None
    of_ranks = {rank: _shares(each) for rank, each in seconds.items()}
    return RecentTime((last + 1) * WINDOW_SECONDS, _shares(total), of_ranks, sum(total.values()) / steps)


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    whole = max(sum(seconds.values()), 1e-9)
    return {state: value / whole for state, value in seconds.items()}


def movement(before: RecentTime, now: RecentTime) -> float:
    """Return how much a job does something else than before: in a share, a rank's share, or its steps; above 1 it is news."""
    if before.of_ranks.keys() != now.of_ranks.keys():
        return math.inf
    ratio = max(now.step_seconds, 1e-9) / max(before.step_seconds, 1e-9)
    of_ranks = (_farthest(shares, now.of_ranks[rank]) for rank, shares in before.of_ranks.items())
    return max(
        abs(math.log(ratio)) / math.log(MOVED_STEP_RATIO),
        _farthest(before.shares, now.shares) / MOVED_SHARE,
        max(of_ranks, default=0.0) / MOVED_SHARE_OF_RANK,
    )


def _farthest(before: Mapping[str, float], now: Mapping[str, float]) -> float:
    return max((abs(now.get(state, 0.0) - before.get(state, 0.0)) for state in before.keys() | now.keys()), default=0.0)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counters of a job on a node at a time, Unix seconds by the node's clock."""

    time: float
    seconds: Mapping[str, float]


class JobLedgers:
    """Adds up the counters of agents by job: the newest of each node, including nodes that no longer run the job.

    The counters of an agent continue over its restarts, so a late, repeated or missing status changes nothing. After a restart the
    watch reads the counters of nodes that no longer run the job from the ledger rows in the store.

    Args:
        warn: gets a line of what cannot be read.
    """

    def __init__(self, store: Store, warn: Callable[[str], None]) -> None:
        self._store, self._warn = store, warn
        self._jobs: dict[str, dict[str, _Counted]] = {}

    def merge(self, parts: Mapping[str, list[Part]]) -> None:
        """Take what all nodes say now of the jobs that they know, by job; other jobs are forgotten."""
        self._jobs = {job: self._merged(job, own) for job, own in parts.items()}

    def state_seconds(self, job: str) -> dict[str, float]:
        """Return rank-seconds by ledger state of a job that nodes know, as the counters of their agents have them."""
        total: dict[str, float] = {}
        for counted in self._jobs[job].values():
            for state, seconds in counted.seconds.items():
                total[state] = total.get(state, 0.0) + seconds
        return total

    def _merged(self, job: str, parts: list[Part]) -> dict[str, _Counted]:
        known = self._jobs.get(job)
        if known is None:
            known = self._of_gone_nodes(job, parts)
        for node, part in parts:
            if node.node not in known or known[node.node].time <= node.time:
                known[node.node] = _Counted(node.time, part.state_seconds)
        return known

    def _of_gone_nodes(self, job: str, parts: list[Part]) -> dict[str, _Counted]:
        """Return the last counters of nodes that no longer run the job but counted it after the present nodes began to.

        Without a second attempt no rank went from one node to another.
        """
        if not any(part.attempt for _, part in parts):
            return {}
        began = min(part.began for _, part in parts)
        found: dict[str, _Counted] = {}
        try:
            for words in ledger_rows.last_words(self._store, job, but=[node.node for node, _ in parts]):
                last = max((window for own in words.ranks for window in own.windows), default=0) * WINDOW_SECONDS
                if last >= began:
                    found[words.node] = _Counted(words.time, words.state_seconds)
        except TachoscopeError as error:
            self._warn(f"ledger rows of job {job} are left out: {error}")
        return found

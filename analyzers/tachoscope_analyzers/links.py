"""Links: how long messages take from one rank to another, and whether one rank or one pair of ranks is slower than the others.

Who sends or receives is blocked until the other side is there, and then for the transfer. Of the two sides the one that is blocked
for less came later, so its time is the transfer. The delays of all pairs make the matrix of source and destination of C4,
https://arxiv.org/abs/2406.04594: one high cell is a link, a high row a sender, a high column a receiver.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.judge import Candidate
from tachoscope_analyzers.load import JobRecords
from tachoscope_analyzers.steps import Matrix, Steps
from tachoscope_analyzers.thresholds import threshold
from tachoscope_core.records import CollectiveDone
from tachoscope_core.report import Evidence

MINIMUM_RANKS = 3


@dataclass(frozen=True, slots=True)
class Flow:
    """The messages of one size class from one rank to another.

    Attributes:
        messages: per step. message_bytes: mean of one. delay_seconds: of one, without waiting for the other side.
    """

    source: int
    target: int
    size_class: str
    messages: float
    message_bytes: float
    delay_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds per step."""
        return self.messages * self.delay_seconds


def flows(job: JobRecords, steps: Steps) -> list[Flow]:
    """Return the flows of which both sides were recorded, in the judged attempt."""
    rows = [row for row in job.collectives if row.peer >= 0 and row.writer in steps.writers]
    last = last_steps(rows)
    sides: dict[tuple[int, int, str], dict[str, list[CollectiveDone]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        source, target = (row.rank, row.peer) if row.collective == "send" else (row.peer, row.rank)
        sides[source, target, row.size_class][row.collective].append(row)
    found = []
    for (source, target, size_class), by_side in sorted(sides.items()):
        calls = {side: sum(row.count for row in some) for side, some in by_side.items()}
        if len(calls) < 2 or not all(calls.values()):
            continue
        delay = min(sum(row.seconds for row in some) / calls[side] for side, some in by_side.items())
        sent = by_side["send"]
        size = sum(row.bytes for row in sent) / calls["send"]
        found.append(Flow(source, target, size_class, calls["send"] / last[sent[0].writer], size, delay))
    return found


def last_steps(rows: list[CollectiveDone]) -> dict[str, int]:
    """Return the number of steps that the summaries of each writer are about, at least one."""
    last: Counter[str] = Counter()
    for row in rows:
        last[row.writer] = max(last[row.writer], row.step, 1)
    return last


def measured(steps: Steps, found: list[Flow]) -> bool:
    """Say whether links can be held against each other: three and more, of messages of the same size class."""
    return len(steps.ranks) >= MINIMUM_RANKS and len(_alike(found)) >= MINIMUM_RANKS


def slow_link(steps: Steps, found: list[Flow], available: Matrix) -> Candidate | None:
    """Return what the step loses to a slow link, sender or receiver.

    Args:
        available: what is lost to moving data, shape (K,): no link loses more than that.
    """
    if not measured(steps, found):
        return None
    alike = _alike(found)
    delays = np.array([_comparable(flow) for flow in alike])
    usual = float(np.sort(delays)[(len(delays) - 1) // 2])
    high = [(flow, delay) for flow, delay in zip(alike, delays, strict=True) if delay >= threshold("slow_link_ratio") * usual]
    if not high or usual <= 0:
        return None
    lost = sum(flow.seconds * (1 - usual / delay) for flow, delay in high)
    seconds = np.minimum(lost, available)
    if seconds.mean() < threshold("warning_share") * steps.wall.max(axis=1).mean():
        return None
    what, ranks = _named([flow for flow, _ in high])
    worst, delay = max(high, key=lambda pair: pair[1])
    evidence = [
        Evidence(
            signal=f"delay of a message from rank {worst.source} to rank {worst.target}, as a multiple of the usual one",
            value=float(delay / usual),
            threshold=threshold("slow_link_ratio"),
            comparison=">=",
            unit="ratio",
            source=f"sends and receives of {len(alike)} pairs, {worst.size_class}",
        ),
        Evidence(
            signal=f"{what}; seconds of such a message", value=worst.delay_seconds, unit="seconds", source="sends and receives"
        ),
    ]
    return Candidate(
        "slow_link", seconds, ranks, evidence, _certainty(float(delay / usual)), ("comm_exposed", float(1 - usual / delay))
    )


def _alike(found: list[Flow]) -> list[Flow]:
    """Return the flows of the size class that moves most."""
    by_class: dict[str, float] = defaultdict(float)
    for flow in found:
        by_class[flow.size_class] += flow.messages * max(flow.message_bytes, 1.0)
    if not by_class:
        return []
    largest = max(by_class, key=by_class.__getitem__)
    return [flow for flow in found if flow.size_class == largest]


def _comparable(flow: Flow) -> float:
    """Return the delay of a message, and of one that is large enough for its size to matter the delay of a byte."""
    return flow.delay_seconds / flow.message_bytes if flow.message_bytes > 64 << 10 else flow.delay_seconds


def _named(high: list[Flow]) -> tuple[str, list[int]]:
    pairs = {frozenset((flow.source, flow.target)) for flow in high}
    if len(pairs) == 1:
        source, target = high[0].source, high[0].target
        return f"the link of ranks {source} and {target}", sorted((source, target))
    common = frozenset.intersection(*pairs)
    if not common:
        ranks = sorted(frozenset.union(*pairs))
        return f"{len(pairs)} links", ranks
    rank = next(iter(common))
    if all(flow.source == rank for flow in high):
        return f"all that rank {rank} sends", [rank]
    if all(flow.target == rank for flow in high):
        return f"all that rank {rank} receives", [rank]
    return f"all that rank {rank} sends and receives", [rank]


def _certainty(ratio: float) -> float:
    """Return 0.5 on the threshold and 1 at twice that."""
    return min(1.0, 0.5 * ratio / threshold("slow_link_ratio"))

"""Links: how long messages take from one rank to another, and whether one rank or one pair of ranks is slower than the others.

The delays of all pairs make the matrix of source and destination of C4, https://arxiv.org/abs/2406.04594: one high cell is a link,
a high row a sender, a high column a receiver. Who sends or receives is blocked until the other side is there, and then for the
transfer, so what a message takes is looked at in two ways:

- The side that is blocked for less came later, and was not kept waiting. That holds whatever the ranks wait for otherwise, but a
  sender is done when the system has taken the message into its buffers.
- All that two ranks are blocked for with each other, less what the other one computes longer. That is the whole transfer, but
  holds only where no third rank keeps one of the two waiting: not in a pipeline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.classify.communication.network_places import Link, common_part, places, signal_of
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.evidence import measured as evidence_of
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.records.records import CollectiveDone
from tachoscope_core.report.report import Evidence

MINIMUM_RANKS = 3


@dataclass(frozen=True, slots=True)
class LinkTraffic:
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
        """Seconds a step of all messages, without waiting for the other side."""
        return self.messages * self.delay_seconds


def flows(job: JobRecords, steps: Steps) -> list[LinkTraffic]:
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
        found.append(LinkTraffic(source, target, size_class, calls["send"] / last[sent[0].writer], size, delay))
    return found


def moving(job: JobRecords, steps: Steps, found: list[LinkTraffic]) -> dict[int, float]:
    """Return by rank the seconds per step that it is blocked for by moving data, without waiting for others: its flows, and of
    the collectives of each group what the rank of the group that was blocked for least was blocked for.
    """
    seconds = {rank: sum(flow.seconds for flow in found if rank in {flow.source, flow.target}) for rank in steps.ranks}
    rows = [row for row in job.collectives if row.peer < 0 and row.writer in steps.writers]
    last = last_steps(rows)
    blocked: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for row in rows:
        blocked[row.collective, row.group][row.rank] += row.seconds / last[row.writer]  # type: ignore[assignment]
    for by_rank in blocked.values():
        for rank in by_rank:
            seconds[rank] += min(by_rank.values())
    return seconds


def last_steps(rows: list[CollectiveDone]) -> dict[str, int]:
    """Return the number of steps that the summaries of each writer are about, at least one."""
    last: Counter[str] = Counter()
    for row in rows:
        last[row.writer] = max(last[row.writer], row.step, 1)
    return last


def measured(steps: Steps, found: list[LinkTraffic]) -> bool:
    """Return whether links can be compared with each other: three and more, of messages of the same size class."""
    return len(steps.ranks) >= MINIMUM_RANKS and len(_alike(found)) >= MINIMUM_RANKS


def slow_link(job: JobRecords, steps: Steps, found: list[LinkTraffic], available: Matrix, *, staged: bool) -> Candidate | None:
    """Return what the step loses to a slow link, sender or receiver.

    Args:
        available: what is lost to moving data, shape (K,): no link loses more than that.
        staged: ranks wait for each other along a pipeline.
    """
    if not measured(steps, found):
        return None
    alike = _alike(found)
    pairs = alike if staged else _pairs(job, steps, alike)
    directed, of_pairs = _outliers(alike), _outliers(pairs)
    # Of one direction only a part of a transfer is seen, and that may be all noise: then the pairs have the most to explain.
    enough = threshold("culprit_coverage") * _over(of_pairs, alike=pairs)
    high = directed if directed and _over(directed, alike=alike) >= enough else of_pairs
    if not high:
        return None
    slow = {frozenset((flow.source, flow.target)) for flow in high}
    mean = float(available.mean())
    lost = min(_over([flow for flow in pairs if frozenset((flow.source, flow.target)) in slow], alike=pairs), mean)
    # Of less than a warning's size it is told by nobody, but what is mostly a slow link's is no matter of volume either.
    if lost < threshold("warning_share") * steps.wall.max(axis=1).mean() and lost < mean / 2:
        return None
    what, ranks = _named(high)
    worst = max(high, key=_comparable)
    ratio = _comparable(worst) / _usual([flow for flow in (alike if worst in alike else pairs) if flow not in high])
    evidence = [
        Evidence(
            signal=f"delay of a message between ranks {worst.source} and {worst.target}, as a multiple of the usual one",
            value=ratio,
            threshold=threshold("slow_link_ratio"),
            comparison=">=",
            unit="ratio",
            source=f"sends and receives between {len(pairs)} pairs, messages {worst.size_class}",
        ),
        evidence_of(f"{what}; seconds of such a message", worst.delay_seconds, "seconds", "sends and receives"),
        *_where(slow, {frozenset((flow.source, flow.target)) for flow in pairs} - slow, steps),
    ]
    return Candidate("slow_link", available * (lost / mean), ranks, evidence, _certainty(ratio), ("comm_exposed", 1 - 1 / ratio))


def _where(slow: set[Link], others: set[Link], steps: Steps) -> list[Evidence]:
    where = places(steps.starts)
    if len(set(where.values())) < 2:
        return []
    found = common_part(slow, others, where)
    if found is None:
        return []
    part, count = found
    return [evidence_of(signal_of(part), count, "links", "host and topology of ranks")]


def _pairs(job: JobRecords, steps: Steps, alike: list[LinkTraffic]) -> list[LinkTraffic]:
    """Return, for each two ranks that exchange messages, both directions as one flow: what the side that is blocked for longer is
    blocked for, less what the other one computes longer.
    """
    own = dict(zip(steps.ranks, (steps.wall - steps.waiting).mean(axis=0).tolist(), strict=True))
    blocked: Counter[tuple[int, int]] = Counter()
    rows = [
        row for row in job.collectives if row.peer >= 0 and row.writer in steps.writers and row.size_class == alike[0].size_class
    ]
    last = last_steps(rows)
    for row in rows:
        blocked[row.rank, row.peer] += row.seconds / last[row.writer]  # type: ignore[assignment]
    directions: dict[tuple[int, int], list[LinkTraffic]] = defaultdict(list)
    for flow in alike:
        directions[min(flow.source, flow.target), max(flow.source, flow.target)].append(flow)
    found = []
    for (one, other), both in directions.items():
        messages = max(flow.messages for flow in both)
        late = (own[other] - own[one]) * min(messages, 1.0)
        sides = blocked[one, other] - max(late, 0.0), blocked[other, one] - max(-late, 0.0)
        seconds = max(*sides, *(flow.seconds for flow in both))
        size = sum(flow.message_bytes for flow in both)
        found.append(LinkTraffic(one, other, both[0].size_class, messages, size, seconds / messages))
    return found


def _outliers(cells: list[LinkTraffic]) -> list[LinkTraffic]:
    """Return slow flows, a multiple of the fast ones' time per message; at most three quarters of all."""
    delays = np.array([_comparable(flow) for flow in cells])
    fast = float(np.sort(delays)[(len(delays) - 1) // 4])
    high = [flow for flow, delay in zip(cells, delays, strict=True) if delay > 0 and delay >= threshold("slow_link_ratio") * fast]
    usual = _usual([flow for flow in cells if flow not in high])
    return [flow for flow in high if _comparable(flow) >= threshold("slow_link_ratio") * usual]


def _over(slow: list[LinkTraffic], *, alike: list[LinkTraffic]) -> float:
    """Return the excess seconds per step of slow flows, of the rank with the largest; zero without any."""
    usual = _usual([flow for flow in alike if flow not in slow])
    over: Counter[int] = Counter()
    for flow in slow:
        for rank in (flow.source, flow.target):
            over[rank] += flow.seconds * max(0.0, 1 - usual / _comparable(flow))  # type: ignore[assignment]
    return float(max(over.values(), default=0.0))


def _usual(cells: list[LinkTraffic]) -> float:
    """Return the mean delay of these flows, in the unit of `_comparable`; never zero, to divide by."""
    return max(float(np.mean([_comparable(flow) for flow in cells])), 1e-15) if cells else 1e-15


def _alike(found: list[LinkTraffic]) -> list[LinkTraffic]:
    """Return the flows of the size class that moves most bytes."""
    by_class: dict[str, float] = defaultdict(float)
    for flow in found:
        by_class[flow.size_class] += flow.messages * max(flow.message_bytes, 1.0)
    if not by_class:
        return []
    largest = max(by_class, key=by_class.__getitem__)
    return [flow for flow in found if flow.size_class == largest]


def _comparable(flow: LinkTraffic) -> float:
    """Return the delay of a message, or per byte for large ones."""
    return flow.delay_seconds / flow.message_bytes if flow.message_bytes > 64 << 10 else flow.delay_seconds


def _named(high: list[LinkTraffic]) -> tuple[str, list[int]]:
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

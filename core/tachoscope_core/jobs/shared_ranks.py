"""Processes that say they are the same rank at the same time, such as those of Hogwild, which train without a process group.

Each of them gets a rank of its own, so that none is dropped and the job has one attempt. Processes of one rank that run one after
the other, such as two scripts of one command or a worker and its successor, stay that rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tachoscope_core.records.records import AnyRecord, JobStarted

_TOGETHER = 0.5
"""Two processes run at the same time if they share more of the shorter one's time: a successor may begin before its
predecessor has written its last record."""


class RankClaim(NamedTuple):
    """A process that says it is a rank: it began to train at `begin` and wrote its last record at `end`, in Unix seconds."""

    start: JobStarted
    begin: float
    end: float


class SharedRank(NamedTuple):
    """A rank that several processes of an attempt say they are at the same time.

    Attributes:
        ranks: the ranks that they are analyzed as; the first is `rank`. writers: the same, by writer.
    """

    attempt: int
    rank: int
    ranks: tuple[int, ...]
    writers: Mapping[str, int]


def claims(rows: Sequence[AnyRecord]) -> list[RankClaim]:
    """Return who says which rank it is, from all records of a job."""
    starts = {row.writer: row for row in rows if isinstance(row, JobStarted) and row.rank >= 0}
    if len({(start.attempt, start.rank) for start in starts.values()}) == len(starts):
        return []  # as ever: each rank once, and no need to look at all rows
    last: dict[str, float] = {}
    for row in rows:
        if row.writer in starts:
            last[row.writer] = max(row.time, last.get(row.writer, 0.0))
    return [RankClaim(start, start.time, last[writer]) for writer, start in starts.items()]


def shared_ranks(found: Iterable[RankClaim]) -> list[SharedRank]:
    """Return the ranks that several processes claim at the same time, in order; see the module."""
    by_attempt: dict[int, list[RankClaim]] = defaultdict(list)
    for claim in found:
        by_attempt[claim.start.attempt].append(claim)
    return [shared for _, members in sorted(by_attempt.items()) for shared in _of_attempt(members)]


def _of_attempt(members: Sequence[RankClaim]) -> list[SharedRank]:
    by_rank: dict[int, list[RankClaim]] = defaultdict(list)
    for claim in members:
        by_rank[claim.start.rank].append(claim)
    free = max(max(claim.start.world_size, claim.start.rank + 1) for claim in members)
    shared = []
    for rank, same in sorted(by_rank.items()):
        lanes = _lanes(same)
        if len(lanes) > 1:
            ranks = (rank, *range(free, free + len(lanes) - 1))
            free += len(lanes) - 1
            writers = {claim.start.writer: given for given, lane in zip(ranks, lanes, strict=True) for claim in lane}
            shared.append(SharedRank(members[0].start.attempt, rank, ranks, writers))
    return shared


def _lanes(same: Sequence[RankClaim]) -> list[list[RankClaim]]:
    """Put processes that ran one after another into one lane, in start order."""
    lanes: list[list[RankClaim]] = []
    for claim in sorted(same, key=lambda one: (one.start.process_time or one.begin, one.start.pid, one.start.writer)):
        lane = next((lane for lane in lanes if not any(_together(claim, other) for other in lane)), None)
        if lane is None:
            lanes.append([claim])
        else:
            lane.append(claim)
    return lanes


def _together(one: RankClaim, other: RankClaim) -> bool:
    overlap = min(one.end, other.end) - max(one.begin, other.begin)
    return overlap > 0 and overlap > _TOGETHER * min(one.end - one.begin, other.end - other.begin)

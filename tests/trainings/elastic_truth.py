"""What really happened in a run of examples/elastic_ddp.py: from its own log and from who killed it, never from tachoscope."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

RANKS = 2


@dataclass(frozen=True)
class RankTruth:
    """One rank in one attempt; all times are Unix times.

    `begin`: of the loop. `steps`: the end of each by its number of the whole job. `restore_seconds`: 0 if there was no restore.
    """

    pid: int
    begin: float
    steps: dict[int, float]
    restore_seconds: float
    saved: dict[int, float]


def attempts_of(folder: Path) -> list[list[RankTruth]]:
    """Return the ranks of each attempt, attempts in their order."""
    by_rank = []
    for rank in range(RANKS):
        lines = [json.loads(line) for line in (folder / f"log-{rank}.jsonl").read_text().splitlines()]
        by_rank.append([_rank(pid, lines) for pid in dict.fromkeys(line["pid"] for line in lines)])
    return [list(ranks) for ranks in zip(*by_rank, strict=True)]


def _rank(pid: int, lines: list[dict[str, Any]]) -> RankTruth:
    def times(event: str) -> dict[int, float]:
        return {line["step"]: line["time"] for line in lines if line["pid"] == pid and line["event"] == event}

    restored = sum(times("restored").values()) - sum(times("restore").values())
    return RankTruth(pid, sum(times("begin").values()), times("step"), restored, times("saved"))


def redone(attempts: list[list[RankTruth]], number: int) -> set[int]:
    """Return the steps that an attempt did again: any rank of an earlier attempt had finished them."""
    earlier = {step for ranks in attempts[:number] for rank in ranks for step in rank.steps}
    return earlier & {step for rank in attempts[number] for step in rank.steps}


def redone_seconds(attempts: list[list[RankTruth]], number: int) -> float:
    """Return the rank-seconds of these steps."""
    again, total = redone(attempts, number), 0.0
    for rank in attempts[number]:
        ends = [rank.begin, *rank.steps.values()]
        total += sum(end - begin for step, (begin, end) in zip(rank.steps, pairwise(ends), strict=True) if step in again)
    return total


def recovered(attempts: list[list[RankTruth]], failed: int) -> tuple[float, int]:
    """Return when the first step after an attempt failed was done that was new, and how many had been done again until then."""
    lost = 0
    for number in range(failed + 1, len(attempts)):
        again = redone(attempts, number)
        lost += len(again)
        if new := [time for rank in attempts[number] for step, time in rank.steps.items() if step not in again]:
            return min(new), lost
    raise ValueError(f"no new step after attempt {failed}")


def unfinished_seconds(ranks: list[RankTruth], gone: dict[str, float]) -> float:
    """Return the rank-seconds from the last finished step of each rank until its process was gone."""
    return sum(gone[str(rank.pid)] - max(rank.steps.values()) for rank in ranks)


def restore_seconds(attempts: list[list[RankTruth]]) -> float:
    """Return the rank-seconds of reading checkpoints."""
    return sum(rank.restore_seconds for ranks in attempts for rank in ranks)

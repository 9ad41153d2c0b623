"""From what the ranks measured to the seconds that a fault cost a step: the truth."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.lab.spec import WARM_UP_STEPS, Planned


@dataclass(frozen=True, slots=True)
class Rows:
    """What each rank left (see `site.Measured`), and what the lab saw from outside."""

    ranks: list[dict[str, Any]]
    outside: dict[str, Any]

    def column(self, name: str) -> list[tuple[float, ...]]:
        """Return a column by step, one value a rank, without the warm-up; as far as all ranks came."""
        return list(zip(*(rank[name] for rank in self.ranks), strict=False))[WARM_UP_STEPS:]

    def mean(self, name: str) -> float:
        """Return the mean over ranks of a number that each has."""
        return statistics.fmean(rank[name] for rank in self.ranks)


def latest_rank(rows: Rows, planned: Planned) -> float:
    """Return the mean over steps of what the rank that injected most in it injected: the others wait for that one."""
    per_rank = [rank["injected"].get(planned.slug, []) for rank in rows.ranks]
    per_step = [max(values) for values in zip(*(row for row in per_rank if row), strict=False)]
    steps = len(rows.column("wall"))
    return sum(per_step[WARM_UP_STEPS:]) / steps if steps else 0.0


def waited_for_input(rows: Rows, planned: Planned) -> float:
    """Return by how much longer than in a clean step the rank waited that waited longest for its batch.

    With worker processes loading takes place beside computing, and what it takes is not what it costs.
    """
    waits = [max(values) for values in rows.column("wait")]
    return max(0.0, statistics.fmean(waits) - rows.mean("clean_wait_seconds")) if waits else 0.0


def longest_over_mean(rows: Rows, planned: Planned) -> float:
    """Return by how much the rank with the most to compute exceeds the mean of the ranks: what even work would save."""
    cpu = rows.column("cpu")
    return statistics.fmean(max(values) - statistics.fmean(values) for values in cpu) if cpu else 0.0


def exposed_exchange(rows: Rows) -> list[float]:
    """Return, by step, the seconds from the moment the last rank had all gradients until all were exchanged."""
    begins = zip(*(rank["notes"]["exchange_begins"] for rank in rows.ranks), strict=True)
    ends = zip(*(rank["notes"]["exchange_ends"] for rank in rows.ranks), strict=True)
    return [max(end) - max(begin) for begin, end in zip(begins, ends, strict=True)][WARM_UP_STEPS:]


def exchange(rows: Rows, planned: Planned) -> float:
    """Return the mean of the exposed exchange."""
    return statistics.fmean(exposed_exchange(rows))


def exchange_above_before(rows: Rows, planned: Planned) -> float:
    """Return by how much the exposed exchange is above its median before the fault began, as a mean over all steps."""
    seconds = exposed_exchange(rows)
    split = planned.first_step - WARM_UP_STEPS
    usual = statistics.median(seconds[:split])
    return sum(second - usual for second in seconds[split:]) / len(seconds)


def noted(name: str, rows: Rows) -> float:
    """Return the mean over the steps of a number of seconds that the lab saw from outside, in all."""
    steps = len(rows.column("wall"))
    return float(rows.outside.get(name, 0.0)) / steps if steps else 0.0

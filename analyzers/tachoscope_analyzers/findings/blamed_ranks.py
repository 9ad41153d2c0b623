"""Which ranks a loss comes from, and whether it stays with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.report.report import Evidence

Ranks = list[int] | Literal["all"]


@dataclass(frozen=True, slots=True)
class Culprits:
    """The fewest ranks that cover the loss.

    Attributes:
        ranks: global ranks, or `all` when the loss is spread over more than half of them.
        coverage: ratio of the loss that they cover. persistent: whether it stays with these ranks.
    """

    ranks: Ranks
    coverage: float
    persistent: bool


def culprits(seconds: Matrix, ranks: list[int]) -> Culprits:
    """Return the culprits of a loss of shape (steps, ranks): the fewest ranks with the share `culprit_coverage` of it."""
    totals = seconds.sum(axis=0)
    total = float(totals.sum())
    if total <= 0 or len(ranks) == 1:
        return Culprits("all", 1.0, len(ranks) == 1)
    order = np.argsort(totals)[::-1]
    cumulated = np.cumsum(totals[order]) / total
    count = int(np.searchsorted(cumulated, threshold("culprit_coverage") - 1e-9)) + 1
    if count > max(1, len(ranks) // 2):
        return Culprits("all", 1.0, persistent=False)
    return Culprits(sorted(ranks[index] for index in order[:count]), float(cumulated[count - 1]), persistent=True)


def against_others(signal: str, seconds: Matrix, late: list[int], ranks: list[int], comparison: Literal["<", ">"]) -> Evidence:
    """Return the mean of `seconds`, shape (steps, ranks), over the late ranks, compared with that of the others."""
    is_late = np.isin(ranks, late)
    others = ~is_late if not is_late.all() else is_late
    return Evidence(
        signal=signal,
        value=float(seconds[:, is_late].mean()),
        threshold=float(seconds[:, others].mean()),
        comparison=comparison,
        unit="seconds per step",
        source="step records; threshold: the other ranks",
    )

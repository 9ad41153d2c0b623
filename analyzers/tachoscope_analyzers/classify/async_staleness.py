"""Asynchronous training: updates computed from parameters that others had updated meanwhile.

A stale update costs no time; it makes the training worse than its step rate says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.report.report import Evidence


@dataclass(frozen=True, slots=True)
class StalenessVerdict:
    """Candidates, none or one; `measured`: whether staleness was measured."""

    candidates: list[Candidate]
    measured: bool = True


def classify(job: JobRecords, steps: Steps) -> StalenessVerdict:
    """Hold the staleness of each rank's updates against the bound that the job says, else against what equal workers have.

    One slow worker makes few updates, old as they are: among those of all they would not be seen.
    """
    rows = [row for row in job.updates if row.attempt == steps.attempt]
    counts: Counter[int] = Counter()
    by_rank: dict[int, Counter[int]] = {}
    for row in rows:
        counts.update(row.staleness)
        by_rank.setdefault(row.rank, Counter()).update(row.staleness)
    if not counts:
        return StalenessVerdict([], measured=False)
    bounds = [row.bound for row in rows if row.bound is not None]
    workers = len(steps.ranks)
    bound = float(min(bounds)) if bounds else threshold("staleness_factor") * max(workers - 1, 1)
    stale = [rank for rank, own in sorted(by_rank.items()) if quantile(own, threshold("staleness_quantile")) > bound]
    if not stale:
        return StalenessVerdict([])
    counts = sum((by_rank[rank] for rank in stale), Counter())
    old = quantile(counts, threshold("staleness_quantile"))
    told = "the job's own bound" if bounds else f"{threshold('staleness_factor'):g} x (workers - 1)"
    source = f"{counts.total()} updates; threshold: {told}"
    evidence = [
        Evidence(
            signal=f"staleness, {threshold('staleness_quantile'):.0%} of the updates have at most",
            value=float(old),
            threshold=bound,
            comparison=">",
            unit="updates",
            source=source,
        ),
        *(
            measured(f"staleness, {name}", value, "updates", source)
            for name, value in (
                ("median", quantile(counts, 0.5)),
                ("mean", sum(age * count for age, count in counts.items()) / counts.total()),
                ("largest", max(counts)),
            )
        ),
        measured(
            "updates that are older than the bound",
            sum(count for age, count in counts.items() if age > bound) / counts.total(),
            "ratio",
            source,
        ),
    ]
    ranks: Ranks = stale if 0 < len(stale) < len(by_rank) else "all"
    return StalenessVerdict(
        [Candidate("async_staleness", np.zeros(len(steps.numbers)), ranks, evidence, speedup=1.0, level="warning")]
    )


def quantile(counts: Counter[int], share: float) -> int:
    """Return the smallest value that at least this share of the counted ones does not exceed."""
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= share * counts.total() - 1e-9:
            return value
    return 0

"""Findings over a whole life: work that was lost, time in which ranks hung, and what checkpoints took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.make import RESAMPLES, is_small, severity
from tachoscope_core.report.report import SEVERITY_ORDER, Evidence, Finding, RunnerUp, Severity
from tachoscope_core.report.taxonomy import BY_SLUG

CLASSES = ("lost_work", "checkpoint_stall", "hang")
_ONE_EVENT = (0.0253, 5.572)
"""Exact 95 % interval of the mean number of events of which one was seen (Garwood 1936, https://doi.org/10.1093/biomet/28.3-4.437)."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What was lost to one class.

    Attributes:
        events: rank-seconds of each occurrence. certainty: 0 to 1, how well they are known to be of this class.
        level: the least severity that it has, None: below the threshold of the share it is not reported.
        cause, where: as in `Finding`.
        action: what to do; empty: what is done about the class.
    """

    slug: str
    events: Sequence[float]
    ranks: list[int] | Literal["all"]
    evidence: Sequence[Evidence]
    certainty: float = 1.0
    level: Severity | None = None
    action: str = ""
    cause: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Base:
    """What losses are compared with: rank-seconds that were allocated, units, steps done for the first time."""

    allocated_seconds: float
    units: float
    new_steps: int


def findings(losses: Sequence[Loss], base: Base) -> list[Finding]:
    """Return the losses that are large enough to matter, largest first, small ones last."""
    if base.allocated_seconds <= 0:
        return []
    shares = {loss.slug: sum(loss.events) / base.allocated_seconds for loss in losses}
    found = []
    for loss in losses:
        share = shares[loss.slug]  # of the whole life, so it is not an estimate: the interval is about another life like it
        levels = [severity(share, share, base.new_steps), loss.level if loss.events else None]
        if known := [level for level in levels if level is not None]:
            found.append(_finding(loss, min(known, key=SEVERITY_ORDER.__getitem__), shares, base))
    return sorted(found, key=lambda one: (one.small, -one.share))


def interval(events: Sequence[float], allocated_seconds: float) -> tuple[tuple[float, float], float]:
    """Return the 95 % interval of the share that such events take, and the part of the resamples above the threshold of a warning;
    of a small loss, above the threshold of one.

    How many come is a Poisson number, how much each costs is drawn from those seen: a bootstrap of the compound Poisson process.
    The size of a single event says nothing of others, so its interval is that of the number alone.
    """
    sizes = np.array([size for size in events if size > 0])
    if not len(sizes) or allocated_seconds <= 0:
        return (0.0, 0.0), 0.0
    share = float(sizes.sum()) / allocated_seconds
    least = threshold("small_share" if is_small(share) else "warning_share")
    if len(sizes) == 1:
        low, high = (min(share * factor, 1.0) for factor in _ONE_EVENT)
        return (low, high), 0.5 if share >= least else 0.0
    random = np.random.default_rng(0)  # same data, same report
    counts = random.poisson(len(sizes), size=RESAMPLES)
    drawn = np.array([random.choice(sizes, size=count).sum() for count in counts]) / allocated_seconds
    low, high = (float(min(value, 1.0)) for value in np.quantile(drawn, [0.025, 0.975]))
    return (low, high), float((drawn >= least).mean())


def _finding(loss: Loss, level: Severity, shares: Mapping[str, float], base: Base) -> Finding:
    share = shares[loss.slug]
    bounds, above = interval(loss.events, base.allocated_seconds)
    per_step = sum(loss.events) / max(base.units, 1.0) / max(base.new_steps, 1)
    behind = [(slug, other) for slug, other in shares.items() if slug != loss.slug and 0 < other <= share]
    slug, other = max(behind, key=lambda pair: pair[1], default=("", 0.0))
    entry = BY_SLUG[loss.slug]
    small = loss.level is None and is_small(share)
    first = Evidence(
        signal="share of the allocated time",
        value=share,
        threshold=threshold("small_share" if small else "warning_share"),
        comparison=">=",
        unit="ratio",
        source="ledger of the life",
    )
    return Finding(
        class_=loss.slug,
        severity=level,
        seconds_per_step=per_step,
        share=share,
        share_ci=bounds,
        ranks=loss.ranks,
        confidence=round(min(loss.certainty * (above if loss.level is None else 1.0), 0.99), 2),
        runner_up=RunnerUp(class_=slug, margin=round(share - other, 3)) if slug else None,
        evidence=[first, *loss.evidence],
        speedup_if_fixed=1.0 / max(1.0 - share, 1e-9) if share < 1 else None,
        action=loss.action or entry.fix,
        runbook=entry.runbook,
        cause=loss.cause,
        where=loss.where,
        small=small,
    )

"""From a loss series to a finding: share, interval, severity, confidence. All families of findings are made here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.calibration import MOST, NOT_CALIBRATED, Calibration
from tachoscope_analyzers.stats import spikes
from tachoscope_analyzers.stats.arrays import Matrix, quantile
from tachoscope_analyzers.stats.change_points import large_change_points
from tachoscope_core.report.report import SEVERITY_ORDER, AdvisedSettings, Evidence, Finding, RunnerUp, Severity, StepSeconds
from tachoscope_core.report.taxonomy import BY_SLUG

RESAMPLES = 400
_MINIMUM_BLOCK = 10
_NOTHING_LEFT = 1e-6
"""Of a step that is lost up to this share nothing is left from which to tell how long it would take."""
SEEN_AT = "seen at "
"""Evidence of the line of user code at which a thread was seen most often begins so."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cause with the seconds that each step lost to it.

    Attributes:
        seconds: shape (K,). ranks: culprits or `all`. certainty: 0 to 1, how well it is told apart from its look-alikes.
        alternative: slug of the look-alike that would explain the same seconds, with the margin between the two (ratio).
        action: what to do, where the taxonomy's standard fix is too general.
        speedup: how much faster the step is without the loss, where that was replayed; None: the loss is subtracted. Infinite:
            what else there is does not tell how long a step would take.
        advice: what `action` sets, for programs.
        level: its severity where the share alone does not tell it; then it is reported however small it is.
        at_most: the highest severity that it may have. cause: which of the things that the class covers it is; see `Finding`.
        condition: it is a condition of the machine, not of the job; see `Finding`. ended: it ended the job, so it comes first.
    """

    slug: str
    seconds: Matrix
    ranks: list[int] | Literal["all"]
    evidence: list[Evidence]
    certainty: float = 1.0
    alternative: tuple[str, float] | None = None
    action: str = ""
    speedup: float | None = None
    level: Severity | None = None
    advice: AdvisedSettings | None = None
    at_most: Severity = "critical"
    cause: str = ""
    condition: bool = False
    ended: bool = False


def is_small(share: float) -> bool:
    """Return whether a loss of that share of the step is too small for a warning."""
    return share < threshold("warning_share")


def severity(share: float, lowest: float, steps: int) -> Severity | None:
    """Return how bad a loss is; None if it is too small to be told.

    `info` is a small loss, and a large one of which too little is known: one whose interval, or whose number of steps, leaves open
    whether it is worth a warning.

    Args:
        share: of the loss. lowest: the lower end of its interval, which has to reach a threshold for that severity.
    """
    if is_small(share):
        return "info" if lowest >= threshold("small_share") and steps >= threshold("warning_steps") else None
    if lowest < threshold("warning_share") or steps < threshold("warning_steps"):
        return "info"
    if lowest >= threshold("critical_share") and steps >= threshold("critical_steps"):
        return "critical"
    return "warning"


def resampled_shares(seconds: Matrix, step: Matrix, changes: Sequence[int] = ()) -> npt.NDArray[np.float64]:
    """Return the share of the loss in block-bootstrap resamples of the steps, shape (RESAMPLES,).

    Blocks keep neighbours together: at least 10 steps, a tenth of the run, but never more than a quarter of it. Of a loss that
    comes every so many steps they are whole periods: how often it comes is known, only how long it takes varies. Likewise before
    and after a change: since when a loss is there is known. The seed is fixed: same data, same report.

    Args:
        changes: steps from which on the loss has another level.
    """
    dice = np.random.default_rng(0)
    lost, total = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for begin, end in pairwise([0, *changes, len(step)]):
        for sums, values in zip((lost, total), _resampled((seconds[begin:end], step[begin:end]), dice), strict=True):
            sums += values
    return np.asarray(lost / total)


def _resampled(pair: tuple[Matrix, Matrix], dice: np.random.Generator) -> Iterator[Matrix]:
    """Yield the sums of the loss and of the steps in resamples of as many steps, each of shape (RESAMPLES,)."""
    count = len(pair[0])
    block = max(1, min(max(_MINIMUM_BLOCK, count // 10), count // 4))
    period = _period(pair[0])
    if period is not None:
        block = min(-(-block // period) * period, count // period * period)
    blocks = -(-count // block)
    starts = dice.integers(0, count - block + 1, size=(RESAMPLES, blocks))
    for values in pair:
        sums = np.concatenate([[0.0], np.cumsum(values)])
        yield (sums[starts + block] - sums[starts]).sum(axis=1) * (count / (blocks * block))


def _period(seconds: Matrix) -> int | None:
    """Return the period of a loss in steps; None if it is steady, rare or random."""
    when = spikes.rhythm(seconds, np.arange(len(seconds)))
    return round(when.period) if when.kind == "periodic" else None


@dataclass(frozen=True, slots=True)
class Series:
    """The steps that losses are compared with.

    Attributes:
        seconds: of each step, shape (K,). first, last: their numbers. source: what they were measured with.
        whole: what a share is of. window: what was looked at, where that is not those steps.
    """

    seconds: Matrix
    first: int
    last: int
    source: str
    whole: str = "step"
    window: str = ""

    @property
    def mean(self) -> float:
        """Mean step time in seconds."""
        return float(self.seconds.mean())


def step_seconds(seconds: Matrix) -> StepSeconds:
    """Return the distribution of the step times, shape (K,)."""
    p50, p95, p99 = (quantile(seconds, at) for at in (0.5, 0.95, 0.99))
    return StepSeconds(mean=float(seconds.mean()), p50=p50, p95=p95, p99=p99)


def findings(candidates: Sequence[Candidate], series: Series, calibration: Calibration = NOT_CALIBRATED) -> list[Finding]:
    """Return the candidates that are large enough to matter, largest loss first; conditions of the machine come after what the job
    can change, and small losses last.

    A finding's score is the part of the resamples in which the loss is above the threshold of a warning, of information (`info`)
    that of a small loss, times the candidate's certainty; that alone where the severity is given. Its confidence is what the
    calibration makes of the score. If that is below the gate, the finding is `unknown` with the loss, the culprit and the evidence,
    and the suspected class is its runner-up.
    """
    judged = [(candidate, float(candidate.seconds.mean())) for candidate in candidates]
    ordered = sorted(judged, key=lambda pair: (pair[0].condition, not pair[0].ended, -pair[1]))
    found = (_finding(candidate, lost, judged, series, calibration) for candidate, lost in ordered)
    return sorted((one for one in found if one is not None), key=lambda one: one.small)


def _finding(
    candidate: Candidate, lost: float, judged: Sequence[tuple[Candidate, float]], series: Series, calibration: Calibration
) -> Finding | None:
    """Return the finding of a loss; None if it is too small."""
    mean = series.mean
    if candidate.level is None and lost / mean < threshold("small_share"):
        return None
    changes = large_change_points(candidate.seconds, threshold("change_share") * mean)
    shares = resampled_shares(candidate.seconds, series.seconds, changes)
    low, high = (quantile(shares, at) for at in (0.025, 0.975))
    by_share = candidate.level or severity(lost / mean, low, len(series.seconds))
    if by_share is None:
        return None
    level = max(by_share, candidate.at_most, key=SEVERITY_ORDER.__getitem__)
    small = candidate.level is None and is_small(lost / mean)
    least = threshold("small_share" if by_share == "info" else "warning_share")
    above = float((shares >= least).mean()) if candidate.level is None else 1.0
    score = min(above * candidate.certainty, MOST)
    probability = calibration.probability(candidate.slug, score)
    withheld = calibration.withheld(candidate.slug, score)
    if withheld is not None:  # that something is lost is as sure as before: only the name is not
        evidence = [withheld, *candidate.evidence]
        runner_up = (candidate.slug, 0.0)
        candidate = replace(candidate, slug="unknown", evidence=evidence, alternative=runner_up, action="", advice=None, cause="")
        probability = min(above, MOST)
    speedup = candidate.speedup or (mean / (mean - lost) if mean - lost > _NOTHING_LEFT * mean else math.inf)
    entry = BY_SLUG[candidate.slug]
    return Finding(
        class_=candidate.slug,
        severity=level,
        seconds_per_step=lost,
        share=lost / mean,
        share_ci=(low, high),
        ranks=candidate.ranks,
        confidence=round(score if probability is None else probability, 2),
        runner_up=_runner_up(candidate, lost, judged, mean),
        evidence=[*_size(lost / mean, low, series, candidate.level, small=small), *candidate.evidence],
        speedup_if_fixed=speedup if np.isfinite(speedup) else None,
        action=candidate.action or entry.fix,
        runbook=entry.runbook,
        advice=candidate.advice or UNSET,
        where=next((row.signal.removeprefix(SEEN_AT) for row in candidate.evidence if row.signal.startswith(SEEN_AT)), ""),
        cause=candidate.cause,
        every_steps=_period(candidate.seconds),
        condition=candidate.condition,
        small=small,
    )


def _size(share: float, low: float, series: Series, level: Severity | None, *, small: bool) -> list[Evidence]:
    """Return the size of a loss, and the severity that its interval rules out."""
    window = series.window or f"steps {series.first} to {series.last}"
    rows = [
        Evidence(
            signal=f"share of the {series.whole}",
            value=share,
            threshold=threshold("small_share" if small else "warning_share"),
            comparison=">=",
            unit="ratio",
            source=series.source,
            window=window,
        )
    ]
    kept = next((name for name in ("warning", "critical") if low < threshold(f"{name}_share") <= share), None)
    if kept is not None and level is None:
        rows.append(
            Evidence(
                signal=f"lower end of the share's 95 % interval, too low for {kept}",
                value=low,
                threshold=threshold(f"{kept}_share"),
                comparison="<",
                unit="ratio",
                source=series.source,
                window=window,
            )
        )
    return rows


def _runner_up(candidate: Candidate, lost: float, judged: Sequence[tuple[Candidate, float]], mean: float) -> RunnerUp | None:
    """Return the look-alike, else the next smaller loss of another class."""
    if candidate.alternative is not None:
        slug, margin = candidate.alternative
        return RunnerUp(class_=slug, margin=round(margin, 3))
    others = [(other, seconds) for other, seconds in judged if other.slug != candidate.slug and 0 < seconds <= lost]
    if not others:
        return None
    other, seconds = max(others, key=lambda pair: pair[1])
    return RunnerUp(class_=other.slug, margin=round((lost - seconds) / mean, 3))


def healthy_finding(
    slug: str,
    seconds: Matrix,
    series: Series,
    runner_up: tuple[str, float],
    more: Sequence[Evidence] = (),
    signal: str = "computing, share of the step",
) -> list[Finding]:
    """Return the finding that the step is as it should be, if `seconds`, shape (K,), of useful work are at least their share of it.

    Args:
        runner_up: the largest of the other uses of the step, with its seconds per step.
        more: evidence beside that share. signal: what the share is of.
    """
    share = float(seconds.mean()) / series.mean if series.mean else 0.0
    if share < threshold("compute_bound_share") or len(series.seconds) < threshold("warning_steps"):
        return []
    shares = resampled_shares(seconds, series.seconds)
    low, high = (quantile(shares, at) for at in (0.025, 0.975))
    other, lost = runner_up
    entry = BY_SLUG[slug]
    evidence = Evidence(
        signal=signal,
        value=share,
        threshold=threshold("compute_bound_share"),
        comparison=">=",
        unit="ratio",
        source=series.source,
    )
    return [
        Finding(
            class_=slug,
            severity="info",
            seconds_per_step=float(seconds.mean()),
            share=share,
            share_ci=(float(low), float(high)),
            ranks="all",
            confidence=round(min(float((shares >= threshold("compute_bound_share")).mean()), MOST), 2),
            runner_up=RunnerUp(class_=other, margin=round(share - lost / series.mean, 3)),
            evidence=[evidence, *more],
            speedup_if_fixed=1.0,
            action=entry.fix,
            runbook=entry.runbook,
        )
    ]

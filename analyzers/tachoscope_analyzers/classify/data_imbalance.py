"""Uneven data: whichever rank got the longest batch is late, and the others wait for it.

With the sizes of the batches: computing follows them, and what the late rank's batch is larger than the usual one explains its
excess. Without: forward and backward of the same step go together within each rank, since both follow the data; then no rank is
slower than the others on average. A rank that is slow whatever it gets is a straggler, a stall of the machine hits one of the
two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import culprits
from tachoscope_analyzers.findings.evidence import compared, measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.linear_fit import fitted
from tachoscope_core.report.report import Evidence

MISSING = "sizes of the batches, or the times of forward and backward in at least 20 steps"


@dataclass(frozen=True, slots=True)
class ImbalanceVerdict:
    """What uneven data costs.

    Attributes:
        seconds: of each step, in the column of the late rank, shape (K, R). candidates: none or one.
        measured: whether the data's part could be told.
    """

    seconds: Matrix
    candidates: list[Candidate]
    measured: bool = True


@dataclass(frozen=True, slots=True)
class _Follows:
    """How computing follows the data.

    Attributes:
        predicted: seconds that each step of each rank takes for its data alone, up to a constant, shape (K, R).
        needed: correlation from which on it counts. evidence: how it was told.
    """

    predicted: Matrix
    correlation: float
    needed: float
    evidence: list[Evidence]


def classify(steps: Steps, late: Matrix, losses: Losses) -> ImbalanceVerdict:
    """Return what of the late ranks' excess follows from their data.

    Args:
        late: what each step loses to computing of its late rank, shape (K, R).
    """
    nothing = np.zeros_like(late)
    if len(steps.ranks) < 2:
        return ImbalanceVerdict(nothing, [])
    told = [one for one in (_by_size(steps), _by_forward_and_backward(steps)) if one is not None]
    if not told:
        return ImbalanceVerdict(nothing, [], measured=False)
    follows = next((one for one in told if one.correlation >= one.needed), None)
    if follows is None or not late.any():
        return ImbalanceVerdict(nothing, [])
    # Of two ranks the lesser, as everywhere where an excess is taken over the others.
    typical = np.sort(follows.predicted, axis=1)[:, (len(steps.ranks) - 1) // 2]
    seconds = np.minimum(late, np.maximum(follows.predicted - typical[:, None], 0.0))
    explained = float(seconds.sum() / late.sum())
    evidence = [
        *follows.evidence,
        measured("part of the late ranks' excess that it explains", explained, "ratio", "step records"),
        *_turns(seconds, losses),
    ]
    margin = (2 * explained - 1) * float(late.sum() / losses.step.sum())
    certainty = min(1.0, 0.5 + explained / 2)
    who = culprits(seconds, steps.ranks).ranks
    alternative = ("compute_straggler", margin)
    won = seconds.sum(axis=1) * _won_by_balancing(follows.predicted, typical)
    return ImbalanceVerdict(seconds, [Candidate("data_imbalance", won, who, evidence, certainty, alternative)])


def _won_by_balancing(predicted: Matrix, typical: Matrix) -> Matrix:
    """Return the ratio of the late rank's excess that the step wins if its data are shared evenly, shape (K,): then each rank takes
    the mean, and the others take longer than they did.
    """
    most = predicted.max(axis=1)
    excess = most - typical
    return np.asarray(np.divide(most - predicted.mean(axis=1), excess, out=np.zeros_like(excess), where=excess > 0))


def _turns(seconds: Matrix, losses: Losses) -> list[Evidence]:
    """Return how often the late rank changes from step to step, among steps with a large loss."""
    much = seconds.sum(axis=1) >= 0.05 * losses.mean_step
    if much.sum() < 2:
        return []
    who = seconds[much].argmax(axis=1)
    return [
        measured(
            "late rank another one than the time before",
            (np.diff(who) != 0).mean(),
            "ratio of the steps that lose 5 % and more",
            "step records",
        )
    ]


def _by_size(steps: Steps) -> _Follows | None:
    """Compare each rank's computing with its batch sizes; None if they are unknown or constant."""
    sizes, computing = steps.consumed, steps.own["compute"] - steps.shared
    known = np.asarray(~np.isnan(sizes).any(axis=1))
    read = known & ~np.isnan(steps.backward).any(axis=1) if steps.device == "cpu" else known
    rows = read if read.sum() >= threshold("imbalance_steps") else known
    if known.mean() < 0.5 or rows.sum() < threshold("imbalance_steps"):
        return None
    if not np.ptp(sizes[rows], axis=0).any():
        return None
    lines = [fitted(sizes[rows, rank], computing[rows, rank]) for rank in range(len(steps.ranks))]
    # How long a rank takes for a number is the rank's doing; what all take for it is the data's.
    slope = float(np.median([line.slope for line in lines]))
    correlation = float(np.median([line.correlation for line in lines]))
    filled = np.where(known[:, None], sizes, np.nanmean(sizes))
    evidence = [
        _correlation(
            "a rank's computing with the size of its batches", correlation, threshold("size_correlation"), int(rows.sum())
        ),
        measured(
            "largest batch of a step over the mean of the ranks",
            (sizes[rows].max(axis=1) / sizes[rows].mean(axis=1)).mean(),
            "ratio",
            "step records",
        ),
    ]
    return _Follows(np.maximum(slope, 0.0) * filled, correlation, threshold("size_correlation"), evidence)


def _by_forward_and_backward(steps: Steps) -> _Follows | None:
    """Hold forward against backward of the same step; None with too few steps in which both were read, or on an accelerator, where
    only that part of backward is known that all ranks have in common.
    """
    if steps.device != "cpu":
        return None
    rows = ~np.isnan(steps.backward).any(axis=1)
    if rows.sum() < threshold("imbalance_steps"):
        return None
    forward, backward = steps.forward[rows], steps.backward[rows]
    ranks = range(len(steps.ranks))
    lines = [fitted(forward[:, rank], backward[:, rank]) for rank in ranks]
    correlation = min(line.correlation for line in lines)
    whole = forward + backward
    # Means of n equal ranks' steps vary by 1/sqrt(n) of what the steps do: beyond 2.5 times that they are not equal.
    apart = float(whole.mean(axis=0).std(ddof=1) / max(float(whole.std(axis=0).mean()), 1e-12))
    alike = apart <= max(threshold("imbalance_rank_spread"), 2.5 / np.sqrt(rows.sum()))
    slopes = np.array([line.slope for line in lines])
    evidence = [
        _correlation(
            "forward with backward of the same step, by rank",
            correlation,
            threshold("imbalance_correlation"),
            int(rows.sum()),
        ),
        Evidence(
            signal="variation of the ranks' mean times over that within a rank",
            value=apart,
            threshold=threshold("imbalance_rank_spread"),
            comparison="<=" if alike else ">",
            unit="ratio",
            source="step records",
        ),
    ]
    predicted = steps.forward * (1.0 + slopes)
    return _Follows(predicted, correlation if alike else 0.0, threshold("imbalance_correlation"), evidence)


def _correlation(signal: str, value: float, needed: float, steps: int) -> Evidence:
    return compared(f"correlation of {signal}", value, needed, "ratio", f"step records: {steps} steps in which both are known")

"""Steps in which a rank was stuck for long: they are no measure of the others, so no other cause is looked for in them.

What a hang costs over the whole life of a job, and how one without a next step ended, is judged by `attempts.hangs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.attempts.hangs import HangThreshold
from tachoscope_analyzers.findings.blamed_ranks import culprits
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.report.report import Evidence

_STUCK_IN = ("compute", "launch", "other", "paused")
"""Where a rank that is stuck is counted. A rank that loads, saves, evaluates, compiles or collects garbage for long is at something
known.
"""
_PASSED = "it continued by itself; if it happens again, check that rank's host (the job's whole life: tachoscope goodput)"
_FIRST_STEPS = 2
"""Compiling and connecting take place in them."""


@dataclass(frozen=True, slots=True)
class HungSteps:
    """What steps lost without their hangs, the hangs, and in which steps they were, shape (K,)."""

    losses: Losses
    candidates: list[Candidate]
    steps: npt.NDArray[np.bool_]


def subtract_hangs(steps: Steps, losses: Losses) -> HungSteps:
    """Take the seconds of hangs out of what the steps lost: of those in which all others waited, for as long as a hang lasts."""
    limit = HangThreshold(float(np.median(losses.step))).hang_seconds
    usual = float(np.median(losses.transfer))
    late = np.asarray(np.sum([losses.excess[cause] for cause in _STUCK_IN], axis=0))
    together = np.maximum(losses.transfer - usual, 0.0)  # all were blocked: by whom is not known
    hung = (late.sum(axis=1) + together > limit) & (steps.numbers > _FIRST_STEPS)
    if len(steps.ranks) < 2 or not hung.any():
        return HungSteps(losses, [], np.zeros(len(steps.numbers), dtype=bool))
    late, together = late * hung[:, None], together * hung
    seconds = late.sum(axis=1) + together
    known = late.sum() >= together.sum()
    who = culprits(late, steps.ranks).ranks if known else "all"
    worst = int(seconds.argmax())
    evidence = [
        Evidence(
            signal=f"longest time without a step of any rank, in step {steps.numbers[worst]}",
            value=float(seconds[worst]),
            threshold=limit,
            comparison=">",
            unit="seconds",
            source="step records",
        ),
        Evidence(signal="steps in which a rank was stuck", value=float(hung.sum()), source="step records"),
    ]
    rest = {cause: np.where(hung[:, None], 0.0, part) if cause in _STUCK_IN else part for cause, part in losses.excess.items()}
    kept = replace(losses, excess=rest, transfer=losses.transfer - together)
    found = Candidate("hang", seconds, who, evidence, 1.0 if known else 0.8, action=_PASSED)
    return HungSteps(kept, [found], hung)


def without_hangs(steps: Steps, hung: npt.NDArray[np.bool_]) -> tuple[Steps, Matrix]:
    """Return the steps without what ranks were stuck for, or waited for those that were, and those seconds, shape (K, R)."""
    seconds = np.zeros_like(steps.wall)
    own = dict(steps.own)
    for cause in _STUCK_IN:
        beyond = _beyond(own[cause], hung)
        own[cause] = own[cause] - beyond
        seconds += beyond
    waited = _beyond(steps.waiting, hung)
    return replace(steps, own=own, waiting=steps.waiting - waited), seconds + waited


def _beyond(seconds: Matrix, hung: npt.NDArray[np.bool_]) -> Matrix:
    """Return the excess of these steps over each rank's usual step, shape (K, R)."""
    return np.where(hung[:, None], np.maximum(seconds - np.median(seconds, axis=0), 0.0), 0.0)

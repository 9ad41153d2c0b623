"""Steps in which a rank was stuck for long: they are no measure of the others, so no other cause is looked for in them.

What a hang costs over the whole life of a job, and how one without a next step ended, is judged by `life.hangs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tachoscope_analyzers.culprits import culprits
from tachoscope_analyzers.judge import Candidate
from tachoscope_analyzers.life.hangs import Normal
from tachoscope_analyzers.losses import Losses
from tachoscope_analyzers.steps import Steps
from tachoscope_core.report import Evidence

_STUCK_IN = ("compute", "launch", "other", "paused")
"""Where a rank that is stuck is counted. A rank that loads, saves, evaluates or collects garbage for long is at something known."""
_FIRST_STEPS = 2
"""Compiling and connecting take place in them."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What steps lost without their hangs, and the hangs."""

    losses: Losses
    candidates: list[Candidate]


def take(steps: Steps, losses: Losses) -> Taken:
    """Take the seconds of hangs out of what the steps lost: of those in which all others waited, for as long as a hang lasts."""
    limit = Normal(float(np.median(losses.step))).hang_seconds
    usual = float(np.median(losses.transfer))
    late = np.asarray(np.sum([losses.excess[cause] for cause in _STUCK_IN], axis=0))
    together = np.maximum(losses.transfer - usual, 0.0)  # all were blocked: by whom is not known
    hung = (late.sum(axis=1) + together > limit) & (steps.numbers > _FIRST_STEPS)
    if len(steps.ranks) < 2 or not hung.any():
        return Taken(losses, [])
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
    return Taken(kept, [Candidate("hang", seconds, who, evidence, 1.0 if known else 0.8)])

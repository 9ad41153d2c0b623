"""How a run went: its mean step with the noise of that, lasting changes of the step time with what grew, and late ranks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from tachoscope_analyzers.classify.late_rank_intervals import late_ranks
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import culprits
from tachoscope_analyzers.findings.make import resampled_shares
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.ledger.states import STATE_OF_CAUSE
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.step_table import Array
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.change_points import change_points, large_change_points, least_steps, spread
from tachoscope_core.report.trend import Bin, ChangePoint, Estimate, StateShift, Trend

_COLUMNS = 120
_STEPS_IN_A_COLUMN = 4
"""At least, so that one save does not make its median."""
_STANDS_OUT = 5.0
"""Standard deviations; a periodic save or a pause is no part of the level that changed."""


def course(job: JobRecords, steps: Steps, losses: Losses) -> Trend:
    """Return how the run went: changes, late ranks and means; None what too few steps cannot tell."""
    states = of_latest(losses)
    changes = _changes(steps, losses, states) if len(losses.step) >= 2 * least_steps(len(losses.step)) else None
    late = late_ranks(steps)
    means = {state: estimate(seconds) for state, seconds in states.items() if seconds.any()}
    samples, tokens = _work(job, steps)
    return Trend(
        device=steps.device,
        samples_per_step=samples,
        tokens_per_step=tokens,
        step=estimate(losses.step),
        states=dict(sorted(means.items(), key=lambda row: -row[1].seconds)),
        changes=changes,
        late=late,
        picture=_picture(steps, losses.step) if changes or late else [],
    )


def of_latest(losses: Losses) -> dict[str, Matrix]:
    """Return the seconds of the latest rank by state, each of shape (K,); they sum to the step."""
    states: dict[str, Matrix] = {}
    for cause, common in losses.common.items():
        state = STATE_OF_CAUSE[cause]
        states[state] = states.get(state, 0.0) + common + losses.excess[cause].sum(axis=1)
    states["communication"] = losses.transfer
    return states


def lasting_changes(losses: Losses) -> list[int]:
    """Return the indices, in order, of the steps from which on a state of the latest rank takes longer or shorter for good, by at
    least the ratio `change_share` of the mean step. Changes of several states at once are one.
    """
    least, apart = threshold("change_share") * losses.mean_step, least_steps(len(losses.step))
    shifts: dict[int, float] = {}
    for seconds in of_latest(losses).values():
        places = large_change_points(seconds, least)
        levels = [float(np.median(piece)) for piece in np.split(seconds, places)]
        for place, (before, after) in zip(places, pairwise(levels), strict=True):
            shifts[place] = max(abs(after - before), shifts.get(place, 0.0))
    found: list[int] = []
    for place in sorted(shifts, key=lambda place: -shifts[place]):
        if shifts[place] >= least and all(abs(place - other) >= apart for other in found):
            found.append(place)
    return sorted(found)


def estimate(seconds: Matrix) -> Estimate:
    """Return the mean of the steps, shape (K,), and its error by the block bootstrap of all shares."""
    means = resampled_shares(seconds, np.ones_like(seconds))
    return Estimate(seconds=float(seconds.mean()), error=float(means.std()))


def _work(job: JobRecords, steps: Steps) -> tuple[float, float]:
    """Return samples and tokens of a step over all ranks; 0 if not reported."""
    rows = job.steps.in_attempt(steps.attempt).of_writers(steps.writers)

    def a_step(amounts: Array) -> float:
        return float(amounts.mean()) * len(steps.ranks) if amounts.all() else 0.0

    return a_step(rows.column("samples")), a_step(rows.column("tokens"))


@dataclass(frozen=True, slots=True)
class _ChangeSides:
    """The steps on either side of a change, by index, those that stand out left out."""

    before: np.ndarray
    after: np.ndarray

    def means(self, seconds: Matrix) -> tuple[float, float]:
        return float(seconds[self.before].mean()), float(seconds[self.after].mean())

    def growth(self, seconds: Matrix) -> Matrix:
        return np.asarray(seconds[self.after].mean(axis=0) - seconds[self.before].mean(axis=0))


def _changes(steps: Steps, losses: Losses, states: dict[str, Matrix]) -> list[ChangePoint]:
    places = change_points(losses.step)
    bounds = [0, *places, len(losses.step)]
    found = []
    for begin, place, end in zip(bounds, places, bounds[2:], strict=False):
        sides = _ChangeSides(_usual(losses.step, begin, place), _usual(losses.step, place, end))
        before, after = sides.means(losses.step)
        found.append(
            ChangePoint(
                step=int(steps.numbers[place]),
                time=float((steps.unix_ends[place] - steps.wall[place]).min()),
                first_step=int(steps.numbers[begin]),
                last_step=int(steps.numbers[end - 1]),
                before_seconds=before,
                after_seconds=after,
                states=_grown(sides, states, after - before),
                ranks=_whose(steps, losses, sides, after - before),
            )
        )
    return found


def _usual(seconds: Matrix, begin: int, end: int) -> np.ndarray:
    part = seconds[begin:end]
    return begin + np.flatnonzero(np.abs(part - np.median(part)) <= _STANDS_OUT * spread(part))


def _grown(sides: _ChangeSides, states: dict[str, Matrix], shift: float) -> list[StateShift]:
    """Return the fewest states that explain `culprit_coverage` of the change, the largest first."""
    means = {state: sides.means(seconds) for state, seconds in states.items()}
    parts = sorted(((after - before) / shift, state) for state, (before, after) in means.items())[::-1]
    found, explained = [], 0.0
    for part, state in parts:
        if explained >= threshold("culprit_coverage") or part <= 0:
            break
        explained += part
        before, after = means[state]
        found.append(StateShift(state=state, before_seconds=before, after_seconds=after))
    return found


def _whose(steps: Steps, losses: Losses, sides: _ChangeSides, shift: float) -> list[int] | Literal["all"]:
    """Return the ranks whose excess explains most of the change, else `all`."""
    grown = sum((sides.growth(excess) for excess in losses.excess.values()), np.zeros(len(steps.ranks))) * np.sign(shift)
    if grown.sum() < abs(shift) / 2:
        return "all"
    return culprits(np.maximum(grown, 0.0)[None, :], steps.ranks).ranks


def _picture(steps: Steps, seconds: Matrix) -> list[Bin]:
    edges = np.unique(np.linspace(0, len(seconds), min(_COLUMNS, max(len(seconds) // _STEPS_IN_A_COLUMN, 1)) + 1).astype(int))
    found = []
    for begin, end in pairwise(edges):
        p05, p50, p95 = (float(value) for value in np.quantile(seconds[begin:end], [0.05, 0.5, 0.95]))
        first, last = int(steps.numbers[begin]), int(steps.numbers[end - 1])
        found.append(Bin(first_step=first, last_step=last, p05=p05, p50=p50, p95=p95))
    return found

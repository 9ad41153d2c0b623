"""The time that two runs take for the same work, where their steps are not: per million tokens, per thousand samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tachoscope_core.report.trend import Estimate, Trend

_UNITS = (("million tokens", "tokens_per_step", 1e6), ("thousand samples", "samples_per_step", 1e3))
_QUANTILE = 1.96
"""Half of a 95 % interval, in standard errors."""


@dataclass(frozen=True, slots=True)
class SecondsPerUnit:
    """Seconds for a unit of work, all ranks together; None: it is not known what a step of that run took.

    Attributes:
        unit: of work. share: by how much more it takes than in the baseline, a ratio; interval: 95 % interval of that.
    """

    unit: str
    baseline: float | None
    now: float | None
    share: float | None
    interval: tuple[float, float] | None


def per_work(now: Trend, baseline: Trend) -> list[SecondsPerUnit]:
    """Return the seconds of both runs by unit of work, of each unit; `share` only where both are known."""
    return [_of_unit(unit, field, size, now, baseline) for unit, field, size in _UNITS]


def _of_unit(unit: str, field: str, size: float, now: Trend, baseline: Trend) -> SecondsPerUnit:
    sides = [_seconds(course.step, getattr(course, field), size) for course in (baseline, now)]
    before, after = sides
    if before is None or after is None:
        return SecondsPerUnit(unit, before.seconds if before else None, after.seconds if after else None, None, None)
    share = after.seconds / before.seconds - 1
    # Relative errors of a ratio of two independent means add in squares.
    reach = _QUANTILE * (1 + share) * float(np.hypot(before.error / before.seconds, after.error / after.seconds))
    return SecondsPerUnit(unit, before.seconds, after.seconds, share, (share - reach, share + reach))


def _seconds(step: Estimate, work: float, size: float) -> Estimate | None:
    if work <= 0 or step.seconds <= 0:
        return None
    return Estimate(seconds=step.seconds / work * size, error=step.error / work * size)

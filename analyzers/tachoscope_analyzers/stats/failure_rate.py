"""How often something fails, and how sure that is: few failures say little about the time between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.90
"""Of the interval about the mean time between failures: 5 % of doubt on either side."""


@dataclass(frozen=True, slots=True)
class FailureRate:
    """The mean time between failures, in seconds, for failures at a constant rate.

    Attributes:
        failures: that were seen in `life_seconds`.
        mean_seconds: the estimate; None: nothing failed, so only `low_seconds` is known.
        low_seconds, high_seconds: limits of the 90 % confidence interval; `high_seconds` is infinite where nothing failed.
    """

    failures: int
    life_seconds: float
    mean_seconds: float | None
    low_seconds: float
    high_seconds: float

    @property
    def cautious_seconds(self) -> float:
        """The estimate, or where nothing failed its lower limit: failures are at least as rare as that, with 95 % confidence."""
        return self.low_seconds if self.mean_seconds is None else self.mean_seconds


def failure_rate(failures: int, life_seconds: float) -> FailureRate:
    """Estimate the mean time between failures from a count.

    The limits are exact for a Poisson count: Garwood (1936), https://doi.org/10.1093/biomet/28.3-4.437; as chi-square quantiles in
    https://www.itl.nist.gov/div898/handbook/apr/section4/apr451.htm (time-censored). With no failure the lower limit is
    life / -ln(0.05), the rule of three.

    Raises:
        ValueError: the life is not longer than 0, or the count is negative.
    """
    if not life_seconds > 0 or failures < 0:
        raise ValueError(f"{failures} failures in {life_seconds} s: a rate needs a life longer than 0 and a count from 0")
    doubt = (1 - CONFIDENCE) / 2
    most = _falling_root(lambda mean: poisson_at_most(failures, mean), doubt, failures)
    if not failures:
        return FailureRate(0, life_seconds, None, life_seconds / most, math.inf)
    least = _falling_root(lambda mean: poisson_at_most(failures - 1, mean), 1 - doubt, failures)
    return FailureRate(failures, life_seconds, life_seconds / failures, life_seconds / most, life_seconds / least)


def poisson_at_most(count: int, mean: float) -> float:
    """Return the probability, 0 to 1, of at most `count` events where `mean` are expected."""
    if mean <= 0:
        return 1.0
    # By logarithms: exp(-mean) alone is 0 from a mean of 746 on.
    counts = np.arange(count + 1)
    logarithms = counts * math.log(mean) - mean - np.cumsum(np.log(np.maximum(counts, 1)))
    return min(1.0, float(np.exp(logarithms).sum()))


def _falling_root(function: Callable[[float], float], value: float, near: int) -> float:
    """Return where a falling function of the mean equals `value`, by bisection around `near`."""
    low, high = 0.0, near + 10.0 * math.sqrt(near + 1) + 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > value else (low, middle)
    return (low + high) / 2

"""How regular the steps of a job are: what each took over the median of those before it in the same attempt.

The baseline forgets slowly, by half every two hours of steps: a job that has become slower for good counts as slow for about
that long, which is enough for an alert, and is the new usual after that. A few hundred steps would be forgotten in minutes.
Knows nothing of records and ranks.
"""

from __future__ import annotations

import math

import msgspec

LEAST_STEPS = 32
"""Nothing is compared before so many: the first ones compile, and fill caches."""
RENEW_STEPS = 16
"""The baseline is made again every so many steps."""
HALF_LIFE_SECONDS = 7200.0
_WIDTH = math.log(1.01)
"""Steps are counted in classes one per cent apart: the median is known to half of that, in memory that has a bound."""
_SHORTEST, _LONGEST = 1e-4, 1e6
_LEAST_WEIGHT = 0.1


class Regularity(msgspec.Struct):
    """Of one job on one node.

    Attributes:
        attempt: whose steps these are. steps: how many were seen of it. seconds: what they took since the weights were halved.
        baseline: seconds that a step usually takes; 0: not known yet.
        weights: by class of seconds, how many steps, those of long ago less.
    """

    attempt: int = -1
    steps: int = 0
    seconds: float = 0.0
    baseline: float = 0.0
    weights: dict[int, float] = {}

    def compared(self, attempt: int, seconds: float) -> float | None:
        """Take a step; return what it took over the baseline, None while there is none, or if it is of an earlier attempt."""
        if attempt < self.attempt:
            return None
        if attempt > self.attempt:  # perhaps with another batch size, or on other hosts
            self.attempt, self.steps, self.seconds, self.baseline, self.weights = attempt, 0, 0.0, 0.0, {}
        ratio = seconds / self.baseline if self.baseline else None
        index = round(math.log(min(max(seconds, _SHORTEST), _LONGEST)) / _WIDTH)
        self.weights[index] = self.weights.get(index, 0.0) + 1.0
        self.steps += 1
        self.seconds += seconds
        if self.steps >= LEAST_STEPS and self.steps % RENEW_STEPS == 0:
            self._renew()
        return ratio

    def _renew(self) -> None:
        if self.seconds >= HALF_LIFE_SECONDS:
            self.seconds = 0.0
            self.weights = {index: weight / 2 for index, weight in self.weights.items() if weight / 2 >= _LEAST_WEIGHT}
        half, below = sum(self.weights.values()) / 2, 0.0
        for index in sorted(self.weights):
            below += self.weights[index]
            if below >= half:
                self.baseline = math.exp(index * _WIDTH)
                return

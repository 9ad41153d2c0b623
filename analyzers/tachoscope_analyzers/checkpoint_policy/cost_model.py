"""What saving at an interval costs a job that fails at random, and which interval costs least.

A job works, saves every `interval` seconds and loses at a failure what it did since the last checkpoint that was complete. Failures
come at a constant rate (exponential times between them), may strike while saving and while restarting, and are noticed at once. All
work is worth the same; saving in the background does not slow the work down.

An interval is from one save to the next, the time that the save blocks included: that is what a job's records show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

YOUNG = "https://doi.org/10.1145/361147.361115"
"""Young (1974), A first order approximation to the optimum checkpoint interval."""
DALY = "https://doi.org/10.1016/j.future.2004.11.016"
"""Daly (2006), A higher order estimate of the optimum checkpoint interval for restart dumps."""
VAIDYA = "https://doi.org/10.1109/12.609281"
"""Vaidya (1997), Impact of checkpoint latency on overhead ratio of a checkpointing scheme."""


@dataclass(frozen=True, slots=True)
class SaveCost:
    """One way of saving, in seconds.

    Attributes:
        blocking: work stands still for one save. background: from then until the checkpoint is complete and can be restored.
        restart: from a failure until work goes on, reading the checkpoint included, doing work again not.
        step: of the training, between two of which it can save: no interval can be shorter.
    """

    blocking: float
    background: float = 0.0
    restart: float = 0.0
    step: float = 0.0

    @property
    def shortest(self) -> float:
        """The shortest interval: the save before must be complete when the next one begins to copy."""
        return self.blocking + self.background


def useful_ratio(saving: SaveCost, interval: float, between_failures: float) -> float:
    """Return the share of time, 0 to 1, in which work is done that is not done again.

    Daly's complete model (DALY; a segment takes M e^(R/M) (e^((work + blocking)/M) - 1) on average), and with a background time L
    e^(-L/M) of its share: after a failure at uptime t the checkpoints with k x interval + L <= t can be restored, whose expected
    number is e^(-L/M) / (e^(interval/M) - 1). That L costs and yet leaves the optimum where it is, Vaidya found (VAIDYA).

    Args:
        interval: seconds from save to save. between_failures: mean seconds, M.
    """
    work = interval - saving.blocking
    if work <= 0:
        return 0.0
    exponent = (saving.restart + saving.background + interval) / between_failures
    return (work / between_failures) * math.exp(-exponent) / -math.expm1(-interval / between_failures)


def lost_at_failure(saving: SaveCost, interval: float, between_failures: float) -> float:
    """Return the seconds of work that a failure undoes on average: about half an interval and the background time.

    It is the expected work of an uptime, M (1 - e^(-work/M)) / (1 - e^(-interval/M)), without what its checkpoints keep.
    """
    work = max(interval - saving.blocking, 0.0)
    uptimes = -math.expm1(-interval / between_failures)
    if not uptimes:  # an interval of nothing keeps everything
        return 0.0
    done = between_failures * -math.expm1(-work / between_failures) / uptimes
    kept = work * math.exp(-(saving.background + interval) / between_failures) / uptimes
    return done - kept


def best_interval(saving: SaveCost, between_failures: float) -> float:
    """Return the interval, in seconds from save to save, with the largest useful share.

    The derivative of `useful_ratio` is zero where y - 1 + e^(-y) = blocking / M with y = interval / M; Bougeret et al. (2011),
    https://doi.org/10.1145/2063384.2063428, solve by Lambert's W. Neither restart nor background time moves it, but an interval
    cannot be shorter than a whole save takes, or a step; from there on the useful share falls.
    """
    cost = saving.blocking / between_failures
    low, high = 0.0, cost + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if middle + math.expm1(-middle) < cost else (low, middle)
    return max(between_failures * (low + high) / 2, saving.shortest, saving.step)


def young_interval(blocking: float, between_failures: float) -> float:
    """Return sqrt(2 C M) (YOUNG), in seconds: the first term of the optimum, too short where C is not small against M."""
    return math.sqrt(2 * blocking * between_failures)


def daly_interval(blocking: float, between_failures: float) -> float:
    """Return Daly's estimate (DALY), in seconds from save to save: a series in sqrt(C / 2M), M + C from C = 2 M on."""
    if blocking >= 2 * between_failures:
        return between_failures + blocking
    root = math.sqrt(blocking / (2 * between_failures))
    return young_interval(blocking, between_failures) * (1 + root / 3 + root * root / 9)

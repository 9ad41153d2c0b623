"""Failures at random, and a job that lives through them: what the formulas of the checkpoint advisor are compared with."""

from math import gamma

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost

Gaps = npt.NDArray[np.float64]
"""Seconds from one failure to the next."""


def exponential(mean: float, count: int, seed: int = 0) -> Gaps:
    return np.random.default_rng(seed).exponential(mean, count)


def weibull(mean: float, count: int, shape: float = 0.7, seed: int = 0) -> Gaps:
    """Failures that come in bursts (shape below 1), as they do on large machines: Schroeder and Gibson (2006),
    https://doi.org/10.1109/DSN.2006.5, found shapes of 0.7 to 0.8."""
    return np.random.default_rng(seed).weibull(shape, count) * mean / gamma(1 + 1 / shape)


def walked(gaps: Gaps, saving: SaveCost, interval: float) -> float:
    """Return the seconds of work that last, walking through each life save by save: slow and plain."""
    kept = 0.0
    for gap in gaps:
        clock, work, restorable = saving.restart, 0.0, 0.0
        completing: list[tuple[float, float]] = []
        while clock < gap:
            work += interval - saving.blocking
            clock += interval
            completing.append((clock + saving.background, work))
        for complete, of_work in completing:
            if complete <= gap:
                restorable = of_work
        kept += restorable
    return kept


def useful(gaps: Gaps, saving: SaveCost, interval: float) -> float:
    """Return the share of all time whose work lasts: as `walked`, for many failures at once."""
    saves = np.floor((gaps - saving.restart - saving.background) / interval)
    return float(np.maximum(saves, 0.0).sum() * (interval - saving.blocking) / gaps.sum())


def best_found(gaps: Gaps, saving: SaveCost, around: float, *, width: float = 0.5, tries: int = 61) -> tuple[float, float]:
    """Search the interval that wastes least on these very failures; return it and its useful share.

    The optimum is flat, and every interval's result jumps with each failure that falls just before or after a save. So all tries
    live through the same failures, and the best is the top of a smooth curve through them, not the luckiest try.
    """
    lowest = max(around * (1 - width), saving.shortest)
    intervals = np.geomspace(lowest, max(around * (1 + width), lowest * 1.5), tries)
    shares = np.array([useful(gaps, saving, float(interval)) for interval in intervals])
    curve = np.polynomial.Polynomial.fit(np.log(intervals), shares, 4)
    fine = np.linspace(np.log(intervals[0]), np.log(intervals[-1]), 20_001)
    best = float(np.exp(fine[np.argmax(curve(fine))]))
    return best, float(curve(fine).max())

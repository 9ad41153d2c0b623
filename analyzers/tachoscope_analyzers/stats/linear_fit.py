"""Straight lines through measured points, by least squares: how much of one thing goes with another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_LEFT_OUT = 0.05
"""Ratio of the points that are left out because they fit worst: a machine's stall is no part of either thing."""


@dataclass(frozen=True, slots=True)
class LinearFit:
    """y = slope * x + intercept, with Pearson's correlation of the points that it was fitted to."""

    slope: float
    intercept: float
    correlation: float


def fitted(x: Vector, y: Vector) -> LinearFit:
    """Return the line through points of shape (n,), fitted twice: the second time without the 5 % that fit worst.

    Where x or y does not vary, slope and correlation are 0.
    """
    line = _least_squares(x, y)
    expected = line.slope * x + line.intercept
    residual = y - expected
    kept = np.argsort(np.abs(residual), kind="stable")[: len(x) - int(_LEFT_OUT * len(x))]
    return _least_squares(x[kept], y[kept])


def _least_squares(x: Vector, y: Vector) -> LinearFit:
    dx, dy = x - x.mean(), y - y.mean()
    xx, yy, xy = float(dx @ dx), float(dy @ dy), float(dx @ dy)
    # What varies by less than the rounding of its sum does not vary.
    if xx <= 1e-18 * float(x @ x) or yy <= 1e-18 * float(y @ y):
        return LinearFit(0.0, float(y.mean()), 0.0)
    return LinearFit(xy / xx, float(y.mean()) - xy / xx * float(x.mean()), xy / (xx * yy) ** 0.5)

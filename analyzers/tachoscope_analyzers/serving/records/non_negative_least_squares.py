"""Least squares whose coefficients are times, and so never negative. SciPy has it; what needs it here has three columns at most."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.serving.records.traffic import Vector


def non_negative(columns: npt.NDArray[np.float64], values: Vector, weights: Vector) -> Vector:
    """Return the weighted least-squares coefficients, shape (C,), none of them negative: the best over all sets of columns.

    Exact for the few columns that there are: at most 2^C small systems.
    """
    root = np.sqrt(weights)
    a, y = columns * root[:, None], values * root
    best, least = np.zeros(columns.shape[1]), float(y @ y)
    for chosen in range(1, 1 << columns.shape[1]):
        kept = [index for index in range(columns.shape[1]) if chosen >> index & 1]
        part, *_ = np.linalg.lstsq(a[:, kept], y, rcond=None)
        rest = y - a[:, kept] @ part
        if (part >= 0).all() and float(rest @ rest) < least:
            least = float(rest @ rest)
            best = np.zeros(columns.shape[1])
            best[kept] = part
    return best

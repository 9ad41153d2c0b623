"""Shapes of numbers that the analyzers pass to each other."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)

Matrix = npt.NDArray[np.float64]
"""Seconds, shape (steps, ranks) or (steps,)."""


def quantile(values: npt.NDArray[Any], at: float) -> float:
    """Return a quantile, interpolated as `np.quantile` does; that imports numpy.ma first, which takes some 25 ms."""
    ordered = np.sort(values, axis=None)
    place = (len(ordered) - 1) * at
    below = ordered[int(place)]
    above = ordered[min(int(place) + 1, len(ordered) - 1)]
    between = place - int(place)
    if between >= 0.5:
        return float(above - (above - below) * (1 - between))
    return float(below + (above - below) * between)


def median(values: npt.NDArray[Any]) -> Matrix:
    """Return the median along the last axis, NaN beside one, as `np.median` does after it has imported numpy.ma."""
    ordered, size = np.sort(values, axis=-1), values.shape[-1]
    middle = (ordered[..., (size - 1) // 2] + ordered[..., size // 2]) / 2
    return np.where(np.isnan(ordered[..., -1]), np.nan, middle)


def distinct(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return the values, each once, rising, shape (U,), as `np.unique` does after it has imported numpy.ma."""
    ordered = np.sort(values, axis=None)
    return np.asarray(ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]])

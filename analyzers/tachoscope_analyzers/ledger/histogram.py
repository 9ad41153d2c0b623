"""How often steps took how long, as bins for a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import Matrix

MOST_BARS = 60
_BEYOND = 1.5
"""The picture ends at so many times the 99 % quantile: a few steps far beyond it would leave the others one bar."""

_LEAST_WIDTH = 1.01
"""The picture is at least a hundredth of the step wide: what differs by less is alike."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars between `edges`, B + 1 of them in seconds; `counts`, shape (B,). `beyond`: how many are longer than the last edge."""

    edges: Matrix
    counts: npt.NDArray[np.int64]
    beyond: int


def histogram(seconds: Matrix) -> Histogram:
    """Return how the values, shape (K,), are spread."""
    low = float(seconds.min())
    high = min(float(seconds.max()), float(np.quantile(seconds, 0.99)) * _BEYOND)
    edges = np.linspace(low, max(high, low * _LEAST_WIDTH, 1e-9), min(MOST_BARS, max(len(seconds) // 2, 1)) + 1)
    counts, _ = np.histogram(seconds, edges)
    return Histogram(edges, counts.astype(np.int64), int((seconds > edges[-1]).sum()))

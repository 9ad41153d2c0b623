"""Sums over time intervals of what happened at a moment, or evenly from one moment to another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
import numpy.typing as npt

from tachoscope_core.servers.snapshot import Buckets

Vector = npt.NDArray[np.float64]

_BRIEFEST_SECONDS = 1e-9


def at_moments(times: Vector, amounts: Vector, edges: Vector) -> Vector:
    """Return the sum of the amounts in each interval between neighbouring edges; what lies outside counts in the nearest."""
    return _sums(_index(times, edges, "right"), amounts, len(edges) - 1)


def spread(begins: Vector, ends: Vector, amounts: Vector, edges: Vector) -> Vector:
    """Return how much of the amounts falls into each interval, each spread evenly from its begin to its end.

    Together they are the amounts: all begins and ends must lie between the first edge and the last.
    """
    size = len(edges) - 1
    first = _index(begins, edges, "right")
    last = np.maximum(_index(ends, edges, "left"), first)
    rates = amounts / np.maximum(ends - begins, _BRIEFEST_SECONDS)
    within = first == last
    over = ~within
    found = _sums(first[within], amounts[within], size)
    found += _sums(first[over], (rates * (edges[first + 1] - begins))[over], size)
    found += _sums(last[over], (rates * (ends - edges[last]))[over], size)
    change = _sums(first[over] + 1, rates[over], size + 1) - _sums(last[over], rates[over], size + 1)
    whole: Vector = np.cumsum(change)[:size] * np.diff(edges)
    return np.maximum(found + np.where(np.abs(whole) < _BRIEFEST_SECONDS, 0.0, whole), 0.0)


def _sums(index: npt.NDArray[np.int64], amounts: Vector, size: int) -> Vector:
    return np.bincount(index, weights=amounts, minlength=size).astype(np.float64)  # of nothing it makes integers


def _index(times: Vector, edges: Vector, side: Literal["left", "right"]) -> npt.NDArray[np.int64]:
    at: npt.NDArray[np.int64] = np.searchsorted(edges, times, side=side) - 1
    return at.clip(0, len(edges) - 2)


def buckets(values: Vector, bounds: Iterable[float]) -> Buckets:
    """Return a cumulative histogram of the values."""
    edges = tuple(bounds)
    counts = np.searchsorted(np.sort(values), edges, side="right")
    return Buckets(edges, (*map(float, counts), float(len(values))), float(values.sum()))

"""Quantiles of histograms: a value between two bounds, and the bounds, since that is all that a histogram knows."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

from tachoscope_core.servers.snapshot import Buckets


class Quantile(NamedTuple):
    """A quantile: `value` as Prometheus's `histogram_quantile` gives it; it truly lies above `low` and not above `high`."""

    value: float
    low: float
    high: float


def quantile(buckets: Buckets, share: float) -> Quantile | None:
    """Return the quantile of observations that are not negative; None: there are none, or the histogram has no bounds.

    Values are taken to lie evenly within a bucket. Above the last bound nothing is known but that: the value is then that bound.

    Args:
        share: of the observations that do not exceed it, above 0 and at most 1.

    Raises:
        ValueError: `share` is not in that range.
    """
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share must be above 0 and at most 1, not {share}")
    if not buckets.bounds or buckets.count <= 0.0:
        return None
    rank = share * buckets.count
    index = bisect_left(buckets.counts, rank, hi=len(buckets.bounds))
    if index == len(buckets.bounds):
        return Quantile(buckets.bounds[-1], buckets.bounds[-1], math.inf)
    low, below = (buckets.bounds[index - 1], buckets.counts[index - 1]) if index else (0.0, 0.0)
    high = buckets.bounds[index]
    within = (rank - below) / (buckets.counts[index] - below)
    return Quantile(low + (high - low) * within, low, high)

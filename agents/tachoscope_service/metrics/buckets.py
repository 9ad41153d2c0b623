"""A histogram that is counted up observation by observation, and saved as it is."""

from __future__ import annotations

from bisect import bisect_left

import msgspec


class Buckets(msgspec.Struct):
    """Observations of a histogram: by bucket, the last for above all bounds."""

    counts: list[int]
    sum: float = 0.0

    def observe(self, value: float, bounds: tuple[float, ...]) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(bounds, value)] += 1
        self.sum += value


def empty_buckets(bounds: tuple[float, ...]) -> Buckets:
    """Return a histogram without observations: a count for each bound, and one above the last."""
    return Buckets([0] * (len(bounds) + 1))

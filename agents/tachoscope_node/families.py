"""Values of metrics on their way from collectors and live jobs to the exporters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tachoscope_core.metric import Metric


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by bucket.

    Attributes:
        counts: observations in each bucket, not cumulative; one more than the metric's buckets, the last for above all of them.
        sum: of all observations, in the metric's unit.
    """

    counts: tuple[int, ...]
    sum: float


Labels = tuple[str, ...]
Point = tuple[Labels, float | Histogram]
"""Label values in the order of the metric's labels, and the value."""


@dataclass(frozen=True, slots=True)
class Family:
    """All points of one metric at one moment."""

    metric: Metric
    points: Sequence[Point]

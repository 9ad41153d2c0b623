"""Values of metrics on their way from collectors and live jobs to the exporters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tachoscope_core.metrics.metric import Metric


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by bucket.

    Attributes:
        counts: observations in each bucket, not cumulative; one more than there are bounds, the last for above all of them.
        sum: of all observations, in the metric's unit.
        bounds: those of the metric's that are known, where not all are: of what others counted; None: all.
    """

    counts: tuple[int, ...]
    sum: float
    bounds: tuple[float, ...] | None = None


Labels = tuple[str, ...]
Point = tuple[Labels, float | Histogram]
"""Label values in the order of the metric's labels, and the value."""


@dataclass(frozen=True, slots=True)
class Family:
    """All points of one metric at one moment."""

    metric: Metric
    points: Sequence[Point]


def joined(families: Sequence[Family]) -> list[Family]:
    """Return the families with those of one metric as one: of requests both the probe and servers that are looked at tell."""
    points: dict[str, tuple[Metric, list[Point]]] = {}
    for family in families:
        points.setdefault(family.metric.name, (family.metric, []))[1].extend(family.points)
    return [Family(metric, rows) for metric, rows in points.values()]


def with_namespaces(families: Sequence[Family], namespace_of: Callable[[str], str]) -> list[Family]:
    """Return the families with the namespace of the job or service that each point is of.

    Args:
        namespace_of: gives the Kubernetes namespace of a job or service; empty: it has none, or it is not known.
    """
    found = []
    for family in families:
        at = family.metric.workload
        if at is None:
            found.append(family)
        else:
            points = [((*labels, namespace_of(labels[at])), value) for labels, value in family.points]
            found.append(Family(family.metric.exported(), points))
    return found

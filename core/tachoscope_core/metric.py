"""What a metric of the catalogue is, and which labels are not ours to use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PROMETHEUS_LABELS = frozenset({"job", "instance", "namespace", "pod", "container", "le", "quantile"})
"""Labels that a scrape owns: ours never collide with them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of the catalogue.

    Attributes:
        labels: names of its labels; points carry their values in this order.
        states: the values of its `state` label, where it has one. buckets: upper bounds of a histogram's buckets, without +Inf.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    unit: Literal["seconds", "bytes", "ratio", "watts", "joules", "hertz", "celsius", ""]
    help: str
    labels: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

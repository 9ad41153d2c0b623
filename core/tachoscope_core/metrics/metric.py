"""What a metric of the catalogue is, and which labels are not ours to use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

PROMETHEUS_LABELS = frozenset({"job", "instance", "namespace", "pod", "container", "le", "quantile"})
"""Labels that a scrape owns: ours never collide with them."""
NAMESPACE = "workload_namespace"
"""Label for the Kubernetes namespace of a job or service; absent outside of Kubernetes."""
IDENTITY = ("cluster", NAMESPACE, "team")
"""Labels that tell a job or service from another of the same name. The scrape adds `cluster`, and `team` where a site relabels by
it; agents and the watch add the namespace. Rules and alerts keep all three; a label that nobody adds is absent."""
WORKLOADS = ("training_job", "service")
"""Labels that name a job or service."""

MetricType = Literal["counter", "gauge", "histogram"]
Unit = Literal["seconds", "bytes", "ratio", "watts", "joules", "hertz", "celsius", ""]
_UNITS: tuple[Unit, ...] = ("seconds", "bytes", "ratio", "watts", "joules", "hertz", "celsius")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of the catalogue. Its type and unit follow from the name: https://prometheus.io/docs/practices/naming/.

    Attributes:
        labels: names of its labels; points carry their values in this order.
        states: the values of its `state` label, where it has one. buckets: upper bounds of a histogram's buckets, without +Inf.
        foreign_type: of a metric whose name does not follow the convention, since it is not ours.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    foreign_type: MetricType | None = None

    @property
    def type(self) -> MetricType:
        """Counter if the name ends in `_total`, histogram with buckets, else gauge."""
        if self.foreign_type is not None:
            return self.foreign_type
        return "counter" if self.name.endswith("_total") else "histogram" if self.buckets else "gauge"

    @property
    def unit(self) -> Unit:
        """The base unit at the end of the name, before `_total`; empty for counts."""
        name = self.name.removesuffix("_total")
        return next((unit for unit in _UNITS if name.endswith(f"_{unit}")), "")

    @property
    def workload(self) -> int | None:
        """Which of its labels names a job or service, if one does and another does not name its namespace already."""
        if NAMESPACE in self.labels:
            return None
        return next((self.labels.index(label) for label in WORKLOADS if label in self.labels), None)

    def exported(self) -> Metric:
        """Return it as exporters show it: of a job or service with its namespace, as the last label."""
        return _exported(self)

    @property
    def namespaced(self) -> bool:
        """Whether its last label is the namespace, which is left out where it is empty."""
        return self.labels[-1:] == (NAMESPACE,)


@cache
def _exported(metric: Metric) -> Metric:
    return metric if metric.workload is None else replace(metric, labels=(*metric.labels, NAMESPACE))

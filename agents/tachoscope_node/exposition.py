"""Families as Prometheus's text, by prometheus-client; rendered at most once a tick, when somebody asks."""

from __future__ import annotations

import gzip
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as PrometheusMetric
from prometheus_client.registry import Collector, CollectorRegistry

from tachoscope_core.metric import Metric
from tachoscope_node.families import Family, Histogram


def prometheus_family(family: Family) -> PrometheusMetric:
    """Return a family in prometheus-client's form."""
    metric = family.metric
    if metric.type == "histogram":
        return _histogram(metric, family)
    kind = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
    result = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in family.points:
        assert not isinstance(value, Histogram)
        result.add_metric(labels, value)
    return result


def _histogram(metric: Metric, family: Family) -> HistogramMetricFamily:
    result = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*(str(bound) for bound in metric.buckets), "+Inf"]
    for labels, value in family.points:
        assert isinstance(value, Histogram)
        cumulative = itertools.accumulate(value.counts)
        result.add_metric(labels, list(zip(bounds, map(float, cumulative), strict=True)), value.sum)
    return result


class _Families(Collector):
    def __init__(self, families: Callable[[], Sequence[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterable[PrometheusMetric]:
        return [prometheus_family(family) for family in self._families()]

    def describe(self) -> Iterable[PrometheusMetric]:
        return []  # else the registry collects everything once to learn the names


@dataclass
class _Page:
    tick: int
    body: bytes
    content_type: str
    gzipped: bytes = field(default=b"")


class Exposition:
    """The page of all metrics.

    Args:
        families: gives what is to be shown. tick: gives the number of the sampling tick; within one, a page is rendered once.
    """

    def __init__(self, families: Callable[[], Sequence[Family]], tick: Callable[[], int], *, proc: str = "/proc") -> None:
        self._tick = tick
        self._pages: dict[str, _Page] = {}
        self._lock = threading.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(families))
        ProcessCollector(registry=self._registry, proc=proc)

    def page(self, accept: str, *, gzipped: bool = False) -> tuple[str, bytes]:
        """Return content type and page in the format that the client asks for: OpenMetrics or the older text format."""
        encode, content_type = choose_encoder(accept)
        tick = self._tick()
        with self._lock:
            page = self._pages.get(content_type)
            if page is None or page.tick != tick:
                page = self._pages[content_type] = _Page(tick, encode(self._registry), content_type)
            if not gzipped:
                return page.content_type, page.body
            if not page.gzipped:
                page.gzipped = gzip.compress(page.body, compresslevel=1)
            return page.content_type, page.gzipped

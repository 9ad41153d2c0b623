"""Families of metrics as the records of OpenTelemetry's SDK. Imported only where OTLP is configured.

A push of 1,500 series costs about 1 ms here and 12 ms in the SDK's encoder, which builds every attribute of every point again;
what a point has in common with the last push (its attributes) is kept, for as long as the series is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as OtlpHistogram
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv._incubating.attributes.hw_attributes import HW_ID, HW_TYPE, HwTypeValues

from tachoscope_core.metrics.metric import Metric
from tachoscope_core.metrics.training import JOB_SM_ACTIVE
from tachoscope_service.metrics.family import Family, Histogram, Labels
from tachoscope_service.metrics.otlp.resource import version

_HW_TYPES = (
    ("tachoscope_gpu_", HwTypeValues.GPU),
    ("tachoscope_host_disk_", HwTypeValues.PHYSICAL_DISK),
    ("tachoscope_host_infiniband_", HwTypeValues.NETWORK),
    ("tachoscope_host_network_", HwTypeValues.NETWORK),
)
"""What the device of a metric is, by the metric's name."""

_HW_LABELS = ("device", "gpu")
"""Labels that name a device."""

_SINCE_START = ("tachoscope_agent_", JOB_SM_ACTIVE.name)
"""How the names begin of counters that begin again with the agent. The kernel's count since boot, and those of jobs are saved for
as long as that: to give them the agent's start would say at each restart that all of it had happened since."""

_UNITS = {
    "seconds": "s",
    "bytes": "By",
    "ratio": "1",
    "watts": "W",
    "joules": "J",
    "hertz": "Hz",
    "celsius": "Cel",
    "": "",
}
"""Ours in UCUM. Counts have none: receivers that keep Prometheus's names make `_ratio` of a gauge with the unit 1."""


@dataclass(slots=True)
class _Series:
    attributes: dict[str, str]
    start_ns: int
    last: float


class Points:
    """Turns families into the SDK's records, from one push to the next.

    Args:
        resource: attributes of what the metrics are about.
        start_time_seconds: Unix time of the agent's start, since when its own counters count.
        boot_time_seconds: Unix time of the host's start, since when all others count.
    """

    def __init__(self, resource: Mapping[str, str], start_time_seconds: float, boot_time_seconds: float) -> None:
        self._resource = Resource(dict(resource))
        self._scope = InstrumentationScope("tachoscope_node", version())
        self._start_ns, self._boot_ns = int(start_time_seconds * 1e9), int(boot_time_seconds * 1e9)
        self._previous_ns = self._start_ns
        self._series: dict[str, dict[Labels, _Series]] = {}

    def convert(self, families: Sequence[Family], now_ns: int) -> tuple[MetricsData, int]:
        """Return the families as they are at `now_ns`, and how many points they have."""
        series: dict[str, dict[Labels, _Series]] = {}
        data: dict[str, tuple[Metric, list[Any]]] = {}
        for family in families:  # several families of one metric are one metric: its identity is its name
            _, points = data.setdefault(family.metric.name, (family.metric, []))
            self._convert(family, now_ns, series.setdefault(family.metric.name, {}), points)
        self._series = series  # only what this push had: series that ended are forgotten
        self._previous_ns = now_ns
        metrics = [_metric(metric, points) for metric, points in data.values()]
        scopes = [ScopeMetrics(self._scope, metrics, "")]
        return MetricsData([ResourceMetrics(self._resource, scopes, "")]), sum(len(points) for _, points in data.values())

    def _convert(self, family: Family, now_ns: int, series: dict[Labels, _Series], points: list[Any]) -> None:
        metric, known = family.metric, self._series.get(family.metric.name, {})
        cumulative = metric.type != "gauge"
        start_ns = self._start_ns if metric.name.startswith(_SINCE_START) else self._boot_ns
        for labels, value in family.points:
            one = known.get(labels)
            if one is None:
                one = _Series(_attributes(metric, labels), start_ns, 0.0)
            series[labels] = one
            if isinstance(value, Histogram):
                count = sum(value.counts)
                self._note(one, count)
                bounds = metric.buckets if value.bounds is None else value.bounds
                points.append(_histogram_point(one, now_ns, count, value, bounds))
                continue
            if cumulative:
                self._note(one, value)
            points.append(NumberDataPoint(one.attributes, one.start_ns, now_ns, float(value), ()))

    def _note(self, series: _Series, value: float) -> None:
        """A value below the last one was counted again, at the earliest right after the last push."""
        if value < series.last:
            series.start_ns = self._previous_ns
        series.last = value


def boot_time(proc: str = "/proc") -> float:
    """Return the Unix time of the host's start as the kernel keeps it; 0 where it does not say."""
    try:
        with open(f"{proc}/stat", "rb") as file:
            return next((float(line.split()[1]) for line in file if line.startswith(b"btime ")), 0.0)
    except OSError:
        return 0.0


def _attributes(metric: Metric, labels: Labels) -> dict[str, str]:
    attributes = dict(zip(metric.labels, labels, strict=True))
    if metric.namespaced and not labels[-1]:
        del attributes[metric.labels[-1]]
    hw_type = next((kind for prefix, kind in _HW_TYPES if metric.name.startswith(prefix)), None)
    hw_id = next((attributes[label] for label in _HW_LABELS if label in attributes), None)
    if hw_type is not None and hw_id is not None:
        attributes |= {HW_ID: hw_id, HW_TYPE: hw_type.value}
    return attributes


def _histogram_point(series: _Series, now_ns: int, count: int, value: Histogram, buckets: tuple[float, ...]) -> HistogramDataPoint:
    unknown: Any = None  # the least and the greatest observation are optional in OTLP, though not in the SDK's types
    return HistogramDataPoint(
        series.attributes, series.start_ns, now_ns, count, value.sum, value.counts, buckets, unknown, unknown, ()
    )


def _metric(metric: Metric, points: list[Any]) -> OtlpMetric:
    data: Gauge | Sum | OtlpHistogram
    match metric.type:
        case "gauge":
            data = Gauge(points)
        case "counter":
            data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        case "histogram":
            data = OtlpHistogram(points, AggregationTemporality.CUMULATIVE)
    return OtlpMetric(metric.name, metric.help, _UNITS[metric.unit], data)

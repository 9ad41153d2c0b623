"""Makes objectives and the samples they are judged by: the same series in the agent's own format and as OpenMetrics text."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tachoscope_alerts.measure.stored_samples import Series
from tachoscope_alerts.spec.slo import AtMost, Gate, MoreThan, Ratio, Selector, Slices, Slo
from tachoscope_core.metrics.agent import INFO
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.storage.store import Store
from tachoscope_node.spool.metric_samples import lines
from tachoscope_service.metrics.family import Family, Histogram

BEGIN = 1_700_006_400.0
"""A multiple of two hours, as the blocks of a Prometheus are."""
TICK_SECONDS = 15.0
OBJECT_SECONDS = 1200.0

REQUESTS = Selector("tachoscope_requests_total", excluding={"outcome": ("client_error",)})
BAD = Ratio(total=REQUESTS, bad=Selector("tachoscope_requests_total", {"outcome": ("server_error", "timeout")}))
GOOD = Ratio(total=REQUESTS, good=Selector("tachoscope_requests_total", {"outcome": ("ok",)}))
LATENCY = AtMost(Selector("tachoscope_request_first_token_seconds"), 2.5)
ACTIVITY = MoreThan(Selector("tachoscope_job_sm_active_ratio"), 0.8)
ACTIVE = Gate(Selector("tachoscope_job_active"), on=("training_job",))
AGE = Slices(
    value=Selector("tachoscope_checkpoint_verified_timestamp_seconds"),
    by=("training_job",),
    comparison="lt",
    bound=1800.0,
    reduce="max",
    age=True,
    gate=Gate(Selector("tachoscope_job_active"), on=("training_job",), since_seconds=1800.0),
    missing="bad",
)
USE = Slices(
    value=Selector("tachoscope_gpu_active_ratio", {"unit": ("sm",)}),
    by=("gpu", "uuid"),
    comparison="gte",
    bound=0.8,
    reduce="min",
)


def slo(indicator: Any, *, target: float = 0.99, by: tuple[str, ...] = (), name: str = "planted", **more: Any) -> Slo:
    values = {
        "title": "Planted",
        "description": "planted",
        "area": "inference",
        "period_days": 28.0,
        "alert": "PlantedBurn",
        "pages": True,
        "owner": "inference-serving",
        "target_source": "judgement",
    }
    return Slo(name=name, indicator=indicator, by=by, target=target, **(values | more))


def series(metric: str, points: Iterable[tuple[float, float]], *, ends: Sequence[float] = (), **labels: str) -> Series:
    """Return a series of points in Unix seconds and values."""
    rows = list(points)
    times, gone = (np.array([round(t * 1000) for t in some], dtype=np.int64) for some in ([t for t, _ in rows], ends))
    return Series(metric, labels, times, np.array([value for _, value in rows], dtype=np.float64), gone)


@dataclass(frozen=True)
class Planted:
    """One series as it was: its points by the time of the sample, Unix milliseconds."""

    metric: Metric
    labels: Mapping[str, str]
    host: str
    points: dict[int, float | Histogram] = field(default_factory=dict)


def ticks(seconds: float, rng: random.Random, *, start: float = BEGIN) -> list[int]:
    """Return when a host was sampled: every 15 s, up to 0.4 s late."""
    return [round((start + TICK_SECONDS * n + rng.uniform(0, 0.4)) * 1000) for n in range(int(seconds / TICK_SECONDS) + 1)]


def write_store(store: Store, planted: Iterable[Planted], *, tells_ticks: bool = True) -> None:
    """Write what was planted as agents do, in objects of 20 minutes."""
    by_tick: dict[tuple[str, int], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for one in planted:
        labels = tuple(one.labels.get(label, "") for label in one.metric.exported().labels)
        for time, value in one.points.items():
            by_tick[one.host, time][one.metric.name].append((labels, value))
    objects: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for (host, time), families in sorted(by_tick.items()):
        told = [Family(BY_NAME[name], points) for name, points in families.items()]
        told += [Family(INFO, [(("1",), 1.0)])] if tells_ticks else []
        objects[host, int(time / 1000 // OBJECT_SECONDS)].append(lines(told, time / 1000))
    firsts: dict[tuple[str, int], int] = {}
    for host, time in sorted(by_tick, reverse=True):
        firsts[host, int(time / 1000 // OBJECT_SECONDS)] = time
    for key, content in objects.items():
        at = firsts[key] / 1000
        store.write_samples(host=key[0], name=f"{int(at)}-{key[1]}", time=at, lines=b"".join(content))


def openmetrics(planted: Iterable[Planted], bounds: Mapping[str, frozenset[float]]) -> Iterator[str]:
    """Yield the lines of an OpenMetrics file for `promtool tsdb create-blocks-from openmetrics`; of histograms some buckets."""
    for one in planted:
        labels = {**{name: value for name, value in one.labels.items() if value}, "instance": one.host}
        for time, value in one.points.items():
            for suffix, more, number in _numbers(one.metric, value, bounds.get(one.metric.name, frozenset())):
                text = ",".join(f'{name}="{label}"' for name, label in {**labels, **more}.items())
                yield f"{one.metric.name}{suffix}{{{text}}} {number!r} {time / 1000:.3f}\n"
    yield "# EOF\n"


def _numbers(metric: Metric, value: float | Histogram, bounds: frozenset[float]) -> Iterator[tuple[str, dict[str, str], float]]:
    if not isinstance(value, Histogram):
        yield "", {}, value
        return
    total = 0
    for bound, count in zip(metric.buckets, value.counts, strict=False):
        total += count
        if bound in bounds:
            yield "_bucket", {"le": str(bound)}, float(total)
    yield "_count", {}, float(sum(value.counts))

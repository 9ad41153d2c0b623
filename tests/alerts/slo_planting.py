"""Plants what goes wrong with series: counter resets, gaps of a host, series that vanish or come late, and idle times."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping

from slo_making import BEGIN, Planted, ticks
from tachoscope_alerts.measure.evaluator import needed_metrics, selectors
from tachoscope_alerts.spec.slo import Slices, Slo
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import Metric
from tachoscope_service.metrics.family import Histogram

HOSTS = ("node-1", "node-2")
VALUES: dict[str, tuple[str, ...]] = {
    "training_job": ("alpha", "beta"),
    "rank": ("0", "1"),
    "service": ("chat", "code"),
    "model": ("m-8b",),
    "version": ("v1",),
    "gpu": ("0", "1"),
    "uuid": ("GPU-0",),
    "mig": ("",),
    "shard": ("s-1", "s-2"),
    "host": HOSTS,
}
"""What a label may be; of other labels the values that selectors name, and one more."""
MOST_SERIES = 12
"""Of a metric on a host."""


def plant(slos: Iterable[Slo], seconds: float, seed: int = 7) -> list[Planted]:
    """Return samples of all metrics of our catalogue that the objectives name."""
    slos = list(slos)
    rng = random.Random(seed)
    named = _named_values(slos)
    found = []
    for host in HOSTS:
        times = ticks(seconds, rng)
        away = times[len(times) // 3], times[len(times) // 3 + 30]  # the agent, for 7 minutes
        times = [time for time in times if not away[0] <= time < away[1]]
        for name in sorted(needed_metrics(slos)):
            if (metric := BY_NAME.get(name)) is not None:
                found += _of_metric(metric, host, times, slos, named, rng)
    return found


def _of_metric(
    metric: Metric, host: str, times: list[int], slos: list[Slo], named: Mapping[str, set[str]], rng: random.Random
) -> Iterator[Planted]:
    choices = [VALUES.get(label) or (*sorted(named.get(label, set())), "other") for label in metric.labels]
    labels = [dict(zip(metric.labels, values, strict=True)) for values in itertools.product(*choices)]
    for own in labels if len(labels) <= MOST_SERIES else rng.sample(labels, MOST_SERIES):
        seen, fate = times, rng.randrange(6)
        if fate == 0:
            seen = times[len(times) // 4 :]  # comes late
        elif fate == 1:
            seen = times[: len(times) * 3 // 4]  # vanishes
        seen = [time for time in seen if rng.random() > 0.03]  # scrapes that were missed
        yield Planted(metric, own, host, _points(metric, seen, slos, rng))


def _points(metric: Metric, times: list[int], slos: list[Slo], rng: random.Random) -> dict[int, float | Histogram]:
    if metric.type == "histogram":
        return _histograms(metric, times, rng)
    return _counter(times, rng) if metric.type == "counter" else _gauge(metric, times, slos, rng)


def _idle(time: int) -> bool:
    """Return whether it is the third of each hour in which nothing happens."""
    return (time / 1000 - BEGIN) % 3600 < 1200


def _counter(times: list[int], rng: random.Random) -> dict[int, float | Histogram]:
    found: dict[int, float | Histogram] = {}
    value = rng.choice((0.0, 0.0, 40.0))
    for time in times:
        value = 0.0 if rng.random() < 0.01 else value + (0.0 if _idle(time) else float(rng.randrange(6)))
        found[time] = value
    return found


def _histograms(metric: Metric, times: list[int], rng: random.Random) -> dict[int, float | Histogram]:
    found: dict[int, float | Histogram] = {}
    counts = [0] * (len(metric.buckets) + 1)
    for time in times:
        if rng.random() < 0.01:
            counts = [0] * len(counts)
        for _ in range(0 if _idle(time) else rng.randrange(5)):
            counts[rng.randrange(len(counts))] += 1
        found[time] = Histogram(tuple(counts), 0.0)
    return found


def _gauge(metric: Metric, times: list[int], slos: list[Slo], rng: random.Random) -> dict[int, float | Histogram]:
    """Return values about the bounds that objectives have, and 0 or 1 for gates, each for some minutes."""
    bounds = [one.indicator for one in slos if isinstance(one.indicator, Slices) and one.indicator.value.metric == metric.name]
    found: dict[int, float | Histogram] = {}
    value = 0.0
    for time in times:
        if not found or rng.random() < 0.02:
            if not bounds:
                value = float(rng.random() < 0.8)
            elif bounds[0].age:
                value = time / 1000 - rng.uniform(0.0, 1.2) * bounds[0].bound
            else:
                value = bounds[0].bound * rng.uniform(0.7, 1.3)
        found[time] = value
    return found


def _named_values(slos: list[Slo]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for slo in slos:
        for one in selectors(slo):
            for label, values in (*one.labels.items(), *one.excluding.items()):
                found.setdefault(label, set()).update(values)
    return found

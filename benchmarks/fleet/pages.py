"""The pages of the agents of a simulated fleet: the series of `fleet_series`, as the agent itself writes them, at any moment.

Counters grow, gauges move a little, and both follow from the node and the time alone: two processes show the same. What only an
older GPU has is left out: a page is that of a node with eight current GPUs, eight ranks and every collector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from benchmarks.fleet_series import ABSENT, OF_THE_WATCH, OF_TIMES, Fleet, Planted, series_of
from benchmarks.remote_write import Floats

from tachoscope_core.metrics.catalogue import METRICS
from tachoscope_core.metrics.metric import Metric
from tachoscope_service.metrics.family import Family, Histogram, Labels
from tachoscope_service.metrics.prometheus_text import render

RETIRED = frozenset({"tachoscope_gpu_retired_pages_total"})
"""What GPUs have that cannot remap rows; the others have their rows remapped."""
SHOWN = tuple(metric for metric in METRICS if metric.name not in ABSENT | OF_THE_WATCH | RETIRED)
OF_WATCH = tuple(metric for metric in METRICS if metric.name in OF_THE_WATCH)
UP_SECONDS = 86_400.0
"""How long nodes and jobs have run when the fleet is first looked at."""
SWING = 0.02


@dataclass(frozen=True, slots=True)
class Lives:
    """Unix seconds since when a node and its job count, and the number of the job's run, from 0."""

    node: float
    job: float
    run: int = 0


@dataclass(frozen=True, slots=True)
class _Rows:
    """The series of a metric: where their values stand among those of the page, and the labels of its points."""

    metric: Metric
    labels: Sequence[Labels]
    first: int
    buckets: int = 0


@dataclass(slots=True)
class Page:
    """A page with its series; `at` gives its text."""

    rows: list[_Rows] = field(default_factory=list)
    levels: Floats = field(default_factory=lambda: np.zeros(0))
    is_gauge: Floats = field(default_factory=lambda: np.zeros(0))
    is_whole: Floats = field(default_factory=lambda: np.zeros(0))
    swings: Floats = field(default_factory=lambda: np.zeros(0))
    of_job: Floats = field(default_factory=lambda: np.zeros(0))
    seed: int = 0

    def at(self, now: float, lives: Lives) -> bytes:
        """Return the page at a moment in Unix seconds."""
        return render(self.families(now, lives))

    def families(self, now: float, lives: Lives) -> list[Family]:
        """Return what the page shows at a moment in Unix seconds."""
        values = self._values(now, lives)
        return [self._family(rows, values, lives.run) for rows in self.rows]

    def _values(self, now: float, lives: Lives) -> Floats:
        passed = np.where(self.of_job, now - lives.job, now - lives.node)
        counted = self.levels * passed
        counted = np.where(self.is_whole, np.floor(counted), counted)
        noise = np.random.default_rng((self.seed, int(now * 1000.0))).uniform(1.0 - SWING, 1.0, self.levels.size)
        return np.where(self.is_gauge, np.where(self.swings, self.levels * noise, self.levels), counted)

    def _family(self, rows: _Rows, values: Floats, run: int) -> Family:
        labels = [_in_run(rows.metric, one, run) for one in rows.labels] if run else rows.labels
        count = len(labels)
        if not rows.buckets:
            return Family(rows.metric, list(zip(labels, values[rows.first : rows.first + count].tolist(), strict=True)))
        end = rows.first + count * rows.buckets
        cumulative = values[rows.first : end].reshape(count, rows.buckets)
        counts = np.diff(cumulative, axis=1, prepend=0.0).astype(int).tolist()
        sums = values[end : end + count].tolist()
        return Family(
            rows.metric,
            [(one, Histogram(tuple(each), total)) for one, each, total in zip(labels, counts, sums, strict=True)],
        )


def page_of_node(fleet: Fleet, node: int, now: float) -> Page:
    """Return the page of a node's agent."""
    return _page(SHOWN, fleet, range(node, node + 1), now, node)


def page_of_watch(fleet: Fleet, now: float) -> Page:
    """Return the page of the fleet's `tachoscope watch`."""
    return _page(OF_WATCH, fleet, None, now, fleet.nodes)


def _page(metrics: Sequence[Metric], fleet: Fleet, nodes: range | None, now: float, seed: int) -> Page:
    page, series, of = Page(seed=seed), list[Planted](), list[Metric]()
    for metric in metrics:
        names = [f"{metric.name}_bucket", f"{metric.name}_sum"] if metric.type == "histogram" else [metric.name]
        found = [list(series_of(name, fleet, now, nodes)) for name in names]
        if not found[0]:
            continue
        buckets = len(metric.buckets) + 1 if metric.type == "histogram" else 0
        labels = [tuple(one.labels.get(name, "") for name in metric.labels) for one in found[-1]]
        page.rows.append(_Rows(metric, labels, len(series), buckets))
        for part in found:
            series += part
            of += [metric] * len(part)
    page.levels = np.array([one.value for one in series])
    page.is_gauge = np.array([one.is_gauge for one in series])
    page.is_whole = np.array([metric.unit == "" or "le" in one.labels for one, metric in zip(series, of, strict=True)])
    page.swings = np.array([metric.unit != "" and not metric.name.endswith(OF_TIMES) for metric in of])
    page.of_job = np.array(["training_job" in one.labels for one in series])
    return page


def _in_run(metric: Metric, labels: Labels, run: int) -> Labels:
    """Return the labels with the name that a job has in a later run."""
    if "training_job" not in metric.labels:
        return labels
    at = metric.labels.index("training_job")
    return (*labels[:at], f"{labels[at]}-{run}", *labels[at + 1 :])

"""What the records of one job count of the metrics that objectives are made of: the events that its agents count over time.

Knows nothing of objectives: it returns counts by the buckets of the catalogue, in which a caller looks up its bound.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.metrics import serving as serving_metrics
from tachoscope_core.metrics import training as training_metrics
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.report.job_life import Life
from tachoscope_core.report.report import Ledger

_FIRST_JUDGED = 32
"""So many steps of an attempt have no usual step yet that they could be compared with, as in the metric."""
_OF_REQUESTS = (
    (serving_metrics.FIRST_TOKEN_SECONDS, "first_token_seconds"),
    (serving_metrics.INTER_TOKEN_SECONDS, "inter_token_seconds"),
    (serving_metrics.QUEUE_SECONDS, "queue_seconds"),
)


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """What one series of a counter came to; the labels that tell jobs and services apart are left out."""

    metric: str
    labels: dict[str, str] = {}
    amount: float


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Events by metric, as the catalogue names it.

    Attributes:
        histograms: how many were at most each bound of the metric's buckets, then all.
    """

    counters: list[Count] = []
    histograms: dict[str, list[float]] = {}


def of_life(life: Life, ledger: Ledger) -> Events:
    """Return what a whole life counts: time held, effective time, and recoveries."""
    effective = sum(ledger.states.get(state, 0.0) for state in training_metrics.EFFECTIVE_STATES)
    recovered = [one.total_seconds for one in life.recoveries if one.total_seconds is not None]
    return Events(
        counters=[
            Count(metric=training_metrics.JOB_HELD_SECONDS.name, amount=life.allocated_seconds),
            Count(metric=training_metrics.JOB_EFFECTIVE_SECONDS.name, amount=effective),
        ],
        histograms=_histogram(training_metrics.RECOVERY_SECONDS, np.array(recovered)),
    )


def of_steps(steps: pd.DataFrame) -> Events:
    """Return what the steps of an attempt count: their waiting for data, and how regular they are.

    Args:
        steps: as `steps.table` gives them, a row a step and rank. The usual step is the median of all of them.
    """
    wall = steps["wall_seconds"].to_numpy()
    waits = np.divide(steps["data_wait_seconds"].to_numpy(), wall, out=np.zeros_like(wall), where=wall > 0)
    own = steps["wall_seconds"] - steps["checkpoint_seconds"] - steps["evaluation_seconds"]
    slowest = own.groupby(steps["step"]).max().to_numpy()
    usual = float(np.median(slowest))
    judged = slowest[_FIRST_JUDGED:] / usual if usual > 0 else np.empty(0)
    return Events(
        histograms=_histogram(training_metrics.STEP_DATA_WAIT, waits) | _histogram(training_metrics.STEP_SLOWDOWN, judged)
    )


def of_traffic(traffic: Traffic) -> Events:
    """Return what the requests of a service count: how they ended, and how long they took to what."""
    found: dict[str, list[float]] = {}
    for metric, name in _OF_REQUESTS:
        total = traffic.totals.get(name)
        if total is not None and total.count and set(metric.buckets) <= set(total.bounds):
            found[metric.name] = [*(total.counts[total.bounds.index(bound)] for bound in metric.buckets), total.count]
    name = serving_metrics.REQUESTS.name
    ended = [Count(metric=name, labels={"outcome": how}, amount=count) for how, count in traffic.outcomes.items()]
    return Events(counters=ended, histograms=found)


def together(parts: Iterable[Events]) -> Events:
    """Return the events of parts that count different metrics as one."""
    counters, histograms = list[Count](), dict[str, list[float]]()
    for part in parts:
        counters += part.counters
        histograms |= part.histograms
    return Events(counters=counters, histograms=histograms)


def _histogram(metric: Metric, values: npt.NDArray[np.float64]) -> dict[str, list[float]]:
    """Return the counts of values; nothing where there are none, which is not the same as none that are bad."""
    if not len(values):
        return {}
    ordered = np.sort(values)
    return {metric.name: [*(float(np.searchsorted(ordered, bound, side="right")) for bound in metric.buckets), float(len(values))]}

"""What a bounded set of events attains of an objective: those of one job, say, compared with the objective of all.

No budget: a budget is of a period and of all that is in it. This is its ratio alone, for events that somebody counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Selector, Slo
from tachoscope_core.metrics.catalogue import BY_NAME

Series = tuple[str, Mapping[str, str], float]
"""Metric, labels and amount of a counter's series."""


def attained(slo: Slo, counters: Iterable[Series], histograms: Mapping[str, Sequence[float]]) -> float | None:
    """Return the ratio of good events; None: none of them were counted, or they need to be looked at over time.

    Args:
        histograms: by metric, how many events were at most each bound of its buckets in the catalogue, then all.
    """
    indicator = slo.indicator
    if isinstance(indicator, Ratio):
        return _of_counters(indicator, list(counters))
    if isinstance(indicator, AtMost | MoreThan):
        return _of_histogram(indicator, histograms)
    return None


def _of_counters(indicator: Ratio, series: list[Series]) -> float | None:
    total = _sum(indicator.total, series)
    part = _sum(indicator.good or indicator.bad or indicator.total, series)
    if not total:
        return None
    if indicator.good is not None:
        return None if part is None else min(part / total, 1.0)
    return 1.0 - min((part or 0.0) / total, 1.0)


def _sum(selector: Selector, series: list[Series]) -> float | None:
    """Return the sum of the series that are selected; None: there is none."""
    amounts = [
        amount
        for metric, labels, amount in series
        if metric == selector.metric
        and all(labels.get(name) in values for name, values in selector.labels.items())
        and not any(labels.get(name) in values for name, values in selector.excluding.items())
    ]
    return sum(amounts) if amounts else None


def _of_histogram(indicator: AtMost | MoreThan, histograms: Mapping[str, Sequence[float]]) -> float | None:
    selector = indicator.histogram
    counts = histograms.get(selector.metric, ())
    bounds = BY_NAME[selector.metric].buckets if selector.metric in BY_NAME else ()
    if not counts or not counts[-1] or selector.labels or selector.excluding or indicator.bound not in bounds:
        return None
    at_most = counts[bounds.index(indicator.bound)] / counts[-1]
    return at_most if isinstance(indicator, AtMost) else 1.0 - at_most

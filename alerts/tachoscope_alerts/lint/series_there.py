"""Whether a Prometheus has the series that objectives count, and a page of metrics the buckets at which they have their thresholds.

The catalogue knows names and buckets of our own exporters; a server's version or settings may have others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tachoscope_alerts.compile.sli_expressions import number, selector
from tachoscope_alerts.lint.lint import Problem
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Selector, Slo
from tachoscope_core.net import prometheus as prometheus_query

_NOT_THERE = 'nothing of it is measured there: see docs/guides/slos.md, "What is not measured"'


class SeriesSource(NamedTuple):
    """Where to look for series: a Prometheus server, or one page of metrics.

    Attributes:
        buckets: returns by upper bound how many series of the chosen histogram have that bucket now.
        has: says whether there is a series now; None: it cannot say, as a page of one server among others.
    """

    buckets: Callable[[Selector], Mapping[float, float]]
    has: Callable[[Selector], bool] | None = None


def of_prometheus(url: str, at: float) -> SeriesSource:
    """Return functions that query a Prometheus server; they raise TachoscopeError if it does not answer.

    Args:
        at: Unix seconds.
    """

    def buckets(histogram: Selector) -> dict[float, float]:
        rows = prometheus_query.instant_query(url, f"count by (le) ({selector(histogram, '_bucket')})", at=at)
        return {float(row["metric"]["le"]): float(row["value"][1]) for row in rows if row["metric"].get("le")}

    def has(chosen: Selector) -> bool:
        return bool(prometheus_query.instant_query(url, f"group({selector(chosen)})", at=at))

    return SeriesSource(buckets, has)


def of_buckets(some: Iterable[tuple[str, Mapping[str, str]]]) -> SeriesSource:
    """Return a function that counts given buckets, each with the histogram's name and its labels, `le` included."""
    kept = list(some)

    def buckets(histogram: Selector) -> Mapping[float, float]:
        return Counter(float(labels["le"]) for name, labels in kept if name == histogram.metric and histogram.matches(labels))

    return SeriesSource(buckets)


def check(slos: Iterable[Slo], asked: SeriesSource, where: str) -> list[Problem]:
    """Return the problems of series that are not there, and of thresholds that are not a boundary of the buckets that are.

    Args:
        where: what was asked, such as `the Prometheus`.
    """
    return sorted(problem for slo in slos for problem in (*_thresholds(slo, asked.buckets, where), *_series(slo, asked.has, where)))


def _series(slo: Slo, has: Callable[[Selector], bool] | None, where: str) -> Iterator[Problem]:
    """Yield missing series of counters and gauges; a label value that a counter never had may still come."""
    indicator = slo.indicator
    if has is None or isinstance(indicator, AtMost | MoreThan):
        return
    if isinstance(indicator, Ratio):
        wanted = [indicator.total, *([Selector(indicator.other_metric)] if indicator.other_metric else [])]
    else:
        wanted = [indicator.value, *([indicator.gate.selector] if indicator.gate else [])]
    for one in wanted:
        if not has(one):
            what = f"{slo.name}: {where} has no series {selector(one)}"
            yield Problem(slo.path, slo.line, "note", what, _NOT_THERE)


def _thresholds(slo: Slo, buckets: Callable[[Selector], Mapping[float, float]], where: str) -> Iterator[Problem]:
    indicator = slo.indicator
    if not isinstance(indicator, AtMost | MoreThan):
        return
    name, bound = indicator.histogram.metric, indicator.bound
    counts = buckets(indicator.histogram)
    line = slo.lines.get("value", slo.line)
    found = next((count for one, count in counts.items() if math.isclose(one, bound)), 0.0)
    most = max(counts.values(), default=0.0)
    if not counts:
        what = f"{slo.name}: {where} has no series of {name}"
        yield Problem(slo.path, line, "note", what, _NOT_THERE)
    elif not found:
        there = ", ".join(number(one) for one in sorted(counts) if not math.isinf(one)) or "none"
        what = f"{slo.name}: {where} has no bucket of {name} that ends at {number(bound)}"
        yield Problem(slo.path, line, "error", what, f"take one of its boundaries: {there}")
    elif found < most:
        what = f"{slo.name}: {found:.0f} of {most:.0f} series of {name} have a bucket that ends at {number(bound)}"
        yield Problem(slo.path, line, "note", what, "events of the others are not measured: compare the servers' versions")

"""Whether a Prometheus, or a page of metrics, has the buckets at which objectives on histograms have their thresholds.

The catalogue knows the buckets of our own exporters; a server's version or settings may have others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from tachoscope_alerts.evaluate import matches
from tachoscope_alerts.expressions import number, selector
from tachoscope_alerts.lint import Problem
from tachoscope_alerts.slo import AtMost, MoreThan, Selector, Slo
from tachoscope_core import prometheus_query

_SEEN = "1h"
"""A bucket that had a sample within this is there."""

Asked = Callable[[Selector], Mapping[float, float]]
"""Returns by upper bound how many series of the chosen histogram have that bucket."""


def of_prometheus(url: str, at: float) -> Asked:
    """Return what asks a Prometheus; it raises TachoscopeError if there is no answer.

    Args:
        at: Unix seconds; looked at is the hour before.
    """

    def asked(histogram: Selector) -> dict[float, float]:
        series = selector(histogram, "_bucket")
        rows = prometheus_query.ask(url, f"count by (le) (last_over_time({series}[{_SEEN}]))", at=at)
        return {float(row["metric"]["le"]): float(row["value"][1]) for row in rows if row["metric"].get("le")}

    return asked


def of_buckets(buckets: Iterable[tuple[str, Mapping[str, str]]]) -> Asked:
    """Return what looks through buckets, each with the histogram's name and its labels, `le` among them."""
    kept = list(buckets)

    def asked(histogram: Selector) -> Mapping[float, float]:
        return Counter(float(labels["le"]) for name, labels in kept if name == histogram.metric and matches(histogram, labels))

    return asked


def check(slos: Iterable[Slo], asked: Asked, where: str) -> list[Problem]:
    """Return the problems of thresholds that are not a boundary of the buckets that are there.

    Args:
        where: what was asked, such as `the Prometheus`.
    """
    return sorted(problem for slo in slos for problem in _of(slo, asked, where))


def _of(slo: Slo, asked: Asked, where: str) -> Iterator[Problem]:
    indicator = slo.indicator
    if not isinstance(indicator, AtMost | MoreThan):
        return
    name, bound = indicator.histogram.metric, indicator.bound
    counts = asked(indicator.histogram)
    line = slo.lines.get("value", slo.line)
    found = next((count for one, count in counts.items() if math.isclose(one, bound)), 0.0)
    most = max(counts.values(), default=0.0)
    if not counts:
        what = f"{slo.name}: {where} has no series of {name}"
        yield Problem(slo.path, line, "note", what, "nothing of it is measured there: see docs/servers.md")
    elif not found:
        there = ", ".join(number(one) for one in sorted(counts) if not math.isinf(one)) or "none"
        what = f"{slo.name}: {where} has no bucket of {name} that ends at {number(bound)}"
        yield Problem(slo.path, line, "error", what, f"take one of its boundaries: {there}")
    elif found < most:
        what = f"{slo.name}: {found:.0f} of {most:.0f} series of {name} have a bucket that ends at {number(bound)}"
        yield Problem(slo.path, line, "note", what, "events of the others are not measured: compare the servers' versions")

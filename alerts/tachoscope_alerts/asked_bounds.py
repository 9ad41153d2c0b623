"""Whether a Prometheus has the buckets at which objectives on histograms have their thresholds.

The catalogue knows the buckets of our own exporters; a server's version or settings may have others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from tachoscope_alerts.expressions import number, selector
from tachoscope_alerts.lint import Problem
from tachoscope_alerts.slo import AtMost, MoreThan, Slo
from tachoscope_core import prometheus_query

_SEEN = "1h"
"""A bucket that had a sample within this is there."""


def check(slos: Iterable[Slo], url: str, at: float) -> list[Problem]:
    """Return the problems of thresholds that are no boundary of the buckets that a Prometheus has.

    Args:
        at: Unix seconds; looked at is the hour before.

    Raises:
        TachoscopeError: it gives no answer.
    """
    return sorted(problem for slo in slos for problem in _of(slo, url, at))


def _of(slo: Slo, url: str, at: float) -> Iterator[Problem]:
    indicator = slo.indicator
    if not isinstance(indicator, AtMost | MoreThan):
        return
    name, bound = indicator.histogram.metric, indicator.bound
    series = selector(indicator.histogram, "_bucket")
    rows = prometheus_query.ask(url, f"count by (le) (last_over_time({series}[{_SEEN}]))", at=at)
    counts = {float(row["metric"]["le"]): float(row["value"][1]) for row in rows if row["metric"].get("le")}
    line = slo.lines.get("value", slo.line)
    found = next((count for one, count in counts.items() if math.isclose(one, bound)), 0.0)
    most = max(counts.values(), default=0.0)
    if not counts:
        what = f"{slo.name}: the Prometheus has no series of {name} within the last hour"
        yield Problem(slo.path, line, "note", what, "nothing of it is measured there: see docs/servers.md")
    elif not found:
        there = ", ".join(number(one) for one in sorted(counts) if not math.isinf(one)) or "none"
        what = f"{slo.name}: no bucket of {name} at the Prometheus ends at {number(bound)}"
        yield Problem(slo.path, line, "error", what, f"take one of its boundaries: {there}")
    elif found < most:
        what = f"{slo.name}: {found:.0f} of {most:.0f} series of {name} have a bucket that ends at {number(bound)}"
        yield Problem(slo.path, line, "note", what, "events of the others are not measured: compare the servers' versions")

"""When alerts fired, as a Prometheus recorded it in its series ALERTS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tachoscope_core.net import prometheus as prometheus_query

MOST_STEPS = 1000
LEAST_STEP_SECONDS = 30.0
_OF_THE_SERIES = frozenset(("__name__", "alertname", "alertstate", "severity", "slo", "area", "owner", "long", "short"))


@dataclass(frozen=True, slots=True)
class FiredSpan:
    """A time during which one alert fired, to the step of the history.

    Attributes:
        alert, severity, slo: of its labels, empty where it lacks them. of: whom it is about: its other labels.
        start, end: Unix seconds. still: it fired at the end of the window.
    """

    alert: str
    severity: str
    slo: str
    of: Mapping[str, str]
    start: float
    end: float
    still: bool


@dataclass(frozen=True, slots=True)
class History:
    """What fired in a window, Unix seconds, the latest first. step: how exact its times are, in seconds."""

    start: float
    end: float
    step: float
    fired: tuple[FiredSpan, ...]


def history(url: str, start: float, end: float) -> History:
    """Return what fired between two times; what fires for less than a step is shown as one step long.

    Raises:
        TachoscopeError: there is no answer, or none of a Prometheus.
    """
    step = max(LEAST_STEP_SECONDS, (end - start) / MOST_STEPS)
    # Over each step, so that nothing that fires between two of them is missed; a millisecond less, so that no sample is in two.
    query = f'max_over_time(ALERTS{{alertstate="firing"}}[{round(step * 1000) - 1}ms])'
    rows = prometheus_query.range_query(url, query, start=start, end=end, step=step)
    found = [one for row in rows for one in _fired(row, step, end)]
    return History(start, end, step, tuple(sorted(found, key=lambda one: (-one.start, one.alert))))


def _fired(row: Mapping[str, Any], step: float, end: float) -> list[FiredSpan]:
    labels: Mapping[str, str] = row["metric"]
    times = [float(time) for time, _ in row["values"]]
    of = {name: value for name, value in labels.items() if name not in _OF_THE_SERIES}
    spans: list[tuple[float, float]] = []
    for time in times:
        if spans and time - spans[-1][1] < 1.5 * step:
            spans[-1] = spans[-1][0], time
        else:
            spans.append((time - step, time))
    alert, severity, slo = (labels.get(name, "") for name in ("alertname", "severity", "slo"))
    return [FiredSpan(alert, severity, slo, of, begin, last, still=last > end - 1.5 * step) for begin, last in spans]

"""Objectives measured by a Prometheus: from the series that its rules recorded, or, where it has none, from the raw series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tachoscope_alerts.expressions import BAD, TOTAL, bad_events, recorded, total_events
from tachoscope_alerts.measure import Ask, Measured, Sums, Window
from tachoscope_alerts.slo import Slo
from tachoscope_alerts.windows import Timing, duration
from tachoscope_core import prometheus_query
from tachoscope_core.redaction import redact

_PART = "slo_part"
"""The label that tells apart what one query asks for: `bad`, `total` and `evaluations`."""


class PrometheusSource:
    """A `measure.Source` that asks the HTTP API. Its `measure` raises TachoscopeError naming the URL when there is no answer."""

    def __init__(self, url: str) -> None:
        self.name = redact(url)
        self.notes: list[str] = []
        self._url = url

    def measure(self, asks: Sequence[Ask], timing: Timing) -> list[Measured]:
        """Return the sums. What nothing is recorded of is evaluated anew, which takes long for long windows; `notes` name it."""
        is_recorded = self._recorded([ask for ask in asks if not ask.only_bad])
        raw = dict.fromkeys(ask.slo.name for ask in asks if ask.slo.name not in is_recorded)
        self.notes = [f"evaluated from raw series, since no rule recorded it: {', '.join(raw)}"] if raw else []
        return [self._measure(ask, timing, from_raw=ask.only_bad or ask.slo.name in raw) for ask in asks]

    def _recorded(self, asks: Sequence[Ask]) -> set[str]:
        """Return the names of the objectives of which rules recorded something in the longest window."""
        if not asks:
            return set()
        end = max(window.end for ask in asks for window in ask.windows)
        longest = duration(max(end - window.start for ask in asks for window in ask.windows))
        rows = prometheus_query.ask(self._url, f"count by (slo) (last_over_time({TOTAL}[{longest}]))", at=end)
        return {str(row["metric"].get("slo", "")) for row in rows}

    def _measure(self, ask: Ask, timing: Timing, *, from_raw: bool) -> Measured:
        measured: Measured = {}
        for number, window in enumerate(ask.windows):
            query = _query(ask, window, timing, from_raw=from_raw)
            for row in prometheus_query.ask(self._url, query, at=window.end):
                labels: Mapping[str, str] = row["metric"]
                group = tuple(labels.get(label, "") for label in ask.slo.by)
                sums = measured.setdefault(group, [Sums()] * len(ask.windows))
                sums[number] += _sums(labels[_PART], float(row["value"][1]))
        return measured


def _sums(part: str, value: float) -> Sums:
    if part == "evaluations":
        return Sums(evaluations=round(value))
    return Sums(bad=value) if part == "bad" else Sums(total=value)


def _query(ask: Ask, window: Window, timing: Timing, *, from_raw: bool) -> str:
    """Return what asks for the parts at once."""
    bad, total = _ranges(ask.slo, window, timing, from_raw=from_raw)
    parts = {"bad": f"sum_over_time({bad})"}
    if not ask.only_bad:
        parts |= {"total": f"sum_over_time({total})", "evaluations": f"count_over_time({total})"}
    return " or ".join(f'label_replace({query}, "{_PART}", "{part}", "", "")' for part, query in parts.items())


def _ranges(slo: Slo, window: Window, timing: Timing, *, from_raw: bool) -> tuple[str, str]:
    """Return bad and total events over a window, less a millisecond: Prometheus 2 takes both ends of a range, 3 only the later."""
    span = duration(window.end - window.start - 0.001)
    if not from_raw:
        return f"{recorded(BAD, slo)}[{span}]", f"{recorded(TOTAL, slo)}[{span}]"
    step = duration(timing.interval)
    return f"({bad_events(slo, timing)})[{span}:{step}]", f"({total_events(slo, timing)})[{span}:{step}]"

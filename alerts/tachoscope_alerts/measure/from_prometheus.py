"""Objectives measured by a Prometheus: from the series that its rules recorded, or, where it has none, from the raw series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from tachoscope_alerts.compile.sli_expressions import BAD, TOTAL, bad_events, recorded, total_events
from tachoscope_alerts.measure.evaluator import Events, Group, evaluations
from tachoscope_alerts.measure.events import Ask, EventSums, Measured, Window, following_each_other
from tachoscope_alerts.measure.stored_samples import Floats, Times
from tachoscope_alerts.spec.burn_rate_windows import Timing, duration
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.net import prometheus as prometheus_query
from tachoscope_core.redaction import redact

_PART = "slo_part"
"""The label that tells apart what one query asks for: `bad`, `total` and `evaluations`."""

_MOST_STEPS = 10_000
"""Of a query over time: a Prometheus gives 11,000."""
_RAW_OFFENDERS = (
    "the worst are counted from raw series of that time, since rules record no jobs or instances: their counts differ from the "
    "budget's where the rules began later or missed evaluations, and their shares are of what the raw series saw"
)


class PrometheusSource:
    """An `events.EventSource` that asks the HTTP API. `measure` raises TachoscopeError naming the URL when there is no answer."""

    def __init__(self, url: str) -> None:
        self.name = redact(url)
        self.notes: list[str] = []
        self.instance: Literal["host", "instance"] = "instance"
        self.raw_only_bad: set[str] = set()
        self._url = url

    def measure(self, asks: Sequence[Ask], timing: Timing) -> list[Measured]:
        """Return the sums. What nothing is recorded of is evaluated again, which takes long for long windows; `notes` name it."""
        is_recorded = self._recorded([ask for ask in asks if not ask.only_bad])
        found = [self._measure(ask, timing, from_raw=ask.only_bad or ask.slo.name not in is_recorded) for ask in asks]
        there = [ask for ask, measured in zip(asks, found, strict=True) if measured]
        raw = dict.fromkeys(ask.slo.name for ask in there if ask.slo.name not in is_recorded)
        self.notes = [f"evaluated from raw series, since no rule recorded it: {', '.join(raw)}"] if raw else []
        self.raw_only_bad = {ask.slo.name for ask in there if ask.only_bad} & is_recorded
        if self.raw_only_bad:
            self.notes.append(_RAW_OFFENDERS)
        return found

    def moments(self, slo: Slo, start: float, end: float, timing: Timing) -> Events:
        """Return the events at each evaluation after `start` up to `end`: as rules recorded them, or else from raw series.

        An objective whose threshold was changed has a name of its own, so that what was recorded of the other is not taken.
        """
        from_raw = slo.name not in self._recorded([Ask(slo, (Window(start, end),))])
        self.notes = [f"evaluated from raw series, since no rule recorded it: {slo.name}"] if from_raw else []
        longest = _MOST_STEPS * timing.interval
        edges = [*np.arange(start, end, longest).tolist(), end]
        return following_each_other([self._stretch(slo, begin, last, timing, from_raw=from_raw) for begin, last in pairwise(edges)])

    def _stretch(self, slo: Slo, start: float, end: float, timing: Timing, *, from_raw: bool) -> Events:
        times = evaluations(start, end, timing)
        if not len(times):
            return Events(times, {}, {})
        # Of what is recorded only the sample of this evaluation: an instant query would find one of up to five minutes ago.
        just = f"[{duration(timing.interval - 0.001)}]"
        bad, total = (
            (bad_events(slo, timing), total_events(slo, timing))
            if from_raw
            else (f"last_over_time({recorded(BAD, slo)}{just})", f"last_over_time({recorded(TOTAL, slo)}{just})")
        )
        return Events(times, self._over(bad, slo, times, timing), self._over(total, slo, times, timing))

    def _over(self, query: str, slo: Slo, times: Times, timing: Timing) -> dict[Group, Floats]:
        begin = int(times[0])
        found: dict[Group, Floats] = {}
        rows = prometheus_query.range_query(self._url, query, start=begin / 1000, end=int(times[-1]) / 1000, step=timing.interval)
        for row in rows:
            group = tuple(row["metric"].get(label, "") for label in slo.by)
            values = found.setdefault(group, np.full(len(times), np.nan))
            for time, value in row["values"]:
                values[round((float(time) * 1000 - begin) / (timing.interval * 1000))] = float(value)
        return found

    def _recorded(self, asks: Sequence[Ask]) -> set[str]:
        """Return the names of the objectives of which rules recorded something in the longest window."""
        if not asks:
            return set()
        end = max(window.end for ask in asks for window in ask.windows)
        longest = duration(max(end - window.start for ask in asks for window in ask.windows))
        rows = prometheus_query.instant_query(self._url, f"count by (slo) (last_over_time({TOTAL}[{longest}]))", at=end)
        return {str(row["metric"].get("slo", "")) for row in rows}

    def _measure(self, ask: Ask, timing: Timing, *, from_raw: bool) -> Measured:
        measured: Measured = {}
        for number, window in enumerate(ask.windows):
            query = _query(ask, window, timing, from_raw=from_raw)
            for row in prometheus_query.instant_query(self._url, query, at=window.end):
                labels: Mapping[str, str] = row["metric"]
                group = tuple(labels.get(label, "") for label in ask.slo.by)
                sums = measured.setdefault(group, [EventSums()] * len(ask.windows))
                sums[number] += _sums(labels[_PART], float(row["value"][1]))
        return measured


def _sums(part: str, value: float) -> EventSums:
    if part == "evaluations":
        return EventSums(evaluations=round(value))
    return EventSums(bad=value) if part == "bad" else EventSums(total=value)


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

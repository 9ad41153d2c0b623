"""PromQL of an objective: bad and total events at one moment, and their ratio over a window.

Counters become rates over the shortest window before anything is summed (a sum of counters cannot be told from a reset), and ratios
are made of sums only (a mean of ratios weighs a quiet hour like a busy one). No events give no sample and never NaN.
"""

from __future__ import annotations

import re

from tachoscope_alerts.slo import AtMost, Comparison, Gate, Ratio, Selector, Slices, Slo
from tachoscope_alerts.windows import Timing, duration

BAD, TOTAL = "slo:bad_events:base", "slo:total_events:base"
ERROR_RATIO = "slo:error:ratio"
"""Of a window, which is a label of it."""
BUDGET_REMAINING = "slo:error_budget:remaining_ratio"
OBJECTIVE = "slo:objective:ratio"

_OPERATORS: dict[Comparison, str] = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def selector(chosen: Selector, suffix: str = "", extra: tuple[str, ...] = ()) -> str:
    """Return a metric with its matchers; `suffix` is `_bucket` or `_count` of a histogram, `extra` more matchers."""
    matchers = [_matcher(label, values) for label, values in sorted(chosen.labels.items())]
    matchers += [_matcher(label, values, negated=True) for label, values in sorted(chosen.excluding.items())]
    matchers += extra
    return f"{chosen.metric}{suffix}" + (f"{{{','.join(matchers)}}}" if matchers else "")


def bound_matcher(bound: float) -> str:
    """Return the matcher of a bucket: exporters write a whole number with and without `.0`."""
    text = f"{bound:g}"
    return f'le=~"{text}(\\\\.0)?"' if "." not in text and "e" not in text else f'le="{text}"'


def total_events(slo: Slo, timing: Timing) -> str:
    """Return the events of the moment: a second's, or of slices the entities."""
    indicator = slo.indicator
    if isinstance(indicator, Ratio):
        return _rate(slo, selector(indicator.total), timing)
    if isinstance(indicator, AtMost):
        return _rate(slo, selector(indicator.histogram, "_count"), timing)
    if indicator.gate is not None and indicator.missing == "bad":
        return f"count{_by(slo)} ({_open(indicator.gate, timing)})"
    return f"count{_by(slo)} ({_entities(indicator, timing)})"


def bad_events(slo: Slo, timing: Timing) -> str:
    """Return those of the moment's events that were bad: 0 where there were events, and none where there were not."""
    indicator = slo.indicator
    total = total_events(slo, timing)
    if isinstance(indicator, Ratio):
        if indicator.bad is not None:
            return f"({_rate(slo, selector(indicator.bad), timing)}) or 0 * ({total})"
        assert indicator.good is not None
        good = _rate(slo, selector(indicator.good), timing)
    elif isinstance(indicator, AtMost):
        good = _rate(slo, selector(indicator.histogram, "_bucket", (bound_matcher(indicator.bound),)), timing)
    else:
        good = f"count{_by(slo)} ({_good(indicator, timing)})"
    return f"clamp_min(({total}) - (({good}) or 0 * ({total})), 0)"


def error_ratio(slo: Slo, window_seconds: float) -> str:
    """Return the ratio of bad events over a window, from the recorded events: weighted by events, none where there were none."""
    window = duration(window_seconds)
    return f"{_sum(BAD, slo, window)} / ({_sum(TOTAL, slo, window)} > 0)"


def budget_remaining(slo: Slo, period_seconds: float) -> str:
    """Return the part of the error budget that is left of the period, 1 of an untouched one; below 0 it is overdrawn."""
    return f"1 - ({error_ratio(slo, period_seconds)}) / {slo.budget:g}"


def recorded(name: str, slo: Slo, **labels: str) -> str:
    """Return a recorded series of an objective."""
    return f"{name}{{{','.join(f'{key}={quoted(value)}' for key, value in {'slo': slo.name, **labels}.items())}}}"


def _sum(name: str, slo: Slo, window: str) -> str:
    return f"sum_over_time({recorded(name, slo)}[{window}])"


def _rate(slo: Slo, series: str, timing: Timing) -> str:
    return f"sum{_by(slo)} (rate({series}[{duration(timing.base)}]))"


def _entities(slices: Slices, timing: Timing) -> str:
    """Return the value of each entity that counts."""
    value = selector(slices.value)
    value = f"{slices.reduce} by ({', '.join(slices.by)}) ({f'time() - {value}' if slices.age else value})"
    if slices.gate is None:
        return value
    return f"({value}) and on ({', '.join(slices.gate.on)}) ({_open(slices.gate, timing)})"


def _open(gate: Gate, timing: Timing) -> str:
    on = ", ".join(gate.on)
    is_open = f"max by ({on}) ({selector(gate.selector)}) == 1"
    if not gate.since_seconds:
        return is_open
    since = duration(timing.scaled(gate.since_seconds))
    return f"({is_open}) and on ({on}) (max by ({on}) ({selector(gate.selector)} offset {since}) == 1)"


def _good(slices: Slices, timing: Timing) -> str:
    bound = timing.scaled(slices.bound) if slices.age else slices.bound
    return f"({_entities(slices, timing)}) {_OPERATORS[slices.comparison]} {bound:g}"


def _by(slo: Slo) -> str:
    return f" by ({', '.join(slo.by)})" if slo.by else ""


def _matcher(label: str, values: tuple[str, ...], *, negated: bool = False) -> str:
    if len(values) == 1:
        return f"{label}{'!=' if negated else '='}{quoted(values[0])}"
    return f"{label}{'!~' if negated else '=~'}{quoted('|'.join(re.escape(value) for value in values))}"


def quoted(text: str) -> str:
    """Return a text as PromQL writes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

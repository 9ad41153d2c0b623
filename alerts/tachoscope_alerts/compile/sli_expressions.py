"""PromQL of an objective: bad and total events at one moment, and their ratio over a window.

There are three answers: an event is good, bad, or not measured. Of a histogram without the bucket of the threshold, and of a total
without the counter of its good or bad events, nothing is known: it is in neither number, and `unmeasured_events` counts it.

Counters become rates over the shortest window before anything is summed (a sum of counters cannot be told from a reset), and ratios
are made of sums only (a mean of ratios weighs a quiet hour like a busy one). No events give no sample and never NaN.

Rules read each raw series once, into recorded parts, and make bad, total and unmeasured events of these (`parts`, `of_parts`): a
fleet has thousands of raw series and few parts. `total_events` and `bad_events` give the same numbers from raw series alone, for
objectives of which no rule recorded anything.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tachoscope_alerts.spec.burn_rate_windows import RAW_LIMIT_SECONDS, Timing, duration
from tachoscope_alerts.spec.slo import AtMost, Comparison, Gate, MoreThan, Ratio, Selector, Slices, Slo


class RecordedLevel(NamedTuple):
    """Names under which bad and total events are recorded; at the default timing they say how long they are summed."""

    bad: str
    total: str


MOMENTS = RecordedLevel("slo:bad_events:base", "slo:total_events:base")
"""Of the moment: every 30 s."""
SUMS = RecordedLevel("slo:bad_events:sum4m", "slo:total_events:sum4m")
"""Of all moments since the sum before: a day is 360 of these, and would be 2,880 moments."""
LONG_SUMS = RecordedLevel("slo:bad_events:sum30m", "slo:total_events:sum30m")
"""Of those sums: three days are 144 of these, four weeks 1,344."""
LEVELS = (MOMENTS, SUMS, LONG_SUMS)
LEAST_SUMS = 72
"""A window with fewer sums than this would be too coarse: it begins and ends with one."""
BAD, TOTAL = MOMENTS
UNMEASURED = "slo:unmeasured_events:base"
"""Events that are neither known to be good nor known to be bad."""
ALL = "slo:all_events:base"
"""Part: all events, measured or not; of a histogram those of series that were there a window ago."""
CHOSEN = "slo:chosen_events:base"
"""Part: the events that the spec selects: the good ones, or the bad ones."""
OTHER = "slo:other_metric_events:base"
"""Part: the events of the metric of good or bad events, while it counts; only where it is not the metric of all events."""
BUCKETS = "slo:bucket_events:base"
"""Part: the events of a histogram that has the bucket of the threshold: those in the bucket, and all of them with an empty `le`."""
PARTS = (ALL, CHOSEN, OTHER, BUCKETS)
_NOISE = "1e-9"
"""Part of all events: a difference of two sums of the same rates, added in another order, is below it."""
ERROR_RATIO = "slo:error:ratio"
"""Of a window, which is a label of it."""
BUDGET_REMAINING = "slo:error_budget:remaining_ratio"
OBJECTIVE = "slo:objective:ratio"

_OPERATORS: dict[Comparison, str] = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def selector(chosen: Selector, suffix: str = "", extra: tuple[str, ...] = ()) -> str:
    """Return a metric with its matchers; `suffix` is `_bucket` or `_count` of a histogram, `extra` more matchers."""
    matchers = [_matcher(label, values) for label, values in sorted(chosen.labels.items())]
    matchers += [_matcher(label, values, negated=True) for label, values in sorted(chosen.excluding.items())]
    matchers += [f"{label}=~{quoted(pattern)}" for label, pattern in sorted(chosen.patterns.items())]
    matchers += [f"{label}!~{quoted(pattern)}" for label, pattern in sorted(chosen.excluded_patterns.items())]
    matchers += extra
    return f"{chosen.metric}{suffix}" + (f"{{{','.join(matchers)}}}" if matchers else "")


def bound_matcher(bound: float) -> str:
    """Return the matcher of a bucket: exporters write a whole number with and without `.0`."""
    text = bound_text(bound)
    return f'le=~"{text}(\\\\.0)?"' if "." not in text and "e" not in text else f'le="{text}"'


def bound_text(bound: float) -> str:
    """Return the bound of a bucket as exporters write it: all its digits, from a million on with an exponent."""
    text = number(bound)
    if abs(bound) < 1e6 or "e" in text:
        return text
    return f"{bound:.{len(text.lstrip('-').replace('.', '').rstrip('0')) - 1}e}"


def number(value: float) -> str:
    """Return a number with 12 digits, so that 1 - 0.99 is 0.01."""
    return f"{value:.12g}"


class Events(NamedTuple):
    """PromQL of the events of the moment: a second's, or of slices the entities.

    Attributes:
        total: those that are known to be good or bad. bad: those of them that are bad: 0 where there were events, none where there
            were not. unmeasured: those of which is not known whether they are good, none where there are none; empty where that
            cannot be.
    """

    total: str
    bad: str
    unmeasured: str


def parts(slo: Slo, timing: Timing) -> dict[str, str]:
    """Return the names under which the parts of an objective's events are recorded, and the PromQL of each, of raw series."""
    indicator = slo.indicator
    if isinstance(indicator, AtMost | MoreThan):
        return {BUCKETS: _of_buckets(slo, indicator, timing), ALL: _of_old_enough(slo, indicator, timing)}
    if isinstance(indicator, Ratio):
        found = {ALL: _rate(slo, selector(indicator.total), timing), OTHER: _part(slo, indicator, timing)}
        found[CHOSEN] = "" if _is_other(indicator) else _rate(slo, selector(_chosen(indicator)), timing)
        return {name: expression for name, expression in found.items() if expression}
    found = {ALL: _counted(slo, indicator, timing), CHOSEN: _good_slices(slo, indicator, timing)}
    return found if indicator.missing == "bad" else {}


def of_parts(slo: Slo, timing: Timing) -> Events:
    """Return the events as rules make them of the recorded parts; of slices without parts from raw series.

    All three read the same parts and nothing that one of them records: a server that writes what it records to another one, as
    vmalert does, finds the parts of the evaluation before, and all of them of the same one.
    """
    indicator = slo.indicator
    made = {name: recorded(name, slo) for name in parts(slo, timing)}
    if isinstance(indicator, AtMost | MoreThan):
        return _of_split(slo, indicator)
    if not made:
        return Events(total_events(slo, timing), bad_events(slo, timing), "")
    return _put_together(slo, made)


def total_events(slo: Slo, timing: Timing) -> str:
    """Return the total events (`Events`) from raw series alone."""
    indicator = slo.indicator
    if isinstance(indicator, AtMost | MoreThan):
        return f"sum{_by(slo)} ({_rate_of_count(indicator, timing)} and ignoring (le) {_bucket(indicator, timing)})"
    if isinstance(indicator, Slices) and indicator.missing == "ignored":
        return _counted(slo, indicator, timing)
    return _put_together(slo, _in_parentheses(parts(slo, timing))).total


def _in_parentheses(expressions: dict[str, str]) -> dict[str, str]:
    return {name: f"({expression})" for name, expression in expressions.items()}


def _put_together(slo: Slo, of: dict[str, str]) -> Events:
    """Return the events of a ratio, or of slices with bad gaps, from its parts: series or expressions."""
    total, unmeasured = of[ALL], ""
    if OTHER in of:
        total, unmeasured = f"{of[ALL]} and {_on(slo)} {of[OTHER]}", f"({of[ALL]} unless {_on(slo)} {of[OTHER]}) > 0"
    chosen, counted = of.get(CHOSEN) or of[OTHER], f"({total})" if OTHER in of else total
    if isinstance(slo.indicator, Ratio) and slo.indicator.bad is not None:
        return Events(total, f"{chosen} or 0 * {counted}", unmeasured)
    return Events(total, f"clamp_min({counted} - ({chosen} or 0 * {counted}), 0)", unmeasured)


def _chosen(ratio: Ratio) -> Selector:
    chosen = ratio.bad or ratio.good
    assert chosen is not None, "one of both is given"
    return chosen


def _is_other(ratio: Ratio) -> bool:
    """Return whether the good events are all of the other metric, which needs no part of its own."""
    return ratio.good is not None and bool(ratio.other_metric) and ratio.good == Selector(ratio.other_metric)


def _of_buckets(slo: Slo, indicator: AtMost | MoreThan, timing: Timing) -> str:
    """Return the events in the bound's bucket and, with an empty `le`, all of the same series."""
    rates = f"({_rate_of_count(indicator, timing)} or rate({_bucket_series(indicator)}[{duration(timing.base)}]))"
    by = ", ".join((*slo.by, "le"))
    return f"sum by ({by}) ({rates} and ignoring (le) ({_whole(indicator, timing)}))"


def _of_old_enough(slo: Slo, indicator: AtMost | MoreThan, timing: Timing) -> str:
    return f"sum{_by(slo)} {_old_enough(selector(indicator.histogram, '_count'), timing)}"


def _of_split(slo: Slo, indicator: AtMost | MoreThan) -> Events:
    total, all_events = recorded(BUCKETS, slo, le=""), recorded(ALL, slo)
    within = f'sum without (le) ({BUCKETS}{{slo={quoted(slo.name)},le!=""}})'
    bad = within if isinstance(indicator, MoreThan) else f"clamp_min({total} - {within}, 0)"
    return Events(total, bad, f"{all_events} - ({total} or 0 * {all_events}) > {_NOISE} * {all_events}")


def _part(slo: Slo, ratio: Ratio, timing: Timing) -> str:
    """Return what is there while the metric of the good or bad events counts; nothing where it is the metric of the total.

    A server may lack another metric. Of the same metric, a label's value that never was is 0: a server whose requests all succeed
    may have no counter of failures. Where a counter of good events ended within the window and no total did, the rest of the window
    would be bad, so it does not count. Where both ended, their server did, and the window counts.
    """
    part = ratio.other_metric
    if not part:
        return ""
    rate = _rate(slo, part, timing)
    if ratio.good is None:
        return rate
    ended = f"{_ended(slo, part, timing)} unless {_on(slo)} {_ended(slo, selector(ratio.total), timing)}"
    return f"({rate}) unless {_on(slo)} ({ended})"


def _ended(slo: Slo, series: str, timing: Timing) -> str:
    """Return the groups whose series had a sample within the window and has none now."""
    return f"group{_by(slo)} (last_over_time({series}[{duration(timing.base)}]) unless {series})"


def bad_events(slo: Slo, timing: Timing) -> str:
    """Return the bad events (`Events`) from raw series alone."""
    indicator = slo.indicator
    if isinstance(indicator, MoreThan):
        return f"sum{_by(slo)} ({_bucket(indicator, timing)})"
    if isinstance(indicator, AtMost):
        return f"clamp_min(sum{_by(slo)} ({_rate_of_count(indicator, timing)} - ignoring (le) {_bucket(indicator, timing)}), 0)"
    if isinstance(indicator, Slices) and indicator.missing == "ignored":
        return f"sum{_by(slo)} ((({_entities(indicator, timing)}) {_compared(indicator, timing, 'bool ')}) == bool 0)"
    return _put_together(slo, _in_parentheses(parts(slo, timing))).bad


def _rate_of_count(indicator: AtMost | MoreThan, timing: Timing) -> str:
    return f"rate({selector(indicator.histogram, '_count')}[{duration(timing.base)}])"


def _bucket_series(indicator: AtMost | MoreThan) -> str:
    return selector(indicator.histogram, "_bucket", (bound_matcher(indicator.bound),))


def _bucket(indicator: AtMost | MoreThan, timing: Timing) -> str:
    """Return the events of at most the bound, of series with that bucket."""
    return f"(rate({_bucket_series(indicator)}[{duration(timing.base)}]) and {_whole(indicator, timing)})"


def _whole(indicator: AtMost | MoreThan, timing: Timing) -> str:
    """Return the buckets of the bound that were there a window ago, and in each scrape that their count was in.

    Of a younger one Prometheus extrapolates the bucket and the count by different times, so that some are in one and not in the
    other: requests of a server that has just begun would be bad. So would those of a server that has the bucket only since its
    restart, or that lost it, while the count covers the whole window.
    """
    bucket, window = _bucket_series(indicator), duration(timing.base)
    count = selector(indicator.histogram, "_count")
    together = f"count_over_time({bucket}[{window}]) == ignoring (le) count_over_time({count}[{window}])"
    return f"{bucket} offset {window} and ignoring (le) ({together})"


def _old_enough(series: str, timing: Timing) -> str:
    window = duration(timing.base)
    return f"(rate({series}[{window}]) and {series} offset {window})"


def _counted(slo: Slo, slices: Slices, timing: Timing) -> str:
    if slices.gate is not None and slices.missing == "bad":
        return f"count{_by(slo)} ({_open(slices.gate, timing)})"
    return f"count{_by(slo)} ({_entities(slices, timing)})"


def _good_slices(slo: Slo, slices: Slices, timing: Timing) -> str:
    return f"count{_by(slo)} (({_entities(slices, timing)}) {_compared(slices, timing)})"


def level(window_seconds: float, timing: Timing) -> RecordedLevel:
    """Return what a window sums, whose length is given as it is without scaling: a day sums of 4 minutes, three and more of 30.

    The tier of three days is the first to tell only of what lasts for a day at least, so that half an hour is little to it. In a
    drill, whose windows shrink more than the time between evaluations, it is what is finer.
    """
    for sums, interval in ((LONG_SUMS, timing.budget_interval), (SUMS, timing.slow_interval)):
        if window_seconds > RAW_LIMIT_SECONDS and timing.scaled(window_seconds) >= LEAST_SUMS * interval:
            return sums
    return MOMENTS


def interval_of(of: RecordedLevel, timing: Timing) -> float:
    """Return the seconds between the samples of a level."""
    return {MOMENTS: timing.interval, SUMS: timing.slow_interval, LONG_SUMS: timing.budget_interval}[of]


def error_ratio(slo: Slo, window_seconds: float, of: RecordedLevel = MOMENTS) -> str:
    """Return the ratio of bad events over a window, from the recorded events: weighted by events, none where there were none.

    Prometheus 2 takes both ends of a range: a window holds a moment or sum more than it is long, of bad and total alike.
    """
    return f"{summed(of.bad, slo, window_seconds)} / ({summed(of.total, slo, window_seconds)} > 0)"


def budget_remaining(slo: Slo, period_seconds: float, of: RecordedLevel = MOMENTS) -> str:
    """Return the part of the error budget that is left of the period, 1 of an untouched one; below 0 it is overdrawn."""
    return f"1 - ({error_ratio(slo, period_seconds, of)}) / {number(slo.budget)}"


def summed(name: str, slo: Slo, seconds: float) -> str:
    """Return the sum of a recorded series over the last seconds."""
    return f"sum_over_time({recorded(name, slo)}[{duration(seconds)}])"


def recorded(name: str, slo: Slo, **labels: str) -> str:
    """Return a recorded series of an objective."""
    return f"{name}{{{','.join(f'{key}={quoted(value)}' for key, value in {'slo': slo.name, **labels}.items())}}}"


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


def _compared(slices: Slices, timing: Timing, modifier: str = "") -> str:
    """Return the comparison that holds for good values; with `bool` it is 0 for all others, also NaN."""
    bound = timing.scaled(slices.bound) if slices.age else slices.bound
    return f"{_OPERATORS[slices.comparison]} {modifier}{number(bound)}"


def _by(slo: Slo) -> str:
    return f" by ({', '.join(slo.by)})" if slo.by else ""


def _on(slo: Slo) -> str:
    return f"on ({', '.join(slo.by)})"


def _matcher(label: str, values: tuple[str, ...], *, negated: bool = False) -> str:
    if len(values) == 1:
        return f"{label}{'!=' if negated else '='}{quoted(values[0])}"
    return f"{label}{'!~' if negated else '=~'}{quoted('|'.join(re.escape(value) for value in values))}"


def quoted(text: str) -> str:
    """Return a text as PromQL writes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

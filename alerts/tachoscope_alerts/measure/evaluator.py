"""The indicator of an objective over recorded samples: the numbers that Prometheus gets for `expressions` at each evaluation.

What is equal to Prometheus 2.42: `rate` with its extrapolation (promql/functions.go, extrapolatedRate), ranges that are closed on
both sides, values that hold for 5 minutes or until a series is gone, and what `sum`, `count`, `max`, `and on`, `or` and `offset`
make of series that are not there. No events give no number: it is NaN here, and never a zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tachoscope_alerts.measure.stored_samples import Floats, Series, Times
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import AtMost, Gate, MoreThan, Ratio, Selector, Slices, Slo

LOOKBACK_MS = 300_000
"""So long Prometheus takes the last sample for the present value, unless the series is known to be gone."""

Flags = NDArray[np.bool_]
Group = tuple[str, ...]
"""Values of the labels that are kept, in their order; empty where a series lacks the label."""
ByMetric = Mapping[str, Sequence[Series]]
_Key = tuple[tuple[str, str], ...]
"""Labels of a series but for `le`."""
_COMPARE: dict[str, Callable[[Floats, float], Flags]] = {
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Events:
    """Bad and total events at each evaluation: a second's, or of slices the entities; NaN where there are none.

    Attributes:
        times_ms: of the evaluations, Unix milliseconds, shape (N,). bad, total: shape (N,) each, by the objective's labels.
    """

    times_ms: Times
    bad: dict[Group, Floats]
    total: dict[Group, Floats]


def selectors(slo: Slo) -> list[Selector]:
    """Return what an objective reads: counters, a histogram, or a gauge and its gate."""
    indicator = slo.indicator
    if isinstance(indicator, Ratio):
        return [one for one in (indicator.total, indicator.bad, indicator.good) if one is not None]
    if isinstance(indicator, AtMost | MoreThan):
        return [indicator.histogram]
    return [indicator.value, *([indicator.gate.selector] if indicator.gate is not None else [])]


def needed_metrics(slos: Iterable[Slo]) -> dict[str, frozenset[float]]:
    """Return the metrics of objectives, of histograms with the bounds of the buckets that are needed."""
    found: dict[str, frozenset[float]] = {}
    for slo in slos:
        bounds = frozenset([slo.indicator.bound]) if isinstance(slo.indicator, AtMost | MoreThan) else frozenset[float]()
        for one in selectors(slo):
            found[one.metric] = found.get(one.metric, frozenset()) | bounds
    return found


def history_seconds(slo: Slo, timing: Timing) -> float:
    """Return how long before an evaluation samples still matter to it."""
    if isinstance(slo.indicator, Ratio):
        return timing.base
    gate = slo.indicator.gate if isinstance(slo.indicator, Slices) else None
    since = timing.scaled(gate.since_seconds) if gate is not None and gate.since_seconds else 0.0
    return (timing.base if isinstance(slo.indicator, AtMost | MoreThan) else since) + LOOKBACK_MS / 1000


def evaluations(start: float, end: float, timing: Timing) -> Times:
    """Return the multiples of the interval after `start` (Unix seconds) up to `end`, in milliseconds."""
    interval = round(timing.interval * 1000)
    return np.arange(round(start * 1000) // interval + 1, round(end * 1000) // interval + 1, dtype=np.int64) * interval


def bad_and_total(slo: Slo, series: ByMetric, start: float, end: float, timing: Timing) -> Events:
    """Return the events at the evaluations after `start` up to `end`, Unix seconds.

    Args:
        series: with samples from `history_seconds` before the start on.
    """
    times, indicator = evaluations(start, end, timing), slo.indicator
    window = round(timing.base * 1000)
    if isinstance(indicator, Slices):
        return Events(times, *_slices(slo, indicator, series, times, timing))
    if isinstance(indicator, AtMost | MoreThan):
        total, within = _of_histogram(slo, indicator, series, times, window)
        return Events(times, _without(total, within) if isinstance(indicator, AtMost) else within, total)
    total = _rates(slo, indicator.total, series.get(indicator.total.metric, ()), times, window)
    if indicator.other_metric:
        total = _where(total, _of_part(slo, indicator, series, times, window))
    if indicator.bad is None:
        assert indicator.good is not None
        good = _rates(slo, indicator.good, series.get(indicator.good.metric, ()), times, window)
        return Events(times, _without(total, good), total)
    bad = _rates(slo, indicator.bad, series.get(indicator.bad.metric, ()), times, window)
    return Events(times, _or(bad, {group: 0 * counted for group, counted in total.items()}), total)


# --- counters -----------------------------------------------------------------------------------------------------------------


def rate(one: Series, times: Times, window_ms: int) -> Floats:
    """Return a counter's increase a second over the window before each time, as Prometheus does; NaN of fewer than two samples."""
    found = np.full(len(times), np.nan)
    first = np.searchsorted(one.times_ms, times - window_ms, side="left")
    last = np.searchsorted(one.times_ms, times, side="right") - 1
    there = last > first
    if not there.any():
        return found
    first, last, at = first[there], last[there], times[there]
    values = one.values
    fell = np.where(values[1:] < values[:-1], values[:-1], 0.0)
    lost = np.concatenate([[0.0], np.cumsum(fell)])
    risen = values[last] - values[first] + (lost[last] - lost[first])
    seconds = (one.times_ms[last] - one.times_ms[first]) / 1000
    apart = seconds / (last - first)
    before, after = (one.times_ms[first] - (at - window_ms)) / 1000, (at - one.times_ms[last]) / 1000
    with np.errstate(divide="ignore", invalid="ignore"):
        from_zero = seconds * (values[first] / risen)  # a counter that rises so fast was not there before it was 0
    before = np.where((risen > 0) & (values[first] >= 0) & (from_zero < before), from_zero, before)
    most = apart * 1.1
    covered = seconds + np.where(before < most, before, apart / 2) + np.where(after < most, after, apart / 2)
    found[there] = risen * (covered / seconds / (window_ms / 1000))
    return found


def _rates(slo: Slo, chosen: Selector, series: Iterable[Series], times: Times, window_ms: int) -> dict[Group, Floats]:
    """Return the sums of rates by the objective's labels."""
    return _summed(slo, ((one.labels, rate(one, times, window_ms)) for one in series if chosen.matches(one.labels)))


def _summed(slo: Slo, rates: Iterable[tuple[Mapping[str, str], Floats]]) -> dict[Group, Floats]:
    """Return the sums of what has the same values of the objective's labels, without groups that have nothing."""
    found: dict[Group, Floats] = {}
    for labels, own in rates:
        group = _group(labels, slo.by)
        found[group] = _added(found[group], own) if group in found else own
    return {group: values for group, values in found.items() if not np.isnan(values).all()}


def _of_histogram(
    slo: Slo, indicator: AtMost | MoreThan, series: ByMetric, times: Times, window_ms: int
) -> tuple[dict[Group, Floats], dict[Group, Floats]]:
    """Return the events whose series has the bucket of the bound, since of others nothing is known, and those in the bucket."""
    chosen = indicator.histogram
    counts = {_without_bound(one.labels): one for one in series.get(f"{chosen.metric}_count", ()) if chosen.matches(one.labels)}
    buckets = {
        _without_bound(one.labels): one
        for one in series.get(f"{chosen.metric}_bucket", ())
        if chosen.matches(one.labels) and float(one.labels["le"]) == indicator.bound
    }
    within = {key: _of_bucket(one, counts.get(key), times, window_ms) for key, one in buckets.items()}
    total = (
        (one.labels, np.where(np.isnan(within[key]), np.nan, rate(one, times, window_ms)))
        for key, one in counts.items()
        if key in within
    )
    return _summed(slo, total), _summed(slo, ((buckets[key].labels, own) for key, own in within.items()))


def _of_bucket(bucket: Series, count: Series | None, times: Times, window_ms: int) -> Floats:
    """Return the rate of a bucket, none where it was not there a window ago, or not in each scrape that its count was in."""
    known = instant(bucket, times - window_ms)[1]
    if count is not None:
        known &= _samples(bucket, times, window_ms) == _samples(count, times, window_ms)
    return np.where(known, rate(bucket, times, window_ms), np.nan)


def _samples(one: Series, times: Times, window_ms: int) -> Times:
    """Return how many samples a series has in the window before each time."""
    return np.searchsorted(one.times_ms, times, side="right") - np.searchsorted(one.times_ms, times - window_ms, side="left")


def _of_part(slo: Slo, ratio: Ratio, series: ByMetric, times: Times, window_ms: int) -> dict[Group, Floats]:
    """Return the rates of the other metric of a ratio; none where a counter of good events ended, and none of the total did."""
    part = Selector(ratio.other_metric)
    rates = _rates(slo, part, series.get(part.metric, ()), times, window_ms)
    if ratio.good is None:
        return rates
    ended = _ended(slo, part, series, times, window_ms)
    of_total = _ended(slo, ratio.total, series, times, window_ms)
    never = np.zeros(len(times), dtype=np.bool_)
    return {
        group: np.where(ended.get(group, never) & ~of_total.get(group, never), np.nan, values) for group, values in rates.items()
    }


def _ended(slo: Slo, chosen: Selector, series: ByMetric, times: Times, window_ms: int) -> dict[Group, Flags]:
    """Return the groups in which a series had a sample within the window before each time, and is not there then."""
    found: dict[Group, Flags] = {}
    for one in series.get(chosen.metric, ()):
        if chosen.matches(one.labels):
            flags = (_samples(one, times, window_ms) > 0) & ~instant(one, times)[1]
            group = _group(one.labels, slo.by)
            found[group] = found[group] | flags if group in found else flags
    return found


def _without_bound(labels: Mapping[str, str]) -> _Key:
    return tuple(sorted((label, value) for label, value in labels.items() if label != "le" and value))


def _where(one: Mapping[Group, Floats], other: Mapping[Group, Floats]) -> dict[Group, Floats]:
    """Return what one has where the other has something too."""
    return {group: np.where(np.isnan(other[group]), np.nan, values) for group, values in one.items() if group in other}


def _added(one: Floats, other: Floats) -> Floats:
    return np.where(np.isnan(one), other, np.where(np.isnan(other), one, one + other))


def _or(one: Mapping[Group, Floats], other: Mapping[Group, Floats]) -> dict[Group, Floats]:
    """Return what one has, and where it has nothing what the other has."""
    found = {**other, **one}
    for group in one.keys() & other.keys():
        found[group] = np.where(np.isnan(one[group]), other[group], one[group])
    return found


def _without(total: Mapping[Group, Floats], good: Mapping[Group, Floats]) -> dict[Group, Floats]:
    """Return the events that are not good, where there are events."""
    return {
        group: np.maximum(counted - np.nan_to_num(good[group]), 0.0) if group in good else counted.copy()
        for group, counted in total.items()
    }


def _group(labels: Mapping[str, str], by: Sequence[str]) -> Group:
    return tuple(labels.get(label, "") for label in by)


# --- slices of time -----------------------------------------------------------------------------------------------------------


def instant(one: Series, times: Times) -> tuple[Floats, Flags]:
    """Return the value that a gauge has at each time, and whether it has one."""
    if not len(one.times_ms):
        return np.full(len(times), np.nan), np.zeros(len(times), dtype=np.bool_)
    last = np.searchsorted(one.times_ms, times, side="right") - 1
    held = np.maximum(last, 0)
    there = (last >= 0) & (one.times_ms[held] >= times - LOOKBACK_MS)
    if len(one.ends_ms):
        gone = np.searchsorted(one.ends_ms, times, side="right") - 1
        there &= (gone < 0) | (one.ends_ms[np.maximum(gone, 0)] < one.times_ms[held])
    return one.values[held], there


@dataclass(slots=True)
class _Reduced:
    """One value for each entity; NaN also where it has none, which `there` tells apart."""

    value: Floats
    there: Flags


def _reduce(
    chosen: Selector, by: Sequence[str], series: Iterable[Series], times: Times, *, least: bool = False, now: Floats | None = None
) -> dict[Group, _Reduced]:
    """Return `max by` or `min by`; with `now` (Unix seconds) of the time since the value."""
    pick = np.fmin if least else np.fmax
    found: dict[Group, _Reduced] = {}
    for one in series:
        if not chosen.matches(one.labels):
            continue
        value, there = instant(one, times)
        value = np.where(there, value if now is None else now - value, np.nan)
        group = _group(one.labels, by)
        if (held := found.get(group)) is None:
            found[group] = _Reduced(value, there)
        else:
            held.value, held.there = pick(held.value, value), held.there | there
    return found


def _open(gate: Gate, series: ByMetric, times: Times, timing: Timing) -> dict[Group, Flags]:
    """Return when the gate of each entity is open."""
    of_gate = series.get(gate.selector.metric, ())
    now = {group: one.value == 1 for group, one in _reduce(gate.selector, gate.on, of_gate, times).items()}
    if not gate.since_seconds:
        return now
    since = round(timing.scaled(gate.since_seconds) * 1000)
    before = _reduce(gate.selector, gate.on, of_gate, times - since)
    return {group: flags & (before[group].value == 1) for group, flags in now.items()}


def _slices(
    slo: Slo, slices: Slices, series: ByMetric, times: Times, timing: Timing
) -> tuple[dict[Group, Floats], dict[Group, Floats]]:
    """Return bad and total entities."""
    now = times / 1000 if slices.age else None
    of_value = series.get(slices.value.metric, ())
    entities = _reduce(slices.value, slices.by, of_value, times, least=slices.reduce == "min", now=now)
    there = {entity: one.there for entity, one in entities.items()}
    total: dict[Group, Floats] | None = None
    if slices.gate is not None:
        is_open, shut = _open(slices.gate, series, times, timing), np.zeros(len(times), dtype=np.bool_)
        for entity, flags in there.items():
            labels = dict(zip(slices.by, entity, strict=True))
            there[entity] = flags & is_open.get(_group(labels, slices.gate.on), shut)
        if slices.missing == "bad":
            total = _counted(slo, slices.gate.on, is_open, times)
    if total is None:
        total = _counted(slo, slices.by, there, times)
    bound = timing.scaled(slices.bound) if slices.age else slices.bound
    compare = _COMPARE[slices.comparison]
    good = {entity: there[entity] & compare(one.value, bound) for entity, one in entities.items()}
    return _without(total, _counted(slo, slices.by, good, times)), total


def _counted(slo: Slo, names: Sequence[str], entities: Mapping[Group, Flags], times: Times) -> dict[Group, Floats]:
    """Return how many entities there are by the objective's labels; NaN where there is none."""
    found: dict[Group, Floats] = {}
    for entity, flags in entities.items():
        group = _group(dict(zip(names, entity, strict=True)), slo.by)
        found[group] = found.get(group, np.zeros(len(times))) + flags
    return {group: np.where(counts > 0, counts, np.nan) for group, counts in found.items() if counts.any()}

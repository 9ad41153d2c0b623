"""What an objective told over recorded time, and what it would have told with another target or threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tachoscope_alerts.measure.evaluator import Events
from tachoscope_alerts.measure.events import MomentSource
from tachoscope_alerts.report.alert_replay import Replayed, lead_seconds, replay
from tachoscope_alerts.spec.burn_rate_windows import DAY, Timing
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Slices, Slo
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.catalogue import BY_NAME


def threshold_of(slo: Slo) -> float | None:
    """Return the bound of what is good, in the unit of the metric; None of a ratio of counters, which has none."""
    return slo.indicator.bound if isinstance(slo.indicator, AtMost | MoreThan | Slices) else None


def thresholds(slo: Slo) -> tuple[float, ...]:
    """Return the bounds that there are counts for; none where any number can be compared, or none."""
    indicator = slo.indicator
    metric = BY_NAME.get(indicator.histogram.metric) if isinstance(indicator, AtMost | MoreThan) else None
    return metric.buckets if metric is not None else ()


def changed(slo: Slo, *, target: float | None = None, threshold: float | None = None) -> Slo:
    """Return the objective with another target, a ratio, or another threshold; with that it has a name of its own.

    What rules recorded of the objective was counted at its own threshold, and is not to be taken for the other.

    Raises:
        TachoscopeError: the target is none, the objective has no threshold, or nothing was counted at this one.
    """
    if target is not None:
        if not 0.0 < target < 1.0:
            raise TachoscopeError(f"a target of {target * 100:g} % cannot be judged", fix="choose one between 0 and 100 %")
        slo = replace(slo, target=target)
    if threshold is None or threshold == threshold_of(slo):
        return slo
    if not isinstance(slo.indicator, AtMost | MoreThan | Slices):
        raise TachoscopeError(f"{slo.name} counts events by counters and has no threshold", fix="change its target")
    known = thresholds(slo)
    if known and threshold not in known:
        bounds = ", ".join(f"{bound:g}" for bound in known)
        raise TachoscopeError(f"nothing was counted at {threshold:g}", fix=f"choose a boundary of the histogram: {bounds}")
    if not math.isfinite(threshold):
        raise TachoscopeError(f"a threshold of {threshold} cannot be judged", fix="choose a number")
    return replace(slo, name=f"{slo.name}-at-{threshold:g}", indicator=replace(slo.indicator, bound=threshold))


@dataclass(frozen=True, slots=True)
class Variant:
    """An objective as it is, or changed. `threshold`: see `threshold_of`. budgets: one for each set of its labels."""

    target: float
    threshold: float | None
    budgets: tuple[Replayed, ...]


@dataclass(frozen=True, slots=True)
class Backtest:
    """What an objective told, and would have told with a change, from `start` to `end`, Unix seconds.

    Attributes:
        recorded_since: the first evaluation with events, of the time that alerts look back to as well; None: there are none.
        period_days: the objective's own. notes: what of the source could not be read, or needs to be known.
    """

    objective: str
    alert: str
    source: str
    start: float
    end: float
    period_days: float
    recorded_since: float | None
    committed: Variant
    changed: Variant
    notes: tuple[str, ...] = ()
    schema: int = 1


def window(end: float, days: float, timing: Timing) -> tuple[float, float]:
    """Return the window of so many days that ends with the last evaluation up to `end`, Unix seconds."""
    last = math.floor(end / timing.interval) * timing.interval
    return last - max(round(days * DAY / timing.interval), 1) * timing.interval, last


def recorded(slo: Slo, source: MomentSource, start: float, end: float, timing: Timing) -> Events:
    """Return what `replay` needs of an objective.

    Raises:
        TachoscopeError: the source cannot be read.
    """
    return source.moments(slo, start - lead_seconds(slo, timing), end, timing)


def compared(
    slo: Slo, other: Slo, events: Events, others: Events, start: float, end: float, *, source: str, notes: tuple[str, ...] = ()
) -> Backtest:
    """Return what an objective told beside what it would have told with a change.

    Args:
        other: what `changed` made of it. events, others: as `recorded` has them; the same where the threshold is.
    """
    timing = Timing()
    measured = [np.flatnonzero(~np.isnan(rows)) for rows in events.total.values()]
    first = [int(events.times_ms[there[0]]) / 1000 for there in measured if len(there)]
    return Backtest(
        objective=slo.name,
        alert=slo.alert,
        source=source,
        start=start,
        end=end,
        period_days=slo.period_days,
        recorded_since=min(first, default=None),
        committed=Variant(slo.target, threshold_of(slo), tuple(replay(slo, events, start, end, timing))),
        changed=Variant(other.target, threshold_of(other), tuple(replay(other, others, start, end, timing))),
        notes=notes,
    )


def _expect_counts(other: Slo, events: Events, others: Events, source: MomentSource) -> None:
    """Raise TachoscopeError if nothing was counted at the other threshold: that is not measured, and not good."""
    if any((~np.isnan(rows)).any() for rows in events.total.values()) and not any(
        (~np.isnan(rows)).any() for rows in others.total.values()
    ):
        raise TachoscopeError(
            f"{source.name} has nothing that was counted at {threshold_of(other):g}",
            fix="choose a boundary of the histogram: `tachoscope slo check --prometheus` or `--page` names them",
        )


def backtest(
    slo: Slo, source: MomentSource, start: float, end: float, *, target: float | None = None, threshold: float | None = None
) -> Backtest:
    """Return what an objective told in a window, see `window`, beside what it would have told with a change.

    Raises:
        TachoscopeError: see `changed`; or the source cannot be read.
    """
    other, timing = changed(slo, target=target, threshold=threshold), Timing()
    events = others = recorded(slo, source, start, end, timing)
    notes = list(source.notes)
    if other.indicator != slo.indicator:
        others = recorded(other, source, start, end, timing)
        _expect_counts(other, events, others, source)
        notes += [note for note in source.notes if note not in notes]
    return compared(slo, other, events, others, start, end, source=source.name, notes=tuple(notes))

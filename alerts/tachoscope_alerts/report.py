"""Where objectives stand: attainment, what is left of the error budget, how fast it burns, and who burns it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

from tachoscope_alerts.evaluate import Group, selectors
from tachoscope_alerts.measure import Ask, Measured, Source, Sums, Window
from tachoscope_alerts.slo import AtMost, Ratio, Slices, Slo
from tachoscope_alerts.slo_report import Budget, BudgetPoint, Burn, Objective, Offender, SloReport, State
from tachoscope_alerts.windows import DAY, HOUR, Tier, Timing, tiers
from tachoscope_core.names import BY_NAME

BINS = 28
"""Points of the burn-down; of a period of 28 days one a day."""
OFFENDERS = 5
"""So many are named of each kind."""
LEAST_HISTORY = 0.25
"""A ticket tier needs so much of its long window: see the rules."""

Kind = Literal["job", "service", "host", "shard"]
_KINDS: dict[str, Kind] = {"training_job": "job", "service": "service", "instance": "host", "host": "host", "shard": "shard"}
"""Labels by which the worst are told. `instance` is the node whose agent told it; `host` is a label of some metrics."""
_WORST_FIRST: tuple[State, ...] = ("exhausted", "burning", "not_measured", "ok")


@dataclass(frozen=True, slots=True)
class _Plan:
    """The windows of an objective: those that end now by their length, and the bins of its period."""

    slo: Slo
    timing: Timing
    now: float
    period_days: float
    lengths: tuple[float, ...]
    bins: tuple[Window, ...]

    def windows(self) -> tuple[Window, ...]:
        return (*(Window(self.now - length, self.now) for length in self.lengths), *self.bins)

    def length(self, seconds: float) -> float:
        """Return a window's length as it is used: scaled, a multiple of the interval."""
        return _multiple(self.timing.scaled(seconds), self.timing)


def report(
    slos: Sequence[Slo], source: Source, now: float, *, timing: Timing | None = None, period_days: float | None = None
) -> SloReport:
    """Return how objectives stand at `now`, Unix seconds.

    Windows end at the last evaluation before `now`. Offenders are of the last day.

    Args:
        period_days: report on so long instead of each objective's period; tiers are still those of the alerts.

    Raises:
        TachoscopeError: the source cannot be read.
    """
    timing = timing or Timing()
    now = _multiple(now, timing, down=True)
    plans = [_plan(slo, now, timing, period_days or slo.period_days) for slo in slos]
    labels = [_labels(slo) for slo in slos]
    asks = [Ask(plan.slo, plan.windows()) for plan in plans]
    day = [Window(now - plan.length(DAY), now) for plan in plans]
    further = [
        Ask(replace(plan.slo, by=(*plan.slo.by, label)), (window,), only_bad=True)
        for plan, window, own in zip(plans, day, labels, strict=True)
        for label in own
    ]
    answers = source.measure([*asks, *further], timing) if asks else []
    by_label = iter(answers[len(asks) :])
    objectives = [
        _objective(plan, measured, {label: next(by_label) for label in own})
        for plan, measured, own in zip(plans, answers, labels, strict=False)
    ]
    return SloReport(time=now, source=source.name, objectives=objectives, notes=source.notes)


def _plan(slo: Slo, now: float, timing: Timing, period_days: float) -> _Plan:
    period = _multiple(timing.scaled(period_days * DAY), timing)
    seconds = {DAY, HOUR, *(length for tier in tiers(slo) for length in (tier.long_seconds, tier.short_seconds))}
    lengths = tuple(sorted({period} | {_multiple(timing.scaled(length), timing) for length in seconds}))
    edges = [_multiple(now - period * (BINS - number) / BINS, timing) for number in range(BINS + 1)]
    bins = tuple(Window(start, end) for start, end in pairwise(edges) if start < end)
    return _Plan(slo, timing, now, period_days, lengths, bins)


def _multiple(seconds: float, timing: Timing, *, down: bool = False) -> float:
    steps = seconds / timing.interval
    return (int(steps) if down else max(round(steps), 1)) * timing.interval


def _labels(slo: Slo) -> list[str]:
    """Return the labels by which the bad events of an objective can be told apart, and are not already."""
    indicator = slo.indicator
    if isinstance(indicator, Slices):
        there = set(indicator.by)
        if indicator.gate is not None and indicator.missing == "bad":
            there &= set(indicator.gate.on)
    else:
        counted = [indicator.bad] if isinstance(indicator, Ratio) and indicator.bad is not None else selectors(slo)
        there = set.intersection(*({"instance", *_catalogued(one.metric)} for one in counted))
    there -= {"instance"} if "host" in there else set()
    return [label for label in _KINDS if label in there and label not in slo.by]


def _catalogued(metric: str) -> tuple[str, ...]:
    return BY_NAME[metric].labels if metric in BY_NAME else ()


# --- one objective ------------------------------------------------------------------------------------------------------------


def _objective(plan: _Plan, measured: Measured, by_label: dict[str, Measured]) -> Objective:
    slo = plan.slo
    budgets = [_budget(plan, group, sums, by_label) for group, sums in sorted(measured.items())]
    budgets = budgets or [Budget(labels={}, state="not_measured", why=_absent(slo))]
    budgets.sort(key=lambda one: (_WORST_FIRST.index(one.state), one.left if one.left is not None else 0.0))
    return Objective(
        name=slo.name,
        title=slo.title,
        area=slo.area,
        owner=slo.owner,
        alert=slo.alert,
        target=slo.target,
        period_days=plan.period_days,
        unit=_unit(slo),
        budgets=budgets,
    )


def _absent(slo: Slo) -> str:
    """Return what there must be for there to be events, and was not."""
    indicator = slo.indicator
    if isinstance(indicator, Slices):
        gate = indicator.gate.selector.metric if indicator.gate is not None else ""
        if gate and indicator.missing == "bad":
            return f"{gate} was 1 at no time of the period"
        return f"no samples of {indicator.value.metric}{f' while {gate} was 1' if gate else ''} in the period"
    return f"no samples of {selectors(slo)[0].metric} in the period"


def _unit(slo: Slo) -> Literal["events", "seconds"]:
    indicator = slo.indicator
    counted = indicator.total.metric if isinstance(indicator, Ratio) else ""
    is_time = isinstance(indicator, Slices) or (not isinstance(indicator, AtMost) and counted.endswith("_seconds_total"))
    return "seconds" if is_time else "events"


def _budget(plan: _Plan, group: Group, sums: list[Sums], by_label: dict[str, Measured]) -> Budget:
    slo, interval = plan.slo, plan.timing.interval
    labels = dict(zip(slo.by, group, strict=True))
    of_length = dict(zip(plan.lengths, sums, strict=False))
    period_seconds = plan.length(plan.period_days * DAY)
    period = of_length[period_seconds]
    day, hour = of_length[plan.length(DAY)], of_length[plan.length(HOUR)]
    coverage = min(period.evaluations * interval / period_seconds, 1.0)
    recent = hour.evaluations > 0
    if period.error_ratio is None:
        why = "no events in the period" if period.evaluations else _absent(slo)
        return Budget(labels=labels, state="not_measured", why=why, coverage=coverage, recent=recent)
    left = 1.0 - period.error_ratio / slo.budget
    burns = [_burn(plan, tier, of_length) for tier in tiers(slo)]
    return Budget(
        labels=labels,
        state="exhausted" if left <= 0 else "burning" if any(burn.fires for burn in burns) else "ok",
        attainment=1.0 - period.error_ratio,
        attainment_day=None if day.error_ratio is None else 1.0 - day.error_ratio,
        bad=period.bad * interval,
        total=period.total * interval,
        left=left,
        coverage=coverage,
        recent=recent,
        burns=burns,
        offenders=_offenders(group, interval, by_label),
        burn_down=_burn_down(plan, period, sums[len(plan.lengths) :]),
    )


def _burn(plan: _Plan, tier: Tier, of_length: dict[float, Sums]) -> Burn:
    slo = plan.slo
    seconds = plan.length(tier.long_seconds)
    long, short = of_length[seconds], of_length[plan.length(tier.short_seconds)]
    factors = [None if one.error_ratio is None else one.error_ratio / slo.budget for one in (long, short)]
    threshold = tier.threshold(slo) / slo.budget
    enough = long.bad * plan.timing.interval >= slo.least_bad_events
    if tier.severity == "ticket":
        enough &= long.evaluations >= LEAST_HISTORY * seconds / plan.timing.interval
    return Burn(
        severity=tier.severity,
        long_seconds=tier.long_seconds,
        short_seconds=tier.short_seconds,
        threshold=threshold,
        long=factors[0],
        short=factors[1],
        fires=enough and all(factor is not None and factor > threshold for factor in factors),
    )


def _offenders(group: Group, interval: float, by_label: dict[str, Measured]) -> list[Offender]:
    found = []
    for label, measured in by_label.items():
        bad = {of[-1]: sums[0].bad * interval for of, sums in measured.items() if of[:-1] == group and of[-1] and sums[0].bad > 0}
        whole = sum(sums[0].bad for of, sums in measured.items() if of[:-1] == group) * interval
        worst = sorted(bad.items(), key=lambda item: (-item[1], item[0]))[:OFFENDERS]
        found += [Offender(kind=_KINDS[label], value=name, bad=count, share=count / whole) for name, count in worst]
    return found


def _burn_down(plan: _Plan, period: Sums, bins: Sequence[Sums]) -> list[BudgetPoint]:
    """Return what was left of the period's budget after each bin, of all that the period allows."""
    allowed = period.total * plan.slo.budget
    spent = accumulate((one.bad for one in bins), initial=0.0)
    measured = [bool(bins) and bins[0].evaluations > 0, *(one.evaluations > 0 for one in bins)]
    times = [plan.bins[0].start, *(one.end for one in plan.bins)]
    return [
        BudgetPoint(time=time, left=1.0 - bad / allowed, measured=there)
        for time, bad, there in zip(times, spent, measured, strict=True)
    ]

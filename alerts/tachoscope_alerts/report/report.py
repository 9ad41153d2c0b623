"""Where objectives stand: attainment, what is left of the error budget, how fast it burns, and who burns it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

from tachoscope_alerts.compile.rules import HISTORY, least_bad
from tachoscope_alerts.measure.evaluator import Group, selectors
from tachoscope_alerts.measure.events import Ask, EventSource, EventSums, Measured, Window
from tachoscope_alerts.report.schema import Budget, BudgetPoint, Burn, Objective, Offender, SloReport, State
from tachoscope_alerts.spec.burn_rate_windows import DAY, HOUR, Tier, Timing, duration, tiers
from tachoscope_alerts.spec.slo import Gate, Ratio, Slices, Slo
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import IDENTITY

BINS = 28
"""Points of the burn-down; of a period of 28 days one a day."""
OFFENDERS = 5
"""So many are named of each kind."""

Kind = Literal["job", "service", "host", "instance", "shard"]
_KINDS: dict[str, Kind] = {"training_job": "job", "service": "service", "instance": "instance", "host": "host", "shard": "shard"}
"""Labels by which the worst are told. `instance` is the node whose agent told it; `host` is a label of some metrics."""
_LABELS = {"training_job": "job", "gpu": "GPU"}
_RUNS = "tachoscope_job_active"
_OF_RANKS = {"tachoscope_job_held_seconds_total", "tachoscope_time_seconds_total"}
_RARE = {
    "tachoscope_jobs_finished_total": ": an attempt is counted up to 30 s after its end, by an agent that still runs then on the "
    "node of rank 0 (that of a demo ends with its job)"
}
"""What to know of metrics that may be at 0 though something happened."""
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


@dataclass(frozen=True, slots=True)
class _WorstOffenders:
    """The bad events of an objective by each kind of offender. raw: from other series than those of its budgets."""

    by_kind: dict[Kind, Measured]
    raw: bool


def report(
    slos: Sequence[Slo], source: EventSource, now: float, *, timing: Timing | None = None, period_days: float | None = None
) -> SloReport:
    """Return how objectives stand at `now`, Unix seconds.

    Windows end at the last evaluation before `now`. Offenders are of the last day, or of the period where it is shorter.

    Args:
        period_days: report on so long instead of each objective's period; tiers are still those of the alerts.

    Raises:
        TachoscopeError: the source cannot be read.
    """
    timing = timing or Timing()
    now = _multiple(now, timing, down=True)
    plans = [_plan(slo, now, timing, period_days or slo.period_days) for slo in slos]
    labels = [offender_labels(slo) for slo in slos]
    asks = [Ask(plan.slo, plan.windows()) for plan in plans]
    day = [Window(now - plan.length(min(plan.period_days, 1.0) * DAY), now) for plan in plans]
    further = [
        Ask(replace(plan.slo, by=(*plan.slo.by, label)), (window,), only_bad=True)
        for plan, window, own in zip(plans, day, labels, strict=True)
        for label in own
    ]
    answers = source.measure([*asks, *further], timing) if asks else []
    by_label = iter(answers[len(asks) :])
    kinds = _KINDS | {"instance": source.instance}
    objectives = [
        _objective(
            plan, measured, _WorstOffenders({kinds[label]: next(by_label) for label in own}, plan.slo.name in source.raw_only_bad)
        )
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


def offender_labels(slo: Slo) -> list[str]:
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


def _objective(plan: _Plan, measured: Measured, worst: _WorstOffenders) -> Objective:
    slo = plan.slo
    budgets = [_budget(plan, group, sums, worst) for group, sums in sorted(measured.items())]
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
        summed_over=_summed_over(slo),
        budgets=budgets,
    )


def _absent(slo: Slo) -> str:
    """Return what there must be for there to be events, and was not."""
    indicator = slo.indicator
    if isinstance(indicator, Slices):
        if indicator.gate is not None and indicator.missing == "bad":
            return _never_open(indicator.gate)
        gate = f" while {indicator.gate.selector.metric} was 1{_since(indicator.gate)}" if indicator.gate is not None else ""
        return f"no samples of {indicator.value.metric}{gate} in the period"
    return f"no samples of {selectors(slo)[0].metric} in the period"


def _never_open(gate: Gate) -> str:
    metric = gate.selector.metric
    if metric == _RUNS:
        return f"no job ran{_since(gate)} in the period, by {metric}"
    return f"{metric} was 1{_since(gate)} at no time of the period"


def _since(gate: Gate) -> str:
    return f" for over {_rounded_duration(gate.since_seconds)}" if gate.since_seconds else ""


def _rounded_duration(seconds: float) -> str:
    """Return a length of time, cut to whole minutes or hours where it is long."""
    unit = HOUR if seconds >= 10 * HOUR else 60.0 if seconds >= 120 else 1.0
    return duration(seconds // unit * unit)


def _without_events(slo: Slo) -> str:
    """Return what to know where there were samples, and they counted nothing."""
    return f"no events in the period{_RARE.get(selectors(slo)[0].metric, '')}"


def _unit(slo: Slo) -> Literal["events", "seconds"]:
    indicator = slo.indicator
    counted = indicator.total.metric if isinstance(indicator, Ratio) else ""
    return "seconds" if isinstance(indicator, Slices) or counted.endswith("_seconds_total") else "events"


def _summed_over(slo: Slo) -> str:
    """Return whose seconds are counted: a second of two ranks is two."""
    indicator = slo.indicator
    if isinstance(indicator, Slices):
        own = [label for label in indicator.by if label not in IDENTITY]
        return f"{_LABELS.get(own[0], own[0])}s" if own else ""
    return "ranks" if isinstance(indicator, Ratio) and indicator.total.metric in _OF_RANKS else ""


def _budget(plan: _Plan, group: Group, sums: list[EventSums], worst: _WorstOffenders) -> Budget:
    slo, interval = plan.slo, plan.timing.interval
    labels = slo.labels_of(group)
    of_length = dict(zip(plan.lengths, sums, strict=False))
    period_seconds = plan.length(plan.period_days * DAY)
    period = of_length[period_seconds]
    day, hour = of_length[plan.length(DAY)], of_length[plan.length(HOUR)]
    coverage = min(period.evaluations * interval / period_seconds, 1.0)
    recent = hour.evaluations > 0
    if period.error_ratio is None:
        why = _without_events(slo) if period.evaluations else _absent(slo)
        return Budget(labels=labels, state="not_measured", why=why, coverage=coverage, recent=recent)
    left = 1.0 - period.error_ratio / slo.budget
    burns = [_burn(plan, tier, of_length) for tier in tiers(slo)]
    return Budget(
        labels=labels,
        state="exhausted" if left <= 0 else "burning" if any(burn.fires for burn in burns) else "ok",
        attainment=1.0 - period.error_ratio,
        attainment_day=None if day.error_ratio is None or plan.period_days < 1 else 1.0 - day.error_ratio,
        bad=period.bad * interval,
        total=period.total * interval,
        left=left,
        coverage=coverage,
        recent=recent,
        burns=burns,
        offenders=_offenders(group, interval, worst.by_kind),
        raw_offenders=worst.raw,
        burn_down=_burn_down(plan, period, sums[len(plan.lengths) :]),
    )


def _burn(plan: _Plan, tier: Tier, of_length: dict[float, EventSums]) -> Burn:
    slo = plan.slo
    seconds = plan.length(tier.long_seconds)
    long, short = of_length[seconds], of_length[plan.length(tier.short_seconds)]
    factors = [None if one.error_ratio is None else one.error_ratio / slo.budget for one in (long, short)]
    threshold = tier.threshold(slo) / slo.budget
    above = all(factor is not None and factor > threshold for factor in factors)
    held = []
    if tier.severity == "ticket" and long.evaluations < HISTORY * seconds / plan.timing.interval:
        history = long.evaluations * plan.timing.interval
        held.append(f"needs {_rounded_duration(HISTORY * seconds)} of history, has {_rounded_duration(history)}")
    if long.bad * plan.timing.interval < least_bad(slo, plan.timing):
        what = "minutes" if isinstance(slo.indicator, Slices) else "events"
        held.append(f"needs {slo.least_bad_events:g} bad {what}")
    return Burn(
        severity=tier.severity,
        long_seconds=tier.long_seconds,
        short_seconds=tier.short_seconds,
        threshold=threshold,
        long=factors[0],
        short=factors[1],
        fires=above and not held,
        held=" and ".join(held) if above else "",
    )


def _offenders(group: Group, interval: float, by_kind: dict[Kind, Measured]) -> list[Offender]:
    found = []
    for kind, measured in by_kind.items():
        bad = {of[-1]: sums[0].bad * interval for of, sums in measured.items() if of[:-1] == group and of[-1] and sums[0].bad > 0}
        whole = sum(sums[0].bad for of, sums in measured.items() if of[:-1] == group) * interval
        worst = sorted(bad.items(), key=lambda item: (-item[1], item[0]))[:OFFENDERS]
        found += [Offender(kind=kind, value=name, bad=count, of=whole, share=count / whole) for name, count in worst]
    return found


def _burn_down(plan: _Plan, period: EventSums, bins: Sequence[EventSums]) -> list[BudgetPoint]:
    """Return what was left of the period's budget after each bin, of all that the period allows."""
    allowed = period.total * plan.slo.budget
    spent = accumulate((one.bad for one in bins), initial=0.0)
    measured = [bool(bins) and bins[0].evaluations > 0, *(one.evaluations > 0 for one in bins)]
    times = [plan.bins[0].start, *(one.end for one in plan.bins)]
    return [
        BudgetPoint(time=time, left=1.0 - bad / allowed, measured=there)
        for time, bad, there in zip(times, spent, measured, strict=True)
    ]

"""Prometheus rules of an objective: what it counts, its ratios over windows, what is left of its budget, and its burn-rate alerts.

Three groups, of which only the first reads raw series, each of them once or twice: it counts the events, and sums them over
windows up to six hours. The second sums what the first recorded since its own last evaluation, the third these sums by the half
hour. A day is made of the former, and longer windows and the period of the latter: what is left of the budget is up to half an
hour old.
"""

from __future__ import annotations

from typing import Any

from tachoscope_alerts.compile.annotations import annotations_of
from tachoscope_alerts.compile.sli_expressions import (
    BAD,
    BUDGET_REMAINING,
    ERROR_RATIO,
    LONG_SUMS,
    MOMENTS,
    OBJECTIVE,
    SUMS,
    TOTAL,
    UNMEASURED,
    RecordedLevel,
    budget_remaining,
    error_ratio,
    level,
    number,
    of_parts,
    parts,
    recorded,
    summed,
)
from tachoscope_alerts.spec.burn_rate_windows import DAY, HOUR, RAW_LIMIT_SECONDS, Tier, Timing, duration, tiers
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Slices, Slo

Rule = dict[str, Any]
Group = dict[str, Any]

LOOKED_AT_SECONDS = (HOUR / 12, HOUR, DAY, 3 * DAY)
"""Windows that are recorded of every objective whose period is as long, whichever its tiers are: those of the boards."""
SUFFIXES = ("", "-long", "-budget")
"""Of the names of an objective's groups, in the order in which one reads the other."""
KEEP_FIRING_SECONDS = 300.0
"""An alert that clears and returns within this is one alert. There is no `for`, which one good evaluation would set back."""
HISTORY = 0.25
"""Part of its long window before which a ticket needs to know of events: of a new service each window is only that long."""


def groups(slo: Slo, policy: Policy, timing: Timing) -> list[Group]:
    """Return the rule groups of an objective, as a rule file has them."""
    windows, period = windows_of(slo), slo.period_days * DAY
    fast = [*_events(slo, timing), _rule(slo, OBJECTIVE, f"vector({number(slo.target)})")]
    fast += [_ratio(slo, window, timing) for window in windows if window <= RAW_LIMIT_SECONDS]
    slow = _sums(slo, MOMENTS, SUMS, timing.slow_interval)
    slow += [_ratio(slo, window, timing) for window in windows if window > RAW_LIMIT_SECONDS]
    # Here, and not among the sums that it is made of, so that an instant query always finds it.
    slow.append(_rule(slo, BUDGET_REMAINING, budget_remaining(slo, timing.scaled(period), level(period, timing))))
    for tier in tiers(slo):
        (fast if tier.long_seconds <= RAW_LIMIT_SECONDS else slow).append(alert(slo, tier, policy, timing))
    sums = _sums(slo, SUMS, LONG_SUMS, timing.budget_interval)
    intervals = (timing.interval, timing.slow_interval, timing.budget_interval)
    return [
        {"name": f"{slo.name}{suffix}", "interval": duration(interval), "rules": rules}
        for suffix, interval, rules in zip(SUFFIXES, intervals, (fast, slow, sums), strict=True)
    ]


def windows_of(slo: Slo) -> list[float]:
    """Return the windows in seconds, not scaled, over which the ratio of an objective is recorded, the shortest first."""
    used = {seconds for tier in tiers(slo) for seconds in (tier.long_seconds, tier.short_seconds)}
    return sorted(used | {seconds for seconds in LOOKED_AT_SECONDS if seconds <= slo.period_days * DAY})


def alert(slo: Slo, tier: Tier, policy: Policy, timing: Timing) -> Rule:
    """Return the alert of a tier. Its labels `long` and `short`, as `window`, name the windows as they are without scaling."""
    labels = {"severity": tier.severity, "area": slo.area, "slo": slo.name, "owner": slo.owner}
    return {
        "alert": slo.alert,
        "expr": " and ignoring (window)\n".join(_conditions(slo, tier, timing)),
        "keep_firing_for": duration(timing.scaled(KEEP_FIRING_SECONDS)),
        "labels": labels | {"long": duration(tier.long_seconds), "short": duration(tier.short_seconds)},
        "annotations": annotations_of(slo, tier, policy, timing),
    }


def least_bad(slo: Slo, timing: Timing) -> float:
    """Return how many bad events the long window needs before anybody is told; of slices the seconds of bad entities.

    Events are few or many however long the window is, and are not scaled; time is. A spec says the minutes of slices.
    """
    if isinstance(slo.indicator, Slices):
        return slo.least_bad_events * 60 * timing.scale
    return slo.least_bad_events


def _conditions(slo: Slo, tier: Tier, timing: Timing) -> list[str]:
    threshold = number(tier.threshold(slo))
    found = [f"{_recorded_ratio(slo, seconds)} > {threshold}" for seconds in (tier.long_seconds, tier.short_seconds)]
    long_seconds, of = timing.scaled(tier.long_seconds), level(tier.long_seconds, timing)
    if slo.least_bad_events:
        # The recorded events are a second's, or of slices the entities: each stands for an interval, alone or in a sum.
        bad = f"{summed(of.bad, slo, long_seconds)} * {number(timing.interval)}"
        found.append(f"{bad} >= {number(least_bad(slo, timing))}")
    if tier.severity == "ticket":
        needed = HISTORY * long_seconds
        found.append(f"present_over_time({recorded(of.total, slo)}[{duration(long_seconds - needed)}] offset {duration(needed)})")
    return found


def _recorded_ratio(slo: Slo, window_seconds: float) -> str:
    return recorded(ERROR_RATIO, slo, window=duration(window_seconds))


def _events(slo: Slo, timing: Timing) -> list[Rule]:
    found = [_rule(slo, name, expression) for name, expression in parts(slo, timing).items()]
    events = of_parts(slo, timing)
    found += [_rule(slo, TOTAL, events.total), _rule(slo, BAD, events.bad)]
    return [*found, _rule(slo, UNMEASURED, events.unmeasured)] if events.unmeasured else found


def _sums(slo: Slo, of: RecordedLevel, into: RecordedLevel, seconds: float) -> list[Rule]:
    """Return the sums of what was recorded since the last evaluation of the group, whose interval is `seconds`.

    The range is a millisecond shorter: Prometheus 2 takes both its ends, 3 only the later, and nothing is to be in two sums, or the
    least number of bad events would be reached too soon. Of what is missed (written the moment after it is summed, or the server is
    down when a sum is due) bad and total are missed alike: the ratios lose a few minutes, and lean to neither side.
    """
    return [_rule(slo, name, summed(source, slo, seconds - 0.001)) for source, name in zip(of, into, strict=True)]


def _ratio(slo: Slo, window_seconds: float, timing: Timing) -> Rule:
    expression = error_ratio(slo, timing.scaled(window_seconds), level(window_seconds, timing))
    return _rule(slo, ERROR_RATIO, expression, window=duration(window_seconds))


def _rule(slo: Slo, name: str, expression: str, **labels: str) -> Rule:
    return {"record": name, "expr": expression, "labels": {"slo": slo.name, "area": slo.area, **labels}}

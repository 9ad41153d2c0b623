"""Prometheus rules of an objective: what it counts, its ratios over windows, what is left of its budget, and its burn-rate alerts.

Two groups. The first counts the events of the raw series and, in the same evaluation, sums them over windows up to six hours; the
second reads nothing but what the first has recorded, and covers days.
"""

from __future__ import annotations

from typing import Any

from tachoscope_alerts.expressions import (
    BAD,
    BUDGET_REMAINING,
    ERROR_RATIO,
    OBJECTIVE,
    TOTAL,
    bad_events,
    budget_remaining,
    error_ratio,
    recorded,
    total_events,
)
from tachoscope_alerts.policy import Policy
from tachoscope_alerts.slo import Slices, Slo
from tachoscope_alerts.windows import DAY, HOUR, RAW_LIMIT_SECONDS, Tier, Timing, duration, tiers
from tachoscope_alerts.wording import annotations_of

Rule = dict[str, Any]
Group = dict[str, Any]

LOOKED_AT_SECONDS = (HOUR / 12, HOUR)
"""Windows that are recorded of every objective, whichever its tiers are: the first that people look at."""
KEEP_FIRING_SECONDS = 300.0
"""An alert that clears and returns within this is one alert. There is no `for`, which one good evaluation would set back."""
HISTORY = 0.25
"""Part of its long window before which a ticket needs to know of events: of a new service each window is only that long."""


def groups(slo: Slo, policy: Policy, timing: Timing) -> list[Group]:
    """Return the rule groups of an objective, as a rule file has them."""
    windows = windows_of(slo)
    fast = [*_events(slo, timing), _rule(slo, OBJECTIVE, f"vector({slo.target:g})")]
    fast += [_ratio(slo, window, timing) for window in windows if window <= RAW_LIMIT_SECONDS]
    slow = [_ratio(slo, window, timing) for window in windows if window > RAW_LIMIT_SECONDS]
    slow.append(_rule(slo, BUDGET_REMAINING, budget_remaining(slo, timing.scaled(slo.period_days * DAY))))
    for tier in tiers(slo):
        (fast if tier.long_seconds <= RAW_LIMIT_SECONDS else slow).append(alert(slo, tier, policy, timing))
    return [
        {"name": slo.name, "interval": duration(timing.interval), "rules": fast},
        {"name": f"{slo.name}-long", "interval": duration(timing.slow_interval), "rules": slow},
    ]


def windows_of(slo: Slo) -> list[float]:
    """Return the windows in seconds, not scaled, over which the ratio of an objective is recorded, the shortest first."""
    used = {seconds for tier in tiers(slo) for seconds in (tier.long_seconds, tier.short_seconds)}
    return sorted(used | set(LOOKED_AT_SECONDS))


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
    threshold = f"{tier.threshold(slo):g}"
    found = [f"{_recorded_ratio(slo, seconds)} > {threshold}" for seconds in (tier.long_seconds, tier.short_seconds)]
    long_seconds = timing.scaled(tier.long_seconds)
    if slo.least_bad_events:
        # The recorded events are a second's, or of slices the entities: each stands for an interval.
        bad = f"sum_over_time({recorded(BAD, slo)}[{duration(long_seconds)}]) * {timing.interval:g}"
        found.append(f"{bad} >= {least_bad(slo, timing):g}")
    if tier.severity == "ticket":
        needed = HISTORY * long_seconds
        found.append(f"present_over_time({recorded(TOTAL, slo)}[{duration(long_seconds - needed)}] offset {duration(needed)})")
    return found


def _recorded_ratio(slo: Slo, window_seconds: float) -> str:
    return recorded(ERROR_RATIO, slo, window=duration(window_seconds))


def _events(slo: Slo, timing: Timing) -> list[Rule]:
    return [_rule(slo, TOTAL, total_events(slo, timing)), _rule(slo, BAD, bad_events(slo, timing))]


def _ratio(slo: Slo, window_seconds: float, timing: Timing) -> Rule:
    return _rule(slo, ERROR_RATIO, error_ratio(slo, timing.scaled(window_seconds)), window=duration(window_seconds))


def _rule(slo: Slo, name: str, expression: str, **labels: str) -> Rule:
    return {"record": name, "expr": expression, "labels": {"slo": slo.name, "area": slo.area, **labels}}

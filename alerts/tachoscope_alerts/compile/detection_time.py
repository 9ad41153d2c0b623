"""How long an outage lasts before somebody is told, and an alert after its end, by the arithmetic of windows.

With full history and steady traffic, a ratio e of bad events brings a window W to the threshold T after T * W / e; one below the
threshold never does (SRE Workbook, chapter 5). What is added: events are rates over the base window, which smears begin and
end of an outage, and nothing is seen before the next evaluation, nor in a window of three days before the next sum of half an hour.
Knows nothing of how long a notification waits after that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from tachoscope_alerts.compile.rules import KEEP_FIRING_SECONDS
from tachoscope_alerts.compile.sli_expressions import LONG_SUMS, level, number
from tachoscope_alerts.spec.burn_rate_windows import DAY, HOUR, RAW_LIMIT_SECONDS, Tier, Timing, duration, tiers
from tachoscope_alerts.spec.slo import Severity, Slices, Slo

NEVER = math.inf
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True, slots=True)
class Outage:
    """A ratio of events that are bad from one moment on: `times_budget` of what the objective allows, or `ratio` itself."""

    title: str
    ratio: float = 0.0
    times_budget: float = 0.0

    def bad(self, slo: Slo) -> float:
        return min(self.ratio or self.times_budget * slo.budget, 1.0)


OUTAGES = (Outage("100 %", ratio=1.0), Outage("10 %", ratio=0.1), Outage("2x budget", times_budget=2.0))


@dataclass(frozen=True, slots=True)
class Detection:
    """Seconds, `NEVER` where nobody is told; each is the middle of what the moment of the evaluation makes of it.

    Attributes:
        fires: from the begin of the outage. clears: from its end, if it is fixed at the moment at which the alert fires.
        tier: that tells first.
        interval: between its evaluations: how far off both may be.
    """

    fires: float
    clears: float
    tier: Tier | None
    interval: float


def detection(slo: Slo, severity: Severity, bad: float, timing: Timing) -> Detection:
    """Return when an alert of a severity fires and clears; `bad`: ratio of bad events in the outage."""
    of_severity = [tier for tier in tiers(slo) if tier.severity == severity]
    times = {tier: fires(slo, tier, bad, timing) for tier in of_severity}
    first = min(times, key=lambda tier: times[tier], default=None)
    if first is None or times[first] == NEVER:
        return Detection(NEVER, NEVER, None, timing.interval)
    interval = evaluation_interval(first, timing)
    # Tiers that ask for the same part of the budget fire for the same outage, an evaluation or a sum apart: its end is that of all.
    together = [tier for tier, seconds in times.items() if seconds - _age(tier, timing) / 2 <= times[first] + interval]
    return Detection(times[first], max(_clears(slo, tier, bad, timing) for tier in together), first, interval)


def evaluation_interval(tier: Tier, timing: Timing) -> float:
    """Return the seconds between evaluations of a tier's alert."""
    return timing.interval if tier.long_seconds <= RAW_LIMIT_SECONDS else timing.slow_interval


def fires(slo: Slo, tier: Tier, bad: float, timing: Timing) -> float:
    """Return the seconds of an outage after which a tier's rule fires, `NEVER` if it does not."""
    threshold = tier.threshold(slo)
    if bad <= threshold:
        return NEVER
    needed = threshold / bad * timing.scaled(tier.long_seconds)  # seconds of outage within the long window; the short needs fewer
    smear = _smear(slo, timing)
    ramp = math.sqrt(2 * smear * needed) if needed < smear / 2 else needed + smear / 2
    return ramp + (evaluation_interval(tier, timing) + _age(tier, timing)) / 2


def _age(tier: Tier, timing: Timing) -> float:
    """Return the maximum age of the newest sum in the long window; one of 4 minutes is made in the same evaluation."""
    return timing.budget_interval if level(tier.long_seconds, timing) == LONG_SUMS else 0.0


def _clears(slo: Slo, tier: Tier, bad: float, timing: Timing) -> float:
    short, smear = timing.scaled(tier.short_seconds), _smear(slo, timing)
    left = tier.threshold(slo) / bad * short  # seconds of outage that may still be within the short window
    tail = smear - math.sqrt(2 * smear * left) if left < smear / 2 else smear / 2 - left
    interval = evaluation_interval(tier, timing)
    kept = math.ceil(timing.scaled(KEEP_FIRING_SECONDS) / interval - 1e-9) * interval  # it ends at an evaluation
    return tail + short + kept + interval / 2


def _smear(slo: Slo, timing: Timing) -> float:
    """Return the seconds over which an edge is smeared; 0 for gauges."""
    return 0.0 if isinstance(slo.indicator, Slices) else timing.base


# --- the table ----------------------------------------------------------------------------------------------------------------


def table(slos: Iterable[Slo], timing: Timing | None = None) -> str:
    """Return the Markdown table of all objectives and outages."""
    timing = timing or Timing()
    rows = [_row(slo, outage, timing) for slo in slos for outage in OUTAGES]
    head = "| objective | target | outage | page after | by | clears after | ticket after | by | clears after |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|---|", *rows])


def _row(slo: Slo, outage: Outage, timing: Timing) -> str:
    cells = []
    for severity in SEVERITIES:
        found = detection(slo, severity, outage.bad(slo), timing)
        by = f"{duration(found.tier.long_seconds)}/{duration(found.tier.short_seconds)}" if found.tier else ""
        cells += [in_words(found.fires), by, in_words(found.clears) if found.tier else ""]
    return f"| `{slo.name}` | {number(slo.target * 100)} % | {outage.title} | {' | '.join(cells)} |"


def in_words(seconds: float) -> str:
    """Return a time with as many digits as it is exact to: `78 s`, `8.6 min`, `33.7 h`."""
    if seconds == NEVER:
        return "never"
    if seconds < 2 * 60:
        return f"{seconds:.0f} s"
    return (
        f"{seconds / 60:.1f} min"
        if seconds < 2 * HOUR
        else f"{seconds / HOUR:.1f} h"
        if seconds < 4 * DAY
        else f"{seconds / DAY:.1f} d"
    )

"""When an alert of a fire drill has to fire and to end: the burn's own time, and what measuring may take on top. All in seconds.

The burn's time is that of the SRE Workbook, chapter 5: until the ratio of bad events over both windows passes the threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tachoscope_alerts import events, rules
from tachoscope_alerts.slo import Slo
from tachoscope_alerts.windows import RAW_LIMIT_SECONDS, Tier, Timing
from tachoscope_cli.drill_agent import TICK_SECONDS

SEEN_SECONDS = 0.5 + TICK_SECONDS
"""Until what happened is a record (a step, a request), and the agent has read it."""
_SLACK = 1.1


@dataclass(frozen=True, slots=True)
class Times:
    """Since the fault began, the least and the most until the alert fires; since its end, the most until it ends."""

    earliest: float
    latest: float
    clears: float


def of_objective(slo: Slo, fired: list[Tier], timing: Timing, *, bad_ratio: float, history: float) -> Times:
    """Return when the first of the tiers that fired had to, and when the last of them has to end.

    Args:
        bad_ratio: of events under the fault, all the time. history: at least so many seconds of good events before it.
    """
    burns = {tier: burn_seconds(slo, tier, timing, bad_ratio, math.inf) for tier in fired}
    first, slowest = min(fired, key=burns.__getitem__), max(fired, key=lambda tier: tier.short_seconds)
    ends = timing.scaled(slowest.short_seconds) + timing.scaled(rules.KEEP_FIRING_SECONDS)
    return Times(
        earliest=max(min(burn_seconds(slo, tier, timing, bad_ratio, history) for tier in fired) - timing.interval, 0.0),
        latest=_SLACK * burns[first] + _measuring(first, timing),
        clears=_SLACK * ends + _measuring(slowest, timing) + _last_evaluation(slowest, timing),
    )


def of_event(event: events.EventAlert, timing: Timing) -> Times:
    """Return when an alert had to fire that looks at the last scrape."""
    waits = timing.scaled(event.for_seconds) if event.for_seconds else 0.0
    keeps = timing.scaled(event.keep_firing_for_seconds) if event.keep_firing_for_seconds else 0.0
    measuring = 2 * timing.scrape + 2 * timing.interval
    return Times(earliest=waits, latest=_SLACK * waits + measuring, clears=_SLACK * keeps + measuring)


def burn_seconds(slo: Slo, tier: Tier, timing: Timing, bad_ratio: float, history: float) -> float:
    """Return how long so many bad events take to pass a tier's threshold in both of its windows; infinite if they never do.

    Args:
        history: seconds before it with good events only; a window is no longer than what there is.
    """
    threshold = tier.threshold(slo)
    if bad_ratio <= threshold:
        return math.inf
    return max(_passes(threshold / bad_ratio, timing.scaled(window), history) for window in (tier.long_seconds, tier.short_seconds))


def _passes(part: float, window: float, history: float) -> float:
    """Return when the bad time is that part of the window, or of all that there is."""
    with_all = part * window
    return with_all if history + with_all >= window else part * history / (1 - part)


def _measuring(tier: Tier, timing: Timing) -> float:
    """Return the most that measuring takes: the records, a scrape, the window of the rates, and two evaluations."""
    return SEEN_SECONDS + timing.scrape + timing.base + timing.interval + _last_evaluation(tier, timing)


def _last_evaluation(tier: Tier, timing: Timing) -> float:
    return timing.interval if tier.long_seconds <= RAW_LIMIT_SECONDS else timing.slow_interval

"""When an alert of a fire drill has to fire and to end: what its windows make of the fault, and what seeing it may take on top.

All in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_alerts.compile.detection_time import detection, evaluation_interval
from tachoscope_alerts.compile.event_alerts import EventAlert
from tachoscope_alerts.compile.rules import KEEP_FIRING_SECONDS
from tachoscope_alerts.spec.burn_rate_windows import Tier, Timing
from tachoscope_alerts.spec.slo import Severity, Slo
from tachoscope_cli.drill.agent import TICK_SECONDS

_SLACK = 0.1
"""Part of a computed time that it may be off by, beside one evaluation."""


@dataclass(frozen=True, slots=True)
class Times:
    """Since the fault began, the least and the most until the alert fires; since its end, the most until it ends."""

    earliest: float
    latest: float
    clears: float


def of_objective(slo: Slo, severity: Severity, fired: list[Tier], timing: Timing, *, bad_ratio: float, seen: float) -> Times:
    """Return when an objective's alert of a severity had to fire, and when the last of the tiers that did has to end.

    Args:
        bad_ratio: of events under the fault, from its begin to its end; before it, there were good ones in the whole long window.
        seen: the most that it takes until the metric says what happens.
    """
    found = detection(slo, severity, bad_ratio, timing)
    slowest = max(fired, key=lambda tier: tier.short_seconds)
    ends = timing.base + timing.scaled(slowest.short_seconds) + timing.scaled(KEEP_FIRING_SECONDS)
    return Times(
        earliest=max((1 - _SLACK) * found.fires - found.interval, 0.0),
        latest=(1 + _SLACK) * found.fires + found.interval + seen + _scraped(timing),
        clears=(1 + _SLACK) * ends + 2 * evaluation_interval(slowest, timing) + seen + _scraped(timing),
    )


def of_event(event: EventAlert, timing: Timing, *, holds: float, lasts: float, seen: float) -> Times:
    """Return when an event's alert had to fire, and to end.

    Args:
        holds: seconds, not scaled, after which its expression sees the fault. lasts: those after which it sees its end.
        seen: as of an objective.
    """
    waits = timing.scaled(holds) + (timing.scaled(event.for_seconds) if event.for_seconds else 0.0)
    ends = timing.scaled(lasts) + (timing.scaled(event.keep_firing_for_seconds) if event.keep_firing_for_seconds else 0.0)
    looks = 2 * timing.interval + seen + _scraped(timing)
    return Times(
        earliest=max((1 - _SLACK) * waits - timing.scrape - timing.interval, 0.0),
        latest=(1 + _SLACK) * waits + looks,
        clears=(1 + _SLACK) * ends + looks,
    )


def _scraped(timing: Timing) -> float:
    """Return the maximum time until Prometheus has the metric; the first scrape may be a moment too early."""
    return TICK_SECONDS + 2 * timing.scrape

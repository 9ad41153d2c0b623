"""Burn-rate tiers: how fast a budget is spent before somebody is told, and by which windows that is measured.

A factor is the part of the budget that may go within the long window, times the period over that window (SRE Workbook, chapter 5,
https://sre.google/workbook/alerting-on-slos/): 14.4 holds for 2 % in an hour of 30 days only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tachoscope_alerts.slo import Severity, Slo

HOUR, DAY = 3600.0, 86400.0
_DURATION = r"(?:\d+(?:ms|[smhdwy]))+"
_WINDOW = re.compile(rf"\[(?P<window>{_DURATION})(?::(?P<step>{_DURATION})?)?\]|\boffset\s+(?P<offset>{_DURATION})")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": HOUR, "d": DAY, "w": 7 * DAY, "y": 365 * DAY}
FEASIBLE = 0.9
"""A tier whose threshold is above this ratio of bad events would not even fire, or hardly, when everything fails."""
RAW_LIMIT_SECONDS = 6 * HOUR
"""Windows above this read recorded series only."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A pair of windows, in seconds. `part`: of the budget that is spent within the long one when the alert fires."""

    long_seconds: float
    short_seconds: float
    part: float
    severity: Severity

    def factor(self, period_seconds: float) -> float:
        """Return how many times faster than allowed the budget is spent."""
        return self.part * period_seconds / self.long_seconds

    def threshold(self, slo: Slo) -> float:
        """Return the ratio of bad events from which on it fires."""
        return self.factor(slo.period_days * DAY) * slo.budget


TIERS = (
    Tier(HOUR, HOUR / 12, 0.02, "page"),
    Tier(6 * HOUR, HOUR / 2, 0.05, "page"),
    Tier(DAY, 2 * HOUR, 0.10, "ticket"),
    Tier(3 * DAY, 6 * HOUR, 0.10, "ticket"),
)
"""Table 5-8 of the workbook, and the tier of a day that Sloth and kubernetes-mixin add. The short window is 1/12 of the long."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things last, in seconds. Scaled down, a fire drill takes minutes: `scale` of a hundredth makes an hour 36 s.

    Attributes:
        interval: between evaluations. scrape: between scrapes. Neither is scaled: they say how fast the servers really are.
    """

    interval: float = 30.0
    scrape: float = 15.0
    scale: float = 1.0

    @property
    def base(self) -> float:
        """The window of the first rates: four scrapes, so that one may be missed."""
        return 4 * self.scrape

    @property
    def slow_interval(self) -> float:
        """Return the time between evaluations of windows above `RAW_LIMIT_SECONDS`: four minutes, where the others have 30 s.

        An instant query looks back five minutes. Of what is recorded every five minutes there is nothing to be seen whenever an
        evaluation ends a moment later than the one before; of four, it may be a minute late.
        """
        return 8 * self.interval

    @property
    def budget_interval(self) -> float:
        """Return the time between the sums that three days and a period are made of: half an hour."""
        return 60 * self.interval

    def scaled(self, seconds: float) -> float:
        """Return a window of a rule as it is to be used; never shorter than two evaluations."""
        return max(seconds * self.scale, 2 * self.interval)

    def waited(self, seconds: float) -> float:
        """Return what Alertmanager waits, which evaluates nothing: in a drill two evaluations, but never longer than said."""
        return min(seconds, self.scaled(seconds))


def tiers(slo: Slo) -> list[Tier]:
    """Return the tiers that can fire for an objective; where it does not page, those of tickets only."""
    feasible = [tier for tier in TIERS if tier.threshold(slo) <= FEASIBLE]
    return [tier for tier in feasible if slo.pages or tier.severity == "ticket"]


def duration(seconds: float) -> str:
    """Return seconds as Prometheus writes them: `90s`, `5m`, `1h`, `3d`, `500ms`."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def seconds_of(text: str) -> float:
    """Return a duration of Prometheus, such as `5m` or `1h30m`, in seconds.

    Raises:
        ValueError: it is none.
    """
    parts = re.findall(r"(\d+)(ms|[smhdwy])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration")
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def scaled_expression(expression: str, timing: Timing) -> str:
    """Return an expression with its windows and offsets scaled; a window always holds the scrapes that a rate needs.

    Numbers that a series is compared with stay as they are, of seconds too: what they mean is not to be seen from here.
    """

    def scaled(match: re.Match[str]) -> str:
        if match["window"]:
            window = duration(max(seconds_of(match["window"]) * timing.scale, timing.base))
            step = duration(max(seconds_of(match["step"]) * timing.scale, timing.interval)) if match["step"] else ""
            return f"[{window}:{step}]" if ":" in match[0] else f"[{window}]"
        return f"offset {duration(seconds_of(match['offset']) * timing.scale)}"

    return _WINDOW.sub(scaled, expression)

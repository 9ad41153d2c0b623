"""Burn-rate tiers: how fast a budget is spent before somebody is told, and by which windows that is measured.

A burn rate is the part of the budget that may go within the long window, times the period over that window: 14.4 is 2 % in an hour
of 30 days, and only of 30 days (SRE Workbook, chapter 5, https://sre.google/workbook/alerting-on-slos/). So windows follow from the
period: those of a week are shorter, those of a quarter longer. They follow from the target too: where 14.4 times the budget is more
than everything, the same part of the budget is measured at a lower rate over a longer window.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tachoscope_alerts.spec.slo import Severity, Slo

HOUR, DAY = 3600.0, 86400.0
_DURATION = r"(?:\d+(?:ms|[smhdwy]))+"
_WINDOW = re.compile(rf"\[(?P<window>{_DURATION})(?::(?P<step>{_DURATION})?)?\]|\boffset\s+(?P<offset>{_DURATION})")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": HOUR, "d": DAY, "w": 7 * DAY, "y": 365 * DAY}
FEASIBLE = 0.9
"""An alert whose threshold is above this ratio of bad events would not fire, or hardly, when everything fails."""
RAW_LIMIT_SECONDS = 6 * HOUR
"""Windows above this read recorded series only."""
LEAST_LONG_SECONDS = HOUR / 4
"""No long window is shorter: its twelfth, 75 s, holds two evaluations and five scrapes."""
DEFAULT_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS = 30.0, 120.0
LONGEST_SCRAPE_SECONDS = 75.0
"""Four of these are 5 minutes, the shortest window of a period of 28 days."""
LEAST_PAGING_BURN_RATE = 2.0
"""Nobody is woken for a budget that lasts half its period or longer."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A pair of windows, in seconds. `burn_rate`: how many times faster than allowed the budget is spent when the alert fires."""

    long_seconds: float
    short_seconds: float
    burn_rate: float
    severity: Severity

    def threshold(self, slo: Slo) -> float:
        """Return the ratio of bad events above which it fires."""
        return self.burn_rate * slo.budget

    def budget_part(self, period_seconds: float) -> float:
        """Return the part of the budget that is spent within the long window when it fires."""
        return self.burn_rate * self.long_seconds / period_seconds


@dataclass(frozen=True, slots=True)
class TierTarget:
    """What a tier is for: to tell when this part of the budget is spent, at this rate or a lower one that a target allows."""

    part: float
    burn_rate: float
    severity: Severity


AIMS = (
    TierTarget(0.02, 14.4, "page"),
    TierTarget(0.05, 6.0, "page"),
    TierTarget(0.10, 3.0, "ticket"),
    TierTarget(0.10, 1.0, "ticket"),
)
"""Table 5-8 of the workbook, and the tier of a day in 30 that Sloth and kubernetes-mixin add."""
_LONG_MINUTES = (15, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1080, 1440, 2160, 2880, 4320)
"""Long windows to choose from, to three days; above, whole days."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things last, in seconds. Scaled down, a fire drill takes minutes: `scale` of a hundredth makes an hour 36 s.

    Attributes:
        interval: between evaluations. scrape: between scrapes. Neither is scaled: they say how fast the servers really are.
    """

    interval: float = DEFAULT_INTERVAL_SECONDS
    scrape: float = 15.0
    scale: float = 1.0

    @classmethod
    def of_servers(cls, interval: float, scrape: float, scale: float = 1.0) -> Timing:
        """Return the timing of rules whose servers evaluate and scrape so often.

        Raises:
            ValueError: what is seldom done is not seen, or not soon enough; it says which.
        """
        if not 1.0 <= interval <= LONGEST_INTERVAL_SECONDS:
            limits = f"from 1s to {duration(LONGEST_INTERVAL_SECONDS)}"
            raise ValueError(f"interval is {duration(interval)}, not {limits}: recorded samples are visible for 5m")
        if not 1.0 <= scrape <= LONGEST_SCRAPE_SECONDS:
            limits = f"from 1s to {duration(LONGEST_SCRAPE_SECONDS)}"
            raise ValueError(f"scrape-interval is {duration(scrape)}, not {limits}: a rate needs four scrapes in 5m")
        return cls(interval, scrape, scale)

    @property
    def least_window(self) -> float:
        """The shortest window of a rate: four scrapes, so that one may be missed."""
        return 4 * self.scrape

    @property
    def base(self) -> float:
        """The window of the rates that count events.

        A rate is what a counter grew by between the first and the last scrape in its window, which are a scrape less apart than it
        is long. That is a whole number of intervals here: each event is counted by as many evaluations, so that their sum is the
        number of events, of a short burst as well. The first events of a counter that began at 0 are up to a fifth too few:
        Prometheus extends what it saw to the begin of the window only as far as the counter was not below 0.
        """
        intervals = max(math.ceil((self.least_window - self.scrape) / self.interval - 1e-9), 2)
        return intervals * self.interval + self.scrape

    @property
    def board_interval(self) -> float:
        """Return the time between evaluations of what only boards read: a minute, the window of its rates."""
        return self._intervals(2)

    @property
    def ticket_interval(self) -> float:
        """Return the time between evaluations of event alerts that open tickets: two minutes, since tickets are not urgent."""
        return self._intervals(4)

    @property
    def slow_interval(self) -> float:
        """Return the time between evaluations of windows above `RAW_LIMIT_SECONDS`: at most four minutes, eight intervals.

        An instant query looks back five minutes. Of what is recorded every five minutes there is nothing to be seen whenever an
        evaluation ends a moment later than the one before; of four, it may be a minute late.
        """
        return self._intervals(8)

    @property
    def budget_interval(self) -> float:
        """Return the time between the sums that three days and a period are made of: half an hour, 60 intervals."""
        return self._intervals(60)

    def _intervals(self, most: int) -> float:
        """Return the seconds of so many intervals; of longer ones as many as fit into the same time, but one at least."""
        fitting = int(most * DEFAULT_INTERVAL_SECONDS / self.interval + 1e-9)
        return min(most, max(fitting, 1)) * self.interval

    def scaled(self, seconds: float) -> float:
        """Return a window of a rule as it is to be used; never shorter than two evaluations."""
        return max(seconds * self.scale, 2 * self.interval)

    def waited(self, seconds: float) -> float:
        """Return what Alertmanager waits, which evaluates nothing: in a drill two evaluations, but never longer than said."""
        return min(seconds, self.scaled(seconds))


def tiers(slo: Slo) -> list[Tier]:
    """Return the tiers of an objective, the shortest window first, of the severities that it has."""
    found: dict[tuple[float, Severity], Tier] = {}
    for aim in AIMS:
        tier = _tier(aim, slo)
        if tier is not None and (slo.pages if aim.severity == "page" else slo.tickets):
            found[tier.long_seconds, tier.severity] = tier  # of two with the same windows the lower rate covers both
    return list(found.values())


def _tier(aim: TierTarget, slo: Slo) -> Tier | None:
    """Return the tier of a target; None if its burn rate is too low to be meaningful."""
    period, least = slo.period_days * DAY, LEAST_PAGING_BURN_RATE if aim.severity == "page" else 1.0
    highest = min(aim.burn_rate, FEASIBLE / slo.budget)
    if highest < least:
        return None
    long_seconds, burn_rate = _long_window(aim.part * period / highest), highest
    if highest == aim.burn_rate and long_seconds > LEAST_LONG_SECONDS:
        burn_rate = aim.part * period / long_seconds  # exactly the part that is aimed at; else the most that can still fire
    return Tier(long_seconds, long_seconds / 12, max(burn_rate, least), aim.severity)


def _long_window(seconds: float) -> float:
    """Return the next longer round window for an exact one of `seconds`."""
    for minutes in _LONG_MINUTES:
        if seconds <= minutes * 60 * 1.001:
            return minutes * 60.0
    return math.ceil(seconds / DAY - 0.001) * DAY


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
        raise ValueError(f"{text!r} is not a duration")
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def scaled_expression(expression: str, timing: Timing) -> str:
    """Return an expression with its windows and offsets scaled; a window always holds the scrapes that a rate needs.

    Numbers that a series is compared with stay as they are, of seconds too: what they mean is not to be seen from here.
    """

    def scaled(match: re.Match[str]) -> str:
        if match["window"]:
            window = duration(max(seconds_of(match["window"]) * timing.scale, timing.least_window))
            step = duration(max(seconds_of(match["step"]) * timing.scale, timing.interval)) if match["step"] else ""
            return f"[{window}:{step}]" if ":" in match[0] else f"[{window}]"
        return f"offset {duration(seconds_of(match['offset']) * timing.scale)}"

    return _WINDOW.sub(scaled, expression)

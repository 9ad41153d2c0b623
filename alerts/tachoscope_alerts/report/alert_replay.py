"""Pages and tickets of an objective, replayed on what was recorded of its events, and what it cost the budget.

At each evaluation the conditions of `rules` are worked out on recorded moments: the windows with both their ends, the sums of 4 and
30 minutes that the long ones are made of, the history that a ticket needs, the least number of bad events, and how long an alert is
kept. Groups are taken to evaluate at multiples of their intervals; where a Prometheus has them elsewhere, alerts move by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tachoscope_alerts.compile.detection_time import evaluation_interval
from tachoscope_alerts.compile.rules import HISTORY, KEEP_FIRING_SECONDS, least_bad
from tachoscope_alerts.compile.sli_expressions import RecordedLevel, interval_of, level
from tachoscope_alerts.measure.evaluator import Events, Flags, Group
from tachoscope_alerts.measure.stored_samples import Floats, Times
from tachoscope_alerts.report.schema import BudgetPoint
from tachoscope_alerts.spec.burn_rate_windows import Tier, Timing, tiers
from tachoscope_alerts.spec.slo import Severity, Slo

POINTS = 200
"""Of the line of a budget."""
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class FiredAlert:
    """A time during which people are told; tiers of one severity that overlap are one.

    Attributes:
        start, end: Unix seconds, of the first evaluation at which it fires and the first at which it does not.
        long_seconds, short_seconds: windows of the tier that told first. still: it had not ended when the records do.
    """

    severity: Severity
    start: float
    end: float
    long_seconds: float
    short_seconds: float
    still: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """One budget of an objective over the window.

    Attributes:
        labels: its own. bad, total: events, or of time seconds. coverage: part of the window with events.
        attainment: ratio of good events, left: part of the window's budget; None of no events.
        told: pages and tickets, in the order of time. line: what was left of the budget over time.
    """

    labels: dict[str, str]
    bad: float
    total: float
    coverage: float
    attainment: float | None
    left: float | None
    told: tuple[FiredAlert, ...]
    line: tuple[BudgetPoint, ...]

    def by_severity(self, severity: Severity) -> list[FiredAlert]:
        """Return what is told with that severity."""
        return [one for one in self.told if one.severity == severity]


def lead_seconds(slo: Slo, timing: Timing) -> float:
    """Return how long before a window moments still matter to its alerts."""
    longest = max((timing.scaled(tier.long_seconds) for tier in tiers(slo)), default=0.0)
    return longest + timing.budget_interval


def replay(slo: Slo, events: Events, start: float, end: float, timing: Timing) -> list[Replayed]:
    """Return each budget of an objective over the evaluations after `start` up to `end`, Unix seconds.

    Args:
        events: at consecutive evaluations up to `end`, from `lead_seconds` before the start on where there are any.
    """
    return [_replayed(slo, group, _Sums(events, group, timing), start, end, timing) for group in sorted(events.total)]


class _Sums:
    """Moments of one budget, cumulated; evaluations are counted in intervals since 1970."""

    def __init__(self, events: Events, group: Group, timing: Timing) -> None:
        self._interval_ms = round(timing.interval * 1000)
        self.numbers = events.times_ms // self._interval_ms
        self._first = int(self.numbers[0]) if len(self.numbers) else 0
        total = events.total[group]
        bad = events.bad.get(group, np.zeros(len(total)))
        self._bad, self._total = (np.concatenate([[0.0], np.cumsum(np.nan_to_num(rows))]) for rows in (bad, total))
        self._there, self._some = (
            np.concatenate([[0], np.cumsum(flags)]) for flags in (~np.isnan(total), np.nan_to_num(total) > 0)
        )

    def up_to(self, numbers: Times) -> Times:
        """Return how many moments there are up to and with these evaluations."""
        return np.clip(numbers - self._first + 1, 0, len(self.numbers))

    def within(self, at: Times, window: float, every: int) -> tuple[Floats, Floats, Times, Times]:
        """Return bad and total events, and of how many moments, with any and above zero, a window holds; both its ends included.

        Args:
            at: evaluations at which windows end. window: its length, `every`: that of the sums it is made of, in intervals.
        """
        newest = at // every * every
        oldest = np.ceil((at - window) / every - _TINY).astype(np.int64) * every
        last, first = self.up_to(newest), self.up_to(np.minimum(oldest - every, newest))
        bad, total = self._bad[last] - self._bad[first], self._total[last] - self._total[first]
        return np.maximum(bad, 0.0), total, self._there[last] - self._there[first], self._some[last] - self._some[first]

    def between(self, start: float, end: float) -> tuple[int, int]:
        """Return the numbers of the evaluations after a time up to another, Unix seconds: from the first to before the last."""
        edges = np.array([round(moment * 1000) for moment in (start, end)]) // self._interval_ms
        first, last = self.up_to(edges)
        return int(first), int(last)

    def first_there(self, first: int, last: int) -> float:
        """Return the Unix time of the evaluation before the first moment with a number between two positions."""
        position = int(np.searchsorted(self._there[first : last + 1], self._there[first], side="right")) + first - 1
        return (self._first + position - 1) * self._interval_ms / 1000

    def span(self, first: int, last: int) -> tuple[float, float, int]:
        """Return bad, total and moments with a number between two positions."""
        bad, total = float(self._bad[last] - self._bad[first]), float(self._total[last] - self._total[first])
        return max(bad, 0.0), total if self._some[last] > self._some[first] else 0.0, int(self._there[last] - self._there[first])


def _replayed(slo: Slo, group: Group, sums: _Sums, start: float, end: float, timing: Timing) -> Replayed:
    first, last = sums.between(start, end)
    bad, total, there = sums.span(first, last)
    ratio = bad / total if total > 0 else None
    told = [one for tier in tiers(slo) for one in _fired(slo, tier, sums, timing, end)]
    shown = [one for severity in ("page", "ticket") for one in _merged([row for row in told if row.severity == severity])]
    return Replayed(
        labels=slo.labels_of(group),
        bad=bad * timing.interval,
        total=total * timing.interval,
        coverage=min(there * timing.interval / (end - start), 1.0) if end > start else 0.0,
        attainment=None if ratio is None else 1.0 - ratio,
        left=None if ratio is None else 1.0 - ratio / slo.budget,
        told=tuple(sorted((one for one in shown if one.end > start), key=lambda one: one.start)),
        line=tuple(_line(slo, sums, start, end, total)) if total > 0 else (),
    )


def _line(slo: Slo, sums: _Sums, start: float, end: float, total: float) -> Iterable[BudgetPoint]:
    begin, last = sums.between(start, end)
    # Its points are where something was recorded, or a few days of four weeks would be a handful of points.
    edges = np.concatenate([[start], np.linspace(max(sums.first_there(begin, last), start), end, POINTS)])
    before = begin
    for edge in edges:
        _, position = sums.between(start, float(edge))
        bad, _, _ = sums.span(begin, max(position, begin))
        _, _, there = sums.span(before, max(position, before))
        yield BudgetPoint(time=float(edge), left=1.0 - bad / (total * slo.budget), measured=there > 0)
        before = max(position, before)


# --- alerts -------------------------------------------------------------------------------------------------------------------


def _fired(slo: Slo, tier: Tier, sums: _Sums, timing: Timing, end: float) -> list[FiredAlert]:
    """Return when one tier fires, up to the end."""
    seconds = evaluation_interval(tier, timing)
    every = round(seconds / timing.interval)
    at = sums.numbers[sums.numbers % every == 0]
    at = at[at * timing.interval <= end + _TINY]
    if not len(at):
        return []
    kept = math.ceil(timing.scaled(KEEP_FIRING_SECONDS) / seconds - _TINY) * seconds
    holds = _holds(slo, tier, sums, at, timing)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], holds, [False]]).astype(np.int8)))
    found = []
    for first, after in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        still = after == len(at)
        until = end if still else float(at[after]) * timing.interval + kept
        found.append(
            FiredAlert(
                tier.severity,
                float(at[first]) * timing.interval,
                min(until, end),
                tier.long_seconds,
                tier.short_seconds,
                still=still or until > end,
            )
        )
    return found


def _holds(slo: Slo, tier: Tier, sums: _Sums, at: Times, timing: Timing) -> Flags:
    """Return at which evaluations the condition of a tier's alert holds: see `rules._conditions`."""
    threshold = tier.threshold(slo)
    holds = np.ones(len(at), dtype=np.bool_)
    for seconds in (tier.long_seconds, tier.short_seconds):
        bad, total, _, some = sums.within(at, _steps(seconds, timing), _every(level(seconds, timing), timing))
        with np.errstate(divide="ignore", invalid="ignore"):
            holds &= (some > 0) & (bad / total > threshold)
    every = _every(level(tier.long_seconds, timing), timing)
    if slo.least_bad_events:
        bad, *_ = sums.within(at, _steps(tier.long_seconds, timing), every)
        holds &= bad * timing.interval >= least_bad(slo, timing)
    if tier.severity == "ticket":
        needed = HISTORY * _steps(tier.long_seconds, timing)
        before = np.floor(at - needed + _TINY).astype(np.int64)
        *_, there, _ = sums.within(before, _steps(tier.long_seconds, timing) - needed, every)
        holds &= there > 0
    return holds


def _steps(seconds: float, timing: Timing) -> float:
    return timing.scaled(seconds) / timing.interval


def _every(of: RecordedLevel, timing: Timing) -> int:
    seconds = interval_of(of, timing)
    return round(seconds / timing.interval)


def _merged(told: Sequence[FiredAlert]) -> list[FiredAlert]:
    """Return times that overlap or touch as one, told by the first."""
    found: list[FiredAlert] = []
    for one in sorted(told, key=lambda row: (row.start, row.long_seconds)):
        if found and one.start <= found[-1].end:
            found[-1] = replace(found[-1], end=max(found[-1].end, one.end), still=found[-1].still or one.still)
        else:
            found.append(one)
    return found

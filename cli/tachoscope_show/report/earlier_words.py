"""What came before the judged part of a long job, as rows of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tachoscope_core.report.report import IntervalFinding, JudgedInterval
from tachoscope_show.report.trend_words import ranks_text
from tachoscope_show.text.units import counted, duration, percent, seconds

TITLE = "earlier, judged hour by hour (UTC)"
COLUMNS = ("from", "for", "steps", "step", "compute share", "found")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class EarlierRow:
    """An interval in words; `severity` of the gravest finding, empty without one."""

    words: tuple[str, ...]
    severity: str


def rows(earlier: Sequence[JudgedInterval]) -> list[EarlierRow]:
    """Return a row for each interval; of very many the gravest and longest."""
    kept = sorted(earlier, key=lambda one: (-_loss(one), -one.steps))[:_SHOWN]
    in_order = sorted(kept, key=lambda one: one.start)
    return [EarlierRow(words(one), one.findings[0].severity if one.findings else "") for one in in_order]


def gravest(earlier: Sequence[JudgedInterval]) -> list[JudgedInterval]:
    """Return the intervals in which something was found, those that lost most first."""
    return sorted((one for one in earlier if one.findings), key=lambda one: -_loss(one))


def left_out(earlier: Sequence[JudgedInterval]) -> str:
    """Return how many intervals `rows` does not name; empty: none."""
    more = len(earlier) - _SHOWN
    return f"and {counted(more, 'more interval')} with smaller losses" if more > 0 else ""


def _loss(one: JudgedInterval) -> float:
    return sum(found.seconds_per_step for found in one.findings) * one.steps


def words(one: JudgedInterval) -> tuple[str, ...]:
    """Return what an interval says in each of the columns."""
    began = datetime.fromtimestamp(one.start, UTC).strftime("%m-%d %H:%M")
    share = "-" if one.compute_share is None else percent(one.compute_share)
    found = ", ".join(map(_found, one.findings)) or "-"
    return (began, duration(one.end - one.start), f"{one.steps:,}", seconds(one.step_seconds), share, found)


def _found(one: IntervalFinding) -> str:
    return f"{one.class_}, {ranks_text(one.ranks)}: {seconds(one.seconds_per_step)} a step"

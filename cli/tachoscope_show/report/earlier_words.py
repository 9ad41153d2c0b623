"""The intervals before the judged part of a long job, as rows of a table."""

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
    """A row of the table; `severity` of the main finding, empty without findings."""

    words: tuple[str, ...]
    severity: str


def rows(earlier: Sequence[JudgedInterval]) -> list[EarlierRow]:
    """Return a row for each interval, or for the 40 with the largest loss."""
    kept = sorted(earlier, key=lambda one: (-_loss(one), -one.steps))[:_SHOWN]
    in_order = sorted(kept, key=lambda one: one.start)
    return [EarlierRow(words(one), one.findings[0].severity if one.findings else "") for one in in_order]


def gravest(earlier: Sequence[JudgedInterval]) -> list[JudgedInterval]:
    """Return the intervals with findings, the largest loss first."""
    return sorted((one for one in earlier if one.findings), key=lambda one: -_loss(one))


def left_out(earlier: Sequence[JudgedInterval]) -> str:
    """Return a sentence about the intervals without a row; empty if there are none."""
    more = len(earlier) - _SHOWN
    return f"and {counted(more, 'more interval')} with smaller losses" if more > 0 else ""


def _loss(one: JudgedInterval) -> float:
    return sum(found.seconds_per_step for found in one.findings) * one.steps


def words(one: JudgedInterval) -> tuple[str, ...]:
    """Return the cells of an interval."""
    began = datetime.fromtimestamp(one.start, UTC).strftime("%m-%d %H:%M")
    share = "-" if one.compute_share is None else percent(one.compute_share)
    found = ", ".join(map(_found, one.findings)) or "-"
    return (began, duration(one.end - one.start), f"{one.steps:,}", seconds(one.step_seconds), share, found)


def _found(one: IntervalFinding) -> str:
    return f"{one.class_}, {ranks_text(one.ranks)}: {seconds(one.seconds_per_step)} a step"

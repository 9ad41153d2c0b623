"""A report as one self-contained HTML page."""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_core.report.report import Ledger, Report
from tachoscope_show.life import words as life_words
from tachoscope_show.report import (
    change_rows,
    comparison_words,
    earlier_words,
    failure_words,
    finding_words,
    memory_words,
    stack_words,
    trend_words,
    verdict_words,
)
from tachoscope_show.report.finding_card import cards
from tachoscope_show.report.memory_picture import picture as memory_picture
from tachoscope_show.report.trend_picture import picture
from tachoscope_show.serving import words as serving_words
from tachoscope_show.text.pages import rendered
from tachoscope_show.text.runbook_pages import text_of
from tachoscope_show.text.safe_text import in_lines
from tachoscope_show.text.units import counted, percent

_RANK_STATES = 3
"""Of a rank's states so many are named beside its bar, the longest."""


@dataclass(frozen=True, slots=True)
class RankBar:
    """A rank's ledger: `width` is its step's part of the longest, `named` the classes of findings that name the rank."""

    ledger: Ledger
    width: float
    step_seconds: float
    states: str
    named: list[str]


def render(report: Report) -> str:
    """Return a report as an HTML page that needs no other file."""
    report = in_lines(report)
    return str(
        rendered(
            "report.html",
            report=report,
            first=verdict_words.first_lines(report),
            by_rank=_by_rank(report),
            changes=change_rows.rows(report.changes),
            comparison=rendered("comparison.html", one=report.comparison, words=comparison_words) if report.comparison else "",
            earlier=earlier_words,
            failures=failure_words,
            said=trend_words.lines(report),
            drawn=picture(report.course) if report.course else None,
            memory_said=memory_words.lines(report.memory),
            memory_drawn=memory_picture(report.memory),
            words=finding_words,
            stacks=stack_words,
            cards=cards(report),
            life_words=life_words,
            serving_words=serving_words,
            counted=counted,
            runbook_text=text_of,  # of runbooks to unfold: the page goes where the files of this machine do not
        )
    )


def _by_rank(report: Report) -> list[RankBar]:
    ledgers = [ledger for ledger in report.ledgers[1:] if ledger.unit == "rank"]
    longest = max((ledger.wall_seconds for ledger in ledgers), default=0.0)
    named: dict[int | None, list[str]] = {}
    for finding in finding_words.large(report):
        for rank in finding.ranks if not isinstance(finding.ranks, str) else []:
            named.setdefault(rank, []).append(finding.class_)
    return [
        RankBar(
            ledger,
            ledger.wall_seconds / longest,
            ledger.wall_seconds / max(report.window.steps, 1),
            ", ".join(f"{state} {percent(value / ledger.wall_seconds)}" for state, value in _largest(ledger)),
            named.get(ledger.rank, []),
        )
        for ledger in ledgers
    ]


def _largest(ledger: Ledger) -> list[tuple[str, float]]:
    return sorted(ledger.states.items(), key=lambda row: -row[1])[:_RANK_STATES]

"""A report as one self-contained HTML page."""

from __future__ import annotations

from tachoscope_core.report.report import Report
from tachoscope_show.life import words as life_words
from tachoscope_show.report import (
    change_rows,
    comparison_words,
    earlier_words,
    failure_words,
    finding_words,
    memory_words,
    rank_bars,
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
from tachoscope_show.text.units import counted


def render(report: Report) -> str:
    """Return a report as an HTML page that needs no other file."""
    report = in_lines(report)
    return str(
        rendered(
            "report.html",
            report=report,
            first=verdict_words.first_lines(report),
            by_rank=rank_bars.bars(report),
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

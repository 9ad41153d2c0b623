"""The part of the job page that shows where its processes stood at its last hang."""

from __future__ import annotations

import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report
from tachoscope_explorer.page.widgets import escape_markdown, problem
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources.jobs import Run
from tachoscope_show.report import stack_words
from tachoscope_show.report.trend_words import at
from tachoscope_show.text.safe_text import in_lines

_CLOCK_SECONDS = 5.0
"""By so much the end of the last step may differ from what was noted when the job hung."""


def last(run: Run) -> Report | None:
    """Return the report on the last hang; None: nothing was collected, or it cannot be read, which is then shown."""
    try:
        report = sources.last_hang(run.url, run.job, run.at)
    except TachoscopeError as error:
        problem(error)
        return None
    return in_lines(report) if report is not None else None


def is_last_word(hang: Report | None, steps: Report) -> bool:
    """Return whether no step followed a hang: then it is the answer, and else a thing of the past."""
    return hang is not None and hang.window.start >= steps.window.end - _CLOCK_SECONDS


def show(report: Report) -> None:
    """Show the stacks of a hang, the odd one open."""
    st.subheader("Its last hang", anchor="hang")
    st.caption(f"{at(report.window.start)}: {stack_words.TITLE}")
    for number, card in enumerate(stack_words.cards(report)):
        with st.expander(escape_markdown(card.heading), expanded=number == 0):
            st.caption(escape_markdown(card.processes))
            more = [f"... {card.more_frames} more frames"] if card.more_frames else []
            st.code("\n".join([*card.frames, *more]), language=None)
    if left_out := stack_words.left_out(report):
        st.caption(left_out)
    for note in report.quality:
        st.caption(escape_markdown(f"{note.what}: {note.means}"))

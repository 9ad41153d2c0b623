"""The part of the job page that shows where its processes stood at its last hang."""

from __future__ import annotations

import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.page.widgets import escape_markdown, problem
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources.jobs import Run
from tachoscope_show.report import stack_words
from tachoscope_show.report.trend_words import at
from tachoscope_show.text.safe_text import in_lines


def show(run: Run) -> None:
    """Show the stacks of the last hang, the odd one open; nothing where nothing was collected."""
    try:
        report = sources.last_hang(run.url, run.job, run.at)
    except TachoscopeError as error:
        problem(error)
        return
    if report is None:
        return
    report = in_lines(report)
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

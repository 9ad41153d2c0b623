"""The part of the job page that shows the intervals before the judged part of a long job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from tachoscope_core.report.report import JudgedInterval
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.widgets import escape_markdown, folded, table
from tachoscope_show.report import earlier_words
from tachoscope_show.text.units import counted

_LINKED = 3
"""Number of links, to the intervals with the largest loss."""


def show(context: Context, earlier: Sequence[JudgedInterval]) -> None:
    """Show the intervals, with links to those with the largest loss; nothing if the whole job is judged."""
    if not earlier:
        return
    st.subheader(earlier_words.TITLE[0].upper() + earlier_words.TITLE[1:], anchor="earlier")
    with st.container(horizontal=True):
        for one in earlier_words.gravest(earlier)[:_LINKED]:
            began, *_, found = earlier_words.words(one)
            view = replace(context.view, start=one.start, end=one.end, class_="")
            context.link(escape_markdown(f"{began}: {found.partition(':')[0]}"), "job", view, icon=":material/zoom_in:")
    label = f"All {counted(len(earlier), 'interval')}"
    folded(label, lambda: _all(earlier), "folded-earlier", icon=":material/table:")


def _all(earlier: Sequence[JudgedInterval]) -> None:
    rows = [row.words for row in earlier_words.rows(earlier)]
    table(pd.DataFrame(rows, columns=list(earlier_words.COLUMNS)), "earlier")
    if more := earlier_words.left_out(earlier):
        st.caption(more)

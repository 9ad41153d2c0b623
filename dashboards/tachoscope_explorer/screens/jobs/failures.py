"""The part of the job page that says why attempts failed: the root of each, and what followed from it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tachoscope_core.report.report import Report
from tachoscope_explorer.page.widgets import escape_markdown, table
from tachoscope_show.report import failure_words


def show(report: Report | None) -> None:
    """Show the failures; nothing without any."""
    if report is None or not report.failures:
        return
    st.subheader("Failures", anchor="failures")
    if failure_words.ends_failed(report):
        root, *rest = (escape_markdown(line) for line in failure_words.lines(report.failures[-1]))
        st.error("\n\n".join([f"**{root[0].upper()}{root[1:]}**", *rest]), icon=":material/error:")
    if len(report.failures) > 1 or not failure_words.ends_failed(report):
        table(pd.DataFrame(failure_words.cells(report.failures), columns=list(failure_words.COLUMNS)), "failures")

"""Of the page of a job: what could not be told, what the job was made of, what was read, and the report to take along."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tachoscope_core.report.report import Report, dump
from tachoscope_explorer.page.widgets import escape_markdown, folded, table
from tachoscope_show.report.finding_card import title_of
from tachoscope_show.report.html import render
from tachoscope_show.report.text import source_text
from tachoscope_show.text.units import counted


def show(report: Report) -> None:
    """Show them, folded: they are what people look up."""
    not_measured(report)
    if report.lineage:
        frame = pd.DataFrame(report.lineage.items(), columns=["what", "value"])
        folded("What it was made of", lambda: table(frame, "lineage"), "folded-lineage", icon=":material/account_tree:")
    for source in report.sources:
        st.caption(escape_markdown(source_text(source)))
    export(report)


def not_measured(report: Report) -> None:
    """Show what could be neither found nor ruled out, folded; nothing where all was measured."""
    if not report.not_measured:
        return
    rows = [(title_of(row.class_), row.class_, row.missing) for row in report.not_measured]
    frame = pd.DataFrame(rows, columns=["cause", "class", "missing signal"])
    label = f"Not measured: {counted(len(rows), 'cause')} neither found nor ruled out"
    folded(label, lambda: table(frame, "not-measured"), "folded-not-measured", icon=":material/help:")


def export(report: Report) -> None:
    """Offer the report as a page of its own and as the document that programs read; each is made when it is asked for."""
    with st.container(horizontal=True):
        st.download_button(
            "Report as HTML",
            lambda: render(report).encode(),
            f"{report.job}.html",
            "text/html",
            key="report-html",
            icon=":material/download:",
            on_click="ignore",
        )
        st.download_button(
            "Report as JSON",
            lambda: dump(report),
            f"{report.job}.json",
            "application/json",
            key="report-json",
            icon=":material/download:",
            on_click="ignore",
        )

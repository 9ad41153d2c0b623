"""Of the page of a job: the report that somebody saved of it, where its records are gone."""

from __future__ import annotations

import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report, parse
from tachoscope_core.storage.store import Store
from tachoscope_explorer.page import job_facts
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.finding_card import show_findings
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import escape_markdown, nothing, problem


def show(context: Context, why: TachoscopeError) -> None:
    """Show the newest saved report, else why there is nothing.

    Args:
        why: the records cannot be read.
    """
    saved = Store(context.settings.store_url).reports(context.view.job)
    if not saved:
        problem(why)
        context.link("All jobs", "jobs", View(), icon=":material/list:")
        return
    path, data = saved[-1]
    try:
        report: Report = parse(data, path.rsplit("/jobs/", 1)[-1])
    except TachoscopeError as error:
        problem(error)
        return
    nothing(f"This job has no records; this is a saved report of it: {escape_markdown(path.rsplit('/', 1)[-1])}")
    st.caption("Values over time need records.")
    show_findings(context, report)
    job_facts.show(report)

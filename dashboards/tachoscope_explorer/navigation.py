"""Which page is asked for, and of what. Pages are named here as people go from "it is slow" to the line of code."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.palette import OK
from tachoscope_explorer.page.context import Context, current
from tachoscope_explorer.page.widgets import escape_markdown, problem, style
from tachoscope_explorer.screens.compare import page as compare
from tachoscope_explorer.screens.inference import page as inference
from tachoscope_explorer.screens.jobs import job
from tachoscope_explorer.screens.jobs import list as jobs
from tachoscope_explorer.screens.slos import page as slos
from tachoscope_explorer.screens.traces import page as trace
from tachoscope_explorer.screens.traces import upload
from tachoscope_explorer.screens.what_if import page as what_if

PAGES = (
    ("jobs", "Jobs", ":material/list:", jobs.show),
    ("job", "Job", ":material/speed:", job.show),
    ("trace", "Trace", ":material/timeline:", trace.show),
    ("compare", "Compare", ":material/compare_arrows:", compare.show),
    ("what-if", "What if", ":material/tune:", what_if.show),
    ("slos", "Objectives", ":material/target:", slos.show),
    ("inference", "Inference", ":material/forum:", inference.show),
    ("upload", "Open a trace", ":material/upload_file:", upload.show),
)
"""Path, title, icon, and what shows it."""

_ICON = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="{OK}" stroke-width="2.5">
<path d="M4 18a10 10 0 1 1 16 0M12 13l5-5"/></svg>"""
"""Of the browser's tab. Without it Streamlit would ask fonts.gstatic.com for the page's."""


def main() -> None:
    """Show the page of the address."""
    st.set_page_config(page_title="tachoscope", page_icon=_ICON, layout="wide", initial_sidebar_state="auto")
    style()
    context = current()
    pages = [
        st.Page(_guarded(show, context), title=title, icon=icon, url_path=path)
        for path, title, icon, show in PAGES
        if path != "upload" or context.settings.uploads
    ]
    context.pages.update({page.url_path: page for page in pages})
    # The page at the root has no path of its own, and boards link to /jobs.
    root = st.Page(_guarded(jobs.show, context), title="Jobs", url_path="home", default=True, visibility="hidden")
    st.navigation([root, *pages], position="sidebar").run()


def _guarded(show: Callable[[Context], None], context: Context) -> Callable[[], None]:
    """Return the page as Streamlit calls it: what cannot be read is told on it, and never a traceback."""

    def run() -> None:
        for sentence in context.view.wrong:
            st.warning(escape_markdown(sentence))
        try:
            show(context)
        except TachoscopeError as error:
            problem(error)

    return run

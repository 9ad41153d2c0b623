"""The page `upload`: traces of people who have no store, looked at and forgotten."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.page import finding_card, uploads
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.settings import MIB
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import escape_markdown, problem
from tachoscope_explorer.sources import traces as trace_sources
from tachoscope_explorer.sources.traces import UPLOADED, Recording
from tachoscope_show.text.units import counted

_ROUND = "upload-round"
"""Raised for an empty field after each upload."""

_WRONG = "upload-wrong"
"""What was wrong with the last one."""
_OWN_WORDS = """<style>
[data-testid="stFileUploaderDropzoneInstructions"]{display:none}
[data-testid="stFileChip"] [role="alert"]{position:static!important;clip:auto!important;clip-path:none!important;
width:auto!important;height:auto!important;margin:0 .5rem!important;white-space:normal!important}
</style>"""
"""The field's own words round the limit, and why a file is refused is for screen readers only: neither will do."""


def show(context: Context) -> None:
    """Show the page."""
    st.title("Open a trace")
    most = context.settings.most_upload_bytes
    st.write(
        "A profiler trace of one rank, or the traces of several ranks of a job together: `torch.profiler`, Horovod, TensorFlow or "
        f"JAX, as `.json`, `.json.gz` or `.json.zst`. At most **{most / MIB:,.0f} MiB** in all."
    )
    st.caption(
        "Nothing is kept: the files lie in a temporary folder that only this browser tab sees, and never get into the store. "
        "They go when you reload or close the tab, remove them, or when the explorer ends."
    )
    st.html(_OWN_WORDS)
    chosen = st.file_uploader(
        "Trace files",
        type=["json", "gz", "zst"],
        accept_multiple_files=True,
        key=f"upload-{st.session_state.setdefault(_ROUND, 0)}",
    )
    if chosen:
        _keep(chosen, most)
        st.rerun()
    if _WRONG in st.session_state:
        problem(st.session_state[_WRONG])
    _kept(context)


def _keep(chosen: list[Any], most: int) -> None:
    """Keep what was uploaded, or what is wrong with it, and empty the field."""
    place = st.empty()
    st.session_state.pop(_WRONG, None)
    try:
        with ExitStack() as views:  # released here: an error that is shown keeps what the functions below it had
            files = [(one.name, views.enter_context(one.getbuffer())) for one in chosen]
            uploads.session_uploads().add(files, most_bytes=most, progress=lambda text: place.info(escape_markdown(text)))
    except TachoscopeError as error:
        st.session_state[_WRONG] = error
    _forget(chosen)
    st.session_state[_ROUND] += 1


def _forget(chosen: list[Any]) -> None:
    """Let go of what Streamlit holds in memory."""
    context = get_script_run_ctx()
    if context is not None and runtime.exists():
        manager = runtime.get_instance().uploaded_file_mgr
        for one in chosen:
            manager.remove_file(context.session_id, one.file_id)


def _kept(context: Context) -> None:
    found = trace_sources.recordings(context.settings, UPLOADED)
    for recording in found:
        with st.container(border=True):
            _recording(context, recording)
    kept = uploads.of_session()
    if kept is not None and found and st.button("Remove all of it now", icon=":material/delete:"):
        kept.remove()
        st.rerun()


def _recording(context: Context, recording: Recording) -> None:
    names = ", ".join(escape_markdown(path.name) for path in recording.files[:4]) + (" …" if len(recording.files) > 4 else "")
    st.markdown(f"**{escape_markdown(recording.name)}**: {counted(len(recording.files), 'trace')} ({names})")
    try:
        report = trace_sources.report_of(recording)
    except TachoscopeError as error:
        problem(error)
        return
    finding_card.show_verdict(report)
    view = View(job=UPLOADED, trace=recording.name)
    context.link("Look into it on the page Trace", "trace", view, icon=":material/timeline:")

"""What a trace can be opened with beyond the explorer: Perfetto's interface within the page, speedscope, and the file itself."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from tachoscope_analyzers.trace.export import perfetto as perfetto_writer
from tachoscope_analyzers.trace.export import speedscope
from tachoscope_analyzers.trace.reading import cache
from tachoscope_analyzers.trace.reading.trace_files import stem
from tachoscope_explorer.page import perfetto_files as perfetto
from tachoscope_explorer.page.settings import MIB
from tachoscope_explorer.sources.traces import fetch, view_of_file

_HEIGHT = 720
_READ_BY_PERFETTO = (".json", ".json.gz")
_MOST_CONVERTED = 4
_MOST_COMFORTABLE = 512 * MIB
"""Of a compressed trace; a browser's memory ends at some gigabytes of text."""


def show_opening(path: Path) -> None:
    """Show the ways to open a trace file elsewhere: in Perfetto, in speedscope, or as it is."""
    fetch([path])
    script = get_script_run_ctx()
    session = script.session_id if script else ""
    with st.container(horizontal=True):
        wanted = st.toggle("Perfetto", key=f"perfetto-{path}", help=_PERFETTO_HELP)
        _speedscope(path)
        _file(path, session)
    if wanted:
        _perfetto(path, session)


_PERFETTO_HELP = "Opens the whole trace in Perfetto's own interface, here on the page. Nothing leaves this explorer."


def _perfetto(path: Path, session: str) -> None:
    if perfetto.folder() is None:
        st.info(
            "Perfetto's interface is not installed: `pip install 'tachoscope[perfetto]'` and start the explorer again. "
            "Or download the trace and open it in https://ui.perfetto.dev"
        )
        return
    readable = _readable(path)
    if readable.stat().st_size > _MOST_COMFORTABLE:
        st.warning(f"The trace has {readable.stat().st_size / MIB:,.0f} MiB; the browser may run out of memory.")
    st.iframe(perfetto.address(st.context.url or "", perfetto.token_for(session, readable), readable), height=_HEIGHT)


def _readable(path: Path) -> Path:
    """Return the trace as Perfetto reads it: itself, or converted."""
    if path.name.endswith(_READ_BY_PERFETTO):
        return path
    with st.spinner("Converting the trace for Perfetto …"):
        return _converted(str(path), cache.signature(path))


_folder: list[Path] = []


@st.cache_resource(max_entries=_MOST_CONVERTED, show_spinner=False, on_release=lambda path: path.unlink(missing_ok=True))
def _converted(path: str, signature: str) -> Path:
    """Write a trace as JSON into a folder that goes with the process; a file that was changed is converted again.

    Raises:
        TachoscopeError: the trace cannot be read, or there is no room.
    """
    if not _folder:
        _folder.append(Path(tempfile.mkdtemp(prefix="tachoscope-perfetto-")))
        atexit.register(shutil.rmtree, _folder[0], ignore_errors=True)
    out = _folder[0] / f"{stem(Path(path))}-{signature}.json.gz"
    perfetto_writer.write(view_of_file(Path(path)).trace, out)
    return out


def _speedscope(path: Path) -> None:
    st.download_button(
        "Speedscope",
        lambda: speedscope.encoded(view_of_file(path).trace, stem(path)),
        f"{stem(path)}.speedscope.json",
        "application/json",
        icon=":material/download:",
        on_click="ignore",
        help="Operators, annotations, runtime calls and Python frames of the host's threads, as a flame graph over time. "
        "Open it in https://www.speedscope.app, or offline: `npx speedscope FILE`.",
    )


def _file(path: Path, session: str) -> None:
    st.link_button(
        "Trace file",
        f"{perfetto.TRACE}/{perfetto.token_for(session, path)}/{quote(path.name)}",
        icon=":material/download:",
        help="As it was recorded. https://ui.perfetto.dev reads it too.",
    )

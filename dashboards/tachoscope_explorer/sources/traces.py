"""Which profiler traces a job has, and each of them read once for all looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import streamlit as st

from tachoscope_analyzers.trace.events.view import TraceView as TraceView
from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_analyzers.trace.reading import cache
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.reading.trace_files import trace_files
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name
from tachoscope_core.report.report import Report
from tachoscope_core.servers import recording as serving_recording
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.store import Store
from tachoscope_core.storage.traces import StoredTrace
from tachoscope_explorer.page import uploads
from tachoscope_explorer.page.settings import MIB, Settings
from tachoscope_explorer.page.widgets import escape_markdown
from tachoscope_explorer.sources.cache import LIVE_SECONDS

GIVEN = "(traces)"
"""Stands for a job: the traces that were named on the command line. No job can be called that."""

UPLOADED = "(uploaded)"
"""Stands for a job: the traces that were uploaded in this session of a browser, and are seen in no other."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Traces of one job that were recorded together, one for each rank.

    Attributes:
        job: the job's name. name: of the recording, as addresses name it. files: local files, in order of their names. Those of an
            object store are there only after `view_of_file` or `fetch`.
    """

    job: str
    name: str
    files: tuple[Path, ...]


def recordings(settings: Settings, job: str) -> list[Recording]:
    """Return the recordings of a job, the newest first; none where there are none.

    Raises:
        TachoscopeError: the store cannot be read, or a trace in it is a link to what lies outside.
    """
    if job == GIVEN:
        named = [path for path in settings.traces if not path.endswith(serving_recording.SUFFIX)]
        return [Recording(GIVEN, "command-line", tuple(trace_files(named)[0]))] if named else []
    if job == UPLOADED:
        kept = uploads.of_session()
        return [Recording(UPLOADED, name, files) for name, files in reversed(kept.recordings)] if kept else []
    try:
        check_job_name(job)
    except TachoscopeError:
        return []
    store = Store(settings.store_url)
    stored = _stored(settings.store_url, job)
    groups = groupby(stored, lambda one: one.recording)
    return [Recording(job, name, tuple(_place(store, one) for one in files)) for name, files in groups]


def jobs(settings: Settings) -> list[str]:
    """Return what has traces: the uploaded, those of the command line, then jobs of the store in order of their names."""
    stored = [job for job in _store_jobs(settings.store_url) if _stored(settings.store_url, job)]
    kept = uploads.of_session()
    return [UPLOADED] * bool(kept and kept.recordings) + [GIVEN] * bool(recordings(settings, GIVEN)) + stored


@st.cache_data(ttl=LIVE_SECONDS, max_entries=4, show_spinner=False)
def _store_jobs(url: str) -> list[str]:
    return Store(url).jobs()


@st.cache_data(ttl=LIVE_SECONDS, max_entries=1024, show_spinner=False)
def _stored(url: str, job: str) -> list[StoredTrace]:
    return stored_traces.traces(Store(url), job)


_remote: dict[Path, tuple[str, StoredTrace]] = {}
"""Where in an object store a file comes from that is, or will be, here."""
_MOST_REMOTE = 65_536


def _place(store: Store, trace: StoredTrace) -> Path:
    found = stored_traces.local_path(store, trace)
    if not store.local:
        if len(_remote) >= _MOST_REMOTE:
            _remote.clear()  # each look at a job notes its files again
        _remote[found] = (store.url, trace)
    return found


def fetch(files: Iterable[Path]) -> None:
    """Bring files of an object store here that are not here yet, with a bar that says how far it is.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    for path in files:
        if path in _remote and not path.exists():
            url, trace = _remote[path]
            _fetch(Store(url), trace)


def _fetch(store: Store, trace: StoredTrace) -> None:
    name = escape_markdown(trace.file)
    bar = st.progress(0.0, f"Fetching {name} from the store …")

    def show(done: int, total: int) -> None:
        text = f"Fetching {name} from the store: {done / MIB:,.0f} of {total / MIB:,.0f} MiB …"
        bar.progress(min(done / max(total, 1), 1.0), text)

    stored_traces.local(store, trace, progress=show)
    bar.empty()


@st.cache_resource(max_entries=2, show_spinner="Reading the trace …")
def _view(path: str, signature: str) -> TraceView:  # noqa: ARG001  # a file that was changed is read again
    return TraceView(read(Path(path)))


def view_of_file(path: Path) -> TraceView:
    """Return a trace with what its analyses share; its columns are mapped from the cache of traces, not held in memory.

    A file of an object store is fetched first.

    Raises:
        TachoscopeError: the file cannot be fetched or read, or is not a trace.
    """
    fetch([path])
    return _view(str(path), _signature(path))


@st.cache_resource(max_entries=8, show_spinner="Looking for the bottleneck …")
def _report(job: str, paths: tuple[str, ...], signatures: tuple[str, ...]) -> Report:  # noqa: ARG001
    # Uploads are few files: processes of their own would take longer to begin.
    return report(read_job(paths, executor=InProcess(), wanted=SummaryOptions(what_if=False)), job)


def report_of(recording: Recording) -> Report:
    """Return the report on a recording, without replays; `(uploaded)` and the like are called by the recording's name.

    Raises:
        TachoscopeError: see `read_job`.
    """
    fetch(recording.files)
    name = recording.name if recording.job in (GIVEN, UPLOADED) else recording.job
    return _report(name, tuple(map(str, recording.files)), tuple(map(_signature, recording.files)))


def _signature(path: Path) -> str:
    try:
        return cache.signature(path)
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror}") from None

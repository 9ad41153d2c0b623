"""All ranks of a recording compared: done once, and the last few kept."""

from __future__ import annotations

from collections.abc import Hashable

import streamlit as st

from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import JobTraces, read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_explorer.page.widgets import escape_markdown
from tachoscope_explorer.screens.traces.breakdown import ensure_local, signature
from tachoscope_explorer.sources.traces import Recording

_MOST_AT_ONCE = 250_000
"""Events: more are gone through only when somebody asks for it."""
_MOST_FILES_AT_ONCE = 32
_MOST_IN_PROCESS = 1_000_000
"""Events: more are gone through by processes of their own, where there are several files."""
_MOST_KEPT = 2


@st.cache_resource
def _kept() -> dict[Hashable, JobTraces]:
    return {}


def compared(recording: Recording, events: int, wanted: SummaryOptions, what: str) -> JobTraces | None:
    """Return a recording's ranks, compared; None where that takes long and nobody has asked for it yet.

    Args:
        events: how many the recording has, about. what: for the button that asks for it.

    Raises:
        TachoscopeError: see `read_job`.
    """
    for path in recording.files:
        ensure_local(path)
    files = recording.files
    key = (files, tuple(map(signature, files)), wanted)
    kept = _kept()
    if key in kept:
        return kept[key]
    asked = f"{what} of {len(files)} trace{'' if len(files) == 1 else 's'}"
    if (events > _MOST_AT_ONCE or len(files) > _MOST_FILES_AT_ONCE) and not st.button(
        asked, key=f"trace-job-{what}", icon=":material/play_arrow:"
    ):
        st.caption(f"This goes through all of them, some {events:,} events. The result is cached.")
        return None
    bar = st.progress(0.0, f"{asked} …")
    found = read_job(
        files,
        executor="local" if events > _MOST_IN_PROCESS and len(files) > 1 else InProcess(),
        progress=lambda done, total: bar.progress(done / total, f"{asked}: {done} done …"),
        wanted=wanted,
    )
    bar.empty()
    while len(kept) >= _MOST_KEPT:
        kept.pop(next(iter(kept)), None)
    kept[key] = found
    return found


def left_out(job: JobTraces) -> None:
    """Say which problems bound what was found."""
    for problem in job.quality.to_dict("records")[:5]:
        st.caption(escape_markdown(f"{problem['problem'].replace('_', ' ')}: {problem['detail']}"))

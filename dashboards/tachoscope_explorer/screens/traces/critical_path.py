"""The chain of calls, waits and kernels that the run was as long as."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from tachoscope_analyzers.trace.graph.critical_path import by_category, by_name, critical_path
from tachoscope_explorer.figures import trace_bars
from tachoscope_explorer.figures.trace_words import COLORS
from tachoscope_explorer.page.widgets import chart, nothing
from tachoscope_explorer.screens.traces.breakdown import FileExtent, signature
from tachoscope_explorer.screens.traces.tables import show_table
from tachoscope_explorer.sources.traces import view_of_file

_COLORS = {
    "compute_kernel": COLORS["compute"],
    "communication": COLORS["communication"],
    "memory_copy": COLORS["copies"],
    "data_loading": COLORS["data_wait"],
    "host_operator": COLORS["operator"],
    "host_other": COLORS["annotation"],
    "runtime_call": COLORS["call"],
    "launch_latency": COLORS["call"],
    "synchronisation": COLORS["call"],
    "thread_handover": COLORS["call"],
    "allocator": COLORS["call"],
    "unexplained": COLORS["unexplained"],
}


@st.cache_data(max_entries=8, show_spinner="Following the critical path …")
def _tables(path: str, signature: str) -> tuple[pd.DataFrame, pd.DataFrame]:  # noqa: ARG001
    found = critical_path(view_of_file(Path(path)))
    return by_category(found), by_name(found)


def show(one: FileExtent, zero_ns: int) -> None:  # noqa: ARG001  # as all parts are called
    """Show the critical path through a rank's steps."""
    if not one.events:
        nothing("The trace contains no event.")
        return
    categories, names = _tables(str(one.path), signature(one.path))
    if not len(categories):
        nothing("The trace contains no step with a duration, so no critical path can be computed.")
        return
    st.caption(
        "Only what is on this path makes the run longer; fixing anything else gains nothing. Its parts sum to the steps' time."
    )
    totals = categories.set_index(categories["category"].astype(str))["duration_ns"]
    chart(trace_bars.bars(dict(totals), _COLORS), "trace-path", height=trace_bars.height(len(totals)))
    show_table(names.assign(category=names["category"].astype(str)), "critical-path")

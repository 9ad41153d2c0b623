"""Why the device was idle."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from tachoscope_analyzers.trace.device_time.breakdown import breakdown
from tachoscope_analyzers.trace.device_time.idle import by_cause, idle
from tachoscope_analyzers.trace.device_time.ledger import STATE_OF_CAUSE
from tachoscope_core.report.palette import STATE_COLORS
from tachoscope_explorer.figures import trace_bars
from tachoscope_explorer.figures.trace_words import duration
from tachoscope_explorer.page.widgets import chart, nothing
from tachoscope_explorer.screens.traces.breakdown import FileExtent, signature
from tachoscope_explorer.screens.traces.kernels import NO_DEVICE
from tachoscope_explorer.screens.traces.tables import MOST_ROWS, show_table
from tachoscope_explorer.sources.traces import view_of_file

_GAP_COLUMNS = ["at_ns", "duration_ns", "cause", "detail", "operator", "source", "next_kernel"]


@st.cache_data(max_entries=8, show_spinner="Looking for the causes of idle time …")
def _tables(path: str, signature: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:  # noqa: ARG001
    view = view_of_file(Path(path))
    gaps = idle(view)
    longest = gaps.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True).head(MOST_ROWS)
    return breakdown(view), by_cause(gaps), longest


def show(one: FileExtent, zero_ns: int) -> None:
    """Show the idle time of a rank's devices by cause."""
    times, causes, longest = _tables(str(one.path), signature(one.path))
    if not len(times):
        nothing(NO_DEVICE)
        return
    for device in times.to_dict("records"):
        facts = f"idle {duration(device['idle_ns'])} of {duration(device['span_ns'])} ({device['idle_percent']:.1f} %)"
        st.markdown(f"Device {device['device']}: {facts}, from its first work to its last.")
    if not len(causes):
        st.success("There was no gap between the device's work.", icon=":material/check:")
        return
    totals = causes.groupby("cause", sort=False, observed=True)["total_ns"].sum()
    colors = {cause: STATE_COLORS[state] for cause, state in STATE_OF_CAUSE.items()}
    chart(trace_bars.bars(dict(totals), colors), "trace-idle", height=trace_bars.height(len(totals)))
    st.markdown("**Causes**, with the call that tells them and the operator around it")
    show_table(causes, "idle-causes")
    st.markdown("**Longest gaps**; at: since the recording began")
    show_table(longest.assign(at_ns=longest["start_ns"] - zero_ns)[_GAP_COLUMNS], "idle-gaps")

"""How much work the host had queued for the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st

from tachoscope_analyzers.trace.analyses.launches import launch_summary, queue_length, queue_summary
from tachoscope_analyzers.trace.analyses.overview import MOST_BINS, edges, extent
from tachoscope_analyzers.trace.analyses.time_bins import binned
from tachoscope_explorer.figures import trace_courses
from tachoscope_explorer.figures.trace_courses import Line
from tachoscope_explorer.page.widgets import chart, nothing
from tachoscope_explorer.screens.traces.breakdown import FileExtent, signature
from tachoscope_explorer.screens.traces.kernels import NO_DEVICE
from tachoscope_explorer.screens.traces.tables import show_table
from tachoscope_explorer.sources.traces import view_of_file

_MOST_STREAMS = 8


@st.cache_data(max_entries=8, show_spinner="Following the launches …")
def _queues(path: str, signature: str) -> tuple[list[Line], pd.DataFrame, pd.DataFrame]:  # noqa: ARG001
    view = view_of_file(Path(path))
    summary = queue_summary(view)
    busiest = summary.sort_values("queued_mean", ascending=False).head(_MOST_STREAMS)
    table, bounds, lines = queue_length(view), edges(*extent(view.trace), MOST_BINS), []
    for device, stream in sorted(zip(busiest["device"], busiest["stream"], strict=True)):
        mine = table[(table["device"] == device) & (table["stream"] == stream)]
        course = binned(mine["time_ns"].to_numpy(), mine["queued"].to_numpy(dtype=np.float64), bounds)
        lines.append(Line(f"stream {stream}" if len(view.devices) == 1 else f"device {device} stream {stream}", course))
    return lines, summary, launch_summary(view)


def show(one: FileExtent, zero_ns: int) -> None:
    """Show the queues of a rank's streams."""
    lines, queues, launches = _queues(str(one.path), signature(one.path))
    if not len(launches):
        nothing(NO_DEVICE)
        return
    if not lines:
        nothing("The trace does not tell which call launched what: record with `ProfilerActivity.CPU` too.")
        return
    st.caption("Kernels and copies that are launched and not done. Where this is near 0 or 1 the device waits for the host.")
    length = (one.end_ns - one.start_ns) / 1e6
    begin = (one.start_ns - one.base_ns - zero_ns) / 1e6
    chart(trace_courses.courses(lines, begin, length / len(lines[0].course.mean), "queued"), "trace-queue")
    if len(queues) > len(lines):
        st.caption(f"The {len(lines)} busiest of {len(queues)} streams.")
    st.markdown("**Queues**")
    show_table(queues, "queues")
    st.markdown("**Launches**")
    show_table(launches, "launches")

"""What was allocated when, and what moved."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from tachoscope_analyzers.trace.analyses import memory
from tachoscope_analyzers.trace.analyses.overview import MOST_BINS, edges, extent
from tachoscope_analyzers.trace.analyses.time_bins import binned
from tachoscope_explorer.figures import trace_courses
from tachoscope_explorer.figures.trace_courses import Line
from tachoscope_explorer.page.widgets import chart, nothing
from tachoscope_explorer.screens.traces.breakdown import FileExtent, signature
from tachoscope_explorer.screens.traces.tables import show_table
from tachoscope_explorer.sources.traces import view_of_file
from tachoscope_show.text.units import size

_HOW = (
    "No allocation is in this trace. Record with `torch.profiler.profile(profile_memory=True)`; "
    "Nsight Systems and TensorFlow do not write them."
)
_MIB = 2**20


@st.cache_data(max_entries=8, show_spinner="Following the memory …")
def _memory(path: str, signature: str) -> tuple[list[Line], pd.DataFrame, pd.DataFrame, pd.DataFrame]:  # noqa: ARG001
    view = view_of_file(Path(path))
    bounds, lines = edges(*extent(view.trace), MOST_BINS), []
    table = memory.timeline(view.trace)
    places = table[["device_type", "device"]].drop_duplicates().sort_values(["device_type", "device"])
    for kind, device in zip(places["device_type"], places["device"], strict=True):
        mine = table[(table["device_type"] == kind) & (table["device"] == device)]
        for column, words in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved")):
            told = mine[mine[column].notna()]
            if len(told) and told[column].max() >= _MIB:
                course = binned(told["time_ns"].to_numpy(), told[column].to_numpy(), bounds)
                lines.append(Line(f"{_place(int(kind), int(device))} {words}", course))
    return lines, memory.memory_summary(view), memory.allocator_calls(view), memory.copies(view)


def _place(kind: int, device: int) -> str:
    return "host" if kind == memory.DEVICE_TYPE_CPU else f"device {device}"


def show(one: FileExtent, zero_ns: int) -> None:
    """Show the memory of a rank."""
    lines, summary, calls, copies = _memory(str(one.path), signature(one.path))
    if not len(summary):
        nothing(_HOW)
    for row in summary.to_dict("records"):
        peak = row["peak_allocated_bytes"]
        if peak >= _MIB:  # not where the trace does not tell, nor for the few bytes of counters that the host allocates
            of = f" of {size(row['capacity_bytes'])}" if row["capacity_bytes"] == row["capacity_bytes"] else ""
            at = (row["peak_time_ns"] - zero_ns) / 1e6
            st.markdown(f"Peak of {_place(row['device_type'], row['device'])}: {size(peak)}{of}, at {at:,.3f} ms.")
    if lines:
        length = (one.end_ns - one.start_ns) / 1e6
        begin = (one.start_ns - one.base_ns - zero_ns) / 1e6
        figure = trace_courses.courses(lines, begin, length / len(lines[0].course.mean), "MiB", scale=_MIB)
        chart(figure, "trace-memory")
    if len(summary):
        where = [_place(kind, device) for kind, device in zip(summary["device_type"], summary["device"], strict=True)]
        show_table(summary.drop(columns=["peak_time_ns", "device_type"]).assign(device=where), "memory")
    st.markdown("**Copies and fills**")
    if len(copies):
        show_table(copies, "copies")
    else:
        nothing("The device copied nothing in this trace.")
    if len(calls):
        st.markdown("**Calls that allocate or free**; each may stop the device")
        show_table(calls, "allocator-calls")

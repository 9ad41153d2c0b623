"""Which operators the time went to, and by which calls."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from tachoscope_analyzers.trace.analyses.operator_paths import largest, operator_paths
from tachoscope_analyzers.trace.analyses.operator_tree import by_module, by_operator
from tachoscope_explorer.figures import trace_operators
from tachoscope_explorer.page.widgets import chart, nothing
from tachoscope_explorer.screens.traces.breakdown import FileExtent, signature
from tachoscope_explorer.screens.traces.tables import show_table
from tachoscope_explorer.sources.traces import view_of_file

MOST_NODES = 600
_COLUMNS = {"device": "total_device_ns", "host": "total_host_ns"}


@st.cache_data(max_entries=8, show_spinner="Adding up the operators …")
def _paths(path: str, signature: str, column: str) -> pd.DataFrame:  # noqa: ARG001  # a file that was changed is read again
    return largest(operator_paths(view_of_file(Path(path))), column, MOST_NODES)


@st.cache_data(max_entries=8, show_spinner="Adding up the operators …")
def _tables(path: str, signature: str) -> tuple[pd.DataFrame, pd.DataFrame]:  # noqa: ARG001
    view = view_of_file(Path(path))
    return by_operator(view), by_module(view)


def show(one: FileExtent, zero_ns: int) -> None:  # noqa: ARG001  # as all parts are called
    """Show the operators of a rank."""
    key = str(one.path), signature(one.path)
    operators, modules = _tables(*key)
    if not (operators["count"] > 0).any():
        nothing("This trace contains no operators: record with `ProfilerActivity.CPU` in addition to the device's activity.")
        return
    has_device = bool(operators["total_device_ns"].any())
    side = st.segmented_control(
        "Time", ["device", "host"], default="device" if has_device else "host", key=f"trace-side-{one.digest}", required=True
    )
    if side == "device" and not has_device:
        nothing("No work of a device is in this trace: there is only the host's time.")
        return
    st.caption(
        "Each box is an operator within what called it, as wide as its time over the whole trace; steps are added up. "
        + ("Work of the device counts for the operator that launched it. " if side == "device" else "")
        + "A click goes into a box."
    )
    chart(trace_operators.icicle(_paths(*key, _COLUMNS[side]), _COLUMNS[side]), f"trace-icicle-{side}", height=520)
    st.markdown("**Operators**")
    show_table(operators, "operators")
    st.markdown("**Modules**")
    if len(modules):
        show_table(modules, "modules")
    else:
        nothing("The trace names no modules: record with `with_stack=True` or `with_modules=True`.")

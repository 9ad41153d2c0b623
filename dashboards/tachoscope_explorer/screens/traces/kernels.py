"""What the device ran."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from tachoscope_analyzers.trace.analyses.roofline import roofline
from tachoscope_analyzers.trace.device_time import kernels
from tachoscope_explorer.figures import trace_bars
from tachoscope_explorer.figures.trace_words import COLORS
from tachoscope_explorer.page.widgets import chart, nothing
from tachoscope_explorer.screens.traces.breakdown import FileExtent, signature
from tachoscope_explorer.screens.traces.tables import show_table
from tachoscope_explorer.sources.traces import view_of_file

NO_DEVICE = (
    "No work of a device is in this trace. Record with `ProfilerActivity.CUDA` (or your device's), on a machine that has one, "
    "and check that no other profiler holds it."
)
_WITHOUT = ["min_ns", "std_ns"]
_COLORS = {"communication": COLORS["communication"], "memcpy": COLORS["copies"], "memset": COLORS["copies"]}
"""Of classes that do not compute."""


@st.cache_data(max_entries=8, show_spinner="Counting the kernels …")
def _tables(path: str, signature: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:  # noqa: ARG001
    view = view_of_file(Path(path))
    return kernels.by_class(view), kernels.by_name(view), roofline(view)


def show(one: FileExtent, zero_ns: int) -> None:  # noqa: ARG001  # as all parts are called
    """Show the kernels of a rank."""
    classes, names, roof = _tables(str(one.path), signature(one.path))
    if not len(names):
        nothing(NO_DEVICE)
        return
    st.caption("Share: of the time of all kernels, copies and fills of the device; those that run at the same time both count.")
    totals = classes.groupby("class", sort=False)["total_ns"].sum()
    colors = {name: _COLORS.get(str(name), COLORS["compute"]) for name in totals.index}
    chart(trace_bars.bars(dict(totals), colors), "trace-kernel-classes", height=trace_bars.height(len(totals)))
    st.markdown("**Kernels, copies and fills**")
    show_table(_front(names.drop(columns=_WITHOUT), ["name", "class", "count", "total_ns", "mean_ns", "share_percent"]), "kernels")
    st.markdown("**Roofline**")
    if len(roof):
        st.caption(
            "Work of operators with recorded shapes, and how far it is from the device's peak (empty for an unknown device)."
        )
        show_table(_front(roof, ["operator", "shapes", "device_ns", "bound", "peak_percent"]), "roofline")
    else:
        nothing("No operator's work is known: record with `record_shapes=True`.")


def _front(frame: pd.DataFrame, first: list[str]) -> pd.DataFrame:
    return frame[[*first, *(column for column in frame.columns if column not in first)]]

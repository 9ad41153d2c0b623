"""The overview of a recording, and a closer look at a window of it."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from tachoscope_analyzers.trace.analyses.event_slices import MOST_SLICES, inside, slices
from tachoscope_analyzers.trace.analyses.overview import MOST_BINS, Row
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_explorer.figures import trace_overview, trace_slices
from tachoscope_explorer.figures.trace_overview import StepMark
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.widgets import chart, nothing
from tachoscope_explorer.screens.traces import breakdown as trace_work
from tachoscope_explorer.screens.traces.breakdown import BinnedRows, FileExtent, Ranks
from tachoscope_explorer.screens.traces.choice import TraceWindow, shift
from tachoscope_explorer.sources.traces import view_of_file

MOST_CELLS = 20_000
_DRAWN_OF = 3
"""Slices are drawn, the longest of them, while a window holds up to so many times as many as can be."""
_ROW_PIXELS, _LEAST_PIXELS = 22, 190
_MOST_LANE_PIXELS = 1_200


def bins_for(rows: int) -> int:
    """Return how many bins so many rows may have."""
    return max(100, min(MOST_BINS, MOST_CELLS // max(rows, 1)))


def overview(context: Context, found: Ranks, rank: int | None, window: TraceWindow, whole: TraceWindow, *, together: bool) -> None:
    """Show where the time of all of a recording went: a row for each rank, or for each stream and thread of one."""
    if rank is None:
        rows, marks = _of_ranks(found, whole, together=together)
        st.caption("Time since the first event. A row for each rank. Draw a box to zoom in; choose a rank for its streams.")
    else:
        binned = trace_work.tracks(found.extents[rank], *_own(found.extents[rank], whole, together=together), MOST_BINS)
        rows, marks = [(row.name, row) for row in binned.rows], _marks(binned, found.extents[rank], whole, together=together)
        lines = " Dotted lines: a step begins, on the device where there is one." if marks else ""
        st.caption(f"Time since the first event. Draw a box to zoom in.{lines}")
    if not together:
        st.caption("The clocks of these ranks cannot be compared: each rank is drawn from its own first event.")
    if not rows:
        nothing("The trace contains no event with a duration.")
        return
    bins = len(rows[0][1].times)
    part = None if window == whole else window.milliseconds()
    figure = trace_overview.overview(rows, 0.0, (whole.end - whole.start) / 1e6 / bins, marks=marks, window=part)
    key = f"trace-overview-{rank}-{window.start}-{window.end}"
    _zoom_to(context, window, chart(figure, key, height=_LEAST_PIXELS + _ROW_PIXELS * len(rows), selects="box"))


def _of_ranks(found: Ranks, whole: TraceWindow, *, together: bool) -> tuple[list[tuple[str, Row]], list[StepMark]]:
    bins = bins_for(len(found.extents))
    rows = []
    bar = st.empty()
    for number, (rank, one) in enumerate(found.extents.items(), start=1):
        start, end = _own(one, whole, together=together)
        devices = trace_work.file_rows(one, start, end, bins)
        rows += [(f"rank {rank}" if len(devices) == 1 else f"rank {rank} {row.name}", row) for row in devices]
        bar.progress(number / len(found.extents), text="Going through the ranks …")
    bar.empty()
    return sorted(rows, key=lambda row: row[1].states), []


def _own(one: FileExtent, window: TraceWindow, *, together: bool) -> tuple[int, int]:
    """Return a window on a trace's own clock."""
    offset = shift(one, window.origin, together=together)
    return window.start - offset, window.end - offset


def _marks(binned: BinnedRows, one: FileExtent, whole: TraceWindow, *, together: bool) -> list[StepMark]:
    offset = shift(one, whole.origin, together=together) - whole.origin
    at = (binned.step_start + offset) / 1e6
    return [StepMark(float(moment), int(number)) for moment, number in zip(at, binned.step_number, strict=True)]


def _zoom_to(context: Context, window: TraceWindow, selection: dict[str, list[dict[str, object]]]) -> None:
    """Go to the window that a box was drawn over."""
    for box in selection["box"]:
        first, last = sorted(float(value) for value in box["x"])  # type: ignore[attr-defined]
        _go(context, window, first, last)


def _go(context: Context, window: TraceWindow, first_ms: float, last_ms: float) -> None:
    start, end = (window.origin + round(moment * 1e6) for moment in (first_ms, last_ms))
    look_at(replace(context.view, start=start / 1e9, end=max(end, start + 2_000) / 1e9))
    st.rerun()


def controls(context: Context, window: TraceWindow, whole: TraceWindow) -> None:
    """Let somebody type the window, and go back to all of the recording."""
    first, last = window.milliseconds()
    length = (whole.end - whole.start) / 1e6
    left, middle, right = st.columns([2, 2, 1], vertical_alignment="bottom")
    place = f"{window.start}-{window.end}"
    options = {"format": "%.3f", "step": max(round(length / 100, 3), 0.001)}
    begin = left.number_input("From, ms", 0.0, value=min(first, length), max_value=length, key=f"trace-from-{place}", **options)
    finish = middle.number_input("To, ms", 0.0, value=min(last, length), max_value=length, key=f"trace-to-{place}", **options)
    if right.button("Whole recording", disabled=window == whole, icon=":material/zoom_out_map:", width="stretch"):
        look_at(replace(context.view, start=None, end=None))
        st.rerun()
    if (begin, finish) != (min(first, length), min(last, length)):
        if begin < finish:
            _go(context, window, begin, finish)
        st.warning("The window must end after it begins.")


def closer(context: Context, one: FileExtent, rank: int, window: TraceWindow, *, together: bool) -> None:
    """Show a window of one rank: its events one by one where they are few, else its streams and threads over bins."""
    start, end = _own(one, window, together=together)
    trace = view_of_file(one.path).trace
    st.subheader(f"Rank {rank}, {_length(window)}")
    frames = False
    if (trace.kind == Kind.PYTHON).any():
        frames = st.toggle("Python frames", key="trace-frames", help="They enclose all other events of their thread.")
    count = len(inside(trace, start, end, frames=frames))
    if not count:
        nothing("Nothing was recorded in this window.")
        return
    key = f"trace-closer-{rank}-{window.start}-{window.end}-{frames}"
    if count > _DRAWN_OF * MOST_SLICES:
        st.caption(
            f"{count:,} events, too many to draw one by one: draw a box for a narrower window of up to {_DRAWN_OF * MOST_SLICES:,}."
        )
        binned = trace_work.tracks(one, start, end, MOST_BINS)
        rows = [(row.name, row) for row in binned.rows]
        first, last = window.milliseconds()
        marks = [mark for mark in _marks(binned, one, window, together=together) if first <= mark.at <= last]
        figure = trace_overview.overview(rows, first, (last - first) / len(rows[0][1].times), marks=marks)
        height = _LEAST_PIXELS + _ROW_PIXELS * len(rows)
    else:
        found = slices(trace, start, end, frames=frames)
        left_out = f"; the {found.left_out:,} shortest are left out" if found.left_out else ""
        st.caption(f"{count:,} events{left_out}. Draw a box for a narrower window.")
        figure = trace_slices.slices(trace, found, window.origin - shift(one, window.origin, together=together), start, end)
        height = min(_LEAST_PIXELS + trace_slices.LANE_PIXELS * trace_slices.lanes(found), _MOST_LANE_PIXELS)
    _zoom_to(context, window, chart(figure, key, height=height, selects="box"))


def _length(window: TraceWindow) -> str:
    return f"{(window.end - window.start) / 1e6:,.3f} ms"

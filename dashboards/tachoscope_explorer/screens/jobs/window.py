"""The window of a run that the page of a job looks at: chosen with the mouse in a picture, or without one by steps or by hour.

It is in the address as moments. Its steps are those of the whole run that it holds, so it does not hang on what is shown now.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from tachoscope_explorer.figures.ledger import Axis
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.sources.jobs import JobView

_ROUNDING = 1e-3
"""Seconds: addresses have whole milliseconds."""
_HOUR = 3600.0
Window = tuple[float | None, float | None]


def chosen(context: Context, whole: JobView) -> Window:
    """Return the window of the address; none if it holds the whole run, as one that comes from a board mostly does."""
    start, end = context.view.start, context.view.end
    before = start is None or start <= whole.edges[0] + _ROUNDING
    after = end is None or end >= whole.edges[-1] - _ROUNDING
    return (None, None) if before and after else (start, end)


def back(context: Context) -> None:
    """Put the button that leads back to the whole run."""
    if st.button("Whole run", icon=":material/zoom_out_map:", key="whole-run"):
        _go(context, None, None)


def outside(whole: JobView, look: JobView) -> bool:
    """Return whether a window lies before or after all that is read of the whole run."""
    return look.edges[-1] <= whole.edges[0] or look.edges[0] >= whole.edges[-1]


def brushed(context: Context, base: JobView, boxes: Sequence[Mapping[str, Any]], axis: Axis, *, whole: bool) -> None:
    """Look at the window of a box that was drawn over a run, or over a window of it (`whole` is false)."""
    if boxes and len(boxes[0].get("x", [])) == 2:
        first, last = sorted(_place(value, axis, base) for value in boxes[0]["x"])
        _of_steps(context, base, first, last, whole=whole)


def by_steps(context: Context, base: JobView, look: JobView, *, whole: bool) -> None:
    """Put a slider with the first and the last step that are looked at, within the steps of `base`; see `brushed`."""
    numbers = base.numbers
    if len(numbers) < 2:
        return
    ends = tuple(min(max(number, numbers[0]), numbers[-1]) for number in (look.numbers[0], look.numbers[-1]))
    # It was chosen elsewhere, or is another job's; and what a widget says is forgotten while another page is shown.
    of = base.report.job, numbers[0], numbers[-1], ends
    if "window" not in st.session_state or st.session_state.get("window-of") != of:
        st.session_state["window-of"] = of
        st.session_state["window"] = ends
    low, high = st.slider(
        "Steps of the window",
        numbers[0],
        numbers[-1],
        key="window",
        help="Everything on this page then covers these steps. Or draw a box in the picture above.",
    )
    if (low, high) != ends:
        _of_steps(context, base, bisect_left(numbers, low), bisect_right(numbers, high) - 1, whole=whole)


def by_hour(context: Context, whole: JobView, window: Window) -> None:
    """Offer the hours before the part of a long job that is judged, the newest first."""
    if not whole.report.earlier:
        return
    hours = range(int(whole.edges[0] // _HOUR), int(whole.report.earlier[0].start // _HOUR) - 1, -1)
    hour = st.selectbox(
        "Earlier hour, UTC",
        hours,
        index=None,
        format_func=lambda one: datetime.fromtimestamp(one * _HOUR, UTC).strftime("%Y-%m-%d %H:%M"),
        placeholder="Look at an hour",
        key=f"hour-{window}",  # of another window nothing is chosen yet
    )
    if hour is not None:
        _go(context, hour * _HOUR, (hour + 1) * _HOUR)


def _of_steps(context: Context, base: JobView, first: int, last: int, *, whole: bool) -> None:
    """Look at the steps from one to another, by their places in `base`; at all of a window it is looked already."""
    if (first, last) != (0, len(base.numbers) - 1):
        _go(context, base.edges[first], base.edges[last + 1])
    elif whole:
        _go(context, None, None)


def _go(context: Context, start: float | None, end: float | None) -> None:
    look_at(replace(context.view, start=start, end=end))
    st.rerun()


def _place(value: Any, axis: Axis, whole: JobView) -> int:
    """Return the place in the run of the step that lies there on the axis."""
    if axis == "step":
        place = bisect_left(whole.numbers, float(value) - 0.5)
    elif isinstance(value, int | float):
        place = bisect_right(whole.edges, float(value) / 1e3) - 1
    else:
        moment = datetime.fromisoformat(str(value).strip().replace(" ", "T")).replace(tzinfo=UTC)
        place = bisect_right(whole.edges, moment.timestamp()) - 1
    return min(max(place, 0), len(whole.numbers) - 1)

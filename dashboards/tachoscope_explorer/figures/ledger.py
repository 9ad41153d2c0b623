"""The ledger of a run over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import numpy as np
import plotly.graph_objects as go

from tachoscope_analyzers.job.timeline import Timeline
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_show.text.state_bar import color

Axis = Literal["time", "step"]
Unit = Literal["share", "seconds"]


def over_time(course: Timeline, axis: Axis, unit: Unit, *, window: tuple[float, float] | None = None) -> go.Figure:
    """Return the states as stacked bars, as shares of the time or in seconds a step of one rank; a box can be drawn over them.

    Args:
        window: in Unix seconds; what is outside of it is shaded.
    """
    figure = go.Figure()
    middles, widths = bin_positions(course, axis)
    whole = sum(course.states.values(), 0.0 * course.wall)
    for state, seconds in course.states.items():
        value = 100 * seconds / whole if unit == "share" else seconds / (course.ranks * course.steps)
        figure.add_bar(
            x=middles,
            y=value,
            width=widths,
            name=state,
            marker={"color": color(state), "line": {"width": 0}},
            unselected={"marker": {"opacity": 1}},
            hovertemplate=f"{state}: %{{y:.3g}}{' %' if unit == 'share' else ' s a step'}<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0, hovermode="x unified", dragmode="select", selectdirection="h")
    figure.update_yaxes(title="% of the time" if unit == "share" else "seconds a step", fixedrange=True, rangemode="tozero")
    if unit == "share":
        figure.update_yaxes(range=[0, 100])
    of_axis(figure, axis)
    if window is not None:
        _shade(figure, course, axis, window)
    return figure


def bin_positions(course: Timeline, axis: Axis) -> tuple[list[object], Matrix]:
    """Return the middle of each bin on the axis, and its width: in milliseconds on one of time."""
    if axis == "step":
        return list((course.first_step + course.last_step) / 2), np.asarray(course.last_step - course.first_step + 1.0)
    return [moment(float(value)) for value in (course.start + course.end) / 2], np.asarray((course.end - course.start) * 1e3)


def of_axis(figure: go.Figure, axis: Axis) -> None:
    """Name the horizontal axis."""
    figure.update_xaxes(title="step" if axis == "step" else "time, UTC", type="linear" if axis == "step" else "date")


def moment(unix: float) -> datetime:
    """Return Unix seconds as plotly takes them: a time of day in UTC, of no zone."""
    return datetime.fromtimestamp(unix, UTC).replace(tzinfo=None)


def _shade(figure: go.Figure, course: Timeline, axis: Axis, window: tuple[float, float]) -> None:
    ends = (float(course.start[0]), window[0]), (window[1], float(course.end[-1]))
    for begin, end in ends:
        if end > begin:
            x0, x1 = (position(course, axis, value) for value in (begin, end))
            figure.add_vrect(x0=x0, x1=x1, fillcolor="#888888", opacity=0.55, line_width=0, layer="above")


def position(course: Timeline, axis: Axis, unix: float) -> object:
    """Return where a moment lies on the axis."""
    if axis == "time":
        return moment(unix)
    before = int((course.start <= unix).sum()) - 1
    at = max(before, 0)
    length = float(course.end[at] - course.start[at])
    part = min(max((unix - float(course.start[at])) / length, 0.0), 1.0) if length > 0 else 0.0
    return float(course.first_step[at]) - 0.5 + part * float(course.last_step[at] - course.first_step[at] + 1)

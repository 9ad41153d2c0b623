"""The ledger of a run over time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import plotly.graph_objects as go

from tachoscope_analyzers.job.timeline import Timeline
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_show.text.state_bar import color

Axis = Literal["time", "step"]
Unit = Literal["share", "seconds"]

_MOST_BARS = 50
"""More bins are areas: the hover takes the nearest begin, so it is off by half a bin, which is then narrow."""
_SEEN = 1e-3
"""Part of the axis, about a pixel: a wider gap between bins is left empty."""


def over_time(course: Timeline, axis: Axis, unit: Unit, *, window: tuple[float, float] | None = None) -> go.Figure:
    """Return the states stacked, as shares of the time or in seconds a step of one rank; a box can be drawn over them.

    Args:
        window: in Unix seconds; what is outside of it is shaded.
    """
    figure = go.Figure()
    whole = sum(course.states.values(), 0.0 * course.wall)
    add = _areas if len(course.wall) > _MOST_BARS else _bars
    for state, seconds in course.states.items():
        value = 100 * seconds / whole if unit == "share" else seconds / (course.ranks * course.steps)
        hover = f"{state}: %{{y:.3g}}{' %' if unit == 'share' else ' s a step'}<extra></extra>"
        add(figure, course, axis, value, {"name": state, "hovertemplate": hover}, color(state))
    figure.update_layout(barmode="stack", bargap=0, hovermode="x unified", dragmode="select", selectdirection="h")
    figure.update_yaxes(title="% of the time" if unit == "share" else "seconds a step", fixedrange=True, rangemode="tozero")
    if unit == "share":
        figure.update_yaxes(range=[0, 100])
    of_axis(figure, axis)
    if window is not None:
        _shade(figure, course, axis, window)
    return figure


def _bars(figure: go.Figure, course: Timeline, axis: Axis, value: Matrix, names: Mapping[str, str], fill: str) -> None:
    middles, widths = bin_positions(course, axis)
    marker = {"color": fill, "line": {"width": 0}}
    figure.add_bar(x=middles, y=value, width=widths, marker=marker, unselected={"marker": {"opacity": 1}}, **names)


def _areas(figure: go.Figure, course: Timeline, axis: Axis, value: Matrix, names: Mapping[str, str], fill: str) -> None:
    """Draw the bins of a state as one outline, which takes a browser a third of the time of 200 bars."""
    by_step = axis == "step"
    starts, ends = (course.first_step - 0.5, course.last_step + 0.5) if by_step else (course.start, course.end)
    behind = np.flatnonzero(starts[1:] - ends[:-1] > (ends[-1] - starts[0]) * _SEEN) + 1
    x = np.append(np.insert(starts, behind, ends[behind - 1]), ends[-1])
    y = np.append(np.insert(value, behind, 0.0), value[-1])
    line = {"shape": "hv", "width": 0}
    places = x if by_step else x * 1e3  # milliseconds since 1970, which go to the browser as bytes
    figure.add_scatter(x=places, y=y, mode="lines", line=line, stackgroup="states", fillcolor=fill, **names)


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

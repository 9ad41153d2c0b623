"""Step times: how they are spread, how they went over the run, and whose time they were."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from tachoscope_analyzers.job.rank_grid import RankGrid
from tachoscope_analyzers.job.timeline import Timeline
from tachoscope_analyzers.ledger.histogram import Histogram
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.report.palette import BAD, OK, SERIES, WARN
from tachoscope_core.report.report import StepSeconds
from tachoscope_core.report.trend import Trend
from tachoscope_explorer.figures.ledger import Axis, moment, of_axis, position
from tachoscope_show.text.state_bar import color
from tachoscope_show.text.units import seconds

_QUANTILE_COLORS = {"p50": OK, "p95": WARN, "p99": BAD}
_MOST_POINTS = 4000
_EXACT_STEPS = 1 << 24
"""Below this a number of four bytes holds each step exactly."""
_MOST_LATE = 12
_ROOM = 0.6
"""Above and below the medians, in parts of the distance between the lowest and the highest."""


def spread(histogram: Histogram, quantiles: StepSeconds) -> go.Figure:
    """Return how often steps took how long, with the median and the two quantiles that objectives are about."""
    edges = histogram.edges
    figure = go.Figure()
    figure.add_bar(
        x=(edges[1:] + edges[:-1]) / 2 * 1e3,
        y=histogram.counts,
        width=np.diff(edges) * 1e3,
        marker={"color": SERIES[0], "line": {"width": 0}},
        customdata=np.stack([edges[:-1], edges[1:]], axis=1) * 1e3,
        hovertemplate="%{customdata[0]:.4g} to %{customdata[1]:.4g} ms: %{y} steps<extra></extra>",
        showlegend=False,
    )
    most = float(histogram.counts.max())
    for name, value in (("p50", quantiles.p50), ("p95", quantiles.p95), ("p99", quantiles.p99)):
        figure.add_scatter(
            x=[value * 1e3, value * 1e3],
            y=[0, most],
            mode="lines",
            line={"color": _QUANTILE_COLORS[name], "dash": "dash", "width": 2},
            name=f"{name} {seconds(value)}",
            hovertemplate=f"{name} {seconds(value)}<extra></extra>",
        )
    figure.update_layout(bargap=0)
    figure.update_xaxes(title="step time in ms")
    figure.update_yaxes(title="steps")
    return figure


def over_run(bins: Timeline, course: Trend | None, axis: Axis) -> go.Figure:
    """Return the step time over the run, with its lasting changes, numbered in their order, and when which rank was late."""
    figure = go.Figure()
    at_middle = (bins.start + bins.end) / 2
    middles = at_middle * 1e3 if axis == "time" else np.array([position(bins, axis, value) for value in at_middle])
    low, high = _range(bins)
    line = {"color": SERIES[0], "width": 1.5}
    figure.add_scatter(x=middles, y=bins.p95 * 1e3, line={"width": 0}, mode="lines", hoverinfo="skip", showlegend=False)
    figure.add_scatter(
        x=middles,
        y=bins.p05 * 1e3,
        line={"width": 0},
        mode="lines",
        fill="tonexty",
        fillcolor="rgba(0,114,178,.22)",
        name="5 to 95 % of the steps",
        hoverinfo="skip",
    )
    behind = _behind_gaps(bins.first_step, bins.last_step)
    figure.add_scatter(
        x=np.insert(middles, behind, middles[behind]),
        y=np.insert(bins.p50 * 1e3, behind, np.nan),
        line=line,
        mode="lines" if len(bins.wall) > 1 else "markers",
        name="median",
        hovertemplate="%{y:.4g} ms<extra></extra>",
    )
    for number, change in enumerate((course.changes if course else None) or [], start=1):
        at = position(bins, axis, change.time)
        figure.add_vline(x=at, line={"color": BAD, "dash": "dash", "width": 1.5})
        figure.add_annotation(
            x=at,
            y=1,
            yref="paper",
            text=f"<b>{number}</b>",
            showarrow=False,
            xanchor="left",
            yanchor="top",
            font={"color": BAD, "size": 14},
        )
    _late(figure, bins, course, axis, low, high)
    figure.update_yaxes(title="step time in ms", rangemode="normal")
    of_axis(figure, axis)
    return figure


def _range(bins: Timeline) -> tuple[float, float]:
    """Return the ends of the vertical axis in ms: around the medians, whatever single steps, such as periodic saves, take."""
    low, high = float(bins.p50.min()) * 1e3, float(bins.p50.max()) * 1e3
    room = max((high - low) * _ROOM, high * 0.05)
    return max(low - room, 0.0), high + room


def _late(figure: go.Figure, bins: Timeline, course: Trend | None, axis: Axis, low: float, high: float) -> None:
    """Draw a strip below the line for each rank that was late, in the colour of what it did."""
    ranks = ((course.late if course else None) or [])[:_MOST_LATE]
    height = (high - low) * 0.1
    for row, one in enumerate(ranks, start=1):
        y = low - row * height
        for stretch in one.stretches:
            x = [position(bins, axis, stretch.start), position(bins, axis, stretch.end)]
            figure.add_scatter(
                x=x,
                y=[y, y],
                mode="lines",
                line={"color": color(stretch.state), "width": 14},
                showlegend=False,
                hovertemplate=f"rank {one.rank} late by {seconds(stretch.seconds_per_step)} a step ({stretch.state})<extra/>",
            )
        if one.stretches:
            figure.add_annotation(
                x=position(
                    bins, axis, max(one.stretches[0].start, float(bins.start[0]))
                ),  # outside of the axis it would not be drawn
                y=y,
                text=f"rank {one.rank} late ",
                showarrow=False,
                xanchor="left",
                yanchor="middle",
                font={"size": 11, "color": "#000000"},
            )
    figure.update_yaxes(range=[low - (len(ranks) + 0.5) * height if ranks else low, high])


def cells(grid: RankGrid, axis: Axis) -> go.Figure:
    """Return seconds a step by rank and steps. Over it lie points that cannot be seen: a click picks the nearest (`cell_of_point`),
    and plotly has no clicks for heat maps.
    """
    rows = np.arange(len(grid.first_rank))
    x = _middles(grid, axis)
    behind = _behind_gaps(grid.first_step, grid.last_step)
    figure = go.Figure()
    figure.add_heatmap(
        x=_edges(grid, axis, behind),
        y=rows,
        z=np.insert(np.round(grid.worst_seconds * 1e3, 4), behind, np.nan, axis=1).astype(np.float32),
        colorscale="Cividis",
        hoverinfo="skip",
        colorbar={"title": "ms a step", "thickness": 12},
    )
    _points(figure, grid, x)
    shown = rows[:: max(len(rows) // 10, 1)]
    names = [_name(int(grid.first_rank[row]), int(grid.last_rank[row])) for row in shown]
    figure.update_yaxes(tickvals=shown, ticktext=names, range=[len(rows) - 0.5, -0.5], title="rank", fixedrange=True)
    by_step = [float(grid.first_step[0]) - 0.5, float(grid.last_step[-1]) + 0.5]
    figure.update_xaxes(range=by_step if axis == "step" else [moment(float(grid.start[0])), moment(float(grid.end[-1]))])
    figure.update_layout(hovermode="closest", hoverdistance=-1)
    of_axis(figure, axis)
    return figure


def _name(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _behind_gaps(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the places of the bins before which steps are missing, such as those under a profiler."""
    return np.flatnonzero(first[1:] > last[:-1] + 1) + 1


def _edges(grid: RankGrid, axis: Axis, behind: npt.NDArray[np.intp]) -> list[object]:
    """Return where the columns begin and the last one ends; a gap between them is a column of its own."""
    by_step = axis == "step"
    starts, ends = (grid.first_step - 0.5, grid.last_step + 0.5) if by_step else (grid.start, grid.end)
    edges = np.append(np.insert(starts, behind, ends[behind - 1]), ends[-1])
    return list(edges) if by_step else [moment(float(value)) for value in edges]


def _middles(grid: RankGrid, axis: Axis) -> Matrix:
    """Return the middle of each column on the axis: on one of time in milliseconds since 1970, which go to the browser as bytes."""
    return np.asarray((grid.first_step + grid.last_step) / 2 if axis == "step" else (grid.start + grid.end) / 2 * 1e3)


def cell_of_point(grid: RankGrid, point: int) -> tuple[int, float, float]:
    """Return the rank of the point with that place in `cells`, and the ends of its window in Unix seconds."""
    rows, columns = _places(grid)
    row, column = int(rows[point]), int(columns[point])
    return int(grid.worst_rank[row, column]), float(grid.start[column]), float(grid.end[column])


def _places(grid: RankGrid) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return row and column of each point: of very many cells, over those of every second, third, ... column."""
    count = len(grid.start)
    every = min(max(-(-grid.seconds.size // _MOST_POINTS), 1), count)
    rows, columns = np.mgrid[: len(grid.first_rank), 0:count:every]
    return rows.ravel(), columns.ravel()


def _points(figure: go.Figure, grid: RankGrid, x: Matrix) -> None:
    """Lay the points over the cells."""
    rows, columns = _places(grid)
    ms = np.round(grid.worst_seconds[rows, columns] * 1e3, 4)
    known = (grid.worst_rank[rows, columns], grid.first_step[columns], grid.last_step[columns], ms)
    short = np.float32 if grid.last_step[-1] < _EXACT_STEPS else np.float64
    figure.add_scatter(
        x=x[columns],
        y=rows.astype(np.int16),
        # Markers can be selected. All but one are not drawn: half the time of a browser.
        mode="markers",
        marker={"maxdisplayed": 1, "opacity": 0},
        customdata=np.stack(known, axis=1).astype(short),  # goes to the browser as bytes
        hovertemplate="rank %{customdata[0]}, steps %{customdata[1]:,} to %{customdata[2]:,}: %{customdata[3]:,.4~g} ms a step"
        "<extra></extra>",
        showlegend=False,
    )

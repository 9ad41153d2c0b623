"""Memory of a job by time: what is used of the limit, what each rank holds, and the moment of a kill."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

from tachoscope_core.report.memory import MemoryReport
from tachoscope_core.report.palette import BAD, SERIES
from tachoscope_show.report.memory_picture import held, span, steps_of

_MIB = 2**20


def by_time(memory: MemoryReport) -> go.Figure:
    """Return the curves in MiB, with the limit and the kills."""
    figure = go.Figure()
    start, end = span(memory)
    for place, one in enumerate(memory.ranks):
        line, name = {"color": SERIES[place % len(SERIES)], "width": 1.5}, f"rank {one.rank}"
        steps = [step for _, step in steps_of(one.times, one.steps, end)]
        _add(figure, name, steps_of(one.times, held(one), end), line, f"{name}: %{{y:.0f}} MiB after step %{{customdata}}", steps)
    if memory.used is not None:
        used = steps_of(memory.used.times, memory.used.used, end)
        _add(figure, "used of the limit", used, {"color": "#7f7f7f", "width": 2, "dash": "dot"}, "%{y:.0f} MiB used")
        limit = memory.used.limit_bytes
        if limit:
            _add(figure, "limit", [(start, limit), (end, limit)], {"color": BAD, "width": 1.5}, "limit %{y:.0f} MiB")
    for kill in memory.kills:
        figure.add_vline(x=_moment(kill.time), line={"color": BAD, "dash": "dash", "width": 1.5})
    figure.update_yaxes(title="memory in MiB", rangemode="tozero")
    return figure


def _add(
    figure: go.Figure, name: str, points: list[tuple[float, int]], line: dict[str, Any], hover: str, steps: list[int] | None = None
) -> None:
    figure.add_scatter(
        x=[_moment(time) for time, _ in points],
        y=[value / _MIB for _, value in points],
        mode="lines",
        line=line,
        customdata=steps,
        name=name,
        hovertemplate=f"{hover}<extra></extra>",
    )


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)

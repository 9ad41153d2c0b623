"""Memory of a job by time: what is used of the limit, what each rank holds, and the moment of a kill."""

from __future__ import annotations

from datetime import UTC, datetime

import plotly.graph_objects as go

from tachoscope_core.report.memory import MemoryReport, UsedCurve
from tachoscope_core.report.palette import BAD, SERIES

_MIB = 2**20


def by_time(memory: MemoryReport) -> go.Figure:
    """Return the curves in MiB, with the limit and the kills."""
    figure = go.Figure()
    for place, one in enumerate(memory.ranks):
        held = [sum(row) / _MIB for row in zip(one.process, one.workers, one.shared, strict=True)]
        figure.add_scatter(
            x=[_moment(time) for time in one.times],
            y=held,
            mode="lines",
            line={"color": SERIES[place % len(SERIES)], "width": 1.5},
            customdata=one.steps,
            name=f"rank {one.rank}",
            hovertemplate=f"rank {one.rank}: %{{y:.0f}} MiB after step %{{customdata}}<extra></extra>",
        )
    if memory.used is not None:
        _add_limit(figure, memory.used)
    for kill in memory.kills:
        figure.add_vline(x=_moment(kill.time), line={"color": BAD, "dash": "dash", "width": 1.5})
    figure.update_yaxes(title="memory in MiB", rangemode="tozero")
    return figure


def _add_limit(figure: go.Figure, used: UsedCurve) -> None:
    times = [_moment(time) for time in used.times]
    figure.add_scatter(
        x=times,
        y=[one / _MIB for one in used.used],
        mode="lines",
        line={"color": "#7f7f7f", "width": 2, "dash": "dot"},
        name="used of the limit",
        hovertemplate="%{y:.0f} MiB used<extra></extra>",
    )
    if used.limit_bytes:
        figure.add_scatter(
            x=[times[0], times[-1]],
            y=[used.limit_bytes / _MIB] * 2,
            mode="lines",
            line={"color": BAD, "width": 1.5},
            name="limit",
            hovertemplate="limit %{y:.0f} MiB<extra></extra>",
        )


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)

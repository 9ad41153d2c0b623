"""Memory of a job by time: what is used of the limit, what each rank holds, and the moment of a kill."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

from tachoscope_core.report.memory import MemoryCurve, MemoryReport
from tachoscope_core.report.palette import BAD, SERIES
from tachoscope_show.report.memory_picture import held, span, steps_of
from tachoscope_show.text.units import size_unit


def by_time(memory: MemoryReport) -> go.Figure:
    """Return the curves of the host's memory, with the limit and the kills."""
    limit = memory.used.limit_bytes if memory.used is not None else 0
    drawn = _Drawing([*(value for one in memory.ranks for value in held(one)), limit], "memory")
    start, end = span(memory)
    for place, one in enumerate(memory.ranks):
        drawn.add_rank(one, held(one), place, end)
    if memory.used is not None:
        used = steps_of(memory.used.times, memory.used.used, end)
        drawn.add("used of the limit", used, {"color": "#7f7f7f", "width": 2, "dash": "dot"}, "used of the limit")
        if limit:
            drawn.add("limit", [(start, limit), (end, limit)], {"color": BAD, "width": 1.5}, "limit")
    return drawn.with_kills(memory)


def of_device_by_time(memory: MemoryReport) -> go.Figure:
    """Return what the ranks' tensors held on their accelerators, and dotted what the allocator had got for them, with the kills."""
    drawn = _Drawing([value for one in memory.ranks for value in one.device_reserved], "accelerator")
    _, end = span(memory)
    for place, one in enumerate(memory.ranks):
        drawn.add_rank(one, one.device_allocated, place, end, " allocated")
        drawn.add_rank(one, one.device_reserved, place, end, " reserved", dash="dot")
    return drawn.with_kills(memory)


class _Drawing:
    """Curves of bytes by time, in the unit that their largest value is read best in."""

    def __init__(self, values: list[int], title: str) -> None:
        self._unit, self._bytes = size_unit(max(values, default=0))
        self._digits = 0 if self._unit == "MiB" else 1
        self.figure = go.Figure()
        self.figure.update_yaxes(title=f"{title} in {self._unit}", rangemode="tozero")

    def add_rank(self, one: MemoryCurve, values: list[int], place: int, end: float, what: str = "", dash: str = "solid") -> None:
        steps = [step for _, step in steps_of(one.times, one.steps, end)]
        line = {"color": SERIES[place % len(SERIES)], "width": 1.5, "dash": dash}
        self.add(f"rank {one.rank}{what}", steps_of(one.times, values, end), line, f"rank {one.rank}{what}", steps)

    def add(
        self, name: str, points: list[tuple[float, int]], line: dict[str, Any], said: str, steps: list[int] | None = None
    ) -> None:
        after = " after step %{customdata}" if steps is not None else ""
        self.figure.add_scatter(
            x=[_moment(time) for time, _ in points],
            y=[value / self._bytes for _, value in points],
            mode="lines",
            line=line,
            customdata=steps,
            name=name,
            hovertemplate=f"{said}: %{{y:.{self._digits}f}} {self._unit}{after}<extra></extra>",
        )

    def with_kills(self, memory: MemoryReport) -> go.Figure:
        for kill in memory.kills:
            self.figure.add_vline(x=_moment(kill.time), line={"color": BAD, "dash": "dash", "width": 1.5})
        return self.figure


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)

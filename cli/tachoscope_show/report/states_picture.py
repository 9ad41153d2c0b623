"""The states of a job over time as a picture without scripts: one outline a state, stacked to 100 %."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from tachoscope_analyzers.job.timeline import Timeline
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_show.text.state_bar import color

_WIDTH, _HEIGHT = 1000, 100
_TICKS = 4
_SEEN = 1e-3
"""Part of the axis, about a pixel: a wider gap between bins is left empty."""
_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class StateOutline:
    """The outline of a state and of those below it, as the path of an SVG."""

    state: str
    path: str


@dataclass(frozen=True, slots=True)
class StatesPicture:
    """Outlines in the order in which they are drawn: each covers the lower part of the one before. `ticks`: times of the axis."""

    outlines: list[StateOutline]
    ticks: list[str]

    @property
    def uri(self) -> str:
        """The picture as the address of an image: Streamlit removes SVG from HTML."""
        paths = "".join(f'<path d="{one.path}" fill="{color(one.state)}"/>' for one in self.outlines)
        size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none"'
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{paths}</svg>'
        return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def picture(course: Timeline) -> StatesPicture:
    """Return the picture of a run."""
    start, end = float(course.start[0]), float(course.end[-1])
    length = max(end - start, 1e-9)
    x0, x1 = ((moments - start) / length * _WIDTH for moments in (course.start, course.end))
    whole = np.maximum(sum(course.states.values(), 0.0 * course.wall), 1e-9)
    outlines, top = list[StateOutline](), 0.0 * course.wall
    for state, seconds in course.states.items():
        top = top + seconds
        outlines.append(StateOutline(state, _outline(x0, x1, _HEIGHT * (1 - top / whole))))
    form = "%m-%d %H:%M" if length > _DAY_SECONDS else "%H:%M:%S"
    times = [datetime.fromtimestamp(start + length * tick / _TICKS, UTC) for tick in range(_TICKS + 1)]
    return StatesPicture(outlines[::-1], [times[0].strftime("%Y-%m-%d %H:%M:%S UTC"), *(one.strftime(form) for one in times[1:])])


def _outline(x0: Matrix, x1: Matrix, y: Matrix) -> str:
    """Return a path along the tops of bins; a gap between bins goes down to the axis."""
    parts = [f"M{x0[0]:.1f} {_HEIGHT}"]
    for place in range(len(y)):
        if place and x0[place] - x1[place - 1] > _WIDTH * _SEEN:
            parts.append(f"V{_HEIGHT}H{x0[place]:.1f}")
        parts.append(f"V{max(float(y[place]), 0.0):.1f}H{x1[place]:.1f}")
    return "".join(parts) + f"V{_HEIGHT}Z"

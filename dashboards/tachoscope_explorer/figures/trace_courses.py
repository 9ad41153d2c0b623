"""Quantities over time: the length of queues, allocated memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from tachoscope_analyzers.trace.analyses.time_bins import BinnedQuantity
from tachoscope_core.report.palette import SERIES
from tachoscope_explorer.figures.trace_words import escaped


@dataclass(frozen=True, slots=True)
class Line:
    """A quantity over bins, in the unit of the figure."""

    name: str
    course: BinnedQuantity


def courses(lines: Sequence[Line], begin_ms: float, bin_ms: float, unit: str, *, scale: float = 1.0) -> go.Figure:
    """Return the picture: the mean of each bin as a line, and up to its largest value a pale band of the same colour."""
    figure = go.Figure()
    for place, line in enumerate(lines):
        color, name = SERIES[place % len(SERIES)], escaped(line.name, 40)
        mean, most = np.asarray(line.course.mean / scale), np.asarray(line.course.most / scale)
        common = {"x0": begin_ms + bin_ms / 2, "dx": bin_ms, "mode": "lines", "legendgroup": name}
        hover = f"{name}, %{{x:,.3f}} ms: "
        figure.add_trace(
            go.Scatter(
                y=mean,
                name=name,
                line={"color": color, "width": 1.5},
                hovertemplate=f"{hover}mean %{{y:,.4g}} {unit}<extra></extra>",
                **common,
            )
        )
        figure.add_trace(
            go.Scatter(
                y=most,
                name=f"{name}, most",
                line={"color": color, "width": 0.5},
                fill="tonexty",
                fillcolor=_pale(color),
                showlegend=False,
                hovertemplate=f"{hover}most %{{y:,.4g}} {unit}<extra></extra>",
                **common,
            )
        )
    figure.update_xaxes(ticksuffix=" ms")
    figure.update_yaxes(title={"text": unit, "font": {"size": 13}}, rangemode="tozero")
    return figure


def _pale(color: str) -> str:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.25)"

"""Figures of the page What if."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from tachoscope_core.report.palette import OK, SERIES, STATE_COLORS, UNKNOWN, WARN
from tachoscope_explorer.figures.time_unit import time_unit
from tachoscope_show.report.comparison_words import signed
from tachoscope_show.text.units import seconds


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """A bar of the waterfall: a cause in words, the ledger state whose colour it has (empty: none), seconds of a step."""

    name: str
    state: str
    seconds: float


def from_now_to_then(now: float, saved: Sequence[WaterfallBar], then: float, measured_without: float | None = None) -> go.Figure:
    """Return the waterfall from the measured step to that without what was taken out.

    Args:
        measured_without: step of a run in which all that was in fact absent, as a line to hold the answer against.
    """
    unit = time_unit([now])
    names = ["now", *(one.name for one in saved), "then"]
    bases, heights, level = [0.0], [now], now
    for one in saved:
        bases.append(level - max(one.seconds, 0.0))
        heights.append(one.seconds)
        level -= one.seconds
    bases.append(0.0)
    heights.append(then)
    colors = [UNKNOWN, *(STATE_COLORS.get(one.state, SERIES[5]) for one in saved), OK]
    texts = [seconds(now), *(signed(-one.seconds) for one in saved), seconds(then)]
    figure = go.Figure(
        go.Bar(
            x=list(range(len(names))),
            y=unit.convert(heights),
            base=unit.convert(bases),
            marker_color=colors,
            text=texts,
            textposition="outside",
            textfont_size=12,
            constraintext="none",
            cliponaxis=False,
            hovertext=[f"{name}: {text}" for name, text in zip(names, texts, strict=True)],
            hoverinfo="text",
        )
    )
    if measured_without is not None:
        figure.add_hline(
            y=measured_without / unit.seconds, line={"dash": "dash", "color": WARN},
            annotation_text=f"measured in the baseline: {seconds(measured_without)}", annotation_position="top right",
        )  # fmt: skip
    figure.update_layout(showlegend=False, bargap=0.35)
    figure.update_yaxes(title=f"{unit.sign} a step", range=[0, 1.15 * max(now, then, measured_without or 0.0) / unit.seconds])
    figure.update_xaxes(tickmode="array", tickvals=list(range(len(names))), ticktext=names)
    return figure


@dataclass(frozen=True, slots=True)
class NamedPoint:
    """A point of a curve that has a name: today's, the best."""

    name: str
    x: float
    y: float
    color: str = WARN


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis counts; `logarithmic`: each decade is as wide. `suffix`: after each number of a hover."""

    title: str
    logarithmic: bool = False


def curve(
    x: Sequence[float], y: Sequence[float], axes: tuple[Axis, Axis], marks: Sequence[NamedPoint] = (), *, steps: bool = False
) -> go.Figure:
    """Return a curve with its named points; with `steps` the points alone are what can be chosen, and are shown."""
    figure = go.Figure()
    figure.add_scatter(
        x=list(x),
        y=list(y),
        mode="lines+markers" if steps else "lines",
        line={"color": SERIES[0], "width": 2},
        showlegend=False,
        hovertemplate="%{x:.4g}: %{y:.4g}<extra></extra>",
    )
    for mark in marks:
        figure.add_scatter(
            x=[mark.x],
            y=[mark.y],
            mode="markers",
            name=mark.name,
            cliponaxis=False,
            marker={"size": 13, "color": mark.color, "symbol": "diamond"},
            hovertemplate=f"{mark.name}<br>%{{x:.4g}}: %{{y:.4g}}<extra></extra>",
        )
    for update, axis in ((figure.update_xaxes, axes[0]), (figure.update_yaxes, axes[1])):
        update(title=axis.title, type="log" if axis.logarithmic else "linear", dtick=1 if axis.logarithmic else None)
    figure.update_xaxes(title_standoff=4)
    figure.update_yaxes(rangemode="tozero")
    return figure

"""How each rank, stream and thread spent its time: rows over bins of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from tachoscope_analyzers.trace.analyses.overview import OUTSIDE, Row
from tachoscope_explorer.figures.trace_words import BLANK, COLORS, HEADROOM, LEGEND, WORDS, escaped, unique

_MOST_MARKS, _MOST_NUMBERS, _FEW_NUMBERS = 60, 16, 8
_PALE, _LONGEST_LABEL = 0.25, 26
_WINDOW = "rgba(120,120,120,0.22)"


@dataclass(frozen=True, slots=True)
class StepMark:
    """Where a step begins: ms on the figure's axis, and its number."""

    at: float
    number: int


def overview(
    rows: Sequence[tuple[str, Row]],
    begin_ms: float,
    bin_ms: float,
    *,
    marks: Sequence[StepMark] = (),
    window: tuple[float, float] | None = None,
) -> go.Figure:
    """Return the picture: each bin has the colour of what took most of it, the paler the more it was idle.

    Args:
        rows: label and times of each, from the top. begin_ms, bin_ms: of the bins, on the axis.
        marks: of steps; of many, some. window: what is looked at more closely, in ms.
    """
    figure = go.Figure()
    names = unique([escaped(name, _LONGEST_LABEL) for name, _ in rows])
    for place, (_, row) in enumerate(rows):  # a trace each: plotly cannot put rows of several traces on an axis of names
        figure.add_trace(_heat(names[place], place, row, begin_ms, bin_ms))
    used = {state for _, row in rows for state, took in zip(row.states, row.times.sum(axis=0).tolist(), strict=True) if took}
    for state in [state for state in WORDS if state in used and state not in BLANK]:
        figure.add_trace(_key(WORDS[state], COLORS[state]))
    if used & set(BLANK[:2]):
        figure.add_trace(_key("idle", "rgba(150,150,150,0.3)"))
    end_ms = begin_ms + bin_ms * max((len(row.times) for _, row in rows), default=1)
    figure.update_layout(
        shapes=[*_lines(marks), *_frame(window)], annotations=_numbers(marks), title=HEADROOM, legend=LEGEND, selectdirection="h"
    )
    figure.update_xaxes(range=[begin_ms, end_ms], ticksuffix=" ms", showgrid=False)
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.5, -0.5], showgrid=False, zeroline=False
    )
    return figure


def _heat(name: str, place: int, row: Row, begin_ms: float, bin_ms: float) -> go.Heatmap:
    states, shares = row.states, row.shares
    colored = [at for at, state in enumerate(states) if state not in BLANK]
    busy = shares[:, colored].sum(axis=1)
    most = shares[:, colored].argmax(axis=1)
    empty = shares[:, states.index(OUTSIDE)] > 0.5 if OUTSIDE in states else np.zeros(len(shares), dtype=bool)
    z = np.where(busy > 0, 1 + most + np.minimum(busy, 0.999), np.where(empty, np.nan, 0.5)).astype(np.float32)
    lines = [f"{WORDS[state]} %{{customdata[{at}]}} %" for at, state in enumerate(states)]
    return go.Heatmap(
        z=z[None, :],
        x0=begin_ms + bin_ms / 2,
        dx=bin_ms,
        y=[place],
        customdata=np.rint(100 * shares).astype(np.uint8)[None, :, :],
        hovertemplate="<br>".join([f"{name}, %{{x:,.3f}} ms", *lines]) + "<extra></extra>",
        colorscale=_scale([COLORS[states[at]] for at in colored]),
        zmin=0,
        zmax=1 + len(colored),
        showscale=False,
        ygap=1,
    )


def _scale(colors: list[str]) -> list[tuple[float, str]]:
    """Return a colour scale of one step for idle time and one for each state, in which a state goes from pale to full."""
    whole = len(colors) + 1
    found = [(0.0, "rgba(150,150,150,0.12)"), (1 / whole, "rgba(150,150,150,0.12)")]
    for place, color in enumerate(colors, start=1):
        found += [(place / whole, _with_alpha(color, _PALE)), ((place + 1) / whole, _with_alpha(color, 1))]
    return found


def _with_alpha(color: str, alpha: float) -> str:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def _key(words: str, color: str) -> go.Scatter:
    """Return an entry of the legend; of a heat map plotly makes none."""
    return go.Scatter(x=[None], y=[None], mode="markers", name=words, marker={"symbol": "square", "size": 11, "color": color})


def _lines(marks: Sequence[StepMark]) -> list[dict[str, object]]:
    line = {"width": 1, "dash": "dot", "color": "rgba(128,128,128,0.8)"}
    thinned = marks[:: -(-len(marks) // _MOST_MARKS) or 1]
    return [{"type": "line", "x0": mark.at, "x1": mark.at, "y0": 0, "y1": 1, "yref": "paper", "line": line} for mark in thinned]


def _numbers(marks: Sequence[StepMark]) -> list[dict[str, object]]:
    thinned = marks[:: -(-len(marks) // _MOST_NUMBERS) or 1]
    place = {"y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "showarrow": False, "font": {"size": 11}}
    return [
        {"x": mark.at, "text": f"step {mark.number}" if not at and len(thinned) <= _FEW_NUMBERS else str(mark.number), **place}
        for at, mark in enumerate(thinned)
    ]


def _frame(window: tuple[float, float] | None) -> list[dict[str, object]]:
    if window is None:
        return []
    line = {"width": 1, "color": "rgba(120,120,120,0.9)"}
    return [
        {"type": "rect", "x0": window[0], "x1": window[1], "y0": 0, "y1": 1, "yref": "paper", "fillcolor": _WINDOW, "line": line}
    ]

"""Figures of the page Compare."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from tachoscope_analyzers.compare.aligned_steps import AlignedSteps
from tachoscope_core.report.comparison import Comparison, Difference
from tachoscope_core.report.palette import SERIES, STATE_COLORS, UNKNOWN
from tachoscope_core.report.report import Change
from tachoscope_explorer.figures.time_unit import time_unit
from tachoscope_show.report.change_rows import shortened
from tachoscope_show.report.comparison_words import signed
from tachoscope_show.text.units import seconds

BASELINE_COLOR, NOW_COLOR = UNKNOWN, SERIES[0]
_TICK_LENGTH = 32
_LEAST_SHARE = 0.005
"""Of the baseline's step: smaller differences are one bar."""


def from_baseline_to_now(one: Comparison) -> go.Figure:
    """Return the waterfall of the step: the baseline's, what each state added or took, now. Pale: within the noise."""
    least = _LEAST_SHARE * one.step.baseline_seconds
    large = [row for row in one.states if abs(row.difference) >= least]
    rest = one.step.difference - sum(row.difference for row in large)
    unit = time_unit([one.step.baseline_seconds, one.step.seconds])
    figure = go.Figure()
    _total(figure, "baseline", one.step.baseline_seconds / unit.seconds, BASELINE_COLOR, seconds(one.step.baseline_seconds))
    level = one.step.baseline_seconds
    for row in large:
        _part(figure, row, level, unit.seconds)
        level += row.difference
    if abs(rest) >= least / 2:
        _bar(figure, "the rest", (level, rest), unit.seconds, UNKNOWN, 0.45, signed(rest), f"all other states: {signed(rest)}")
    _total(figure, "now", one.step.seconds / unit.seconds, NOW_COLOR, seconds(one.step.seconds))
    figure.update_layout(showlegend=False, bargap=0.35)
    figure.update_yaxes(title=f"{unit.sign} a step", rangemode="tozero")
    figure.update_xaxes(tickangle=0 if len(large) < 4 else -30)
    return figure


def _part(figure: go.Figure, row: Difference, level: float, unit: float) -> None:
    low, high = row.interval
    said = "beyond the noise" if row.beyond_noise else "within the noise"
    hover = (
        f"{row.name}: {seconds(row.baseline_seconds)} → {seconds(row.seconds)}<br>"
        f"{signed(row.difference)}, 95 % interval {signed(low)} to {signed(high)}<br>{said}"
    )
    opacity = 1.0 if row.beyond_noise else 0.45
    color = STATE_COLORS.get(row.name, UNKNOWN)
    _bar(figure, row.name, (level, row.difference), unit, color, opacity, signed(row.difference), hover)


def _bar(
    figure: go.Figure, name: str, span: tuple[float, float], unit: float, color: str, opacity: float, text: str, hover: str
) -> None:
    base, difference = span
    figure.add_bar(
        x=[name.replace("_", " ")],
        y=[difference / unit],
        base=[base / unit],
        marker={"color": color, "opacity": opacity},
        text=[text],
        textposition="outside",
        textfont_size=12,
        constraintext="none",
        cliponaxis=False,
        hovertext=[hover],
        hoverinfo="text",
    )


def _total(figure: go.Figure, name: str, value: float, color: str, text: str) -> None:
    figure.add_bar(
        x=[name],
        y=[value],
        marker_color=color,
        text=[text],
        textposition="outside",
        textfont_size=12,
        constraintext="none",
        cliponaxis=False,
        hovertext=[f"{name}: {text} a step"],
        hoverinfo="text",
    )


def step_times(found: AlignedSteps, names: Sequence[str]) -> go.Figure:
    """Return the step times of the baseline and of the run over one axis: the median of each column, 5 % to 95 % as a band."""
    unit = time_unit([value for run in found.runs for value in run[2].tolist()])
    figure = go.Figure()
    at = found.at.tolist()
    for (low, middle, high), name, color in zip(found.runs, names, (BASELINE_COLOR, NOW_COLOR), strict=True):
        if found.steps > 1:
            known = np.flatnonzero(np.isfinite(low))
            for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):  # an area across a gap would be drawn askew
                x, y = found.at[part].tolist(), unit.convert(low[part].tolist())
                figure.add_scatter(
                    x=[*x, *reversed(x)], y=[*y, *reversed(unit.convert(high[part].tolist()))], mode="none", fill="toself",
                    fillcolor=_pale(color), showlegend=False, hoverinfo="skip",
                )  # fmt: skip
        figure.add_scatter(
            x=at, y=unit.convert(middle.tolist()), name=name, mode="lines", line={"color": color, "width": 2},
            hovertemplate=f"%{{y:.4g}} {unit.sign}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(hovermode="x")
    figure.update_yaxes(title=f"{unit.sign} a step", rangemode="tozero")
    figure.update_xaxes(title="step" if found.axis == "step" else "share of the run, %", title_standoff=4)
    return figure


def _pale(color: str) -> str:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"


def largest_changes(changes: Sequence[Change], most: int = 12) -> go.Figure:
    """Return the largest differences as bars, the largest on top: to the right what grew, to the left what shrank."""
    rows = sorted(changes, key=lambda row: -abs(row.seconds - row.baseline_seconds))[:most]
    short = shortened(row.name or row.baseline_name for row in rows)
    differences = [row.seconds - row.baseline_seconds for row in rows]
    unit = time_unit(differences)
    figure = go.Figure(
        go.Bar(
            # Names may be alike when they are shortened: each bar has a place of its own.
            y=list(range(len(rows))),
            x=unit.convert(differences),
            orientation="h",
            marker_color=[_color(row) for row in rows],
            hovertext=[f"{_safe(row.name or row.baseline_name)[:200]}<br>{_both(row)}" for row in rows],
            hoverinfo="text",
        )
    )
    # Beside a bar there is no room for words on a phone.
    names = [
        f"{_safe(_narrow(short[row.name or row.baseline_name]))}<br><b>{signed(value)}</b>"
        for row, value in zip(rows, differences, strict=True)
    ]
    figure.update_yaxes(
        autorange="reversed", tickmode="array", tickvals=list(range(len(rows))), ticktext=names, ticklabelstandoff=6
    )
    figure.update_xaxes(title=f"{unit.sign} a step", title_standoff=4)
    figure.update_layout(showlegend=False)
    return figure


def _color(row: Change) -> str:
    if row.kind == "state":
        return STATE_COLORS.get(row.name, UNKNOWN)
    return SERIES[5] if row.seconds > row.baseline_seconds else SERIES[2]


def _both(row: Change) -> str:
    return f"{seconds(row.baseline_seconds)} → {seconds(row.seconds)}"


def _narrow(name: str) -> str:
    """Return a name that leaves room for the bars on a phone; the whole stands in the hover and in the table."""
    return name if len(name) <= _TICK_LENGTH else f"{name[: _TICK_LENGTH - 1]}…"


def _safe(text: str) -> str:
    """Return a name as plotly shows it letter by letter: it reads some HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

"""Figures of inference: where the time of requests went, over time, from fast to slow and of one, and what a server takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite, log10

import numpy as np
import plotly.graph_objects as go

from tachoscope_analyzers.serving.capacity.capacity import Capacity
from tachoscope_analyzers.serving.capacity.objectives import Objective
from tachoscope_analyzers.serving.records.request_phases import BySlowness, in_order
from tachoscope_analyzers.serving.records.traffic import Traffic, Vector
from tachoscope_core.records.records import RequestDone
from tachoscope_core.report.palette import BAD, SERIES
from tachoscope_core.report.report import Report
from tachoscope_core.report.serving import Latency, LatencySeconds
from tachoscope_show.text.state_bar import color
from tachoscope_show.text.units import seconds

MOST_BINS = 200
_ORDER = ("decode", "prefill", "queued", "preempted", "cold_start", "unexplained")
"""From the bottom: what brings tokens first."""
_LATENCIES: dict[str, Latency] = {
    "ttft": "first_token",
    "itl": "inter_token",
    "tpot": "output_token",
    "e2e": "request",
    "queue": "queue",
}


def moment(unix: float) -> datetime:
    """Return a time as figures show it, in UTC."""
    return datetime.fromtimestamp(unix, UTC).replace(tzinfo=None)


def state_label(state: str) -> str:
    """Return a state as people read it."""
    return state.replace("_", " ")


def over_time(traffic: Traffic, states: Mapping[str, Vector]) -> go.Figure:
    """Return how many requests were in each state over time, on average over each bin; a box can be drawn over it.

    Args:
        states: seconds of requests by ledger state in each interval of the traffic.
    """
    figure = go.Figure()
    size = len(traffic.seconds)
    firsts = np.unique(np.linspace(0, size, min(size, MOST_BINS) + 1).astype(np.int64))[:-1]
    wall = np.add.reduceat(traffic.seconds, firsts)
    begins = traffic.start + np.concatenate([[0.0], np.cumsum(wall)[:-1]])
    middles = [moment(at) for at in (begins + wall / 2).tolist()]
    for state in _ORDER:
        if state not in states or not states[state].any():
            continue
        value = np.add.reduceat(states[state], firsts) / wall
        figure.add_bar(
            x=middles,
            y=value,
            width=wall * 1e3,
            name=state_label(state),
            marker={"color": color(state), "line": {"width": 0}},
            unselected={"marker": {"opacity": 1}},
            hovertemplate=state_label(state) + ": %{y:.3g} requests<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0, hovermode="x unified", dragmode="select", selectdirection="h", showlegend=True)
    figure.update_xaxes(type="date", title="UTC")
    figure.update_yaxes(title="requests at a time", rangemode="tozero", fixedrange=True)
    return figure


def by_slowness(found: BySlowness) -> go.Figure:
    """Return where the time of a request went, from the fastest of all to the slowest."""
    figure = go.Figure()
    middles, widths = (found.edges[:-1] + found.edges[1:]) / 2, np.diff(found.edges)
    for state in (name for name in _ORDER if name in found.seconds):
        figure.add_bar(
            x=100 * middles,
            y=found.seconds[state],
            width=100 * widths,
            name=state_label(state),
            marker={"color": color(state), "line": {"width": 0}},
            customdata=[[seconds(value)] for value in found.seconds[state]],
            hovertemplate=state_label(state) + ": %{customdata[0]}<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0, hovermode="x unified", showlegend=True)
    figure.update_xaxes(title="% of requests, the slowest at the right", range=[0, 100])
    figure.update_yaxes(title="seconds a request", rangemode="tozero")
    return figure


def one(request: RequestDone) -> go.Figure:
    """Return the states of one request as a bar, in the order in which it goes through them."""
    figure = go.Figure()
    for state, spent in in_order(request):
        figure.add_bar(
            x=[spent],
            y=[""],
            orientation="h",
            name=state_label(state),
            marker={"color": color(state)},
            hovertemplate=f"{state_label(state)}: {seconds(spent)}<extra></extra>",
        )
    first = request.first_token_seconds
    if first is not None and first <= request.wall_seconds:
        figure.add_vline(first, line={"dash": "dot", "width": 1.5, "color": BAD}, annotation_text=f"first token {seconds(first)}")
    figure.update_yaxes(range=[-0.5, 1.0], showticklabels=False)  # room for the words above the bar
    figure.update_layout(barmode="stack", showlegend=True)
    figure.update_xaxes(title="seconds since it arrived")
    return figure


# --- what a server takes --------------------------------------------------------------------------------------------------------


def latency_throughput(found: Capacity, report: Report | None = None) -> go.Figure:
    """Return latencies over the rate of requests, their objectives as dashed lines, the knee with its interval, and what was
    recorded.

    Args:
        report: of what was recorded, for its latencies.
    """
    figure = go.Figure()
    for number, objective in enumerate(dict.fromkeys(found.objectives)):
        ink = SERIES[number % len(SERIES)]
        figure.add_trace(_curve(found, objective, ink))
        figure.add_hline(objective.seconds, line={"color": ink, "width": 1, "dash": "dash"})
        figure.add_annotation(
            x=0, xref="x domain", xanchor="left", y=log10(objective.seconds), yanchor="bottom", showarrow=False,
            text=f"{objective.name} ≤ {objective.seconds:g} s",
        )  # fmt: skip  # of a logarithmic axis, plotly wants the logarithm here and the value above
        seen = _recorded(report, objective)
        if seen is not None:
            figure.add_trace(
                go.Scatter(
                    x=[found.recorded_rate],
                    y=[seen],
                    mode="markers",
                    marker={"color": ink, "size": 11, "symbol": "diamond-open", "line": {"width": 2}},
                    name=f"{objective.name} recorded",
                    hovertemplate=f"recorded {objective.name}: {seconds(seen)} at %{{x:.3g}} requests/s<extra></extra>",
                )
            )
    if found.knee:
        low, high = found.knee_interval
        figure.add_vrect(low, high, fillcolor=SERIES[2], opacity=0.15, line_width=0, layer="below")
        figure.add_vline(found.knee, line={"color": SERIES[2], "width": 2}, annotation_text=f"knee {found.knee:.3g}/s")
    figure.add_vline(
        found.recorded_rate,
        line={"color": "#808080", "width": 1.5, "dash": "dot"},
        annotation_text=f"recorded {found.recorded_rate:.3g}/s",
        annotation_position="bottom right",
    )
    figure.update_xaxes(title="requests a second to one replica", rangemode="tozero")
    figure.update_yaxes(title="seconds", type="log", dtick=1)
    figure.update_layout(showlegend=True)
    return figure


def _curve(found: Capacity, objective: Objective, ink: str) -> go.Scatter:
    points = [point for point in found.curve if isfinite(point.seconds[objective.name]) and point.seconds[objective.name] > 0]
    return go.Scatter(
        x=[point.rate for point in points],
        y=[point.seconds[objective.name] for point in points],
        mode="lines+markers",
        name=objective.name,
        line={"color": ink, "width": 2},
        customdata=[[seconds(point.seconds[objective.name]), point.output_tokens_per_second] for point in points],
        hovertemplate="%{customdata[0]} at %{x:.3g} requests/s, %{customdata[1]:.0f} tokens/s<extra>" + objective.name + "</extra>",
    )


def _recorded(report: Report | None, objective: Objective) -> float | None:
    """Return what was recorded of a signal, where the report has that quantile: the middle of its bucket."""
    if report is None or report.serving is None:
        return None
    rows = [row for row in report.serving.latencies if row.name == _LATENCIES[objective.signal]]
    bounds = _quantiles(rows).get(objective.percent)
    if bounds is None or bounds[1] is None:
        return None
    return (bounds[0] + bounds[1]) / 2


def _quantiles(rows: Sequence[LatencySeconds]) -> dict[float, tuple[float, float | None] | None]:
    return {50.0: rows[0].p50, 95.0: rows[0].p95, 99.0: rows[0].p99} if rows else {}

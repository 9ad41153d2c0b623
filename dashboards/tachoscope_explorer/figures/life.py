"""The life of a job: where its accelerator time went, and its attempts over time."""

from __future__ import annotations

import plotly.graph_objects as go

from tachoscope_core.report.job_life import Life
from tachoscope_core.report.report import Report
from tachoscope_explorer.figures.ledger import moment
from tachoscope_show.life.words import LEGEND, span_color, state_row
from tachoscope_show.text.state_bar import color
from tachoscope_show.text.units import duration, percent


def waterfall(report: Report, life: Life) -> go.Figure:
    """Return the ledger of the life as steps from nothing to the whole, the largest state first."""
    ledger = report.ledgers[0]
    states = sorted(ledger.states.items(), key=lambda row: -row[1])
    begins = [sum(seconds for _, seconds in states[:index]) for index in range(len(states))]
    figure = go.Figure()
    figure.add_bar(
        y=[state for state, _ in states],
        x=[seconds / ledger.wall_seconds * 100 for _, seconds in states],
        base=[begin / ledger.wall_seconds * 100 for begin in begins],
        orientation="h",
        marker={"color": [color(state) for state, _ in states]},
        text=[percent(seconds / ledger.wall_seconds) for _, seconds in states],
        textposition=["inside" if seconds > ledger.wall_seconds * 0.5 else "outside" for _, seconds in states],
        customdata=[", ".join(part for part in state_row(state, seconds, report, life) if part) for state, seconds in states],
        hovertemplate="%{y}: %{customdata}<extra></extra>",
        showlegend=False,
        cliponaxis=False,
    )
    figure.update_xaxes(title="% of allocated time and queue", range=[0, 125], tickvals=[0, 25, 50, 75, 100])
    figure.update_yaxes(autorange="reversed")
    return figure


def attempts(report: Report, life: Life) -> go.Figure:
    """Return a bar for each attempt with its course, in the colours of what most of its ranks were at, and its failures."""
    figure = go.Figure()
    states = dict.fromkeys(span.state for one in life.attempts for span in one.spans)
    for state in states:
        spans = [(one, span) for one in life.attempts for span in one.spans if span.state == state]
        figure.add_bar(
            y=[f"attempt {one.attempt}" for one, _ in spans],
            x=[(span.end - span.start) * 1e3 for _, span in spans],
            base=[moment(span.start) for _, span in spans],
            orientation="h",
            name=LEGEND.get(state, state).split(" (")[0],
            marker={"color": span_color(state), "line": {"width": 0}},
            text=[duration(span.end - span.start) for _, span in spans],
            textposition="none",
            hovertemplate=f"{state}: %{{text}}<extra>%{{y}}</extra>",
        )
    failed = life.recoveries
    if failed:
        figure.add_scatter(
            x=[moment(one.failed_at) for one in failed],
            y=[f"attempt {one.attempt}" for one in failed],
            mode="markers",
            marker={"symbol": "x", "size": 10, "color": "#CC0000"},
            name="failure",
            text=[one.kind for one in failed],
            hovertemplate="%{text} at %{x}<extra>%{y}</extra>",
        )
    figure.update_layout(barmode="overlay")
    figure.update_xaxes(type="date", title="time, UTC", range=[moment(report.window.start), moment(report.window.end)])
    figure.update_yaxes(autorange="reversed", title="")
    return figure

"""Sums as horizontal bars, the longest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from tachoscope_core.report.palette import SERIES, STATE_COLORS, UNKNOWN
from tachoscope_explorer.figures.trace_words import duration, escaped


def bars(totals: Mapping[str, float], colors: Mapping[str, str] | None = None) -> go.Figure:
    """Return one bar for each name, `totals` in ns, with its length and its share of all.

    Args:
        colors: by name, grey for others; None: all alike.
    """
    order = sorted(totals, key=lambda name: -totals[name])
    whole = max(sum(totals.values()), 1)
    words = [f"{duration(totals[name])}, {100 * totals[name] / whole:.1f} %" for name in order]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=[totals[name] / 1e6 for name in order],
            y=[escaped(name.replace("_", " "), 40) for name in order],
            text=words,
            textposition="auto",
            cliponaxis=False,
            marker={"color": [SERIES[0] if colors is None else colors.get(name, UNKNOWN) for name in order]},
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    figure.update_xaxes(ticksuffix=" ms")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def height(bars: int) -> int:
    """Return how many pixels so many bars need."""
    return 70 + 28 * bars


def waits(table: pd.DataFrame, ranks: Sequence[int]) -> go.Figure:
    """Return what each rank spent in collectives: waiting for a later rank, and in transfer.

    Args:
        table: with the columns rank, wait_ns and transfer_ns. ranks: those that are shown.
    """
    sums = table.groupby("rank")[["wait_ns", "transfer_ns"]].sum().reindex(list(ranks), fill_value=0)
    parts = (
        ("waiting for a later rank", "wait_ns", STATE_COLORS["straggler_wait"]),
        ("transfer", "transfer_ns", STATE_COLORS["communication"]),
    )
    names = [f"rank {rank}" for rank in ranks]
    figure = go.Figure(
        [
            go.Bar(
                x=names,
                y=sums[column].to_numpy() / 1e6,
                name=words,
                marker={"color": color},
                hovertemplate=f"%{{x}}: {words} %{{y:,.3f}} ms<extra></extra>",
            )
            for words, column, color in parts
        ]
    )
    figure.update_layout(barmode="stack")
    figure.update_yaxes(ticksuffix=" ms")
    return figure

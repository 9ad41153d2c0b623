"""Figures of objectives: what is left of a budget, how fast it burns, when alerts fired, and what a change would have told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tachoscope_alerts.measure.alert_history import FiredSpan, History
from tachoscope_alerts.report.alert_replay import FiredAlert, Replayed
from tachoscope_alerts.report.backtest import Backtest
from tachoscope_alerts.report.schema import Budget, BudgetPoint, Burn, State
from tachoscope_core.report.palette import BAD, OK, SERIES, UNKNOWN, WARN
from tachoscope_show.slo import backtest_words
from tachoscope_show.slo import words as slo_words
from tachoscope_show.text.units import duration

STATE_COLORS: dict[State, str] = {"ok": OK, "burning": WARN, "exhausted": BAD, "not_measured": UNKNOWN}
SEVERITY_COLORS = {"page": BAD, "ticket": WARN}
_MOST_TIMES = 4.0
"""A burn of more than so many times its tier's threshold is drawn no longer; its number stands beside it."""
_MOST_ALERTS = 30
_ROWS = (("committed", "page"), ("committed", "ticket"), ("changed", "page"), ("changed", "ticket"))


def moment(seconds: float) -> datetime:
    """Return a time as figures show it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def burn_down(budget: Budget) -> go.Figure:
    """Return what was left of the budget over the period; grey where nothing was measured."""
    figure = go.Figure(_line(budget.burn_down, slo_words.budget_left(budget), STATE_COLORS[budget.state]))
    for before, point in pairwise(budget.burn_down):
        if not point.measured:
            figure.add_vrect(moment(before.time), moment(point.time), fillcolor=UNKNOWN, opacity=0.18, line_width=0, layer="below")
    figure.add_hline(0, line={"color": BAD, "width": 1.5})
    figure.update_yaxes(title="budget left", tickformat=".0%")
    figure.update_xaxes(title="UTC")
    figure.update_layout(showlegend=False)
    return figure


def _line(points: Iterable[BudgetPoint], name: str, color: str, dash: str = "solid") -> go.Scatter:
    rows = list(points)
    return go.Scatter(
        x=[moment(point.time) for point in rows],
        y=[point.left for point in rows],
        mode="lines",
        name=name,
        line={"color": color, "width": 2.5, "dash": dash},
        hovertemplate="%{x|%Y-%m-%d %H:%M}: %{y:.1%} left<extra>" + name + "</extra>",
    )


def burns(rows: Sequence[Burn]) -> go.Figure:
    """Return how fast the budget is spent in each window, as a multiple of the burn rate at which its alert fires."""
    figure = go.Figure()
    for which, color in (("long", SERIES[0]), ("short", SERIES[4])):
        factors = [burn.long if which == "long" else burn.short for burn in rows]
        figure.add_bar(
            name=f"{which} window",
            orientation="h",
            y=[_tier(burn) for burn in rows],
            x=[min((factor or 0.0) / burn.threshold, _MOST_TIMES) for factor, burn in zip(factors, rows, strict=True)],
            text=["no events" if factor is None else slo_words.factor(factor) for factor in factors],
            textposition="outside",
            cliponaxis=False,
            marker={"color": color},
            hovertemplate="%{y}: burns %{text}<extra>" + which + " window</extra>",
        )
    figure.add_vline(1.0, line={"color": BAD, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title="% of the burn rate at which its alert fires", tickformat=".0%", range=[0, _MOST_TIMES * 1.15])
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(barmode="group", bargap=0.3)
    return figure


def _tier(burn: Burn) -> str:
    windows = f"{duration(burn.long_seconds)} / {duration(burn.short_seconds)}"
    return f"{burn.severity} at {slo_words.factor(burn.threshold)}<br>{windows}"


def shown_alerts(found: History) -> list[str]:
    """Return the alerts that the timeline has a row for: those that fired last."""
    return list(dict.fromkeys(_plain(one.alert) for one in found.fired))[:_MOST_ALERTS]


def timeline(found: History) -> go.Figure:
    """Return when each alert fired."""
    figure = go.Figure()
    names = shown_alerts(found)
    for severity in dict.fromkeys(one.severity for one in found.fired):
        rows = [one for one in found.fired if one.severity == severity and _plain(one.alert) in names]
        figure.add_bar(
            name=_plain(severity) or "no severity",
            orientation="h",
            base=[moment(one.start) for one in rows],
            x=[(one.end - one.start) * 1e3 for one in rows],
            y=[_plain(one.alert) for one in rows],
            customdata=[[_about(one)] for one in rows],
            marker={"color": SEVERITY_COLORS.get(severity, UNKNOWN)},
            hovertemplate="%{y}<br>%{customdata[0]}<extra></extra>",
        )
    figure.update_xaxes(type="date", title="UTC", range=[moment(found.start), moment(found.end)])
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1])
    figure.update_layout(barmode="overlay")
    return figure


def _about(one: FiredSpan) -> str:
    about = ", ".join(f"{name}={value}" for name, value in one.of.items())
    until = "still fires" if one.still else f"for {duration(one.end - one.start)}"
    return _plain(f"{moment(one.start):%Y-%m-%d %H:%M} UTC, {until}{f'; {about}' if about else ''}")


def _plain(text: str) -> str:
    """Return foreign text as plotly shows it letter by letter: it takes tags for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def backtest(found: Backtest) -> go.Figure:
    """Return the budget over the window as committed and as changed, and below when people were and would have been told."""
    shown = backtest_words.variants(found)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.68, 0.32], vertical_spacing=0.06)
    for (name, variant), color, dash in zip(shown, SERIES, ("solid", "dash"), strict=False):
        for budget in variant.budgets:
            figure.add_trace(_line(budget.line, name, color, dash), row=1, col=1)
    names = [name for name, _ in shown]
    for severity in ("page", "ticket"):
        told = [
            (f"{name}: {severity}s", one)
            for name, variant in shown
            for budget in variant.budgets
            for one in _of(budget, severity, found.start)
        ]
        figure.add_trace(_alert_bar(told, severity), row=2, col=1)
    figure.add_hline(0, line={"color": BAD, "width": 1.5}, row=1, col=1)
    figure.update_yaxes(title="budget left", tickformat=".0%", row=1, col=1)
    rows = [f"{name}: {severity}s" for name, severity in _ROWS if name in names]
    figure.update_yaxes(categoryorder="array", categoryarray=rows[::-1], range=[-0.6, len(rows) - 0.4], row=2, col=1)
    begin = max(found.start, found.recorded_since or found.start)  # of what was recorded, and no empty weeks before it
    figure.update_xaxes(type="date", range=[moment(begin), moment(found.end)])
    figure.update_xaxes(title="UTC", row=2, col=1)
    figure.update_layout(barmode="overlay")
    return figure


def _of(budget: Replayed, severity: str, start: float) -> list[tuple[float, FiredAlert]]:
    return [(max(one.start, start), one) for one in budget.told if one.severity == severity]


def _alert_bar(told: Sequence[tuple[str, tuple[float, FiredAlert]]], severity: str) -> go.Bar:
    return go.Bar(
        name=f"{severity}s",
        orientation="h",
        base=[moment(begin) for _, (begin, _) in told],
        x=[(one.end - begin) * 1e3 for _, (begin, one) in told],
        y=[row for row, _ in told],
        customdata=[[backtest_words.one_told(one)] for _, (_, one) in told],
        marker={"color": SEVERITY_COLORS[severity]},
        hovertemplate="%{customdata[0]}<extra></extra>",
    )

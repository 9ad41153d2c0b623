"""What another target or threshold would have told, as a part of the page of objectives."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import streamlit as st

from tachoscope_alerts.report import backtest
from tachoscope_alerts.report.backtest import Backtest
from tachoscope_alerts.report.schema import Budget, Objective
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.figures import slos as figures
from tachoscope_explorer.page.context import Context, current, look_at
from tachoscope_explorer.page.query_params import follow
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing, problem, table
from tachoscope_explorer.sources import slos as slo_sources
from tachoscope_show.slo import backtest_words

_MOST_TOLD = 50
PART = "backtest"
"""What an address calls it."""


def show(context: Context, objective: Objective, budget: Budget, end: float) -> None:
    """Ask for a change, and show what it would have done in the objective's period up to `end`, Unix seconds."""
    st.header("Backtest of another target")
    follow("backtest", context.view.part == PART)
    wanted = st.toggle("Replay the recording", key="backtest")
    look_at(replace(current().view, part=PART if wanted else ""))
    if not wanted:
        st.caption("The conditions of the alerts are replayed on what was recorded, by another target or threshold.")
        return
    slo = slo_sources.objectives()[objective.name]
    target, threshold = _change(slo)
    try:
        found = slo_sources.backtest_of(context.settings, slo.name, budget.labels, end, objective.period_days, target, threshold)
    except TachoscopeError as error:
        problem(error)
        return
    if found.recorded_since is None:
        nothing(f"Nothing was recorded of it from {backtest_words.moment(found.start)} on.")
        return
    st.markdown(f"**{escape_markdown(backtest_words.verdict(found))}**")
    if found.recorded_since > found.start + 60:
        st.caption(escape_markdown(f"What was recorded begins at {backtest_words.moment(found.recorded_since)}."))
    for note in found.notes:
        st.caption(escape_markdown(note))
    table(_rows(found), "backtest")
    chart(figures.backtest(found), "backtest-chart", height=440)
    _list_alerts(found)


def _change(slo: Slo) -> tuple[float, float | None]:
    left, right = st.columns(2)
    with left:
        committed, step = round(slo.target * 100, 6), round(slo.budget * 50, 6)  # half of the budget
        percent = st.number_input("Target in %", 50.0, 99.999, committed, step=step, format="%.6g", key=f"target-{slo.name}")
    ratio = round(percent / 100, 12)  # 99.9 % is the target that a spec calls 0.999
    own = backtest.threshold_of(slo)
    if own is None:
        return ratio, None
    with right:
        bounds, key = backtest.thresholds(slo), f"threshold-{slo.name}"
        help_ = "In the unit of the metric. Requests and steps were counted at these boundaries only." if bounds else None
        if bounds:
            chosen = st.select_slider("Threshold", bounds, own if own in bounds else bounds[0], key=key, help=help_)
        else:
            chosen = st.number_input("Threshold", value=own, format="%.6g", key=key)
    return ratio, float(chosen)


def _rows(found: Backtest) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"objective": name, **dict(zip(backtest_words.TITLES, backtest_words.cells(variant, budget), strict=True))}
            for name, variant in backtest_words.variants(found)
            for budget in variant.budgets
        ]
    )


def _list_alerts(found: Backtest) -> None:
    """List when people were and would have been told."""
    rows = [
        {"objective": name, "severity": one.severity, "told": backtest_words.one_told(one)}
        for name, variant in backtest_words.variants(found)
        for budget in variant.budgets
        for one in budget.told
    ]
    if rows:
        table(pd.DataFrame(rows[:_MOST_TOLD]), "backtest-told", height=min(38 * len(rows) + 40, 300))

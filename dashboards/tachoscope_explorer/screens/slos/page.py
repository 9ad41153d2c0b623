"""The page of objectives: how they stand, who spends a budget, when alerts fired, and what another target would have told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from tachoscope_alerts.report.schema import Budget, Objective, SloReport
from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.figures import slos as figures
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing, problem, table
from tachoscope_explorer.screens.slos import backtest as slo_backtest
from tachoscope_explorer.screens.slos import history as slo_history
from tachoscope_explorer.sources import slos as slo_sources
from tachoscope_show.slo import words as slo_words

DAY = 86400.0
_OWN = "each its own"
_PERIODS = {_OWN: None, "7 days": 7.0, "1 day": 1.0, "1 hour": 1 / 24}
_BESIDE: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off"}
"""How a metric shows words below its value."""
Pair = tuple[Objective, Budget]


def show(context: Context) -> None:
    """Show the page."""
    st.title("Objectives")
    end, days = _period(context)
    context, found = _report(context, end, days)
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.markdown(f"**{escape_markdown(slo_words.headline(found))}**")
    right.button("Read again", on_click=slo_sources.clear_cache, icon=":material/refresh:")
    for note in slo_words.notes(found):
        st.warning(escape_markdown(note))
    pairs = slo_words.measured(found) + _unmeasured(found)
    if not any(budget.left is not None for _, budget in pairs):
        nothing(
            "No objective was measured. Samples come from the agents of your nodes: start `tachoscope agent`, or give the "
            "explorer a Prometheus with `--prometheus URL`. What each objective lacks is in the table."
        )
    table(_rows(pairs), "objectives", height=min(38 * len(pairs) + 40, 420))
    st.caption(
        "Missed: the budget of the period is exhausted. Met: something is left of it, and it may burn all the same, see "
        "*alerts now*. Not measured is neither."
    )
    if not pairs:
        return
    objective, budget = _chosen(context, pairs)
    _objective(context, objective, budget)
    slo_history.show(context, found.time, (days or objective.period_days) * DAY)
    if budget.left is not None:
        slo_backtest.show(context, objective, budget, found.time)


def _period(context: Context) -> tuple[float | None, float | None]:
    """Ask for the period; return its end in Unix seconds and its days; None: now, and each objective's own."""
    view = context.view
    names = list(_PERIODS)
    given = view.start is not None and view.end is not None
    if view.start is not None and view.end is not None:
        names.insert(0, f"{figures.moment(view.start):%Y-%m-%d %H:%M} to {figures.moment(view.end):%Y-%m-%d %H:%M} UTC")
    chosen = st.segmented_control("Period", names, default=names[0], required=True)
    if given and chosen == names[0]:
        assert view.start is not None and view.end is not None
        return view.end, (view.end - view.start) / DAY
    return None, _PERIODS[chosen or _OWN]


def _report(context: Context, end: float | None, days: float | None) -> tuple[Context, SloReport]:
    """Return the report, and the context that it was made with: the store's samples alone where no Prometheus answers."""
    try:
        return context, slo_sources.report(context.settings, end, days)
    except TachoscopeError as error:
        if not context.settings.prometheus_url:
            raise
        problem(error)
        st.warning("What follows is from the samples of the store alone.")
    context = replace(context, settings=replace(context.settings, prometheus_url=""))
    return context, slo_sources.report(context.settings, end, days)


def _unmeasured(found: SloReport) -> list[Pair]:
    return [(objective, budget) for objective in found.objectives for budget in objective.budgets if budget.left is None]


def _rows(pairs: list[Pair]) -> pd.DataFrame:
    rows = [
        {
            "objective": slo_words.name(objective, budget),
            "state": slo_words.judged(budget),
            "alerts now": slo_words.alerts(budget) or ("-" if budget.left is None else "none"),
            **dict(zip(slo_words.TITLES, slo_words.cells(objective, budget), strict=True)),
            "about": objective.title,
            "owner": objective.owner,
            "why": budget.why,
        }
        for objective, budget in pairs
    ]
    return pd.DataFrame(rows)


def _chosen(context: Context, pairs: list[Pair]) -> Pair:
    """Ask which one is to be looked at, and put it into the address."""
    view = context.view
    names = [slo_words.name(*pair) for pair in pairs]
    fits = [number for number, pair in enumerate(pairs) if pair[0].name == view.slo]
    exact = [number for number in fits if _asked(pairs[number][1], view)]
    if view.slo and not fits:
        st.warning(escape_markdown(f"no objective is named {view.slo!r}"))
    first = next(iter(exact or fits), 0)
    number = st.selectbox("Objective", range(len(pairs)), index=first, format_func=lambda which: names[which])
    objective, budget = pairs[number]
    named = {"service": "", "model": "", "job": ""} | {_FIELDS[k]: v for k, v in budget.labels.items() if k in _FIELDS}
    look_at(replace(view, slo=objective.name, **named))
    return objective, budget


_FIELDS = {"service": "service", "model": "model", "training_job": "job"}


def _asked(budget: Budget, view: View) -> bool:
    wanted = {label: getattr(view, field) for label, field in _FIELDS.items()}
    return all(budget.labels.get(label, value) == value for label, value in wanted.items() if value)


# --- the one that is looked at ------------------------------------------------------------------------------------------------


def _objective(context: Context, objective: Objective, budget: Budget) -> None:
    st.header(escape_markdown(slo_words.name(objective, budget)))
    st.markdown(escape_markdown(slo_sources.objectives()[objective.name].description))
    if budget.left is None:
        nothing(f"Not measured, and so neither met nor missed: {escape_markdown(budget.why)}.")
        slo_history.runbook(objective.alert)
        return
    columns = st.columns([2, 1, 1, 1])
    cells = dict(zip(slo_words.TITLES, slo_words.cells(objective, budget), strict=True))
    state, _, within = slo_words.judged(budget).partition(" (")
    measured, _, missing = slo_words.coverage(budget).partition(", ")
    columns[0].metric(
        "State",
        state,
        within.rstrip(")") or None,
        **_BESIDE,
        help="Of this period. Too little data: less than 1 % of it was measured.",
    )
    columns[1].metric(f"Attained of {cells['target']}", cells["period"])
    columns[2].metric("Budget left", cells["budget left"])
    columns[3].metric("Measured", measured, missing or None, **_BESIDE)
    st.caption(escape_markdown(f"{slo_words.spent(objective, budget)}; owner {objective.owner}"))
    slo_history.runbook(objective.alert)
    left, right = st.columns(2)
    with left:
        st.subheader("Budget over the period")
        chart(figures.burn_down(budget), "burn-down")
    with right:
        st.subheader("How fast it burns")
        if budget.burns:
            chart(figures.burns(budget.burns), "burns")
            for burn in budget.burns:
                if burn.fires or burn.held:
                    st.markdown(escape_markdown(slo_words.fires(burn, objective)))
        else:
            nothing("No tier of this objective can fire: its target allows so much that nothing would burn fast enough.")
    _offenders(context, objective, budget)


def _offenders(context: Context, objective: Objective, budget: Budget) -> None:
    st.subheader("Who spent it")
    if not budget.offenders:
        nothing("No events were bad in that time, or the bad events have no job, service, host or shard.")
        return
    st.caption(slo_words.offenders_title(objective, budget))
    rows = [
        {"kind": one.kind, "name": one.value, "bad": slo_words.amount(one.bad, objective), "share": one.share * 100}
        for one in budget.offenders
    ]
    share = st.column_config.ProgressColumn("share of what was bad", format="%.0f %%", min_value=0, max_value=100)
    table(pd.DataFrame(rows), "offenders", columns={"share": share})
    for one in budget.offenders:
        if one.kind == "job":
            context.link(f"Job {escape_markdown(one.value)}", "job", View(job=one.value), icon=":material/speed:")
        elif one.kind == "service":
            context.link(f"Service {escape_markdown(one.value)}", "inference", View(service=one.value), icon=":material/forum:")

"""When alerts fired, as a part of the page of objectives, and the runbooks that they lead to."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.figures import slos as figures
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing, problem, table
from tachoscope_explorer.sources import slos as slo_sources
from tachoscope_show.text.units import duration

_ROW_PIXELS = 26


def show(context: Context, end: float, seconds: float) -> None:
    """Show what fired in the time up to `end`, Unix seconds."""
    st.header("Pages and tickets")
    url = context.settings.prometheus_url
    if not url:
        nothing(
            "When alerts fired is known to a Prometheus that evaluates them: start the explorer with `--prometheus URL`. "
            "What would have fired by the samples of the store is in the backtest of each objective that is measured."
        )
        return
    try:
        found = slo_sources.fired(url, end - seconds, end)
    except TachoscopeError as error:
        problem(error)
        return
    if not found.fired:
        nothing(
            f"No alert fired in the {duration(seconds)} up to {figures.moment(end):%Y-%m-%d %H:%M} UTC, as far as this "
            "Prometheus knows."
        )
        return
    names = figures.shown_alerts(found)
    chart(figures.timeline(found), "alerts", height=110 + _ROW_PIXELS * len(names))
    st.caption(f"To {duration(found.step)}.")
    rows = [
        {
            "alert": one.alert,
            "severity": one.severity,
            "began": figures.moment(one.start),
            "lasted": "still fires" if one.still else duration(one.end - one.start),
            "objective": one.slo,
            "of": ", ".join(f"{name}={value}" for name, value in one.of.items()),
        }
        for one in found.fired
    ]
    table(pd.DataFrame(rows), "alerts", height=min(38 * len(rows) + 40, 300))
    for alert in sorted({one.alert for one in found.fired}):
        runbook(alert)


def runbook(alert: str) -> None:
    """Link to an alert's runbook where runbooks are served; else show it, where it is installed."""
    base, text = slo_sources.runbook_base(), slo_sources.runbook_text(alert)
    if base and alert.isalnum():
        st.link_button(f"Runbook {alert}", f"{base}/{alert}.md", icon=":material/menu_book:")
    elif text:
        with st.expander(f"Runbook {alert}", icon=":material/menu_book:"):
            st.markdown(text)
    else:
        st.caption(f"{escape_markdown(alert)} has no runbook.")

"""The slowest requests of a service, one by one, as a part of the page of inference. No text of a prompt is recorded anywhere."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tachoscope_analyzers.serving.records.request_phases import in_order
from tachoscope_core.metrics.serving import REQUEST_STATES
from tachoscope_core.records.records import RequestDone
from tachoscope_explorer.figures import inference as figures
from tachoscope_explorer.page.widgets import chart, csv, escape_markdown, nothing
from tachoscope_explorer.sources.inference import ServiceWindow
from tachoscope_show.text.units import seconds


def show(seen: ServiceWindow) -> None:
    """Show the slowest requests, and the states of the one that is chosen."""
    st.header("Slow requests")
    if seen.side == "looks":
        nothing("The metrics of a server do not report single requests; its own records do, see docs/guides/serving-probe.md.")
        return
    if not seen.slow:
        nothing("No request ended in this window.")
        return
    st.caption(f"The {len(seen.slow)} slowest, as the {seen.side} saw them. Choose a row to see where its time went.")
    frame = _frame(seen.slow)
    event = st.dataframe(
        frame, hide_index=True, height=320, on_select="rerun", selection_mode="single-row", key="slow", column_config=_columns()
    )
    st.download_button(
        "CSV", csv(frame), "slow-requests.csv", "text/csv", key="csv-slow", icon=":material/download:", on_click="ignore"
    )
    chosen = event["selection"]["rows"]
    _one(seen.slow[chosen[0] if chosen and chosen[0] < len(seen.slow) else 0])


def _frame(requests: tuple[RequestDone, ...]) -> pd.DataFrame:
    rows = []
    for row in requests:
        states = dict(in_order(row))
        rows.append(
            {
                "ended": figures.moment(row.time),
                "took": row.wall_seconds,
                "first token": row.first_token_seconds,
                **{state.replace("_", " "): states.get(state, 0.0) for state in REQUEST_STATES},
                "tokens in": row.tokens_in,
                "tokens out": row.tokens_out,
                "outcome": row.outcome,
                "status": row.status or None,
                "model": row.model,
                "host": row.host,
                "request": row.request,
            }
        )
    return pd.DataFrame(rows)


def _columns() -> dict[str, object]:
    names = ("took", "first token", *(state.replace("_", " ") for state in REQUEST_STATES))
    numbers: dict[str, object] = {name: st.column_config.NumberColumn(f"{name}, s", format="%.3f") for name in names}
    return numbers | {"ended": st.column_config.DatetimeColumn("ended, UTC", format="YYYY-MM-DD HH:mm:ss")}


def _one(request: RequestDone) -> None:
    st.subheader("One request")
    tokens = f"{request.tokens_in:,} tokens in, {request.tokens_out:,} out"
    preempted = f"; preempted {request.preemptions} times" if request.preemptions else ""
    told = f"{request.request}: {seconds(request.wall_seconds)}, {request.outcome.replace('_', ' ')}, {tokens}{preempted}"
    st.markdown(escape_markdown(told))
    if not request.phase_seconds:
        nothing("Its record does not say in which states it was.")
        return
    chart(figures.one(request), "one-request", height=170)

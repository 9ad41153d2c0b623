"""Of the page of a job: its whole life, with attempts, failures, checkpoints and cost."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.job_life import Life
from tachoscope_core.report.report import Report
from tachoscope_explorer.figures import life as figures
from tachoscope_explorer.page.widgets import chart, escape_markdown, folded, nothing, table
from tachoscope_explorer.sources import jobs as job_sources
from tachoscope_explorer.sources.jobs import Run
from tachoscope_show.life import words as life_words
from tachoscope_show.life.words import LEGEND
from tachoscope_show.report.finding_words import productive

LAST, WHOLE = "last attempt", "whole life"


def whole_life(run: Run) -> Report | None:
    """Return the report on the life; None where it cannot be determined, or takes long, which the part below says."""
    try:
        return job_sources.life(run)
    except TachoscopeError:
        return None


def switched(report: Report, life: Report | None) -> Report:
    """Return the report that is to be judged by: where there are several attempts, the visitor says."""
    if life is None or life.life is None or len(life.life.attempts) < 2:
        return report
    chosen = st.segmented_control(
        f"Verdict on ({len(life.life.attempts)} attempts)", [LAST, WHOLE], default=LAST, required=True, key="judged"
    )
    return life if chosen == WHOLE else report


def show(run: Run) -> None:
    """Show the life."""
    if job_sources.life_takes_long(run):
        label = "Read the whole life"
        st.button(label, key="read-life", icon=":material/play_arrow:", on_click=job_sources.ask_for_life, args=(run,))
        st.caption("This reads all records of a long job, which can take minutes. The result is cached.")
        return
    try:
        report = job_sources.life(run)
    except TachoscopeError as error:
        nothing(escape_markdown(str(error)))
        return
    life = report.life
    if life is None:
        return
    st.markdown(
        f"{escape_markdown(life_words.summary(report, life))}; goodput **{escape_markdown(productive(report))}** of its whole life"
    )
    st.caption(escape_markdown(life_words.allocated(life)))
    if life.cost is not None and (life.cost.money is not None or life.cost.unit == "GPU"):
        st.caption(escape_markdown(life_words.cost(life.cost)))
    height = 90 + 34 * len(report.ledgers[0].states)
    chart(figures.waterfall(report, life), "waterfall", height=height)
    rows = [(state, *life_words.state_row(state, value, report, life)) for state, value in report.ledgers[0].states.items()]
    frame = pd.DataFrame(rows, columns=["state", "share", "amount", "cost"])
    frame = frame if frame["cost"].any() else frame.drop(columns="cost")
    folded("The same as a table", lambda: table(frame, "life-ledger"), "folded-life-ledger")
    if life.attempts:
        chart(figures.attempts(report, life), "attempts", height=190 + 34 * min(len(life.attempts), 20))
        st.caption(f"In colour, what most ranks were at: {LEGEND['steps']}.")
        for one in life.attempts[-10:]:
            st.markdown(f"- **attempt {one.attempt}**: {escape_markdown(life_words.attempt(one))}")
    _tables(life)
    _lists(life)


def _tables(life: Life) -> None:
    if life.recoveries:
        st.markdown("**Recoveries**")
        rows = [life_words.recovery(one) for one in life.recoveries]
        table(pd.DataFrame(rows, columns=list(life_words.RECOVERY_TITLES)), "recoveries")
    if life.advice:
        st.markdown("**How often to save**")
        table(pd.DataFrame([life_words.advice(one) for one in life.advice], columns=list(life_words.ADVICE_TITLES)), "advice")
        with st.expander("What this follows from"):
            for one in life.advice:
                st.markdown(f"- {escape_markdown(one.what)}: {escape_markdown(one.basis)}")


def _lists(life: Life) -> None:
    lists = (
        ("Notices", [life_words.notice_outcome(one) for one in life.notices]),
        ("Checkpoints", life_words.checkpoints(life.checkpoints) if life.checkpoints is not None else []),
        ("Failed more than others?", [life_words.suspect(one) for one in life.suspects]),
    )
    for title, lines in lists:
        if lines:
            st.markdown(f"**{title}**")
            st.markdown("\n".join(f"- {escape_markdown(line)}" for line in lines))

"""The page of all jobs: how the store stands at one glance, then a row for each job that leads to its own page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.redaction import redact
from tachoscope_core.report.palette import BAD, OK, UNKNOWN, WARN
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import csv, escape_markdown, nothing, problem
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources import job_rows, job_slos
from tachoscope_explorer.sources import summary_cache as summaries
from tachoscope_explorer.sources import traces as trace_sources
from tachoscope_explorer.sources.job_rows import FleetSummary, JobFilter, JobRow
from tachoscope_explorer.sources.job_slos import JobSlos
from tachoscope_show.life.words import hours
from tachoscope_show.report.trend_words import at
from tachoscope_show.text.units import counted

AT_ONCE = 50
"""So many jobs are judged at a look that were not before; the newest first."""
PATIENCE_SECONDS = 20.0
"""After so long the page is shown with what there is."""
REFRESH_SECONDS = 5.0
_MOST = "jobs-most"
"""In the session: so many of the newest jobs are judged."""
_MANY = 4
"""From so many on progress is shown: one job that runs is judged again without a word."""
_NO_JOBS = {trace_sources.GIVEN: "Traces of the command line", trace_sources.UPLOADED: "Uploaded traces"}
"""Traces that belong to no job of the store."""
_COLORS = (BAD, WARN, OK, OK, UNKNOWN, UNKNOWN)
"""Of `job_rows.SEVERITIES`."""
_GOODPUT = (
    "Share of compute in the allocated time of the whole life; of a service share of prefill and decode in the time of its last "
    "hour's requests."
)
_IDLE = (
    "Allocated time in all states but compute: what goodput does not count. The queue is not paid for and is left out. The price "
    "is the list price of the accelerator; empty where none is known, as for ranks without one."
)


def show(context: Context) -> None:
    """Show the page."""
    st.title("Jobs")
    if "job" in st.query_params:  # of the page that one came back from
        del st.query_params["job"]
    _traces(context)
    url = context.settings.store_url
    try:
        times = sources.job_times(url)
    except TachoscopeError as error:
        problem(error)
        st.markdown(
            "Load this page again once it can be reached (an object store's keys come from the explorer's environment), or start "
            "the explorer with another store, a folder or `s3://bucket/path`:"
        )
        st.code("tachoscope explore --store URL", language="bash")
        return
    if not times:
        _empty(url)
        return
    found = _read_jobs(url)
    above, filters = st.container(), st.container()
    with filters:
        wanted = _wanted(found.rows)
    # Streamlit runs the board again with what it was called with first: the rows are taken out, so that it looks for itself then.
    st.fragment(_board, run_every=REFRESH_SECONDS if found.changes else None)(context, above, wanted, [found], live=found.changes)


@dataclass(frozen=True, slots=True)
class _JobTable:
    """What one look at the store found."""

    rows: list[JobRow]
    slos: JobSlos

    @property
    def changes(self) -> bool:
        """Whether the next look finds more."""
        return not self.slos.complete or any(row.status == "running" for row in self.rows)


def _read_jobs(url: str) -> _JobTable:
    """Return the jobs of the store; those that changed are judged again, as many as is bearable, with progress on the page."""
    times = sources.job_times(url)
    newest = sorted(times, key=lambda job: -times[job])
    bar = st.empty()

    def on_progress(done: int, of: int) -> None:
        if of >= _MANY:
            bar.progress(done / of, f"Judging {counted(of, 'job')}: {done} done")

    most = st.session_state.get(_MOST, AT_ONCE)
    found = summaries.summaries(url, newest, times, most=most, seconds=PATIENCE_SECONDS, on_progress=on_progress)
    bar.empty()
    return _JobTable(job_rows.rows(times, found, time.time()), job_slos.job_slos(url))


def _wanted(found: Sequence[JobRow]) -> JobFilter:
    """Return what is looked for. It is in the address, so that a list can be sent."""

    def several(label: str, options: Sequence[str], key: str, width: int) -> list[str]:
        return st.multiselect(label, options, key=key, bind="query-params", placeholder="any", width=width)

    with st.container(horizontal=True):  # on a phone two beside each other
        return JobFilter(
            st.text_input("Search", key="q", bind="query-params", placeholder="part of a job's name", width=260),
            several("Status", job_rows.STATUSES, "status", 165),
            several("Severity", job_rows.SEVERITIES, "severity", 165),
            several("Worst finding", job_rows.classes(found), "class", 220),
        )


def _board(context: Context, above: DeltaGenerator, wanted: JobFilter, fresh: list[_JobTable], *, live: bool) -> None:
    """Show what changes while jobs run; the sums go to the container `above`. fresh: the look, if it was just made."""
    look = fresh.pop() if fresh else _read_jobs(context.settings.store_url)
    found = look.rows
    if live and not look.changes:
        st.rerun()  # the page as a whole: nothing refreshes itself from now on
    with above:
        _at_a_glance(job_rows.summarise(found))
    chosen = [row for row in found if wanted.matches(row)]
    if not chosen:
        nothing("No job matches. Remove a filter.")
    else:
        _table(context, chosen, look.slos)
    unseen = sum(row.summary is None for row in found)
    if unseen:
        st.caption(f"Not analyzed yet: {counted(unseen, 'job')} of {len(found)}, the oldest ones.")
        label = f"Analyze {min(unseen, AT_ONCE)} more"
        st.button(label, key="more", icon=":material/expand_more:", on_click=_more, args=(len(found) - unseen,))
    if not look.slos.complete:
        st.caption(f"Objectives: of samples since {at(look.slos.since)}; older ones are being read.")
    if live:
        st.caption(f"Refreshed every {REFRESH_SECONDS:.0f} s; a running job is judged every {summaries.LIVE_SECONDS:.0f} s.")


def _more(seen: int) -> None:
    st.session_state[_MOST] = seen + AT_ONCE


def _at_a_glance(seen: FleetSummary) -> None:
    money = " + ".join(job_rows.money(amount, currency) for currency, amount in sorted(seen.idle.items()))
    with st.container(horizontal=True, gap="medium"):  # on a phone two beside each other
        st.metric("Jobs", f"{seen.jobs:,}", width="content")
        st.metric("Running", f"{seen.running:,}", width="content")
        st.metric("With a critical finding", f"{seen.critical:,}", width="content")
        st.metric("Idle cost", money or "not known", help=_IDLE, width="content")
    known = [f"idle cost of {counted(seen.priced, 'job')}"] if seen.priced else []
    if seen.unpriced:
        known.append(f"no price is known for what {counted(seen.unpriced, 'job')} ran on")
    if seen.idle_hours is not None:
        known.append(f"idle in all {hours(seen.idle_hours)} hours of ranks")
    if known:
        st.caption("; ".join(known).capitalize() + ".")


def _table(context: Context, chosen: Sequence[JobRow], slos: JobSlos) -> None:
    frame = job_rows.table(chosen, slos)
    st.caption("**Tick a row to open its job** (keyboard: Shift+Space). A click on a column's head sorts.")
    event = st.dataframe(
        frame.assign(severity=pd.Series([[value] for value in frame["severity"]], dtype=object)),
        key="jobs-table",
        hide_index=True,
        column_config=_columns(chosen),
        on_select="rerun",
        selection_mode="single-row",
        placeholder="-",
        height=min(35 * (len(frame) + 1) + 3, 620),
    )
    st.download_button(
        "CSV", lambda: csv(_flat(frame)), "jobs.csv", "text/csv", key="csv-jobs", icon=":material/download:", on_click="ignore"
    )
    for index in event.selection.rows[:1]:
        if index < len(chosen):
            context.open_page("job", View(job=chosen[index].job))


def _columns(chosen: Sequence[JobRow]) -> dict[str, object]:
    currencies = {row.summary.currency for row in chosen if row.summary is not None and row.summary.currency}
    unit = f", {currencies.pop()}" if len(currencies) == 1 else ""
    column = st.column_config
    return {
        "job": column.TextColumn("job", pinned=True, width=160),
        "goodput": column.ProgressColumn(
            "goodput of its life",
            format="%.1f %%",
            min_value=0,
            max_value=100,
            width=120,
            help=_GOODPUT,
        ),
        "step time": column.LineChartColumn(
            "step time", y_min=0, width=100, help="Over the last attempt, from its first step to its last."
        ),
        "status": column.TextColumn("status", width=85),
        "mean step": column.NumberColumn("mean step", format="%.3g s", width=85),
        "severity": column.MultiselectColumn("severity", options=job_rows.SEVERITIES, color=_COLORS, width=120),
        "worst finding": column.TextColumn("worst finding", width=260),
        "objectives": column.TextColumn("objectives", width="medium", help=job_slos.HELP),
        "idle hours": column.NumberColumn("idle hours", help=_IDLE),
        "idle cost": column.NumberColumn(f"idle cost{unit}", help=_IDLE),
        "currency": None if unit or not currencies else column.TextColumn("currency"),
        "steps": column.NumberColumn("steps", format="localized", help="New steps over the whole life; of a service requests."),
        "last written": column.DatetimeColumn("last written", format="distance"),
        "compare": column.LinkColumn(
            "compare", display_text="compare", help="Opens the comparison with another run, in a new tab."
        ),
    }


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table as a spreadsheet takes it: a sparkline as its numbers in one cell."""
    return frame.assign(**{"step time": [" ".join(f"{one:.6g}" for one in cell) for cell in frame["step time"]]}).drop(
        columns="compare"
    )


def _traces(context: Context) -> None:
    """Put a link to each trace that is not a job of the store."""
    try:
        found = [one for job in _NO_JOBS for one in trace_sources.recordings(context.settings, job)]
    except TachoscopeError as error:
        problem(error)
        return
    for one in found:
        names = ", ".join(file.name for file in one.files[:3]) + (", …" if len(one.files) > 3 else "")
        label = f"{_NO_JOBS[one.job]}: {counted(len(one.files), 'file')} ({escape_markdown(names)})"
        context.link(label, "trace", View(job=one.job, trace=one.name), icon=":material/timeline:")


def _empty(url: str) -> None:
    nothing(f"The store {escape_markdown(redact(url))} contains no job yet. Fill it with a demonstration, then with your training:")
    commands = f"tachoscope demo --store {redact(url)}\ntachoscope run --store {redact(url)} -- python train.py"
    st.code(commands, language="bash", wrap_lines=True)

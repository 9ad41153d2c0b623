"""The page `job`: what holds a job up, and everything that this was concluded from."""

from __future__ import annotations

import time
from dataclasses import replace

import streamlit as st

from tachoscope_analyzers.records import load
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report
from tachoscope_explorer.page import job_facts
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.finding_card import show_findings
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import escape_markdown, nothing, problem
from tachoscope_explorer.screens.jobs import earlier as job_earlier
from tachoscope_explorer.screens.jobs import failures as job_failures
from tachoscope_explorer.screens.jobs import life as job_life
from tachoscope_explorer.screens.jobs import memory as job_memory
from tachoscope_explorer.screens.jobs import saved_report as job_saved
from tachoscope_explorer.screens.jobs import stacks as job_stacks
from tachoscope_explorer.screens.jobs import time as job_time
from tachoscope_explorer.screens.jobs import window as job_window
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources import jobs as job_sources
from tachoscope_explorer.sources.jobs import JobView, Run
from tachoscope_show.report.finding_words import productive, productive_name
from tachoscope_show.report.trend_words import at
from tachoscope_show.text.units import duration, seconds


def show(context: Context) -> None:
    """Show the page."""
    if not context.view.job:
        _choose(context)
        return
    st.title(escape_markdown(context.view.job))
    run = job_sources.visited_run(context.settings.store_url, context.view.job)
    try:
        job = job_sources.records(run)
    except TachoscopeError as error:
        job_saved.show(context, error)
        return
    if load.serving_job(job):
        nothing("This is a service: it has requests, not training steps.")
        context.link("Its page", "inference", View(service=context.view.job), icon=":material/forum:")
        return
    if load.status(job, now=time.time()) == "running":
        _live(run)
    elif job_sources.newest(run.url, run.job).at > run.at:
        _newer(run)
    _run(context, run)


def _choose(context: Context) -> None:
    st.title("Job")
    times = sources.job_times(context.settings.store_url)
    if not times:
        nothing("The store contains no job yet: `tachoscope run -- python train.py` makes one, and `tachoscope demo` a short one.")
        return
    names = sorted(times, key=lambda name: -times[name])
    chosen = st.selectbox("Job", names, index=None, placeholder="Choose a job; the newest is first")
    if chosen:
        look_at(View(job=chosen))
        st.rerun()


@st.fragment(run_every=sources.LIVE_SECONDS)
def _live(run: Run) -> None:
    """Say every few seconds whether there are newer records of a live job; the page stays as it is until somebody wants them."""
    _newer(run)


def _newer(run: Run) -> None:
    behind = job_sources.newest(run.url, run.job).at - run.at
    newer = f"; newer records are there, {duration(behind)} later" if behind > 0 else ", the newest records"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Shown as of {at(run.at)}{newer}")
        if st.button("Refresh", icon=":material/refresh:", disabled=behind <= 0, key="refresh"):
            job_sources.reload(run)
            st.rerun(scope="app")


def _run(context: Context, run: Run) -> None:
    try:
        whole = job_sources.view_of_run(run, None, None)
    except TachoscopeError as error:
        problem(error)
        job_failures.show(job_life.whole_life(run))
        job_life.show(run)
        return
    start, end = job_window.chosen(context, whole)
    try:
        look = whole if start is None and end is None else job_sources.view_of_run(run, start, end)
    except TachoscopeError as error:
        problem(error)
        job_window.back(context)
        return
    life = job_life.whole_life(run)
    report = job_life.switched(look.report, life)
    _head(report)
    _elsewhere(context)
    if look is not whole:
        _window(context, look)
    job_failures.show(life or look.report)
    hang = job_stacks.last(run)
    hangs = job_stacks.is_last_word(hang, whole.report)
    if hang is not None and hangs:
        job_stacks.show(hang)
    show_findings(context, report)
    if hang is not None and not hangs:
        job_stacks.show(hang)
    job_earlier.show(context, look.report.earlier)
    job_time.show(context, whole, look, (start, end))
    job_memory.show(look.report.memory)
    job_life.show(run)
    job_facts.show(report)


def _head(report: Report) -> None:
    step = report.step_seconds
    facts = (
        (productive_name(report).capitalize(), productive(report)),
        ("Step", seconds(step.mean)),
        ("p95 of steps", seconds(step.p95)),
        ("Steps", f"{report.window.steps:,}"),
        ("Ranks", f"{report.ranks:,}"),
    )
    with st.container(horizontal=True, gap="large"):
        for name, value in facts:
            st.metric(name, value, width="content")


def _elsewhere(context: Context) -> None:
    """Put the links to what else there is of the job and its window."""
    with st.container(horizontal=True):
        for label, page, icon in (
            ("Its traces", "trace", ":material/timeline:"),
            ("Compare it", "compare", ":material/compare_arrows:"),
            ("What if", "what-if", ":material/tune:"),
        ):
            context.link(label, page, replace(context.view, class_=""), icon=icon)


def _window(context: Context, look: JobView) -> None:
    window = look.report.window
    with st.container(horizontal=True, vertical_alignment="center"):
        steps = f"steps {look.numbers[0]:,} to {look.numbers[-1]:,}"
        st.markdown(f":material/crop: **Window**: {steps}, {at(window.start)} to {at(window.end)}")
        job_window.back(context)

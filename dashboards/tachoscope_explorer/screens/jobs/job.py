"""The page `job`: what holds a job up, and everything that this was concluded from."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import streamlit as st

from tachoscope_analyzers.records import load
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report
from tachoscope_explorer.page import job_facts
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.finding_card import show_cards, show_verdict
from tachoscope_explorer.page.parts import show_parts
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
from tachoscope_show.text.pages import part, rendered
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
        st.subheader(_PARTS["life"])
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
    if look is not whole:
        _window(context, look)
    job_failures.show(life or look.report)
    hang = job_stacks.last(run)
    hangs = job_stacks.is_last_word(hang, whole.report)
    if hang is not None and hangs:
        job_stacks.show(hang)
    show_verdict(report)
    _facts(report)
    _elsewhere(context)
    show_cards(context, report)
    if hang is not None and not hangs:
        job_stacks.show(hang)
    job_memory.show_lines(look.report.memory)
    job_earlier.show(context, look.report.earlier)
    shown = Shown(run, whole, look, report, (start, end))
    has_memory = look.report.memory is not None and bool(look.report.memory.ranks)
    titles = {name: title for name, title in _PARTS.items() if name != "memory" or has_memory}
    show_parts(context, titles, lambda at_part, name: _part(at_part, name, shown), "job-part")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a part is about. `look`: the window, or the whole run. `report`: the one that the verdict is of."""

    run: Run
    whole: JobView
    look: JobView
    report: Report
    window: job_window.Window


_PARTS = {
    "time": "Where the time went",
    "zoom": "Zoom",
    "steps": "Step times",
    "ranks": "Time by rank",
    "memory": "Memory",
    "life": "The job's life",
    "data": "Data and export",
}


def _part(context: Context, name: str, shown: Shown) -> None:
    match name:
        case "time":
            job_time.show_states(shown.look.report, shown.look.course)
        case "zoom":
            job_time.show_zoom(context, shown.whole, shown.look, shown.window)
        case "steps":
            job_time.show_steps(shown.look)
        case "ranks":
            job_time.show_ranks(context, shown.look)
        case "memory" if shown.look.report.memory is not None:
            job_memory.show(shown.look.report.memory)
        case "life":
            job_life.show(shown.run)
        case _:
            job_facts.show(shown.report)


def _facts(report: Report) -> None:
    step = report.step_seconds
    facts = (
        (productive_name(report).capitalize(), productive(report)),
        ("Step", seconds(step.mean)),
        ("p95 of steps", seconds(step.p95)),
        ("Steps", f"{report.window.steps:,}"),
        ("Ranks", f"{report.ranks:,}"),
        ("Causes not measured", f"{len(report.not_measured)}"),
    )
    st.html(f"<style>{rendered('states.css')}</style>{part('states.html', 'facts', facts)}")


def _elsewhere(context: Context) -> None:
    """Put the links to what else there is of the job and its window."""
    with st.container(horizontal=True):
        for label, page, icon in (
            ("Its traces", "trace", ":material/timeline:"),
            ("Compare it", "compare", ":material/compare_arrows:"),
            ("What if", "what-if", ":material/tune:"),
        ):
            context.link(label, page, replace(context.view, class_="", part=""), icon=icon)


def _window(context: Context, look: JobView) -> None:
    window = look.report.window
    with st.container(horizontal=True, vertical_alignment="center"):
        steps = f"steps {look.numbers[0]:,} to {look.numbers[-1]:,}"
        st.markdown(f":material/crop: **Window**: {steps}, {at(window.start)} to {at(window.end)}")
        job_window.back(context)

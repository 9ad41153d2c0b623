"""Of the page of a job: where its time went over the run, how long its steps took, and whose time it was."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import streamlit as st

from tachoscope_analyzers.job.timeline import Timeline
from tachoscope_core.report.report import Report
from tachoscope_explorer.figures import ledger, steps
from tachoscope_explorer.figures.ledger import Axis, Unit
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.widgets import chart, escape_markdown
from tachoscope_explorer.screens.jobs import window as job_window
from tachoscope_explorer.screens.jobs.window import Window
from tachoscope_explorer.sources.jobs import JobView
from tachoscope_show.report import rank_bars, states_picture, trend_words
from tachoscope_show.report.finding_words import unit_of, unit_seconds
from tachoscope_show.text.pages import part
from tachoscope_show.text.units import seconds

_RANKS = 8
"""Number of ranks that are shown before anybody asks for all."""


def show_states(report: Report, course: Timeline) -> None:
    """Show the states over time, their sums, what changed, and the ranks to look at first: text and outlines, without scripts."""
    main, mean = report.ledgers[0], unit_seconds(report)
    rows = [
        (state, value / main.wall_seconds, value / main.wall_seconds * mean)
        for state, value in sorted(main.states.items(), key=lambda row: -row[1])
    ]
    st.html(part("states.html", "over_time", states_picture.picture(course), rows, unit_of(report)))
    for number, line in enumerate(trend_words.lines(report), start=1):
        st.markdown(f"{number}. {escape_markdown(line)}")
    bars = rank_bars.bars(report)
    if len(bars) < 2:
        return
    st.html(part("states.html", "ranks", rank_bars.first(bars, _RANKS)))
    if len(bars) > _RANKS:
        st.caption(f"{_RANKS} of {len(bars):,} ranks: those that findings name, then those that wait least for others.")


def show_zoom(context: Context, whole: JobView, look: JobView, window: Window) -> None:
    """Show the picture in which a window is chosen; `look` is that of the window, `whole` that of the whole run."""
    with st.container(horizontal=True):
        unit = cast(Unit, st.segmented_control("Amount", ["share", "seconds"], default="share", required=True, key="unit"))
        axis = _axis()
    job_window.by_hour(context, whole, window)
    start, end = window
    # A window of a long job may lie before the part that is read of the whole: it is then the picture in which a part is chosen.
    base = look if job_window.outside(whole, look) else whole
    bounds = None if look is base else (start or whole.edges[0], end or whole.edges[-1])
    figure = ledger.over_time(base.course, axis, unit, window=bounds)
    # Another key for another window: a box that was drawn is told again at every run, and must not undo what was chosen since.
    selected = chart(figure, f"ledger-{axis}-{unit}-{start}-{end}", height=340, selects="box")
    of = "All ranks together. " if look.report.ranks > 1 else ""
    shown = "window" if look is base and look is not whole else "run"
    st.caption(f"{of}Draw a box over a part of the {shown}: everything on this page is then about that part.")
    job_window.brushed(context, base, selected["box"], axis, whole=base is whole)
    job_window.by_steps(context, base, look, whole=base is whole)
    if look is not base:
        st.markdown("**Within the window**")
        chart(ledger.over_time(look.course, axis, unit), f"within-{axis}-{unit}-{start}-{end}", height=260)


def _axis() -> Axis:
    return cast(Axis, st.segmented_control("Over", ["time", "step"], default="time", required=True, key="axis"))


def show_steps(look: JobView) -> None:
    """Show how step times are distributed, and their course."""
    axis = _axis()
    left, right = st.columns([2, 3])
    with left:
        chart(steps.spread(look.spread, look.report.step_seconds), "spread", height=300)
        beyond = look.spread.beyond
        if beyond:
            st.caption(f"{beyond:,} steps took longer than this picture is wide: over {seconds(float(look.spread.edges[-1]))}.")
    with right:
        course = look.report.course
        chart(steps.over_run(look.course, course, axis), f"course-{axis}", height=300)
        if course is None or course.changes is None:
            st.caption("Too few steps to tell lasting changes of the step time.")
        elif not course.changes:
            st.caption("No lasting change of the step time.")


def show_ranks(context: Context, look: JobView) -> None:
    """Show the time of each rank by steps, with the way to its trace."""
    with st.container(horizontal=True):
        kind = st.segmented_control("Shown", ["own time", "waiting for others"], default="own time", required=True, key="grid")
        axis = _axis()
    grid = look.own if kind == "own time" else look.waiting
    height = min(max(140 + 24 * len(grid.first_rank), 220), 520)
    selected = chart(steps.cells(grid, axis), f"cells-{kind}-{axis}", height=height, selects="points")
    several = len(grid.first_rank) < look.report.ranks
    of = "A row is several ranks, in the colour of the one that has most. " if several else ""
    st.caption(f"{of}A rank with more own time than the others is the one that they wait for. A click opens that rank's trace.")
    if selected["points"]:
        rank, start, end = steps.cell_of_point(grid, cast(int, selected["points"][0]["point_index"]))
        context.open_page("trace", replace(context.view, rank=rank, start=start, end=end, part=""))
    _open_rank(context, look)


def _open_rank(context: Context, look: JobView) -> None:
    """Offer the same to people without a mouse."""
    ranks = sorted({book.rank for book in look.report.ledgers if book.rank is not None})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        rank = st.selectbox("Rank", ranks, index=None, placeholder="Open a rank's trace", label_visibility="collapsed", width=260)
        if rank is not None:
            context.link(
                f"Rank {rank} in the trace", "trace", replace(context.view, rank=rank, part=""), icon=":material/timeline:"
            )

"""What the page of a job reads. The job is taken as it was when it was first looked at, until somebody asks for what is newer.

A live job writes every few seconds, and reading all of a long one takes seconds: a page that followed it could not be used.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from tachoscope_analyzers.job import rank_grid
from tachoscope_analyzers.job.classify import decide
from tachoscope_analyzers.job.rank_grid import RankGrid
from tachoscope_analyzers.job.report import report_of
from tachoscope_analyzers.job.timeline import Timeline, step_edges, timeline
from tachoscope_analyzers.ledger.histogram import Histogram, histogram
from tachoscope_analyzers.records import steps as step_tables
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.window import within
from tachoscope_core.report.report import Report
from tachoscope_explorer.sources import cache as sources


@dataclass(frozen=True, slots=True)
class Run:
    """A job as it was read. `at`: when it was last written by then, in Unix seconds; with `url` and `job` it is what is kept."""

    url: str
    job: str
    at: float


@dataclass(frozen=True, slots=True)
class JobView:
    """What a page shows of a run, or of a window of it: all small, however long the run.

    Attributes:
        numbers: of its steps, K of them. edges: the K + 1 moments before, between and after them, in Unix seconds.
    """

    report: Report
    course: Timeline
    own: RankGrid
    waiting: RankGrid
    spread: Histogram
    numbers: list[int]
    edges: list[float]


def visited_run(url: str, job: str) -> Run:
    """Return a job as this visitor looks at it: as it was when they came to it, or asked for what is newer.

    Raises:
        TachoscopeError: the store has no such job.
    """
    kept: dict[tuple[str, str], Run] = st.session_state.setdefault("runs", {})
    if (url, job) not in kept:
        kept.clear()
        kept[url, job] = newest(url, job)
    return kept[url, job]


def reload(run: Run) -> None:
    """Forget how a job was, so that it is read as it is now."""
    st.session_state.setdefault("runs", {}).pop((run.url, run.job), None)


def newest(url: str, job: str) -> Run:
    """Return a job as it is now.

    Raises:
        TachoscopeError: the store has no such job.
    """
    return Run(url, job, sources.written(url, job))


def records(run: Run) -> JobRecords:
    """Return the records of a run, of a long one those of its newest part."""
    return sources.records(run.url, run.job, run.at)


@st.cache_resource(max_entries=2, show_spinner=False)
def _table(run: Run) -> pd.DataFrame:
    return step_tables.table(records(run))


@st.cache_resource(max_entries=12, show_spinner="Looking for the bottleneck …")
def view_of_run(run: Run, start: float | None, end: float | None) -> JobView:
    """Return what is to be seen of the last attempt of a run, or of a window of it in Unix seconds.

    Raises:
        TachoscopeError: there is no step in it.
    """
    job, frame = records(run), _table(run)
    if start is not None or end is not None:
        first, last = start or 0.0, end or float("inf")
        if job.left_out:
            job = sources.records_within(run.url, run.job, run.at, start, end)
        job = within(job, first, last)
        # Making the table of a long run takes longer than judging it. It is of one attempt, and a window may have steps of others.
        middle = frame["time"] - frame["wall_seconds"] / 2
        frame = frame[(middle >= first) & (middle <= last)]
        if len(frame) != len(job.steps):
            frame = step_tables.table(job)
    decided = decide(job, step_tables.aligned(job, frame))
    steps = decided.steps
    return JobView(
        report=report_of(job, decided),
        course=timeline(decided),
        own=rank_grid.own_time(steps),
        waiting=rank_grid.waiting(steps),
        spread=histogram(decided.losses.step),
        numbers=steps.numbers.tolist(),
        edges=step_edges(steps).tolist(),
    )


def life(run: Run) -> Report:
    """Return the report on the whole life of a run.

    Raises:
        TachoscopeError: see `life.report.analyze_life`; or the run is long, and the visitor did not ask for it.
    """
    return sources.life(run.url, run.job, run.at, patient=_life_key(run) in st.session_state)


def life_takes_long(run: Run) -> bool:
    """Return whether reading the whole life of a run takes long, and this visitor did not ask for it."""
    return records(run).left_out is not None and _life_key(run) not in st.session_state


def ask_for_life(run: Run) -> None:
    """Have the whole life of a run read, however long that takes."""
    st.session_state[_life_key(run)] = True


def _life_key(run: Run) -> str:
    return f"whole life of {run.url} {run.job}"

"""What the pages Compare and What if read, kept until what it was made of changes."""

from __future__ import annotations

import time

import streamlit as st

from tachoscope_analyzers.compare.aligned_steps import StepTimes
from tachoscope_analyzers.compare.baselines import BaselineCandidate, likely_baselines
from tachoscope_analyzers.compare.runs import compared
from tachoscope_analyzers.job.classify import Classification, decide
from tachoscope_analyzers.job.what_if import WhatIf
from tachoscope_analyzers.records import load
from tachoscope_analyzers.records.lineage import lineage
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report, worst_severity
from tachoscope_core.storage.store import Store
from tachoscope_explorer.sources import cache as sources

_MOST_LINEAGES = 24
"""Runs whose lineage is read to sort them: of a large store only those with the likeliest names."""
_MOST_LOOKED_AT = 4
"""Runs that are judged in search of a clean one."""
_LOOKING_SECONDS = 5.0


@st.cache_resource(max_entries=16, show_spinner="Comparing the runs …")
def _compared(url: str, job: str, baseline: str, at: tuple[float, float]) -> Report:  # noqa: ARG001  # `at` outdates it
    return compared(sources.report(url, job), sources.report(url, baseline))


def comparison(url: str, job: str, baseline: str) -> Report:
    """Return the report on a job with its comparison.

    Raises:
        TachoscopeError: the job is its own baseline, or the two cannot be compared.
    """
    if job == baseline:
        raise TachoscopeError(f"job {job!r} is its own baseline", fix="choose another run")
    return _compared(url, job, baseline, (sources.written(url, job), sources.written(url, baseline)))


@st.cache_resource(max_entries=2, show_spinner="Going through the steps …")
def _decided(url: str, job: str, at: float) -> Classification:  # noqa: ARG001
    records = sources.records(url, job)
    return decide(records, aligned(records))


def decided(url: str, job: str) -> Classification:
    """Return the steps of a job's last attempt with what they lost.

    Raises:
        TachoscopeError: see `steps.aligned`.
    """
    return _decided(url, job, sources.written(url, job))


@st.cache_resource(max_entries=2, show_spinner=False)
def _what_if(url: str, job: str, at: float) -> WhatIf:
    return WhatIf(_decided(url, job, at), sources.report(url, job))


def what_if(url: str, job: str) -> WhatIf:
    """Return the steps of a job, to be asked what they would be.

    Raises:
        TachoscopeError: its records do not tell.
    """
    return _what_if(url, job, sources.written(url, job))


@st.cache_data(max_entries=8, show_spinner=False)
def _step_times(url: str, job: str, at: float) -> StepTimes:
    found = _decided(url, job, at)
    return StepTimes(found.steps.numbers, found.losses.step)


def step_times(url: str, job: str) -> StepTimes:
    """Return the seconds of each step of a job's last attempt."""
    return _step_times(url, job, sources.written(url, job))


@st.cache_data(max_entries=256, show_spinner=False)
def _lineage(url: str, job: str, at: float) -> dict[str, str]:  # noqa: ARG001
    try:
        return lineage(load.from_store(Store(url), job, ends_only=True))
    except TachoscopeError:  # of a run that cannot be read nothing is known
        return {}


def baselines(url: str, job: str) -> list[BaselineCandidate]:
    """Return the other jobs of a store, the likeliest baseline first."""
    times = sources.job_times(url)
    by_name = likely_baselines(job, times)
    nearest = [job, *(one.job for one in by_name[:_MOST_LINEAGES])]
    return likely_baselines(job, times, {name: _lineage(url, name, times[name]) for name in nearest if name in times})


@st.cache_data(max_entries=32, show_spinner="Looking for a clean run …")
def _suggested(url: str, job: str, candidates: tuple[tuple[str, float], ...]) -> str:  # noqa: ARG001
    until = time.monotonic() + _LOOKING_SECONDS
    for name, _ in candidates:
        try:
            report = sources.report(url, name)
        except TachoscopeError:  # a server's, or without a step: no baseline
            continue
        if report.course is not None and worst_severity(report.findings) not in {"critical", "warning"}:
            return name
        if time.monotonic() > until:
            break
    return ""


def suggestion(url: str, job: str, likely: list[BaselineCandidate]) -> str:
    """Return the last run of the same name pattern that has no warning, among the newest few; empty: there is none."""
    times = sources.job_times(url)
    same = sorted((one.job for one in likely if one.same_pattern), key=lambda name: -times[name])
    return _suggested(url, job, tuple((name, times[name]) for name in same[:_MOST_LOOKED_AT]))

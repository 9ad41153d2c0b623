"""Two recordings of profiler traces, each read and summed up once, and compared with each other."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from tachoscope_analyzers.trace.compare.diff import TraceDiff, diff
from tachoscope_analyzers.trace.compare.report_changes import compared
from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import JobTraces, read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_analyzers.trace.reading import cache
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report

Files = tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """The report with its `changes`, and the tables that these are the largest rows of."""

    report: Report
    diff: TraceDiff


@st.cache_resource(max_entries=4, show_spinner="Summing up the traces …")
def _summed(files: tuple[str, ...], signatures: tuple[str, ...]) -> JobTraces:  # noqa: ARG001  # a changed file is read again
    here: Executor = InProcess()  # a server that forks for every look would hold its memory many times
    return read_job(files, executor=here, wanted=SummaryOptions(what_if=False, profile=True))


def _job(files: Files) -> JobTraces:
    return _summed(tuple(map(str, files)), tuple(cache.signature(file) for file in files))


def comparison(name: str, files: Files, baseline_name: str, baseline_files: Files) -> TraceComparison:
    """Return traces compared with others; the names are of their jobs.

    Raises:
        TachoscopeError: they are the same, or one cannot be read.
    """
    if files == baseline_files:
        raise TachoscopeError("the trace is its own baseline", fix="choose another one")
    now, before = _job(files), _job(baseline_files)
    assert now.sums is not None and before.sums is not None, "asked for by `SummaryOptions`"
    found = compared(report(now, name), now, report(before, baseline_name), before)
    return TraceComparison(found, diff(before.sums, now.sums))

"""What pages read, each kept for the next look until what it was made of changes.

Few are kept at a time, so that the server's memory stays as it is. Of what is kept nobody changes anything: it is shared.
"""

from __future__ import annotations

import streamlit as st

from tachoscope_analyzers.data.prices import shipped_prices
from tachoscope_analyzers.hang_evidence import report as hang_report
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records.judged_part import read_part
from tachoscope_analyzers.records.life_records import with_life
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report
from tachoscope_core.storage import hang_bundles
from tachoscope_core.storage.store import Store

PART = 90_000
"""Number of measurements that are read of a long job, half an hour of 64 ranks with steps of 2 s: a page takes the server a second.
What came before is on the page as it was judged at compaction."""
LIVE_SECONDS = 5.0
"""For so long the store's list of jobs is taken for what it is."""


@st.cache_data(ttl=LIVE_SECONDS, max_entries=4, show_spinner=False)
def job_times(url: str) -> dict[str, float]:
    """Return each job of a store with the Unix time at which something of it was last written."""
    return Store(url).job_times()


def written(url: str, job: str) -> float:
    """Return when something of a job was last written, in Unix seconds.

    Raises:
        TachoscopeError: the store has no such job.
    """
    times = job_times(url)
    if job not in times:
        raise TachoscopeError(f"the store has no job {job!r}", fix="choose one on the page Jobs")
    return times[job]


@st.cache_resource(max_entries=3, show_spinner="Reading the job's records …")
def _records(url: str, job: str, at: float) -> JobRecords:  # noqa: ARG001  # `at` makes what is kept outdated
    return read_part(Store(url), job, part=PART)


@st.cache_resource(max_entries=6, show_spinner="Reading that part of the job …")
def records_within(url: str, job: str, at: float, start: float | None, end: float | None) -> JobRecords:  # noqa: ARG001  # `at` as above
    """Return the records of a window of a job, in Unix seconds; of a long window those of its newest part."""
    return read_part(Store(url), job, start=start, end=end, part=PART)


def records(url: str, job: str, at: float | None = None) -> JobRecords:
    """Return the records of a job, of a long one those of its newest part.

    Args:
        at: when it was last written, of one that shall be looked at as it was then.
    """
    return _records(url, job, written(url, job) if at is None else at)


@st.cache_resource(max_entries=32, show_spinner="Looking for the bottleneck …")
def _report(url: str, job: str, at: float) -> Report:
    return analyze(_records(url, job, at))


def report(url: str, job: str) -> Report:
    """Return the report on a job's last attempt.

    Raises:
        TachoscopeError: see `job.report.analyze`.
    """
    return _report(url, job, written(url, job))


@st.cache_resource(max_entries=8, show_spinner=False)
def last_hang(url: str, job: str, at: float) -> Report | None:  # noqa: ARG001  # `at` as above
    """Return the report on what was collected at a job's last hang; None: nothing was.

    Raises:
        TachoscopeError: it cannot be read.
    """
    found = hang_bundles.last_hang(Store(url), job)
    return hang_report.report(found) if found.bundles or found.refused else None


@st.cache_resource(max_entries=32, show_spinner="Going through the job's life …")
def _life(url: str, job: str, at: float) -> Report:
    read = _records(url, job, at)
    if read.left_out:
        return with_life(Store(url), job, lambda life: analyze_life(life, prices=shipped_prices()))
    return analyze_life(read, prices=shipped_prices())


def life(url: str, job: str, at: float | None = None, *, patient: bool = False) -> Report:
    """Return the report on a job's whole life; `at` as of `records`.

    Args:
        patient: also of a long job, all of whose records are read for it.

    Raises:
        TachoscopeError: see `life.report.analyze_life`; or the job is long, and nobody waits for it.
    """
    at = written(url, job) if at is None else at
    if not patient and _records(url, job, at).left_out:
        raise TachoscopeError("reading the whole life of this job takes long", fix=f"tachoscope goodput {job}")
    return _life(url, job, at)

"""Jobs on one line each, kept on disk until something of the job is written, so that a list of hundreds opens at once.

What is kept is a file a job below `caches.folder("summaries")`. A file that is damaged, or of another version of tachoscope, is as
if it were not there, and written again. Nothing in the store is written.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import streamlit as st

from tachoscope_analyzers.data.prices import shipped_prices
from tachoscope_analyzers.fleet.job_summary import JobSummary, summarise, unreadable
from tachoscope_analyzers.records.judged_part import read_part
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import cache_dir
from tachoscope_core.storage.store import Store
from tachoscope_explorer.sources import cache as sources

FORM = 2
"""Raised whenever what a summary says changes between two versions of the package."""
LIVE_SECONDS = 30.0
"""A running job writes every few seconds; it is judged again no more often than this."""
_MOST_REMEMBERED = 5000


class CachedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary, with what it was made of and when, in Unix seconds."""

    made_by: str
    url: str
    made: float
    summary: JobSummary


def cached_summary(url: str, job: str, written: float, now: float) -> JobSummary | None:
    """Return the summary of a job if there is one that still holds.

    Args:
        written: when something of the job was last written. now: Unix seconds.
    """
    kept = _remembered().get((url, job))
    if kept is None or not _holds(kept, written, now):
        kept = _read(url, job)
        if kept is None or not _holds(kept, written, now):
            return None
        _remember(url, kept)
    return kept.summary


def make(url: str, job: str, written: float, now: float) -> JobSummary:
    """Judge a job, and keep its summary. Never fails: a job that cannot be read has a summary that says so."""
    try:
        records = read_part(Store(url), job, part=sources.PART)
        summary = summarise(records, now=now, written=written, prices=shipped_prices())
    except TachoscopeError as error:
        summary = unreadable(job, written, str(error))
    kept = CachedSummary(made_by=_maker(), url=url, made=now, summary=summary)
    _remember(url, kept)
    _write(url, kept)
    return summary


def summaries(
    url: str,
    jobs: Sequence[str],
    times: Mapping[str, float],
    *,
    most: int,
    seconds: float,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, JobSummary]:
    """Return the summaries of jobs, in this order: those that are known, and of the others as many as the bounds allow.

    Args:
        times: when something of each job was last written. most: of the first so many jobs none is left out but for want of time.
        seconds: after so long no further one is judged.
        on_progress: is told how many were judged, of how many.
    """
    found = {job: cached_summary(url, job, times[job], time.time()) for job in jobs}
    missing = [job for job in jobs[:most] if found[job] is None]
    began = time.monotonic()
    for number, job in enumerate(missing):
        if time.monotonic() - began > seconds:
            break
        on_progress(number, len(missing))
        found[job] = make(url, job, times[job], time.time())
    return {job: summary for job, summary in found.items() if summary is not None}


def _holds(kept: CachedSummary, written: float, now: float) -> bool:
    if kept.made_by != _maker():
        return False
    fresh = kept.summary.status == "running" and 0 <= now - kept.made < LIVE_SECONDS
    return kept.summary.written == written or fresh


def _maker() -> str:
    try:
        return f"{version('tachoscope')}/{FORM}"
    except PackageNotFoundError:
        return f"0/{FORM}"


@st.cache_resource(show_spinner=False)
def _remembered() -> dict[tuple[str, str], CachedSummary]:
    """Return what this process knows: for a home that cannot be written, and so that looks do not go to the disk."""
    return {}


def _remember(url: str, kept: CachedSummary) -> None:
    memory = _remembered()
    for oldest in list(memory)[: len(memory) + 1 - _MOST_REMEMBERED] if len(memory) >= _MOST_REMEMBERED else ():
        memory.pop(oldest, None)
    memory[url, kept.summary.job] = kept


def cache_file(url: str, job: str) -> Path:
    """Return the file in which a job's summary is kept. Names are foreign, so only what they hash to is in its path."""
    store, name = (hashlib.sha256(text.encode()).hexdigest()[:32] for text in (url, job))
    return cache_dir.folder("summaries") / store / f"{name}.json"


def _read(url: str, job: str) -> CachedSummary | None:
    with suppress(OSError, ValueError):  # ValueError: no summary, or not one of this version
        kept = msgspec.json.decode(cache_file(url, job).read_bytes(), type=CachedSummary)
        if kept.url == url and kept.summary.job == job:
            return kept
    return None


def _write(url: str, kept: CachedSummary) -> None:
    """Write a summary; it appears whole or not at all. A disk that cannot be written costs time at the next start, no more."""
    path = cache_file(url, kept.summary.job)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".partial", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(kept))
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise

"""What the page of inference reads: which jobs of a store are services, and what a window of one comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import streamlit as st

from tachoscope_alerts.measure.from_totals import of_service
from tachoscope_analyzers.records.load import JobRecords, from_store, serving_job
from tachoscope_analyzers.serving.capacity import capacity as capacity_module
from tachoscope_analyzers.serving.capacity import engine_model
from tachoscope_analyzers.serving.capacity.capacity import Capacity
from tachoscope_analyzers.serving.capacity.objectives import Objective
from tachoscope_analyzers.serving.classes.states import spent
from tachoscope_analyzers.serving.records import request_phases as phases
from tachoscope_analyzers.serving.records.from_records import Side, last_seconds
from tachoscope_analyzers.serving.records.processes import requests_of
from tachoscope_analyzers.serving.records.request_phases import BySlowness
from tachoscope_analyzers.serving.records.traffic import Traffic, Vector, traffic
from tachoscope_analyzers.serving.report import from_service as service
from tachoscope_analyzers.serving.report.report import analyze_traffic
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.serving import OUTCOMES
from tachoscope_core.records.records import RequestDone
from tachoscope_core.report.report import Report, Source
from tachoscope_core.servers import recording as serving_recording
from tachoscope_core.storage.store import Store
from tachoscope_explorer.page.settings import Settings
from tachoscope_explorer.sources import cache as sources

RECENT_SECONDS = 3600.0
"""Of a service that runs for weeks the last hour is looked at, unless the address says another window."""
MOST_SLOW = 100
_MOST_UNKNOWN = 5
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ServiceWindow:
    """A window of a service.

    Attributes:
        states: seconds of requests by ledger state in each of the traffic's intervals; empty where nobody says them.
        side: who saw it. requests: how many ended. slow: those that took longest, the slowest first; none where only the server
            was looked at. unknown: how many ended in ways that this version has no word for.
    """

    report: Report
    traffic: Traffic
    states: dict[str, Vector]
    side: Side | Literal["looks"]
    requests: int
    by_slowness: BySlowness | None
    slow: tuple[RequestDone, ...]
    unknown: dict[str, int]


@st.cache_data(max_entries=4096, show_spinner="Looking which jobs are services …")
def _is_service(url: str, job: str, at: float) -> bool:  # noqa: ARG001  # `at` makes what is kept outdated
    return serving_job(from_store(Store(url), job, ends_only=True))


def services(settings: Settings) -> list[str]:
    """Return the names of the jobs that are services, the one that wrote last first."""
    url = settings.store_url
    times = sources.job_times(url)
    return [job for job in sorted(times, key=lambda name: -times[name]) if _is_service(url, job, times[job])]


def recordings(settings: Settings) -> dict[str, Path]:
    """Return the recordings of servers' metrics that were named on the command line, by their names."""
    files = [Path(text) for text in settings.traces if text.endswith(serving_recording.SUFFIX)]
    return {path.name: path for path in files if serving_recording.is_recording(path)}


def models(settings: Settings, job: str) -> list[str]:
    """Return the names of the models that a service reports."""
    found = sources.records(settings.store_url, job)
    return sorted(({row.model for row in found.requests} | {row.model for row in found.engine_windows}) - {""})


def _window(found: JobRecords, model: str, span: Span | None) -> JobRecords:
    if model:
        found = service.of_model(found, model)
    return service.between(found, *span) if span is not None else last_seconds(found, RECENT_SECONDS)


@st.cache_resource(max_entries=8, show_spinner="Going through the requests …")
def _seen(url: str, job: str, model: str, span: Span | None, at: float) -> ServiceWindow:  # noqa: ARG001
    found = _window(sources.records(url, job), model, span)
    traffic, side = service.observed_traffic(found)
    rows = requests_of(found, side)
    return ServiceWindow(
        report=service.judged(found, traffic, side, objectives=of_service(job, traffic.models, traffic.totals, traffic.outcomes)),
        traffic=traffic,
        states=traffic.request_states,
        side=side,
        requests=len(rows),
        by_slowness=phases.by_slowness(rows),
        slow=tuple(phases.slowest(rows, MOST_SLOW)),
        unknown=dict(Counter(row.outcome for row in rows if row.outcome not in OUTCOMES).most_common(_MOST_UNKNOWN)),
    )


@st.cache_resource(max_entries=2, show_spinner="Reading the recording …")
def _looks(path: str, at: float) -> Traffic:  # noqa: ARG001
    try:
        return traffic(serving_recording.read(Path(path)))
    except ValueError:
        raise TachoscopeError(f"{path} does not hold two answered readings of a server", fix=engine_model.RECORD) from None


def recorded(path: Path) -> ServiceWindow:
    """Return what a recording of a server's metrics comes to.

    Raises:
        TachoscopeError: it cannot be read, or nothing happened in it.
    """
    found = _looks(str(path), path.stat().st_mtime)
    source = Source(path=path.name, records=len(found.seconds) + 1, unit="looks")
    name = path.name.removesuffix(serving_recording.SUFFIX)
    objectives = of_service(name, found.models, found.totals, found.outcomes)
    report = analyze_traffic(found, job=name, sources=[source], objectives=objectives)
    return ServiceWindow(report, found, spent(found).requests, "looks", report.window.steps, None, (), {})


def service_window(settings: Settings, job: str, model: str, span: Span | None) -> ServiceWindow:
    """Return what a window of a service comes to: of one model, or of all; `span` in Unix seconds, None: the last hour.

    Raises:
        TachoscopeError: the store has no such job, or it was asked for nothing in that time.
    """
    return _seen(settings.store_url, job, model, span, sources.written(settings.store_url, job))


@st.cache_resource(max_entries=4, show_spinner="Replaying the traffic at other rates …")
def _capacity(url: str, job: str, model: str, span: Span | None, asked: tuple[Objective, ...], at: float) -> Capacity:  # noqa: ARG001
    found = _window(sources.records(url, job), model, span)
    rows = [row for row in found.requests if row.side == "server"] or found.requests
    return capacity_module.capacity(engine_model.of_records(rows, found.engine_windows), asked)


def capacity(settings: Settings, job: str, model: str, span: Span | None, asked: tuple[Objective, ...]) -> Capacity:
    """Return how much traffic a service takes within objectives.

    Raises:
        NotMeasuredError: what was recorded cannot tell.
    """
    return _capacity(settings.store_url, job, model, span, asked, sources.written(settings.store_url, job))


@st.cache_resource(max_entries=4, show_spinner="Replaying the traffic at other rates …")
def _capacity_of_looks(path: str, asked: tuple[Objective, ...], at: float) -> Capacity:
    return capacity_module.capacity(engine_model.of_traffic(_looks(path, at)), asked)


def capacity_recorded(path: Path, asked: tuple[Objective, ...]) -> Capacity:
    """Return how much traffic a server takes within objectives, by a recording of its metrics.

    Raises:
        NotMeasuredError: the recording cannot tell.
    """
    return _capacity_of_looks(str(path), asked, path.stat().st_mtime)

"""A service judged by its own records: those of its servers, or, where only its clients left any, those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.serving.records.from_records import Side, traffic_of
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_analyzers.serving.report.report import CLASSES, analyze_traffic
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import NotMeasured, QualityNote, Report
from tachoscope_core.report.serving import ObjectiveResult

SIDES: tuple[Side, ...] = ("server", "client")


def observed_traffic(job: JobRecords) -> tuple[Traffic, Side]:
    """Return the traffic of a service, and who saw it.

    Raises:
        TachoscopeError: it was asked for nothing.
    """
    for side in SIDES:
        try:
            return traffic_of(job, side), side
        except ValueError:
            continue
    raise TachoscopeError(f"service {job.job} received no requests", fix="repeat once it has served requests")


def analyze_service(job: JobRecords, *, peak_bytes_per_second: float = 0.0) -> Report:
    """Judge a service by all of its records that are given.

    Args:
        peak_bytes_per_second: of the memory of one of its devices; 0: not known.

    Raises:
        TachoscopeError: nothing happened.
    """
    return judged(job, *observed_traffic(job), peak_bytes_per_second=peak_bytes_per_second)


def judged(
    job: JobRecords,
    traffic: Traffic,
    side: Side,
    *,
    peak_bytes_per_second: float = 0.0,
    objectives: Sequence[ObjectiveResult] = (),
) -> Report:
    """Return the report of `analyze_service` on the traffic that `observed_traffic` returned.

    Raises:
        TachoscopeError: nothing happened.
    """
    report = analyze_traffic(
        traffic, job=job.job, sources=[job.source], peak_bytes_per_second=peak_bytes_per_second, objectives=objectives
    )
    return report if side == "server" else _of_clients(report)


def between(job: JobRecords, start: float, end: float) -> JobRecords:
    """Return the job with only the requests and engine windows that ended after `start` and up to `end`, Unix seconds."""
    return replace(
        job,
        requests=[row for row in job.requests if start < row.time <= end],
        engine_windows=[row for row in job.engine_windows if start < row.time <= end],
    )


def of_model(job: JobRecords, model: str) -> JobRecords:
    """Return the job with only the requests and engine windows of one model."""
    return replace(
        job,
        requests=[row for row in job.requests if row.model == model],
        engine_windows=[row for row in job.engine_windows if row.model == model],
    )


def _of_clients(report: Report) -> Report:
    """Return the report without what clients cannot know: the server's states and causes."""
    note = QualityNote(
        what="only clients left records",
        severity="bad",
        means="latencies and outcomes are as they saw them; what the server did is not known (its records come once it ends, "
        "or by the node's agent as it runs)",
    )
    missing = [NotMeasured(class_=slug, missing="records of the server") for slug in CLASSES]
    return msgspec.structs.replace(report, goodput=None, findings=[], not_measured=missing, quality=[note, *report.quality])

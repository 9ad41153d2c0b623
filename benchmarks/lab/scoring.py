"""Compares the analysis of a run of the lab with what was injected into it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.lab.rows_of_runs import Fault, Named, Row

from tachoscope_analyzers.findings.calibration import NOT_CALIBRATED, Calibration
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_analyzers.serving.records.from_records import traffic_of
from tachoscope_analyzers.serving.report.report import analyze_traffic
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import Record
from tachoscope_core.report.report import Finding, Report
from tachoscope_core.report.taxonomy import HEALTHY
from tachoscope_core.storage.store import Store

SCHEMA = 1
_OF_A_LIFE = ("hang", "lost_work")
"""Progress is decided on first: a job that stands still, or does again what it lost, has no other cause to look for."""
_STANDING_STILL = ("input_workers", "input_fetch", "host_pause")
_STAND_IN_ERROR = 0.2
"""In workloads of three and four ranks a sleep stands for an accelerator. On a CPU job standing still is a loss, and rightly found:
a finding of such a class that takes as long as the sleep, within this ratio, is of the workload and not counted."""
_PREFIXES = (6, 8, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448, 640)
"""Steps after which a run is judged to see when its fault is found: each 1.4 times as long as the one before."""


def runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder of the lab, sorted by id: those with a truth."""
    return sorted(path.parent for path in folder.glob("*/truth.json"))


def read_truth(run: Path) -> Row:
    """Return a run's row as yet without a verdict.

    Raises:
        TachoscopeError: its truth cannot be read, or is of another schema.
    """
    path = run / "truth.json"
    try:
        told: dict[str, Any] = json.loads(path.read_bytes())
        if told["schema"] != SCHEMA:
            raise TachoscopeError(f"{path} is of schema {told['schema']}, this version reads {SCHEMA}")
        return Row(
            id=told["id"],
            set=told["set"],
            kind=told["kind"],
            lookalike=told["lookalike"],
            workload=told["workload"],
            severity=float(told["severity"]),
            faults=tuple(
                Fault(one["class"], one["ranks"], float(one["seconds_per_step"]), int(one.get("first_step") or 0))
                for one in told["faults"]
            ),
            acceptable=tuple(told.get("acceptable", ())),
            world_size=int(told["world_size"]),
            steps=int(told["steps"]),
            clean_step_seconds=float(told["clean_step_seconds"]),
            skipped=told.get("skipped", ""),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TachoscopeError(f"could not read {path}: {type(error).__name__}: {error}") from None


def score(run: Path, calibration: Calibration) -> Row:
    """Judge a run, and return its row. What the analysis refuses to judge has the reason in `error`.

    Raises:
        TachoscopeError: its truth cannot be read.
    """
    row = read_truth(run)
    if row.skipped:
        return row
    try:
        job, stand_in = _job(run), _stand_in_seconds(run)
        told, plain = (_without(stand_in, _reports(job, one)) for one in (calibration, NOT_CALIBRATED))
    except TachoscopeError as error:
        return replace(row, error=str(error).replace(str(run), run.name))
    row = replace(
        row,
        steps=told[-1].window.steps,
        named=_named(_warnings(told), _warnings(plain)),
        small=_named(_small(told), _small(plain)),
        not_measured=tuple(one.class_ for one in told[-1].not_measured),
    )
    return replace(row, steps_to_detect=steps_to_detect(job, row, calibration, stand_in))


def _job(run: Path) -> JobRecords:
    store = Store(str(run / "store"))
    jobs = store.jobs()
    if len(jobs) != 1:
        raise TachoscopeError(f"the store of run {run.name} holds {len(jobs)} jobs, and not one: {', '.join(jobs) or 'none'}")
    return from_store(store, jobs[0])


def _reports(job: JobRecords, calibration: Calibration) -> list[Report]:
    """Return the reports that tell a user what is wrong with a job, the one that is believed first."""
    if job.services or job.requests:
        return [analyze_traffic(traffic_of(job), job=job.job, sources=[job.source])]
    last = max(record.time for record in (*job.starts, *job.steps, *job.heartbeats, *job.ends))
    life = analyze_life(job, now=last) if job.starts else None
    own = analyze(job, calibration)
    if life is None:
        return [own]
    of_life = [one for one in life.findings if one.class_ in _OF_A_LIFE]
    told = {one.class_ for one in of_life}
    return [_only(life, of_life), _only(own, [one for one in own.findings if one.class_ not in told])]


def _stand_in_seconds(run: Path) -> float:
    """Return how long each step of a run sleeps in place of an accelerator."""
    return float(json.loads((run / "truth.json").read_bytes()).get("shape", {}).get("device_seconds", 0.0))


def _without(stand_in: float, reports: Sequence[Report]) -> list[Report]:
    """Return reports without the finding that the workload's own sleep is."""

    def is_of_workload(one: Finding) -> bool:
        return one.class_ in _STANDING_STILL and abs(one.seconds_per_step - stand_in) <= _STAND_IN_ERROR * stand_in

    return [_only(report, [one for one in report.findings if not is_of_workload(one)]) for report in reports]


def _only(report: Report, findings: list[Finding]) -> Report:
    return msgspec.structs.replace(report, findings=findings)


def _warnings(reports: Sequence[Report]) -> list[Finding]:
    return [finding for report in reports for finding in report.findings if finding.severity != "info"]


def _small(reports: Sequence[Report]) -> list[Finding]:
    """Return the losses that are told as information."""
    every = (finding for report in reports for finding in report.findings)
    return [finding for finding in every if finding.severity == "info" and finding.class_ not in HEALTHY]


def _named(told: Sequence[Finding], plain: Sequence[Finding]) -> tuple[Named, ...]:
    """Return findings with what each was before calibration, which changes neither their number nor their order."""
    return tuple(
        Named(
            slug=one.class_,
            ranks=one.ranks,
            seconds=one.seconds_per_step,
            share=one.share,
            severity=one.severity,
            confidence=one.confidence,
            score=before.confidence,
            suspected=before.class_,
            runner_up=one.runner_up.class_ if one.runner_up else "",
            margin=one.runner_up.margin if one.runner_up else 0.0,
        )
        for one, before in zip(told, plain, strict=True)
    )


def steps_to_detect(job: JobRecords, row: Row, calibration: Calibration, stand_in: float = 0.0) -> int | None:
    """Return after how many steps of its fault the right class is the first finding, and stays it to the end of the run.

    None where it is not the first in the end, for several faults, and for what only the whole life of a job can tell.
    """
    if len(row.faults) != 1 or not row.right or row.named[0].slug in _OF_A_LIFE or not job.steps:
        return None
    first_step, detected = row.faults[0].first_step, None
    for steps in reversed([length for length in _PREFIXES if length + first_step < max(step.step for step in job.steps)]):
        found = _first_after(job, first_step + steps, calibration, stand_in)
        if found != row.truth and found not in row.acceptable:
            break
        detected = steps
    return detected or max(step.step for step in job.steps) - first_step


def _first_after(job: JobRecords, steps: int, calibration: Calibration, stand_in: float) -> str:
    try:
        found = _warnings(_without(stand_in, [analyze(begin(job, steps), calibration)]))
    except TachoscopeError:
        return ""
    return found[0].class_ if found else ""


def begin(job: JobRecords, steps: int) -> JobRecords:
    """Return what was recorded of a job when its ranks had done that many steps."""
    until = max((step.time for step in job.steps if step.step <= steps), default=0.0)
    lists: Iterator[tuple[str, list[Any]]] = ((one.name, getattr(job, one.name)) for one in fields(job))
    cut = {
        name: [record for record in rows if record.time <= until]
        for name, rows in lists
        if isinstance(rows, list) and rows and isinstance(rows[0], Record)
    }
    beats = job.heartbeats.take(job.heartbeats.column("time") <= until)
    return replace(job, **cut | {"steps": job.steps.take(job.steps.column("step") <= steps), "heartbeats": beats})

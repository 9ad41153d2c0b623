"""One look at one job: from what it recorded in the last minutes to what is told of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from tachoscope.supervisor.job_watch import WatchedProcess
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records import load
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.hang_rule import least_seconds
from tachoscope_core.records.records import MalformedRecordError, StepDone, UnknownKindError, decode
from tachoscope_core.report.report import Report
from tachoscope_core.storage.recent_segments import recent_segments
from tachoscope_core.storage.store import BrokenObjectError, Store
from tachoscope_watch.hang import finding, hang, processes
from tachoscope_watch.profile_view import latest
from tachoscope_watch.view import Checkpoint, JobView, Worker

LEAST_SECONDS, MOST_SECONDS = 120.0, 1800.0
_STEPS = 40
"""So many steps are looked at where they fit into `MOST_SECONDS`."""
_MOST_CHECKPOINTS = 64
_MOST_ATTEMPTS = 100
REPORT_NAME = "watch"


def judge_job(store: Store, job: str, now: float, over: float = LEAST_SECONDS) -> JobView | None:
    """Judge what a job recorded lately, and keep the report in the store; None: it recorded nothing.

    Args:
        now: Unix seconds. over: seconds before it that are judged, where enough steps fit into them.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    records = _recent(store, job, now, over)
    if records is None:
        return None
    everybody = processes(records)
    report, reason = _judged(records)
    stands = hang(records, everybody, now)
    if stands is not None and report is not None:
        report = msgspec.structs.replace(report, findings=[finding(stands), *report.findings])
    unwritten = _write(store, job, report)
    newest = max((start.attempt for start in records.starts), default=-1)
    owner = store.owner(job)
    return JobView(
        job=job,
        namespace=owner.namespace if owner is not None else "",
        looked=now,
        state="hung" if stands is not None else load.status(records, now=now),
        attempts=list(range(max(newest - _MOST_ATTEMPTS + 1, 0), newest + 1)),
        world_size=max((start.world_size for start in records.starts), default=0),
        workers=_workers(everybody, {start.writer: start.host for start in records.starts}),
        checkpoints=_checkpoints(records),
        profiles=latest(store, job, now),
        report=report,
        reason=reason,
        unwritten=unwritten,
    )


def check_hang(store: Store, job: str, now: float, over: float = LEAST_SECONDS, *, hung: bool) -> JobView | None:
    """Look whether a job began to hang since it was looked at, or hangs no more, and only then at all of it; None: neither.

    Args:
        hung: it hung when it was looked at last.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    if not hung and _steps_lately(store, job, now):
        return None
    records = _recent(store, job, now, over)
    if records is None or (hang(records, processes(records), now) is not None) == hung:
        return None
    return judge_job(store, job, now, over)


def _steps_lately(store: Store, job: str, now: float) -> bool:
    """Return whether a rank finished a step so lately that nothing can be a hang yet: one object tells that of most jobs."""
    since = now - least_seconds()
    newest = {one.writer: one for one in sorted(recent_segments(store, job, since=since, until=now), key=lambda one: one.offset)}
    for segment in newest.values():
        with contextlib.suppress(MalformedRecordError, UnknownKindError, BrokenObjectError):
            before, mark, after = store.read(segment).rpartition(b'"StepDone"')
            step = decode(before.rpartition(b"\n")[2] + mark + after.partition(b"\n")[0]) if mark else None
            if isinstance(step, StepDone) and step.time >= since:
                return True
    return False


def _recent(store: Store, job: str, now: float, over: float) -> JobRecords | None:
    records = load.recent_from_store(store, job, since=now - over, until=now)
    if records is None:
        return None
    # A training without a step is looked at as far back as ever: a hang is told by how long ago the last one was.
    none = 0.0 if load.serving_job(records) else MOST_SECONDS
    wanted = _STEPS * median([step.wall_seconds for step in records.steps] or [none])
    if wanted > over:
        return load.recent_from_store(store, job, since=now - min(wanted, MOST_SECONDS), until=now) or records
    return records


def _write(store: Store, job: str, report: Report | None) -> str:
    """Keep a report in the store; return why it could not be: who only looks is told all the same."""
    try:
        if report is not None:
            store.write_report(job, REPORT_NAME, msgspec.json.encode(report))
    except TachoscopeError as error:
        return str(error)
    return ""


def _judged(records: JobRecords) -> tuple[Report | None, str]:
    if load.serving_job(records):
        return None, "it serves requests: tachoscope serving looks at those"
    try:
        return analyze(records), ""
    except TachoscopeError as error:
        return None, str(error)


def _workers(everybody: Sequence[WatchedProcess], hosts: Mapping[str, str]) -> list[Worker]:
    return [
        Worker(
            rank=process.rank,
            host=hosts.get(process.writer, ""),
            pid=process.pid,
            heartbeat=process.record_at,
            step=process.step,
            phase=process.phase,
            ended=process.ended,
        )
        for process in everybody
    ]


def _checkpoints(records: JobRecords) -> list[Checkpoint]:
    newest = sorted(records.checkpoints, key=lambda row: row.time)[-_MOST_CHECKPOINTS:]
    return [
        Checkpoint(
            rank=row.rank,
            step=row.step,
            time=row.time,
            bytes=row.bytes,
            blocking_seconds=row.blocking_seconds,
            reference=row.reference,
        )
        for row in newest
    ]

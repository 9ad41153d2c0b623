"""One look at one job: from what its nodes say of it now, and what it recorded in the last minutes, to what is told of it."""

from __future__ import annotations

from statistics import median

import msgspec

from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records import load
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.window import within
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import JobEnded, StepDone
from tachoscope_core.report.report import Report
from tachoscope_core.storage.store import Store
from tachoscope_watch.hang import finding, hang_of
from tachoscope_watch.live_jobs import LiveJob
from tachoscope_watch.profile_view import latest
from tachoscope_watch.view import Checkpoint, JobView, Worker

LEAST_SECONDS, MOST_SECONDS = 120.0, 1800.0
_STEPS = 40
"""So many steps are looked at where they fit into `MOST_SECONDS`."""
_ENDED = frozenset({"completed", "failed"})
_MOST_CHECKPOINTS = 64
_MOST_ATTEMPTS = 100
REPORT_NAME = "watch"


def judge_job(store: Store, job: str, now: float, over: float = LEAST_SECONDS, live: LiveJob | None = None) -> JobView | None:
    """Judge what a job recorded lately, and keep the report in the store; None: it recorded nothing, and no node knows it.

    Args:
        now: Unix seconds. over: seconds up to its newest step that are judged, where enough steps fit into them.
        live: what its nodes say of it; None: nothing.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    late = live.flush_seconds if live is not None else 0.0
    records = _recent(store, job, now, over, late)
    if records is None and (live is None or live.state in _ENDED):
        return None
    report, reason = _judged(records) if records is not None else (None, f"nothing was recorded in the last {over + late:g} s")
    hang = finding(stands) if live is not None and (stands := hang_of(live)) is not None else None
    if hang is not None and report is not None:
        report = msgspec.structs.replace(report, findings=[hang, *report.findings])
    owner = store.owner(job)
    starts = records.starts if records is not None else []
    newest = max((start.attempt for start in starts), default=-1)
    return JobView(
        job=job,
        namespace=owner.namespace if owner is not None else "",
        looked=now,
        state="hung" if hang is not None else _state(records, live, now),
        attempts=_attempts(newest if live is None else max(newest, live.attempt)),
        world_size=live.world_size if live is not None else max((start.world_size for start in starts), default=0),
        workers=_live_workers(live) if live is not None else _recorded_workers(records) if records is not None else [],
        state_seconds=live.state_seconds if live is not None else {},
        hang=hang,
        checkpoints=_checkpoints(records) if records is not None else [],
        profiles=latest(store, job, now),
        report=report,
        reason=reason,
        unwritten=_write(store, job, report),
    )


def _recent(store: Store, job: str, now: float, over: float, late: float) -> JobRecords | None:
    """Return what a job recorded in the `over` seconds up to its newest step, or in more of them for `_STEPS` steps.

    Args:
        late: seconds that records may take into the store.
    """
    records = load.recent_from_store(store, job, since=now - late - over, until=now)
    if records is None:
        return None
    # A training without a step is looked at as far back as ever.
    none = 0.0 if load.serving_job(records) else MOST_SECONDS
    wanted = min(_STEPS * median([step.wall_seconds for step in records.steps] or [none]), MOST_SECONDS)
    if wanted > over:
        records = load.recent_from_store(store, job, since=now - late - wanted, until=now) or records
    if not late or not records.steps:
        return records
    last = max(records.steps, key=lambda step: step.time)
    return within(records, last.time - max(over, wanted, last.wall_seconds), now + late)


def _state(records: JobRecords | None, live: LiveJob | None, now: float) -> str:
    """Return how a job stands: running, if its nodes say so; how it ended, the launcher's records know better."""
    recorded = load.status(records, now=now) if records is not None else ""
    if live is None:
        return recorded
    return recorded if live.state in _ENDED and recorded in _ENDED else live.state


def _attempts(newest: int) -> list[int]:
    return list(range(max(newest - _MOST_ATTEMPTS + 1, 0), newest + 1))


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


def _live_workers(live: LiveJob) -> list[Worker]:
    return [
        Worker(
            rank=rank.status.rank,
            host=rank.node,
            pid=rank.status.pid,
            heartbeat=rank.status.record_time,
            step=rank.status.step,
            phase=rank.status.phase,
            ended=rank.status.ended,
        )
        for rank in live.ranks
    ]


def _recorded_workers(records: JobRecords) -> list[Worker]:
    """Return the workers of a job that no node tells of: it ended, or its agents are older."""
    starts = [start for start in records.starts if start.rank >= 0]
    newest = max((start.attempt for start in starts), default=0)
    found = {start.writer: start for start in starts if start.attempt == newest}
    heartbeats, steps, ends = dict.fromkeys(found, 0.0), dict.fromkeys(found, 0), dict.fromkeys(found, "")
    for row in (*records.starts, *records.steps, *records.heartbeats, *records.ends):
        if row.writer in found:
            heartbeats[row.writer] = max(row.time, heartbeats[row.writer])
            if isinstance(row, StepDone):
                steps[row.writer] = max(row.step, steps[row.writer])
            elif isinstance(row, JobEnded):
                ends[row.writer] = row.status
    return [
        Worker(
            rank=start.rank, host=start.host, pid=start.pid, heartbeat=heartbeats[writer], step=steps[writer], ended=ends[writer]
        )
        for writer, start in sorted(found.items(), key=lambda pair: pair[1].rank)
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

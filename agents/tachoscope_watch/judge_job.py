"""One look at one job: makes its view from the status of its nodes and from its records of the last minutes."""

from __future__ import annotations

import hashlib
from statistics import median

import msgspec

from tachoscope_analyzers.failures.report import failures_in_store
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records import load
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_analyzers.records.window import within
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import JobEnded
from tachoscope_core.report.failures import Failure
from tachoscope_core.report.report import Report
from tachoscope_core.storage.recent_segments import RecentSegments, recent_segments
from tachoscope_core.storage.store import Store
from tachoscope_watch.hang import Hang, finding, hang_of
from tachoscope_watch.live_jobs import LiveJob
from tachoscope_watch.profile_view import latest
from tachoscope_watch.view import Checkpoint, JobView, Worker

LEAST_SECONDS, MOST_SECONDS = 120.0, 1800.0
_STEPS = 40
"""So many steps are looked at where they fit into `MOST_SECONDS`."""
_LATER = 1.5
"""So many times the interval of shipping records are waited for: writing them takes its time, too."""
_ENDED = frozenset({"completed", "failed"})
_MOST_CHECKPOINTS = 64
_MOST_ATTEMPTS = 100
REPORT_NAME = "watch"
_NO_TIME = "the watch had no time to judge it yet"


class Look(msgspec.Struct, frozen=True):
    """What was seen of a job.

    Attributes:
        objects: identifies the objects of records that were read.
        unchanged: they are those of the look before. The view then holds only what nodes say: what follows from records is as it
            was.
    """

    view: JobView
    objects: str
    unchanged: bool = False


def judge_job(
    store: Store,
    job: str,
    now: float,
    over: float = LEAST_SECONDS,
    live: LiveJob | None = None,
    before: str = "",
    *,
    settled: bool = False,
    put_off: int = 0,
) -> Look | None:
    """Judge what a job recorded lately, and keep the report in the store; None: it recorded nothing, and no node knows it.

    Args:
        now: Unix seconds. over: seconds up to its newest step that are judged, where enough steps fit into them.
        live: what its nodes say of it; None: nothing. before: `objects` of the look before; empty: all is to be judged.
        settled: the report of the look before is good enough while the job runs and does not hang.
        put_off: the number of consecutive cycles without time to judge this job, which runs and does not hang; 0: judge it now.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    stands = hang_of(live) if live is not None else None
    if live is not None and stands is None and live.state not in _ENDED:
        if settled and before:
            return Look(_live_view(store, live, now), before, unchanged=True)
        if put_off:
            view = msgspec.structs.replace(_live_view(store, live, now), put_off=put_off, reason="" if before else _NO_TIME)
            return Look(view, before, unchanged=bool(before))
    late = _LATER * live.flush_seconds if live is not None else 0.0
    segments = _segments(store, job, now, over, late)
    if not segments.recent and (live is None or live.state in _ENDED):
        return None
    objects = _names(segments)
    if live is not None and objects == before and stands is None and live.state not in _ENDED:
        return Look(_live_view(store, live, now), objects, unchanged=True)
    if not segments.recent and live is not None:
        view = msgspec.structs.replace(_live_view(store, live, now), reason=f"nothing was recorded in the last {over + late:g} s")
    else:
        view = _with_records(store, _recent(store, job, segments, now, over, late), live, now)
    if live is not None and stands is not None:
        view = _with_hang(view, stands, live.time - stands.seconds)
    return Look(msgspec.structs.replace(view, unwritten=_write(store, job, view.report)), objects)


def unjudged(live: LiveJob, now: float) -> JobView:
    """Return the view of a job of which only is known what its nodes say."""
    view = JobView(job=live.job, looked=now, state=live.state, attempts=_attempts(live.attempt), world_size=0, workers=[])
    return with_nodes(msgspec.structs.replace(view, namespace=live.namespace, reason=_NO_TIME), live, now)


def with_nodes(view: JobView, live: LiveJob, now: float) -> JobView:
    """Return a view with what the nodes of its job say now. Its end, or that it goes on after it, is left to the next look."""
    view = msgspec.structs.replace(
        view, looked=now, world_size=live.world_size, workers=_live_workers(live), state_seconds=live.state_seconds
    )
    if {view.state, live.state} & _ENDED:
        return view
    report = view.report
    if view.hang is not None and report is not None and report.findings[:1] == [view.hang]:
        report = msgspec.structs.replace(report, findings=report.findings[1:])
    view = msgspec.structs.replace(view, state=live.state, hang=None, hang_since=0.0, report=report)
    stands = hang_of(live)
    return _with_hang(view, stands, live.time - stands.seconds) if stands is not None else view


def is_running(live: LiveJob) -> bool:
    """Return whether a job has not ended, as far as its nodes tell."""
    return live.state not in _ENDED


def _live_view(store: Store, live: LiveJob, now: float) -> JobView:
    """Return what the nodes say of a job that runs and does not hang."""
    return JobView(
        job=live.job,
        namespace=live.namespace,
        looked=now,
        state=live.state,
        attempts=_attempts(live.attempt),
        world_size=live.world_size,
        workers=_live_workers(live),
        state_seconds=live.state_seconds,
        profiles=latest(store, live.job, now),
    )


def _with_records(store: Store, records: JobRecords, live: LiveJob | None, now: float) -> JobView:
    """Return what a job's records show, and what its nodes say, where they do."""
    newest = max((start.attempt for start in records.starts), default=-1)
    view = _live_view(store, live, now) if live is not None else _recorded_view(store, records, newest, now)
    report, reason = _judged(records)
    recorded = load.status(records, now=now)
    state = recorded if view.state in _ENDED and recorded in _ENDED else view.state
    return msgspec.structs.replace(
        view,
        state=state,
        failure=_failure(store, records.job) if state == "failed" else None,
        attempts=_attempts(max([newest, *view.attempts[-1:]])),
        checkpoints=_checkpoints(records),
        report=report,
        judged=now if report is not None else 0.0,
        reason=reason,
    )


def _failure(store: Store, job: str) -> Failure | None:
    """Return the first failure of the last attempt that failed; None: it is not known."""
    return next(reversed(failures_in_store(store, job)), None)


def _recorded_view(store: Store, records: JobRecords, newest: int, now: float) -> JobView:
    """Return what the records of a job say that no node knows."""
    return JobView(
        job=records.job,
        namespace=_namespace(store, records.job),
        looked=now,
        state=load.status(records, now=now),
        attempts=_attempts(newest),
        world_size=max((start.world_size for start in records.starts), default=0),
        workers=_recorded_workers(records),
        profiles=latest(store, records.job, now),
    )


def _with_hang(view: JobView, stands: Hang, since: float) -> JobView:
    found = finding(stands, view.job)
    report = view.report
    if report is not None:
        report = msgspec.structs.replace(report, findings=[found, *report.findings])
    return msgspec.structs.replace(view, state="hung", hang=found, hang_since=since, report=report)


def _namespace(store: Store, job: str) -> str:
    owner = store.owner(job)
    return owner.namespace if owner is not None else ""


def _names(segments: RecentSegments) -> str:
    return hashlib.sha256("\n".join(segment.path for segment in segments.recent).encode()).hexdigest()


def _segments(store: Store, job: str, now: float, over: float, late: float) -> RecentSegments:
    """Return the objects with the records of the last `over` seconds that all ranks recorded; `late`: how late they may come."""
    return recent_segments(store, job, since=now - late - over, until=now, over=over)


def _recent(store: Store, job: str, segments: RecentSegments, now: float, over: float, late: float) -> JobRecords:
    """Return what a job recorded in the `over` seconds up to the newest step of all ranks, or in more for `_STEPS` steps."""
    records = load.of_segments(store, job, segments, since=now - late - over)
    # A training without a step is looked at as far back as ever.
    none = 0.0 if load.serving_job(records) else MOST_SECONDS
    wanted = min(_STEPS * median(records.steps.column("wall_seconds").tolist() or [none]), MOST_SECONDS)
    if wanted > over:
        segments = _segments(store, job, now, wanted, late)
        records = load.of_segments(store, job, segments, since=now - late - wanted)
    if not records.steps:
        return records
    end = _end(records.steps, late + load.CLOCKS_AGREE_SECONDS)
    longest = float(records.steps.column("wall_seconds").max())
    return within(records, end - max(over, wanted, longest), end)


def _end(steps: StepTable, late: float) -> float:
    """Return until when all ranks of the newest attempt recorded steps, without those more than `late` seconds behind."""
    last = steps.in_attempt(steps.last_attempt()).last_of_each_writer("time").values()
    return max(min(last), max(last) - late)


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
        return None, "it serves requests: use tachoscope serving"
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
    """Return the workers of a job that is in no node's status: it ended, or it runs without agents."""
    starts = [start for start in records.starts if start.rank >= 0]
    newest = max((start.attempt for start in starts), default=0)
    found = {start.writer: start for start in starts if start.attempt == newest}
    steps, times = (records.steps.last_of_each_writer(name) for name in ("step", "time"))
    beats = records.heartbeats.last_of_each_writer("time")
    heartbeats = {writer: max(times.get(writer, 0.0), beats.get(writer, 0.0)) for writer in found}
    ends = dict.fromkeys(found, "")
    for row in (*records.starts, *records.ends):
        if row.writer in found:
            heartbeats[row.writer] = max(row.time, heartbeats[row.writer])
            if isinstance(row, JobEnded):
                ends[row.writer] = row.status
    return [
        Worker(
            rank=start.rank,
            host=start.host,
            pid=start.pid,
            heartbeat=heartbeats[writer],
            step=int(steps.get(writer, 0)),
            ended=ends[writer],
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

"""A job on one line: how it stands, its goodput, its worst finding, and what the time cost in which it did not compute.

A job that cannot be judged has a summary that says why. It is small, so that a list of hundreds can be kept and shown at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec
import numpy as np
import pandas as pd

from tachoscope_analyzers.data.prices import Price
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records import load
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import table, warm_up_steps
from tachoscope_analyzers.serving.records.from_records import last_seconds, traffic_of
from tachoscope_analyzers.serving.report.report import analyze_traffic
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import LAUNCHER_RANK
from tachoscope_core.report.job_life import Cost
from tachoscope_core.report.report import Finding, Report, gravest
from tachoscope_core.report.taxonomy import HEALTHY

MOST_POINTS = 60
PRODUCTIVE = ("compute",)
"""The states of a life that count as productive: those of its goodput. All other allocated time is idle time."""
_SERVICE_SECONDS = 3600.0
"""A service is judged by so much time before its newest record."""

_Made = TypeVar("_Made")


class GravestFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The gravest finding; of equal ones the one with the largest share.

    Attributes:
        seconds_per_step: of a step, of a new step of the whole life, or of a request. share: of that, a ratio.
        of_life: it was found in the whole life, not in the last attempt.
    """

    class_: str = msgspec.field(name="class")
    severity: str
    seconds_per_step: float
    share: float
    ranks: list[int] | Literal["all"]
    of_life: bool = False


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job on one line. None: not known, and never 0 for that.

    Attributes:
        kind: `other` has neither steps nor requests. status: as `load.status` said when this was made; see `standing`.
        written: Unix seconds at which something of it was last written to the store. last_record: the time of its newest record.
        ranks: of the last attempt, or of a service its processes. steps: done for the first time, over all attempts.
        goodput: of the whole life; goodput_last: of the last attempt. mean_step: seconds, of the last attempt.
        step_seconds: the step time over the last attempt, means of at most `MOST_POINTS` stretches of equal length.
        worst: None: nothing is wrong if `healthy`, else it cannot be determined, and `reason` says why.
        idle_hours: of allocated units in states that are not `PRODUCTIVE`, the queue excluded, out of `held_hours`; `unit`: GPU
            or rank. idle_money: what they cost, in `currency`; None: no price is known.
        requests: of a service.
    """

    job: str
    kind: Literal["training", "service", "other"] = "other"
    status: str = "unknown"
    written: float = 0.0
    last_record: float = 0.0
    ranks: int = 0
    steps: int = 0
    attempts: int = 0
    goodput: float | None = None
    goodput_last: float | None = None
    mean_step: float | None = None
    step_seconds: list[float] = []
    worst: GravestFinding | None = None
    healthy: bool = False
    reason: str = ""
    held_hours: float | None = None
    idle_hours: float | None = None
    unit: str = "rank"
    idle_money: float | None = None
    currency: str = ""
    requests: int | None = None


def standing(summary: JobSummary, now: float) -> str:
    """Return how a job stands at `now`, Unix seconds: one that was running, and wrote nothing since, need not be any more."""
    if summary.status == "running" and now - max(summary.last_record, summary.written) >= load.RUNNING_SECONDS:
        return "unknown"
    return summary.status


def unreadable(job: str, written: float, reason: str) -> JobSummary:
    """Return the line of a job whose records cannot be read."""
    return JobSummary(job=job, written=written, reason=reason)


def summarise(job: JobRecords, *, now: float, written: float = 0.0, prices: Sequence[Price] = ()) -> JobSummary:
    """Return a job on one line. Never fails: what cannot be determined is told as such.

    Args:
        now: Unix seconds. written: when something of the job was last written. prices: of an hour of each device.
    """
    common = JobSummary(
        job=job.job,
        status=load.status(job, now=now),
        written=written,
        last_record=_last_record(job),
        ranks=len({row.rank for row in job.starts if row.rank != LAUNCHER_RANK}),
        attempts=len({row.attempt for row in job.starts if row.rank != LAUNCHER_RANK}),
    )
    if load.serving_job(job):
        return _service(job, common, now)
    return _training(job, common, now, prices)


def _training(job: JobRecords, common: JobSummary, now: float, prices: Sequence[Price]) -> JobSummary:
    steps, why = _result_or_reason(lambda: table(job))
    report = None
    if steps is not None:
        report, why = _result_or_reason(lambda: analyze(job))
    # Only the newest part of a long job was read, so its life is unknown.
    life = None if job.left_out else _result_or_reason(lambda: analyze_life(job, prices=prices, now=now))[0]
    worst = _gravest(report, life)
    bad = next((note.what for note in report.quality if note.severity == "bad"), "") if report is not None else why
    summary = msgspec.structs.replace(
        common,
        kind="training" if job.steps else "other",
        worst=worst,
        healthy=worst is None and not bad,
        reason=bad,
    )
    if steps is not None:
        summary = _with_steps(summary, steps)
        if job.left_out:
            summary = msgspec.structs.replace(summary, steps=int(steps["step"].max()))
    if report is not None:
        summary = msgspec.structs.replace(
            summary, ranks=report.ranks, goodput_last=report.goodput, mean_step=report.step_seconds.mean
        )
    return summary if life is None else _with_life(summary, life, stepped=bool(job.steps))


def _with_steps(summary: JobSummary, steps: pd.DataFrame) -> JobSummary:
    """Add the course of the step time: of the steps that all ranks have, without the warm-up, as `steps.aligned` judges them."""
    of_step = steps.groupby("step")["wall_seconds"]
    common = of_step.max()[of_step.size() >= steps["rank"].nunique()]
    walls = (common if len(common) else of_step.max()).to_numpy()
    walls = walls[warm_up_steps(walls) :]
    parts = np.array_split(walls, min(len(walls), MOST_POINTS))
    return msgspec.structs.replace(
        summary,
        steps=steps["step"].nunique(),
        mean_step=float(walls.mean()),
        step_seconds=[float(part.mean()) for part in parts],
    )


def _with_life(summary: JobSummary, report: Report, *, stepped: bool) -> JobSummary:
    """Add what only the whole life tells; a job without steps has time that it held, and no goodput."""
    life = report.life
    if life is None:
        return summary
    summary = msgspec.structs.replace(
        summary,
        steps=life.new_steps or summary.steps,
        attempts=len(life.attempts) or summary.attempts,
        goodput=report.goodput if stepped else None,
    )
    return summary if life.cost is None else _with_cost(summary, life.cost)


def _with_cost(summary: JobSummary, cost: Cost) -> JobSummary:
    idle = sum(hours for state, hours in cost.by_state.items() if state not in PRODUCTIVE)
    return msgspec.structs.replace(
        summary,
        held_hours=cost.hours,
        idle_hours=idle,
        unit=cost.unit,
        idle_money=None if cost.price_per_hour is None else cost.price_per_hour * idle,
        currency=cost.currency,
    )


def _service(job: JobRecords, common: JobSummary, now: float) -> JobSummary:
    served = [row for row in job.requests if row.side == "server"]
    processes = {row.writer for row in job.services if row.role == "server"}
    summary = msgspec.structs.replace(common, kind="service", requests=len(served or job.requests), ranks=len(processes))
    if not served and not job.engine_windows:
        what = "only clients left records: what the server did is not known" if job.requests else "nothing was asked of it"
        return msgspec.structs.replace(summary, reason=what)
    seen, why = _result_or_reason(lambda: traffic_of(last_seconds(job, _SERVICE_SECONDS), "server", now=now))
    if seen is None:
        return msgspec.structs.replace(summary, reason=why)
    report, why = _result_or_reason(lambda: analyze_traffic(seen, job=job.job, sources=[job.source]))
    worst = _gravest(report, None)
    return msgspec.structs.replace(
        summary,
        goodput=report.goodput if report is not None else None,
        worst=worst,
        healthy=report is not None and worst is None,
        reason=why,
    )


def _gravest(report: Report | None, life: Report | None) -> GravestFinding | None:
    of_life = [] if life is None else [one for one in life.findings if one.class_ not in HEALTHY]
    of_steps = [] if report is None else [one for one in report.findings if one.class_ not in HEALTHY]
    worst = gravest([*of_steps, *of_life])
    return None if worst is None else _worst(worst, of_life=any(one is worst for one in of_life))


def _worst(finding: Finding, *, of_life: bool) -> GravestFinding:
    return GravestFinding(
        class_=finding.class_,
        severity=finding.severity,
        seconds_per_step=finding.seconds_per_step,
        share=finding.share,
        ranks=finding.ranks,
        of_life=of_life,
    )


def _last_record(job: JobRecords) -> float:
    kinds = (job.starts, job.requests, job.engine_windows, job.ends, job.service_ends)
    return max([job.steps.last_time(), job.heartbeats.last_time(), *(row.time for rows in kinds for row in rows)])


def _result_or_reason(analysis: Callable[[], _Made]) -> tuple[_Made | None, str]:
    """Return what an analysis made, or why it could not; one job's records must not cost the list of all."""
    try:
        return analysis(), ""
    except TachoscopeError as error:
        return None, str(error)
    except Exception as error:  # records are foreign: what no analyzer foresaw is one line that says so
        return None, f"the analysis failed: {type(error).__name__}: {error}"

"""The jobs that run on this node, or ended lately, as the node tells the store: see `tachoscope_core.storage.node_status`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tachoscope_core.jobs.hang_rule import LEAST_SECONDS, limit_seconds, usual_step_seconds
from tachoscope_core.owner import Owner
from tachoscope_core.storage.ledger_rows import in_columns
from tachoscope_core.storage.node_status import HangStatus, JobStatus, RankStatus
from tachoscope_node.jobs.ledger_windows import recent_rows
from tachoscope_node.jobs.state import Job, Rank

ENDED_SECONDS = 300.0
"""A job stays in the status for so long after its end; readers look a few times a minute."""


def jobs_status(
    jobs: Iterable[Job],
    owner_of: Callable[[str], Owner | None],
    *,
    now: float,
    unix_seconds: float,
    least_hang_seconds: float = LEAST_SECONDS,
) -> list[JobStatus]:
    """Return each job with its ranks; `now` is the monotonic clock that their times are of, at `unix_seconds`."""
    return [
        JobStatus(
            job.name,
            owner_of(job.name),
            job.attempt,
            max(rank.world_size for rank in ranks),
            job.ending.status,
            [_rank_status(rank, unix_seconds - now) for rank in ranks],
            job.began,
            {state: seconds for state, seconds in job.state_seconds.items() if seconds},
            job.events,
            in_columns(recent_rows(job)),
            sorted(job.ranks),
            _hang_limit(ranks, job, least_hang_seconds),
            _hang(ranks, job),
            job.scheduler_job,
        )
        for job in jobs
        if (job.idle_since is None or now - job.idle_since <= ENDED_SECONDS) and (ranks := _newest(job))
    ]


def _hang_limit(ranks: list[Rank], job: Job, least_seconds: float) -> float:
    usual = [usual_step_seconds(wall for wall, _ in rank.recent) for rank in ranks if rank.recent]
    return limit_seconds(usual_step_seconds(usual), least_seconds, job.pace) if usual else 0.0


def _hang(ranks: list[Rank], job: Job) -> HangStatus | None:
    hang = job.hanging
    if hang is None:
        return None
    return HangStatus(hang.since_time, hang.failed_rank, hang.why, len(ranks) >= max(rank.world_size for rank in ranks))


def _newest(job: Job) -> list[Rank]:
    return sorted((rank for rank in job.ranks.values() if rank.attempt == job.attempt), key=lambda rank: rank.rank)


def _rank_status(rank: Rank, boot: float) -> RankStatus:
    recent = [wall for wall, _ in rank.recent]
    return RankStatus(
        rank.rank,
        rank.writer,
        rank.pid,
        rank.step,
        boot + rank.last_end if rank.last_end is not None else 0.0,
        usual_step_seconds(recent) if recent else 0.0,
        rank.phase,
        boot + rank.last_record,
        rank.ended,
    )

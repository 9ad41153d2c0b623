"""The metrics of the jobs on this node, from what is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tachoscope_core.jobs.memory_outlook import full_at
from tachoscope_core.metrics import training as names
from tachoscope_node.jobs.registry import Job, Rank
from tachoscope_node.services.registry import ServiceRegistry
from tachoscope_service.metrics.buckets import Buckets
from tachoscope_service.metrics.family import Family, Histogram, Point

SILENT_SECONDS = 60.0
"""A rank that wrote no record for so long is silent: its heartbeats come every few seconds."""


def families(jobs: Iterable[Job], *, node: str, now: float) -> list[Family]:
    """Return the families of all jobs; a value that is not known has no point.

    Args:
        now: seconds of the host's monotonic clock.
    """
    jobs = list(jobs)
    spent = [(job.name, job.state_seconds) for job in jobs if job.ranks]
    ranks = [((job.name, str(rank.rank)), rank) for job in jobs for rank in job.ranks.values()]
    return [
        Family(
            names.TIME_SECONDS,
            [((*labels, state), seconds) for labels, rank in ranks for state, seconds in rank.seconds.items()],
        ),
        Family(
            names.JOB_TIME_SECONDS,
            [((name, state), seconds) for name, states in spent for state, seconds in states.items()],
        ),
        Family(names.JOB_HELD_SECONDS, [((name,), sum(states.values()) - states["queued"]) for name, states in spent]),
        Family(
            names.JOB_EFFECTIVE_SECONDS,
            [((name,), sum(states[state] for state in names.EFFECTIVE_STATES)) for name, states in spent],
        ),
        Family(names.STEPS, [(labels, float(rank.steps)) for labels, rank in ranks]),
        Family(names.DATA_WAIT, [(labels, _data_wait(rank)) for labels, rank in ranks if rank.recent]),
        Family(names.HEARTBEAT_AGE, [(labels, max(now - rank.last_record, 0.0)) for labels, rank in ranks if rank.ended != "left"]),
        Family(names.JOB_RANKS, [((job.name, state), count) for job in jobs for state, count in _ranks(job, now).items()]),
        Family(names.RECORDS_DROPPED, [((job.name,), _dropped(job)) for job in jobs]),
        Family(names.STEP_SECONDS, [_histogram(job, job.step_seconds) for job in jobs]),
        Family(names.STEP_DATA_WAIT, [_histogram(job, job.step_data_wait) for job in jobs]),
        Family(names.STEP_SLOWDOWN, [_histogram(job, job.step_slowdown) for job in jobs]),
        Family(names.CHECKPOINT_BLOCKING, [_histogram(job, job.checkpoint_blocking) for job in jobs]),
        Family(names.CHECKPOINT_BACKGROUND, [_histogram(job, job.checkpoint_background) for job in jobs]),
        Family(
            names.CHECKPOINT_AGE,
            [((job.name,), max(now - job.last_checkpoint, 0.0)) for job in jobs if job.last_checkpoint is not None],
        ),
        Family(names.SLOWDOWN, [((job.name,), _slowdown(job)) for job in jobs if job.late]),
        Family(names.WORKER_FAILURES, [((job.name, node), float(job.worker_failures)) for job in jobs]),
        Family(names.RESTARTS, [((job.name,), float(job.restarts)) for job in jobs]),
        Family(names.RECOVERY_SECONDS, [_histogram(job, job.recovery) for job in jobs]),
        Family(names.JOB_ACTIVE, [((job.name,), float(bool(job.launcher) or job.held)) for job in jobs]),
        Family(names.JOB_MEMORY_FULL, [((job.name,), seconds) for job in jobs if (seconds := _memory_full(job, now)) is not None]),
        Family(names.RECOMPILATIONS, [((job.name,), float(job.recompilations)) for job in jobs]),
        Family(names.HANGS, [((job.name,), float(job.hangs)) for job in jobs]),
        Family(
            names.INTEGRITY_EVENTS,
            [((job.name, kind), float(count)) for job in jobs if job.integrity for kind, count in job.integrity.events.items()],
        ),
        Family(
            names.SHARD_FAILURES,
            [((job.name, shard), float(count)) for job in jobs for shard, count in job.shard_failures.items()],
        ),
        Family(
            names.SHARDS_QUARANTINED,
            [((job.name,), float(job.shards_quarantined)) for job in jobs if job.shards_quarantined is not None],
        ),
    ]


def finished(counts: Mapping[str, Mapping[str, int]]) -> Family:
    """Return how many attempts ended, by result and cause."""
    points = [((result, cause), float(count)) for result, causes in counts.items() for cause, count in causes.items()]
    return Family(names.JOBS_FINISHED, points)


def _ranks(job: Job, now: float) -> dict[str, float]:
    """Return how many ranks that have not left are in each state; nothing where there are none."""
    found = [_rank_state(rank, now) for rank in job.ranks.values() if rank.ended != "left"]
    return {state: float(found.count(state)) for state in names.RANK_STATES} if found else {}


def _rank_state(rank: Rank, now: float) -> str:
    if rank.hung > 0.0:
        return "hung"
    return "silent" if now - rank.last_record >= SILENT_SECONDS else "working"


def _dropped(job: Job) -> float:
    """Never less than before: a rank stays, with what its earlier processes dropped, as long as its job."""
    return float(sum(rank.dropped_before + rank.dropped for rank in job.ranks.values()))


def trainings(jobs: Iterable[Job], services: ServiceRegistry) -> list[Job]:
    """Return the jobs but those of launchers that launched a service, and no rank."""
    places = {process.directory for service in services.services.values() for process in service.processes.values()}
    return [job for job in jobs if job.ranks or job.directory not in places]


def _memory_full(job: Job, now: float) -> float | None:
    """Return in how many seconds the memory of its running ranks is full; None: it will not be, or this is not known."""
    at = full_at((rank.memory for rank in job.running()), now)
    return max(at - now, 0.0) if at is not None else None


def _histogram(job: Job, buckets: Buckets) -> Point:
    return (job.name,), Histogram(tuple(buckets.counts), buckets.sum)


def _data_wait(rank: Rank) -> float:
    return sum(wait for _, wait in rank.recent) / max(sum(wall for wall, _ in rank.recent), 1e-9)


def _slowdown(job: Job) -> float:
    wall, late = (sum(column) for column in zip(*job.late, strict=True))
    return float(wall / max(wall - late, 1e-9))

"""Whether jobs that hold accelerators use them, by what the agents report of their steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tachoscope_analyzers.schedulers.slurm.queue_table import QueuedJob
from tachoscope_core.metrics.scheduler import IDLE_SECONDS
from tachoscope_watch.live_jobs import LiveJob

_SILENT_SECONDS = 180.0
"""A job whose nodes reported nothing for longer is not reported now."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A job as the agents last reported it. `step`: Unix seconds of its last step, 0.0: it did none. `ended`: all its processes."""

    reported: float
    step: float
    evaluates: bool
    ended: bool


def allocation_of(job: LiveJob) -> str:
    """Return the id of the scheduler's job that a job runs in; empty: not known."""
    return job.scheduler_job or (job.job.removeprefix("slurm-") if job.job.startswith("slurm-") else "")


class Activities:
    """What each allocation was last seen to do.

    A job that ended leaves the agents' reports after some minutes, and may hold its accelerators on: it is remembered until its
    allocation ends.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def take(self, live: Mapping[str, LiveJob], running: Collection[str]) -> None:
        """Take what the agents report. `running`: the allocations, by their job ids; others are forgotten."""
        by_allocation: dict[str, _Seen] = {}
        for job in live.values():
            allocation = allocation_of(job)
            if allocation in running:
                seen, other = _seen(job), by_allocation.get(allocation)
                by_allocation[allocation] = seen if other is None else _later(seen, other)
        kept = {allocation: seen for allocation, seen in self._seen.items() if allocation in running}
        self._seen = kept | by_allocation

    def of(self, job: QueuedJob, now: float) -> str:
        """Return the activity of a job at a time in Unix seconds."""
        seen = self._seen.get(job.job)
        if seen is None or (not seen.ended and now - seen.reported > _SILENT_SECONDS):
            return "unreported"
        since = max(seen.step, job.started or 0.0)
        return "stepping" if seen.evaluates or now - since < IDLE_SECONDS else "idle"


def _seen(job: LiveJob) -> _Seen:
    running = [rank for rank in job.ranks if not rank.status.ended]
    return _Seen(
        reported=job.time,
        step=max((rank.status.step_time for rank in job.ranks), default=0.0),
        evaluates=any(rank.status.phase == "evaluation" and not rank.silent for rank in running),
        ended=not running,
    )


def _later(one: _Seen, other: _Seen) -> _Seen:
    """Return both jobs of an allocation as one."""
    return _Seen(
        max(one.reported, other.reported),
        max(one.step, other.step),
        one.evaluates or other.evaluates,
        one.ended and other.ended,
    )

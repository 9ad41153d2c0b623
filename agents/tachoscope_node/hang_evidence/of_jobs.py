"""Which of the node's jobs hang and were not looked at yet, as the agent knows them."""

from __future__ import annotations

from collections.abc import Iterable

from tachoscope_node.hang_evidence.collector import HungJob, HungRank
from tachoscope_node.jobs.state import Job

_CLOCK_SECONDS = 1.0
"""Between a record's Unix time and the one that its monotonic time gives."""


def newly_hung(jobs: Iterable[Job], *, now: float, unix_seconds: float) -> list[HungJob]:
    """Return the jobs whose hang was not looked at, and mark them as looked at.

    A hang that is over, as one of which an agent reads only after its restart, is marked and not returned.

    Args:
        now: the monotonic clock that the ranks' times are of, at `unix_seconds`.
    """
    found = []
    for job in jobs:
        if job.hang is None or job.hangs <= job.hangs_looked_at:
            continue
        job.hangs_looked_at = job.hangs
        ranks = [rank for rank in job.running() if rank.attempt == job.attempt]
        last = max((rank.last_end for rank in ranks if rank.last_end is not None), default=None)
        if last is not None and unix_seconds - (now - last) <= job.hang.since_time + _CLOCK_SECONDS:
            hung = [HungRank(rank.rank, rank.writer, rank.pid, rank.step, rank.phase, rank.stack_locator) for rank in ranks]
            hung.sort(key=lambda rank: rank.rank)
            found.append(
                HungJob(job.name, job.attempt, job.hang.since_time, job.hang.step, job.hang.failed_rank, job.hang.why, hung)
            )
    return found

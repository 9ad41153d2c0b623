"""Which of the node's jobs hang and were not looked at yet, as the agent knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tachoscope_core.owner import Owner
from tachoscope_node.hang_evidence.collector import HungJob
from tachoscope_node.hang_evidence.rank_processes import HungRank
from tachoscope_node.jobs.state import Job, Rank

_NOBODYS = -1
"""No process is of this user: the directory is gone."""


def newly_hung(jobs: Iterable[Job], spool: Path, owner_of: Callable[[str], Owner | None]) -> list[HungJob]:
    """Return the jobs whose hang was not looked at, and mark them as looked at.

    A hang that is over, as one of which an agent reads only after its restart, is marked and not returned.

    Args:
        spool: whose directories tell the owner of what lies in them. owner_of: returns the owner of a job; None: not known, so that
            nothing is collected.
    """
    found = []
    for job in jobs:
        if job.hangs <= job.hangs_looked_at:
            continue
        job.hangs_looked_at = job.hangs
        hang, owner = job.hanging, owner_of(job.name)
        if hang is not None and owner is not None:
            ranks = [_hung(rank, spool) for rank in sorted(job.running(), key=lambda rank: rank.rank)]
            found.append(HungJob(job.name, hang.attempt, hang.since_time, hang.step, hang.failed_rank, hang.why, ranks, owner))
    return found


def _hung(rank: Rank, spool: Path) -> HungRank:
    try:
        uid = (spool / rank.directory).lstat().st_uid
    except OSError:
        uid = _NOBODYS
    return HungRank(rank.rank, rank.writer, rank.pid, rank.step, rank.phase, rank.stack_locator, uid)

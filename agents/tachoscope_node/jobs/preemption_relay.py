"""Passes on that the node will be taken away: into the records of its jobs, and to their processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from tachoscope.preemption.notice_file import Notice, leave
from tachoscope_node.jobs.registry import Job
from tachoscope_node.jobs.standin_launcher import StandInLauncher
from tachoscope_node.spool.follower import Directory


class PreemptionRelay:
    """Passes each notice on once to each job, also to one that is started while it stands.

    Args:
        log: gets a sentence for each notice.
    """

    def __init__(self, keeper: StandInLauncher, log: Callable[[str], None]) -> None:
        self._keeper = keeper
        self._log = log
        self._stands = False
        self._told: set[str] = set()

    def pass_on(self, notice: Notice | None, jobs: Iterable[Job], directories: Mapping[str, Directory]) -> None:
        """Tell the jobs that run and were not told yet of the notice that stands, None where none does.

        Args:
            directories: of the spool, by name, in which processes of the jobs look for it.
        """
        if notice is None:
            self._stands = False
            self._told.clear()
            return
        if not self._stands:
            self._stands = True
            by = f" at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(notice.deadline))}" if notice.deadline else ""
            self._log(f"{notice.source} will take this node away{by}")
        for job in jobs:
            if job.running() and job.name not in self._told:
                self._told.add(job.name)
                self._keeper.record_notice(job, notice)
                for name in sorted({rank.directory for rank in job.running()}):
                    if name in directories:
                        leave(notice, directories[name].descriptor)

"""What the agent knows of the ranks of its node, as collectors, pages and profiles need it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from tachoscope_node.gpu.workloads.collector import ranks_with_pods
from tachoscope_node.gpu.workloads.join import Rank
from tachoscope_node.jobs import state as live_state
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.nccl.groups import Member
from tachoscope_node.spool.follower import Follower


class KnownRanks:
    """Looks at the agent's state, under its lock. Any thread may call it.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, live: JobRegistry, follower: Follower, lock: threading.Lock, clock: Callable[[], float]) -> None:
        self._live = live
        self._follower = follower
        self._lock = lock
        self._clock = clock

    def running(self) -> list[live_state.Rank]:
        with self._lock:
            return [rank for job in self._live.jobs.values() for rank in job.running()]

    def pids(self) -> dict[tuple[str, str], int]:
        """Return the process id of each running rank, by job and rank."""
        with self._lock:
            return {
                (job.name, str(rank.rank)): rank.pid for job in self._live.jobs.values() for rank in job.running() if rank.pid > 0
            }

    def members(self) -> list[Member]:
        """Return the ranks of the node, those that ended lately included, as far as they can be joined to NCCL's communicators."""
        with self._lock:
            owners = {name: os.fstat(directory.descriptor).st_uid for name, directory in self._follower.directories.items()}
            return [
                Member(job.name, rank.rank, rank.attempt, rank.pid, rank.world_size, owners[rank.directory], rank.layout)
                for job in self._live.jobs.values()
                for rank in job.ranks.values()
                if rank.pid > 0 and rank.directory in owners
            ]

    def on_gpus(self) -> tuple[Rank, ...]:
        """Return the ranks that run, as far as they can be joined to GPUs."""
        with self._lock:
            return ranks_with_pods(self._live.jobs.values(), self._clock())

    def page(self) -> list[dict[str, object]]:
        """Return what is known of each rank, for people and programs: one object a rank, times in seconds."""
        now = self._clock()
        with self._lock:
            return [
                {
                    "training_job": job.name,
                    "rank": rank.rank,
                    "attempt": rank.attempt,
                    "pid": rank.pid,
                    "world_size": rank.world_size,
                    "device": rank.device,
                    "state": rank.ended or "running",
                    "step": rank.step,
                    "step_seconds": rank.step_seconds,
                    "last_record_age_seconds": round(max(now - rank.last_record, 0.0), 3),
                    "seconds": {state: round(seconds, 6) for state, seconds in rank.seconds.items() if seconds},
                    "dropped": rank.dropped_before + rank.dropped,
                }
                for job in self._live.jobs.values()
                for rank in sorted(job.ranks.values(), key=lambda rank: rank.rank)
            ]

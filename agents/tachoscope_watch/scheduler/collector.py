"""Asks a scheduler once a minute, in a thread of its own: a scheduler that hangs does not delay reports on jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from tachoscope_analyzers.schedulers.slurm.queue_table import QueuedJob
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.scheduler import SCHEDULER_UP
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Family
from tachoscope_watch.live_jobs import LiveJob
from tachoscope_watch.scheduler.activity import Activities, allocation_of
from tachoscope_watch.scheduler.families import Events, families
from tachoscope_watch.scheduler.slurm import Slurm, Snapshot

EVERY_SECONDS = 60.0
SCHEDULERS = {"slurm": Slurm}
_MOST_SECONDS_OLD = 300.0
"""Reports of the agents that were read longer ago say nothing of now."""


class Scheduler(Protocol):
    """A scheduler that can be asked."""

    name: str

    def snapshot(self, now: float) -> Snapshot:
        """Return its cluster, or raise TachoscopeError."""
        ...


class SchedulerCollector:
    """Keeps what the scheduler last answered.

    Attributes:
        families: its metrics; where it does not answer, only that. number: of answers and failures, for who keeps pages.
    """

    def __init__(self, scheduler: Scheduler, log: Log, every_seconds: float = EVERY_SECONDS) -> None:
        self._scheduler, self._log, self._every = scheduler, log, every_seconds
        self._events = Events(time.time())
        self._activities = Activities()
        self._live: tuple[float, Mapping[str, LiveJob]] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tachoscope-scheduler", daemon=True)
        self.families: tuple[Family, ...] = ()
        self.number = 0

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Ask no more; an answer that is waited for is left."""
        self._stop.set()

    def take_live(self, now: float, live: Mapping[str, LiveJob]) -> None:
        """Take what the agents report of their jobs."""
        self._live = (now, live)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look(time.time())
            self._stop.wait(self._every)

    def look(self, now: float) -> None:
        """Ask the scheduler; whatever it answers, raise nothing."""
        try:
            snapshot = self._scheduler.snapshot(now)
            live = self._live[1].values() if self._live is not None else ()
            self._events.take(snapshot.recent, {allocation: job.job for job in live if (allocation := allocation_of(job))})
            shown = families(snapshot, self._events, self._activity(snapshot))
            self._show(1.0, *shown)
        except TachoscopeError as error:
            self._log.warning("scheduler", f"the scheduler does not answer: {error}")
            self._show(0.0)
        except Exception as error:  # its answer is foreign: the watch of the jobs goes on
            self._log.warning("scheduler", f"the scheduler's answer cannot be read: {type(error).__name__}: {error}")
            self._show(0.0)

    def _activity(self, snapshot: Snapshot) -> Callable[[QueuedJob], str]:
        """Return what tells the activity of a job. Reports that cannot be read are not those of jobs without any."""
        live = self._live
        if live is None or snapshot.time - live[0] > _MOST_SECONDS_OLD:
            return lambda _: "unknown"
        self._activities.take(live[1], {job.job for job in snapshot.jobs if not job.pending})
        return lambda job: self._activities.of(job, snapshot.time)

    def _show(self, up: float, *shown: Family) -> None:
        self.families = (Family(SCHEDULER_UP, [((self._scheduler.name,), up)]), *shown)
        self.number += 1

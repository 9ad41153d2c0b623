"""What the agent knows of its jobs, as profiles on demand need it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Protocol

from tachoscope_core.metrics.training import JOB_SM_ACTIVE
from tachoscope_core.storage.store import Store
from tachoscope_node.collector_set import Collecting
from tachoscope_node.config.settings import Config
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.profiling.automatic import Automatic, Measured
from tachoscope_node.profiling.clients import KnownProcess
from tachoscope_node.profiling.profiler import Profiler
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Histogram


class ProfiledAgent(Protocol):
    """What of an agent is asked here."""

    config: Config
    log: Log
    lock: Lock
    live: JobRegistry
    collecting: Collecting


def profiler_of(agent: ProfiledAgent, store: Store, *, clock: Callable[[], float], monotonic: Callable[[], float]) -> Profiler:
    """Return what profiles the jobs of an agent."""
    config = agent.config
    return Profiler(
        config.profiles,
        store,
        node=config.node_name,
        proc=Path(config.proc),
        state=config.state_path,
        log=agent.log,
        known=lambda: known_processes(agent),
        automatic=Automatic(lambda: measured(agent)) if config.profiles.automatic else None,
        clock=clock,
        monotonic=monotonic,
    )


def known_processes(agent: ProfiledAgent) -> dict[int, KnownProcess]:
    """Return the processes that report themselves, by pid; a pod's know their pid in the pod only."""
    with agent.lock:
        ranks = [
            (job.name, rank) for job in agent.live.jobs.values() for rank in job.running() if rank.pid > 0 and not rank.pod_uid
        ]
    found = {}
    for job, rank in ranks:
        with contextlib.suppress(OSError):  # its run is over
            uid = (agent.config.spool_path / rank.directory).lstat().st_uid
            found[rank.pid] = KnownProcess(uid, job, rank.rank, rank.world_size, rank.step_seconds)
    return found


def measured(agent: ProfiledAgent) -> dict[str, Measured]:
    """Return what is known of each job."""
    active = {
        labels[0]: (float(sum(point.counts)), point.sum)
        for family in agent.collecting.frame.families()
        if family.metric.name == JOB_SM_ACTIVE.name
        for labels, point in family.points
        if isinstance(point, Histogram)
    }
    with agent.lock:
        found = {}
        for job in agent.live.jobs.values():
            recent = max(([wall for wall, _ in rank.recent] for rank in job.running()), key=sum, default=[])
            found[job.name] = Measured(tuple(recent), job.regularity.baseline, active.get(job.name, (0.0, 0.0)))
    return found

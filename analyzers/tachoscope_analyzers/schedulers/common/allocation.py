"""What a scheduler says about a job: when it was queued, allocated, started and ended, and why.

Knows nothing of any scheduler: `tachoscope_analyzers.schedulers` reads their documents and gives these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tachoscope_core.errors import TachoscopeError

State = Literal["pending", "running", "completed", "failed", "cancelled", "preempted", "node_failed", "timeout", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One time that a scheduler gave a job its nodes, or tried to. A requeue or a restart of the gang is a further one.

    All times are Unix seconds; None: the scheduler does not say, or it has not happened.

    Attributes:
        name: job id of Slurm, or namespace/name of the object on Kubernetes.
        attempt: from 0, in the order of time.
        submitted: queueing began: submission, or requeue. eligible: nothing but free nodes was missing any more (dependency
            met, quota granted). placed: the first of the gang had its node: from here on accelerators are held.
        started: all of the gang ran. On Slurm, which allocates a gang at once, this is `placed`.
        ended: the nodes were given back.
        nodes: names of the nodes. hosts: names by which processes know their host; on Kubernetes those of the pods.
        accelerators: of all nodes together; 0: not known. device: their kind in the scheduler's words, such as `h100`.
        reason: why it ended or waits, in the scheduler's own words. restarts: of containers within this allocation.
    """

    source: Literal["slurm", "kubernetes"]
    name: str
    attempt: int = 0
    submitted: float | None = None
    eligible: float | None = None
    placed: float | None = None
    started: float | None = None
    ended: float | None = None
    nodes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    accelerators: int = 0
    device: str = ""
    state: State = "unknown"
    reason: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What tachoscope knows of one attempt: Unix seconds of its processes (`end` None: they run), names of their hosts."""

    start: float
    end: float | None
    hosts: tuple[str, ...] = ()


def queued_seconds(allocation: Allocation, *, now: float | None = None) -> float | None:
    """Return the seconds from submission until the job held its first node, or gave up; None: not known.

    Where the scheduler does not tell when the first of the gang was placed, the wait for the gang is part of this, and
    `gang_wait_seconds` is None. For every allocation that has ended, this, the wait for the gang and `running_seconds`
    sum to its time from submission to end.

    Args:
        allocation: what the scheduler says.
        now: Unix seconds up to which a job that still waits is counted; None: its wait is not known yet.
    """
    return _between(allocation.submitted, _first(allocation.placed, allocation.started, allocation.ended, now))


def gang_wait_seconds(allocation: Allocation, *, now: float | None = None) -> float | None:
    """Return the seconds from the first of the gang on its node to all running, or to the end if that never came.

    In this time accelerators are held but idle. None: not known; 0 where the gang was never placed and has ended.
    """
    if allocation.placed is None:
        return 0.0 if allocation.started is None and allocation.ended is not None else None
    return _between(allocation.placed, _first(allocation.started, allocation.ended, now))


def running_seconds(allocation: Allocation, *, now: float | None = None) -> float | None:
    """Return the seconds from all of the gang running to the end; 0 if it ended before that; None: not known."""
    if allocation.started is None:
        return 0.0 if allocation.ended is not None else None
    return _between(allocation.started, _first(allocation.ended, now))


def held_seconds(allocation: Allocation, *, now: float | None = None) -> float | None:
    """Return the seconds in which the job held nodes: the denominator of its goodput. None: not known."""
    since = _first(allocation.placed, allocation.started)
    if since is None:
        return 0.0 if allocation.ended is not None else None
    return _between(since, _first(allocation.ended, now))


def match(allocations: Sequence[Allocation], launches: Sequence[Launch]) -> list[Allocation | None]:
    """Return for each launch the allocation that it ran in: the one with a host in common, then the longest time in common.

    Several launches can share an allocation (restarts by torchrun). None: no allocation was held while the launch ran.
    """
    return [_of_launch(allocations, launch) for launch in launches]


def of_job(allocations: Sequence[Allocation], launches: Sequence[Launch]) -> list[Allocation]:
    """Return the allocations of those scheduler's jobs in which a launch ran, the ones without a launch included.

    What a user hands in can report other jobs as well: a whole namespace, or all tasks of an array.

    Raises:
        TachoscopeError: it reports other jobs only.
    """
    names = {(one.source, one.name) for one in match(allocations, launches) if one}
    if allocations and not names:
        others = ", ".join(sorted({one.name for one in allocations})[:5])
        raise TachoscopeError(
            f"no attempt ran in the time that the scheduler reports {others}",
            fix="name the scheduler's own job: --scheduler slurm:JOBID or kubernetes:NAMESPACE/NAME",
        )
    return [one for one in allocations if (one.source, one.name) in names]


def _of_launch(allocations: Sequence[Allocation], launch: Launch) -> Allocation | None:
    fitting = [(_fit(one, launch), -place) for place, one in enumerate(allocations)]
    (_, overlap), place = max(fitting, default=((False, -math.inf), 0))
    return allocations[-place] if overlap >= 0 else None


def _fit(allocation: Allocation, launch: Launch) -> tuple[bool, float]:
    """Return whether they share a host, and their common seconds; negative: they share no time, whatever their hosts."""
    since = _first(allocation.placed, allocation.started)
    if since is None:
        return False, -math.inf
    ends = [end for end in (allocation.ended, launch.end) if end is not None]
    overlap = min(ends, default=math.inf) - max(since, launch.start)
    known = {_short(host) for host in (*allocation.nodes, *allocation.hosts)}
    return overlap >= 0 and any(_short(host) in known for host in launch.hosts), overlap


def _short(host: str) -> str:
    # Slurm lists nodes by their short names, a process may know itself by the full one.
    return host.partition(".")[0]


def _first(*times: float | None) -> float | None:
    return next((time for time in times if time is not None), None)


def _between(since: float | None, until: float | None) -> float | None:
    return None if since is None or until is None else max(until - since, 0.0)

"""Divides the life of a job on Kubernetes into allocations: from each submission or eviction to the next.

What the pods tell counts before what the controllers tell: a controller says later, and about fewer of them, that they run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from tachoscope_analyzers.schedulers.common.allocation import Allocation, State
from tachoscope_analyzers.schedulers.kubernetes.observation import Milestone, Observation
from tachoscope_analyzers.schedulers.kubernetes.pods import Pod

_NO_CAUSES = {"completed", "running", "pending", "unknown"}
_SPECIFIC: tuple[State, ...] = (
    "node_failed", "preempted", "timeout", "cancelled", "failed", "completed", "running", "pending", "unknown",
)  # fmt: skip
"""States in the order of how much they say about a cause: a node that failed makes a job fail, not the other way round."""


def allocations(name: str, *, submitted: float | None, told: Sequence[Observation], pods: Sequence[Pod]) -> list[Allocation]:
    """Return the allocations of one job in the order of time.

    Args:
        name: of the job. submitted: Unix seconds of its first submission; None: not known.
        told: what its objects tell. pods: that are known of it, of all attempts.
    """
    if not pods and not any(one.marks or one.waiting for one in told) and submitted is None:
        return []
    marks = sorted((one for each in told for one in each.marks), key=lambda one: one.time)
    begins = [one.time for one in marks if one.what != "stopped"] + [pod.created for pod in pods]
    stops = _distinct([one for one in marks if one.what == "stopped"] + _between_generations(pods, marks), begins)
    finished = bool(stops) and any(one.finished for one in told)
    count = len(stops) + (not finished)
    before = max([one.restarts for one in told] + [pod.generation or 0 for pod in pods], default=0) - (count - 1)
    found: list[Allocation] = []
    for number in range(count):
        of_this = [pod for pod in pods if _window(pod.created, stops, count) == number]
        if number:
            submitted = found[-1].ended
        elif before > 0:
            # The first that is known is a restart. Where no queue makes it wait, its pods are made as soon as it is decided.
            submitted = None if any(one.queues for one in told) else min((pod.created for pod in of_this), default=None)
        found.append(
            _allocation(
                Allocation(source="kubernetes", name=name, attempt=number + max(before, 0), submitted=submitted),
                of_this,
                [one for one in marks if one.what != "stopped" and _window(one.time, stops, count) == number],
                stops[number] if number < len(stops) else None,
                told,
            )
        )
    return found


def _between_generations(pods: Sequence[Pod], marks: Sequence[Milestone]) -> list[Milestone]:
    """Return a stop between each two generations of the gang, where no controller reports one."""
    found = []
    generations = _generations(pods)
    for old, new in itertools.pairwise(generations):
        since, until = min(pod.created for pod in old), min(pod.created for pod in new)
        if not any(one.what == "stopped" and since < one.time <= until for one in marks):
            ends = [pod.ended for pod in old if pod.ended is not None]
            found.append(Milestone(time=min(max(ends, default=until), until), what="stopped"))
    return found


def _generations(pods: Sequence[Pod]) -> list[list[Pod]]:
    """Return the pods by generation: as their labels tell, else a new one begins when a place is taken again and all have ended.

    Where only some of a gang are replaced while the others stay, the allocation goes on.
    """
    found: list[list[Pod]] = []
    taken: set[tuple[str, ...] | None] = {None}  # a pod without a place of its own takes any
    last_end = 0.0
    for pod in sorted(pods, key=lambda pod: (pod.generation or 0, pod.created)):
        if pod.generation is not None and found and found[-1][0].generation is not None:
            new = pod.generation != found[-1][0].generation
        else:
            new = pod.place in taken and last_end <= pod.created
        if new or not found:
            found.append([])
            taken, last_end = {None}, 0.0
        found[-1].append(pod)
        taken.add(pod.place)
        last_end = max(last_end, math.inf if pod.ended is None else pod.ended)
    return found


def _distinct(stops: Sequence[Milestone], begins: Sequence[float]) -> list[Milestone]:
    """Return the stops, those put together between which nothing began: several objects report the same one."""
    found: list[Milestone] = []
    for stop in sorted(stops, key=lambda one: one.time):
        if found and not any(found[-1].time <= time < stop.time for time in begins):
            told = min((found[-1], stop), key=lambda one: _SPECIFIC.index(one.state))
            found[-1] = replace(told, time=found[-1].time)
        else:
            found.append(stop)
    return found


def _window(time: float, stops: Sequence[Milestone], count: int) -> int:
    # Times are whole seconds: what stands at the second of a stop came after it, unless nothing comes after.
    return min(sum(stop.time <= time for stop in stops), count - 1)


def _allocation(
    base: Allocation, pods: Sequence[Pod], marks: Sequence[Milestone], stop: Milestone | None, told: Sequence[Observation]
) -> Allocation:
    latest = {pod.place or (pod.name,): pod for pod in sorted(pods, key=lambda pod: pod.created)}
    gang = max((one.gang for one in told if one.gang), default=None)
    eligible = min((one.time for one in marks if one.what == "eligible"), default=None)
    placed = min((pod.scheduled for pod in pods if pod.scheduled is not None), default=None)
    started = _started(pods, gang) or min((one.time for one in marks if one.what == "started"), default=None)
    ended = _ended(list(latest.values()), gang, stop)
    state, reason = _state(pods, stop, told, started=started, ended=ended)
    accelerators = sum(pod.accelerators for pod in latest.values() if pod.scheduled is not None)
    asked = max(told, key=lambda one: one.accelerators, default=Observation())
    # Kubelets stamp containers by the clocks of their nodes, controllers by another: what came later cannot have a lesser time.
    placed = _not_before(placed, base.submitted)
    started = _not_before(started, placed, base.submitted)
    return replace(
        base,
        eligible=_not_before(eligible, base.submitted),
        placed=placed,
        started=started,
        ended=_not_before(ended, started, placed, base.submitted),
        nodes=tuple(sorted({pod.node for pod in pods if pod.node})),
        hosts=tuple(sorted({pod.host for pod in pods if pod.scheduled is not None})),
        accelerators=accelerators or asked.accelerators,
        device=_device(list(latest.values()), asked),
        state=state,
        reason=reason,
        restarts=sum(pod.restarts for pod in latest.values()) + len(pods) - len(latest),
    )


def _started(pods: Sequence[Pod], gang: int | None) -> float | None:
    """Return when the last pod that the gang needs ran for the first time; None: not enough of them are known to have."""
    first: dict[tuple[str, ...], float] = {}
    for pod in pods:
        if pod.ran is not None:
            place = pod.place or (pod.name,)
            first[place] = min(pod.ran, first.get(place, pod.ran))
    needed = gang or len({pod.place or (pod.name,) for pod in pods})
    return sorted(first.values())[needed - 1] if 0 < needed <= len(first) else None


def _ended(pods: Sequence[Pod], gang: int | None, stop: Milestone | None) -> float | None:
    ends = [pod.ended for pod in pods if pod.ended is not None]
    if ends and len(ends) == len(pods) and len(ends) >= (gang or 1):
        return max(ends)
    return stop.time if stop else None


def _state(
    pods: Sequence[Pod], stop: Milestone | None, told: Sequence[Observation], *, started: float | None, ended: float | None
) -> tuple[State, str]:
    """Return how it ended or stands, and why; the cause is the most specific that controllers and pods tell."""
    if ended is None:
        if started is not None:
            return "running", ""
        reasons = [one.waiting for one in told] + [pod.reason for pod in pods if pod.state == "pending"]
        return "pending", next((reason for reason in reasons if reason), "")
    if stop and stop.state == "completed":
        return "completed", stop.reason
    if not stop and all(pod.state == "completed" for pod in pods):
        return "completed", ""
    failed = [pod for pod in sorted(pods, key=lambda pod: pod.ended or ended) if pod.state not in _NO_CAUSES]
    states: list[State] = [*([stop.state] if stop else []), *(pod.state for pod in failed)]
    state: State = min(states, key=_SPECIFIC.index, default="unknown")
    first = next((pod.reason for pod in failed if pod.state == state), "")
    return state, "; ".join(reason for reason in (stop.reason if stop else "", first) if reason)


def _device(pods: Sequence[Pod], asked: Observation) -> str:
    return ",".join(sorted({pod.device for pod in pods if pod.device})) or asked.device


def _not_before(time: float | None, *others: float | None) -> float | None:
    return None if time is None else max([time, *(other for other in others if other is not None)])

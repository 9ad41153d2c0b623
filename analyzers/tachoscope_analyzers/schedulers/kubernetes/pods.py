"""Reads one pod: when it had a node, ran and ended, why, and what it held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tachoscope_analyzers.schedulers.common.allocation import State
from tachoscope_analyzers.schedulers.common.untyped import at, items, text
from tachoscope_analyzers.schedulers.kubernetes import objects

# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
DISRUPTIONS: dict[str, State] = {
    "PreemptionByScheduler": "preempted",
    "EvictionByEvictionAPI": "preempted",
    "DeletionByTaintManager": "node_failed",
    "DeletionByPodGC": "node_failed",
    "TerminationByKubelet": "node_failed",
}
# `status.reason` of a failed pod, written by the kubelet and the node controller.
_REASONS: dict[str, State] = {
    "Preempting": "preempted",
    "DeadlineExceeded": "timeout",
    "Evicted": "node_failed",
    "NodeLost": "node_failed",
    "NodeShutdown": "node_failed",
    "Shutdown": "node_failed",
    "Terminated": "node_failed",
}
# Labels and annotations that give a pod its place in the gang, by the controller that sets them.
_PLACES = (
    ("jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-completion-index"),
    ("batch.kubernetes.io/job-completion-index",),
    ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"),
    ("volcano.sh/task-spec", "volcano.sh/task-index"),
)
_GENERATIONS = ("jobset.sigs.k8s.io/restart-attempt", "volcano.sh/job-version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod. Times are Unix seconds, None: not known, or not yet.

    Attributes:
        host: the name by which its processes know their host.
        place: in the gang; None: it has none of its own. generation: which restart of the gang it is of; None: not told.
        scheduled: it had a node. ran: its containers ran for the first time. ended: the last of them was gone.
    """

    name: str
    host: str
    node: str = ""
    place: tuple[str, ...] | None = None
    generation: int | None = None
    created: float
    scheduled: float | None = None
    ran: float | None = None
    ended: float | None = None
    accelerators: int = 0
    device: str = ""
    state: State = "unknown"
    reason: str = ""
    restarts: int = 0


def read(document: dict[str, Any], events: Sequence[dict[str, Any]] = ()) -> Pod:
    """Return a pod from its object, and from its events what the object does not tell."""
    name, labels = text(at(document, "metadata", "name")), objects.labels(document)
    found = objects.conditions(document)
    scheduled = found.get("PodScheduled")
    accelerators, device = objects.accelerators(at(document, "spec"))
    state, reason = _state(document, found, events)
    place = next((tuple(labels[part] for part in parts) for parts in _PLACES if all(part in labels for part in parts)), None)
    generation = next((labels[one] for one in _GENERATIONS if labels.get(one, "").isdecimal()), None)
    return Pod(
        name=name,
        host=text(at(document, "spec", "hostname")) or name,
        node=text(at(document, "spec", "nodeName")),
        place=place,
        generation=int(generation) if generation is not None else None,
        created=objects.seconds(at(document, "metadata", "creationTimestamp")) or 0.0,
        scheduled=scheduled.time if scheduled and scheduled.true else None,
        ran=_ran(document, events),
        ended=_ended(document, found),
        accelerators=accelerators,
        device=device,
        state=state,
        reason=f"{name}: {reason}" if reason else "",
        restarts=sum(objects.as_integer(at(one, "restartCount")) or 0 for one in items(document, "status", "containerStatuses")),
    )


def _ran(document: object, events: Sequence[dict[str, Any]]) -> float | None:
    """Return when the last of its containers was first started; None: not told.

    A status keeps the present start and the one before: of a container that was restarted more often, only an event knows.
    """
    statuses = items(document, "status", "containerStatuses")
    starts = [_first_start(one) for one in statuses]
    if starts and len(starts) >= len(items(document, "spec", "containers")) and None not in starts:
        return max(start for start in starts if start is not None)
    seen = [objects.seconds(at(event, "firstTimestamp")) for event in events if text(event.get("reason")) == "Started"]
    known = [time for time in seen if time is not None]
    return min(known) if known and any(objects.as_integer(at(one, "restartCount")) for one in statuses) else None


def _first_start(status: object) -> float | None:
    restarts = objects.as_integer(at(status, "restartCount")) or 0
    if restarts == 0:
        start = at(status, "state", "running", "startedAt") or at(status, "state", "terminated", "startedAt")
    else:
        start = at(status, "lastState", "terminated", "startedAt") if restarts == 1 else None
    return objects.seconds(start)


def _ended(document: object, found: dict[str, objects.Condition]) -> float | None:
    if text(at(document, "status", "phase")) not in {"Succeeded", "Failed"}:
        return None
    ended = (at(one, "state", "terminated", "finishedAt") for one in items(document, "status", "containerStatuses"))
    known = [time for time in map(objects.seconds, ended) if time is not None]
    # A pod whose node was lost never reports its containers' end: the control plane ended it.
    disrupted, ready = found.get("DisruptionTarget"), found.get("Ready")
    return max(known) if known else next((one.time for one in (disrupted, ready) if one and one.time), None)


def _state(document: object, found: dict[str, objects.Condition], events: Sequence[dict[str, Any]]) -> tuple[State, str]:
    disrupted = found.get("DisruptionTarget")
    if disrupted and disrupted.true:
        return DISRUPTIONS.get(disrupted.reason, "unknown"), disrupted.text()
    preempted = next((event for event in events if text(event.get("reason")) == "Preempted"), None)
    if preempted:
        return "preempted", f"Preempted: {text(preempted.get('message') or preempted.get('note'))}"
    phase = text(at(document, "status", "phase"))
    if phase == "Succeeded":
        return "completed", ""
    if phase == "Failed":
        reason = text(at(document, "status", "reason"))
        words = ": ".join(part for part in (reason, text(at(document, "status", "message"))) if part)
        return _REASONS.get(reason, "failed"), words or _exit(document)
    if phase == "Running":
        return "running", ""
    return ("pending", _waiting(document, found)) if phase == "Pending" else ("unknown", "")


def _exit(document: object) -> str:
    for status in items(document, "status", "containerStatuses"):
        ended = at(status, "state", "terminated")
        if objects.as_integer(at(ended, "exitCode")):
            return f"{text(at(ended, 'reason')) or 'Error'}, exit code {at(ended, 'exitCode')}"
    return "Failed"


def _waiting(document: object, found: dict[str, objects.Condition]) -> str:
    scheduled = found.get("PodScheduled")
    if scheduled and not scheduled.true:
        return scheduled.text()
    waits = [at(one, "state", "waiting") for one in items(document, "status", "containerStatuses")]
    return next((text(at(one, "reason")) for one in waits if at(one, "reason")), "")

"""Reads the Job (batch.volcano.sh) and PodGroup (scheduling.volcano.sh) of Volcano: https://volcano.sh/en/docs/vcjob/."""

from __future__ import annotations

from typing import Any

from tachoscope_analyzers.schedulers.common.allocation import State
from tachoscope_analyzers.schedulers.common.untyped import at, items, text
from tachoscope_analyzers.schedulers.kubernetes import objects
from tachoscope_analyzers.schedulers.kubernetes.observation import Milestone, Observation, mark

_ENDS: dict[str, State] = {
    "Restarting": "failed",
    "Aborting": "cancelled",
    "Aborted": "cancelled",
    "Terminating": "failed",
    "Terminated": "failed",
    "Failed": "failed",
    "Completing": "completed",
    "Completed": "completed",
}
_FINAL = {"Aborted", "Terminated", "Failed", "Completed"}


def observe(job: dict[str, Any]) -> Observation:
    """Return what a Job tells. Its conditions are a history: one for each phase that it went through."""
    now, why = text(at(job, "status", "state", "phase")), text(at(job, "status", "state", "reason"))
    message = text(at(job, "status", "state", "message"))
    words = ": ".join(part for part in (now, why, message) if part)
    phases = items(job, "status", "conditions")
    history = [(text(at(one, "status")), objects.seconds(at(one, "lastTransitionTime"))) for one in phases]
    last = (now, objects.seconds(at(job, "status", "state", "lastTransitionTime")))
    marks: tuple[Milestone, ...] = ()
    for phase, time in [*history, *([last] if last not in history else [])]:
        if phase == "Running":
            marks += mark(time, "started")
        elif phase in _ENDS:
            marks += mark(time, "stopped", _ENDS[phase], words if phase == now else phase)
    least = objects.as_integer(at(job, "spec", "minAvailable"))
    count = pods = 0
    devices = set()
    for task in items(job, "spec", "tasks"):
        replicas = objects.as_integer(at(task, "replicas"))
        replicas = 1 if replicas is None else replicas
        each, device = objects.accelerators(at(task, "template", "spec"))
        pods, count = pods + replicas, count + replicas * each
        devices |= {device} - {""}
    return Observation(
        marks=marks,
        finished=now in _FINAL,
        gang=least or pods or None,
        restarts=objects.as_integer(at(job, "status", "retryCount")) or 0,
        waiting=words if now == "Pending" and words != now else "",
        accelerators=count,
        device=",".join(sorted(devices)),
    )


def group(podgroup: dict[str, Any]) -> Observation:
    """Return what a PodGroup tells: its gang and why it waits. Its phases have no times, and its conditions are renewed."""
    waits = objects.conditions(podgroup).get("Unschedulable")
    phase = text(at(podgroup, "status", "phase"))
    return Observation(
        gang=objects.as_integer(at(podgroup, "spec", "minMember")),
        waiting=waits.text() if waits and waits.true and phase in {"Pending", "Inqueue"} else "",
    )

"""Reads the jobs of Kubeflow: PyTorchJob (kubeflow.org/v1) and TrainJob (trainer.kubeflow.org/v1alpha1).

https://www.kubeflow.org/docs/components/trainer/ and its legacy pages.
"""

from __future__ import annotations

from typing import Any

from tachoscope_analyzers.schedulers.common.allocation import State
from tachoscope_analyzers.schedulers.common.untyped import at, mapping
from tachoscope_analyzers.schedulers.kubernetes import objects
from tachoscope_analyzers.schedulers.kubernetes.observation import Milestone, Observation, mark

_PYTORCHJOB_ENDS: tuple[tuple[str, State], ...] = (("Restarting", "failed"), ("Succeeded", "completed"), ("Failed", "failed"))
_TRAINJOB_ENDS: tuple[tuple[str, State], ...] = (("Complete", "completed"), ("Failed", "failed"))


def pytorchjob(job: dict[str, Any]) -> Observation:
    """Return what a PyTorchJob tells. It says Running as soon as its master runs: its pods know better."""
    found = objects.conditions(job)
    running, suspended = found.get("Running"), found.get("Suspended")
    marks = mark(objects.seconds(at(job, "status", "startTime")), "eligible")
    # When the job ends the operator turns Running off and leaves its time as it was; a suspension sets both.
    if running and (running.true or any(found[end].true for end in ("Succeeded", "Failed") if end in found)):
        marks += mark(running.time, "started")
    marks += _ends(found, _PYTORCHJOB_ENDS)
    gang = count = 0
    devices = set()
    for replica in mapping(job, "spec", "pytorchReplicaSpecs").values():
        replicas = objects.as_integer(at(replica, "replicas"))
        replicas = 1 if replicas is None else replicas
        each, device = objects.accelerators(at(replica, "template", "spec"))
        gang, count = gang + replicas, count + replicas * each
        devices |= {device} - {""}
    return Observation(
        marks=marks,
        finished=any(found[end].true for end in ("Succeeded", "Failed") if end in found),
        gang=objects.as_integer(at(job, "spec", "elasticPolicy", "minReplicas")) or gang or None,
        queues=bool(at(job, "spec", "runPolicy", "suspend")),
        waiting=suspended.text() if suspended and suspended.true else "",
        accelerators=count,
        device=",".join(sorted(devices)),
    )


def trainjob(job: dict[str, Any]) -> Observation:
    """Return what a TrainJob tells. How many pods it makes is the affair of its runtime: the JobSet below it tells."""
    found = objects.conditions(job)
    suspended = found.get("Suspended")
    resumed = suspended and not suspended.true
    return Observation(
        marks=(mark(suspended.time, "eligible") if suspended and resumed else ()) + _ends(found, _TRAINJOB_ENDS),
        finished=any(found[end].true for end, _ in _TRAINJOB_ENDS if end in found),
        queues=bool(at(job, "spec", "suspend")),
        waiting=suspended.text() if suspended and not resumed else "",
    )


def _ends(found: dict[str, objects.Condition], ends: tuple[tuple[str, State], ...]) -> tuple[Milestone, ...]:
    marks: tuple[Milestone, ...] = ()
    for end, state in ends:
        if end in found and found[end].true:
            marks += mark(found[end].time, "stopped", state, found[end].text())
    return marks

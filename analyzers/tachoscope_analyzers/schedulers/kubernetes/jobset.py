"""Reads a JobSet (jobset.x-k8s.io): https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/."""

from __future__ import annotations

from typing import Any

from tachoscope_analyzers.schedulers.common.untyped import at, items
from tachoscope_analyzers.schedulers.kubernetes import batch_job, objects
from tachoscope_analyzers.schedulers.kubernetes.observation import Observation, mark


def observe(jobset: dict[str, Any]) -> Observation:
    """Return what a JobSet tells: its end, when it was resumed, its gang over all replicated jobs."""
    found = objects.conditions(jobset)
    completed, failed, suspended = found.get("Completed"), found.get("Failed"), found.get("Suspended")
    marks = mark(suspended.time, "eligible") if suspended and not suspended.true else ()
    if completed and completed.true:
        marks += mark(completed.time, "stopped", "completed", completed.text())
    if failed and failed.true:
        marks += mark(failed.time, "stopped", "failed", failed.text())
    gang = count = 0
    devices = set()
    for group in items(jobset, "spec", "replicatedJobs"):
        replicas = objects.as_integer(at(group, "replicas"))
        pods = (1 if replicas is None else replicas) * batch_job.gang(at(group, "template"))
        each, device = objects.accelerators(at(group, "template", "spec", "template", "spec"))
        gang, count = gang + pods, count + pods * each
        devices |= {device} - {""}
    return Observation(
        marks=marks,
        finished=any(one is not None and one.true for one in (completed, failed)),
        gang=gang or None,
        restarts=objects.as_integer(at(jobset, "status", "restarts")) or 0,
        queues=bool(at(jobset, "spec", "suspend")),
        waiting=suspended.text() if suspended and suspended.true else "",
        accelerators=count,
        device=",".join(sorted(devices)),
    )

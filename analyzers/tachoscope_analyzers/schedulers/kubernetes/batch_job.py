"""Reads a Job of Kubernetes itself (batch/v1): https://kubernetes.io/docs/concepts/workloads/controllers/job/."""

from __future__ import annotations

from typing import Any

from tachoscope_analyzers.schedulers.common.allocation import State
from tachoscope_analyzers.schedulers.common.untyped import at
from tachoscope_analyzers.schedulers.kubernetes import objects
from tachoscope_analyzers.schedulers.kubernetes.observation import Observation, mark

_FAILURES: dict[str, State] = {"DeadlineExceeded": "timeout"}


def observe(job: dict[str, Any]) -> Observation:
    """Return what a Job tells. It resets `startTime` each time that it is resumed."""
    found = objects.conditions(job)
    complete, failed, suspended = found.get("Complete"), found.get("Failed"), found.get("Suspended")
    marks = mark(objects.seconds(at(job, "status", "startTime")), "eligible")
    if complete and complete.true:
        completed = objects.seconds(at(job, "status", "completionTime")) or complete.time
        marks += mark(completed, "stopped", "completed", complete.text())
    if failed and failed.true:
        marks += mark(failed.time, "stopped", _FAILURES.get(failed.reason, "failed"), failed.text())
    waits = suspended and suspended.true
    count, device = objects.accelerators(at(job, "spec", "template", "spec"))
    return Observation(
        marks=marks,
        finished=any(one is not None and one.true for one in (complete, failed)),
        gang=gang(job),
        queues=bool(at(job, "spec", "suspend")),
        waiting=suspended.text() if suspended and waits else "",
        accelerators=count * gang(job),
        device=device,
    )


def gang(job: object) -> int:
    """Return how many pods of a Job, or of a Job's template, run at once; both numbers are 1 unless they are set."""
    parallelism = objects.as_integer(at(job, "spec", "parallelism"))
    completions = objects.as_integer(at(job, "spec", "completions"))
    parallel = 1 if parallelism is None else parallelism
    return parallel if completions is None else min(parallel, completions)

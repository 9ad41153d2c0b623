"""Reads a Workload of Kueue (kueue.x-k8s.io): https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta2/#kueue-x-k8s-io-v1beta2-Workload."""

from __future__ import annotations

from typing import Any

from tachoscope_analyzers.schedulers.common.allocation import State
from tachoscope_analyzers.schedulers.common.untyped import at, items, mapping, text
from tachoscope_analyzers.schedulers.kubernetes import objects
from tachoscope_analyzers.schedulers.kubernetes.observation import Observation, mark

# Reasons of the condition Evicted; of events the same behind `EvictedDueTo`.
_EVICTIONS: dict[str, State] = {
    "Preempted": "preempted",
    "FlavorMigration": "preempted",
    "NodeFailures": "node_failed",
    "PodsReadyTimeout": "timeout",
    "DeactivatedDueToMaximumExecutionTimeExceeded": "timeout",
    "DeactivatedDueToRequeuingLimitExceeded": "timeout",
}
_FINISHES: dict[str, State] = {"Succeeded": "completed", "Failed": "failed"}


def observe(workload: dict[str, Any]) -> Observation:
    """Return what a Workload tells: when its quota was reserved, all of its pods were ready, and it was evicted.

    The condition Evicted reports the present eviction only; those before are in the events, and counted.
    """
    found = objects.conditions(workload)
    reserved, ready = found.get("QuotaReserved"), found.get("PodsReady")
    evicted, finished = found.get("Evicted"), found.get("Finished")
    marks = mark(reserved.time, "eligible") if reserved and reserved.true else ()
    marks += mark(ready.time, "started") if ready and ready.true else ()
    if evicted and evicted.true:
        marks += mark(evicted.time, "stopped", eviction(evicted.reason), evicted.text())
    if finished and finished.true:
        marks += mark(finished.time, "stopped", _FINISHES.get(finished.reason, "unknown"), finished.text())
    count, device, gang = _asked(workload)
    counted = sum(objects.as_integer(at(one, "count")) or 0 for one in items(workload, "status", "schedulingStats", "evictions"))
    return Observation(
        marks=marks,
        finished=bool(finished and finished.true) or at(workload, "spec", "active") is False,
        gang=gang,
        restarts=counted,
        queues=True,
        waiting=reserved.text() if reserved and not reserved.true else "",
        accelerators=count,
        device=device,
    )


def eviction(reason: str) -> State:
    """Return the state that an eviction for this reason leaves: by the user's or administrator's hand unless told otherwise."""
    return _EVICTIONS.get(reason, "cancelled")


def _asked(workload: object) -> tuple[int, str, int | None]:
    """Return accelerators and pods of all pod sets; the kind is the flavor of the quota where one was granted."""
    count = gang = 0
    devices = set()
    for group in items(workload, "spec", "podSets"):
        pods = objects.as_integer(at(group, "count")) or 0
        each, device = objects.accelerators(at(group, "template", "spec"))
        gang, count = gang + pods, count + pods * each
        devices |= {device} - {""}
    flavors = {
        text(flavor)
        for group in items(workload, "status", "admission", "podSetAssignments")
        for resource, flavor in mapping(group, "flavors").items()
        if resource in devices
    }
    return count, ",".join(sorted(flavors or devices)), gang or None

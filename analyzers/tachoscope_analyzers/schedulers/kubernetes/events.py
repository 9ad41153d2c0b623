"""Reads the events of Kubernetes, of both versions (v1 and events.k8s.io/v1): what happened to an object, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tachoscope_analyzers.schedulers.common.untyped import at, text
from tachoscope_analyzers.schedulers.kubernetes import kueue, objects
from tachoscope_analyzers.schedulers.kubernetes.observation import Milestone, Observation, mark

_EVICTED = "EvictedDueTo"
# https://github.com/kubernetes-sigs/jobset/blob/main/pkg/constants/constants.go
_JOBSET_RESTARTS = {
    "Restarting",
    "RestartJobSetFailurePolicyAction",
    "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction",
}


def by_object(documents: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the events among the objects, by the key of the object that they are about, in the form of v1."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in documents:
        group, kind = objects.kind(one)
        if kind == "Event" and group in {"", "events.k8s.io"}:
            about = at(one, "involvedObject") or at(one, "regarding")
            key = text(at(about, "uid")) or f"{text(at(about, 'kind'))}/{text(at(about, 'namespace'))}/{text(at(about, 'name'))}"
            found[key].append(_as_v1(one))
    return found


def _as_v1(event: dict[str, Any]) -> dict[str, Any]:
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or at(event, "series", "lastObservedTime") or first
    message = event.get("message") or event.get("note")
    return {"reason": text(event.get("reason")), "message": text(message), "firstTimestamp": first, "lastTimestamp": last}


def observe(events: Iterable[dict[str, Any]]) -> Observation:
    """Return what the events of a job or of its Workload tell: quota reserved, evicted, restarted."""
    marks: tuple[Milestone, ...] = ()
    for event in events:
        reason = text(event.get("reason"))
        words = f"{reason}: {text(event.get('message'))}"
        times = dict.fromkeys(objects.seconds(event.get(which)) for which in ("firstTimestamp", "lastTimestamp"))
        for time in times:
            if reason == "QuotaReserved":
                marks += mark(time, "eligible")
            elif reason.startswith(_EVICTED):
                marks += mark(time, "stopped", kueue.eviction(reason.removeprefix(_EVICTED)), words)
            elif reason in _JOBSET_RESTARTS:
                marks += mark(time, "stopped", "failed", words)
    return Observation(marks=marks)

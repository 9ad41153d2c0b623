"""`cold_start`: nobody is served while a server loads its model, and what arrived meanwhile waits or is refused."""

from __future__ import annotations

import math

import numpy as np

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.serving.classes.states import SecondsByState, starts
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.report.report import Evidence


def candidates(traffic: Traffic, spent: SecondsByState, *, of_requests: bool) -> list[Candidate]:
    """Return the time lost to starts; none where nobody asked for anything, before or after.

    Args:
        of_requests: of requests that waited meanwhile, where they are known and it is the larger share; else of engines.
    """
    found = starts(traffic)
    parts = (spent.requests["cold_start"], spent.request_seconds), (spent.engines["cold_start"], spent.engine_seconds)
    shares = [float(lost.sum() / max(whole.sum(), 1e-12)) for lost, whole in parts]
    if of_requests != (shares[0] > shares[1]):
        return []
    lost = parts[0 if of_requests else 1][0]
    wanted = traffic.count("request_seconds") or sum(traffic.outcomes.values())
    if not found or not lost.any() or not wanted:
        return []
    away = float(spent.engines["cold_start"].sum()) / traffic.engines
    evidence = [
        measured("no answer from the server for", away, "seconds", f"{len(traffic.faults)} samples without answer"),
        *_loading(traffic, found),
        Evidence(signal="requests served in the rest of the window", value=wanted, source="counter of requests"),
    ]
    backlog = float(spent.requests["cold_start"].sum())
    if backlog:
        evidence.append(measured("requests that had gathered waited, together", backlog, "seconds", "queue gauge"))
    return [Candidate("cold_start", lost, "all", evidence, certainty=0.95, speedup=math.inf)]


def _loading(traffic: Traffic, found: list[tuple[float, float]]) -> list[Evidence]:
    """Return how long starts took by the time at which the process began, where the server says that."""
    began = {time: started for time, started in traffic.started if started}
    spans = [ready - began[ready] for _, ready in found if ready in began and began[ready] <= ready]
    if not spans:
        return []
    return [measured("from the process's start to its first answer", np.mean(spans), "seconds", "its own clock")]

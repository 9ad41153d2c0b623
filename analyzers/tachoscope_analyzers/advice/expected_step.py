"""The step that a finding promises, so that its advice promises the same."""

from __future__ import annotations

from tachoscope_analyzers.findings.make import Candidate


def step_without(candidate: Candidate, step_seconds: float) -> float:
    """Return the mean seconds of a step without the loss: replayed where it was, else what is left of `step_seconds`.

    0 where too little else is known to tell.
    """
    return step_seconds / candidate.speedup if candidate.speedup else step_seconds - float(candidate.seconds.mean())

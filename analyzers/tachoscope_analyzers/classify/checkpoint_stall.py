"""Checkpoints: how long training stands still for them."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.classify.input_pipeline import seen_lines
from tachoscope_analyzers.findings.blamed_ranks import culprits
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats import spikes


def candidates(job: JobRecords, steps: Steps, losses: Losses) -> list[Candidate]:
    """Return what the step loses to saving, averaged over all steps; the others wait for the rank that saves."""
    lost = losses.common["checkpoint"] + losses.excess["checkpoint"].sum(axis=1)
    if not lost.any():
        return []
    saving = np.flatnonzero(lost > 0.1 * lost.max())
    evidence = [
        measured(
            "training stood still for one checkpoint",
            lost[saving].mean(),
            "seconds",
            f"step records: {len(saving)} steps with a checkpoint",
        )
    ]
    evidence += spikes.evidence(spikes.rhythm(lost, steps.numbers))
    if len(saving) > 1:
        evidence.append(
            measured("steps from one checkpoint to the next", np.median(np.diff(steps.numbers[saving])), "steps", "step records")
        )
    sizes = [row.bytes for row in job.checkpoints if row.attempt == steps.attempt and row.bytes]
    if sizes:
        evidence.append(measured("size of a checkpoint", np.median(sizes), "bytes", "checkpoint records"))
    who = culprits(steps.own["checkpoint"], steps.ranks).ranks
    evidence += seen_lines(job, steps, "checkpoint", steps.ranks if who == "all" else who)
    return [Candidate("checkpoint_stall", lost, who, evidence)]

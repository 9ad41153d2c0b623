"""Jobs of which it was not measured how long a rank waited for the others.

A rank that waits in backward then looks like one that computes there, and the latest rank is not known. What all ranks spend alike
is known all the same; the rest of the step is some rank's doing, or the exchange: unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tachoscope_analyzers.classify.gpu import losses as gpu_losses
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger import losses
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.steps import CAUSES, Steps
from tachoscope_core.report.report import QualityNote

CLASSES = ("input_straggler", "compute_straggler", "data_imbalance", "comm_exposed", "compute_bound")
"""What cannot be determined without the waiting."""
DEVICE_CLASSES = ("input_fetch", "input_preprocess", "input_workers", "h2d_copy", "launch_bound", "host_pause", "checkpoint_stall")
"""What cannot be determined besides if it is not known what the device did meanwhile; nor can what samples of the device tell."""


def shared(steps: Steps) -> Losses:
    """Return what all ranks spend alike, by cause: the least of them. No rank is later than another, and `transfer` is zero; what
    is left of the step is in no cause.
    """
    common = {cause: steps.own[cause].min(axis=1) for cause in CAUSES}
    nothing = {cause: np.zeros_like(steps.wall) for cause in CAUSES}
    return Losses(steps.wall.max(axis=1), common, nothing, np.zeros(len(steps.numbers)))


def attribute(steps: Steps) -> Losses:
    """Split every step: into what can be told of it where the waiting was not measured."""
    return shared(steps) if steps.waiting_unmeasured else losses.attribute(steps)


def without_unmeasured(candidates: Sequence[Candidate], steps: Steps, split: Losses) -> list[Candidate]:
    """Return the candidates that are left without the waiting, and what is left of the step.

    Where it is not known what a device did in a step, what its host did meanwhile says nothing.
    """
    if not steps.waiting_unmeasured:
        return list(candidates)
    if steps.device != "cpu":
        return [one for one in candidates if one.slug not in missing(steps) and one.slug != "unknown"]
    return [*candidates, *_rest(steps, split)]


def _rest(steps: Steps, split: Losses) -> list[Candidate]:
    """Return the rest of the step, whose cause is unknown."""
    rest = np.maximum(split.step - sum(split.common.values(), np.zeros_like(split.step)), 0.0)
    if not rest.any():
        return []
    evidence = [
        measured("what the ranks do not spend alike", rest.mean(), "seconds per step", f"step records, without {signal(steps)}")
    ]
    return [Candidate("unknown", rest, "all", evidence, 0.5)]


def signal(steps: Steps) -> str:
    """Return the signal that is missing, and on which ranks."""
    ranks = ", ".join(map(str, steps.waiting_unmeasured[:8])) + (", ..." if len(steps.waiting_unmeasured) > 8 else "")
    what = "the CPU clock of backward" if steps.device == "cpu" else "times on the device's own clock"
    return f"{what} (rank {ranks})"


def missing(steps: Steps) -> dict[str, str]:
    """Return the classes that were not measured, with the signal that is missing."""
    classes = CLASSES if steps.device == "cpu" else (*CLASSES, *DEVICE_CLASSES, *gpu_losses.CLASSES)
    return dict.fromkeys(classes, signal(steps)) if steps.waiting_unmeasured else {}


def notes(steps: Steps) -> list[QualityNote]:
    """Return what that means for the whole report."""
    if not steps.waiting_unmeasured:
        return []
    means = "computing and waiting for other ranks are one, in the ledger too; no rank is called late"
    return [QualityNote(what=f"not measured: {signal(steps)}", severity="limited", means=means)]

"""Communication: what all ranks wait for together is the transfer; what they wait for one rank is that rank's doing."""

from __future__ import annotations

from tachoscope_analyzers.judge import Candidate
from tachoscope_analyzers.losses import Losses
from tachoscope_analyzers.steps import Steps
from tachoscope_core.report import Evidence


def candidates(steps: Steps, losses: Losses) -> list[Candidate]:
    """Return what the step loses to exposed transfer.

    Without the records of all ranks, waiting for a late one and transferring look the same: unknown.
    """
    if steps.world_size < 2 or not losses.transfer.any():
        return []
    evidence = [
        Evidence(
            signal="blocked in collectives, the rank that waited least",
            value=float(losses.transfer.mean()),
            unit="seconds per step",
            source="step records",
        ),
        Evidence(
            signal="blocked in collectives, the rank that waited most",
            value=float(steps.waiting.max(axis=1).mean()),
            unit="seconds per step",
            source="step records",
        ),
    ]
    if steps.transfer_measured:
        return [Candidate("comm_exposed", losses.transfer, "all", evidence, 1.0, ("network_degraded", 0.0))]
    return [Candidate("unknown", losses.transfer, "all", evidence, 0.5, ("comm_exposed", 0.0))]

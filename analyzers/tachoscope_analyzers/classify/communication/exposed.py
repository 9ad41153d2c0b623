"""Communication: what all ranks wait for together is the transfer; what they wait for one rank is that rank's doing."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.classify.communication import nccl_waits as collective_waits
from tachoscope_analyzers.classify.communication import network_degraded as network
from tachoscope_analyzers.classify.communication import parallel_dimensions, slow_link
from tachoscope_analyzers.classify.pipeline.attribution import StagedLosses
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps

CLASSES = ("pipeline_bubble", "stage_imbalance", "network_degraded", "slow_link")
"""What only the sends, receives and bytes of the ranks, or the layout of their stages, can show."""

_STAGED_CERTAINTY = 0.7


def candidates(
    job: JobRecords, steps: Steps, losses: Losses, flows: list[slow_link.LinkTraffic]
) -> tuple[list[Candidate], set[str]]:
    """Return what the step loses to exposed transfer, and which of `network_degraded` and `slow_link` could be judged.

    A slow link, and what a network takes beyond its own baseline, are no matter of volume: what is left of the transfer is. Without
    the records of all ranks, waiting for a late one and transferring look the same: unknown.
    """
    judged = {"slow_link"} if slow_link.measured(steps, flows) else set()
    if steps.world_size < 2 or not losses.transfer.any():
        return [], judged
    evidence = [
        measured("blocked in collectives, the rank that waited least", losses.transfer.mean(), "seconds per step", "step records"),
        measured(
            "blocked in collectives, the rank that waited most",
            steps.waiting.max(axis=1).mean(),
            "seconds per step",
            "step records",
        ),
        *collective_waits.evidence(job.collectives, steps.attempt),
    ]
    if not steps.transfer_measured:
        return [Candidate("unknown", losses.transfer, "all", evidence, 0.5, ("comm_exposed", 0.0))], judged
    found = []
    left = losses.transfer
    staged = isinstance(losses, StagedLosses)
    slow, has_baseline = slow_link.slow_link(job, steps, flows, left, staged=staged), False
    if slow is None and not staged:  # of a pipeline only the mean transfer is known
        slow, has_baseline = network.degraded(job, steps, left)
    if slow is not None:
        found.append(slow)
        left = np.asarray(left - slow.seconds)
    judged |= {"network_degraded"} if has_baseline else set()
    evidence += network.bandwidth_evidence(job, steps, float(losses.transfer.mean()))
    evidence += parallel_dimensions.evidence(job, steps)
    if left.any():
        # Between stages transfer is known to be no more than this: sender and receiver may have kept each other waiting in turn.
        certainty, look_alike = (_STAGED_CERTAINTY, "pipeline_bubble") if staged else (1.0, "network_degraded")
        found.append(Candidate("comm_exposed", left, "all", evidence, certainty, (look_alike, 0.0)))
    return found, judged

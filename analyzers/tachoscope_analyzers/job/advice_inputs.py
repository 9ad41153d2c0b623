"""What a job's records say about the inputs of the advice, for people who want to change them; None: not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.advice.workers import Input
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost
from tachoscope_analyzers.classify.gpu.utilisation import most_memory
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.job import advice_loading
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.gpu_by_rank import rank_gpus
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.failure_rate import FailureRate, failure_rate
from tachoscope_core.report.job_life import NOBODYS, Life
from tachoscope_core.report.report import Finding

_NO_FAILURES = ("completed", "running", "unknown", *NOBODYS)


@dataclass(frozen=True, slots=True)
class Loading:
    """What input costs. at_most: workers keep up, so that making takes that long or less."""

    input: Input
    at_most: bool


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How a job saves: one save, seconds from save to save (None: it saved once), and how often it fails.

    Attributes:
        restarts: whether it was measured how long it takes to go on after a failure, `saving.restart`.
    """

    saving: SaveCost
    restarts: bool
    interval: float | None
    rate: FailureRate


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a larger batch may use. idle: seconds of the step in which devices wait for launches; memory: bytes of the fullest."""

    step: float
    idle: float | None
    used_bytes: float | None
    total_bytes: float | None


def of_loading(job: JobRecords, steps: Steps, losses: Losses, findings: Sequence[Finding] = ()) -> Loading | None:
    """Return what the input of a step costs, of the ranks together: the rank that needs longest.

    Args:
        findings: on this job, so that the rest of the step is the one that they promise.
    """
    if not steps.loader_seen:
        return None
    step = losses.mean_step
    waits = float((losses.common["data_wait"] + losses.excess["data_wait"].sum(axis=1)).mean())
    rests = [step / one.speedup_if_fixed for one in findings if one.class_ == "input_straggler" and one.speedup_if_fixed]
    rest = min(rests, default=step - waits)
    found = advice_loading.input_of(job, steps, steps.ranks, step, rest)
    keep_up = bool(found.workers) and waits < threshold("warning_share") * step
    return Loading(found, keep_up)


def of_checkpoints(life: Life, step_seconds: float) -> Checkpoints | None:
    """Return how a job saves and fails, over its whole life; None where it never saved, or it is not known how long it lived."""
    costs = life.checkpoints
    lasted = sum(max(one.end - one.start, 0.0) for one in life.attempts)
    if costs is None or not costs.saves or lasted <= 0:
        return None
    restarts = [_restart(one.reschedule_seconds, one.initialise_seconds, one.restore_seconds) for one in life.recoveries]
    known = [one for one in restarts if one is not None]
    restart = float(np.median(known)) if known else costs.restore_seconds or 0.0
    background = costs.background_seconds if costs.asynchronous else 0.0
    failures = sum(one.ended not in _NO_FAILURES for one in life.attempts)
    saving = SaveCost(costs.blocking_seconds, background, restart, step_seconds)
    return Checkpoints(
        saving, bool(known) or costs.restore_seconds is not None, costs.interval_seconds, failure_rate(failures, lasted)
    )


def _restart(reschedule: float | None, initialise: float | None, restore: float | None) -> float | None:
    return None if initialise is None else (reschedule or 0.0) + initialise + (restore or 0.0)


def of_batch(job: JobRecords, steps: Steps, losses: Losses) -> BatchLimits:
    """Return what devices idle for want of launches, and the memory of the fullest one; on CPU neither is measured."""
    idle = None
    if steps.device != "cpu" and not steps.waiting_unmeasured:
        idle = float((losses.common["launch"] + losses.excess["launch"].sum(axis=1)).mean())
    used, total = None, None
    for gpu in rank_gpus(job, steps)[0]:
        mine = most_memory(gpu, "used"), most_memory(gpu, "total")
        if mine[0] and mine[1] and (used is None or total is None or mine[0] / mine[1] > used / total):
            used, total = mine
    return BatchLimits(losses.mean_step, idle, used, total)

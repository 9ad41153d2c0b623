"""Advice on what the step records of a job show: the numbers of each formula are looked up here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tachoscope_analyzers.advice import batch, drain, exchange, interval, threads
from tachoscope_analyzers.advice.advised import NONE, Advised
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost
from tachoscope_analyzers.classify.communication import parallel_dimensions
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.job import advice_loading
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.step_table import Array
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.report.taxonomy import BY_SLUG

INPUT = ("input_fetch", "input_preprocess", "input_workers", "input_straggler")
"""The classes of input that workers of the loader may help against."""


@dataclass(frozen=True, slots=True)
class LossCase:
    """A loss, with all that is known of the steps that it is of."""

    candidate: Candidate
    job: JobRecords
    steps: Steps
    losses: Losses

    @property
    def lost(self) -> float:
        """Mean seconds of a step that are lost."""
        return float(self.candidate.seconds.mean())

    @property
    def step(self) -> float:
        """Mean seconds of a step."""
        return self.losses.mean_step


def advised(candidates: Sequence[Candidate], job: JobRecords, steps: Steps, losses: Losses) -> list[Candidate]:
    """Return the candidates; those that are large enough to be reported with an action in numbers, as far as they were measured."""
    least = threshold("warning_share") * losses.mean_step
    found = []
    for one in candidates:
        make = _BY_SLUG.get(one.slug)
        large = one.seconds.mean() >= least or one.level is not None
        made = make(LossCase(one, job, steps, losses)) if make is not None and large and one.seconds.any() else NONE
        found.append(with_advice(one, made, losses.mean_step) if made.text else one)
    return found


def with_advice(candidate: Candidate, made: Advised, step_seconds: float) -> Candidate:
    """Return the candidate with its advice.

    Of input that all ranks wait for, the finding promises what the advice does: handing batches over from workers remains, and
    cores may limit them. Where the advice promises nothing, neither does the finding.
    """
    found = replace(candidate, action=made.text, advice=made.in_report)
    if candidate.slug not in INPUT or candidate.slug == "input_straggler":
        return found
    return replace(found, speedup=step_seconds / made.expected if made.expected else math.inf)


def _workers(case: LossCase) -> Advised:
    return advice_loading.advice(case.candidate, case.job, case.steps, case.step)


def _checkpoint(case: LossCase) -> Advised:
    """Return advice on the checkpoint interval; none with only one save, or none of the steps between two."""
    lost = case.candidate.seconds
    saving = np.flatnonzero(lost > 0.1 * lost.max())
    if len(saving) < 2:
        return NONE
    every = float(np.median(np.diff(case.steps.numbers[saving]))) * case.step
    blocking = float(lost[saving].mean())
    if every <= blocking:
        return NONE
    rows = [row for row in case.job.checkpoints if row.attempt == case.steps.attempt and row.asynchronous]
    background = float(np.median([row.background_seconds for row in rows])) if rows else 0.0
    failed = bool(case.job.failures) or len({row.attempt for row in case.job.starts}) > 1
    saved = SaveCost(blocking, background, step=case.step - case.lost)
    return interval.of_attempt(saved, every, case.lost / case.step, case.job.job, failed=failed)


def _exchange(case: LossCase) -> Advised:
    """Return advice on the gradient exchange; none in a pipeline, whose stages pass on more than gradients.

    Groups that split a model exchange in each batch, whenever gradients are.
    """
    if any(start.layout.get("pp", 1) > 1 for start in case.steps.starts):
        return NONE
    of_batches = [one for one in parallel_dimensions.exposed(case.job, case.steps) if one.dimension != "dp"]
    if sum(one.blocked_seconds for one in of_batches) > case.lost / 2:
        return exchange.of_each_batch([one.dimension for one in of_batches])
    found = exchange.Exchange(
        step=case.step,
        exposed=case.lost,
        ranks=case.steps.world_size,
        backward=_own_backward(case),
        blocking_calls=_mean(np.nan_to_num(_column(case, "collective_seconds"))) or 0.0,
    )
    return exchange.advice(found)


def _own_backward(case: LossCase) -> float | None:
    """Return a rank's own backward seconds on CPU, if its clock was read; None on accelerators."""
    if case.steps.device != "cpu":
        return None
    read = _column(case, "backward_cpu_seconds")
    return _mean(read[~np.isnan(read)])


def _column(case: LossCase, name: str) -> Array:
    return advice_loading.rows_of(case.job, case.steps, case.steps.ranks).column(name)


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None


def _drain(case: LossCase) -> Advised:
    ranks = case.candidate.ranks
    if ranks == "all":
        return NONE
    late, windows = drain.windows_with_the_loss(case.candidate.seconds, case.losses.step)
    places = {start.rank: drain.RankPlacement(start.host, start.local_rank, start.gpu_uuid) for start in case.steps.starts}
    return Advised(drain.advice(drain.LateRanks(ranks, case.steps.world_size, places, case.lost, case.step, late, windows)))


def _throttle(case: LossCase) -> Advised:
    where = _drain(case).text
    return Advised(f"{case.candidate.action or BY_SLUG['gpu_throttle'].fix}. {where}") if where else NONE


def _threads(case: LossCase) -> Advised:
    return NONE if case.candidate.action else threads.advice(case.steps.starts)  # where others than threads take the cores


_BY_SLUG: dict[str, Callable[[LossCase], Advised]] = {
    **dict.fromkeys(INPUT, _workers),
    "compute_straggler": _drain,
    "gpu_throttle": _throttle,
    "cpu_contention": _threads,
    "comm_exposed": _exchange,
    "checkpoint_stall": _checkpoint,
    "launch_bound": lambda case: Advised(batch.for_launches(case.step, case.lost, case.step - case.lost)),
}
"""The classes for which there is more to say than the standard fix."""

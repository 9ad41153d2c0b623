"""Pipelines: ranks of different stages do different work, and wait for each other by design.

A step of p stages and m micro-batches, of which stage s works M_s seconds in all, lasts as long as one micro-batch takes through
all stages and the slowest stage takes for the others: (sum of M_s + (m - 1) x largest M_s) / m. With even stages the waiting is
(p - 1)/m of the work, which is (p - 1)/(m + p - 1) of the step: the bubble of Megatron-LM, https://arxiv.org/abs/2104.04473.
With v chunks of the model on each stage (an interleaved schedule) v m stands for m in both.
What uneven stages add to that is what spreading the layers evenly would win: (m - 1)/m x (largest - mean).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.classify.stragglers import busy_other
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import CAUSES, Steps
from tachoscope_analyzers.stats.arrays import Matrix

_BY_MICRO_BATCH = ("compute", "cpu_wait")

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Which stage each rank is, shape (R,); `stages` is p. source: how it is known.

    Attributes:
        micro_batches: m; with an interleaved schedule v m, since each of a stage's v chunks has a backward call of its own.
    """

    stage: Indices
    stages: int
    micro_batches: int
    source: str

    @property
    def ideal_bubble(self) -> float:
        """What even stages wait, over what each works."""
        return (self.stages - 1) / self.micro_batches

    @property
    def bubble_share(self) -> float:
        """The share of the step that waiting takes if all stages are even."""
        return (self.stages - 1) / (self.micro_batches + self.stages - 1)

    def columns(self, stage: int) -> Indices:
        return np.flatnonzero(self.stage == stage)


@dataclass(frozen=True, slots=True)
class StagedLosses(Losses):
    """Losses of a pipeline: `common` + `excess` + `transfer` + these is the wall time of the latest rank.

    Attributes:
        bubble: what even stages would wait. imbalance: what uneven ones add, below zero where another stage was the slowest.
        unexplained: waiting that is neither, nor transfer, nor for a late rank within its stage.
        straggling: what is lost to a rank that is later than the others of its stage. Each of shape (K,).
        slowest: the stage with most work.
    """

    pipeline: Pipeline

    bubble: Matrix
    imbalance: Matrix
    unexplained: Matrix
    straggling: Matrix
    slowest: int


def find(job: JobRecords, steps: Steps) -> Pipeline | None:
    """Return the pipeline that the job says it is, or that its sends and receives show; None: it is none, or it cannot be known.

    On accelerators it is not judged: how long a rank waits there for another stage, step records do not tell.
    """
    if steps.device != "cpu" or len(steps.ranks) != steps.world_size:
        return None
    calls = np.median(steps.backward_calls, axis=0)
    micro_batches = max(1, int(calls.min()))
    said = sorted({tuple(ranks) for start in steps.starts for ranks in start.groups.get("pp", []) if len(ranks) > 1})
    if said:
        return _placed(said, steps, micro_batches, "layout of the ranks")
    chains = _chains(job, steps)
    # Two ranks that exchange gradients look like a chain too, but compute them once a step.
    if chains and micro_batches > 1:
        return _placed(chains, steps, micro_batches, "sends and receives")
    return None


def has_pipeline_traffic(job: JobRecords, steps: Steps) -> bool:
    """Return whether the job would be seen to be a pipeline without saying so: what its ranks send each other is recorded."""
    seen = any(row.writer in steps.writers for row in job.collectives)
    return steps.device == "cpu" and steps.world_size > 1 and seen and len(steps.ranks) == steps.world_size


def is_declared(steps: Steps) -> bool:
    """Return whether the job says that it is a pipeline, be it judged as one or not."""
    return any(len(ranks) > 1 for start in steps.starts for ranks in start.groups.get("pp", []))


def without_blamed_rank(late: Candidate) -> Candidate:
    """Return what is lost to a late rank where the stages cannot be judged: it may be that its stage has more layers."""
    return replace(late, slug="unknown", certainty=min(late.certainty, 0.5), alternative=("stage_imbalance", 0.0))


def _placed(pipelines: list[tuple[int, ...]], steps: Steps, micro_batches: int, source: str) -> Pipeline | None:
    stage_of = {rank: stage for ranks in pipelines for stage, rank in enumerate(ranks)}
    if set(stage_of) != set(steps.ranks) or len({len(ranks) for ranks in pipelines}) != 1:
        return None
    stage = np.array([stage_of[rank] for rank in steps.ranks], dtype=np.int64)
    return Pipeline(stage, len(pipelines[0]), micro_batches, source)


def _chains(job: JobRecords, steps: Steps) -> list[tuple[int, ...]]:
    """Return the chains of ranks that exchange with their neighbours, if they cover all ranks."""
    peers: dict[int, set[int]] = defaultdict(set)
    for row in job.collectives:
        if row.peer >= 0 and row.writer in steps.writers:
            peers[row.rank].add(row.peer)
    chains = []
    left = set(steps.ranks)
    while left:
        chain = _connected(min(left), peers)
        left -= set(chain)
        neighbours = [{*chain[max(0, place - 1) : place], *chain[place + 1 : place + 2]} for place in range(len(chain))]
        if len(chain) < 2 or any(peers[rank] != near for rank, near in zip(chain, neighbours, strict=True)):
            return []
        chains.append(tuple(chain))
    return chains


def _connected(rank: int, peers: dict[int, set[int]]) -> list[int]:
    found, waiting = {rank}, [rank]
    while waiting:
        new = peers[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return sorted(found)


def with_gaps_as_compute(steps: Steps) -> Steps:
    """Return the steps with what ranks compute outside of all phases as computing: a first stage without a loader makes its first
    micro-batch there, where nothing yet tells that it is one. Ranks that rest there stay as they are.
    """
    computed = steps.own["other"] * busy_other(steps)
    own = steps.own | {"compute": steps.own["compute"] + computed, "other": steps.own["other"] - computed}
    return replace(steps, own=own)


def attribute(steps: Steps, pipeline: Pipeline, moving: Mapping[int, float]) -> StagedLosses:
    """Split every step of a pipeline; the reference for a late rank is the lower median of its own stage.

    Args:
        moving: seconds per step that each rank is blocked for by moving data (`slow_link.moving`), for what of the
            waiting is transfer.
    """
    m, rows = pipeline.micro_batches, np.arange(len(steps.numbers))
    own = sum(steps.own.values(), np.zeros_like(steps.wall))
    optimizer = np.minimum(steps.optimizer, steps.own["compute"])
    work = sum((steps.own[cause] for cause in _BY_MICRO_BATCH), np.zeros_like(steps.wall)) - optimizer
    typical, latest = _places(own, pipeline)
    work_typical, work_latest = _at(work, typical), _at(work, latest)
    once_typical, once_latest = _at(own - work, typical), _at(own - work, latest)
    step = steps.wall[rows, own.argmax(axis=1)]
    common = _common(steps, optimizer, typical, once_typical.argmax(axis=1), step)
    left = step - sum(common.values(), np.zeros(len(rows)))
    late_by = _lasts(work_latest, m) + once_latest.max(axis=1) - _lasts(work_typical, m) - once_typical.max(axis=1)
    straggling = np.clip(late_by, 0.0, left)
    excess = _excess(steps, own, typical, latest, straggling)
    left = left - straggling
    slowest = int(work_typical.mean(axis=0).argmax())
    imbalance = np.minimum((m - 1) / m * (work_typical[:, slowest] - work_typical.mean(axis=1)), left)
    left = left - imbalance
    bubble = np.clip((pipeline.stages - 1) / m * work_typical.mean(axis=1), 0.0, left)
    left = left - bubble
    transfer = np.minimum(left, max(moving.values(), default=0.0))
    return StagedLosses(step, common, excess, transfer, pipeline, bubble, imbalance, left - transfer, straggling, slowest)


def _lasts(work: Matrix, micro_batches: int) -> Matrix:
    """Return the duration of the stages' work, shape (K, p), as a pipeline, shape (K,)."""
    return np.asarray((work.sum(axis=1) + (micro_batches - 1) * work.max(axis=1)) / micro_batches)


def _places(own: Matrix, pipeline: Pipeline) -> tuple[Indices, Indices]:
    """Return the columns of the typical (lower median) and the latest rank of each step and stage, shape (K, p)."""
    typical, latest = [], []
    for stage in range(pipeline.stages):
        columns = pipeline.columns(stage)
        order = columns[np.argsort(own[:, columns], axis=1, kind="stable")]
        typical.append(order[:, (len(columns) - 1) // 2])
        latest.append(order[:, -1])
    return np.stack(typical, axis=1), np.stack(latest, axis=1)


def _at(values: Matrix, places: Indices) -> Matrix:
    return np.take_along_axis(values, places, axis=1)


def _common(steps: Steps, optimizer: Matrix, typical: Indices, heaviest: Indices, step: Matrix) -> dict[str, Matrix]:
    """Return by cause what a step of even stages costs: the mean of what is done by micro-batch, and of what is done once a step
    that of the stage that spends most on it; never more than the step.
    """
    place = np.take_along_axis(typical, heaviest[:, None], axis=1)
    common = {cause: _at(steps.own[cause], place)[:, 0] for cause in CAUSES}
    for cause in _BY_MICRO_BATCH:
        once = optimizer if cause == "compute" else np.zeros_like(optimizer)
        common[cause] = _at(steps.own[cause] - once, typical).mean(axis=1) + _at(once, place)[:, 0]
    total = sum(common.values(), np.zeros_like(step))
    fits = np.minimum(np.divide(step, total, out=np.ones_like(step), where=total > 0), 1.0)
    return {cause: seconds * fits for cause, seconds in common.items()}


def _excess(steps: Steps, own: Matrix, typical: Indices, latest: Indices, straggling: Matrix) -> dict[str, Matrix]:
    """Attribute the loss to late ranks to the causes of the latest rank within its stage."""
    rows = np.arange(len(straggling))
    stage = (_at(own, latest) - _at(own, typical)).argmax(axis=1)
    late, usual = latest[rows, stage], typical[rows, stage]
    over = {cause: np.maximum(steps.own[cause][rows, late] - steps.own[cause][rows, usual], 0.0) for cause in CAUSES}
    total = sum(over.values(), np.zeros_like(straggling))
    scale = np.divide(straggling, total, out=np.zeros_like(total), where=total > 0)
    excess = {}
    for cause in CAUSES:
        excess[cause] = np.zeros_like(steps.wall)
        excess[cause][rows, late] = over[cause] * scale
    return excess


def waits(steps: Steps, losses: Losses) -> dict[str, Matrix] | None:
    """Return each rank's waiting by state of the ledger, shape (K, R): what is neither transfer nor a late rank is the bubble.

    None without stages.
    """
    if not isinstance(losses, StagedLosses):
        return None
    transfer = np.minimum(losses.transfer[:, None], steps.waiting)
    late = np.minimum(losses.straggling[:, None], steps.waiting - transfer)
    return {"communication": transfer, "straggler_wait": late, "pipeline_bubble": steps.waiting - transfer - late}

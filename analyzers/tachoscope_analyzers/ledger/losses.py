"""Attribution that sums: what each step lost, to which cause, on which rank.

In synchronous training a step lasts as long as its latest rank needs: wall = own time of the latest rank + transfer. The own
time of that rank splits into what the ranks have in common and its excess over them. For the closed form of the data-parallel
case see TraceML's straggler policy, https://github.com/traceopt-ai/traceml (docs/developer_guide/rank-straggler-policy.md).

Shapley values over the causes (`stats.shapley`) were tried here and not kept: their reference is the sum of each cause's own
median, which no rank need have. On ranks that differ by chance only they lost 15.0 % of the step where the closed form lost 10.7 %
(two ranks, simulated), and they blame ranks that never wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.records.steps import CAUSES, Steps
from tachoscope_analyzers.stats.arrays import Matrix


@dataclass(frozen=True, slots=True)
class Losses:
    """Seconds of each step, shape (K,) unless said otherwise. `common` over all causes + `excess` over all causes and ranks +
    `transfer` is the wall time of the latest rank.

    Attributes:
        step: wall seconds of the latest rank.
        common: by cause, what the latest rank spent and the others did too.
        excess: by cause, what only the latest rank spent while others waited, shape (K, R): zero but in its column.
        transfer: what the rank that waited least still waited.
    """

    step: Matrix
    common: dict[str, Matrix]
    excess: dict[str, Matrix]
    transfer: Matrix

    @property
    def mean_step(self) -> float:
        """Mean step time in seconds."""
        return float(self.step.mean())


def attribute(steps: Steps) -> Losses:
    """Split every step.

    The reference for an excess is the median rank, or with two ranks the other one: there is no majority of two.
    """
    rows = np.arange(len(steps.numbers))
    own = sum(steps.own.values(), np.zeros_like(steps.wall))
    latest = own.argmax(axis=1)
    transfer = steps.waiting.min(axis=1)
    # Nobody loses more to a late rank than somebody waited; ranks that never meet lose nothing.
    waited = steps.waiting.max(axis=1) - transfer
    late_by = np.minimum(own[rows, latest] - _typical(own), waited)
    over = np.stack([np.maximum(steps.own[cause][rows, latest] - _typical(steps.own[cause]), 0.0) for cause in CAUSES])
    beyond_mean = np.stack([steps.own[cause][rows, latest] - steps.own[cause].mean(axis=1) for cause in CAUSES])
    common: dict[str, Matrix] = {}
    excess: dict[str, Matrix] = {}
    for cause, reconciled in zip(CAUSES, _reconciled(over, late_by, _variance(beyond_mean)), strict=True):
        part = np.minimum(reconciled, steps.own[cause][rows, latest])
        excess[cause] = np.zeros_like(steps.wall)
        excess[cause][rows, latest] = part
        common[cause] = steps.own[cause][rows, latest] - part
    return Losses(steps.wall[rows, latest], common, excess, steps.waiting[rows, latest])


def _reconciled(over: Matrix, late_by: Matrix, variance: Matrix) -> Matrix:
    """Return by how much each cause made the latest rank late, shape (C, K): never negative, `late_by` in sum.

    By chance a rank is faster in some causes, and slower in others by more than it is late. What is too much is taken from each
    cause in proportion to its variance over the steps, as weighted least squares does: a pause of the same length in each step
    keeps its length, although computing varies beside it.

    Args:
        over: how much longer the latest rank spent on each cause than is typical, shape (C, K). late_by: shape (K,).
        variance: of each cause, shape (C, 1).
    """
    part = over.copy()
    for _ in range(len(part)):  # each time a cause that has nothing left leaves the rest to the others
        weight = np.where(part > 0, variance, 0.0)
        share = np.divide(weight, weight.sum(axis=0), out=np.zeros_like(weight), where=weight.sum(axis=0) > 0)
        part = np.maximum(part - share * np.maximum(part.sum(axis=0) - late_by, 0.0), 0.0)
    total = part.sum(axis=0)
    return np.asarray(part * np.divide(late_by, total, out=np.zeros_like(total), where=total > 0))


def _variance(values: Matrix) -> Matrix:
    """Return a number in proportion to the variance of each row, shape (C, 1), by deviations from the median: some steps in which
    something else happens, such as a checkpoint, do not count as variance.
    """
    return np.asarray(np.square(np.median(np.abs(values - np.median(values, axis=1, keepdims=True)), axis=1, keepdims=True)))


def saved(steps: Steps, causes: Collection[str], ranks: Collection[int]) -> Matrix:
    """Return what each step saves if these causes were as long on these ranks as they usually are, shape (K,); never negative.

    Leave one out: the latest rank but for that, which may be another one, sets the step then. So it can be far less than the excess
    that these ranks have, where another rank is nearly as late. Nobody saves more than somebody waited.
    """
    own = sum(steps.own.values(), np.zeros_like(steps.wall))
    remaining = own.copy()
    columns = np.flatnonzero(np.isin(steps.ranks, list(ranks)))
    for cause in causes:
        over = np.maximum(steps.own[cause] - _typical(steps.own[cause])[:, None], 0.0)
        remaining[:, columns] -= over[:, columns]
    waited = steps.waiting.max(axis=1) - steps.waiting.min(axis=1)
    return np.asarray(np.minimum(own.max(axis=1) - remaining.max(axis=1), waited))


def _typical(values: Matrix) -> Matrix:
    """Return the lower median over ranks, shape (K,): of two ranks the lesser, of one itself."""
    return np.asarray(np.sort(values, axis=1)[:, (values.shape[1] - 1) // 2])

"""The step times of two runs on one axis: the number of the step, or how far each run was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import Matrix

COLUMNS = 120
Axis = Literal["step", "share"]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps in their order: `numbers`, and `seconds` of each, both of shape (K,)."""

    numbers: npt.NDArray[np.int64]
    seconds: Matrix


@dataclass(frozen=True, slots=True)
class AlignedSteps:
    """Step times in columns of one axis, each array of shape (columns,).

    Attributes:
        axis: what `at` counts: steps, or the share of the run in percent. at: middle of the column.
        runs: for each run the 5 %, 50 % and 95 % quantile of the step seconds in a column; NaN where it has no step there.
        steps: most steps of a run in a column.
    """

    axis: Axis
    at: Matrix
    runs: tuple[tuple[Matrix, Matrix, Matrix], ...]
    steps: int


def aligned_steps(runs: tuple[StepTimes, ...], axis: Axis = "step", *, columns: int = COLUMNS) -> AlignedSteps:
    """Put the runs into columns of equal width over all that any of them has; fewer columns where there are fewer steps."""
    places = [_places(run, axis) for run in runs]
    least = min((float(one.min()) for one in places if len(one)), default=0.0)
    most = max((float(one.max()) for one in places if len(one)), default=0.0)
    count = max(1, min(columns, max((len(one) for one in places), default=1)))
    width = (most - least) / count or 1.0
    cells = [np.minimum(((one - least) / width).astype(int), count - 1) for one in places]
    return AlignedSteps(
        axis=axis,
        at=np.asarray(least + width * (np.arange(count) + 0.5), dtype=np.float64),
        runs=tuple(_quantiles(run.seconds, cell, count) for run, cell in zip(runs, cells, strict=True)),
        steps=max((int(np.bincount(cell).max()) for cell in cells if len(cell)), default=0),
    )


def _places(run: StepTimes, axis: Axis) -> Matrix:
    if axis == "step":
        return run.numbers.astype(np.float64)
    return 100 * (np.arange(len(run.numbers)) + 0.5) / max(len(run.numbers), 1)


def _quantiles(seconds: Matrix, cells: npt.NDArray[np.int64], count: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return three quantiles of each column; cells rise, since steps are in order."""
    found = np.full((3, count), np.nan)
    bounds = np.searchsorted(cells, np.arange(count + 1))
    for column in range(count):
        part = seconds[bounds[column] : bounds[column + 1]]
        if len(part):
            found[:, column] = np.quantile(part, [0.05, 0.5, 0.95])
    return found[0], found[1], found[2]

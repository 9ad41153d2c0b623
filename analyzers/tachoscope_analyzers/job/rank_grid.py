"""Seconds of every step and rank, as few enough cells for a picture: of 1,000 ranks and 100,000 steps there are 100 million."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.job.timeline import bin_edges
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix

MOST_ROWS, MOST_COLUMNS = 200, 100
"""20,000 cells: as many as a screen has room for, and 160 KB."""


@dataclass(frozen=True, slots=True)
class RankGrid:
    """Cells of ranks in a row x steps in a row, shape (rows, columns) unless said otherwise.

    Attributes:
        first_rank, last_rank: of each row, shape (rows,). first_step, last_step: numbers of each column's steps, shape (columns,).
        start, end: of each column in Unix seconds, shape (columns,).
        seconds: sum over the cell's ranks and steps: what is binned is neither lost nor counted twice.
        worst_seconds: seconds a step of the rank that has most in the cell: one of many must not be hidden by the others.
        worst_rank: which one that is.
    """

    first_rank: npt.NDArray[np.int64]
    last_rank: npt.NDArray[np.int64]
    first_step: npt.NDArray[np.int64]
    last_step: npt.NDArray[np.int64]
    start: Matrix
    end: Matrix
    seconds: Matrix
    worst_seconds: Matrix
    worst_rank: npt.NDArray[np.int64]


def own_time(steps: Steps) -> RankGrid:
    """Return what ranks spent on their own work, which is all but waiting for others."""
    return grid(steps, sum(steps.own.values(), np.zeros_like(steps.wall)))


def waiting(steps: Steps) -> RankGrid:
    """Return how long ranks were blocked in collectives, for a later rank or for the transfer."""
    return grid(steps, steps.waiting)


def grid(steps: Steps, seconds: Matrix) -> RankGrid:
    """Return seconds of shape (K, R) as cells."""
    columns, rows = bin_edges(len(steps.numbers), MOST_COLUMNS), bin_edges(len(steps.ranks), MOST_ROWS)
    ranks = np.asarray(steps.ranks, dtype=np.int64)
    by_column = np.add.reduceat(seconds, columns[:-1], axis=0).T  # rank x column
    mean = by_column / np.diff(columns)
    worst = np.stack([begin + mean[begin:end].argmax(axis=0) for begin, end in pairwise(rows)])
    return RankGrid(
        first_rank=ranks[rows[:-1]],
        last_rank=ranks[rows[1:] - 1],
        first_step=steps.numbers[columns[:-1]],
        last_step=steps.numbers[columns[1:] - 1],
        start=(steps.unix_ends - steps.wall)[columns[:-1]].min(axis=1),
        end=steps.unix_ends[columns[1:] - 1].max(axis=1),
        seconds=np.add.reduceat(by_column, rows[:-1], axis=0),
        worst_seconds=np.take_along_axis(mean, worst, axis=0),
        worst_rank=ranks[worst],
    )

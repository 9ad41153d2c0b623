"""A rank's own part of backward in the steps in which its CPU clock was not read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.stats.linear_fit import fitted

Matrix = npt.NDArray[np.float64]


def own_backward(between: Matrix, column: Callable[[str], Matrix]) -> Matrix:
    """Return the CPU seconds of backward, shape (K, R): as read, else what forward tells, else the given interpolation.

    Where both follow the data, forward of a step (which is measured in each) tells more of its backward than the steps around it
    do: then the line through the steps in which both are known is used, rank by rank.

    Args:
        between: interpolated between the steps in which the clock was read, shape (K, R).
        column: returns a column of the steps' table.
    """
    read_seconds, forward, backward = column("backward_cpu_seconds"), column("forward_seconds"), column("backward_seconds")
    found = between.copy()
    for rank in range(found.shape[1]):
        read = ~np.isnan(read_seconds[:, rank])
        if read.all() or read.sum() < threshold("imbalance_steps"):
            continue
        line = fitted(forward[read, rank], read_seconds[read, rank])
        if line.correlation >= threshold("imbalance_correlation"):
            told = line.slope * forward[~read, rank] + line.intercept
            found[~read, rank] = np.clip(told, 0.0, backward[~read, rank])
    return found

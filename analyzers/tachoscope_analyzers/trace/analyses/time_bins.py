"""What changes at moments (the length of a queue, allocated memory) as its mean and largest value in each of a few bins."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds

Values = npt.NDArray[np.float64]


class BinnedQuantity(msgspec.Struct, frozen=True):
    """A quantity over time, shape (B,); NaN in bins before its first value. mean: weighted by time. most: in the bin."""

    mean: Values
    most: Values


def binned(time: Nanoseconds, value: Values, bounds: Nanoseconds) -> BinnedQuantity:
    """Return the course of a quantity that keeps each value until the next one, the last for ever.

    Args:
        time: ns, sorted, shape (C,). value: from then on, shape (C,). bounds: edges of the bins, ns, rising, shape (B + 1,).
    """
    bins = len(bounds) - 1
    nothing = np.full(bins, np.nan)
    if not len(time):
        return BinnedQuantity(nothing, nothing.copy())
    lower, upper = bounds[:-1], bounds[1:]
    begin = np.maximum(lower, time[0])
    length = np.maximum(upper - begin, 0)
    known = length > 0
    mean = np.where(known, (_before(time, value, upper) - _before(time, value, begin)) / np.maximum(length, 1), np.nan)
    first = np.maximum(np.searchsorted(time, begin, side="right") - 1, 0)  # what holds where the bin begins
    last = np.maximum(np.searchsorted(time, upper, side="left"), first + 1)
    most = np.maximum.reduceat(np.append(value, -np.inf), np.stack([first, last], axis=1).ravel())[::2]
    return BinnedQuantity(mean, np.where(known, most, np.nan))


def _before(time: Nanoseconds, value: Values, moments: Nanoseconds) -> Values:
    """Return the integral up to each moment, in units of the value times ns."""
    whole = np.append(0.0, np.cumsum(value[:-1] * np.diff(time)))
    place = np.maximum(np.searchsorted(time, moments, side="right") - 1, 0)
    return np.asarray(whole[place] + value[place] * np.maximum(moments - time[place], 0))

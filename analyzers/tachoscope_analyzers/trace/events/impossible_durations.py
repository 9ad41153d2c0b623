"""Durations that cannot be: on a stream, which does one thing after another, no event outlasts the next one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds

Array = npt.NDArray[np.int64]


def ends_in_order(device: Array, stream: Array, start: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
    """Return the ends of device events; one that outlasts any later event of its stream is cut to the next one's start, shape (D,).

    Profilers of AMD's devices write such durations, also several in a row (https://github.com/AMD-AGI/TraceLens/issues/669), which
    would make a device look busy for hours. An event that only reaches into the next one stays as it is: kernels with programmatic
    dependent launch do that. The events must be sorted by device, stream and start; those of stream -1 have no order.
    """
    result = end.copy()
    changes = np.flatnonzero((device[1:] != device[:-1]) | (stream[1:] != stream[:-1])) + 1
    for first, last in zip([0, *changes.tolist()], [*changes.tolist(), len(start)], strict=True):
        if last - first > 1 and stream[first] >= 0:
            result[first:last] = _of_one_stream(start[first:last], end[first:last])
    return result


def _of_one_stream(start: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
    if (end[:-1] <= start[1:]).all():
        return end
    later = np.searchsorted(start, start, side="right")  # the next event that starts later than this one
    followed = later < len(start)
    later = np.minimum(later, len(start) - 1)
    earliest = np.minimum.accumulate(end[::-1])[::-1]  # end of this and all after it
    return np.where(followed & (end > earliest[later]), start[later], end)

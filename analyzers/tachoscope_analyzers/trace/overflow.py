"""Durations that cannot be: on a stream, which does one thing after another, no event outlasts the next one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.times import Nanoseconds

Array = npt.NDArray[np.int64]


def ends_in_order(device: Array, stream: Array, start: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
    """Return the ends of device events; one that outlasts its successor on the stream is cut to that one's start, shape (D,).

    Profilers of AMD's devices write such durations (https://github.com/AMD-AGI/TraceLens/issues/669), which would make a device
    look busy for hours. An event that only reaches into the next one stays as it is: kernels with programmatic dependent launch do
    that. The events must be sorted by device, stream and start; those of stream -1 have no order.
    """
    if len(start) < 2:
        return end
    same = (device[1:] == device[:-1]) & (stream[1:] == stream[:-1]) & (stream[1:] >= 0)
    outlasts = same & (end[:-1] > end[1:]) & (start[1:] > start[:-1])
    return np.append(np.where(outlasts, start[1:], end[:-1]), end[-1])

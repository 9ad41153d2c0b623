"""What of the time in collectives is not hidden behind computing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.intervals import Intervals, covered, difference, union
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds

Array = npt.NDArray[Any]
COMMUNICATION_OPERATORS = ("c10d::", "_c10d_functional::", "c10d_functional::", "record_param_comms")


class Computing:
    """When each device, and the host, computes: kernels that do not communicate, and operators that do not.

    Args:
        view: the trace.
        communicating: which device events are kernels that communicate, shape (D,) in the order of `View.work`.
    """

    def __init__(self, view: TraceView, communicating: npt.NDArray[np.bool_]) -> None:
        self._view = view
        self._communicating = communicating
        self._known: dict[tuple[str, int], Intervals] = {}

    def intervals(self, side: str, device: int) -> Intervals:
        """Return when a device (side `device`) or the host computes."""
        if (side, device) not in self._known:
            self._known[side, device] = self._device(device) if side == "device" else self._host()
        return self._known[side, device]

    def _device(self, device: int) -> Intervals:
        work = self._view.work
        kernels = (work.kind == Kind.KERNEL) & (work.device == device) & ~self._communicating
        return union(work.start[kernels], work.end[kernels])

    def _host(self) -> Intervals:
        trace = self._view.trace
        operators = np.flatnonzero(trace.kind == Kind.CPU_OP)
        codes, place = trace.distinct_names(operators)
        computing = np.array([not text.startswith(COMMUNICATION_OPERATORS) for text in trace.strings[codes]], dtype=bool)
        rows = operators[computing[place]]
        return union(trace.start[rows], trace.end[rows])

    def exposed_each(self, rows: Array) -> Nanoseconds:
        """Return for each collective (`collectives.ROW`) how long nothing was computed on its device, in ns, 0 for launches."""
        exposed = np.where(rows["side"] == "launch", 0, rows["duration_ns"])
        for side, device in _places(rows):
            mine = (rows["side"] == side) & (rows["device"] == device)
            exposed[mine] -= covered(self.intervals(side, device), rows["start_ns"][mine], rows["end_ns"][mine])
        return np.asarray(exposed, dtype=np.int64)

    def exposed(self, rows: Array) -> list[Intervals]:
        """Return when any of some collectives ran while nothing was computed beside it, one set for each device and the host."""
        found = []
        for side, device in _places(rows):
            mine = (rows["side"] == side) & (rows["device"] == device)
            busy = union(rows["start_ns"][mine], rows["end_ns"][mine])
            found.append(difference(busy, self.intervals(side, device)))
        return found


def _places(rows: Array) -> list[tuple[str, int]]:
    """Return the places of collectives, (side, device), launches separately."""
    places = set(zip(rows["side"].tolist(), rows["device"].tolist(), strict=True))
    return sorted(place for place in places if place[0] != "launch")

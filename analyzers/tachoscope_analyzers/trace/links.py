"""What launched what: from device work to the host call that launched it, and on to the operator around that call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.kinds import DEVICE, Kind
from tachoscope_analyzers.trace.nesting import parents
from tachoscope_analyzers.trace.overflow import ends_in_order
from tachoscope_analyzers.trace.trace import Trace

Rows = npt.NDArray[np.int64]
"""Numbers of events, -1 for none."""


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """The events that occupy an accelerator (kernels, copies, fills), sorted by device, stream and start, shape (D,).

    Attributes:
        row: number of the event. place: its number in `Trace.device`, -1 for writers without that table. kind: `Kind`.
        start, end: ns, an end that cannot be (`overflow`) cut. device, stream: as the trace numbers them.
        launch: row of the host call that launched it, -1 where the trace has none. One call launches a whole CUDA graph.
    """

    row: Rows
    place: Rows
    kind: npt.NDArray[np.uint8]
    start: Rows
    end: Rows
    device: Rows
    stream: Rows
    launch: Rows

    def __len__(self) -> int:
        return len(self.row)


def device_work(trace: Trace) -> DeviceWork:
    """Return the device's events. A stream among the arguments of a host event makes no device event of it."""
    table = trace.device
    row = np.asarray(table["row"], dtype=np.int64)
    place = np.flatnonzero(np.isin(trace.kind[row], DEVICE))
    row = row[place]
    start, end = trace.start[row], trace.end[row]
    device, stream = table["device"][place], table["stream"][place]
    order = np.lexsort((start, stream, device))
    row, device, stream, start = row[order], device[order], stream[order], start[order]
    return DeviceWork(
        row=row,
        place=place[order],
        kind=trace.kind[row],
        start=start,
        end=ends_in_order(device, stream, start, end[order]),
        device=device,
        stream=stream,
        launch=launches_of(trace, row),
    )


def launches_of(trace: Trace, rows: Rows) -> Rows:
    """Return for device events the row of the call that launched each, by correlation id, -1 for none, shape of `rows`.

    Where several calls have the id (the runtime calls the driver, or ids were used again) it is the last of them that began before
    the device event did, else the first.
    """
    calls = np.flatnonzero((trace.kind == Kind.RUNTIME) & (trace.events["correlation"] >= 0))
    if not len(calls) or not len(rows):
        return np.full(len(rows), -1, dtype=np.int64)
    wanted = trace.events["correlation"][rows]
    ids = trace.events["correlation"][calls]
    order = np.lexsort((trace.start[calls], ids))
    calls, ids = calls[order], ids[order]
    first = np.searchsorted(ids, wanted, side="left")
    last = np.searchsorted(ids, wanted, side="right") - 1
    chosen = last
    for _ in range(int((last - first).max(initial=0))):
        later = (chosen > first) & (trace.start[calls[np.clip(chosen, 0, None)]] > trace.start[rows])
        if not later.any():
            break
        chosen = chosen - later
    return np.where((last >= first) & (wanted >= 0), calls[np.clip(chosen, 0, len(calls) - 1)], -1)


def enclosing_operators(trace: Trace) -> Rows:
    """Return for each event the row of the innermost operator or annotation of its thread around it, -1 for none, shape (N,).

    Only host events have one.
    """
    host = np.flatnonzero(np.isin(trace.kind, (Kind.CPU_OP, Kind.ANNOTATION, Kind.RUNTIME)))
    inner = parents(trace.events["track"][host], trace.start[host], trace.end[host])
    found = np.full(len(trace.events), -1, dtype=np.int64)
    found[host] = np.where(inner >= 0, host[np.maximum(inner, 0)], -1)
    is_call = trace.kind == Kind.RUNTIME
    while (nested := (found >= 0) & is_call[np.maximum(found, 0)]).any():  # a driver call stands within a runtime call
        found[nested] = found[found[nested]]
    return found

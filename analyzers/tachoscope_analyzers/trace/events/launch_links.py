"""What launched what: from device work to the host call that launched it, and on to the operator around that call."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.merged_files import devices_apart, own_callers
from tachoscope_analyzers.trace.events.nesting import parents
from tachoscope_analyzers.trace.reading.event_kinds import DEVICE, Kind, is_any
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.trace import Trace

Rows = npt.NDArray[np.int64]
"""Numbers of events, -1 for none."""


class DeviceWork(msgspec.Struct, frozen=True):
    """The events that occupy an accelerator (kernels, copies, fills), sorted by device, stream and start, shape (D,).

    Attributes:
        row: number of the event. place: its number in `Trace.device`, -1 for writers without that table. kind: `Kind`.
        start, end: ns, impossible ends are cut, see `ends_in_order`. device, stream: as the trace numbers them;
            where a file was merged from several ranks, devices that share a number get numbers of their own.
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
    place = np.flatnonzero(is_any(trace.kind[row], DEVICE))
    row = row[place]
    start, end = trace.start[row], trace.end[row]
    device, stream = devices_apart(trace, row, table["device"][place]), table["stream"][place]
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
    the device event did, else the first. In a file merged from several ranks only calls of the same rank count.
    """
    calls = np.flatnonzero((trace.kind == Kind.RUNTIME) & (trace.events["correlation"] >= 0))
    if not len(calls) or not len(rows):
        return np.full(len(rows), -1, dtype=np.int64)
    wanted, ids = trace.events["correlation"][rows], trace.events["correlation"][calls]
    if (callers := own_callers(trace, calls, rows)) is not None:
        ids, wanted = _ids_of_processes(ids, wanted, *callers)
    order = np.lexsort((trace.start[calls], ids))
    calls, ids = calls[order], ids[order]
    first = np.searchsorted(ids, wanted, side="left")
    after = np.searchsorted(ids, wanted, side="right")
    chosen = first
    if (after - first).max() > 1:
        times = np.sort(trace.start[calls])
        width = len(calls) + 1
        key = np.searchsorted(ids, ids, side="left") * width + np.searchsorted(times, trace.start[calls], side="left")
        begun = first * width + np.searchsorted(times, trace.start[rows], side="right")
        chosen = np.maximum(np.searchsorted(key, begun, side="left") - 1, first)
    return np.where((after > first) & (wanted >= 0), calls[np.minimum(chosen, len(calls) - 1)], -1)


def _ids_of_processes(ids: Rows, wanted: Rows, caller: Rows, own: Rows) -> tuple[Rows, Rows]:
    """Return ids of calls and device events that are unique across the processes of a merged file."""
    _, number = np.unique(np.append(ids, wanted), return_inverse=True)
    together = number * (int(max(caller.max(), own.max())) + 1) + np.append(caller, own)
    return together[: len(ids)], np.where(wanted >= 0, together[len(ids) :], -1)


def enclosing_operators(trace: Trace) -> Rows:
    """Return for each event the row of the innermost operator or annotation of its thread around it, -1 for none, shape (N,).

    Only host events have one.
    """
    host = np.flatnonzero(is_any(trace.kind, (Kind.CPU_OP, Kind.ANNOTATION, Kind.RUNTIME)))
    inner = parents(trace.events["track"][host], trace.start[host], trace.end[host])
    found = np.full(len(trace.events), -1, dtype=np.int64)
    found[host] = np.where(inner >= 0, host[np.maximum(inner, 0)], -1)
    is_call = np.append(trace.kind == Kind.RUNTIME, False)  # the last is for no event, -1
    nested = host[is_call[found[host]]]
    while len(nested):  # a driver call stands within a runtime call
        found[nested] = found[found[nested]]
        nested = nested[is_call[found[nested]]]
    return found


def ends_in_order(device: Rows, stream: Rows, start: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
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

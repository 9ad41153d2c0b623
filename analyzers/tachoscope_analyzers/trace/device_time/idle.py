"""Why the device was idle: each of its gaps split by cause, exact in nanoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.events import host_spans as host
from tachoscope_analyzers.trace.events.callers import outermost_operators, source_lines
from tachoscope_analyzers.trace.events.categories import Labels, labels, names
from tachoscope_analyzers.trace.events.host_spans import HostSpans
from tachoscope_analyzers.trace.events.intervals import Intervals, difference, gaps, intersection, union
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds

if TYPE_CHECKING:
    import pandas as pd

HOST_LAUNCH, SLOW_LAUNCH, HOST_PAUSE, UNEXPLAINED = "host_launch", "slow_launch", "host_pause", "unexplained"
KERNEL_GAP, KERNEL_WAIT = "kernel_gap", "kernel_wait"
CAUSES = (
    host.DATA_LOADING,
    host.CHECKPOINT,
    host.EVALUATION,
    host.COMMUNICATION,
    host.ALLOCATOR,
    host.GARBAGE_COLLECTION,
    HOST_PAUSE,
    host.SYNCHRONISATION,
    HOST_LAUNCH,
    SLOW_LAUNCH,
    KERNEL_GAP,
    KERNEL_WAIT,
    UNEXPLAINED,
)
"""Causes of idle time:

- data_loading, checkpoint, evaluation, communication, allocator, garbage_collection: what the host did, told by name.
- host_pause: the host did nothing that the trace shows, for a millisecond or more.
- synchronisation: the host had waited for the device, which ran dry for it; for no longer than the wait took, since without it
  the host would have come that much earlier.
- host_launch: the host was busy, and launched the next kernel only after the gap began or just before.
- slow_launch: the host was in the launch itself for a millisecond or more, as when the driver first loads the kernel's code.
- kernel_gap: up to 10 us between kernels that were queued. kernel_wait: more, or 20 us and more from the end of the launch to the
  kernel (it waited for another stream or device).
- unexplained: the trace does not tell what launched the next kernel, or there is none.
"""

_LAUNCH_LATENCY_NS = 5_000
"""A kernel starts some 5 us after its launch on an empty stream; a call that ended so shortly before a gap made it."""
_LONGEST_LATENCY_NS = 20_000
LEAST_PAUSE_NS = 1_000_000
_LONGEST_GAP_NS = 10_000
PLACE = ("cause", "detail", "operator", "source")
_NUMBERS = ("gaps", "total_ns", "longest_ns")
_SUM_COLUMNS = [*PLACE, *_NUMBERS]
SUM = np.dtype([(name, np.object_) for name in PLACE] + [(name, np.int64) for name in _NUMBERS])
COLUMNS = ["device", "gap", "start_ns", "duration_ns", "cause", "detail", "operator", "source", "next_kernel"]


class IdlePieces(msgspec.Struct, frozen=True):
    """Idle time of a device cut by cause, sorted by start, shape (P,).

    Attributes:
        gap: number of the gap, from 0. start, end: ns. cause: position in `CAUSES`.
        row: the host event that tells the cause (loader call, synchronisation, launch), -1 for none.
        following: the device event that ended the gap, -1 for none.
    """

    gap: Rows
    start: Nanoseconds
    end: Nanoseconds
    cause: npt.NDArray[np.int8]
    row: Rows
    following: Rows


class _DeviceGaps(msgspec.Struct, frozen=True):
    """Gaps of a device, shape (G,).

    Attributes:
        asked, launched: begin and end, within the gap, of the call that launched what ended it; the gap's end if not known.
        launch, following: that call, and what ended the gap, -1 for none.
    """

    time: Intervals
    asked: Nanoseconds
    launched: Nanoseconds
    launch: Rows
    following: Rows


def idle(view: TraceView) -> pd.DataFrame:
    """Return the idle time of each device within its window, split by cause, ordered by device and start.

    Invariant: the durations of a device sum to its window less its busy time, to the nanosecond.
    Columns: device, gap (number), start_ns, duration_ns, cause (see `CAUSES`), detail (name of the call or annotation that tells
    the cause), operator (the outermost one around it), source (line of user code, where the trace has stacks), next_kernel.
    """
    import pandas as pd  # a third of a second, which a report does not need

    tables = [_table_of(view, device, pieces_of(view, device, *device_window(view, device))) for device in view.devices]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


def by_cause(table: pd.DataFrame) -> pd.DataFrame:
    """Return `idle` summed by device, cause, detail, operator and source: gaps, total_ns, longest_ns; longest sum first."""
    import pandas as pd

    parts = []
    for device in sorted(set(table["device"].tolist())):
        mine = table[table["device"] == device]
        places = tuple(Labels.of_column(mine[name]) for name in PLACE)
        sums = summed(places, mine["gap"].to_numpy(), mine["duration_ns"].to_numpy())
        parts.append(pd.DataFrame(sums).assign(device=device)[["device", *_SUM_COLUMNS]])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["device", *_SUM_COLUMNS])


def summed(places: tuple[Labels, ...], gap: Rows, duration: Nanoseconds) -> npt.NDArray[Any]:
    """Return pieces of a device's idle time summed by `PLACE`, a row of `SUM` for each, longest sum first."""
    place = np.zeros(len(gap), dtype=np.int64)
    for column in places:  # numbered anew each time, so that the number of a row stays small
        place = np.unique(place * max(len(column.texts), 1) + column.number, return_inverse=True)[1].reshape(-1)
    _, first, place = np.unique(place, return_index=True, return_inverse=True)
    sums = np.zeros(len(first), dtype=SUM)
    for name, column in zip(PLACE, places, strict=True):
        sums[name] = [column.texts[number] for number in column.number[first].tolist()]
    np.add.at(sums["total_ns"], place, duration)
    np.maximum.at(sums["longest_ns"], place, duration)
    width = int(gap.max(initial=0)) + 1
    np.add.at(sums["gaps"], distinct(place.reshape(-1) * width + gap) // width, 1)
    return sums[np.lexsort((first, -sums["total_ns"]))]


def device_window(view: TraceView, device: int) -> tuple[int, int]:
    """Return the first start and the last end of a device's work, in ns."""
    mine = view.work.device == device
    return int(view.work.start[mine].min()), int(view.work.end[mine].max())


def pieces_of(view: TraceView, device: int, start: int, end: int) -> IdlePieces:
    """Return the idle time of a device between two moments, cut by cause; it sums to the idle time exactly."""
    found = _gaps(view, device, start, end)
    spans = view.host
    by_host = Intervals(*_kept(found.time.starts, found.asked))
    parts: list[tuple[Intervals, int, Rows | None]] = []
    rest = by_host
    for cause in (host.DATA_LOADING, host.CHECKPOINT, host.EVALUATION, host.ALLOCATOR, host.GARBAGE_COLLECTION, host.COMMUNICATION):
        told = intersection(rest, spans.of_cause(cause).time)
        rest = difference(rest, spans.of_cause(cause).time)
        parts.append((told, CAUSES.index(cause), spans.of_cause(cause).at(view.trace, told.starts)))
    pauses = _pauses(found, difference(rest, spans.active))
    parts.append((pauses, CAUSES.index(HOST_PAUSE), None))
    rest = difference(rest, pauses)
    late = np.where(found.time.ends - found.launched > _LONGEST_LATENCY_NS, found.launched, found.time.ends)
    parts.append((Intervals(*_kept(late, found.time.ends)), CAUSES.index(KERNEL_WAIT), None))
    slow = np.where(found.launched - found.asked >= LEAST_PAUSE_NS, found.launched, found.asked)
    loading = Intervals(*_kept(found.asked, slow))
    parts.append((loading, CAUSES.index(SLOW_LAUNCH), found.launch[slow > found.asked]))
    launching = Intervals(*_kept(slow, late))
    other = union(np.concatenate([rest.starts, launching.starts]), np.concatenate([rest.ends, launching.ends]))
    waited, calls = _waited(view, found, spans)
    held_up = intersection(other, waited)
    parts.append((held_up, CAUSES.index(host.SYNCHRONISATION), calls[np.searchsorted(waited.starts, held_up.starts, "right") - 1]))
    return _joined(view, found, parts, difference(other, waited))


def _pauses(found: _DeviceGaps, silent: Intervals) -> Intervals:
    """Return long silences of the host before the launch that ended a gap; without that launch they say nothing."""
    gap = np.searchsorted(found.time.starts, silent.starts, side="right") - 1
    kept = (silent.ends - silent.starts >= LEAST_PAUSE_NS) & (found.launch[gap] >= 0)
    return Intervals(silent.starts[kept], silent.ends[kept])


def _kept(starts: Nanoseconds, ends: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    kept = ends > starts
    return starts[kept], ends[kept]


def _gaps(view: TraceView, device: int, start: int, end: int) -> _DeviceGaps:
    work = view.work
    mine = np.flatnonzero(work.device == device)
    time = gaps(union(work.start[mine], work.end[mine]), start, end)
    # Of several events that end a gap the one counts whose launch is known.
    mine = mine[np.lexsort((work.launch[mine] < 0, work.start[mine]))]
    place = np.searchsorted(work.start[mine], time.ends, side="left")
    inner = np.minimum(place, max(len(mine) - 1, 0))
    ends_gap = (place < len(mine)) & (work.start[mine[inner]] == time.ends) if len(mine) else np.zeros(len(time), dtype=bool)
    following = np.where(ends_gap, mine[inner] if len(mine) else -1, -1)
    launch = np.where(following >= 0, work.launch[following], -1) if len(work) else following
    asked = np.where(launch >= 0, np.clip(view.trace.start[launch], time.starts, time.ends), time.ends)
    launched = np.where(launch >= 0, np.clip(view.trace.end[launch], time.starts, time.ends), time.ends)
    return _DeviceGaps(time, asked, launched, launch, np.where(following >= 0, work.row[following], -1) if len(work) else following)


def _joined(view: TraceView, found: _DeviceGaps, parts: list[tuple[Intervals, int, Rows | None]], other: Intervals) -> IdlePieces:
    """Return all pieces by time; those without a named cause get the cause of their gap."""
    gap_of_other = np.searchsorted(found.time.starts, other.starts, side="right") - 1
    start = np.concatenate([part.starts for part, _, _ in parts] + [other.starts])
    end = np.concatenate([part.ends for part, _, _ in parts] + [other.ends])
    cause = np.concatenate([np.full(len(part), code) for part, code, _ in parts] + [_by_order(view, found)[gap_of_other]])
    rows = [np.full(len(part), -1, dtype=np.int64) if row is None else row for part, _, row in parts]
    row = np.concatenate([*rows, found.launch[gap_of_other]])
    order = np.argsort(start, kind="stable")
    gap = np.searchsorted(found.time.starts, start[order], side="right") - 1
    return IdlePieces(gap, start[order], end[order], cause[order].astype(np.int8), row[order], found.following[gap])


def _by_order(view: TraceView, found: _DeviceGaps) -> npt.NDArray[np.int64]:
    """Return the cause of each gap by the time its next kernel was launched."""
    trace, time, launch = view.trace, found.time, found.launch
    known = launch >= 0
    begin = np.where(known, trace.start[launch], 0) if len(launch) else launch
    end = np.where(known, trace.end[launch], 0) if len(launch) else launch
    by_host = known & ((begin >= time.starts) | (end + _LAUNCH_LATENCY_NS > time.starts))
    choices = [
        (~known, UNEXPLAINED),
        (by_host, HOST_LAUNCH),
        (time.ends - time.starts <= _LONGEST_GAP_NS, KERNEL_GAP),
    ]
    return np.select(
        [chosen for chosen, _ in choices], [CAUSES.index(name) for _, name in choices], default=CAUSES.index(KERNEL_WAIT)
    )


def _waited(view: TraceView, found: _DeviceGaps, spans: HostSpans) -> tuple[Intervals, Rows]:
    """Return the time of gaps that waiting calls answer for, and the call of each stretch of it.

    A call counts if the host was in it when the gap began, or made it before it launched what ended the gap: a kernel that was
    already queued did not wait for the host. It answers for as long as it took, and no more: without it the host would have gone on
    that much earlier.
    """
    calls, time = spans.of_cause(host.SYNCHRONISATION), found.time
    first = np.searchsorted(calls.time.ends, time.starts, side="right")
    count = np.maximum(np.searchsorted(calls.time.starts, found.asked, side="left") - first, 0) * (found.asked > time.starts)
    gap = np.repeat(np.arange(len(time)), count)
    call = first[gap] + np.arange(len(gap)) - np.repeat(np.cumsum(count) - count, count)
    start = np.maximum(calls.time.starts[call], time.starts[gap])
    length = calls.time.ends[call] - calls.time.starts[call]
    claimed = union(start, np.minimum(start + length, time.ends[gap]))
    began = call[np.searchsorted(start, claimed.starts, side="left")]
    return claimed, calls.at(view.trace, calls.time.starts[began])


def places_of_pieces(view: TraceView, pieces: IdlePieces) -> tuple[Labels, ...]:
    """Return the columns `PLACE` of pieces of a device's idle time."""
    operator = outermost_operators(view, pieces.row)
    lines = source_lines(view.trace, pieces.row, operator, pieces.start).tolist()
    return (
        labels(list(CAUSES), pieces.cause),
        names(view.trace, pieces.row),
        names(view.trace, operator),
        labels(lines, np.arange(len(lines))),
    )


def _table_of(view: TraceView, device: int, pieces: IdlePieces) -> pd.DataFrame:
    import pandas as pd

    times = {"device": device, "gap": pieces.gap, "start_ns": pieces.start, "duration_ns": pieces.end - pieces.start}
    places = dict(zip(PLACE, places_of_pieces(view, pieces), strict=True)) | {"next_kernel": names(view.trace, pieces.following)}
    return pd.DataFrame(times | {name: column.categorical for name, column in places.items()}, columns=COLUMNS)

"""A trace at a glance: how each stretch of time was spent, by device or host, stream and thread.

Stretches (bins) are few, whatever the trace holds, so that a picture of them is small. All times are whole nanoseconds on the
trace's own clock, and each row's times sum to the length of its bin exactly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.device_time import ledger as states
from tachoscope_analyzers.trace.device_time.breakdown import device_time
from tachoscope_analyzers.trace.device_time.idle import device_window
from tachoscope_analyzers.trace.events.intervals import Intervals, covered, intersection, union
from tachoscope_analyzers.trace.events.kernel_names import COMMUNICATION, MEMCPY, MEMSET
from tachoscope_analyzers.trace.events.missing_device_work import device_work_is_lost, holds_no_known_work
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import DEVICE, Kind, is_any
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.trace import Trace
from tachoscope_analyzers.trace.reading.track import Track

Flags = npt.NDArray[np.bool_]

MOST_BINS = 800
MOST_TRACKS = 24
IDLE, OUTSIDE, NOTHING, UNEXPLAINED = "idle", "outside", "nothing", "unexplained"
DEVICE_STATES = ("compute", "overlap", "communication", "copies", IDLE, OUTSIDE)
"""compute: no communication beside it. overlap: communication under compute. communication and copies: exposed, as `breakdown` has
them. outside: before the first or after the last work of the device; there it is not known to be idle."""
HOST_STATES = ("compute", "communication", "data_wait", "host_wait", "checkpoint", "evaluation", OUTSIDE)
"""Of a trace without device work: the states of its steps; outside: in no step."""
STREAM_STATES = ("compute", "communication", "copies", IDLE)
THREAD_STATES = ("call", "operator", "annotation", NOTHING)
"""call: of the device's runtime or driver. annotation: in an annotation or a Python frame, and in no operator."""
_OF_THREADS = (
    ("call", (Kind.RUNTIME,)),
    ("operator", (Kind.CPU_OP,)),
    ("annotation", (Kind.ANNOTATION, Kind.PYTHON)),
)
_ON_THREADS = np.isin(np.arange(len(Kind)), [kind for _, kinds in _OF_THREADS for kind in kinds])


class Row(msgspec.Struct, frozen=True):
    """How one device, host, stream or thread spent each bin.

    Attributes:
        name: `device 0`, `host`, `stream 7`, or a thread by its name or number, as the trace writes it. states: S of them.
        times: ns, shape (B, S); the sum over states is the length of the bin.
    """

    name: str
    states: tuple[str, ...]
    times: Nanoseconds

    @property
    def computing(self) -> float:
        """Return the share of computing in the time that is known, NaN where none is."""
        known = self.times[:, [state != OUTSIDE for state in self.states]].sum()
        work = self.times[:, [state in ("compute", "overlap") for state in self.states]].sum()
        return float(work / known) if known else float("nan")

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Return the share of each state in each bin, 0 in bins of no length, shape (B, S)."""
        return np.asarray(self.times / np.maximum(self.times.sum(axis=1, keepdims=True), 1))


def extent(trace: Trace) -> tuple[int, int]:
    """Return when the first event begins and the last one ends, in ns; (0, 0) for a trace without events."""
    if not len(trace.events):
        return 0, 0
    return trace.first_ns, int(trace.end.max())


def edges(start: int, end: int, bins: int = MOST_BINS) -> Nanoseconds:
    """Return the edges of equal bins between two moments, shape (B + 1,); no bin is below a nanosecond."""
    count = max(1, min(bins, end - start))
    return np.array([start + (end - start) * place // count for place in range(count + 1)], dtype=np.int64)


def summary_rows(view: TraceView, bounds: Nanoseconds) -> list[Row]:
    """Return a row for each device of a trace, or one for the host where the trace holds no device work."""
    if not len(view.trace.events):
        return []
    if device_work_is_lost(view) or holds_no_known_work(view):
        steps = view.device_steps
        return [_row("host", (UNEXPLAINED, OUTSIDE), [_covered(union(steps.start, steps.end), bounds)], bounds)]
    if not len(view.work):
        found = states.host_states(view)
        return [_row("host", HOST_STATES, [_covered(found[state], bounds) for state in HOST_STATES[:-1]], bounds)]
    return [_device(view, device, bounds) for device in view.devices]


def streams(view: TraceView, bounds: Nanoseconds, *, most: int = MOST_TRACKS) -> list[Row]:
    """Return a row for each stream, by device and number; of more than `most` those with most work."""
    work = view.work
    if not len(work):
        return []
    new = np.append(True, (work.device[1:] != work.device[:-1]) | (work.stream[1:] != work.stream[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(work))
    kept = np.sort(np.argsort(first - last, kind="stable")[:most])
    several = len(view.devices) > 1
    return [_stream(view, slice(int(first[place]), int(last[place])), bounds, several=several) for place in kept]


def threads(view: TraceView, bounds: Nanoseconds, *, most: int = MOST_TRACKS) -> list[Row]:
    """Return a row for each thread of the host, those with most events first; at most `most`."""
    trace = view.trace
    track, kind = trace.events["track"], trace.kind
    host = _ON_THREADS[kind]
    count = np.bincount(track[host], minlength=1)
    busiest = [int(code) for code in np.argsort(-count, kind="stable")[:most] if count[code]]
    return [_thread(trace, code, np.flatnonzero((track == code) & host), bounds) for code in busiest]


def thread_name(track: Track) -> str:
    """Return what a trace calls a thread, by its number where it has no name."""
    name = track.thread_name or f"thread {track.thread}"
    return name if re.match(r"python[\d.]*$|$", track.process_name) else f"{name} ({track.process_name})"


def _device(view: TraceView, device: int, bounds: Nanoseconds) -> Row:
    time = device_time(view, device)
    start, end = device_window(view, device)
    under = _covered(intersection(time.communication, time.compute), bounds)
    times = [
        _covered(time.compute, bounds) - under,
        under,
        _covered(time.exposed_communication, bounds),
        _covered(time.exposed_copies, bounds),
        _covered(Intervals(np.array([start]), np.array([end])), bounds) - _covered(time.busy, bounds),
    ]
    return _row(f"device {device}" if device >= 0 else "device", DEVICE_STATES, times, bounds)


def _stream(view: TraceView, mine: slice, bounds: Nanoseconds, *, several: bool) -> Row:
    work, classes = view.work, view.classes[mine]
    copying, communicating = classes.is_any(MEMCPY, MEMSET), classes.is_any(COMMUNICATION)
    times = _in_turn(work.start[mine], work.end[mine], (~copying & ~communicating, communicating, copying), bounds)
    number = f"stream {int(work.stream[mine.start])}"
    name = f"device {int(work.device[mine.start])} {number}" if several else number
    return _row(name, STREAM_STATES, times, bounds)


def _thread(trace: Trace, code: int, rows: npt.NDArray[np.int64], bounds: Nanoseconds) -> Row:
    kind = trace.kind[rows]
    chosen = [is_any(kind, kinds) for _, kinds in _OF_THREADS]
    times = _in_turn(trace.start[rows], trace.end[rows], chosen, bounds)
    return _row(thread_name(trace.meta.tracks[code]), THREAD_STATES, times, bounds)


def _in_turn(start: Nanoseconds, end: Nanoseconds, parts: Sequence[Flags], bounds: Nanoseconds) -> list[Nanoseconds]:
    """Return how much of each bin each part covers that no earlier part does."""
    found: list[Nanoseconds] = []
    before, together = np.zeros(len(bounds) - 1, dtype=np.int64), np.zeros(len(start), dtype=bool)
    for part in parts:
        together |= part
        now = _covered(union(start[together], end[together]), bounds)
        found.append(now - before)
        before = now
    return found


def _covered(times: Intervals, bounds: Nanoseconds) -> Nanoseconds:
    return covered(times, bounds[:-1], bounds[1:])


def _row(name: str, names: tuple[str, ...], times: Sequence[Nanoseconds], bounds: Nanoseconds) -> Row:
    """Return a row of the times of disjoint sets; the last state takes the rest."""
    rest = np.diff(bounds) - sum(times, np.zeros(len(bounds) - 1, dtype=np.int64))
    assert (rest >= 0).all(), "sets of time that are disjoint cannot cover more than there is"
    return Row(name, names, np.stack([*times, rest], axis=1))


def is_device_track(kinds: npt.NDArray[np.uint8]) -> bool:
    """Return whether events of these kinds stand on the track of a stream."""
    return bool(np.isin(kinds, (*DEVICE, Kind.SYNC, Kind.DEVICE_ANNOTATION)).any())

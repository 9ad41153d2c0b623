"""Where one host thread hands the work to another: autograd runs the backward pass on threads of its own."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.events.host_spans import MARKER
from tachoscope_analyzers.trace.events.intervals import Intervals, gaps, union
from tachoscope_analyzers.trace.events.steps import PROFILER_STEP, named
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any
from tachoscope_analyzers.trace.reading.trace import Trace

Array = npt.NDArray[np.int64]

_LEAST_PAUSE_NS = 20_000
"""Shorter pauses of the main thread are its own."""


class Handovers(msgspec.Struct, frozen=True):
    """Moments on threads, shape (H,): `track`, `time` (ns); and pairs of them: `target` waits for `source`."""

    track: Array
    time: Array
    source: Array
    target: Array


def main_thread(trace: Trace) -> int:
    """Return the track that marks the steps; without marks the one with most operators that is not autograd's; -1 without any."""
    track = trace.events["track"]
    marks = named(trace, PROFILER_STEP, (Kind.CPU_OP, Kind.ANNOTATION))
    if len(marks):
        return int(np.bincount(track[marks]).argmax())
    autograd = distinct(track[_backward(trace)])
    for kinds in ((Kind.CPU_OP,), (Kind.ANNOTATION, Kind.RUNTIME, Kind.PYTHON)):
        threads = track[is_any(trace.kind, kinds)]
        forward = threads[~np.isin(threads, autograd)]
        if len(threads):
            return int(np.bincount(forward if len(forward) else threads).argmax())
    return -1


def handovers(trace: Trace, active: Callable[[int], Intervals], main: int, start: int, end: int) -> Handovers:
    """Return where the main thread pauses for an autograd thread's work, and goes on after it, between two moments.

    `active` returns the `activity` of a track.
    """
    track = trace.events["track"]
    threads = np.setdiff1d(distinct(track[_backward(trace)]), [main], assume_unique=True)
    pauses = gaps(active(main), start, end)
    kept = pauses.ends - pauses.starts >= _LEAST_PAUSE_NS
    pauses = Intervals(pauses.starts[kept], pauses.ends[kept])
    tracks: list[Array] = []
    times: list[Array] = []
    for thread in threads.tolist():
        for at, moments in _bursts(pauses, active(thread)):
            tracks.append(np.full(len(moments), thread if at else main, dtype=np.int64))
            times.append(moments)
    if not tracks:
        return Handovers(*(np.zeros(0, dtype=np.int64) for _ in range(4)))
    sizes = np.cumsum([0] + [len(moments) for moments in times])
    pairs = [(np.arange(sizes[i], sizes[i + 1]), np.arange(sizes[i + 1], sizes[i + 2])) for i in range(0, len(times), 2)]
    return Handovers(
        np.concatenate(tracks),
        np.concatenate(times),
        np.concatenate([pair[0] for pair in pairs]),
        np.concatenate([pair[1] for pair in pairs]),
    )


def _bursts(pauses: Intervals, busy: Intervals) -> list[tuple[int, Array]]:
    """Return moments in four lists, on main (0) or the thread (1): pause begins, work begins; work ends, pause ends."""
    if not len(pauses) or not len(busy):
        return []
    pause = np.searchsorted(pauses.starts, busy.starts, side="right") - 1
    pause[(pause < 0) | (busy.starts >= pauses.ends[pause])] = -1
    first = np.flatnonzero((pause >= 0) & (pause != np.append(-2, pause[:-1])))
    last = np.append(np.flatnonzero(pause[1:] != pause[:-1]), len(pause) - 1)
    last = last[pause[last] >= 0]
    before = np.append(np.iinfo(np.int64).min, busy.ends[:-1])[first]
    begun = first[before <= pauses.starts[pause[first]]]  # else it was at work before the main thread paused
    done = last[busy.ends[last] <= pauses.ends[pause[last]]]
    return [
        (0, pauses.starts[pause[begun]]),
        (1, busy.starts[begun]),
        (1, busy.ends[done]),
        (0, pauses.ends[pause[done]]),
    ]


def _backward(trace: Trace) -> npt.NDArray[np.int64]:
    """Return the rows of operators that autograd ran."""
    table = trace.operators
    rows = table["row"][table["forward_thread"] > 0]
    return np.asarray(rows[trace.kind[rows] == Kind.CPU_OP], dtype=np.int64)


def activity(trace: Trace, track: int) -> Intervals:
    """Return when a thread is in operators or calls. Old traces annotate by operators, which hold pauses too: they do not count."""
    rows = np.flatnonzero((trace.events["track"] == track) & is_any(trace.kind, (Kind.CPU_OP, Kind.RUNTIME)))
    codes, place = trace.distinct_names(rows)
    works = np.array([MARKER.match(name) is None for name in trace.strings[codes].tolist()], dtype=bool)
    rows = rows[works[place]] if len(codes) else rows
    return union(trace.start[rows], trace.end[rows])

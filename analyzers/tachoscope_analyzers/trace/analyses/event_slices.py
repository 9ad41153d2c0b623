"""The events of a narrow window as they nest on each thread and stream, to be drawn one by one."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.analyses.overview import is_device_track
from tachoscope_analyzers.trace.events.nesting import depths
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.trace import Trace

Rows = npt.NDArray[np.int64]

MOST_SLICES = 5_000


class Slices(msgspec.Struct, frozen=True):
    """Events of a window, in order of track, depth and start, shape (E,).

    Attributes:
        row: number of the event. start, end: ns on the trace's clock; they may reach beyond the window. depth: how many events of
            its track are open where it begins. track: its position in `tracks`.
        tracks: numbers of the tracks that have any, streams first. lanes: how many depths each of them needs.
        left_out: how many more the window holds; they are the shortest.
    """

    row: Rows
    start: Nanoseconds
    end: Nanoseconds
    depth: Rows
    track: Rows
    tracks: tuple[int, ...]
    lanes: tuple[int, ...]
    left_out: int


def inside(trace: Trace, start: int, end: int, *, frames: bool = False) -> Rows:
    """Return the events that are under way between two moments, in the order of the file.

    Args:
        start, end: ns on the trace's clock. frames: Python's frames too, which stand around all others.
    """
    chosen = (trace.start < end) & (trace.end > start)
    chosen &= ~trace.lost
    if not frames:
        chosen &= trace.kind != Kind.PYTHON
    return np.flatnonzero(chosen)


def slices(trace: Trace, start: int, end: int, *, most: int = MOST_SLICES, frames: bool = False) -> Slices:
    """Return the events that are under way between two moments (ns), the `most` longest of them."""
    rows = inside(trace, start, end, frames=frames)
    code, begin, finish = trace.events["track"][rows], trace.start[rows], trace.end[rows]
    depth = depths(code, begin, finish)
    if left_out := max(len(rows) - most, 0):
        kept = np.sort(np.argsort(begin - finish, kind="stable")[:most])
        rows, code, begin, finish, depth = (values[kept] for values in (rows, code, begin, finish, depth))
    tracks = sorted(np.unique(code).tolist(), key=lambda one: (not is_device_track(trace.kind[rows[code == one]]), one))
    position = np.zeros(max(tracks, default=0) + 1, dtype=np.int64)
    position[tracks] = np.arange(len(tracks))
    order = np.lexsort((begin, depth, position[code]))
    lanes = [int(depth[code == one].max()) + 1 for one in tracks]
    track = position[code][order]
    return Slices(rows[order], begin[order], finish[order], depth[order], track, tuple(tracks), tuple(lanes), left_out)

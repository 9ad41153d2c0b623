"""Which operator a thread was in at each moment of some stretches of its time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.events.intervals import covered, union
from tachoscope_analyzers.trace.events.nesting import parents
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any
from tachoscope_analyzers.trace.reading.trace import Trace

Array = npt.NDArray[np.int64]


def cut_by_operator(trace: Trace, track: Array, start: Array, end: Array, also: Array) -> tuple[Array, Array, Array, Array]:
    """Cut stretches of threads (ns) so that in each piece the innermost operator is one and the same.

    `also` are rows of further events that count like operators and annotations do. Returns for each piece, shape (P,), the stretch
    it is of, its start and end, and the innermost event (-1: none). The pieces of a stretch tile it, in order.
    """
    number, starts, ends, owners = [], [], [], []
    for thread in distinct(track).tolist():
        mine = np.flatnonzero(track == thread)
        times, owner = _timeline(trace, thread, start[mine], end[mine], also)
        first = np.searchsorted(times, start[mine], side="right")
        last = np.searchsorted(times, end[mine], side="left")
        count = np.maximum(last - first, 0) + 1
        of = np.repeat(np.arange(len(mine)), count)
        inside = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        at = first[of] + inside - 1  # the moment at which the piece's owner took over, -1: before the first
        number.append(mine[of])
        starts.append(np.where(inside == 0, start[mine][of], times[np.maximum(at, 0)]))
        ends.append(np.where(inside == count[of] - 1, end[mine][of], times[np.minimum(at + 1, len(times) - 1)]))
        owners.append(np.where(at >= 0, owner[np.maximum(at, 0)], -1))
    if not number:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing, nothing
    joined = [np.concatenate(parts) for parts in (number, starts, ends, owners)]
    order = np.argsort(joined[0], kind="stable")
    return joined[0][order], joined[1][order], joined[2][order], joined[3][order]


def _timeline(trace: Trace, thread: int, start: Array, end: Array, also: Array) -> tuple[Array, Array]:
    """Return moments at which a thread's innermost event changes within the stretches, and the event from then on."""
    chosen = is_any(trace.kind, (Kind.CPU_OP, Kind.ANNOTATION))
    chosen[also] = True
    rows = np.flatnonzero(chosen & (trace.events["track"] == thread) & (trace.events["duration"] > 0))
    asked = union(start, end)
    rows = rows[covered(asked, trace.start[rows], trace.end[rows]) > 0]
    if not len(rows):
        return np.array([0], dtype=np.int64), np.array([-1], dtype=np.int64)
    begin, finish = trace.start[rows], trace.end[rows]
    parent = parents(np.zeros(len(rows), dtype=np.int32), begin, finish)
    index = np.arange(len(rows))
    times = np.concatenate([finish, begin])
    opens = np.repeat([0, 1], len(rows))
    # At one moment the inner ones end before the outer ones, then the outer ones begin before the inner ones: the last one counts.
    order = np.lexsort((np.concatenate([-index, index]), np.concatenate([-begin, -finish]), opens, times))
    owner = np.concatenate([np.where(parent >= 0, rows[np.maximum(parent, 0)], -1), rows])[order]
    times = times[order]
    last = np.append(times[1:] != times[:-1], True)
    return times[last], owner[last]

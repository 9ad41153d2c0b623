"""The edges of a dependency graph: what each node waits for, and how long after that it began at the earliest."""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import quantile
from tachoscope_analyzers.trace.events.thread_handover import Handovers
from tachoscope_analyzers.trace.graph.nodes import Layout
from tachoscope_analyzers.trace.graph.waits import Queues

Array = npt.NDArray[np.int64]

_USUAL_GAP_NS = 20_000
"""A longer pause between two events of a stream that both were enqueued is not the device's own."""
_LONGEST_TAIL_NS = 200_000
"""The last blocks of a kernel that fills the device may run so long beside the first ones of the next kernel."""
_LONG_LATENCY = 10
"""An event that began later than so many usual latencies after its launch was held up by something else."""


_USUAL_QUANTILE = 0.25
"""Of the latencies into idle streams: the longer ones hold other waits."""


class Edge(IntEnum):
    """Why a node waits for another.

    `PROGRAM`: the thread's order. `STREAM`: the stream's order. `LAUNCH`: the call that enqueued it began. `GRAPH`: another event
    of the same launched graph. `STREAM_WAIT`: its stream waits for another one. `OCCUPIED`: a kernel of another stream filled the
    device until then. `SYNC`: the host waits for the device. `HANDOVER`: one thread waits for another. `END`: the window ends with
    it. `NONE`: nothing is known.
    """

    NONE = 0
    PROGRAM = 1
    STREAM = 2
    LAUNCH = 3
    GRAPH = 4
    STREAM_WAIT = 5
    SYNC = 6
    HANDOVER = 7
    END = 8
    OCCUPIED = 9


class Edges(msgspec.Struct, frozen=True):
    """Edges between nodes of a layout, shape (E,): the target begins no earlier than `lag` ns after the source.

    That is after the source's end, for `LAUNCH` after its begin.
    """

    source: Array
    target: Array
    edge: npt.NDArray[np.uint8]
    lag: Array


def edges(nodes: Layout, queues: Queues, waits: tuple[Array, Array], crossings: tuple[Array, Array], moments: Handovers) -> Edges:
    """Return all edges.

    `waits` are pairs (device event, call), `crossings` pairs of device events. No lag is more than was measured.
    """
    found = [
        _program(nodes, moments),
        *_device(nodes, queues, crossings),
        _pairs(Edge.SYNC, nodes.first_device + waits[0], nodes.waiting[waits[1]], _late(nodes, waits)),
        _pairs(
            Edge.HANDOVER,
            nodes.marks[moments.source],
            nodes.marks[moments.target],
            moments.time[moments.target] - moments.time[moments.source],
        ),
        _ends(nodes, queues),
    ]
    return Edges(*(np.concatenate([getattr(one, name) for one in found]) for name in ("source", "target", "edge", "lag")))


def _pairs(edge: Edge, source: Array, target: Array, lag: Array) -> Edges:
    return Edges(source, target, np.full(len(source), edge, dtype=np.uint8), lag)


def _program(nodes: Layout, moments: Handovers) -> Edges:
    """Connect host nodes in thread order from the window's start, except where a thread waits for another."""
    target = np.arange(1, nodes.first_device)
    source = np.where(nodes.place[target] == nodes.place[target - 1], target - 1, 0)
    free = np.ones(len(target), dtype=bool)
    free[nodes.marks[moments.target] - 1] = False
    source, target = source[free], target[free]
    return _pairs(Edge.PROGRAM, source, target, nodes.arrive[target] - nodes.finish[source])


def _late(nodes: Layout, waits: tuple[Array, Array]) -> Array:
    """Return events that by the device's clock end after the call that waited for them."""
    return np.asarray(np.minimum(0, nodes.begin[nodes.waiting[waits[1]]] - nodes.finish[nodes.first_device + waits[0]]))


def _device(nodes: Layout, queues: Queues, crossings: tuple[Array, Array]) -> list[Edges]:
    base = nodes.first_device
    event = np.arange(len(queues.stream))
    follows = np.flatnonzero(np.append(False, queues.stream[1:] == queues.stream[:-1])[: len(event)])
    idle_since = np.full(len(event), np.iinfo(np.int64).min)
    idle_since[follows] = queues.end[follows - 1]
    crossing = queues.begin[crossings[1]] >= queues.end[crossings[0]]
    first, second = crossings[0][crossing], crossings[1][crossing]
    np.maximum.at(idle_since, second, queues.end[first])
    member, sibling = _siblings(queues)
    inside = np.zeros(len(event), dtype=bool)
    inside[member] = True
    launched = np.flatnonzero((queues.call >= 0) & ~inside)
    call = nodes.launching[queues.call[launched]]
    latency = queues.begin[launched] - nodes.begin[call]
    known = latency >= 0
    launched, call, latency = launched[known], call[known], latency[known]
    idle = idle_since[launched] <= nodes.begin[call]
    of_idle = np.sort(latency[idle])
    usual = int(of_idle[int(_USUAL_QUANTILE * (len(of_idle) - 1))]) if len(of_idle) else int(latency.min(initial=1 << 40))
    took = nodes.finish[call] - nodes.begin[call]
    allowed = np.where(idle & (latency <= _LONG_LATENCY * usual + took), latency, np.minimum(latency, np.maximum(usual, took)))
    pause = queues.begin[follows] - queues.end[follows - 1]
    own = ~np.isin(follows, crossings[1])
    gap = _gap(pause[own], queues, follows[own], usual)
    found = [
        _pairs(Edge.STREAM, base + follows - 1, base + follows, np.minimum(pause, gap)),
        _pairs(Edge.LAUNCH, call, base + launched, allowed),
        _pairs(Edge.GRAPH, base + sibling, base + member, np.minimum(queues.begin[member] - queues.end[sibling], gap)),
        _pairs(Edge.STREAM_WAIT, base + first, base + second, np.minimum(queues.begin[second] - queues.end[first], gap)),
    ]
    held = _held_up(nodes, queues, found)
    late, blocker = _occupied(queues, held)
    return [*found, _pairs(Edge.OCCUPIED, base + blocker, base + late, queues.begin[late] - queues.end[blocker])]


def _held_up(nodes: Layout, queues: Queues, found: list[Edges]) -> Array:
    """Return how much later than their edges each device event started, in ns; 0 without edges."""
    allowed = np.full(len(nodes.row), np.iinfo(np.int64).min)
    for one in found:
        left = np.where(one.edge == Edge.LAUNCH, nodes.begin[one.source], nodes.finish[one.source])
        np.maximum.at(allowed, one.target, left + one.lag)
    allowed = allowed[nodes.first_device : nodes.first_device + len(queues.stream)]
    return np.where(allowed > np.iinfo(np.int64).min, queues.begin - allowed, 0)


def _occupied(queues: Queues, held: Array) -> tuple[Array, Array]:
    """Return events that were held up, and for each the event on another stream of its device that seems to have filled the device.

    That ran for most of the time that the other waited, and ended when it began: a kernel's last blocks may run on beside the next.
    """
    late = np.flatnonzero(held > _USUAL_GAP_NS)
    if not len(late):
        return late, late
    device = np.array([name[0] for name in queues.names])[queues.stream]
    begin = queues.begin[late]
    best, best_off = np.full(len(late), -1, dtype=np.int64), np.full(len(late), np.iinfo(np.int64).max)
    for stream, (first, stop) in enumerate(queues.bounds()):
        reach = np.maximum.accumulate(queues.end[first:stop])
        near = first + np.minimum(np.searchsorted(reach, begin - _USUAL_GAP_NS), stop - first - 1)
        off = queues.end[near] - begin
        filled = (queues.begin[near] <= begin - held[late] // 2) & (off >= -_USUAL_GAP_NS) & (off <= _LONGEST_TAIL_NS)
        better = filled & (queues.stream[late] != stream) & (device[late] == device[first]) & (np.abs(off) < best_off)
        best, best_off = np.where(better, near, best), np.where(better, np.abs(off), best_off)
    return late[best >= 0], best[best >= 0]


def _gap(pause: Array, queues: Queues, follows: Array, usual_latency: int) -> int:
    """Return the longest usual pause (ns) between an event and the next, which waited for nothing else."""
    queued = queues.enqueued[follows] + 2 * usual_latency < queues.end[follows - 1]
    pauses = pause[queued & (pause >= 0) & (pause <= _USUAL_GAP_NS)]
    return int(quantile(pauses, 0.95)) if len(pauses) else 0


def _siblings(queues: Queues) -> tuple[Array, Array]:
    """Return events of launched graphs, each with the event of its graph that ended last before it started."""
    launched = np.flatnonzero(queues.call >= 0)
    counts = np.bincount(queues.call[launched]) if len(launched) else np.zeros(1, dtype=np.int64)
    member = launched[counts[queues.call[launched]] > 1]
    if not len(member):
        return member, member
    zero = int(queues.begin[member].min())
    span = int(queues.end[member].max()) - zero + 1
    by_end = member[np.lexsort((queues.end[member], queues.call[member]))]
    keys = queues.call[by_end] * span + queues.end[by_end] - zero
    at = np.searchsorted(keys, queues.call[member] * span + queues.begin[member] - zero, side="right") - 1
    sibling = by_end[np.maximum(at, 0)]
    real = (at >= 0) & (queues.call[sibling] == queues.call[member]) & (queues.begin[sibling] < queues.begin[member])
    return member[real], sibling[real]


def _ends(nodes: Layout, queues: Queues) -> Edges:
    last = [stop - 1 + nodes.first_device for first, stop in queues.bounds() if stop > first]
    if nodes.last >= 0:
        last.append(nodes.last)
    source = np.array(last, dtype=np.int64)
    return _pairs(Edge.END, source, np.full(len(source), len(nodes.row) - 1, dtype=np.int64), np.zeros(len(source), dtype=np.int64))

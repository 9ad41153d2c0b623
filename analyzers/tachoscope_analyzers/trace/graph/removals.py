"""What can be taken out of a dependency graph, and which of its times that shortens."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.events import host_spans as host
from tachoscope_analyzers.trace.events.intervals import Intervals, covered, difference, gaps, union
from tachoscope_analyzers.trace.events.kernel_names import is_communication
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.runtime_calls import SYNCHRONISING, Role
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge
from tachoscope_analyzers.trace.graph.graph import Graph
from tachoscope_analyzers.trace.graph.nodes import Node
from tachoscope_analyzers.trace.reading.event_kinds import Kind

Array = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DATA_LOADING, CHECKPOINT, EVALUATION = host.DATA_LOADING, host.CHECKPOINT, host.EVALUATION
GARBAGE_COLLECTION, ALLOCATOR, SYNCHRONISATION = host.GARBAGE_COLLECTION, host.ALLOCATOR, host.SYNCHRONISATION
HOST_COMMUNICATION, HOST_PAUSE, HOST_LAUNCH, HOST = "host_communication", "host_pause", "host_launch", "host"
KERNEL_GAP, KERNEL_WAIT, UNEXPLAINED, EVERYTHING = "kernel_gap", "kernel_wait", "unexplained", "everything"
COPIES, COMMUNICATION, COMPUTE, KERNEL, OPERATOR = "copies", "communication", "compute", "kernel", "operator"

NO_EDGE = -(1 << 61)
"""The lag of an edge that lets its target begin at once."""
_LEAST_PAUSE_NS = 1_000_000
_SPANS = {
    DATA_LOADING: host.DATA_LOADING,
    CHECKPOINT: host.CHECKPOINT,
    EVALUATION: host.EVALUATION,
    GARBAGE_COLLECTION: host.GARBAGE_COLLECTION,
    HOST_COMMUNICATION: host.COMMUNICATION,
}


class Selection(msgspec.Struct, frozen=True):
    """What to take out: one of `REMOVALS`, with a `name` for kernels and operators, or the events `rows`, or both.

    Attributes:
        kept_ratio: share of the time that stays, such as 0.5 for twice as fast.
    """

    what: str = ""
    name: str = ""
    rows: tuple[int, ...] = ()
    kept_ratio: float = 0.0


class Times(msgspec.Struct, frozen=True):
    """Times of a graph that are shortened in place, in ns: `own` and `unexplained` of nodes, `lag` of edges."""

    own: Array
    lag: Array
    unexplained: Array


def times_of(graph: Graph) -> Times:
    """Return times of the graph that a removal can change."""
    return Times(graph.own.copy(), graph.lag.copy(), graph.unexplained.copy())


def take_out(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:
    """Shorten times in place. None ever gets longer, so neither can a step.

    Raises:
        ValueError: the selection is none of `REMOVALS`, or the share that it keeps is not one.
    """
    if not 0 <= selection.kept_ratio <= 1:
        raise ValueError(f"a share of the time to keep lies between 0 and 1, not at {selection.kept_ratio}")
    if selection.what and selection.what not in _WAYS:
        raise ValueError(f"{selection.what!r} cannot be taken out of a trace; one of {', '.join(REMOVALS)} can")
    if selection.what:
        _WAYS[selection.what](view, graph, selection, times)
    if selection.rows:
        chosen = np.isin(graph.row, selection.rows)
        _shorten(times.own, chosen, selection.kept_ratio)
        if selection.kept_ratio == 0:  # a call that is not made waits for nothing
            times.lag[chosen[graph.target] & (graph.edge == Edge.SYNC)] = NO_EDGE


def _shorten(times: Array, chosen: Mask, kept_ratio: float) -> None:
    """Scale some times. Negative ones, of events that start before their predecessors end, stay."""
    times[chosen] = np.minimum(times[chosen], np.floor(np.maximum(times[chosen], 0) * kept_ratio).astype(np.int64))


def _calls(graph: Graph) -> Mask:
    return np.isin(graph.kind, (Node.CALL, Node.WAIT))


def _launching(graph: Graph) -> Mask:
    found = np.zeros(len(graph), dtype=bool)
    found[graph.source[graph.edge == Edge.LAUNCH]] = True
    return found


def _synchronisation(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:  # noqa: ARG001
    if selection.kept_ratio == 0:  # a launch into a full stream waits too, but is not a synchronisation
        times.lag[(graph.edge == Edge.SYNC) & ~_launching(graph)[graph.target]] = NO_EDGE
    _shorten(times.own, _calls(graph) & np.isin(graph.role, SYNCHRONISING), selection.kept_ratio)


def _allocator(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:  # noqa: ARG001
    managing = _calls(graph) & np.isin(graph.role, (Role.ALLOCATION, Role.FREE))
    _shorten(times.own, managing, selection.kept_ratio)
    if selection.kept_ratio == 0:  # freeing waits for the device
        times.lag[managing[graph.target] & (graph.edge == Edge.SYNC)] = NO_EDGE


def _host_launch(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:  # noqa: ARG001
    _shorten(times.lag, graph.edge == Edge.LAUNCH, selection.kept_ratio)
    _shorten(times.own, _calls(graph) & _launching(graph), selection.kept_ratio)


def _host(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:  # noqa: ARG001
    _shorten(times.lag, np.isin(graph.edge, (Edge.LAUNCH, Edge.PROGRAM, Edge.HANDOVER)), selection.kept_ratio)
    _shorten(times.own, _calls(graph), selection.kept_ratio)


def _kernel_gap(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:  # noqa: ARG001
    _shorten(times.lag, np.isin(graph.edge, (Edge.STREAM, Edge.GRAPH)), selection.kept_ratio)


def _kernel_wait(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:  # noqa: ARG001
    if selection.kept_ratio == 0:
        times.lag[np.isin(graph.edge, (Edge.STREAM_WAIT, Edge.OCCUPIED))] = NO_EDGE


def _unexplained(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:  # noqa: ARG001
    _shorten(times.unexplained, np.ones(len(graph), dtype=bool), selection.kept_ratio)


def _everything(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:  # noqa: ARG001
    for one in (times.own, times.lag, times.unexplained):
        _shorten(one, np.ones(len(one), dtype=bool), selection.kept_ratio)


def _host_spans(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:
    """Shorten host time spent in some events, or in none for long (`host_pause`)."""
    finish = graph.begin + graph.own
    call, program = _calls(graph), graph.edge == Edge.PROGRAM
    least = np.minimum(times.lag, 0)
    gone = 1 - selection.kept_ratio
    for track in distinct(graph.place[call | (graph.kind == Node.MARK)]).tolist():
        spans = _spans(view, graph, selection.what, track)
        if not len(spans):
            continue
        edges = np.flatnonzero(program & (graph.place[graph.target] == track))
        nodes = np.flatnonzero(call & (graph.place == track))
        begin = finish[graph.source[edges]]
        times.lag[edges] -= np.ceil(covered(spans, begin, begin + graph.lag[edges]) * gone).astype(np.int64)
        times.own[nodes] -= np.ceil(covered(spans, graph.begin[nodes], finish[nodes]) * gone).astype(np.int64)
    np.maximum(times.own, 0, out=times.own)  # the same time may be taken out for several reasons
    np.maximum(times.lag, least, out=times.lag)


def _spans(view: TraceView, graph: Graph, what: str, track: int) -> Intervals:
    trace = view.trace
    causes = _SPANS.values() if what == HOST_PAUSE else [_SPANS[what]]
    rows = np.concatenate([view.host.of_cause(cause).row for cause in causes])
    rows = rows[trace.events["track"][rows] == track]
    if what != HOST_PAUSE:
        return union(trace.start[rows], trace.end[rows])
    if not len(view.work):  # on CPU other threads exchange while the training thread stands still: it waits for them
        rows = np.concatenate([rows, view.host.of_cause(host.COMMUNICATION).row])
    named = union(trace.start[rows], trace.end[rows])
    pauses = gaps(view.activity(track), graph.start_ns, graph.end_ns)
    long = pauses.ends - pauses.starts >= _LEAST_PAUSE_NS
    return difference(Intervals(pauses.starts[long], pauses.ends[long]), named)


def _device(view: TraceView, graph: Graph, selection: Selection, times: Times) -> None:
    trace = view.trace
    nodes = np.flatnonzero(graph.kind == Node.DEVICE)
    rows, chosen = graph.row[nodes], np.zeros(len(graph), dtype=bool)
    if selection.what == COPIES:
        chosen[nodes] = trace.kind[rows] != Kind.KERNEL
    elif selection.what == OPERATOR:
        chosen[nodes] = np.isin(rows, launched_in(view, selection.name))
    elif selection.what == KERNEL:
        chosen[nodes] = trace.events["name"][rows] == trace.code(selection.name)
    else:
        codes, place = trace.distinct_names(rows)
        moves = is_communication(trace.strings[codes].tolist())[place]
        chosen[nodes] = (trace.kind[rows] == Kind.KERNEL) & (moves == (selection.what == COMMUNICATION))
    _shorten(times.own, chosen, selection.kept_ratio)


def launched_in(view: TraceView, operator: str) -> Rows:
    """Return the device events that were launched within any call of an operator, at whatever depth, shape (R,)."""
    work, trace = view.work, view.trace
    code = trace.code(operator)
    found = np.zeros(len(work), dtype=bool)
    at = np.where(work.launch >= 0, view.operator_of[np.maximum(work.launch, 0)], -1) if len(work) else work.launch
    while (inside := at >= 0).any():
        found[inside] |= trace.events["name"][at[inside]] == code
        at = np.where(inside, view.operator_of[np.maximum(at, 0)], -1)
    return work.row[found]


_WAYS = {
    **dict.fromkeys((*_SPANS, HOST_PAUSE), _host_spans),
    ALLOCATOR: _allocator,
    SYNCHRONISATION: _synchronisation,
    HOST_LAUNCH: _host_launch,
    HOST: _host,
    KERNEL_GAP: _kernel_gap,
    KERNEL_WAIT: _kernel_wait,
    UNEXPLAINED: _unexplained,
    **dict.fromkeys((COPIES, COMMUNICATION, COMPUTE, KERNEL, OPERATOR), _device),
    EVERYTHING: _everything,
}
REMOVALS = tuple(_WAYS)
"""data_loading, checkpoint, evaluation, garbage_collection, host_communication (gloo, barriers): the host's time in these.
allocator: calls that allocate and free. synchronisation: the host waits for nothing (neither calls, nor copies of pageable memory).
host_pause: stretches of a millisecond or more in no operator and none of the named ones. host_launch: launching calls cost nothing,
and what they launch starts at once. host: all of the host's time. kernel_gap: pauses between events of a stream. kernel_wait: waits
of streams for one another. unexplained: waits whose cause is not known. copies, communication, compute: those device events.
kernel, operator: device events of that name, or launched in an operator of that name. everything: all."""

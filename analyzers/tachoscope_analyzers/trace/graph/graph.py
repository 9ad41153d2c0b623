"""The dependency graph of a window of a trace: what had to be over before each host call and each device event could begin.

Host threads are cut only at the calls that matter (launches, waits, allocations) and where threads hand work over, so the graph
stays small. All measured times come out of it exactly: a node begins when the last of its edges lets it, plus its own
`unexplained` wait where no edge tells why it began so late.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.thread_handover import handovers, main_thread
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge, Edges, edges
from tachoscope_analyzers.trace.graph.nodes import Layout, WindowEnds, calls_between, layout, queues_between
from tachoscope_analyzers.trace.graph.waits import host_waits, stream_waits, sync_events
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any
from tachoscope_analyzers.trace.reading.trace import Trace

Array = npt.NDArray[np.int64]


class Graph(msgspec.Struct, frozen=True):
    """A dependency graph, nodes (N,) in an order in which each stands after all that it waits for, edges (E,) sorted by target.

    Attributes:
        row: event of the node, -1 for none. kind: `Node`. role: `Role` of calls.
        place: track of a host node, ~p for the stream at position p of `streams`.
        begin, own: when it began to be worked on (ns), and for how long (ns). A call that waits begins when the wait is over.
        unexplained: ns between what its edges allow and its begin.
        source, target, edge, lag: nodes, `Edge`, and ns between them.
        streams: (device, stream). start_ns, end_ns: the window. edges_dropped: dependencies that the clocks contradict.
    """

    row: Array
    kind: npt.NDArray[np.uint8]
    role: npt.NDArray[np.uint8]
    place: Array
    begin: Array
    own: Array
    unexplained: Array
    source: Array
    target: Array
    edge: npt.NDArray[np.uint8]
    lag: Array
    streams: list[tuple[int, int]]
    start_ns: int
    end_ns: int
    edges_dropped: int

    def __len__(self) -> int:
        return len(self.row)

    @property
    def reached(self) -> Array:
        """When the source of each edge lets its target begin at the earliest (ns), shape (E,)."""
        own = np.where(self.edge == Edge.LAUNCH, 0, self.own[self.source])
        return np.asarray(self.begin[self.source] + own + self.lag)


def dependency_graph(view: TraceView) -> Graph:
    """Return the graph of all steps of a trace, from the begin of the first to the end of the last.

    Invariant: replayed without a change, every node begins exactly when it was measured to begin.
    """
    trace, work = view.trace, view.work
    start, end = (int(view.steps.start[0]), int(view.steps.end[-1])) if len(view.steps) else (0, 0)
    device = np.flatnonzero((work.end > start) & (work.start < end))
    calls, call = calls_between(trace, work.launch[device], start, end)
    queues = queues_between(view, device, call, start, end)
    said = sync_events(trace, calls, queues)
    waits = host_waits(calls, queues, said)
    main = main_thread(trace)
    moments = handovers(trace, view.activity, main, start, end)
    nodes = layout(view, device, calls, queues, waits, moments, _ends(trace, main, start, end))
    found = edges(nodes, queues, waits, stream_waits(calls, queues, said), moments)
    return _ordered(nodes, found, queues.names)


def _ends(trace: Trace, main: int, start: int, end: int) -> WindowEnds:
    """Return the window, and the end of the main thread's last event in it."""
    host = (trace.events["track"] == main) & is_any(trace.kind, (Kind.CPU_OP, Kind.ANNOTATION, Kind.RUNTIME)) & (trace.start < end)
    last = min(int(trace.end[host].max(initial=start)), end)
    return WindowEnds(start, end, main if last > start else -1, last)


def _ordered(nodes: Layout, found: Edges, streams: list[tuple[int, int]]) -> Graph:
    size = len(nodes.row)
    order = np.argsort(nodes.begin, kind="stable")
    order = np.concatenate([[0], order[(order != 0) & (order != size - 1)], [size - 1]])
    rank = np.empty(size, dtype=np.int64)
    rank[order] = np.arange(size)
    source, target = rank[found.source], rank[found.target]
    kept = source < target
    lonely = np.ones(size, dtype=bool)
    lonely[0] = False
    lonely[target[kept]] = False
    alone = np.flatnonzero(lonely)  # nothing is known of what these wait for
    source, target = np.append(source[kept], np.zeros_like(alone)), np.append(target[kept], alone)
    edge = np.append(found.edge[kept], np.full(len(alone), Edge.NONE, dtype=np.uint8))
    lag = np.append(found.lag[kept], np.zeros_like(alone))
    by_target = np.argsort(target, kind="stable")
    source, target, edge, lag = source[by_target], target[by_target], edge[by_target], lag[by_target]
    begin, own = nodes.begin[order], (nodes.finish - nodes.begin)[order]
    graph = Graph(
        row=nodes.row[order],
        kind=nodes.kind[order],
        role=nodes.role[order],
        place=nodes.place[order],
        begin=begin,
        own=own,
        unexplained=np.zeros(size, dtype=np.int64),
        source=source,
        target=target,
        edge=edge,
        lag=lag,
        streams=streams,
        start_ns=int(begin[0]),
        end_ns=int(begin[-1]),
        edges_dropped=int((~kept).sum()),
    )
    _explain(graph)
    return graph


def _explain(graph: Graph) -> None:
    """Compute how much later than its edges each node started."""
    if len(graph.source):
        first = np.flatnonzero(np.append(True, graph.target[1:] != graph.target[:-1]))
        at = graph.target[first]
        graph.unexplained[at] = graph.begin[at] - np.maximum.reduceat(graph.reached, first)

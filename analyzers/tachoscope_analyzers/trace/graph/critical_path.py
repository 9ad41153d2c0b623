"""The critical path: the one chain of host calls, waits and device events that a run was as long as."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.trace.events import host_spans as host
from tachoscope_analyzers.trace.events.categories import Labels, labels, names
from tachoscope_analyzers.trace.events.innermost_operator import cut_by_operator
from tachoscope_analyzers.trace.events.intervals import covered, union
from tachoscope_analyzers.trace.events.kernel_names import is_communication
from tachoscope_analyzers.trace.events.runtime_calls import SYNCHRONISING, Role
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge
from tachoscope_analyzers.trace.graph.graph import Graph, dependency_graph
from tachoscope_analyzers.trace.graph.nodes import Node
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.trace import Trace

Array = npt.NDArray[np.int64]

CATEGORIES = (
    "compute_kernel",
    "communication",
    "memory_copy",
    "kernel_gap",
    "launch_latency",
    "synchronisation",
    "runtime_call",
    "allocator",
    "data_loading",
    "host_operator",
    "host_other",
    "thread_handover",
    "unexplained",
)
"""kernel_gap: between events of the device that follow on one another. launch_latency: from a call to the event that it launched.
synchronisation: what a waiting call took after its wait was over. host_other: the thread was in no operator (Python, waiting)."""
COLUMNS = ["step", "start_ns", "duration_ns", "category", "place", "name", "operator", "edge", "row"]
_CATEGORY = {name: code for code, name in enumerate(CATEGORIES)}
_LAG, _WAIT, _OWN = 0, 1, 2


class _Pieces(msgspec.Struct, frozen=True):
    """Pieces of the path in order of time, shape (P,): ns, position in `CATEGORIES`, place, event, operator's event, `Edge`."""

    start: Array
    end: Array
    category: Array
    place: Array
    row: Array
    operator: Array
    edge: Array


def critical_path(view: TraceView, graph: Graph | None = None) -> pd.DataFrame:
    """Return the critical path through the steps of a trace, from the begin of the first to the end of the last.

    It is followed backwards: from what ended last to what let that begin last, and so on. Invariant: the segments tile the window,
    so their durations sum to its length, to the nanosecond.
    Columns: step (the device's, as the trace numbers them; -1 between them), start_ns, duration_ns, category (see `CATEGORIES`),
    place (thread or stream), name, operator (innermost one around the host call; for device work that of its launch), edge (see
    `Edge`: how the path came to this segment), row (event, -1 for none).
    """
    graph = dependency_graph(view) if graph is None else graph
    pieces = _at_steps(view, _refined(view, _coarse(view, graph)))
    trace = view.trace
    at = view.device_steps.step_at(pieces.start)
    step = np.where(at >= 0, view.device_steps.number[np.maximum(at, 0)], -1) if len(view.device_steps) else at
    return pd.DataFrame(
        {
            "step": step,
            "start_ns": pieces.start,
            "duration_ns": pieces.end - pieces.start,
            "category": pd.Categorical.from_codes(pieces.category, pd.Index(CATEGORIES)),
            "place": place_names(trace, graph, pieces.place).categorical,
            "name": names(trace, pieces.row).categorical,
            "operator": names(trace, pieces.operator).categorical,
            "edge": labels([edge.name.lower() for edge in Edge], pieces.edge).categorical,
            "row": pieces.row,
        },
        columns=COLUMNS,
    )


def by_category(path: pd.DataFrame, *, per_step: bool = False) -> pd.DataFrame:
    """Return the time of a critical path by category, longest first.

    Columns: (step,) category, count, duration_ns, share_percent.
    """
    return _summed(path, (["step"] if per_step else []) + ["category"])


def by_name(path: pd.DataFrame) -> pd.DataFrame:
    """Return the time of a critical path by what it was spent in.

    Columns: category, name, operator, count, duration_ns, share_percent.
    """
    return _summed(path, ["category", "name", "operator"])


def _summed(path: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    table = path.groupby(keys, observed=True, sort=False)["duration_ns"].agg(count="size", duration_ns="sum").reset_index()
    whole = (
        path.groupby("step")["duration_ns"].sum().reindex(table["step"]).to_numpy() if "step" in keys else path["duration_ns"].sum()
    )
    table["share_percent"] = 100 * table["duration_ns"] / np.maximum(whole, 1)
    order = ["step", "duration_ns"] if "step" in keys else ["duration_ns"]
    return table.sort_values(order, ascending=[True] * (len(order) - 1) + [False], kind="stable", ignore_index=True)


def path_nodes(graph: Graph) -> tuple[Array, Array]:
    """Return the nodes of the critical path from the origin to the end, shape (M,), and the edge into each (-1 for the first).

    Of several edges that let a node begin at the same moment the one from what happened last is followed.
    """
    need = (graph.begin - graph.unexplained)[graph.target]
    tight = np.flatnonzero(graph.reached == need)
    order = tight[np.lexsort((graph.lag[tight], graph.target[tight]))]
    first = order[np.append(True, graph.target[order][1:] != graph.target[order][:-1])[: len(order)]]
    entered = np.full(len(graph), -1, dtype=np.int64)
    entered[graph.target[first]] = first
    source = np.where(entered >= 0, graph.source[np.maximum(entered, 0)] if len(graph.source) else 0, -1).tolist()
    found = [len(graph) - 1]
    while (before := source[found[-1]]) >= 0:
        found.append(before)
    nodes = np.array(found[::-1], dtype=np.int64)
    return nodes, entered[nodes]


def _coarse(view: TraceView, graph: Graph) -> _Pieces:
    """Return the path's pieces, with host time between two calls as one."""
    nodes, entered = path_nodes(graph)
    edge, node, source = entered[1:], nodes[1:], nodes[:-1]
    kind = graph.edge[edge]
    left = graph.begin[source] + np.where(kind == Edge.LAUNCH, 0, graph.own[source])
    begun = graph.begin[node]
    bounds = np.stack([left, begun - graph.unexplained[node], begun], axis=1).ravel()
    # An event may begin before the one that it follows has ended: what comes later on the path counts.
    bounds = np.minimum.accumulate(np.append(bounds, graph.end_ns)[::-1])[::-1]
    part = np.tile([_LAG, _WAIT, _OWN], len(node))
    node, source, kind = np.repeat(node, 3), np.repeat(source, 3), np.repeat(kind, 3)
    row = np.where((part == _LAG) & (kind == Edge.LAUNCH), graph.row[source], np.where(part == _OWN, graph.row[node], -1))
    kept = bounds[1:] > bounds[:-1]
    category = np.where(part == _OWN, _own_categories(view.trace, graph)[node], _lag_categories(kind, part))
    launch = _launch_of(view)[np.maximum(row, 0)]
    operator = np.where(row >= 0, view.operator_of[np.where(launch >= 0, launch, row)] if len(view.operator_of) else -1, -1)
    columns = (bounds[:-1], bounds[1:], category, graph.place[node], row, operator, kind)
    return _Pieces(*(column[kept].astype(np.int64) for column in columns))


def _launch_of(view: TraceView) -> Array:
    found = np.full(max(len(view.trace.events), 1), -1, dtype=np.int64)
    found[view.work.row] = view.work.launch
    return found


def _lag_categories(edge: npt.NDArray[np.uint8], part: Array) -> Array:
    table = np.full(len(Edge), _CATEGORY["kernel_gap"])
    table[[Edge.NONE, Edge.END]] = _CATEGORY["unexplained"]
    table[[Edge.PROGRAM, Edge.SYNC]] = _CATEGORY["host_other"]
    table[Edge.LAUNCH] = _CATEGORY["launch_latency"]
    table[Edge.HANDOVER] = _CATEGORY["thread_handover"]
    return np.where(part == _WAIT, _CATEGORY["unexplained"], table[edge])


def _own_categories(trace: Trace, graph: Graph) -> Array:
    found = np.full(len(graph), _CATEGORY["runtime_call"])
    found[(graph.kind == Node.WAIT) | np.isin(graph.role, SYNCHRONISING)] = _CATEGORY["synchronisation"]
    found[np.isin(graph.role, (Role.ALLOCATION, Role.FREE))] = _CATEGORY["allocator"]
    device = np.flatnonzero(graph.kind == Node.DEVICE)
    rows = graph.row[device]
    codes, place = trace.distinct_names(rows)
    moving = is_communication(trace.strings[codes].tolist())[place]
    kernel = trace.kind[rows] == Kind.KERNEL
    found[device] = np.select(
        [~kernel, moving], [_CATEGORY["memory_copy"], _CATEGORY["communication"]], _CATEGORY["compute_kernel"]
    )
    return found


def _refined(view: TraceView, pieces: _Pieces) -> _Pieces:
    """Split host time between calls by operator, and name data loading."""
    trace = view.trace
    program = np.flatnonzero((pieces.category == _CATEGORY["host_other"]) & (pieces.place >= 0))
    loader = view.host.of_cause(host.DATA_LOADING).row
    number, start, end, owner = cut_by_operator(trace, pieces.place[program], pieces.start[program], pieces.end[program], loader)
    count = np.ones(len(pieces.start), dtype=np.int64)
    count[program] = np.bincount(number, minlength=len(program))
    origin = np.repeat(np.arange(len(pieces.start)), count)
    cut = np.zeros(len(pieces.start), dtype=bool)
    cut[program] = True
    fine = np.flatnonzero(cut[origin])
    columns = {name: getattr(pieces, name)[origin] for name in _Pieces.__struct_fields__}
    columns["start"][fine], columns["end"][fine], columns["row"][fine], columns["operator"][fine] = start, end, owner, owner
    working = (owner >= 0) & (trace.kind[np.maximum(owner, 0)] == Kind.CPU_OP) if len(trace.kind) else np.zeros(0, dtype=bool)
    owners = names(trace, owner)
    marker = np.array([host.MARKER.match(name) is not None for name in owners.texts], dtype=bool)[owners.number]
    columns["category"][fine] = np.where(working & ~marker, _CATEGORY["host_operator"], _CATEGORY["host_other"])
    on_host = (columns["place"] >= 0) & np.isin(columns["category"], [_CATEGORY[name] for name in _HOST])
    for thread in np.unique(trace.events["track"][loader]).tolist():
        mine = loader[trace.events["track"][loader] == thread]
        at = np.flatnonzero(on_host & (columns["place"] == thread))
        inside = covered(union(trace.start[mine], trace.end[mine]), columns["start"][at], columns["end"][at]) > 0
        columns["category"][at[inside]] = _CATEGORY["data_loading"]
    return _Pieces(**columns)


_HOST = ("host_operator", "host_other", "runtime_call")


def _at_steps(view: TraceView, pieces: _Pieces) -> _Pieces:
    steps = view.device_steps
    cuts = np.unique(np.concatenate([steps.start, steps.end]))
    first = np.searchsorted(cuts, pieces.start, side="right")
    count = np.maximum(np.searchsorted(cuts, pieces.end, side="left") - first, 0) + 1
    of = np.repeat(np.arange(len(pieces.start)), count)
    inside = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    columns = {name: getattr(pieces, name)[of] for name in _Pieces.__struct_fields__}
    later, earlier = inside > 0, inside < count[of] - 1
    columns["start"][later] = cuts[(first[of] + inside - 1)[later]]
    columns["end"][earlier] = cuts[(first[of] + inside)[earlier]]
    return _Pieces(**columns)


def place_names(trace: Trace, graph: Graph, place: Array) -> Labels:
    """Return the names of places: `thread 123`, `device 0 stream 7`, or empty for the window's ends, shape of `place`."""
    found, number = np.unique(place, return_inverse=True)
    texts = []
    for one in found.tolist():
        if one >= 0:
            track = trace.meta.tracks[one]
            texts.append(f"thread {track.thread}" if track.thread else f"process {track.process}")
        elif ~one < len(graph.streams):
            texts.append("device {} stream {}".format(*graph.streams[~one]))
        else:
            texts.append("")
    return labels(texts, number.reshape(-1))

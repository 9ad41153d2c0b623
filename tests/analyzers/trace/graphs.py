"""What a dependency graph holds, for tests."""

import numpy as np

from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge
from tachoscope_analyzers.trace.graph.graph import Graph


def edges_between(graph: Graph, view: TraceView, source: str, target: str) -> list[Edge]:
    """The edges from any event of one name to any of another."""
    names = np.where(graph.row >= 0, view.trace.names(np.maximum(graph.row, 0)), "")
    kept = (names[graph.source] == source) & (names[graph.target] == target)
    return [Edge(edge) for edge in graph.edge[kept]]


def check(graph: Graph) -> None:
    """Assert what holds of every graph."""
    assert (graph.source < graph.target).all()
    assert (graph.unexplained >= 0).all()
    assert (graph.own >= 0).all()
    need = graph.begin - graph.unexplained
    latest = np.full(len(graph), graph.start_ns, dtype=np.int64)
    np.maximum.at(latest, graph.target, graph.reached)
    assert (latest[1:] == need[1:]).all(), "a node begins when its last edge lets it, and its unexplained wait is over"
    assert (np.diff(graph.target) >= 0).all()

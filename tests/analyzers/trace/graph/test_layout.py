from pathlib import Path

from graphs import check, edges_between
from planting import Planted
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge
from tachoscope_analyzers.trace.graph.graph import dependency_graph
from tachoscope_analyzers.trace.graph.nodes import Node


def test_a_driver_call_within_a_runtime_call_is_part_of_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 100_000)
    planted.call("cudaLaunchKernelExC", 10_000, 9_000, correlation=5)
    planted.add("cuda_driver", "cuLaunchKernelEx", 12_000, 3_000, correlation=5)
    planted.device("kernel", "k", 30_000, 5_000, correlation=5)
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "cudaLaunchKernelExC", "k") == [Edge.LAUNCH]
    assert (graph.kind == Node.CALL).sum() == 1


def test_events_beyond_the_window_are_cut_at_its_bounds(tmp_path: Path) -> None:
    planted = Planted()
    planted.kernel("before", 50_000, 100_000, launched=10_000)
    planted.step(1, 100_000, 100_000)
    planted.step(2, 200_000, 100_000)
    planted.call("cudaDeviceSynchronize", 260_000, 400_000)
    graph = dependency_graph(TraceView(planted.read(tmp_path)))
    check(graph)
    assert graph.start_ns == 100_000
    device = graph.kind == Node.DEVICE
    assert graph.begin[device].tolist() == [100_000]
    assert graph.own[device].tolist() == [50_000]
    assert (graph.begin + graph.own).max() <= graph.end_ns


def test_calls_that_neither_launch_nor_wait_nor_allocate_are_no_nodes(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 100_000)
    planted.call("cudaEventQuery", 10_000, 1_000)
    planted.call("cudaMalloc", 20_000, 1_000)
    graph = dependency_graph(TraceView(planted.read(tmp_path)))
    assert graph.kind.tolist() == [Node.ORIGIN, Node.CALL, Node.MARK, Node.END]

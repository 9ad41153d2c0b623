from pathlib import Path

from graphs import check, edges_between
from planting import Planted
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge
from tachoscope_analyzers.trace.graph.graph import dependency_graph


def test_a_kernel_waits_for_its_launch_and_for_the_one_before_it_on_its_stream(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 200_000)
    planted.kernel("one", 20_000, 50_000, launched=10_000)
    planted.kernel("two", 70_000, 50_000, launched=30_000)
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "one", "two") == [Edge.STREAM]
    assert edges_between(graph, view, "cudaLaunchKernel", "one") == [Edge.LAUNCH]


def test_a_kernel_without_a_launch_keeps_its_place_in_its_stream(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 200_000)
    planted.kernel("one", 20_000, 50_000, launched=10_000)
    planted.device("kernel", "two", 70_000, 50_000, correlation=999)
    view = TraceView(planted.read(tmp_path))
    assert edges_between(dependency_graph(view), view, "one", "two") == [Edge.STREAM]


def test_a_kernel_that_starts_as_a_long_one_of_another_stream_ends_was_held_up_by_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("large", 20_000, 300_000, launched=10_000, stream=7)
    planted.kernel("small", 310_000, 5_000, launched=40_000, stream=20)
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "large", "small") == [Edge.OCCUPIED]
    assert graph.unexplained.sum() == 0


def test_a_late_kernel_that_nothing_explains_is_left_unexplained(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 900_000)
    planted.kernel("early", 17_000, 1_000, launched=10_000)
    planted.kernel("late", 800_000, 5_000, launched=40_000)
    view = TraceView(planted.read(tmp_path))
    assert dependency_graph(view).unexplained.sum() == 760_000 - 7_000


def test_a_kernel_that_seems_to_start_before_its_launch_has_no_edge_from_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 100_000)
    planted.kernel("early", 20_000, 5_000, launched=30_000)
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    assert edges_between(graph, view, "cudaLaunchKernel", "early") == []


def test_events_of_one_graph_launch_wait_for_one_another_and_not_for_the_call(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.call("cudaGraphLaunch", 10_000, 9_000, correlation=5)
    planted.device("kernel", "a", 30_000, 50_000, correlation=5, stream=7)
    planted.device("kernel", "b", 81_000, 50_000, correlation=5, stream=20)
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "a", "b") == [Edge.GRAPH]
    assert edges_between(graph, view, "cudaGraphLaunch", "b") == []

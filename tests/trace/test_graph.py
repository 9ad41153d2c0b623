from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from planting import BACKWARD, Planted
from recorded import ALL, recorded
from simulation import JOBS, Action, played
from tachoscope_analyzers.trace.edges import Edge
from tachoscope_analyzers.trace.graph import Graph, dependency_graph
from tachoscope_analyzers.trace.layout import Node
from tachoscope_analyzers.trace.read import read
from tachoscope_analyzers.trace.view import View

MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def edges_between(graph: Graph, view: View, source: str, target: str) -> list[Edge]:
    """The edges from any event of one name to any of another."""
    names = np.where(graph.row >= 0, view.trace.names(np.maximum(graph.row, 0)), "")
    kept = (names[graph.source] == source) & (names[graph.target] == target)
    return [Edge(edge) for edge in graph.edge[kept]]


def check(graph: Graph) -> None:
    assert (graph.source < graph.target).all()
    assert (graph.unexplained >= 0).all()
    assert (graph.own >= 0).all()
    need = graph.begin - graph.unexplained
    latest = np.full(len(graph), graph.start_ns, dtype=np.int64)
    np.maximum.at(latest, graph.target, graph.reached)
    assert (latest[1:] == need[1:]).all(), "a node begins when its last edge lets it, and its unexplained wait is over"
    assert (np.diff(graph.target) >= 0).all()


@MANY
@given(JOBS)
def test_of_a_job_that_follows_the_rules_nothing_is_left_unexplained(tmp_path: Path, actions: list[Action]) -> None:
    view, _ = played(actions, tmp_path)
    graph = dependency_graph(view)
    check(graph)
    assert graph.unexplained.sum() == 0
    assert graph.edges_dropped == 0


@pytest.mark.parametrize("name", ALL)
def test_the_measured_times_come_out_of_every_recorded_trace(name: str) -> None:
    view = View(read(recorded(name)))
    graph = dependency_graph(view)
    check(graph)
    assert graph.kind[0] == Node.ORIGIN
    assert graph.kind[-1] == Node.END
    assert (graph.kind == Node.DEVICE).sum() <= len(view.work)


def test_a_trace_without_events_has_a_graph_without_time(tmp_path: Path) -> None:
    graph = dependency_graph(View(Planted().read(tmp_path)))
    check(graph)
    assert graph.end_ns == graph.start_ns


def test_a_kernel_waits_for_its_launch_and_for_the_one_before_it_on_its_stream(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 200_000)
    planted.kernel("one", 20_000, 50_000, launched=10_000)
    planted.kernel("two", 70_000, 50_000, launched=30_000)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "one", "two") == [Edge.STREAM]
    assert edges_between(graph, view, "cudaLaunchKernel", "one") == [Edge.LAUNCH]


def test_a_kernel_without_a_launch_keeps_its_place_in_its_stream(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 200_000)
    planted.kernel("one", 20_000, 50_000, launched=10_000)
    planted.device("kernel", "two", 70_000, 50_000, correlation=999)
    view = View(planted.read(tmp_path))
    assert edges_between(dependency_graph(view), view, "one", "two") == [Edge.STREAM]


def test_a_stream_waits_for_the_event_that_the_trace_names(tmp_path: Path) -> None:
    actions = [Action("kernel", 100_000, 7), Action("wait", stream=20), Action("kernel", 50_000, 20), Action("sync")]
    view, _ = played(actions, tmp_path)
    assert edges_between(dependency_graph(view), view, "gemm", "gemm") == [Edge.STREAM_WAIT]


def test_a_stream_wait_without_details_is_inferred_from_what_ended_before(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("first", 20_000, 100_000, launched=10_000, stream=7)
    planted.call("cudaStreamWaitEvent", 30_000, 2_000)
    planted.kernel("second", 121_000, 50_000, launched=40_000, stream=20)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "first", "second") == [Edge.STREAM_WAIT]


def test_a_kernel_that_starts_as_a_long_one_of_another_stream_ends_was_held_up_by_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("large", 20_000, 300_000, launched=10_000, stream=7)
    planted.kernel("small", 310_000, 5_000, launched=40_000, stream=20)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "large", "small") == [Edge.OCCUPIED]
    assert graph.unexplained.sum() == 0


def test_a_late_kernel_that_nothing_explains_is_left_unexplained(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 900_000)
    planted.kernel("early", 17_000, 1_000, launched=10_000)
    planted.kernel("late", 800_000, 5_000, launched=40_000)
    view = View(planted.read(tmp_path))
    assert dependency_graph(view).unexplained.sum() == 760_000 - 7_000


def test_a_stream_synchronisation_waits_for_the_stream_that_ended_with_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("awaited", 20_000, 100_000, launched=10_000, stream=7)
    planted.kernel("other", 30_000, 400_000, launched=22_000, stream=20)
    planted.call("cudaStreamSynchronize", 40_000, 85_000)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "awaited", "cudaStreamSynchronize") == [Edge.SYNC]
    assert edges_between(graph, view, "other", "cudaStreamSynchronize") == []
    wait = graph.kind == Node.WAIT
    assert graph.own[wait].tolist() == [5_000]


def test_an_event_synchronisation_waits_for_what_was_launched_before_the_event_was_recorded(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("before", 20_000, 100_000, launched=10_000)
    record = planted.call("cudaEventRecord", 20_000, 2_000)
    planted.kernel("after", 120_000, 100_000, launched=30_000)
    sync = planted.call("cudaEventSynchronize", 40_000, 83_000)
    details = {"stream": -1, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": record, "correlation": sync, "device": 0}
    planted.add("cuda_sync", "Event Sync", 41_000, 80_000, pid=0, tid=-1, **details)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "before", "cudaEventSynchronize") == [Edge.SYNC]
    assert edges_between(graph, view, "after", "cudaEventSynchronize") == []


def test_a_copy_from_pageable_memory_holds_the_host_until_it_is_done(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("work", 20_000, 100_000, launched=10_000)
    copy = planted.call("cudaMemcpyAsync", 30_000, 95_000)
    planted.device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 120_000, 2_000, correlation=copy)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    assert edges_between(graph, view, "Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync") == [Edge.SYNC]
    assert edges_between(graph, view, "cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)") == [Edge.LAUNCH]


def test_a_launch_into_a_full_stream_waits_for_the_device(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 30_000_000)
    at = 0
    for number in range(400):
        at = number * 5_000
        planted.kernel("k", 10_000 + number * 50_000, 50_000, launched=at, launch_duration=4_000)
    last = 10_000 + 400 * 50_000
    planted.kernel("blocked", last, 50_000, launched=2_000_000, launch_duration=8_011_000)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    assert edges_between(graph, view, "k", "cudaLaunchKernel") == [Edge.SYNC]


def test_the_backward_thread_begins_after_the_main_thread_and_hands_back(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 1_000_000)
    planted.op("forward", 10_000, 90_000)
    planted.kernel("f", 60_000, 10_000, launched=50_000)
    detail = {"Fwd thread id": 1, "Sequence number": 3}
    planted.op("autograd::engine::evaluate_function: MmBackward0", 120_000, 300_000, tid=BACKWARD, **detail)
    planted.kernel("b", 160_000, 10_000, launched=150_000, tid=BACKWARD)
    planted.op("optimizer", 430_000, 100_000)
    planted.kernel("o", 460_000, 10_000, launched=450_000)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    lags = graph.lag[graph.edge == Edge.HANDOVER]
    assert sorted(lags.tolist()) == [10_000, 20_000]


def test_a_kernel_that_seems_to_start_before_its_launch_has_no_edge_from_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 100_000)
    planted.kernel("early", 20_000, 5_000, launched=30_000)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    assert edges_between(graph, view, "cudaLaunchKernel", "early") == []


def test_a_driver_call_within_a_runtime_call_is_part_of_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 100_000)
    planted.call("cudaLaunchKernelExC", 10_000, 9_000, correlation=5)
    planted.add("cuda_driver", "cuLaunchKernelEx", 12_000, 3_000, correlation=5)
    planted.device("kernel", "k", 30_000, 5_000, correlation=5)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "cudaLaunchKernelExC", "k") == [Edge.LAUNCH]
    assert (graph.kind == Node.CALL).sum() == 1


def test_events_of_one_graph_launch_wait_for_one_another_and_not_for_the_call(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.call("cudaGraphLaunch", 10_000, 9_000, correlation=5)
    planted.device("kernel", "a", 30_000, 50_000, correlation=5, stream=7)
    planted.device("kernel", "b", 81_000, 50_000, correlation=5, stream=20)
    view = View(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "a", "b") == [Edge.GRAPH]
    assert edges_between(graph, view, "cudaGraphLaunch", "b") == []

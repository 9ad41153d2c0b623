from pathlib import Path

from graphs import check, edges_between
from planting import Planted
from simulation import Action, played
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge
from tachoscope_analyzers.trace.graph.graph import dependency_graph
from tachoscope_analyzers.trace.graph.nodes import Node


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
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "first", "second") == [Edge.STREAM_WAIT]


def test_a_stream_synchronisation_waits_for_the_stream_that_ended_with_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("awaited", 20_000, 100_000, launched=10_000, stream=7)
    planted.kernel("other", 30_000, 400_000, launched=22_000, stream=20)
    planted.call("cudaStreamSynchronize", 40_000, 85_000)
    view = TraceView(planted.read(tmp_path))
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
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    assert edges_between(graph, view, "before", "cudaEventSynchronize") == [Edge.SYNC]
    assert edges_between(graph, view, "after", "cudaEventSynchronize") == []


def test_a_copy_from_pageable_memory_holds_the_host_until_it_is_done(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("work", 20_000, 100_000, launched=10_000)
    copy = planted.call("cudaMemcpyAsync", 30_000, 95_000)
    planted.device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 120_000, 2_000, correlation=copy)
    view = TraceView(planted.read(tmp_path))
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
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    assert edges_between(graph, view, "k", "cudaLaunchKernel") == [Edge.SYNC]


def test_freeing_memory_waits_for_the_device(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("work", 20_000, 100_000, launched=10_000)
    planted.call("cudaFree", 30_000, 95_000)
    view = TraceView(planted.read(tmp_path))
    assert edges_between(dependency_graph(view), view, "work", "cudaFree") == [Edge.SYNC]


def test_a_device_synchronisation_that_returns_before_the_kernel_ends_waited_for_something_else(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("long", 20_000, 400_000, launched=10_000)
    planted.call("cudaDeviceSynchronize", 30_000, 95_000)
    view = TraceView(planted.read(tmp_path))
    assert edges_between(dependency_graph(view), view, "long", "cudaDeviceSynchronize") == []


def test_a_kernel_whose_launch_is_lost_is_waited_for_all_the_same(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.kernel("linked", 20_000, 100_000, launched=10_000)
    planted.device("kernel", "lost", 120_000, 100_000, correlation=999)
    planted.call("cudaDeviceSynchronize", 30_000, 195_000)
    view = TraceView(planted.read(tmp_path))
    assert edges_between(dependency_graph(view), view, "lost", "cudaDeviceSynchronize") == [Edge.SYNC]


def test_a_blocking_copy_returns_when_it_is_done(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    copy = planted.call("hipMemcpyWithStream", 10_000, 40_000)
    planted.device("gpu_memcpy", "CopyDeviceToHost", 30_000, 15_000, correlation=copy)
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    assert edges_between(graph, view, "CopyDeviceToHost", "hipMemcpyWithStream") == [Edge.SYNC]
    assert graph.own[graph.kind == Node.WAIT].tolist() == [5_000]

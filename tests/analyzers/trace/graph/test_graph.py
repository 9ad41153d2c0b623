from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphs import check
from planting import Planted
from recorded import ALL, recorded
from simulation import JOBS, Action, played
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.critical_path import critical_path
from tachoscope_analyzers.trace.graph.graph import dependency_graph
from tachoscope_analyzers.trace.graph.nodes import Node
from tachoscope_analyzers.trace.graph.removals import EVERYTHING, Selection, times_of
from tachoscope_analyzers.trace.graph.replay import Replay
from tachoscope_analyzers.trace.reading.read import read

MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


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
    view = TraceView(read(recorded(name)))
    graph = dependency_graph(view)
    check(graph)
    assert graph.kind[0] == Node.ORIGIN
    assert graph.kind[-1] == Node.END
    assert (graph.kind == Node.DEVICE).sum() <= len(view.work)


def test_a_trace_without_events_has_a_graph_without_time(tmp_path: Path) -> None:
    graph = dependency_graph(TraceView(Planted().read(tmp_path)))
    check(graph)
    assert graph.end_ns == graph.start_ns


_MOMENTS, _LENGTHS = st.integers(0, 200), st.integers(0, 100)
_CALLS = st.sampled_from(
    ["cudaLaunchKernel", "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaStreamWaitEvent", "cudaMalloc", "cudaMemcpy"]
)


@MANY
@given(
    st.lists(st.tuples(_CALLS, _MOMENTS, _LENGTHS, st.integers(100, 102)), max_size=15),
    st.lists(st.tuples(_MOMENTS, _LENGTHS, st.integers(0, 16), st.sampled_from([7, 20]), st.integers(0, 1)), max_size=15),
    st.lists(st.tuples(_MOMENTS, _LENGTHS), max_size=3),
)
def test_the_invariants_hold_whatever_the_clocks_say(
    tmp_path: Path,
    calls: list[tuple[str, int, int, int]],
    kernels: list[tuple[int, int, int, int, int]],
    steps: list[tuple[int, int]],
) -> None:
    planted = Planted()
    for number, (begin, duration) in enumerate(steps):
        planted.step(number, begin, duration)
    for name, begin, duration, thread in calls:
        planted.call(name, begin, duration, tid=thread)
    for begin, duration, correlation, stream, device in kernels:
        planted.device("kernel", "k", begin, duration, correlation=correlation, stream=stream, device=device)
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    path = critical_path(view, graph)
    assert path["duration_ns"].sum() == graph.end_ns - graph.start_ns
    replay = Replay(view, graph)
    assert (replay.ends(times_of(graph)) == graph.begin + graph.own - graph.start_ns).all()
    replay.refusal = ""
    assert replay.without(Selection(EVERYTHING)).step_ns == 0

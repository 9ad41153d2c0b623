from pathlib import Path

from graphs import check
from planting import BACKWARD, Planted
from tachoscope_analyzers.trace.events.thread_handover import main_thread
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge
from tachoscope_analyzers.trace.graph.graph import dependency_graph


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
    view = TraceView(planted.read(tmp_path))
    graph = dependency_graph(view)
    check(graph)
    lags = graph.lag[graph.edge == Edge.HANDOVER]
    assert sorted(lags.tolist()) == [10_000, 20_000]


def test_a_thread_that_was_at_work_before_the_main_thread_paused_is_not_started_by_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 1_000_000)
    planted.op("forward", 0, 100_000)
    planted.op("early", 50_000, 200_000, tid=BACKWARD, **{"Fwd thread id": 1})
    planted.kernel("k", 460_000, 10_000, launched=260_000)
    view = TraceView(planted.read(tmp_path))
    assert (dependency_graph(view).edge != Edge.HANDOVER).all()


def test_short_pauses_of_the_main_thread_are_its_own(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 1_000_000)
    planted.op("one", 0, 100_000)
    planted.op("two", 110_000, 890_000)
    planted.op("backward", 105_000, 4_000, tid=BACKWARD, **{"Fwd thread id": 1})
    view = TraceView(planted.read(tmp_path))
    assert (dependency_graph(view).edge != Edge.HANDOVER).all()


def test_the_main_thread_is_the_one_that_marks_the_steps_even_if_autograd_does_more(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 1_000)
    for number in range(5):
        planted.op("backward", number * 10, 5, tid=BACKWARD, **{"Fwd thread id": 1})
    trace = planted.read(tmp_path)
    assert trace.meta.tracks[main_thread(trace)].thread == "100"


def test_without_marks_the_main_thread_is_the_busiest_that_is_not_autograds(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("forward", 0, 5)
    for number in range(5):
        planted.op("backward", number * 10, 5, tid=BACKWARD, **{"Fwd thread id": 1})
    trace = planted.read(tmp_path)
    assert trace.meta.tracks[main_thread(trace)].thread == "100"
    alone = Planted()
    alone.op("backward", 0, 5, **{"Fwd thread id": 1})
    assert main_thread(alone.read(tmp_path, "alone.json")) == 0
    assert main_thread(Planted().read(tmp_path, "empty.json")) == -1

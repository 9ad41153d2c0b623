import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from planting import Planted
from recorded import ALL, recorded
from simulation import JOBS, Action, played
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph import removals
from tachoscope_analyzers.trace.graph.removals import REMOVALS, Selection, take_out, times_of
from tachoscope_analyzers.trace.graph.replay import MODULE, Replay, without
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_core.native import native

COMPILED = native(MODULE)
needs_compiled = pytest.mark.skipif(COMPILED.module is None, reason=COMPILED.reason)

MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY
@given(JOBS)
def test_a_replay_without_a_change_takes_as_long_as_the_job_did(tmp_path: Path, actions: list[Action]) -> None:
    view, took = played(actions, tmp_path)
    result = without(view)
    assert result.measured_step_ns == result.replayed_step_ns == result.step_ns == took
    assert result.error_percent == 0
    assert result.speedup == 1


@MANY
@given(JOBS)
def test_nothing_is_left_without_everything(tmp_path: Path, actions: list[Action]) -> None:
    result = without(played(actions, tmp_path)[0], Selection(removals.EVERYTHING))
    assert result.step_ns == 0
    assert result.speedup == math.inf


def test_time_behind_which_something_else_hides_saves_nothing(tmp_path: Path) -> None:
    actions = [Action("kernel", 300_000), Action("load", 100_000), Action("sync")]
    view, took = played(actions, tmp_path)
    assert without(view, Selection(removals.DATA_LOADING)).step_ns == took


@pytest.mark.parametrize("name", ALL)
def test_the_invariants_hold_on_every_recorded_trace(name: str) -> None:
    view = TraceView(read(recorded(name)))
    one = Replay(view)
    graph = one.graph
    assert (one.ends(times_of(graph)) == graph.begin + graph.own - graph.start_ns).all()
    assert one.measured_ns == one.replayed_ns
    one.refusal = ""
    assert one.without(Selection(removals.EVERYTHING)).step_ns == 0
    for what in REMOVALS:
        assert one.without(Selection(what)).step_ns <= one.without().step_ns
        times = times_of(graph)
        take_out(view, graph, Selection(what), times)
        assert (one.ends(times) == one.ends_in_python(times)).all(), what


def test_a_job_bound_by_its_loader_gains_the_time_in_it() -> None:
    result = without(TraceView(read(recorded("kineto/resnet50_nw0_a.pt.trace"))), Selection(removals.DATA_LOADING))
    assert result.measured_step_ns == pytest.approx(177.6e6, rel=0.001)
    assert 1.45 < result.speedup < 1.55
    fast = without(TraceView(read(recorded("kineto/resnet50_nw4_a.pt.trace"))), Selection(removals.DATA_LOADING))
    assert fast.speedup < 1.02


def test_a_trace_whose_waits_nothing_explains_is_refused() -> None:
    result = without(TraceView(read(recorded("tracelens/sglang_qwen3_8b_decode"))), Selection(removals.COMPUTE))
    assert result.error_percent > 90
    assert "more than the 5 %" in result.refusal
    assert math.isnan(result.step_ns)
    assert math.isnan(result.speedup)


def test_device_work_that_nobody_is_seen_to_launch_is_refused_as_what_it_waited_for_is_not_known(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("aten::mm", 0, 500_000)
    for number in range(4):
        planted.device("kernel", "k", number * 100_000, 50_000)
    assert "known launch" in without(TraceView(planted.read(tmp_path)), Selection(removals.COMPUTE)).refusal


def test_a_trace_without_events_is_refused(tmp_path: Path) -> None:
    assert without(TraceView(Planted().read(tmp_path)), Selection(removals.COMPUTE)).refusal == "the trace has no step"


def test_seconds_saved_are_per_step(tmp_path: Path) -> None:
    planted = Planted()
    for step in range(4):
        planted.step(step, step * 100_000, 100_000)
        planted.annotation("enumerate(DataLoader)#Iter.__next__", step * 100_000, 40_000)
    planted.kernel("k", 390_000, 5_000, launched=380_000)
    result = without(TraceView(planted.read(tmp_path)), Selection(removals.DATA_LOADING))
    assert result.measured_step_ns == 100_000


@needs_compiled
def test_the_compiled_replay_refuses_what_is_no_graph_and_what_does_not_fit() -> None:
    def replay(source: list[int], lag: int = 0, own: tuple[int, int] = (1, 2), first: tuple[int, ...] = (0, 0, 1)) -> list[int]:
        ends = np.zeros(2, dtype=np.int64)
        arrays = [np.array(one, dtype=np.int64) for one in (source, first, [lag] * len(source), own, [0, 3])]
        COMPILED.module.replay(*arrays, ends)
        return ends.tolist()

    assert replay([1], lag=5) == [1, 11]
    assert replay([0], lag=5) == [1, 10]
    for wrong in ({"source": [2]}, {"source": [-1]}, {"source": [1], "first": (0, 1, 1)}, {"source": [1], "first": (0, 0, 2)}):
        with pytest.raises(ValueError, match="stands after it"):
            replay(**wrong)
    with pytest.raises(ValueError, match="matching lengths"):
        replay([1], first=(0, 1))
    with pytest.raises(OverflowError, match="64 bits"):
        replay([1], lag=1, own=(2**63 - 1, 0))

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import Planted
from recorded import ALL, recorded
from simulation import JOBS, Action, played, took_without
from tachoscope_analyzers.trace import removals
from tachoscope_analyzers.trace.read import read
from tachoscope_analyzers.trace.removals import REMOVALS, Selection, times_of
from tachoscope_analyzers.trace.replay import Replay, without
from tachoscope_analyzers.trace.view import View

MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY
@given(JOBS)
def test_a_replay_without_a_change_takes_as_long_as_the_job_did(tmp_path: Path, actions: list[Action]) -> None:
    view, took = played(actions, tmp_path)
    result = without(view)
    assert result.measured_step_ns == result.replayed_step_ns == result.step_ns == took
    assert result.error_percent == 0
    assert result.speedup == 1


@pytest.mark.parametrize(
    ("removal", "simulated"),
    [
        (Selection(removals.DATA_LOADING), ["load"]),
        (Selection(removals.SYNCHRONISATION), ["sync"]),
        (Selection(removals.COPIES), ["copy"]),
        (Selection(removals.COMMUNICATION), ["collective"]),
        (Selection(removals.COMPUTE), ["kernel"]),
        (Selection(removals.KERNEL, "gemm"), ["kernel"]),
        (Selection(removals.HOST_LAUNCH), ["launch"]),
    ],
    ids=lambda value: getattr(value, "what", None),
)
@MANY
@given(actions=JOBS)
def test_what_is_taken_out_saves_what_the_job_without_it_saves(
    tmp_path: Path, actions: list[Action], removal: Selection, simulated: list[str]
) -> None:
    view, _ = played(actions, tmp_path)
    assert without(view, removal).step_ns == took_without(actions, *simulated)


@MANY
@given(JOBS, st.sampled_from([name for name in REMOVALS if name not in (removals.KERNEL, removals.OPERATOR)]), st.floats(0, 1))
def test_nothing_that_is_taken_out_makes_a_step_longer(tmp_path: Path, actions: list[Action], what: str, kept: float) -> None:
    view, _ = played(actions, tmp_path)
    one = Replay(view)
    whole, partly = one.without(Selection(what)), one.without(Selection(what, kept_ratio=kept))
    assert whole.step_ns <= partly.step_ns <= one.without().step_ns


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
    view = View(read(recorded(name)))
    one = Replay(view)
    graph = one.graph
    assert (one.ends(times_of(graph)) == graph.begin + graph.own - graph.start_ns).all()
    assert one.measured_ns == one.replayed_ns
    one.refusal = ""
    assert one.without(Selection(removals.EVERYTHING)).step_ns == 0
    for what in REMOVALS:
        assert one.without(Selection(what)).step_ns <= one.without().step_ns


def test_a_job_bound_by_its_loader_gains_the_time_in_it() -> None:
    result = without(View(read(recorded("kineto/resnet50_nw0_a.pt.trace"))), Selection(removals.DATA_LOADING))
    assert result.measured_step_ns == pytest.approx(177.6e6, rel=0.001)
    assert 1.45 < result.speedup < 1.55
    fast = without(View(read(recorded("kineto/resnet50_nw4_a.pt.trace"))), Selection(removals.DATA_LOADING))
    assert fast.speedup < 1.02


def test_a_trace_whose_waits_nothing_explains_is_refused() -> None:
    result = without(View(read(recorded("tracelens/sglang_qwen3_8b_decode"))), Selection(removals.COMPUTE))
    assert result.error_percent > 90
    assert "more than the 5 %" in result.refusal
    assert math.isnan(result.step_ns)
    assert math.isnan(result.speedup)


def test_a_trace_without_events_is_refused(tmp_path: Path) -> None:
    assert without(View(Planted().read(tmp_path)), Selection(removals.COMPUTE)).refusal == "the trace has no step"


def test_kernels_of_an_operator_are_found_at_any_depth(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.op("aten::linear", 5_000, 30_000)
    planted.op("aten::addmm", 8_000, 20_000)
    planted.kernel("gemm", 20_000, 200_000, launched=10_000)
    planted.call("cudaDeviceSynchronize", 50_000, 175_000)
    view = View(planted.read(tmp_path))
    assert view.trace.names(removals.launched_in(view, "aten::linear")).tolist() == ["gemm"]
    assert without(view, Selection(removals.OPERATOR, "aten::linear")).step_ns == 500_000 - 170_000
    assert without(view, Selection(removals.OPERATOR, "aten::relu")).step_ns == 500_000


def test_single_events_can_be_taken_out_in_part(tmp_path: Path) -> None:
    view, took = played([Action("kernel", 200_000), Action("kernel", 100_000), Action("sync")], tmp_path)
    longest = view.work.row[np.argmax(view.work.end - view.work.start)]
    assert without(view, Selection(rows=(int(longest),), kept_ratio=0.25)).step_ns == took - 150_000


def test_an_unknown_selection_is_refused_by_name(tmp_path: Path) -> None:
    view, _ = played([Action("kernel", 1_000), Action("sync")], tmp_path)
    with pytest.raises(ValueError, match="gremlins"):
        without(view, Selection("gremlins"))
    with pytest.raises(ValueError, match="between 0 and 1"):
        without(view, Selection(removals.COMPUTE, kept_ratio=2))


def test_seconds_saved_are_per_step(tmp_path: Path) -> None:
    planted = Planted()
    for step in range(4):
        planted.step(step, step * 100_000, 100_000)
        planted.annotation("enumerate(DataLoader)#Iter.__next__", step * 100_000, 40_000)
    planted.kernel("k", 390_000, 5_000, launched=380_000)
    result = without(View(planted.read(tmp_path)), Selection(removals.DATA_LOADING))
    assert result.measured_step_ns == 100_000
    assert result.saved_seconds_per_step == pytest.approx(40e-6)

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import Planted
from simulation import JOBS, LOADER, Action, played, took_without
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph import removals
from tachoscope_analyzers.trace.graph.removals import REMOVALS, Selection
from tachoscope_analyzers.trace.graph.replay import Replay, without

MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=settings().max_examples // 2)


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


def test_kernels_of_an_operator_are_found_at_any_depth(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 500_000)
    planted.op("aten::linear", 5_000, 30_000)
    planted.op("aten::addmm", 8_000, 20_000)
    planted.kernel("gemm", 20_000, 200_000, launched=10_000)
    planted.call("cudaDeviceSynchronize", 50_000, 175_000)
    view = TraceView(planted.read(tmp_path))
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


def test_a_pause_of_the_host_is_none_of_the_named_ones(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 9_000_000)
    planted.annotation(LOADER, 1_000_000, 3_000_000)
    planted.op("aten::mm", 6_000_000, 3_000_000)
    view = TraceView(planted.read(tmp_path))
    assert without(view, Selection(removals.DATA_LOADING)).step_ns == 6_000_000
    assert without(view, Selection(removals.HOST_PAUSE)).step_ns == 6_000_000
    both = without(view, Selection(removals.DATA_LOADING), Selection(removals.HOST_PAUSE))
    assert both.step_ns == 3_000_000


def test_on_cpu_to_stand_still_while_other_threads_exchange_is_no_pause(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 20_000_000)
    planted.op("aten::mm", 0, 1_000_000)
    planted.add("user_annotation", "gloo:all_reduce", 2_000_000, 8_000_000, tid=7)
    planted.op("aten::mm", 19_000_000, 1_000_000)
    assert without(TraceView(planted.read(tmp_path)), Selection(removals.HOST_PAUSE)).step_ns == 10_000_000


def test_allocation_and_the_wait_in_freeing_can_be_taken_out(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 300_000)
    planted.kernel("work", 20_000, 200_000, launched=10_000)
    planted.call("cudaMalloc", 20_000, 30_000)
    planted.call("cudaFree", 50_000, 180_000)
    planted.kernel("next", 290_000, 10_000, launched=283_000)
    assert without(TraceView(planted.read(tmp_path)), Selection(removals.ALLOCATOR)).step_ns == 230_000


def test_a_full_stream_is_no_synchronisation(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 21_000_000)
    for number in range(400):
        planted.kernel("k", 10_000 + number * 50_000, 50_000, launched=number * 5_000, launch_duration=4_000)
    planted.kernel("blocked", 10_000 + 400 * 50_000, 50_000, launched=2_000_000, launch_duration=8_011_000)
    view = TraceView(planted.read(tmp_path))
    assert without(view, Selection(removals.SYNCHRONISATION)).speedup == 1

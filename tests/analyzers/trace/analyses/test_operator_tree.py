from pathlib import Path

import pytest

from planting import Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.analyses.operator_tree import UNLINKED, by_module, by_operator
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read


def planted_tree() -> Planted:
    planted = Planted()
    planted.step(1, 0, 1_000)
    planted.op("aten::linear", 100, 300)
    planted.op("aten::addmm", 150, 200)
    planted.kernel("gemm", 400, 50, launched=200, launch_duration=10)
    planted.kernel("bias", 450, 20, launched=370, launch_duration=10)
    planted.device("kernel", "lost", 500, 7, correlation=999)
    return planted


def test_time_on_the_device_goes_to_the_operator_that_launched_it_and_up(tmp_path: Path) -> None:
    table = by_operator(TraceView(planted_tree().read(tmp_path))).set_index("name")
    assert table["self_device_ns"].to_dict() == {"aten::addmm": 50, "aten::linear": 20, "ProfilerStep#1": 0, UNLINKED: 7}
    assert table["total_device_ns"].to_dict() == {"aten::addmm": 50, "aten::linear": 70, "ProfilerStep#1": 70, UNLINKED: 7}
    assert table["self_host_ns"].to_dict() == {"aten::addmm": 200, "aten::linear": 100, "ProfilerStep#1": 700, UNLINKED: 0}
    assert table["total_host_ns"].to_dict() == {"aten::addmm": 200, "aten::linear": 300, "ProfilerStep#1": 1_000, UNLINKED: 0}
    assert table["kind"].to_dict() == {
        "aten::addmm": "operator",
        "aten::linear": "operator",
        "ProfilerStep#1": "annotation",
        UNLINKED: "device",
    }


def test_an_operator_that_calls_itself_counts_once_in_the_total(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("aten::to", 0, 100)
    planted.op("aten::to", 10, 50)
    planted.kernel("copy", 200, 30, launched=20, launch_duration=5)
    table = by_operator(TraceView(planted.read(tmp_path))).set_index("name")
    assert table.loc["aten::to", ["count", "self_device_ns", "total_device_ns", "total_host_ns"]].tolist() == [2, 30, 30, 100]


def test_operators_belong_to_the_step_in_which_they_began(tmp_path: Path) -> None:
    planted = Planted()
    for step in range(2):
        planted.step(17 + step, step * 1_000, 1_000)
        planted.op("aten::mm", step * 1_000 + 10, 100)
        planted.kernel("gemm", step * 1_000 + 500, 100 * (step + 1), launched=step * 1_000 + 20, launch_duration=10)
    table = by_operator(TraceView(planted.read(tmp_path)), per_step=True)
    times = table[table["name"] == "aten::mm"].set_index("step")["self_device_ns"]
    assert times.to_dict() == {17: 100, 18: 200}


def test_kernels_belong_to_the_innermost_module_around_their_launch(tmp_path: Path) -> None:
    planted = Planted()
    planted.add("python_function", "nn.Module: Block_0", 0, 1_000)
    planted.add("python_function", "forward", 5, 900)
    planted.add("python_function", "nn.Module: Linear_0", 10, 300)
    planted.op("aten::addmm", 20, 200)
    planted.kernel("gemm", 400, 50, launched=30, launch_duration=10)
    planted.kernel("relu", 450, 20, launched=500, launch_duration=10)
    table = by_module(TraceView(planted.read(tmp_path))).set_index("name")
    assert table["self_device_ns"].to_dict() == {"nn.Module: Linear_0": 50, "nn.Module: Block_0": 20}
    assert table["total_device_ns"].to_dict() == {"nn.Module: Linear_0": 50, "nn.Module: Block_0": 70}
    assert table["self_host_ns"].to_dict() == {"nn.Module: Linear_0": 300, "nn.Module: Block_0": 700}
    assert set(table["kind"]) == {"module"}


def test_work_outside_all_modules_is_told_where_there_are_modules_and_without_any_the_table_is_empty(tmp_path: Path) -> None:
    planted = Planted()
    planted.kernel("loss", 400, 50, launched=300, launch_duration=10)
    assert by_module(TraceView(planted.read(tmp_path))).empty
    planted.add("python_function", "nn.Module: Linear_0", 10, 200)
    planted.kernel("gemm", 250, 20, launched=100, launch_duration=10)
    table = by_module(TraceView(planted.read(tmp_path))).set_index("name")
    assert table["self_device_ns"].to_dict() == {"nn.Module: Linear_0": 20, "(launch not in a module)": 50}


@pytest.mark.parametrize("name", ALL)
def test_device_times_sum_to_those_of_all_events_on_every_recorded_trace(name: str) -> None:
    view = TraceView(read(recorded(name)))
    whole = int((view.work.end - view.work.start).sum())
    modules = by_module(view)
    for table in (by_operator(view), by_operator(view, per_step=True), *([modules] if len(modules) else [])):
        assert table["self_device_ns"].sum() == whole
        assert (table["total_device_ns"] >= 0).all()


def test_a_trace_without_events_has_an_empty_table(tmp_path: Path) -> None:
    view = TraceView(Planted().read(tmp_path))
    assert len(by_operator(view)) == len(by_module(view)) == 0

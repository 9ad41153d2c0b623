from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

from planting import BACKWARD, Planted
from recorded import ALL, recorded
from simulation import JOBS, LOADER, Action, played
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.critical_path import CATEGORIES, by_category, by_name, critical_path
from tachoscope_analyzers.trace.graph.graph import dependency_graph
from tachoscope_analyzers.trace.reading.read import read

MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=settings().max_examples // 2)


def check(view: TraceView) -> pd.DataFrame:
    graph = dependency_graph(view)
    path = critical_path(view, graph)
    start, duration = path["start_ns"].to_numpy(), path["duration_ns"].to_numpy()
    assert (duration > 0).all()
    assert duration.sum() == graph.end_ns - graph.start_ns
    assert (start[1:] == (start + duration)[:-1]).all()
    assert by_category(path)["duration_ns"].sum() == duration.sum()
    assert by_name(path)["duration_ns"].sum() == duration.sum()
    return path


def times(path: pd.DataFrame) -> dict[str, int]:
    return dict(zip(by_category(path)["category"].astype(str), by_category(path)["duration_ns"].tolist(), strict=True))


@MANY
@given(JOBS)
def test_the_path_tiles_the_window_and_leaves_nothing_unexplained(tmp_path: Path, actions: list[Action]) -> None:
    view, took = played(actions, tmp_path)
    path = check(view)
    assert path["duration_ns"].sum() == took
    assert "unexplained" not in times(path)


@pytest.mark.parametrize("name", ALL)
def test_the_path_tiles_the_window_of_every_recorded_trace(name: str) -> None:
    path = check(TraceView(read(recorded(name))))
    assert set(path["category"].astype(str)) <= set(CATEGORIES)


def test_a_trace_without_events_has_an_empty_path(tmp_path: Path) -> None:
    path = check(TraceView(Planted().read(tmp_path)))
    assert len(path) == 0
    assert len(by_category(path)) == 0


def test_the_path_of_a_job_that_waits_for_its_device_is_that_of_the_device(tmp_path: Path) -> None:
    view, _ = played([Action("kernel", 100_000), Action("kernel", 200_000), Action("sync")], tmp_path)
    path = check(view)
    expected = {"compute_kernel": 300_000, "launch_latency": 7_000, "host_other": 1_000, "synchronisation": 3_000}
    assert times(path) == expected
    assert path["edge"].tolist() == ["program", "launch", "launch", "stream", "sync"]


def test_the_path_of_a_job_that_waits_for_its_loader_is_that_of_the_host(tmp_path: Path) -> None:
    view, _ = played([Action("load", 500_000), Action("kernel", 10_000), Action("load", 400_000), Action("sync")], tmp_path)
    found = times(check(view))
    assert found["data_loading"] == 900_000
    assert "compute_kernel" not in found


def test_the_path_follows_a_wait_of_one_stream_for_another(tmp_path: Path) -> None:
    actions = [Action("collective", 300_000, 7), Action("wait", stream=20), Action("kernel", 50_000, 20), Action("sync")]
    view, _ = played(actions, tmp_path)
    path = check(view)
    kernels = path[path["category"].isin(["communication", "compute_kernel"])]
    assert kernels["place"].tolist() == ["device 0 stream 7", "device 0 stream 20"]
    assert kernels["edge"].tolist() == ["launch", "stream_wait"]
    assert kernels["duration_ns"].tolist() == [300_000, 50_000]


def test_the_hosts_time_is_told_by_operator(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 300_000)
    planted.op("aten::linear", 10_000, 80_000)
    planted.op("aten::addmm", 30_000, 40_000)
    planted.kernel("gemm", 150_000, 5_000, launched=143_000)
    table = by_name(check(TraceView(planted.read(tmp_path))))
    table = table.set_index(["category", "name"])["duration_ns"]
    assert table["host_operator", "aten::linear"] == 40_000
    assert table["host_operator", "aten::addmm"] == 40_000


def test_kernels_are_told_with_the_operator_that_launched_them(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 300_000)
    planted.op("aten::addmm", 5_000, 40_000)
    planted.kernel("gemm", 20_000, 280_000, launched=13_000)
    path = check(TraceView(planted.read(tmp_path)))
    assert path.set_index("name").loc["gemm", "operator"] == "aten::addmm"


def test_the_path_goes_through_the_backward_thread(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 600_000)
    planted.op("forward", 10_000, 90_000)
    planted.op("autograd::engine::evaluate_function: MmBackward0", 120_000, 300_000, tid=BACKWARD, **{"Fwd thread id": 1})
    planted.kernel("b", 160_000, 10_000, launched=150_000, tid=BACKWARD)
    planted.op("optimizer", 430_000, 100_000)
    path = check(TraceView(planted.read(tmp_path)))
    names = path[path["category"] == "host_operator"]["name"].tolist()
    assert names == ["forward", *["autograd::engine::evaluate_function: MmBackward0"] * 2, "optimizer"]
    assert times(path)["thread_handover"] == 20_000 + 10_000


def test_each_step_has_its_part_of_the_path_under_the_number_that_the_profiler_gave_it(tmp_path: Path) -> None:
    planted = Planted()
    for step in range(3):
        planted.step(12 + step, step * 100_000, 100_000)
    planted.annotation(LOADER, 50_000, 200_000)
    planted.kernel("k", 290_000, 10_000, launched=283_000)
    path = check(TraceView(planted.read(tmp_path)))
    assert path.groupby("step")["duration_ns"].sum().to_dict() == {12: 100_000, 13: 100_000, 14: 100_000}
    shares = by_category(path, per_step=True)
    assert shares.groupby("step")["share_percent"].sum().tolist() == pytest.approx([100] * 3)
    assert shares[(shares["step"] == 13) & (shares["category"] == "data_loading")]["share_percent"].tolist() == [100]


def test_a_trace_of_the_host_alone_has_its_threads_path(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(1, 0, 100_000)
    planted.op("aten::mm", 20_000, 60_000)
    assert times(check(TraceView(planted.read(tmp_path)))) == {"host_operator": 60_000, "host_other": 40_000}


@pytest.mark.parametrize(
    ("name", "category", "least"),
    [
        ("kineto/resnet50_nw0_a.pt.trace", "data_loading", 30),
        ("hta/v100_ns_resolution", "compute_kernel", 90),
        ("hta/diff_test_v100", "compute_kernel", 60),
        ("tracelens/vllm_decode_full", "compute_kernel", 95),
        ("hta/a100_alexnet", "allocator", 50),
    ],
)
def test_the_path_of_a_recorded_trace_is_where_the_reference_says_its_time_goes(name: str, category: str, least: float) -> None:
    table = by_category(check(TraceView(read(recorded(name)))))
    assert table["category"].iloc[0] == category
    assert table["share_percent"].iloc[0] > least

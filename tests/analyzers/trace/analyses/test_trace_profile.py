from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planting import Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.analyses import operator_profile as trace_profile
from tachoscope_analyzers.trace.analyses.operator_profile import NO_LAUNCH, NO_OPERATOR, OTHERS, merged, profile
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.read import read


def planted(folder: Path) -> trace_profile.TraceProfile:
    trace = Planted()
    for step in range(2):
        begin = 1_000_000 * step
        trace.step(step, begin, 1_000_000)
        trace.op("aten::linear", begin + 10_000, 400_000)
        trace.op("aten::addmm", begin + 20_000, 300_000)
        trace.kernel("split", begin + 100_000, 5_000, launched=begin + 30_000)
        trace.kernel("gemm", begin + 200_000, 50_000, launched=begin + 60_000)
    trace.kernel("bare", 500_000, 1_000, launched=450_000)
    trace.kernel("unlaunched", 510_000, 2_000)
    trace.kernel("before all steps", -900_000 + 10**6 - 200_000, 10, launched=None)
    return profile(TraceView(trace.read(folder)))


def test_each_kernel_stands_with_the_operator_that_launched_it_and_its_place_there(tmp_path: Path) -> None:
    table = planted(tmp_path).kernels.set_index("kernel")
    assert table.loc["gemm"].to_dict() == {"operator": "aten::addmm", "position": 1, "count": 2, "total_ns": 100_000}
    assert table.loc["split", "position"] == 0
    assert table.loc["bare", "operator"] in (NO_OPERATOR, "ProfilerStep#")
    assert table.loc["unlaunched", "operator"] == NO_LAUNCH


def test_operators_share_out_device_time_and_host_time_without_overlap(tmp_path: Path) -> None:
    found = planted(tmp_path)
    table = found.operators.set_index("operator")
    assert table.loc["aten::addmm", ["count", "device_ns", "host_ns"]].tolist() == [2, 110_000, 600_000]
    assert table.loc["aten::linear", ["device_ns", "host_ns"]].tolist() == [0, 200_000]
    assert table["device_ns"].sum() == found.kernels["total_ns"].sum()
    assert table["host_ns"].sum() == 2_000_000  # the steps themselves, in which all operators lie


def test_states_sum_to_the_steps(tmp_path: Path) -> None:
    found = planted(tmp_path)
    assert found.states["total_ns"].sum() == found.step_total_ns


@pytest.mark.parametrize("name", ALL)
def test_on_every_recorded_trace_operators_have_all_the_device_time_of_the_kernels(name: str) -> None:
    view = TraceView(read(recorded(name)))
    found = profile(view)
    assert found.operators["device_ns"].sum() == found.kernels["total_ns"].sum()
    assert found.states["total_ns"].sum() == found.step_total_ns
    launched = (
        np.where(view.work.launch >= 0, view.trace.start[view.work.launch], view.work.start) if len(view.work) else view.work.start
    )
    inside = view.steps.step_at(launched) >= 0
    assert found.kernels["total_ns"].sum() == (view.work.end - view.work.start)[inside].sum()
    assert found.kernels["count"].sum() == inside.sum()


def test_host_time_of_a_recorded_trace_is_that_of_its_outermost_events() -> None:
    view = TraceView(read(recorded("kineto/resnet50_nw4_a.pt.trace")))
    trace = view.trace
    rows = np.flatnonzero(np.isin(trace.kind, (Kind.CPU_OP, Kind.ANNOTATION)) & (view.operator_of < 0))
    rows = rows[view.steps.step_at(trace.start[rows]) >= 0]
    assert profile(view).operators["host_ns"].sum() == pytest.approx(trace.events["duration"][rows].sum(), rel=0.01)


def test_a_job_is_the_sum_of_its_ranks(tmp_path: Path) -> None:
    one = planted(tmp_path)
    both = merged([one, one])
    assert both is not None and both.steps == 2 * one.steps and both.step_total_ns == 2 * one.step_total_ns
    for name, key in (("states", "state"), ("operators", "operator"), ("kernels", "kernel")):
        single, double = getattr(one, name).set_index(key), getattr(both, name).set_index(key)
        numbers = [column for column in single.columns if column not in ("operator", "position")]
        pd.testing.assert_frame_equal(double.loc[single.index, numbers], single[numbers] * 2, check_dtype=False)
    assert merged([]) is None


def test_what_is_beyond_the_cap_is_in_one_row_so_that_sums_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = planted(tmp_path)
    monkeypatch.setattr(trace_profile, "MOST_ROWS", 2)
    capped = planted(tmp_path)
    assert len(capped.kernels) == 2 and capped.kernels["kernel"].tolist()[1] == OTHERS
    assert capped.kernels["total_ns"].sum() == whole.kernels["total_ns"].sum()
    assert capped.operators["host_ns"].sum() == whole.operators["host_ns"].sum()


@pytest.mark.parametrize(
    "build", [lambda trace: None, lambda trace: trace.op("aten::mm", 0, 5), lambda trace: trace.kernel("k", 0, 5)]
)
def test_traces_with_next_to_nothing_in_them_have_a_profile(build, tmp_path: Path) -> None:
    trace = Planted()
    build(trace)
    found = profile(TraceView(trace.read(tmp_path)))
    assert merged([found, found]) is not None

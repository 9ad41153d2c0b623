"""Tables of kernels: nothing is lost in them, and statistics are what they are called."""

import statistics
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import Planted
from recorded import recorded
from tachoscope_analyzers.trace.device_time.kernels import by_class, by_name, summary
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
T = 1_000_000 * US


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["volta_sgemm_1", "ncclDevKernel_x", "my_kernel"]), st.integers(0, 2), st.integers(1, 30_000)),
        min_size=1,
        max_size=40,
    )
)
def test_the_sum_over_kernels_is_the_busy_time_and_the_overlap(tmp_path: Path, planted: list[tuple[str, int, int]]) -> None:
    trace, free = Planted(), {}
    for name, stream, duration in planted:
        start = free.get(stream, T)
        trace.kernel(name, start, duration, stream=stream)
        free[stream] = start + duration + 500
    view = TraceView(trace.read(tmp_path))
    row = summary(view).iloc[0]
    assert row["kernels"] == len(planted)
    assert row["total_ns"] == sum(duration for _, _, duration in planted) == row["busy_ns"] + row["overlap_ns"]
    assert row["small_kernels"] == sum(duration < 10_000 for _, _, duration in planted)
    table = by_name(view).set_index("name")
    for name in table.index:
        durations = [duration for other, _, duration in planted if other == name]
        assert table.loc[name, "count"] == len(durations)
        assert table.loc[name, "total_ns"] == sum(durations)
        assert (table.loc[name, "min_ns"], table.loc[name, "max_ns"]) == (min(durations), max(durations))
        assert table.loc[name, "mean_ns"] == pytest.approx(statistics.mean(durations))
        assert table.loc[name, "std_ns"] == pytest.approx(statistics.pstdev(durations), abs=1e-6)
    assert by_class(view)["total_ns"].sum() == table["total_ns"].sum()
    assert by_class(view)["share_percent"].sum() == pytest.approx(100)


def test_the_longest_class_stands_first_and_copies_have_their_own(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("volta_sgemm_1", T, 30 * US)
    trace.kernel("ncclDevKernel_AllReduce", T, 50 * US, stream=8)
    trace.device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", T, 20 * US, stream=9)
    trace.device("gpu_memset", "Memset (Device)", T, 10 * US, stream=10)
    assert by_class(TraceView(trace.read(tmp_path)))["class"].tolist() == ["communication", "gemm", "memcpy", "memset"]


def test_occupancy_is_weighted_by_time_and_missing_where_the_trace_does_not_tell(tmp_path: Path) -> None:
    trace = Planted()
    known = {"est. achieved occupancy %": 80, "blocks per SM": 4.0}
    trace.kernel("volta_sgemm_1", T, 30 * US, **known)
    trace.kernel("volta_sgemm_1", T + 40 * US, 10 * US, **{"est. achieved occupancy %": 40, "blocks per SM": 0.0})
    trace.kernel("volta_sgemm_1", T + 60 * US, 500 * US)
    view = TraceView(trace.read(tmp_path))
    for row in (by_name(view).iloc[0], summary(view).iloc[0]):
        assert (row["occupancy_percent"], row["blocks_per_sm"]) == (70, 3)
    bare = Planted()
    bare.kernel("volta_sgemm_1", T, 30 * US)
    assert summary(TraceView(bare.read(tmp_path)))["occupancy_percent"].isna().all()


def test_the_share_of_kernels_in_graphs_is_that_of_those_whose_launch_is_known(tmp_path: Path) -> None:
    trace = Planted()
    graph = trace.call("cudaGraphLaunch", T - 20 * US, 5 * US)
    for kernel in range(3):
        trace.device("kernel", "k", T + kernel * 10 * US, 5 * US, correlation=graph)
    trace.kernel("k", T + 40 * US, 5 * US, launched=T + 10 * US)
    trace.device("kernel", "k", T + 60 * US, 5 * US, correlation=999)
    assert summary(TraceView(trace.read(tmp_path))).iloc[0]["in_graphs_percent"] == 75


def test_matrix_units_are_told_by_time(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("volta_sgemm_128x64_nn", T, 30 * US)
    trace.kernel("cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1", T + 40 * US, 10 * US)
    trace.kernel("triton_poi_fused_add_0", T + 60 * US, 70 * US)
    assert summary(TraceView(trace.read(tmp_path))).iloc[0]["tensor_core_time_percent"] == 25


def test_a_volta_trains_in_fp32_without_matrix_units_and_a_hopper_with_them() -> None:
    volta, hopper = (
        summary(TraceView(read(recorded(name)))).iloc[0] for name in ("hta/v100_ns_resolution", "tracelens/h100_qwen1.5_0.5b")
    )
    assert volta["tensor_core_time_percent"] == 0
    assert hopper["tensor_core_time_percent"] > 99


@pytest.mark.parametrize("name", ["vllm_decode_full", "sglang_qwen3_8b_decode"])
def test_decoding_runs_in_graphs(name: str) -> None:
    assert summary(TraceView(read(recorded(f"tracelens/{name}")))).iloc[0]["in_graphs_percent"] > 95


def test_without_device_work_tables_are_empty(tmp_path: Path) -> None:
    view = TraceView(Planted().read(tmp_path))
    assert by_class(view).empty
    assert by_name(view).empty
    assert summary(view).empty

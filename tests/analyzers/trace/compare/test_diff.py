from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planting import Planted
from planting_ranks import Group, PlantedJob
from recorded import recorded
from tachoscope_analyzers.trace.analyses.operator_profile import TraceProfile, profile
from tachoscope_analyzers.trace.compare.diff import TraceDiff, diff
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_analyzers.trace.reading.read import read

Kernels = list[tuple[str, str, int]]
"""Kernels of a step: name, operator, duration in ns."""


def planted(folder: Path, kernels: Kernels, steps: int = 2, name: str = "t.json") -> TraceProfile:
    folder.mkdir(parents=True, exist_ok=True)
    trace = Planted()
    for step in range(steps):
        begin = 10_000_000 * step
        trace.step(step, begin, 10_000_000)
        for place, (kernel, operator, duration) in enumerate(kernels):
            start = begin + 100_000 * place
            trace.op(operator, start, 90_000)
            trace.kernel(kernel, start + 10_000, duration, launched=start + 1_000)
    return profile(TraceView(trace.read(folder, name)))


def compared(folder: Path, one: Kernels, other: Kernels, steps: tuple[int, int] = (2, 2)) -> TraceDiff:
    return diff(planted(folder / "one", one, steps[0]), planted(folder / "other", other, steps[1]))


def kernel_row(found: TraceDiff, **where: str) -> pd.Series:
    table = found.kernels
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def assert_sums(found: TraceDiff) -> None:
    totals = found.totals.set_index("measure")["difference_ns_per_step"]
    assert found.states["difference_ns_per_step"].sum() == pytest.approx(totals["step"], rel=1e-9, abs=1e-3)
    assert found.kernels["difference_ns_per_step"].sum() == pytest.approx(totals["device"], rel=1e-9, abs=1e-3)
    assert found.operators["difference_ns_per_step"].sum() == pytest.approx(totals["device"], rel=1e-9, abs=1e-3)
    assert found.operators["difference_host_ns_per_step"].sum() == pytest.approx(totals["host"], rel=1e-9, abs=1e-3)
    for table in (found.states, found.kernels, found.operators):
        shares = table["share_of_difference_ratio"]
        assert shares.isna().all() or shares.sum() == pytest.approx(1.0)


def test_a_kernel_that_became_slower_is_the_whole_difference(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        [("gemm", "aten::mm", 20_000), ("relu", "aten::relu", 5_000)],
        [("gemm", "aten::mm", 50_000), ("relu", "aten::relu", 5_000)],
    )
    first = found.kernels.iloc[0]
    assert (first["baseline_kernel"], first["matched"], first["difference_ns_per_step"]) == ("gemm", "exact", 30_000)
    assert first["share_of_difference_ratio"] == 1.0
    assert found.operators.iloc[0]["baseline_operator"] == "aten::mm"
    assert_sums(found)


def test_traces_of_different_length_are_compared_by_step(tmp_path: Path) -> None:
    kernels = [("gemm", "aten::mm", 20_000)]
    found = compared(tmp_path, kernels, kernels, steps=(2, 7))
    row = kernel_row(found, baseline_kernel="gemm")
    assert (row["baseline_total_ns"], row["other_total_ns"], row["difference_ns_per_step"]) == (40_000, 140_000, 0)
    assert row["baseline_count_per_step"] == row["other_count_per_step"] == 1


def test_renamed_kernels_are_matched_and_it_is_said_how(tmp_path: Path) -> None:
    one = [
        ("volta_sgemm_128x64_tn", "aten::mm", 9_000),
        ("void ns::softmax_forward<float, 4>(float*)", "aten::softmax", 4_000),
        ("old_embedding", "aten::embedding", 3_000),
        ("gone", "aten::gone", 1_000),
    ]
    other = [
        ("ampere_sgemm_64x32_tn", "aten::mm", 6_000),
        ("void other::softmax_forward<half, 8>(half*)", "aten::softmax", 2_000),
        ("brand_new_lookup", "aten::embedding", 1_000),
        ("come", "aten::come", 500),
    ]
    found = compared(tmp_path, one, other)
    matched = {row.baseline_kernel or row.other_kernel: row.matched for row in found.kernels.itertuples()}
    assert matched == {
        "volta_sgemm_128x64_tn": "normalised",
        "void ns::softmax_forward<float, 4>(float*)": "base_name",
        "old_embedding": "operator",
        "gone": "baseline_only",
        "come": "other_only",
    }
    assert_sums(found)


def test_kernels_that_only_differ_in_their_tiles_are_one_row(tmp_path: Path) -> None:
    one = [("volta_sgemm_128x64_tn", "aten::mm", 9_000), ("volta_sgemm_64x64_tn", "aten::mm", 8_000)]
    row = kernel_row(compared(tmp_path, one, [("ampere_sgemm_32x32_tn", "aten::mm", 5_000)]), matched="normalised")
    assert (row["baseline_names"], row["other_names"], row["difference_ns_per_step"]) == (2, 1, -12_000)


def test_versions_of_an_operator_are_compared_with_each_other(tmp_path: Path) -> None:
    found = compared(tmp_path, [("k", "AddmmBackward", 1_000)], [("k", "AddmmBackward0", 3_000)])
    row = found.operators.set_index("baseline_operator").loc["AddmmBackward"]
    assert (row["other_operator"], row["matched"], row["difference_ns_per_step"]) == ("AddmmBackward0", "normalised", 2_000)


@pytest.mark.parametrize("kernels", [[], [("gemm", "aten::mm", 20_000)]], ids=["no kernel", "one kernel"])
def test_a_trace_does_not_differ_from_itself(kernels: Kernels, tmp_path: Path) -> None:
    found = compared(tmp_path, kernels, kernels)
    for table in (found.states, found.operators, found.kernels, found.totals):
        assert (table["difference_ns_per_step"] == 0).all()
    assert found.notes == ()


@settings(max_examples=settings().max_examples // 3)  # each writes and reads two jobs
@given(data=st.data())
def test_the_differences_of_all_rows_sum_to_the_difference_of_the_totals(data, tmp_path_factory) -> None:
    names = st.sampled_from(
        ["volta_sgemm_128x64_tn", "ampere_sgemm_64x64_tn", "f<1>(int)", "g<2>(int)", "Memcpy HtoD (Pageable -> Device)", "x", "y"]
    )
    one = st.tuples(names, st.sampled_from(["aten::mm", "aten::add", "aten::relu"]), st.integers(0, 80_000))
    folder = tmp_path_factory.mktemp("planted")
    first, second = data.draw(st.lists(one, max_size=9)), data.draw(st.lists(one, max_size=9))
    found = compared(folder, first, second, (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))))
    assert_sums(found)
    table = found.kernels
    assert table["baseline_count_per_step"].sum() == pytest.approx(len(first))
    assert table["other_count_per_step"].sum() == pytest.approx(len(second))


def test_a_trace_without_steps_is_compared_as_one_and_said_to_be(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::mm", 0, 5_000)
    trace.kernel("gemm", 1_000, 2_000, launched=500)
    without = profile(TraceView(trace.read(tmp_path)))
    found = diff(planted(tmp_path / "with", [("gemm", "aten::mm", 2_000)]), without)
    assert any("no steps" in note for note in found.notes)
    assert_sums(found)


def test_two_jobs_are_compared_over_all_their_ranks(tmp_path: Path) -> None:
    sums = []
    for name, transfer in (("one", 300_000), ("other", 900_000)):
        (tmp_path / name).mkdir()
        PlantedJob(3, [Group("0", range(3), transfer=transfer)], jitter=0).write(tmp_path / name)
        sums.append(read_job([tmp_path / name], executor=InProcess(), wanted=SummaryOptions(judged=False, profile=True)).sums)
    found = diff(*sums)
    states = found.states.set_index("state")["difference_ns_per_step"]
    assert states["communication"] == pytest.approx(600_000)
    assert found.kernels.iloc[0]["difference_ns_per_step"] == pytest.approx(600_000)
    assert_sums(found)


def test_recorded_traces_of_two_kinds_of_device_are_compared_kernel_by_kernel() -> None:
    one, other = (profile(TraceView(read(recorded(f"hta/{name}")))) for name in ("diff_control_a100", "diff_test_v100"))
    found = diff(one, other)
    assert_sums(found)
    states = found.states.set_index("state")
    assert states["difference_ns_per_step"].idxmax() == "compute"
    assert states.loc["host_wait", "difference_ns_per_step"] < 0  # the test is bound by its device
    kernels = found.kernels.set_index("baseline_kernel")
    assert kernels.loc["ampere_sgemm_128x128_tn", "other_kernel"].startswith("volta_sgemm")
    matched = found.kernels[~found.kernels["matched"].isin(["baseline_only", "other_only"])]
    assert matched["other_total_ns"].sum() > 0.9 * found.kernels["other_total_ns"].sum()
    assert np.isfinite(found.kernels["difference_ns_per_step"]).all()

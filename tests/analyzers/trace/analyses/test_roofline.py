from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planting import Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.analyses.roofline import COLUMNS, coverage, roofline
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}


def operator(planted: Planted, name: str, at: int, shapes: list[Any], types: list[str], kernel_ns: int, kernel: str = "k") -> None:
    planted.op(name, at, 50_000, **{"Input Dims": shapes, "Input type": types})
    planted.kernel(kernel, at + 20_000, kernel_ns, launched=at + 10_000)


def product(planted: Planted, at: int, size: int, kernel_ns: int) -> None:
    operator(planted, "aten::mm", at, [[size, size], [size, size]], ["c10::BFloat16"] * 2, kernel_ns)


def test_a_large_product_is_bound_by_computing(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    product(planted, 0, 8192, 2_000_000)
    row = roofline(TraceView(planted.read(tmp_path))).iloc[0]
    assert row["flops"] == 2 * 8192**3
    assert row["tflops_per_s"] == pytest.approx(2 * 8192**3 / 2e-3 / 1e12)
    assert row["bound"] == "compute"
    assert row["peak_percent"] == pytest.approx(100 * row["tflops_per_s"] / 989.5)
    assert row["intensity_flops_per_byte"] == pytest.approx(8192 / 3)


def test_a_sum_of_tensors_is_bound_by_memory(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    operator(planted, "aten::add", 0, [[1 << 28], [1 << 28], []], ["float", "float", "Scalar"], 1_200_000)
    row = roofline(TraceView(planted.read(tmp_path))).iloc[0]
    assert row["bytes"] == 3 * 4 * (1 << 28)
    assert row["gb_per_s"] == pytest.approx(3 * 4 * (1 << 28) / 1.2e-3 / 1e9)
    assert row["bound"] == "memory"
    assert row["peak_percent"] == pytest.approx(100 * row["gb_per_s"] / 3350)
    assert np.isnan(row["flops"])
    assert np.isnan(row["tflops_per_s"])


def test_a_tensor_that_is_written_into_counts_once(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    size = 32 * 256 * 56 * 56
    operator(planted, "aten::clamp_min", 0, [[32, 256, 56, 56], [], [32, 256, 56, 56]], ["float", "Scalar", "float"], 100_000)
    operator(planted, "aten::mul", 9_000_000, [[size], [size], [size]], ["float"] * 3, 300_000)
    operator(planted, "aten::lerp", 18_000_000, [[size], [size], [size]], ["float"] * 3, 400_000)
    assert roofline(TraceView(planted.read(tmp_path))).set_index("operator")["bytes"].to_dict() == {
        "aten::clamp_min": 2 * 4 * size,
        "aten::mul": 3 * 4 * size,
        "aten::lerp": 4 * 4 * size,  # the third is a weight
    }


def test_faster_than_the_memory_can_be_came_from_a_cache(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    operator(planted, "aten::add", 0, [[1 << 20], [1 << 20], []], ["float", "float", "Scalar"], 3_000)
    row = roofline(TraceView(planted.read(tmp_path))).iloc[0]
    assert row["bound"] == "cache"
    assert row["peak_percent"] > 100


def test_a_product_in_fp32_faster_than_fp32_can_be_was_made_in_tf32(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    operator(planted, "aten::mm", 0, [[8192, 8192]] * 2, ["float"] * 2, 4_000_000)
    operator(planted, "aten::mm", 9_000_000, [[4096, 4096]] * 2, ["float"] * 2, 4_000_000)
    assert roofline(TraceView(planted.read(tmp_path))).set_index("shapes")["precision"].to_dict() == {
        "[[8192,8192],[8192,8192]]": "tf32",
        "[[4096,4096],[4096,4096]]": "fp32",
    }


def test_time_counts_for_the_innermost_operator_whose_work_is_known(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    planted.op("aten::linear", 0, 90_000, **{"Input Dims": [[4, 8], [16, 8], [16]], "Input type": ["float"] * 3})
    planted.op("aten::addmm", 5_000, 40_000, **{"Input Dims": [[16], [4, 8], [8, 16]], "Input type": ["float"] * 3})
    planted.op("aten::mystery", 6_000, 30_000)
    planted.kernel("gemm", 50_000, 1_000, launched=10_000)
    planted.kernel("epilogue", 60_000, 500, launched=50_000)
    table = roofline(TraceView(planted.read(tmp_path))).set_index("operator")
    assert table["device_ns"].to_dict() == {"aten::addmm": 1_000, "aten::linear": 500}


def test_calls_with_the_same_arguments_stand_in_one_row(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    for number in range(3):
        product(planted, number * 100_000, 64, 1_000)
    product(planted, 400_000, 128, 1_000)
    table = roofline(TraceView(planted.read(tmp_path)))
    assert table["calls"].tolist() == [3, 1]
    assert table["flops"].tolist() == [3 * 2 * 64**3, 2 * 128**3]


def test_of_an_unknown_device_the_rates_are_told_and_no_share(tmp_path: Path) -> None:
    planted = Planted()
    product(planted, 0, 1024, 10_000)
    row = roofline(TraceView(planted.read(tmp_path))).iloc[0]
    assert row["tflops_per_s"] > 0
    assert np.isnan(row["peak_percent"])
    assert row["bound"] == ""


def test_copies_from_the_host_are_no_matter_of_the_devices_memory(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    planted.op("aten::copy_", 0, 50_000, **{"Input Dims": [[1024], [1024]], "Input type": ["float"] * 2})
    copy = planted.call("cudaMemcpyAsync", 10_000, 5_000)
    planted.device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20_000, 5_000, correlation=copy)
    assert len(roofline(TraceView(planted.read(tmp_path)))) == 0


def test_coverage_is_the_share_of_device_time_with_known_work(tmp_path: Path) -> None:
    planted = Planted(extra=H100)
    product(planted, 0, 1024, 3_000)
    planted.kernel("lost", 200_000, 1_000)
    table = coverage(TraceView(planted.read(tmp_path)))
    assert table[["device_ns", "modelled_ns", "modelled_percent"]].to_numpy().tolist() == [[4_000, 3_000, 75]]


@pytest.mark.parametrize("name", ALL)
def test_no_recorded_trace_is_faster_than_its_device(name: str) -> None:
    view = TraceView(read(recorded(name)))
    table = roofline(view)
    assert list(table.columns) == COLUMNS
    assert table["device_ns"].sum() == coverage(view)["modelled_ns"].sum()
    assert not (table["flops"] == 0).any()
    heavy = table[table["device_ns"] > 100_000]
    computing = heavy[heavy["bound"] == "compute"]
    assert (computing["peak_percent"].astype(float) <= 100).all()


def test_a_trace_without_events_has_an_empty_table(tmp_path: Path) -> None:
    view = TraceView(Planted().read(tmp_path))
    assert list(roofline(view).columns) == COLUMNS
    assert len(coverage(view)) == 0


def test_a_recorded_model_is_covered_almost_wholly() -> None:
    view = TraceView(read(recorded("tracelens/h100_bert_small")))
    assert coverage(view)["modelled_percent"].iloc[0] > 95

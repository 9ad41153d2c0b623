import math
from importlib.resources import files

import pytest

from tachoscope_analyzers.trace.analyses.device_peaks import peaks_of, precision_of_type
from tachoscope_core import yaml_text

ROWS = yaml_text.load((files("tachoscope_analyzers.trace.analyses") / "devices.yaml").read_text())


@pytest.mark.parametrize(
    ("device", "precision", "tflops", "memory"),
    [
        ("Tesla V100-SXM2-32GB", "fp16", 125, 900),
        ("NVIDIA A100-PG509-200", "bf16", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156, 2039),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5, 1935),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5, 3350),
        ("NVIDIA H100 PCIe", "bf16", 756, 2039),
        ("NVIDIA H200", "fp8", 1979, 4800),
        ("NVIDIA B200", "bf16", 2250, 7700),
        ("AMD Instinct MI300X VF", "bf16", 1307.4, 5325),
        ("NVIDIA L4", "fp16", 121, 300),
        ("NVIDIA L40S", "fp16", 362.05, 864),
        ("Tesla T4", "fp16", 65, 320),
    ],
)
def test_a_device_is_known_by_its_name(device: str, precision: str, tflops: float, memory: float) -> None:
    peaks = peaks_of(device)
    assert peaks.tflops_of(precision) == tflops
    assert peaks.memory_gb_per_s == memory


@pytest.mark.parametrize("device", ["", "AMD Radeon Graphics", "Planted", "ARTEMIS"])
def test_nothing_is_known_of_other_devices(device: str) -> None:
    assert math.isnan(peaks_of(device).memory_gb_per_s)
    assert math.isnan(peaks_of(device).tflops_of("fp32"))


@pytest.mark.parametrize(
    "device",
    [
        "NVIDIA GH200 480GB",
        "NVIDIA GB200",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA A100X",
        "NVIDIA H100 64GB HBM2",
        "Tesla V100-SXM3-32GB",
    ],
)
def test_a_name_that_only_resembles_an_entrys_has_none_of_its_figures(device: str) -> None:
    assert peaks_of(device).name == ""


def test_every_entry_has_a_source_and_is_faster_in_lower_precision() -> None:
    for row in ROWS:
        assert row["source"].startswith("https://"), row["name"]
        speeds = [row["tflops"][name] for name in ("fp64", "fp32", "tf32", "bf16", "fp8") if name in row["tflops"]]
        assert speeds == sorted(speeds), row["name"]
        assert 100 < row["memory_gb_per_s"] < 20_000, row["name"]


def test_types_are_known_by_the_names_that_traces_use() -> None:
    assert [precision_of_type(name) for name in ("float", "c10::BFloat16", "c10::Half", "double", "long int", "")] == [
        "fp32",
        "bf16",
        "fp16",
        "fp64",
        "",
        "",
    ]

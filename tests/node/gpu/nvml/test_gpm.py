"""Samples of GPM are kept from one reading to the next."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from fake_nvml import Driver
from tachoscope_node.gpu.nvml.gpm import GPM, Gpm, Request, supported


@pytest.fixture
def driver(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = Driver(tmp_path)
    with made.in_process():
        pynvml.nvmlInit()
        yield made


def gpm(gpu: int = 0) -> Gpm:
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    return Gpm(pynvml, lambda sample: pynvml.nvmlGpmSampleGet(handle, sample), Request(pynvml))


def test_the_samples_are_swapped_and_each_is_used_twice(driver: Driver) -> None:
    read = gpm()
    driver.set({f"gpu.0.gpm.{source.gpm}": 10 for source in GPM})

    assert read.read(0.0) == []
    for tick in range(1, 24):
        driver.set({"gpu.0.gpm.2": tick})
        values = {source.labels: value for source, value in read.read(float(tick))}
        assert values["sm",] == tick / 100
        assert len(values) == len(GPM)
    assert driver.calls()["nvmlGpmSampleAlloc"] == 2
    assert driver.calls()["nvmlGpmSampleGet"] == 24


def test_a_metric_that_the_gpu_cannot_tell_is_left_out_alone(driver: Driver) -> None:
    read = gpm()
    driver.set({f"gpu.0.gpm.{source.gpm}": 10 for source in GPM} | {"gpu.0.gpm.5": "none"})
    read.read(0.0)

    assert {source.gpm for source, _ in read.read(1.0)} == {source.gpm for source in GPM} - {5}


def test_samples_are_no_closer_together_than_gpm_refreshes_them(driver: Driver) -> None:
    read = gpm()
    driver.set({"gpu.0.gpm.2": 50})
    read.read(0.0)
    first = read.read(1.0)
    driver.set({"gpu.0.gpm.2": 60})

    assert read.read(1.09) == first
    assert read.read(1.1) != first


def test_a_sample_of_long_ago_or_before_an_error_is_not_reckoned_from(driver: Driver) -> None:
    read = gpm()
    read.read(0.0)

    assert read.read(61.0) == []
    assert read.read(62.0) != []
    driver.set_gpu(0, lost=1)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        read.read(63.0)
    driver.clear_gpu(0, "lost")
    assert read.read(64.0) == []
    assert read.read(65.0) != []


@pytest.mark.parametrize(("profile", "has"), [("h100x8", True), ("a100x4", False), ("laptop", False), ("old_driver", False)])
def test_gpm_is_supported_where_gpu_and_driver_have_it(tmp_path: Path, profile: str, has: bool) -> None:
    with Driver(tmp_path, profile).in_process():
        pynvml.nvmlInit()

        assert supported(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)) == has

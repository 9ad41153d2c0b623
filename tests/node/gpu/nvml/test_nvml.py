"""The driver's library: where it is missing, and how it is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pynvml
import pytest

from fake_nvml import Driver
from tachoscope_node.collectors.collector import NotSupportedError
from tachoscope_node.gpu.nvml import driver as nvml


def test_a_machine_without_the_library_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-none.so.1")  # a test before may have loaded the fake one by its name

    with pytest.raises(NotSupportedError, match=r"no NVIDIA driver found: libnvidia-none\.so\.1: .*; in a container, mount"):
        nvml.load()


def test_an_agent_without_nvidia_ml_py_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", str(Driver(tmp_path).library))
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(NotSupportedError, match=r"pip install 'tachoscope\[agent\]'"):
        nvml.load()


def test_the_library_is_loaded_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", str(Driver(tmp_path).library))

    assert nvml.load() is pynvml


def test_a_gpu_is_identified_by_its_place_in_the_drivers_list(tmp_path: Path) -> None:
    made = Driver(tmp_path)
    with made.in_process():
        driver = nvml.start(pynvml)
        _, gpu = driver.identify(5)

        assert driver.count() == 8
        assert (gpu.index, gpu.uuid, gpu.pci_bus_id) == (5, made.value(5, "uuid"), made.value(5, "pci_bus_id"))
        assert gpu.driver_version == "550.90.07"


def test_two_handles_of_one_gpu_have_one_address(tmp_path: Path) -> None:
    with Driver(tmp_path).in_process():
        pynvml.nvmlInit()
        first, again, other = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 0, 1))

        assert nvml.address(first) == nvml.address(again) != nvml.address(other)


def test_the_codes_are_those_that_nvml_names() -> None:
    assert nvml.LOST == pynvml.NVML_ERROR_GPU_IS_LOST
    assert {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    } == nvml.STOPPED
    assert {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    } == nvml.UNSUPPORTED

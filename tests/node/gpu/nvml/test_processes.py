"""Processes of a GPU, whatever form the driver gives their list."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pynvml
import pytest
from nvml_script import Clock, collector

from fake_nvml import Driver
from tachoscope_node.gpu.nvml.device_reader import can_be_true
from tachoscope_node.gpu.reading import GpuProcess
from trying import each

THREE = {4001: 1 << 30, 4002: 2 << 30, 4003: 3 << 30}


def processes(driver: Driver) -> tuple[GpuProcess, ...] | None:
    driver.set({f"gpu.0.process.{pid}": used for pid, used in THREE.items()})
    with collector(driver, Clock()) as gpus:
        gpus.collect()
        return gpus.readings()[0].processes


class Longer(ctypes.Structure):
    """An entry as nvidia-ml-py 12.535 had it for the third form, github.com/XuehaiPan/nvitop/pull/79."""

    _fields_ = [*pynvml.c_nvmlProcessInfo_v2_t._fields_, ("usedGpuCcProtectedMemory", ctypes.c_ulonglong)]


def test_where_driver_and_binding_do_not_agree_on_the_length_of_an_entry_the_old_form_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "c_nvmlProcessInfo_v3_t", Longer)
    driver = Driver(tmp_path)

    assert processes(driver) == tuple(GpuProcess(pid, used) for pid, used in THREE.items())
    assert driver.calls()["nvmlDeviceGetComputeRunningProcesses_v2"]


def test_a_list_that_cannot_be_true_in_any_form_is_not_told(tmp_path: Path) -> None:
    driver = Driver(tmp_path, missing=["nvmlDeviceGetComputeRunningProcesses_v2"])
    driver.set(driver__process_bytes=32)

    assert processes(driver) is None


def test_where_the_driver_lists_none_there_are_none_and_where_it_does_not_list_them_that_is_unknown(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.set_gpu(1, processes=0)
    with collector(driver, Clock()) as gpus:
        gpus.collect()

        assert [reading.processes for reading in gpus.readings()[:2]] == [(), None]


@each(("pid", "possible"), [(1, True), (4_194_304, True), (0, False), (4_194_305, False), (0xFFFFFFFF, False)])
def test_only_a_pid_that_the_kernel_gives_can_be_true(pid: int, possible: bool) -> None:
    assert can_be_true([GpuProcess(23), GpuProcess(pid)]) == possible

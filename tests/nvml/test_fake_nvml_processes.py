from __future__ import annotations

import ctypes

import pynvml as nvml
import pytest

from fake_nvml import Driver

NO_INSTANCE = 0xFFFFFFFF
LISTS = (nvml.nvmlDeviceGetComputeRunningProcesses_v3, nvml.nvmlDeviceGetComputeRunningProcesses_v2)


def handle(index: int):
    return nvml.nvmlDeviceGetHandleByIndex(index)


@pytest.mark.parametrize("listed", LISTS)
def test_processes_are_listed_with_their_memory_where_the_driver_tells_it(driver: Driver, listed) -> None:
    assert listed(handle(0)) == []
    driver.set_gpu(0, process__4711=2**35, process__12="unknown", graphics_process__99=5)
    found = {process.pid: (process.usedGpuMemory, process.gpuInstanceId) for process in listed(handle(0))}
    assert found == {4711: (2**35, NO_INSTANCE), 12: (None, NO_INSTANCE)}
    assert [process.pid for process in nvml.nvmlDeviceGetGraphicsRunningProcesses(handle(0))] == [99]
    assert listed(handle(1)) == []


@pytest.mark.parametrize("listed", LISTS)
def test_a_process_of_a_mig_instance_is_listed_with_it_and_with_its_gpu(loaded, listed) -> None:
    driver = loaded("h100_mig")
    driver.set({"gpu.0.mig.5.process.77": 1024})
    instances = [nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), place) for place in range(3)]
    assert [[process.pid for process in listed(device)] for device in instances] == [[], [77], []]
    (process,) = listed(handle(0))
    assert (process.pid, process.usedGpuMemory, process.gpuInstanceId, process.computeInstanceId) == (77, 1024, 5, 0)


def test_a_driver_may_not_list_processes_at_all(driver: Driver) -> None:
    driver.set_gpu(0, processes=0, process__1=1)
    for call in (*LISTS, lambda device: nvml.nvmlDeviceGetProcessUtilization(device, 0)):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call(handle(0))


def test_longer_entries_than_the_header_says_garble_all_but_the_first_process(driver: Driver) -> None:
    driver.set_gpu(0, process__1001=16, process__1002=32, process__1003=48)
    driver.set({"driver.process_bytes": 32})
    found = nvml.nvmlDeviceGetComputeRunningProcesses(handle(0))
    assert len(found) == 3
    assert (found[0].pid, found[0].usedGpuMemory) == (1001, 16)
    assert {process.pid for process in found[1:]} != {1002, 1003}


def test_use_by_process_is_told_while_it_uses_the_gpu_and_not_found_where_all_are_idle(driver: Driver) -> None:
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetProcessUtilization(handle(0), 0)
    driver.set_gpu(0, process_utilization__4711="93 41 0 7")
    (sample,) = nvml.nvmlDeviceGetProcessUtilization(handle(0), 0)
    assert (sample.pid, sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil) == (4711, 93, 41, 0, 7)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetProcessUtilization(handle(0), sample.timeStamp + 10**12)


def test_use_by_process_is_not_supported_with_mig(loaded) -> None:
    driver = loaded("h100_mig")
    driver.set_gpu("*", process_utilization__4711="93 41 0 7")
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetProcessUtilization(handle(0), 0)
    assert len(nvml.nvmlDeviceGetProcessUtilization(handle(1), 0)) == 1


def test_a_list_without_room_tells_how_much_it_needs(driver: Driver) -> None:
    driver.set_gpu(0, process__1=1, process__2=1)
    count = ctypes.c_uint(1)
    call = nvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
    assert call(handle(0), ctypes.byref(count), (nvml.c_nvmlProcessInfo_v3_t * 1)()) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value == 2

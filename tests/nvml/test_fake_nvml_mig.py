from __future__ import annotations

import pynvml as nvml
import pytest


def handle(index: int):
    return nvml.nvmlDeviceGetHandleByIndex(index)


def instances_of(device) -> list:
    found = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place))
        except nvml.NVMLError_NotFound:
            break
    return found


def test_the_first_gpu_has_three_instances_and_the_second_none(loaded) -> None:
    loaded("h100_mig")
    assert [nvml.nvmlDeviceGetMigMode(handle(gpu)) for gpu in (0, 1)] == [[1, 1], [0, 0]]
    instances = instances_of(handle(0))
    assert [nvml.nvmlDeviceGetGpuInstanceId(device) for device in instances] == [2, 5, 13]
    assert [nvml.nvmlDeviceGetIndex(device) for device in instances] == [0, 1, 2]
    assert instances_of(handle(1)) == []


def test_an_instance_says_who_it_is_and_whose(loaded) -> None:
    driver = loaded("h100_mig")
    device = instances_of(handle(0))[1]
    assert nvml.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 2g.20gb"
    assert nvml.nvmlDeviceGetUUID(device) == driver.value(0, "mig.5.uuid")
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)) == driver.value(0, "uuid")
    by_uuid = nvml.nvmlDeviceGetHandleByUUID(driver.value(0, "mig.5.uuid"))
    assert nvml.nvmlDeviceGetGpuInstanceId(by_uuid) == 5
    assert [nvml.nvmlDeviceIsMigDeviceHandle(one).value for one in (device, handle(0))] == [1, 0]


def test_an_instance_has_memory_and_slices_of_its_own(loaded) -> None:
    driver = loaded("h100_mig")
    driver.set({"gpu.0.mig.13.memory_used": 4096, "gpu.0.mig.13.compute_instance": 1})
    device = instances_of(handle(0))[2]
    memory, attributes = nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2), nvml.nvmlDeviceGetAttributes_v2(device)
    assert (memory.total, memory.used, memory.free) == (9984 << 20, 4096, (9984 << 20) - 4096)
    assert (attributes.memorySizeMB, attributes.multiprocessorCount) == (9984, 16)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (1, 1)
    assert nvml.nvmlDeviceGetComputeInstanceId(device) == 1
    assert nvml.nvmlDeviceGetMemoryInfo(handle(0), nvml.nvmlMemory_v2).used == int(driver.value(0, "memory_used"))


def test_what_is_not_told_of_instances_is_refused(loaded) -> None:
    loaded("h100_mig")
    device = instances_of(handle(0))[0]
    for call in (nvml.nvmlDeviceGetUtilizationRates, nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetMigMode):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call(device)
    for call in (
        nvml.nvmlDeviceGetGpuInstanceId,
        nvml.nvmlDeviceGetComputeInstanceId,
        nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
    ):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            call(handle(0))


def test_a_gpu_with_mig_tells_no_utilisation_of_the_whole(loaded) -> None:
    loaded("h100_mig")
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(handle(0))
    assert nvml.nvmlDeviceGetUtilizationRates(handle(1)).gpu == 0


def test_a_gpu_that_knows_no_mig_does_not_support_its_calls(loaded) -> None:
    loaded("laptop")
    for call in (nvml.nvmlDeviceGetMigMode, lambda device: nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call(handle(0))


def test_an_instance_is_lost_with_its_gpu(loaded) -> None:
    driver = loaded("h100_mig")
    device = instances_of(handle(0))[0]
    driver.set_gpu(0, lost=1)
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetMemoryInfo(device)

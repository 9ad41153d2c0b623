from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pynvml as nvml
import pytest

from fake_nvml import Driver
from nvml_calls import CALLS, gpm_values

LONG = 600


def handle(index: int):
    return nvml.nvmlDeviceGetHandleByIndex(index)


def wait_until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.001)


def test_every_call_on_a_lost_gpu_says_so_and_the_others_answer(driver: Driver) -> None:
    devices = [handle(gpu) for gpu in range(8)]
    driver.set_gpu(3, lost=1)
    for call in (
        *(call for calls in CALLS.values() for call in calls),
        nvml.nvmlDeviceGetName,
        lambda device: gpm_values(device, [1]),
    ):
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            call(devices[3])
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        handle(3)
    assert nvml.nvmlDeviceGetCount() == 8
    assert [nvml.nvmlDeviceGetPowerUsage(device) for device in devices[:3] + devices[4:]] == [69000] * 7
    driver.clear_gpu(3, "lost")
    assert nvml.nvmlDeviceGetPowerUsage(devices[3]) == 69000


def test_a_gpu_that_is_gone_is_no_longer_listed_and_those_after_it_move_up(driver: Driver) -> None:
    kept, uuid = handle(2), driver.value(2, "uuid")
    driver.set_gpu(2, gone=1)
    assert nvml.nvmlDeviceGetCount() == 7
    listed = [nvml.nvmlDeviceGetUUID(handle(index)) for index in range(7)]
    assert listed == [driver.value(gpu, "uuid") for gpu in (0, 1, 3, 4, 5, 6, 7)]
    assert [nvml.nvmlDeviceGetIndex(handle(index)) for index in range(7)] == list(range(7))
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        handle(7)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID(uuid)
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetPowerUsage(kept)


def test_a_call_on_a_gpu_that_hangs_comes_back_when_its_time_is_over_and_no_other_call_waits(driver: Driver) -> None:
    devices = [handle(gpu) for gpu in range(2)]
    driver.set_gpu(0, hang_seconds=LONG)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(nvml.nvmlDeviceGetPowerUsage, devices[0])
        wait_until(lambda: driver.calls().get("nvmlDeviceGetPowerUsage", 0) == 1)
        assert nvml.nvmlDeviceGetPowerUsage(devices[1]) == 69000
        assert not hanging.done()
        driver.clear_gpu(0, "hang_seconds")
        assert hanging.result() == 69000
    driver.set_gpu(0, hang_seconds=0.05)
    began = time.monotonic()
    nvml.nvmlDeviceGetPowerUsage(devices[0])
    assert time.monotonic() - began >= 0.05


def test_the_whole_driver_can_hang_init_included(driver: Driver) -> None:
    driver.set({"driver.hang_seconds": LONG})
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(nvml.nvmlInit), pool.submit(nvml.nvmlDeviceGetCount), pool.submit(handle, 1)]
        wait_until(lambda: driver.calls().get("nvmlDeviceGetCount_v2", 0) == 1)
        assert not any(call.done() for call in calls)
        driver.clear("driver.hang_seconds")
        assert calls[1].result() == 8


def test_a_gpu_or_a_function_can_be_made_to_fail_with_any_code(driver: Driver) -> None:
    driver.set_gpu(1, error=nvml.NVML_ERROR_RESET_REQUIRED)
    driver.set_gpu(2, error__nvmlDeviceGetPowerUsage=nvml.NVML_ERROR_NO_PERMISSION)
    driver.set({"driver.error.nvmlSystemGetDriverVersion": nvml.NVML_ERROR_UNKNOWN})
    with pytest.raises(nvml.NVMLError_ResetRequired):
        handle(1)
    with pytest.raises(nvml.NVMLError_NoPermission):
        nvml.nvmlDeviceGetPowerUsage(handle(2))
    with pytest.raises(nvml.NVMLError_Unknown):
        nvml.nvmlSystemGetDriverVersion()
    assert nvml.nvmlDeviceGetUtilizationRates(handle(2)).gpu == 0
    assert nvml.nvmlDeviceGetPowerUsage(handle(3)) == 69000


def test_init_can_fail_and_work_later(driver: Driver) -> None:
    nvml.nvmlShutdown()
    for code, error in ((9, nvml.NVMLError_DriverNotLoaded), (18, nvml.NVMLError_LibRmVersionMismatch)):
        driver.set({"driver.init_error": code})
        with pytest.raises(error):
            nvml.nvmlInit()
    driver.clear("driver.init_error")
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 8


def test_nothing_answers_before_init_or_after_shutdown_and_inits_are_counted(driver: Driver) -> None:
    device = handle(0)
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetPowerUsage(device) == 69000
    nvml.nvmlShutdown()
    for call in (nvml.nvmlDeviceGetCount, nvml.nvmlShutdown, lambda: nvml.nvmlDeviceGetPowerUsage(device)):
        with pytest.raises(nvml.NVMLError_Uninitialized):
            call()


def test_errors_have_the_words_of_the_driver(driver: Driver) -> None:
    assert str(nvml.NVMLError(nvml.NVML_ERROR_GPU_IS_LOST)) == "GPU is lost"
    assert nvml.nvmlErrorString(nvml.NVML_ERROR_NOT_SUPPORTED) == "Not Supported"


def test_a_call_burns_the_cpu_time_that_it_shall_cost(driver: Driver) -> None:
    device = handle(0)
    driver.set({"call.cost_us": 2000})
    before = time.thread_time()
    for _ in range(20):
        nvml.nvmlDeviceGetPowerUsage(device)
    assert time.thread_time() - before >= 20 * 0.002


def test_calls_are_counted_by_function(driver: Driver) -> None:
    driver.forget_calls()
    for _ in range(3):
        nvml.nvmlDeviceGetUtilizationRates(handle(0))
    assert driver.calls() == {"nvmlDeviceGetHandleByIndex_v2": 3, "nvmlDeviceGetUtilizationRates": 3}
    assert nvml.nvmlLib.fake_nvml_calls(b"nvmlDeviceGetUtilizationRates") == 3


def test_calls_that_run_at_once_are_seen_and_waiting_for_events_is_none_of_them(driver: Driver) -> None:
    device, events = handle(0), nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(device, nvml.nvmlEventTypeXidCriticalError, events)
    waiter = threading.Thread(target=nvml.nvmlEventSetWait_v2, args=(events, LONG * 1000))
    waiter.start()
    wait_until(lambda: driver.calls().get("nvmlEventSetWait_v2", 0) == 1)
    nvml.nvmlDeviceGetPowerUsage(device)
    assert driver.most_at_once() == nvml.nvmlLib.fake_nvml_most_at_once() == 1
    driver.event(0, 79)
    waiter.join()
    driver.set_gpu(0, hang_seconds=LONG)
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(nvml.nvmlDeviceGetPowerUsage, device)
        wait_until(lambda: driver.calls()["nvmlDeviceGetPowerUsage"] == 4)
        driver.clear_gpu(0, "hang_seconds")
    assert driver.most_at_once() == 3


def test_a_state_that_is_written_over_and_over_is_never_read_half(driver: Driver) -> None:
    device, over, torn = handle(0), threading.Event(), []

    def read() -> None:
        while not over.is_set():
            used = nvml.nvmlDeviceGetUtilizationRates(device)
            if used.gpu > used.memory:  # the first is read first
                torn.append((used.gpu, used.memory))

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for value in range(1, 60):
            driver.set_gpu(0, utilization_gpu=value, utilization_memory=value)
        over.set()
        for reader in readers:
            reader.result()
    assert not torn
    assert nvml.nvmlDeviceGetUtilizationRates(device).gpu == 59

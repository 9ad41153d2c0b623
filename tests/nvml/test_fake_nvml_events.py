from __future__ import annotations

import threading
import time

import pynvml as nvml
import pytest

from fake_nvml import Driver

XID, DOUBLE_BIT = nvml.nvmlEventTypeXidCriticalError, nvml.nvmlEventTypeDoubleBitEccError
LONG_MS = 60_000


def handle(index: int):
    return nvml.nvmlDeviceGetHandleByIndex(index)


def registered(*gpus: int, types: int = XID):
    events = nvml.nvmlEventSetCreate()
    for gpu in gpus:
        nvml.nvmlDeviceRegisterEvents(handle(gpu), types, events)
    return events


def what(event) -> tuple[int, int, int]:
    return nvml.nvmlDeviceGetIndex(event.device), event.eventType, event.eventData


def test_an_xid_is_given_once_with_its_gpu_and_in_the_order_in_which_they_happened(driver: Driver) -> None:
    events = registered(3, 6)
    for gpu, xid in ((6, 79), (3, 48), (3, 48)):
        driver.event(gpu, xid)
    assert [what(nvml.nvmlEventSetWait_v2(events, 0)) for _ in range(3)] == [(6, XID, 79), (3, XID, 48), (3, XID, 48)]
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 0)


def test_more_than_nine_events_keep_their_order(driver: Driver) -> None:
    events = registered(0)
    for xid in range(20, 40):
        driver.event(0, xid)
    assert [nvml.nvmlEventSetWait_v2(events, 0).eventData for _ in range(20)] == list(range(20, 40))


def test_a_set_hears_only_of_its_gpus_and_of_the_types_that_it_asked_for(driver: Driver) -> None:
    events = registered(1, types=DOUBLE_BIT)
    driver.event(1, 79)
    driver.event(2, 0, kind=DOUBLE_BIT)
    driver.event(1, 0, kind=DOUBLE_BIT)
    assert what(nvml.nvmlEventSetWait_v2(events, 0)) == (1, DOUBLE_BIT, 0)
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 0)


def test_a_set_hears_nothing_of_before_it_was_made_and_two_sets_hear_the_same(driver: Driver) -> None:
    driver.event(0, 13)
    first, second = registered(0), registered(0)
    driver.event(0, 31)
    assert [nvml.nvmlEventSetWait_v2(events, 0).eventData for events in (first, second)] == [31, 31]


def test_an_event_tells_the_mig_instance_in_which_it_happened(loaded) -> None:
    driver = loaded("h100_mig")
    events = registered(0)
    driver.event(0, 43, instance=5)
    driver.event(0, 43)
    told = [nvml.nvmlEventSetWait_v2(events, 0) for _ in range(2)]
    assert [(event.gpuInstanceId, event.computeInstanceId) for event in told] == [(5, 0), (0xFFFFFFFF, 0xFFFFFFFF)]


def test_a_wait_ends_with_the_event_that_happens_meanwhile(driver: Driver) -> None:
    events, heard = registered(4), []
    waiter = threading.Thread(target=lambda: heard.append(nvml.nvmlEventSetWait_v2(events, LONG_MS).eventData))
    waiter.start()
    while not driver.calls().get("nvmlEventSetWait_v2"):
        time.sleep(0.001)
    driver.set_gpu(4, temperature=80)
    assert waiter.is_alive()
    driver.event(4, 79)
    waiter.join()
    assert heard == [79]


def test_a_wait_for_nothing_lasts_its_time_and_burns_none(driver: Driver) -> None:
    events = registered(0)
    began, burnt = time.monotonic(), time.thread_time()
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 300)
    assert time.monotonic() - began >= 0.3
    assert time.thread_time() - burnt < 0.1


def test_events_cannot_be_had_where_the_gpu_does_not_support_them(loaded) -> None:
    driver = loaded("laptop")
    with pytest.raises(nvml.NVMLError_NotSupported):
        registered(0)
    driver.set_gpu(0, event_types=XID)
    assert nvml.nvmlDeviceGetSupportedEventTypes(handle(0)) == XID
    registered(0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        registered(0, types=XID | DOUBLE_BIT)


def test_a_freed_set_is_refused_and_its_place_is_used_again(driver: Driver) -> None:
    for _ in range(200):
        events = registered(0)
        nvml.nvmlEventSetFree(events)
    for call in (lambda: nvml.nvmlEventSetWait_v2(events, LONG_MS), lambda: nvml.nvmlEventSetFree(events)):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            call()


def test_waiting_can_be_made_to_fail(driver: Driver) -> None:
    events = registered(0)
    driver.set({"driver.error.nvmlEventSetWait_v2": nvml.NVML_ERROR_GPU_IS_LOST})
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlEventSetWait_v2(events, LONG_MS)

"""Xid errors as the driver reports them."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from fake_nvml import Driver
from tachoscope_node.gpu.nvml.xid_events import Events, Xid
from tachoscope_node.gpu.reading import Gpu

ONE, TWO = Gpu(0, "GPU-one"), Gpu(1, "GPU-two")


@pytest.fixture
def driver(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = Driver(tmp_path)
    with made.in_process():
        pynvml.nvmlInit()
        yield made


def registered() -> Events:
    events = Events(pynvml)
    for index, gpu in enumerate((ONE, TWO)):
        events.register(pynvml.nvmlDeviceGetHandleByIndex(index), gpu)
    return events


def test_errors_are_taken_once_in_their_order_with_their_gpu(driver: Driver) -> None:
    events = registered()
    for gpu, xid in ((1, 79), (0, 48), (1, 79)):
        driver.event(gpu, xid)

    assert events.drain() == [Xid(TWO, 79), Xid(ONE, 48), Xid(TWO, 79)]
    assert events.drain() == []


def test_other_events_and_those_of_gpus_that_nobody_registered_are_not_errors(driver: Driver) -> None:
    events = registered()
    driver.event(0, 7, kind=pynvml.nvmlEventTypePState)
    driver.event(5, 79)

    assert events.drain() == []


def test_a_flood_is_taken_in_parts(driver: Driver) -> None:
    events = registered()
    driver.set({f"event.{number}": f"13@{number % 2}" for number in range(1, 301)})

    assert [len(events.drain()) for _ in range(3)] == [256, 44, 0]


def test_a_gpu_is_registered_once_however_often_it_is_identified(driver: Driver) -> None:
    events = registered()
    events.register(pynvml.nvmlDeviceGetHandleByIndex(0), Gpu(0, "GPU-one", model="renamed"))
    driver.event(0, 31)

    assert driver.calls()["nvmlDeviceRegisterEvents"] == 2
    assert events.drain() == [Xid(Gpu(0, "GPU-one", model="renamed"), 31)]


def test_a_gpu_without_events_has_none_and_is_no_error(driver: Driver) -> None:
    driver.set_gpu(0, event_types="none")
    driver.event(0, 79)

    assert registered().drain() == []

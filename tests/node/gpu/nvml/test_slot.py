"""A place in the driver's list says which GPU is there and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from nvml_script import Clock

from fake_nvml import Driver
from tachoscope_node.gpu.nvml import driver as nvml
from tachoscope_node.gpu.nvml.device_slot import DeviceSlot
from tachoscope_node.gpu.reading import Gpu


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path)
    with made.in_process():
        yield made


def run(slot: DeviceSlot) -> None:
    slot.task.begin()
    slot.task()


def slot(clock: Clock, named: int = 0) -> DeviceSlot:
    return DeviceSlot(2, nvml.start(pynvml), None, lambda gpu: replace(gpu, index=gpu.index + named), clock)


def test_the_gpu_is_shown_under_the_index_that_it_is_known_by(fake: Driver) -> None:
    place = slot(Clock(), named=40)
    run(place)

    assert place.fault() is None
    assert place.task.answer is not None
    assert place.task.answer[0].gpu == place.gpu
    assert (place.gpu.index, place.gpu.uuid) == (42, fake.value(2, "uuid"))


def test_a_fault_is_named_by_kind_and_in_the_drivers_words(fake: Driver) -> None:
    clock = Clock()
    place = slot(clock)
    run(place)
    faults = []
    for code in (15, 999):
        fake.set_gpu(2, error=code)
        run(place)
        faults.append(place.fault())
    place.task.begin()

    assert faults == [("lost", "GPU is lost"), ("driver_error", "Unknown Error")]
    assert place.fault() == ("no_answer", "a call to the driver does not return")
    assert isinstance(place.gpu, Gpu)


def test_who_is_there_is_asked_again_every_15_seconds_or_when_told_to(fake: Driver) -> None:
    clock = Clock()
    place = slot(clock)
    seen = []
    for name, seconds in (("GPU-a", 0), ("GPU-b", 14), ("GPU-c", 1), ("GPU-d", 1)):
        fake.set_gpu(2, uuid=name)
        clock.sleep(seconds)
        if name == "GPU-d":
            place.look_again()
        run(place)
        seen.append(place.gpu.uuid if place.gpu else None)

    assert seen == ["GPU-a", "GPU-a", "GPU-c", "GPU-d"]


def test_what_the_driver_keeps_for_a_gpu_is_freed_when_it_fails_or_the_place_is_closed(fake: Driver) -> None:
    place = slot(Clock())
    run(place)
    fake.set_gpu(2, error=999)
    run(place)
    fake.clear_gpu(2, "error")
    run(place)
    place.close()

    assert fake.calls()["nvmlGpmSampleAlloc"] == fake.calls()["nvmlGpmSampleFree"] == 4

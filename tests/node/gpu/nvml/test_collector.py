"""Faults of GPUs and of the driver: the others go on, metrics and one log line name the fault, and what is fixed comes back."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pynvml
import pytest
from nvml_script import Clock, collector
from trees import points

from fake_nvml import Driver
from left_behind import LeftBehind
from processes import wait_for
from tachoscope_core.metrics.agent import COLLECTOR_STATUS
from tachoscope_core.metrics.gpu import GPU_INFO, GPU_POWER, GPU_UP, GPUS
from tachoscope_node.collectors.collector import NoDataError, NotSupportedError, PartialError
from tachoscope_node.collectors.frame import Frame
from tachoscope_node.gpu.nvml.collector import GpuCollector
from tachoscope_service.metrics.family import Family

NOT_LOADED, LOST, UNKNOWN = 9, 15, 999


def up(families: list[Family]) -> dict[str, float]:
    return {labels[0]: value for labels, value in points(families, GPU_UP).items() if not labels[2]}


def failing(gpus: GpuCollector) -> list[Family]:
    """Return what is told by a collector that has no driver to ask."""
    with pytest.raises((PartialError, NoDataError)) as raised:
        gpus.collect()
    return list(raised.value.families)


def all_up(gpus: GpuCollector) -> list[Family]:
    """Return what is told once all GPUs are up: a call that hung comes back a moment after it may."""

    def told() -> list[Family]:
        with contextlib.suppress(NoDataError, PartialError, TimeoutError):
            found = gpus.collect()
            return found if up(found) == ALL else []
        return []

    return wait_for(told)


def counted(families: list[Family]) -> tuple[float, float]:
    found = points(families, GPUS)
    return found["expected",], found["seen",]


def with_power(families: list[Family]) -> set[str]:
    return {labels[0] for labels in points(families, GPU_POWER)}


ALL = {str(index): 1.0 for index in range(8)}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"lost": 1}, "lost: GPU is lost"),
        ({"error": UNKNOWN}, "driver_error: Unknown Error"),
        ({"error": LOST}, "lost: GPU is lost"),
        ({"field__185__error": LOST}, "lost: GPU is lost"),
        ({"error__nvmlDeviceGetUUID": UNKNOWN, "error": 16}, "driver_error: GPU requires restart"),
    ],
)
def test_a_gpu_that_fails_is_down_by_name_and_the_others_go_on_until_it_is_back(
    tmp_path: Path, fault: dict[str, int], kind: str
) -> None:
    driver, clock, log = Driver(tmp_path), Clock(), []
    with collector(driver, clock, log=log.append) as gpus:
        first = gpus.collect()
        driver.set_gpu(3, **fault)
        for _ in range(3):
            clock.sleep(1.0)
            failing = gpus.collect()
        reading = gpus.readings()[3]
        driver.clear_gpu(3, *(key.replace("__", ".") for key in fault))
        clock.sleep(1.0)
        mended = gpus.collect()

    uuid = driver.value(3, "uuid")
    assert up(first) == up(mended) == ALL
    assert up(failing) == ALL | {"3": 0.0}
    assert points(failing, GPU_INFO).keys() == points(first, GPU_INFO).keys()
    assert with_power(failing) == ALL.keys() - {"3"}
    assert with_power(mended) == set(ALL)
    assert (counted(first), counted(failing), counted(mended)) == ((8.0, 8.0), (8.0, 7.0), (8.0, 8.0))
    assert (reading.gpu.uuid, reading.up, f"{reading.fault}: {reading.detail}") == (uuid, False, kind)
    assert log == [f"GPU 3 ({uuid}): {kind}", f"GPU 3 ({uuid}): answers again"]


def test_a_gpu_that_the_driver_no_longer_lists_keeps_its_series_and_the_others_their_index(tmp_path: Path) -> None:
    driver, clock, log = Driver(tmp_path), Clock(), []
    driver.set({f"gpu.{index}.power_mw": 1000 * index for index in range(8)})
    with collector(driver, clock, log=log.append) as gpus:
        gpus.collect()
        driver.set_gpu(2, gone=1)
        for _ in range(3):
            clock.sleep(1.0)
            without = gpus.collect()
        driver.clear_gpu(2, "gone")
        for _ in range(2):
            clock.sleep(1.0)
            back = gpus.collect()

    assert up(without) == ALL | {"2": 0.0}
    assert counted(without) == (8.0, 7.0)
    power = {labels[0]: value for labels, value in points(without, GPU_POWER).items() if labels[3] == "usage"}
    assert power == {str(index): float(index) for index in range(8) if index != 2}
    assert up(back) == ALL
    assert [line.partition("): ")[2].partition(":")[0] for line in log] == ["lost", "answers again"]


@pytest.mark.alone
@pytest.mark.waits
def test_a_call_that_hangs_holds_nobody_up_and_is_not_made_again_until_it_returns(tmp_path: Path) -> None:
    driver, log, left = Driver(tmp_path), [], LeftBehind()
    with collector(driver, time.monotonic, log=log.append) as gpus:
        gpus.collect()
        driver.set_gpu(0, hang_seconds=30)
        began = time.monotonic()
        first = gpus.collect()
        first_seconds = time.monotonic() - began
        driver.forget_calls()
        began = time.monotonic()
        later = [gpus.collect() for _ in range(5)]
        later_seconds = time.monotonic() - began
        reading, most = gpus.readings()[0], len(left.threads())
        at_once = driver.most_at_once()
        driver.clear_gpu(0, "hang_seconds")
        mended = all_up(gpus)

    assert first_seconds < 10.0  # the call hangs for 30 s
    assert later_seconds < 5.0  # five that wait for the call that hangs take 6 s
    assert all(up(families) == ALL | {"0": 0.0} for families in (first, *later))
    assert all(with_power(families) == ALL.keys() - {"0"} for families in (first, *later))
    assert (reading.fault, reading.detail) == ("no_answer", "a call to the driver does not return")
    assert most <= 2
    assert at_once <= 2
    assert up(mended) == ALL
    uuid = driver.value(0, "uuid")
    assert log == [f"GPU 0 ({uuid}): no_answer: a call to the driver does not return", f"GPU 0 ({uuid}): answers again"]


@pytest.mark.alone
@pytest.mark.waits
def test_all_gpus_may_hang_and_the_collector_still_answers(tmp_path: Path) -> None:
    driver, left = Driver(tmp_path), LeftBehind()
    with collector(driver, time.monotonic) as gpus:
        gpus.collect()
        driver.set_gpu("*", hang_seconds=30)
        slowest = 0.0
        for _ in range(3):
            began = time.monotonic()
            families = gpus.collect()
            slowest = max(slowest, time.monotonic() - began)
            assert len(left.threads()) <= 9
        driver.clear_gpu("*", "hang_seconds")
        mended = all_up(gpus)

    assert slowest < 10.0  # the calls hang for 30 s
    assert up(families) == dict.fromkeys(ALL, 0.0)
    assert {reading.fault for reading in gpus.readings() if not reading.up} <= {"no_answer"}
    assert up(mended) == ALL


def test_calls_never_run_beside_each_other_while_none_hangs(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path, "h100_mig"), Clock()
    with collector(driver, clock) as gpus:
        for _ in range(23):
            gpus.collect()
            clock.sleep(5.0)

    assert driver.most_at_once() == 1


def test_a_node_without_a_driver_is_not_supported_unless_gpus_are_wanted(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.set(driver__init_error=NOT_LOADED)
    with collector(driver, Clock()) as gpus, pytest.raises(NotSupportedError, match="nvmlInit: Driver Not Loaded"):
        gpus.collect()
    with collector(driver, Clock(), required=True) as gpus:
        with pytest.raises(PartialError, match=r"gpu.enabled is on, but nvmlInit"):
            gpus.collect()
        assert (gpus.expected(), gpus.driver()) == (1, "absent")


def test_a_driver_that_does_not_start_is_one_failure_and_is_tried_again_every_15_seconds(tmp_path: Path) -> None:
    driver, clock, log = Driver(tmp_path), Clock(), []
    driver.set(driver__init_error=UNKNOWN)
    with collector(driver, clock, log=log.append) as gpus:
        frame = Frame([gpus], log.append)
        for _ in range(15):
            frame.tick(clock.now)
            clock.sleep(1.0)
        status = points(frame.families(), COLLECTOR_STATUS)
        tries = driver.calls()["nvmlInitWithFlags"]
        driver.clear("driver.init_error")
        frame.tick(clock.now)
        found = frame.families()
        frame.close()

    assert status["nvml", "failed"] == 1.0
    assert tries == 1
    assert up(found) == ALL
    assert log == ["collector nvml: failed: NVMLError_Unknown: Unknown Error", "collector nvml: ok"]


def test_gpus_that_are_known_are_down_while_their_driver_does_not_start_and_one_line_says_so(tmp_path: Path) -> None:
    driver, clock, log = Driver(tmp_path), Clock(), []
    with collector(driver, clock, state=tmp_path / "gpus.json") as gpus:
        gpus.collect()
    driver.set(driver__init_error=NOT_LOADED)
    with collector(driver, clock, state=tmp_path / "gpus.json", log=log.append) as gpus:
        for _ in range(5):
            families = failing(gpus)
            clock.sleep(1.0)
        readings = gpus.readings()
        driver.clear("driver.init_error")
        clock.sleep(15.0)
        mended = gpus.collect()

    assert up(families) == dict.fromkeys(ALL, 0.0)
    assert counted(families) == (8.0, 0.0)
    assert {(reading.fault, reading.detail) for reading in readings} == {("driver_error", "nvmlInit: Driver Not Loaded")}
    assert up(mended) == ALL
    assert log == [
        "the NVIDIA driver: driver_error: nvmlInit: Driver Not Loaded; 8 GPUs are down",
        "the NVIDIA driver: answers again",
    ]


@pytest.mark.parametrize(("error", "driver"), [(UNKNOWN, "error"), (NOT_LOADED, "absent")])
def test_gpus_that_are_configured_are_missed_though_none_was_ever_seen(tmp_path: Path, error: int, driver: str) -> None:
    fake = Driver(tmp_path)
    fake.set(driver__init_error=error)
    with collector(fake, Clock(), expected=8) as gpus:
        frame = Frame([gpus], lambda _: None)
        assert gpus.driver() == "starting"
        frame.tick(0.0)
        found = frame.families()
        frame.close()
        assert counted(found) == (8.0, 0.0)
        assert points(found, COLLECTOR_STATUS)["nvml", "failed"] == 1.0
        assert gpus.driver() == driver


@pytest.mark.alone
@pytest.mark.waits
def test_a_driver_that_hangs_at_its_start_is_a_failure_after_30_seconds_and_is_asked_once(tmp_path: Path) -> None:
    driver, clock, left = Driver(tmp_path), Clock(), LeftBehind()
    driver.set(driver__hang_seconds=30)
    with collector(driver, clock, patient=False) as gpus:
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(NoDataError, match="nvmlInit has not returned yet"):
                gpus.collect()
            clock.sleep(10.0)
        for _ in range(3):
            with pytest.raises(TimeoutError, match="nvmlInit does not return"):
                gpus.collect()
            clock.sleep(10.0)
        assert time.monotonic() - began < 15.0
        assert driver.calls()["nvmlInitWithFlags"] == 1
        assert len(left.threads()) <= 2
        driver.clear("driver.hang_seconds")

        all_up(gpus)


@pytest.mark.alone
@pytest.mark.waits
def test_known_gpus_are_down_from_the_first_tick_while_the_driver_hangs_at_its_start(tmp_path: Path) -> None:
    driver, clock, log = Driver(tmp_path), Clock(), []
    with collector(driver, clock, state=tmp_path / "gpus.json") as gpus:
        gpus.collect()
        assert gpus.driver() == "works"
    driver.set(driver__hang_seconds=30)
    with collector(driver, clock, patient=False, state=tmp_path / "gpus.json", log=log.append) as gpus:
        first, condition = failing(gpus), gpus.driver()
        clock.sleep(30.0)
        with pytest.raises(PartialError, match="nvmlInit does not return"):
            gpus.collect()
        later, faults = gpus.driver(), {reading.fault for reading in gpus.readings()}
        driver.clear("driver.hang_seconds")

        all_up(gpus)
    assert up(first) == dict.fromkeys(ALL, 0.0)
    assert counted(first) == (8.0, 0.0)
    assert (condition, later) == ("starting", "error")
    assert faults == {"no_answer"}
    assert len(log) == 2


def test_a_driver_that_was_restarted_is_started_anew(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path), Clock()
    with collector(driver, clock) as gpus:
        gpus.collect()
        pynvml.nvmlShutdown()  # as after a reload: each call says Uninitialized
        pynvml._nvmlLib_refcount = 0
        clock.sleep(1.0)
        stopped = gpus.collect()
        clock.sleep(1.0)
        again = gpus.collect()

    assert up(stopped) == dict.fromkeys(ALL, 0.0)
    assert up(again) == ALL
    assert driver.calls()["nvmlInitWithFlags"] == 2


def test_a_lost_gpu_is_still_missed_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    driver, state = Driver(tmp_path), tmp_path / "gpus.json"
    with collector(driver, Clock(), state=state) as gpus:
        gpus.collect()
    driver.set_gpu(5, gone=1)
    driver.set_gpu(6, lost=1)
    with collector(driver, Clock(), state=state) as gpus:
        families = gpus.collect()
        uuids = {reading.gpu.index: reading.gpu.uuid for reading in gpus.readings()}

    assert up(families) == ALL | {"5": 0.0, "6": 0.0}
    assert counted(families) == (8.0, 6.0)
    assert uuids == {index: driver.value(index, "uuid") for index in range(8)}


def test_a_gpu_that_never_answered_is_down_under_its_place(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.set_gpu(1, lost=1)
    with collector(driver, Clock()) as gpus:
        families = gpus.collect()

        assert points(families, GPU_UP)["1", "", ""] == 0.0
        assert counted(families) == (7.0, 7.0)


def test_a_gpu_that_took_the_place_of_a_lost_one_is_shown_as_what_it_is_at_once(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path), Clock()
    with collector(driver, clock) as gpus:
        gpus.collect()
        driver.set_gpu(4, lost=1)
        clock.sleep(1.0)
        gpus.collect()
        driver.set_gpu(4, lost=0, uuid="GPU-new")
        clock.sleep(1.0)
        families = gpus.collect()

    assert [(labels[1], value) for labels, value in points(families, GPU_UP).items() if labels[0] == "4"] == [("GPU-new", 1.0)]


def test_mig_instances_are_down_with_their_gpu(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path, "h100_mig"), Clock()
    with collector(driver, clock) as gpus:
        first = gpus.collect()
        driver.set_gpu(0, lost=1)
        clock.sleep(1.0)
        lost = gpus.collect()

    assert points(lost, GPU_UP).keys() == points(first, GPU_UP).keys()
    assert {labels[2] for labels, value in points(lost, GPU_UP).items() if value == 0.0} == {"", "2", "5", "13"}
    assert up(lost)["1"] == 1.0


def test_each_xid_error_is_passed_on_once_with_its_gpu(tmp_path: Path) -> None:
    driver, clock, seen = Driver(tmp_path), Clock(), []
    with collector(driver, clock, on_xid=lambda *xid: seen.append(xid), unix_clock=lambda: 1.5e9) as gpus:
        gpus.collect()
        driver.event(5, 79)
        driver.event(2, 48)
        driver.event(2, 48)
        for _ in range(3):
            clock.sleep(20.0)
            gpus.collect()

    assert seen == [
        (driver.value(gpu, "uuid"), driver.value(gpu, "pci_bus_id"), xid, 1.5e9) for gpu, xid in ((5, 79), (2, 48), (2, 48))
    ]


def test_a_driver_without_events_gives_readings_all_the_same(tmp_path: Path) -> None:
    driver = Driver(tmp_path, missing=["nvmlEventSetCreate"])
    with collector(driver, Clock()) as gpus:
        assert up(gpus.collect()) == ALL


def test_a_collector_that_is_closed_has_let_go_of_the_driver_and_of_its_thread(tmp_path: Path) -> None:
    driver, left = Driver(tmp_path), LeftBehind()
    with driver.in_process():
        gpus = GpuCollector(load=lambda: pynvml)
        gpus.collect()
        gpus.close()

        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()
    wait_for(lambda: not left.threads())
    assert driver.calls()["nvmlGpmSampleFree"] == driver.calls()["nvmlGpmSampleAlloc"] == 16


@pytest.mark.alone
@pytest.mark.waits
def test_a_driver_that_hangs_is_not_shut_down_under_its_call(tmp_path: Path) -> None:
    driver, left = Driver(tmp_path), LeftBehind()
    with collector(driver, time.monotonic) as gpus:
        gpus.collect()
        driver.set_gpu(0, hang_seconds=30)
        gpus.collect()
        gpus.close()

        assert "nvmlShutdown" not in driver.calls()
        driver.clear_gpu(0, "hang_seconds")
        wait_for(lambda: not left.threads())


def test_without_a_driver_nvidia_ml_py_is_not_even_imported() -> None:
    code = (
        "import sys\n"
        "from tachoscope_node.gpu.nvml.collector import GpuCollector\n"
        "try: GpuCollector().collect()\n"
        "except Exception as error: print(type(error).__name__, 'pynvml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PATH": "", **_paths()})

    assert done.stdout.split() == ["NotSupportedError", "False"]


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(path for path in sys.path if path)}

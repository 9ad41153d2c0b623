"""What the driver says of a GPU is what the agent says, unit by unit, on every kind of GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nvml_script import GPM, PROCESSES, Clock, collector, expected, flat, script

from fake_nvml import PROFILES, Driver
from tachoscope_core.metrics import gpu as names
from tachoscope_node.gpu.nvml.sources import SOURCES
from tachoscope_node.gpu.reading import GpuProcess

GPUS = {"h100x8": 8, "a100x4": 4, "h100_mig": 2, "laptop": 1, "old_driver": 2}


def test_there_is_a_count_of_gpus_for_every_profile() -> None:
    assert set(GPUS) == set(PROFILES)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_values_of_a_scripted_load_are_what_the_script_set_and_nothing_else(tmp_path: Path, profile: str) -> None:
    driver, clock = Driver(tmp_path, profile), Clock()
    script(driver, GPUS[profile])
    with collector(driver, clock) as gpus:
        gpus.collect()
        for phase in range(3):
            clock.sleep(15.0)
            script(driver, GPUS[profile], phase)
            gpus.collect()
            whole = [reading for reading in gpus.readings() if not reading.gpu.mig]

            assert [reading.gpu.index for reading in whole] == list(range(GPUS[profile]))
            for reading in whole:
                assert flat(reading.values) == pytest.approx(expected(driver, reading.gpu.index), rel=1e-14)


def test_each_value_that_a_call_of_its_own_gives_comes_by_that_where_there_are_no_fields(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path), Clock()
    driver.set_gpu("*", retired__corrected=0, retired__uncorrected=0)
    script(driver, 8)
    both = {source.key for source in SOURCES if source.call} & {source.key for source in SOURCES if source.field}
    driver.set({f"gpu.*.field.{source.field}.error": 3 for source in SOURCES if source.field and source.key in both})
    with collector(driver, clock) as gpus:
        gpus.collect()
        clock.sleep(1.0)
        gpus.collect()
        reading = gpus.readings()[5]

    assert len(both) == 20
    assert flat(reading.values) == pytest.approx(expected(driver, 5), rel=1e-14)


def test_a_reading_says_which_gpu_it_is_and_which_processes_compute_there(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.set_gpu(3, process__77="unknown")
    script(driver, 8)
    with collector(driver, Clock()) as gpus:
        gpus.collect()
        reading = gpus.readings()[3]

    assert reading.gpu.uuid == driver.value(3, "uuid")
    assert (reading.gpu.model, reading.gpu.driver_version) == ("NVIDIA H100 80GB HBM3", "550.90.07")
    assert reading.gpu.pci_bus_id == driver.value(3, "pci_bus_id")
    assert reading.processes is not None
    assert set(reading.processes) == {GpuProcess(77, None), *(GpuProcess(pid + 3, used) for pid, used in PROCESSES.items())}
    assert reading.seconds > 0


def test_gpm_tells_nothing_until_there_is_a_sample_before(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path), Clock()
    script(driver, 8)
    with collector(driver, clock) as gpus:
        gpus.collect()
        first = gpus.readings()[0].value(names.GPU_ACTIVE, "sm")
        clock.sleep(1.0)
        gpus.collect()

        assert first is None
        assert gpus.readings()[0].value(names.GPU_ACTIVE, "sm") == GPM[2][0] / 100


def test_what_changes_slowly_is_read_every_15_seconds_and_all_else_each_time(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path), Clock()
    with collector(driver, clock) as gpus:
        gpus.collect()
        driver.set_gpu("*", power_mw=501_000, power_limit_mw=502_000, ecc__corrected__volatile=503)
        clock.sleep(14.0)
        gpus.collect()
        soon = gpus.readings()[7]
        clock.sleep(1.0)
        gpus.collect()
        later = gpus.readings()[7]

    assert (soon.value(names.GPU_POWER, "usage"), soon.value(names.GPU_POWER, "limit")) == (501.0, 700.0)
    assert soon.value(names.GPU_ECC_ERRORS, "corrected", "volatile") == 0.0
    assert (later.value(names.GPU_POWER, "usage"), later.value(names.GPU_POWER, "limit")) == (501.0, 502.0)
    assert later.value(names.GPU_ECC_ERRORS, "corrected", "volatile") == 503.0


LAPTOP = {
    "nvmlDeviceGetUtilizationRates": 1,
    "nvmlDeviceGetMemoryInfo_v2": 1,
    "nvmlDeviceGetFieldValues": 1,
    "nvmlDeviceGetTemperature": 1,
    "nvmlDeviceGetComputeRunningProcesses_v3": 1,
}
OLD_DRIVER = {
    "nvmlDeviceGetUtilizationRates": 2,
    "nvmlDeviceGetMemoryInfo": 2,
    "nvmlDeviceGetPowerUsage": 2,
    "nvmlDeviceGetFieldValues": 2,
    "nvmlDeviceGetClockInfo": 4,
    "nvmlDeviceGetTemperature": 2,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 2,
    "nvmlDeviceGetComputeRunningProcesses_v2": 2,
}


@pytest.mark.parametrize(("profile", "needed"), [("laptop", LAPTOP), ("old_driver", OLD_DRIVER)])
def test_no_call_is_made_each_time_for_what_a_gpu_cannot_tell(tmp_path: Path, profile: str, needed: dict[str, int]) -> None:
    driver, clock = Driver(tmp_path, profile), Clock()
    with collector(driver, clock) as gpus:
        gpus.collect()
        clock.sleep(1.0)
        driver.forget_calls()
        gpus.collect()
        asked = {function: calls for function, calls in driver.calls().items() if calls}

    assert asked == needed | {"nvmlDeviceGetCount_v2": 1, "nvmlEventSetWait_v2": 1}


def test_not_even_a_slow_reading_measures_the_pcie_throughput_for_20_ms(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    with collector(driver, Clock()) as gpus:
        gpus.collect()

        assert driver.calls()["nvmlDeviceGetFieldValues"]
        assert "nvmlDeviceGetPcieThroughput" not in driver.calls()


def test_what_a_gpu_could_not_tell_is_asked_for_again_after_ten_minutes(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path, "laptop"), Clock()
    with collector(driver, clock) as gpus:
        gpus.collect()
        driver.set_gpu(0, clock_sm_mhz=1500)
        clock.sleep(590.0)
        gpus.collect()
        soon = gpus.readings()[0].value(names.GPU_CLOCK, "sm", "current")
        clock.sleep(10.0)
        gpus.collect()

        assert soon is None
        assert gpus.readings()[0].value(names.GPU_CLOCK, "sm", "current") == 1.5e9


def test_a_value_that_one_gpu_no_longer_tells_goes_at_once_and_comes_by_another_call_where_there_is_one(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path), Clock()
    with collector(driver, clock) as gpus:
        gpus.collect()
        driver.set({"gpu.3.field.185.error": 3, "gpu.3.field.82.error": 3})
        clock.sleep(1.0)
        gpus.collect()
        soon = gpus.readings()
        clock.sleep(15.0)
        gpus.collect()
        later = gpus.readings()

    assert [reading.value(names.GPU_POWER, "usage") for reading in soon] == [69.0] * 3 + [None] + [69.0] * 4
    assert [reading.value(names.GPU_POWER, "usage") for reading in later] == [69.0] * 8
    assert [reading.value(names.GPU_TEMPERATURE, "memory") for reading in later] == [37.0] * 3 + [None] + [37.0] * 4
    assert all(reading.up for reading in (*soon, *later))


def test_a_value_that_failed_only_once_is_back_within_15_seconds(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path), Clock()
    with collector(driver, clock) as gpus:
        gpus.collect()
        driver.set({"gpu.2.error.nvmlDeviceGetTemperature": 999})
        clock.sleep(1.0)
        gpus.collect()
        failed = gpus.readings()[2]
        driver.clear("gpu.2.error.nvmlDeviceGetTemperature")
        clock.sleep(15.0)
        gpus.collect()

        assert failed.up
        assert failed.value(names.GPU_TEMPERATURE, "gpu") is None
        assert gpus.readings()[2].value(names.GPU_TEMPERATURE, "gpu") == 29.0


@pytest.mark.parametrize("field", [38, 83, 138, 197])
def test_a_value_that_the_driver_marks_as_not_available_is_left_out(tmp_path: Path, field: int) -> None:
    driver = Driver(tmp_path)
    driver.set({f"gpu.0.field.{field}": (1 << 64) - 1})
    with collector(driver, Clock()) as gpus:
        gpus.collect()
        values = flat(gpus.readings()[0].values)

    assert not [key for key, value in values.items() if value > 1e15]


def test_each_mig_instance_is_read_by_itself_and_the_whole_gpu_tells_no_utilisation(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path, "h100_mig"), Clock()
    driver.set_gpu(0, utilization_gpu=55, utilization_memory=44)  # as some drivers tell, of nobody knows what
    for place, instance in enumerate((2, 5, 13)):
        lines = {f"gpm.{number}": value / 2 + place for number, (value, *_) in GPM.items() if number < 20}
        lines |= {f"process.{5000 + place}": 1 << 30, "memory_used": 1000 + place}
        driver.set({f"gpu.0.mig.{instance}.{key}": value for key, value in lines.items()})
    with collector(driver, clock) as gpus:
        gpus.collect()
        clock.sleep(1.0)
        gpus.collect()
        readings = gpus.readings()

    whole, parts = readings[0], readings[1:4]
    assert [(reading.gpu.index, reading.gpu.mig, reading.gpu.mig_profile) for reading in readings] == [
        (0, "", ""),
        (0, "2", "3g.40gb"),
        (0, "5", "2g.20gb"),
        (0, "13", "1g.10gb"),
        (1, "", ""),
    ]
    assert {names.GPU_UTILIZATION.name, names.GPU_COPY_UTILIZATION.name, names.GPU_ACTIVE.name}.isdisjoint(whole.values)
    for place, part in enumerate(parts):
        assert part.gpu.parent_uuid == whole.gpu.uuid
        assert part.gpu.uuid == driver.value(0, f"mig.{part.gpu.mig}.uuid")
        assert part.processes == (GpuProcess(5000 + place, 1 << 30),)
        assert part.value(names.GPU_MEMORY_BYTES, "used") == 1000 + place
        told = {labels[0]: value for labels, value in part.values[names.GPU_ACTIVE.name].items()}
        assert told == {labels[0]: (value / 2 + place) / 100 for number, (value, _, labels, _) in GPM.items() if number < 20}


def test_instances_that_are_made_and_removed_come_and_go_within_15_seconds(tmp_path: Path) -> None:
    driver, clock = Driver(tmp_path, "h100_mig"), Clock()
    with collector(driver, clock) as gpus:
        gpus.collect()
        before = [reading.gpu.mig for reading in gpus.readings()]
        made = {"uuid": "MIG-new", "profile": "1g.10gb", "memory_total": 10 << 30, "memory_used": 7, "gpm.2": 50}
        driver.set({f"gpu.0.mig.11.{key}": value for key, value in made.items()} | {"gpu.0.mig.5.uuid": "none"})
        for _ in range(3):
            clock.sleep(15.0)
            gpus.collect()
        after = gpus.readings()

    assert driver.calls()["nvmlGpmSampleFree"] == driver.calls()["nvmlGpmSampleAlloc"] == 2 * (1 + 3 + 1)
    assert before == ["", "2", "5", "13", ""]
    assert sorted(reading.gpu.mig for reading in after) == ["", "", "11", "13", "2"]
    assert all(reading.up for reading in after)
    (new,) = [reading for reading in after if reading.gpu.mig == "11"]
    assert new.value(names.GPU_ACTIVE, "sm") == 0.5
    assert replace(new.gpu, uuid="", mig="", parent_uuid="", mig_profile="") == replace(after[0].gpu, uuid="")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_gpu_and_an_instance_have_no_more_series_than_the_budget(tmp_path: Path, profile: str) -> None:
    driver, clock = Driver(tmp_path, profile), Clock()
    script(driver, GPUS[profile])
    with collector(driver, clock) as gpus:
        gpus.collect()
        clock.sleep(1.0)
        series: dict[tuple[str, ...], int] = {}
        for family in gpus.collect():
            for labels, _ in family.points:
                series[labels[:3]] = series.get(labels[:3], 0) + 1

    assert max(series.values()) <= 80

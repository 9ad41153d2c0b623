from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pynvml as nvml
import pytest

import fake_nvml
from fake_nvml import PROFILES, Driver
from fake_nvml_keys import TEXT, VALUES
from nvml_calls import ALL_LINKS, CALLS, DEFAULTED, field_value

SHOWN_ELSEWHERE = {
    *(key for key, unit in VALUES.items() if unit == TEXT),
    *("cuda_capability", "processes", "gpm_supported", "lost", "gone", "hang_seconds", "error"),
    *("compute_instance", "multiprocessors", "gpu_slices", "compute_slices"),  # of MIG instances
}


def handle(index: int):
    return nvml.nvmlDeviceGetHandleByIndex(index)


def said(driver: Driver, gpu: int, key: str) -> int | None:
    value = driver.value(gpu, key)
    return None if value is None else int(value, 0)


def test_each_number_that_the_driver_can_say_is_read_by_some_call_here() -> None:
    assert set(CALLS) | SHOWN_ELSEWHERE == set(VALUES)
    assert not set(CALLS) & SHOWN_ELSEWHERE


@pytest.mark.parametrize("key", CALLS)
def test_a_value_set_for_a_gpu_is_what_each_call_says_of_it_and_of_no_other_gpu(driver: Driver, key: str) -> None:
    planted = 37 if key.startswith("retired.") else 1_000_003
    driver.set_gpu(4, **{key: 12})
    driver.set_gpu(5, **{key: planted})
    assert [call(handle(5)) for call in CALLS[key]] == [planted] * len(CALLS[key])
    assert [call(handle(4)) for call in CALLS[key]] == [12] * len(CALLS[key])


@pytest.mark.parametrize("key", sorted(set(CALLS) - DEFAULTED))
def test_a_value_that_is_absent_is_not_supported_by_any_call(driver: Driver, key: str) -> None:
    driver.set_gpu(1, **{key: "none"})
    for call in CALLS[key]:
        with pytest.raises(nvml.NVMLError_NotSupported):
            call(handle(1))


@pytest.mark.parametrize("key", ["energy_mj", "throttle_ns.power_cap", "nvlink_tx_kib", "pcie_rx_bytes", "memory_total"])
def test_counters_go_beyond_32_bits(driver: Driver, key: str) -> None:
    driver.set_gpu(0, **{key: 2**40 + 7})
    assert {call(handle(0)) for call in CALLS[key]} == {2**40 + 7}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_gpus_of_a_profile_say_what_its_file_says_and_nothing_else(loaded, profile: str) -> None:
    driver = loaded(profile)
    excused = (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported) if profile == "old_driver" else ()
    for gpu in range(nvml.nvmlDeviceGetCount()):
        for key in sorted(set(CALLS) - DEFAULTED):
            told = []
            for call in CALLS[key]:
                try:
                    told.append(call(handle(gpu)))
                except excused:
                    continue
                except nvml.NVMLError_NotSupported:
                    told.append(None)
            assert set(told) <= {said(driver, gpu, key)}, key
            assert told or said(driver, gpu, key) is None, f"{key} is in the profile and no call tells it"


def test_gpus_are_who_the_profile_says_they_are(driver: Driver) -> None:
    assert nvml.nvmlSystemGetDriverVersion() == "550.90.07"
    assert nvml.nvmlSystemGetNVMLVersion() == "12.550.90.07"
    assert nvml.nvmlSystemGetCudaDriverVersion() == nvml.nvmlSystemGetCudaDriverVersion_v2() == 12040
    for gpu in range(8):
        device = handle(gpu)
        assert nvml.nvmlDeviceGetIndex(device) == nvml.nvmlDeviceGetMinorNumber(device) == gpu
        assert nvml.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3"
        assert nvml.nvmlDeviceGetUUID(device) == driver.value(gpu, "uuid")
        assert nvml.nvmlDeviceGetSerial(device) == driver.value(gpu, "serial")
        assert nvml.nvmlDeviceGetCudaComputeCapability(device) == (9, 0)
    info = nvml.nvmlDeviceGetPciInfo(handle(5))
    assert (info.busId, info.busIdLegacy, info.domain, info.bus, info.device) == ("00000000:C3:00.0", "0000:c3:00.0", 0, 0xC3, 0)


def test_a_gpu_is_found_by_uuid_and_by_bus_id_in_either_way_of_writing(driver: Driver) -> None:
    by_uuid = nvml.nvmlDeviceGetHandleByUUID(driver.value(6, "uuid"))
    by_bus = [nvml.nvmlDeviceGetHandleByPciBusId(text) for text in ("00000000:D1:00.0", "0000:d1:00.0")]
    assert [nvml.nvmlDeviceGetIndex(device) for device in (by_uuid, *by_bus)] == [6, 6, 6]
    for absent in (nvml.nvmlDeviceGetHandleByUUID, nvml.nvmlDeviceGetHandleByPciBusId):
        with pytest.raises(nvml.NVMLError_NotFound):
            absent("00000000:99:00.0")
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        handle(8)


def test_memory_adds_up_and_the_older_call_counts_what_is_reserved_as_used(driver: Driver) -> None:
    driver.set_gpu(0, memory_total=1000, memory_used=300, memory_reserved=50)
    new, old = nvml.nvmlDeviceGetMemoryInfo(handle(0), nvml.nvmlMemory_v2), nvml.nvmlDeviceGetMemoryInfo(handle(0))
    assert (new.total, new.used, new.reserved, new.free) == (1000, 300, 50, 650)
    assert (old.total, old.used, old.free) == (1000, 350, 650)


def test_fields_are_answered_one_by_one_each_with_its_own_code(driver: Driver) -> None:
    driver.set_gpu(2, field__169=11, field__170__error=nvml.NVML_ERROR_NO_PERMISSION, field__171="2.5", energy_mj="none")
    fields = nvml.nvmlDeviceGetFieldValues(handle(2), [169, 170, 171, 83, 9999])
    assert [answer.fieldId for answer in fields] == [169, 170, 171, 83, 9999]
    assert [answer.nvmlReturn for answer in fields] == [0, nvml.NVML_ERROR_NO_PERMISSION, 0, *2 * [nvml.NVML_ERROR_NOT_SUPPORTED]]
    assert fields[0].timestamp > 0
    assert (field_value(handle(2), 169), field_value(handle(2), 171)) == (11, 2.5)


def test_a_fields_scope_picks_a_link_and_no_scope_is_the_first_link_only(driver: Driver) -> None:
    driver.set_gpu(0, nvlinks=4, nvlink_tx_kib=403, field__166__2=9, field__166=5)
    assert [field_value(handle(0), 138, link) for link in range(4)] == [103, 100, 100, 100]
    assert (field_value(handle(0), 138), field_value(handle(0), 138, ALL_LINKS)) == (103, 403)
    assert (field_value(handle(0), 166, 1), field_value(handle(0), 166, 2)) == (5, 9)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        field_value(handle(0), 138, 4)


def test_a_link_is_active_unless_the_state_says_that_it_is_down(driver: Driver) -> None:
    driver.set_gpu(0, nvlinks_down="3 17")
    assert [link for link in range(18) if not nvml.nvmlDeviceGetNvLinkState(handle(0), link)] == [3, 17]
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetNvLinkState(handle(0), 18)


def test_an_old_library_has_not_the_newer_functions(loaded) -> None:
    loaded("old_driver")
    device = handle(0)
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
    for absent in (nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlGpmQueryDeviceSupport):
        with pytest.raises(nvml.NVMLError_FunctionNotFound):
            absent(device)
    with pytest.raises(nvml.NVMLLibraryMismatchError):
        nvml.nvmlDeviceGetComputeRunningProcesses(device)
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v2(device) == []
    assert nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device) == 1


def test_any_function_can_be_missing_but_only_one_that_there_is(loaded, tmp_path: Path) -> None:
    loaded("laptop", missing=["nvmlDeviceGetPowerUsage"])
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetPowerUsage(handle(0))
    assert nvml.nvmlDeviceGetUtilizationRates(handle(0)).gpu == 0
    with pytest.raises(ValueError, match="no nvmlDeviceGetPowerUsages"):
        Driver(tmp_path / "other", "laptop", missing=["nvmlDeviceGetPowerUsages"])


def test_another_process_finds_the_library_by_its_environment_and_sees_what_is_set_while_it_runs(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "laptop")
    program = """
import pynvml, sys
pynvml.nvmlInit()
for line in sys.stdin:
    print(pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(0)), flush=True)
"""
    environment = {**os.environ, **driver.environment()}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=-1, stdout=-1, text=True) as process:
        for power in (2130, 90_000, 5):
            driver.set_gpu(0, power_mw=power)
            process.stdin.write("\n")
            process.stdin.flush()
            assert int(process.stdout.readline()) == power
        process.stdin.close()
    assert driver.calls()["nvmlDeviceGetPowerUsage"] == 3


def test_two_drivers_in_one_process_know_nothing_of_each_other(loaded, tmp_path: Path) -> None:
    first = loaded("laptop")
    nvml.nvmlDeviceGetPowerUsage(handle(0))
    second = Driver(tmp_path / "second", "old_driver")
    with second.in_process():
        nvml.nvmlInit()
        assert (nvml.nvmlDeviceGetCount(), nvml.nvmlSystemGetDriverVersion()) == (2, "470.256.02")
    assert "nvmlDeviceGetPowerUsage" not in second.calls()
    assert first.calls()["nvmlDeviceGetPowerUsage"] == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"gpu.0.utilisation_gpu": 3}, "utilization_gpu"),
        ({"gpu.0.power_mw": "much"}, "must be a number"),
        ({"driver.gpu": 3}, "driver.gpus"),
        ({"driver.missing": "nvmlInit_v2"}, "when the library is linked"),
    ],
)
def test_what_the_library_would_not_understand_is_refused(tmp_path: Path, lines: dict, message: str) -> None:
    driver = Driver(tmp_path)
    before = driver.state.read_text()
    with pytest.raises(ValueError, match=message):
        driver.set(lines)
    assert driver.state.read_text() == before


def test_the_library_compiles_without_a_warning(tmp_path: Path) -> None:
    sources = map(str, fake_nvml.HERE.glob("*.c"))
    flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(["gcc", *flags, *sources], cwd=tmp_path, check=True)

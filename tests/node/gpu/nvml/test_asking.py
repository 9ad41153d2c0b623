"""Many sources, few calls."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from fake_nvml import Driver
from tachoscope_node.gpu.nvml.batched_query import batch, query_gpu
from tachoscope_node.gpu.nvml.driver import LOST
from tachoscope_node.gpu.nvml.sources import FIELDS_AND_CALLS

THROTTLED = [source for source in FIELDS_AND_CALLS if source.call == "nvmlDeviceGetCurrentClocksEventReasons"]
FIELDS = [source for source in FIELDS_AND_CALLS if source.field]


def test_all_fields_are_one_call_and_each_function_is_called_once_for_all_that_its_answer_gives(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.set_gpu(0, throttle_reasons=0x44)
    with driver.in_process():
        pynvml.nvmlInit()
        driver.forget_calls()
        answers = query_gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0), batch(THROTTLED + FIELDS))
        calls = driver.calls()

    assert calls["nvmlDeviceGetFieldValues"] == calls["nvmlDeviceGetCurrentClocksEventReasons"] == 1
    assert {source.labels[0] for source, value in answers.values if source in THROTTLED and value} == {
        "power_cap",
        "hardware_thermal",
    }
    told = {source for source, _ in answers.values}
    assert told.isdisjoint(answers.refused)
    assert told | set(answers.refused) == {*THROTTLED, *FIELDS}


def test_what_one_source_refuses_the_others_tell(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.set({"gpu.0.field.83.error": 999, "gpu.0.error.nvmlDeviceGetCurrentClocksEventReasons": 4})
    with driver.in_process():
        pynvml.nvmlInit()
        answers = query_gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0), batch(THROTTLED + FIELDS))

    refused = {source.field or source.call: code for source, code in answers.refused.items()}
    assert refused[83] == 999
    assert refused["nvmlDeviceGetCurrentClocksEventReasons"] == 4
    assert len(answers.values) > 20


@pytest.mark.parametrize("key", ["gpu.0.field.83.error", "gpu.0.error.nvmlDeviceGetCurrentClocksEventReasons"])
def test_a_lost_gpu_is_asked_nothing_more(tmp_path: Path, key: str) -> None:
    driver = Driver(tmp_path)
    driver.set({key: LOST})
    with driver.in_process():
        pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            query_gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0), batch(THROTTLED + FIELDS))


def test_a_driver_without_the_call_for_fields_refuses_each_of_them(tmp_path: Path) -> None:
    with Driver(tmp_path, missing=["nvmlDeviceGetFieldValues"]).in_process():
        pynvml.nvmlInit()
        answers = query_gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0), batch(FIELDS))

    assert answers.values == []
    assert answers.refused == dict.fromkeys(FIELDS, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

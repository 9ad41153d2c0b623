"""What a GPU answers is learnt, and for how long that holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from fake_nvml import PROFILES, Driver
from tachoscope_node.gpu.nvml.query_plan import KEEP_SECONDS, UNSURE_SECONDS, Plan, make_plan
from tachoscope_node.gpu.nvml.sources import ValueSource


def learnt(folder: Path, profile: str, change: Callable[[Driver], None] = lambda _: None) -> Plan:
    driver = Driver(folder, profile)
    change(driver)
    with driver.in_process():
        pynvml.nvmlInit()
        return make_plan(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0), 100.0)


def sources(plan: Plan) -> list[ValueSource]:
    batches = (plan.fast, plan.slow)
    return [source for batch in batches for source in (*batch.fields, *(one for *_, found in batch.calls for one in found))]


@pytest.mark.parametrize("profile", PROFILES)
def test_each_value_is_asked_of_one_source_only_and_the_plan_holds_for_ten_minutes(tmp_path: Path, profile: str) -> None:
    plan = learnt(tmp_path, profile)
    keys = [source.key for source in sources(plan)]

    assert len(keys) == len(set(keys)) > 5
    assert plan.until == 100.0 + KEEP_SECONDS


def test_a_source_that_fails_in_a_way_that_may_pass_is_kept_for_now(tmp_path: Path) -> None:
    plan = learnt(tmp_path, "h100x8", lambda driver: driver.set({"gpu.0.field.82.error": 999, "gpu.0.field.185.error": 999}))

    assert plan.until == 100.0 + UNSURE_SECONDS
    assert 82 in {source.field for source in sources(plan)}
    power = [source for source in sources(plan) if source.key == ("tachoscope_gpu_power_watts", ("usage",))]
    assert [source.call for source in power] == ["nvmlDeviceGetPowerUsage"]


def test_a_gpu_that_answers_nothing_is_an_error_not_an_empty_plan(tmp_path: Path) -> None:
    def fail(driver: Driver) -> None:
        driver.set_gpu(0, error=999)

    with pytest.raises(pynvml.NVMLError_Unknown):
        learnt(tmp_path, "h100x8", fail)


def test_the_links_and_limits_of_a_gpu_are_learnt(tmp_path: Path) -> None:
    plan = learnt(tmp_path, "h100x8")

    assert (plan.links, plan.limits) == (18, {"gpu": 89.0, "memory": 95.0})
    assert (plan.gpm, plan.mig) == (True, False)

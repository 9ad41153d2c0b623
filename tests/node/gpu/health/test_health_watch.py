"""The real agent with the fake driver: each fault is named by the verdict, the metrics and one line, and the other GPUs go on."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fake_nvml import Driver
from gpu_readings import Lines, lost, reading, uuid
from processes import AgentProcess, agent_process, wait_for
from tachoscope_node.config.settings import Gpu
from tachoscope_node.gpu.health.collector_factory import HealthWatch
from tachoscope_node.gpu.reading import Reading

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the fake driver is compiled with gcc")

FAST = {"interval_seconds": 0.2}
XID = "NVRM: Xid (PCI:0000:{}): {}, pid='<unknown>', name=<unknown>, as the driver says\n"


def page(agent: AgentProcess) -> dict[str, Any]:
    return dict(json.loads(agent.get("/v1/health")))


def gpus(agent: AgentProcess) -> dict[int, dict[str, Any]]:
    return {gpu["gpu"]: gpu for gpu in page(agent)["gpus"]}


def reasons(agent: AgentProcess, gpu: int) -> list[str]:
    return [reason["reason"] for reason in gpus(agent)[gpu]["reasons"]]


def samples(agent: AgentProcess, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(agent.get("/metrics"))
        for sample in family.samples
        if sample.name == name
    }


def lines(agent: AgentProcess, *words: str) -> list[str]:
    return [line for line in agent.log.read_text().splitlines() if all(word in line for word in words)]


def write(kmsg: Path, sequence: int, text: str) -> None:
    with kmsg.open("a") as file:
        file.write(f"4,{sequence},{time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000},-;{text}")


def test_each_fault_is_named_by_the_verdict_the_metrics_and_one_line_and_the_other_gpus_go_on(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "driver", "h100x8")
    driver.set({"gpu.3.ecc.uncorrected.volatile": 2, "gpu.4.throttle_reasons": "0x48"})
    faults = {
        1: ("xid_79", "unhealthy", "reboot_node", "Xid 79"),
        2: ("lost", "unhealthy", None, "lost"),
        3: ("ecc_uncorrected", "unhealthy", "reset_gpu", "ecc uncorrected: 2"),
        4: ("hardware_thermal", "degraded", "inspect_hardware", "hardware thermal: 1"),
        5: ("no_answer", "unknown", None, "no_answer"),
    }
    with agent_process(tmp_path, environ=driver.environment(), gpu=FAST | {"enabled": "on"}) as agent:
        wait_for(lambda: page(agent)["state"] == "unhealthy" and len(gpus(agent)) == 8)
        driver.event(1, 79)
        driver.set_gpu(2, lost=1)
        driver.set_gpu(5, hang_seconds=300)
        for gpu, (reason, *_) in faults.items():
            wait_for(lambda gpu=gpu, reason=reason: reason in reasons(agent, gpu))  # type: ignore[misc]

        found, names = gpus(agent), samples(agent, "tachoscope_gpu_health_reason_info")
        states = samples(agent, "tachoscope_gpu_health")
        for gpu, (reason, state, action, words) in faults.items():
            assert (found[gpu]["state"], [each["reason"] for each in found[gpu]["reasons"]]) == (state, [reason])
            assert action in (None, found[gpu]["reasons"][0]["action"])
            assert found[gpu]["reasons"][0]["since"] > 1e9
            shown = found[gpu]["reasons"][0]["action"]
            assert names[shown, str(gpu), reason, found[gpu]["uuid"]] == 1
            assert states[str(gpu), state, found[gpu]["uuid"]] == 1
            told = 1 + (reason == "lost")  # that it is lost, and what to do
            assert len(lines(agent, found[gpu]["uuid"], words)) == len(lines(agent, found[gpu]["uuid"])) == told
        assert [found[gpu]["state"] for gpu in (0, 6, 7)] == ["unknown"] * 3
        assert [reasons(agent, gpu) for gpu in (0, 6, 7)] == [["not_measured"]] * 3, (
            "just started, and nothing is known against them"
        )
        assert samples(agent, "tachoscope_gpu_xid_errors_total") == {("1", found[1]["uuid"], "79"): 1}
        assert samples(agent, "tachoscope_node_health")[("unhealthy",)] == 1
        up = {labels[0]: value for labels, value in samples(agent, "tachoscope_gpu_up").items()}
        assert up == {str(gpu): float(gpu not in (2, 5)) for gpu in range(8)}
        driver.set_gpu(5, hang_seconds=0)


def test_an_error_that_nvml_and_the_kernel_log_report_counts_once_also_over_a_restart(tmp_path: Path) -> None:
    driver, kmsg = Driver(tmp_path / "driver", "h100x8"), tmp_path / "kmsg"
    kmsg.touch()
    settings = FAST | {"kernel_log": str(kmsg)}

    def counts(agent: AgentProcess) -> dict[str, float]:
        return {labels[2]: value for labels, value in samples(agent, "tachoscope_gpu_xid_errors_total").items()}

    with agent_process(tmp_path, environ=driver.environment(), gpu=settings) as agent:
        wait_for(lambda: len(gpus(agent)) == 8)
        driver.event(4, 31)
        write(kmsg, 1, XID.format("9d:00", 31))
        write(kmsg, 2, XID.format("9d:00", 63))  # one of those that NVML does not report
        wait_for(lambda: set(counts(agent)) == {"31", "63"})
        wait_for(lambda: "as the driver says" in page(agent)["xids"][-1]["detail"])
        assert counts(agent) == {"31": 1, "63": 1}
        assert {xid["gpu"] for xid in page(agent)["xids"]} == {"4"}
        agent.kill()

        write(kmsg, 3, XID.format("9d:00", 63))
        agent.start()
        wait_for(lambda: counts(agent) == {"31": 1, "63": 2})
        assert {reason for gpu in range(8) for reason in reasons(agent, gpu)} == {"not_measured"}, (
            "neither says anything against the GPU"
        )


def test_a_node_whose_driver_does_not_start_tells_of_the_errors_in_the_kernel_log(tmp_path: Path) -> None:
    driver, kmsg = Driver(tmp_path / "driver", "h100x8"), tmp_path / "kmsg"
    driver.set({"driver.init_error": 999})
    write(kmsg, 1, f"NVRM: GPU at PCI:0000:9d:00: {uuid(4)}\n")
    write(kmsg, 2, XID.format("9d:00", 143))
    with agent_process(tmp_path, environ=driver.environment(), gpu=FAST | {"kernel_log": str(kmsg), "expected": 8}) as agent:
        wait_for(lambda: samples(agent, "tachoscope_gpu_xid_errors_total") == {("", uuid(4), "143"): 1})
        assert page(agent)["state"] == "unknown", "it may still start"
        assert [(reason["reason"], reason["action"]) for reason in page(agent)["reasons"]] == [("gpus_missing", "none")]
        assert samples(agent, "tachoscope_gpus") == {("expected",): 8, ("seen",): 0}
        assert samples(agent, "tachoscope_collector_success")["nvml",] == 0


def test_a_laptops_gpu_of_which_little_is_known_is_unknown(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "driver", "laptop")
    with agent_process(tmp_path, environ=driver.environment(), gpu=FAST) as agent:
        wait_for(lambda: len(gpus(agent)) == 1)
        assert (page(agent)["state"], reasons(agent, 0)) == ("unknown", ["not_measured"])


def test_an_agent_without_a_driver_answers_that_nothing_is_known(tmp_path: Path) -> None:
    with agent_process(tmp_path, gpu=FAST | {"enabled": "off"}) as agent:
        assert page(agent) == {"node": "node-1", "time": None, "state": "unknown", "reasons": [], "gpus": [], "xids": []}
        assert samples(agent, "tachoscope_node_health") == {}


class FakeGpus:
    """Readings as a test has them."""

    def __init__(self, *readings: Reading) -> None:
        self.held = readings

    def readings(self) -> tuple[Reading, ...]:
        return self.held

    def expected(self) -> int:
        return len(self.held)

    def driver(self) -> str:
        return "works"


@pytest.fixture
def watch(tmp_path: Path) -> HealthWatch:
    return HealthWatch(tmp_path, "/proc", Lines().log)


def run(watch: HealthWatch, settings: Gpu, fake: FakeGpus | None) -> None:
    for collector in watch.collectors(settings, fake):
        collector.collect()


def test_a_reload_that_changes_nothing_keeps_what_is_known(watch: HealthWatch) -> None:
    fake, settings = FakeGpus(reading(), lost(1)), Gpu()
    run(watch, settings, fake)
    since = watch.page("node-1")["gpus"][1]["reasons"][0]["since"]
    run(watch, Gpu(), fake)
    assert watch.page("node-1")["gpus"][1]["reasons"][0]["since"] == since


def test_errors_outlive_a_reload_that_changes_all(watch: HealthWatch, tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    run(watch, Gpu(kernel_log=str(kmsg)), FakeGpus(reading(index=0)))
    write(kmsg, 1, XID.format("10:00", 79))
    run(watch, Gpu(kernel_log=str(kmsg)), FakeGpus(reading(index=0)))
    for settings in (Gpu(), Gpu(kernel_log=str(kmsg), interval_seconds=2.0)):
        run(watch, settings, FakeGpus(reading(index=0)))
        assert [(xid["uuid"], xid["count"]) for xid in watch.page("node-1")["xids"]] == [(uuid(0), 1)]


def test_nvml_counts_by_address_what_it_cannot_name(watch: HealthWatch) -> None:
    watch.on_xid("", "00000000:9B:00.0", 79, 1e9)
    run(watch, Gpu(), FakeGpus())
    assert watch.page("node-1")["xids"][0]["uuid"] == "PCI:0000:9b:00"


def test_an_error_at_an_address_where_no_gpu_is_known_is_counted_at_once_with_a_line(tmp_path: Path) -> None:
    said, kmsg = Lines(), tmp_path / "kmsg"
    kmsg.touch()
    watch, settings = HealthWatch(tmp_path, "/proc", said.log), Gpu(kernel_log=str(kmsg))
    run(watch, settings, FakeGpus(reading(index=0)))
    write(kmsg, 1, XID.format("ee:00", 79))
    run(watch, settings, FakeGpus(reading(index=0)))
    assert [(xid["uuid"], xid["count"]) for xid in watch.page("node-1")["xids"]] == [("PCI:0000:ee:00", 1)]
    assert [line for line in said.lines if "PCI:0000:ee:00" in line and "Xid 79" in line]

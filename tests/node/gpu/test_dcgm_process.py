"""The whole agent with a dcgm-exporter beside it, with a driver and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trees import points

from fake_nvml import Driver
from gpu.fake_dcgm_exporter import Line, fake_dcgm_exporter, page, uuid
from processes import AgentProcess, agent_process, wait_for
from spooling import FakeClock, agent_of, pass_seconds
from tachoscope_core.metrics.gpu import GPU_POWER, GPU_XID_ERRORS, GPUS


def test_a_node_without_nvml_has_its_gpus_their_health_and_their_xid_errors_from_the_exporter(
    tmp_path: Path, logged: list[str]
) -> None:
    clock = FakeClock()
    lines = [Line(gpu, {"DCGM_FI_DEV_POWER_USAGE": 300 + gpu, "DCGM_FI_DEV_XID_ERRORS": 0}) for gpu in range(2)]
    with fake_dcgm_exporter(page(lines)) as exporter:
        agent = agent_of(tmp_path, clock=clock, gpu={"enabled": "off", "dcgm_url": exporter.url})
        pass_seconds(agent, clock, 1)
        before = agent.families()
        exporter.page = page([lines[0], Line(1, {"DCGM_FI_DEV_POWER_USAGE": 90, "DCGM_FI_DEV_XID_ERRORS": 79})])
        pass_seconds(agent, clock, 16)
        after, health = agent.families(), agent.health()
        agent.close()

    assert points(before, GPU_POWER) == {(str(gpu), uuid(gpu), "", "usage"): 300.0 + gpu for gpu in range(2)}
    assert points(before, GPUS) == {("expected",): 2.0, ("seen",): 2.0}
    assert points(before, GPU_XID_ERRORS) == {}
    assert points(after, GPU_XID_ERRORS) == {("1", uuid(1), "79"): 1.0}
    assert f"({uuid(1)}): Xid 79" in "\n".join(logged)
    assert "collector nvml" not in "\n".join(logged)
    states = {gpu["uuid"]: gpu["state"] for gpu in json.loads(json.dumps(health))["gpus"]}
    assert states.keys() == {uuid(0), uuid(1)}
    assert states[uuid(1)] == "unhealthy"


def value(agent: AgentProcess, series: str) -> Any:
    found = [line for line in agent.get("/metrics").splitlines() if line.startswith(series)]
    return float(found[0].rpartition(" ")[2]) if found else None


def test_an_exporter_that_hangs_takes_nothing_from_the_driver(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "driver", "h100x8")
    with fake_dcgm_exporter() as exporter:
        exporter.fault = "hang"
        settings = {"enabled": "on", "dcgm_url": exporter.url, "interval_seconds": 0.2}
        with agent_process(tmp_path, environ=driver.environment(), gpu=settings) as agent:
            wait_for(lambda: value(agent, 'tachoscope_collector_success{collector="dcgm"}') == 0.0)
            assert value(agent, 'tachoscope_collector_success{collector="nvml"}') == 1.0
            assert value(agent, 'tachoscope_gpus{kind="seen"}') == 8.0
        log = agent.log.read_text()

    assert log.count("collector dcgm: failed: DcgmError: ") == 1

"""The agent itself, as a process, beside a driver that fails."""

from __future__ import annotations

import time
from pathlib import Path

from fake_nvml import Driver
from processes import AgentProcess, wait_for

ALL = {str(index) for index in range(8)}


def gpus_up(page: str) -> set[str]:
    lines = [line for line in page.splitlines() if line.startswith("tachoscope_gpu_up{") and line.endswith(" 1.0")]
    return {line.split('gpu="')[1].split('"')[0] for line in lines}


def test_the_page_answers_while_a_call_hangs_and_the_agent_ends_in_order(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "driver")
    agent = AgentProcess(tmp_path, driver.environment(), forked=True, tick_seconds=0.2, stop_seconds=1.0)
    agent.start()
    wait_for(lambda: gpus_up(agent.get("/metrics")) == ALL)
    driver.set_gpu(6, hang_seconds=300)
    slowest, down = 0.0, ALL
    for _ in range(600):
        began = time.monotonic()
        page = agent.get("/metrics")
        slowest = max(slowest, time.monotonic() - began)
        if (down := gpus_up(page)) != ALL:
            break
        time.sleep(0.1)
    began = time.monotonic()
    code = agent.stop()

    assert down == ALL - {"6"}
    assert slowest < 30.0  # the call hangs for 300 s
    assert code == 0
    assert time.monotonic() - began < 30.0
    assert len([line for line in agent.log.read_text().splitlines() if "GPU 6" in line and "no_answer" in line]) == 1


def test_gpus_are_switched_off_and_on_by_a_reload(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "driver")
    agent = AgentProcess(tmp_path, driver.environment(), gpu={"enabled": "off"})
    agent.start()
    without = agent.get("/metrics")
    assert agent.process is not None
    mapped = Path(f"/proc/{agent.process.pid}/maps").read_text()
    agent.write_config(gpu={"enabled": "on", "expected": 9})
    agent.process.send_signal(1)
    page = wait_for(lambda: gpus_up(agent.get("/metrics")) == ALL and agent.get("/metrics"))
    agent.write_config(gpu={"enabled": False})
    agent.process.send_signal(1)
    wait_for(lambda: "tachoscope_gpu" not in agent.get("/metrics"))
    code = agent.stop()

    assert "tachoscope_gpu" not in without
    assert 'collector="nvml"' not in without
    assert "libnvidia-ml" not in mapped
    assert 'tachoscope_gpus{kind="expected"} 9.0' in page
    assert code == 0
    assert driver.calls()["nvmlShutdown"] == 1

"""NVIDIA's dashboard for dcgm-exporter works with no DCGM: a real Prometheus scrapes a real agent and answers all its queries."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_nvml import Driver
from gpu.fake_kubelet import kubelet
from helpers import command
from processes import AgentProcess, agent_process, ask_prometheus, prometheus, wait_for

# Every query of the dashboard: https://grafana.com/grafana/dashboards/12239, whose JSON is
# https://github.com/NVIDIA/dcgm-exporter/blob/d5e5f51/grafana/dcgm-exporter-dashboard.json. With what each has to give here.
QUERIES = {
    'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}': 61.0,
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})': 61.0,
    'DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}': 500.0,
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})': 4000.0,
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000': 1755e6,
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}': 97.0,
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}': 40960.0,
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}': 0.5,
}
VARIABLES = {"instance": "label_values(DCGM_FI_DEV_GPU_TEMP, instance)", "gpu": "label_values(DCGM_FI_DEV_GPU_TEMP, gpu)"}
LEGEND = "gpu"
STATE: dict[str, Any] = {
    "temperature": 61,
    "power_mw": 500_000,
    "clock_sm_mhz": 1755,
    "utilization_gpu": 97,
    "memory_used": 40 * 1024**3,
    "gpm__5": 50.0,
}

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


@contextlib.contextmanager
def scraped_agent(folder: Path) -> Iterator[tuple[AgentProcess, int]]:
    driver = Driver(folder, "h100x8")
    driver.set_gpu("*", **STATE)
    environ = driver.environment()
    with agent_process(folder, environ=environ, gpu={"dcgm_names": True, "interval_seconds": 0.2}) as agent:
        wait_for(lambda: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{" in agent.get("/metrics"))
        target = {"targets": [agent.url.removeprefix("http://")]}
        with prometheus(folder, {"job_name": "agents", "static_configs": [target]}) as port:
            wait_for(lambda: ask_prometheus(port, "query", query="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")["result"])
            yield agent, port


@needs_prometheus
def test_every_query_of_the_dashboard_is_answered_for_every_gpu(tmp_path: Path) -> None:
    with scraped_agent(tmp_path) as (agent, port):
        chosen = {}
        for name, query in VARIABLES.items():
            metric, label = query.removeprefix("label_values(").removesuffix(")").split(", ")
            chosen[name] = "|".join(ask_prometheus(port, f"label/{label}/values", **{"match[]": metric}))
        answers = {}
        for query in QUERIES:
            asked = query.replace("$instance", chosen["instance"]).replace("$gpu", chosen["gpu"])
            # A scrape may fail in between, on a crowded machine: then there is no answer until the next.
            answers[query] = wait_for(lambda asked=asked: ask_prometheus(port, "query", query=asked)["result"])  # type: ignore[misc]
        page, address = agent.get("/metrics"), agent.url.removeprefix("http://")

    assert chosen == {"instance": address, "gpu": "0|1|2|3|4|5|6|7"}
    for query, value in QUERIES.items():
        assert [float(answer["value"][1]) for answer in answers[query]] == pytest.approx(
            [value] * (1 if query.startswith(("avg", "sum")) else 8)
        )
        if not query.startswith(("avg", "sum")):
            assert {answer["metric"][LEGEND] for answer in answers[query]} == set("01234567")
    assert "tachoscope_gpu_up{" in page  # its own names stay


@needs_prometheus
def test_the_pod_of_a_gpu_arrives_under_its_own_name_or_as_exported_pod_as_a_dcgm_exporters_does(tmp_path: Path) -> None:
    """Scraped both ways, as one of the pods that a PodMonitor finds; GPU 1 has no pod."""
    target = {"job": "", "pod": "agent-x7k2p", "namespace": "monitoring"}
    driver = Driver(tmp_path / "driver", "h100x8")
    with kubelet(tmp_path / "kubelet") as fake:
        fake.give(str(driver.value(0, "uuid")), pod="trainer-0")
        settings = {"dcgm_names": True, "pod_resources": str(fake.socket)}
        with agent_process(tmp_path, environ=driver.environment(), gpu=settings) as agent:
            wait_for(lambda: 'pod="trainer-0"' in agent.get("/metrics").partition("DCGM_FI_DEV_GPU_TEMP{")[2])
            address = agent.url.removeprefix("http://")
            jobs = [
                {
                    "job_name": str(honor),
                    "honor_labels": honor,
                    "static_configs": [{"targets": [address], "labels": {**target, "job": str(honor)}}],
                }
                for honor in (True, False)
            ]
            with prometheus(tmp_path, *jobs) as port:
                query = 'DCGM_FI_DEV_GPU_TEMP{gpu=~"0|1"}'
                found = wait_for(lambda: _all_of(ask_prometheus(port, "query", query=query)["result"], 4))

    owners = {
        (answer["metric"]["job"], answer["metric"]["gpu"]): tuple(
            answer["metric"].get(label, "") for label in ("pod", "namespace", "exported_pod", "exported_namespace")
        )
        for answer in found
    }
    assert owners == {
        ("False", "0"): ("agent-x7k2p", "monitoring", "trainer-0", "ml"),
        ("False", "1"): ("agent-x7k2p", "monitoring", "", ""),
        ("True", "0"): ("trainer-0", "ml", "", ""),
        ("True", "1"): ("", "", "", ""),  # the label is there, and is empty: the agent's own pod does not step in
    }


def _all_of(found: list[Any], number: int) -> list[Any]:
    return found if len(found) == number else []


def test_the_option_of_the_command_line_is_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("{state: /var/tmp/tachoscope, gpu: {dcgm_url: 'http://127.0.0.1:9400/metrics'}}")
    without, with_it = (command("agent", "--config", file, "--check", *more) for more in ([], ["--dcgm-names"]))

    assert (without.returncode, with_it.returncode) == (0, 0)
    assert ["WARNING: gpu.dcgm_names beside" in done.stdout for done in (without, with_it)] == [False, True]


def test_without_the_option_there_is_none_of_these_names_and_with_it_they_are_in_no_store(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "h100x8")
    with agent_process(tmp_path, environ=driver.environment(), sample_seconds=0.2, gpu={"interval_seconds": 0.2}) as agent:
        wait_for(lambda: "tachoscope_gpu_temperature_celsius{" in agent.get("/metrics"))
        assert "DCGM_" not in agent.get("/metrics")

        agent.write_config(gpu={"dcgm_names": True, "interval_seconds": 0.2})
        agent.signal(signal.SIGHUP)
        wait_for(lambda: "DCGM_FI_DEV_GPU_TEMP{" in agent.get("/metrics"))
        agent.stop()
    stored = b"".join(gzip.decompress(path.read_bytes()) for path in (tmp_path / "store").rglob("metrics/**/*.gz"))
    assert b"tachoscope_gpu_temperature_celsius" in stored
    assert b"DCGM_" not in stored
